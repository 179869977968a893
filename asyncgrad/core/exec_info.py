"""Which nodes a partial pass runs: those on a path to a requested edge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Any

from asyncgrad.core.node import MAX_SEQUENCE_NR, Edge, GraphRoot, Node, as_edge
from asyncgrad.core.variable import AccumulateGrad

_NONE: frozenset[Any] = frozenset()
#: `captures` entries for leaves (their first input), by position in the result.
_FIRST_INPUTS = tuple([((0, place),) for place in range(200)])
_LEAVES = {AccumulateGrad}


class ExecInfo:
    """Which nodes a partial pass runs, and what it captures."""

    __slots__ = (
        "all_requested", "captures", "captures_inner", "min_topological_nr", "needed", "trimmed",
    )  # fmt: skip

    def __init__(self, edges: Sequence[Any], run: bool) -> None:
        """Note the stored edges whose nodes are to `run`, or whose gradients are to be captured."""
        #: The nodes to run, because they lead to something requested. `walk` adds to them.
        self.needed: Any = _NONE
        #: The nodes in `needed` of which some edges lead to nothing requested.
        self.trimmed: Any = _NONE
        min_topological_nr = 0
        #: Something other than a leaf is requested.
        self.captures_inner = False
        # Fast path for the usual case: only leaves are requested, each once.
        entries: Any = _FIRST_INPUTS
        if len(edges) > len(entries):
            entries = [((0, place),) for place in range(len(edges))]
        captures = dict(zip(edges, entries))  # noqa: B905  the lengths differ
        if len(captures) != len(edges) or set(map(type, edges)) != _LEAVES:
            captures.clear()
            min_topological_nr = MAX_SEQUENCE_NR
            node: Any
            for place, edge in enumerate(edges):
                node, input_nr = as_edge(edge)
                min_topological_nr = min(min_topological_nr, node.topological_nr)
                captures[node] = (*captures.get(node, ()), (input_nr, place))
            self.captures_inner = set(map(type, captures)) != _LEAVES
        #: For captured nodes: pairs of an input number and a position in the result.
        self.captures: dict[Any, tuple[tuple[int, int], ...]] = captures
        #: A node with a smaller topological number can't lead to anything requested.
        self.min_topological_nr = min_topological_nr if edges else 0
        #: The walk has found no leaf that is not requested.
        self.all_requested = True
        if run:
            self.needed, self.captures = set(captures), {}

    def should_execute(self, node: Node) -> bool:
        """Whether the pass runs the node or captures its gradient."""
        return node in self.needed or node in self.captures

    def walk(self, root: Node, dependencies: dict[Any, int], every: int) -> Iterator[None]:
        """Find the nodes that run, and count the edges over which their gradients will come.

        The walk is depth first: whether a node is needed is known once it is known of all nodes
        that it leads to. So the node is put on the stack again with a None above it, which says
        that this is now to be decided. Each edge is looked at twice. The generator yields after
        every `every` looks.
        """
        captures, min_topological_nr = self.captures, self.min_topological_nr
        needed = self.needed = set(self.needed)
        trimmed = self.trimmed = set()
        seen = set()
        stack: list[Any] = [root]
        left = every
        while stack:
            node = stack.pop()
            if node is not None:
                if node in seen:
                    continue
                seen.add(node)
                stack += (node, None)
                following = node.following
                for edge in following if following.__class__ is tuple else (following,):
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
                            and child not in seen
                        ):
                            stack.append(child)
                continue
            node = stack.pop()
            following = node.following
            if following.__class__ is not tuple:
                following = (following,)
            wanted = 0
            for edge in following:
                left -= 1
                if not left:
                    left = every
                    yield
                if edge is not None:
                    child = edge.node if edge.__class__ is Edge else edge
                    if child in needed or child in captures:
                        wanted += 1
                        dependencies[child] = dependencies.get(child, 0) + 1
            if wanted:
                needed.add(node)
            if wanted < len(following) and node in needed:
                trimmed.add(node)


class InnerNodes:
    """The set of all nodes that are not leaves, and some leaves."""

    __slots__ = ("_leaves",)

    def __init__(self, leaves: set[Any]) -> None:
        self._leaves = leaves

    def __contains__(self, node: Node) -> bool:
        return node.topological_nr > 0 or node in self._leaves


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
    if info is not None and node not in info.needed and node.__class__ is not GraphRoot:
        return []
    return [
        edge.node
        for edge in node.next_edges
        if edge.node is not None and (info is None or info.should_execute(edge.node))
    ]
