"""The graph of what a recorded call returns: what is known of it.

A replay makes one node in its place (`replay.graph_node`), or all nodes if several results require
grad. Passes through the one node become programs of their own (`replay.graph_pass`).
"""

from __future__ import annotations

from typing import Any

from asyncgrad.core.node import Edge, Freed, OpNode, as_edge, name_of, stored_edges
from asyncgrad.core.saved_values import counters_of, guards_of
from asyncgrad.core.variable import AccumulateGrad, counter_of, gradient_edge
from asyncgrad.core.versions import VersionCounter
from asyncgrad.replay.arrays import ONE_ARRAY, KnownArrays
from asyncgrad.replay.changes import OUTGROWN, Changes
from asyncgrad.replay.program import Program
from asyncgrad.replay.returned import Returned
from asyncgrad.replay.steps import Made, Source, UnrepeatableError, places_in
from asyncgrad.replay.watched_pass import saved_in


class RecordedNode:
    """A node of the recorded call's graph, without what it had saved."""

    __slots__ = (
        "cost", "edges", "guard", "guards", "kind", "metadata", "positions", "rule", "saved",
    )  # fmt: skip

    def __init__(self, node: Any, edges: list[Any], positions: list[int]) -> None:
        self.rule = node.rule or node._applied_rule
        #: The class of nodes that are made again.
        self.kind: Any = node.__class__ if node.rule is None else OpNode
        self.metadata = node.output_metadata
        self.cost = node.cost
        #: Where its gradients go: the number of a node, a source, a leaf of the call's own as a
        #: `Made`, or None. And to which input.
        self.edges = edges
        self.positions = positions
        #: The template of what it saves, or a `Freed`.
        self.saved: Any = node.saved
        #: For each version counter that it checks: the counter's number, or another, which stays
        #: as it is because nobody can change the tensor; and by how much its version has grown
        #: from then to the end of the call.
        self.guards: list[tuple[Any, int]] = []
        #: The node's `guard` if the call has released what the node saved, else None.
        self.guard = node.guard if self.saved.__class__ is Freed else None

    def describe(self, node: Any, recorder: KnownArrays, counted: dict[Any, int]) -> None:
        """Note what the node has saved, and which version counters it checks."""
        self.saved = saved_in(recorder, node, node.saved)
        for counter, version in zip(*guards_of(node), strict=False):
            if counter.cuts_since(version):
                raise UnrepeatableError("it detaches a tensor in place that its graph has saved")
            grown = counter.changed_since(version)
            unseen = VersionCounter()
            unseen.value = counter.version
            self.guards.append((counted.get(counter, unseen), grown))

    def set_guards(self, node: Any, counters: list[VersionCounter], versions: list[int]) -> None:
        """Give a node that was made again its version counters, of those that a replay has."""
        found: list[Any] = []
        for at, less in self.guards:
            seen = isinstance(at, int)
            found.append((counters[at], versions[at] - less) if seen else (at, at.value - less))
        if len(found) == 1:
            ((node.guard, node.version),) = found
        elif found:
            node.guard, node.version = zip(*found, strict=True)


