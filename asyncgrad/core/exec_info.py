"""Which nodes a partial pass runs: those on a path to a requested edge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Any

from asyncgrad.core.node import MAX_SEQUENCE_NR, Edge, GraphRoot, Node, as_edge
from asyncgrad.core.variable import AccumulateGrad

#: `captures` entries for leaves (their first input), by position in the result.
_FIRST_INPUTS = tuple([((0, place),) for place in range(200)])
_LEAVES = {AccumulateGrad}
#: How many edges of a node lead to something requested.
_NONE, SOME, ALL = range(3)


class ExecInfo:
    """Which nodes a partial pass runs, and what is requested of it."""

    __slots__ = ("accumulate", "all_run", "inner", "leads", "min_topological_nr", "requested")

    def __init__(self, edges: Sequence[Any], accumulate: bool) -> None:
        """Note stored edges: their nodes run or, without `accumulate`, gradients are captured."""
        self.accumulate = accumulate
        min_topological_nr = 0
        #: Something other than a leaf is requested.
        self.inner = False
        # Fast path for the usual case: only leaves are requested, each once.
        entries: Any = _FIRST_INPUTS
        if len(edges) > len(entries):
            entries = [((0, place),) for place in range(len(edges))]
        requested = dict(zip(edges, entries))  # noqa: B905  the lengths differ
        if len(requested) != len(edges) or set(map(type, edges)) != _LEAVES:
            requested.clear()
            min_topological_nr = MAX_SEQUENCE_NR
            node: Any
            for place, edge in enumerate(edges):
                node, input_nr = as_edge(edge)
                min_topological_nr = min(min_topological_nr, node.topological_nr)
                requested[node] = (*requested.get(node, ()), (input_nr, place))
            self.inner = set(map(type, requested)) != _LEAVES
        #: For requested nodes: pairs of an input number and a position in the result.
        self.requested: dict[Any, tuple[tuple[int, int], ...]] = requested
        #: A node with a smaller topological number can't lead to anything requested.
        self.min_topological_nr = min_topological_nr if edges else 0
        #: All leaves are requested, so all other nodes run; True until a walk finds another leaf.
        self.all_run = not self.min_topological_nr
        #: For the nodes of `walk`: how many of the edges lead to something requested; None until
        #: that is known.
        self.leads: dict[Any, int | None] = {}

    def runs(self, node: Node) -> bool:
        """Whether the pass runs the node, or only captures its gradient."""
        if self.accumulate and node in self.requested:
            return True
        return node.topological_nr > 0 if self.all_run else bool(self.leads.get(node))

    def should_execute(self, node: Node) -> bool:
        """Whether the pass runs the node or captures its gradient."""
        return node in self.requested or self.runs(node)

    def trims(self, node: Node) -> bool:
        """Whether some edges of a node that runs lead to nothing requested."""
        return not self.all_run and self.leads.get(node) != ALL

    def walk(self, root: Node, dependencies: dict[Any, int], every: int) -> Iterator[None]:
        """Find the nodes that run, and count the edges over which their gradients will come.

        The walk is depth first: how many edges of a node lead to something requested is known once
        it is known of the nodes behind them. So the node stays on the stack below these, and is
        decided on when it is on top again. Each edge is looked at twice. The generator yields after
        every `every` looks.
        """
        self.all_run = False
        leads, requested, min_topological_nr = self.leads, self.requested, self.min_topological_nr
        stack: list[Any] = [root]
        left = every
        while stack:
            node = stack[-1]
            following = node.following
            if following.__class__ is not tuple:
                following = (following,)
            if node not in leads:
                leads[node] = None
                for edge in following:
                    left -= 1
                    if not left:
                        left = every
                        yield
                    if edge is not None:
                        child: Any = edge.node if edge.__class__ is Edge else edge
                        # Leaves lead to nothing.
                        if (
                            child.following
                            and child.topological_nr >= min_topological_nr
                            and child not in leads
                        ):
                            stack.append(child)
                continue
            stack.pop()
            if leads[node] is not None:
                continue
            wanted = 0
            for edge in following:
                left -= 1
                if not left:
                    left = every
                    yield
                if edge is not None:
                    child = edge.node if edge.__class__ is Edge else edge
                    if leads.get(child) or child in requested:
                        wanted += 1
                        dependencies[child] = dependencies.get(child, 0) + 1
            leads[node] = (ALL if wanted == len(following) else SOME) if wanted else _NONE


def arrivals(root: Node, info: ExecInfo | None) -> dict[Node, int]:
    """By node that a pass runs or captures after the root, over how many edges it is reached."""
    dependencies: dict[Node, int] = {}
    stack = [root]
    while stack:
        for child in _following(stack.pop(), info):
            if child in dependencies:
                dependencies[child] += 1
            else:
                dependencies[child] = 1
                stack.append(child)
    return dependencies


def predicted_order(root: Node, info: ExecInfo | None) -> list[Node]:
    """The nodes of a pass, as in `arrivals`, in the order in which one thread runs them."""
    dependencies = arrivals(root, info)
    order: list[Node] = []
    # With equal numbers, the node that became ready first; nodes themselves can't be compared.
    heap: list[tuple[int, int, Node]] = [(0, 0, root)]
    pushed = 0
    while heap:
        node = heappop(heap)[2]
        if node.__class__ is not GraphRoot:
            order.append(node)
        for child in _following(node, info):
            dependencies[child] -= 1
            if not dependencies[child]:
                pushed += 1
                heappush(heap, (-child.sequence_nr, pushed, child))
    return order


def _following(node: Node, info: ExecInfo | None) -> list[Node]:
    """The nodes that a node's edges lead to and that the pass runs or captures."""
    if info is not None and node.__class__ is not GraphRoot and not info.runs(node):
        return []
    return [
        edge.node
        for edge in node.next_edges
        if edge.node is not None and (info is None or info.should_execute(edge.node))
    ]