class Graph:
    """What is known of the graph of one recorded call's results."""

    def __init__(self, recorder: Changes, returned: Returned, template: Any) -> None:
        """Follow the recorded call's own graph; raises if a replay could not make it again."""
        views, results = returned.bases, returned.with_graph
        #: If the only result is a view: the nodes that lead from there to its base, the last first.
        self.to_base: list[RecordedNode] = []
        if len(views) == 1 and len(results) == 2:
            (_, base), (_, view) = results
            self.to_base = _nodes_between(view._edge, base._edge)
            if self.to_base:
                # The pass that is recorded begins at the base.
                results.pop()
        #: How to get to the views among the outputs from their bases.
        self.paths = [path for _, path in views.values()]
        #: The outputs that require grad, and the bases of views.
        self._outputs = [output for output, _ in results]
        #: The nodes, each after those that it leads to.
        self.nodes: list[RecordedNode] = []
        #: Whose version counters are checked: sources, and numbers of outputs.
        self.counted: list[Any] = []
        #: By the layouts of the gradients that come in and the edges that are wanted: the program
        #: of a pass, whether nothing else refers to the gradients that it returns, and `nodes_run`.
        self.backwards: dict[Any, tuple[Program, bool, set[int]]] = {}
        #: Why passes through the graph can't be replayed.
        self.reason: str | None = None
        self._follow(recorder, returned)
        if len({output.metadata.device for output in self._outputs}) > 1:
            raise UnrepeatableError("its results are on several devices")
        self.cost = sum(one.cost for one in self.nodes)
        #: The numbers of the nodes that can run once.
        self.saving = {n for n, one in enumerate(self.nodes) if one.rule.saves}
        saved = [place for one in self.nodes for place in places_in(one.saved)]
        if not recorder.given.isdisjoint(saved):
            raise UnrepeatableError("its graph has saved a tensor that others have been given")
        #: What the node saves.
        self.saved = list(dict.fromkeys([*saved, *[leaf.place for leaf in self.own_leaves]]))
        self.constants = [place for place in self.saved if place in recorder.constants]
        #: Which of that is needed when all that can run once has run.
        again = [one.saved for one in self.nodes if not one.rule.saves]
        last = {*places_in(again), *[leaf.place for leaf in self.own_leaves]}
        self.lasting = [place in last for place in self.saved]
        bases = [base for base, _ in views.values()]
        parts = [self._outputs, self.saved, self._watched, [*views], bases]
        self.template = [tuple, [template, *[[tuple, part] for part in parts]]]

    # -- the recorded call ------------------------------------------------------------------------

    def _follow(self, recorder: Changes, returned: Returned) -> None:
        """Describe the nodes that lead from the results to the leaves."""
        ends = {
            as_edge(edge): source
            for source in recorder.sources.values()
            if (edge := gradient_edge(source.tensor)) is not None
        }
        #: By node: where its gradients go.
        found: dict[Any, list[Edge]] = {}
        own: dict[Any, Made] = {}
        slots: list[tuple[int, int, Source]] = []
        todo = [tensor._edge for _, tensor in returned.with_graph]
        if any(edge.__class__ is Edge for edge in todo):
            raise UnrepeatableError("it returns a part of a tensor that it has split")
        while todo:
            node: Any = todo.pop()
            if node in found:
                continue
            if _is_unseen_leaf(node):
                leaf = node.variable
                own[node] = own.get(node) or Made(recorder.array_of(leaf), leaf._metadata)
                continue
            if node.rule is None and node._applied_rule is None:
                raise UnrepeatableError(f"what it returns has a graph with {name_of(node)}")
            _check_hooks(node)
            edges = found[node] = [*map(as_edge, stored_edges(node))]
            for number, edge in enumerate(edges):
                if (source := ends.get(edge)) is not None:
                    slots.append((-node.sequence_nr, number, source))
                elif edge.node is not None:
                    todo.append(edge.node)
        if not slots:
            raise UnrepeatableError("what it returns has a graph that leads to no other tensor")
        #: For each gradient that leaves the graph: where it goes.
        self.slots = [source for *_, source in sorted(slots, key=lambda slot: slot[:2])]
        nodes = sorted(found, key=lambda node: node.sequence_nr)
        numbers: dict[Any, Any] = {node: number for number, node in enumerate(nodes)} | own
        counted = self._counters(recorder, returned, nodes)
        for node in nodes:
            edges = found[node]
            targets = [ends.get(edge, numbers.get(edge.node)) for edge in edges]
            known = RecordedNode(node, targets, [edge.input_nr for edge in edges])
            if known.saved.__class__ is not Freed:
                if recorder.is_outgrown(node):
                    raise UnrepeatableError(OUTGROWN)
                known.describe(node, recorder, counted)
            self.nodes.append(known)
        #: Those leaves, which are made anew: gradients with graphs lead there, too.
        self.own_leaves = [*own.values()]
        #: The numbers of the nodes of the outputs.
        self.roots = [numbers[tensor._edge] for _, tensor in returned.with_graph]

    def _counters(
        self, recorder: KnownArrays, returned: Returned, nodes: list[Any]
    ) -> dict[Any, int]:
        """The numbers of the version counters that the nodes check and others can see."""
        for _, tensor in returned.with_graph:
            if tensor._edge.rule.arrays:
                # If a node has saved its output, it gets the counter.
                counter_of(tensor)
        checked: set[Any] = set()
        for node in nodes:
            checked.update(counters_of(node))
        if any(grad._counter in checked for grad, _ in recorder.gradients.values()):
            raise UnrepeatableError("its graph has saved a .grad")
        seen: list[tuple[Any, Any]] = [(x, x.tensor) for x in recorder.sources.values()]
        # Views have the counters of their bases, which are results, too.
        seen += [
            (number, tensor)
            for number, (output, tensor) in enumerate(returned.with_graph)
            if output not in returned.bases
        ]
        watched = [one for one in returned.without_graph if one[1]._counter in checked]
        seen += [(number, x) for number, (_, x) in enumerate(watched, len(self._outputs))]
        #: Outputs without a graph that the nodes have saved. Their numbers follow those of the
        #: outputs with one.
        self._watched = [output for output, _ in watched]
        counted: dict[Any, int] = {}
        arguments = {x.tensor._counter for x in recorder.sources.values() if x.argument is not None}
        for what, tensor in seen:
            if tensor._counter in checked:
                if (
                    what.__class__ is Source
                    and tensor._counter in counted
                    and tensor._counter in arguments
                ):
                    # Arguments of other calls may have a counter of their own.
                    raise UnrepeatableError(ONE_ARRAY)
                counted[tensor._counter] = len(self.counted)
                self.counted.append(what)
        return counted

    # -- passes -----------------------------------------------------------------------------------

    def wanted(self, flags: Any) -> dict[int, list[bool]]:
        """The nodes of a pass by number, in their order, with the edges that it needs.

        `flags` says which outgoing gradients are wanted; None if all are.
        """
        sources: Any = set(self.slots)
        if flags is not None:
            sources = {source for source, flag in zip(self.slots, flags, strict=True) if flag}
        found: dict[int, list[bool]] = {}
        for number, node in enumerate(self.nodes):
            wanted = [x in sources or x in found for x in node.edges]
            if any(wanted):
                found[number] = wanted
        return dict(reversed(found.items()))

    def nodes_run(self, flags: Any) -> set[int]:
        """Which of the nodes that can run once a pass runs; see `wanted`."""
        return self.saving if flags is None else self.saving.intersection(self.wanted(flags))


def _check_hooks(node: Any) -> None:
    """Raise if a node of the recorded call has hooks."""
    if node.extras is not None:
        raise UnrepeatableError("it has hooks")


def _nodes_between(node: Any, base: Any) -> list[RecordedNode]:
    """The nodes from that of a view to that of its base, the last first.

    There are none if the views between have saved arrays, or are not of one tensor each.
    """
    found: list[RecordedNode] = []
    while node is not base:
        if node.__class__ is not OpNode or node.rule.saves or node.guard is not None:
            return []
        _check_hooks(node)
        found.append(RecordedNode(node, [], []))
        node = node.following
    return found[::-1]


def _is_unseen_leaf(node: Any) -> bool:
    """Whether a node, which leads to no source, leads to a leaf of the call's own.

    Nobody sees the gradient that a pass outside of the call would give to that leaf.
    """
    if node.__class__ is not AccumulateGrad or node.extras is not None:
        return False
    meta: Any = node.variable._autograd
    return meta.extras is None and meta.grad is None
