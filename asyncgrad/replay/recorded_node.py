"""A node of the graph of what a recorded call returns."""

from __future__ import annotations

from typing import Any

from asyncgrad.core.node import Freed, OpNode, as_edge, stored_edges
from asyncgrad.core.versions import VersionCounter
from asyncgrad.replay.arrays import KnownArrays
from asyncgrad.replay.steps import UnrepeatableError
from asyncgrad.replay.watched_pass import saved_in


class RecordedNode:
    """A node of the recorded call, without what it had saved."""

    __slots__ = (
        "cost", "edges", "guard", "guards", "kind", "metadata", "positions", "rule", "saved",
    )  # fmt: skip

    def __init__(self, node: Any, edges: list[Any]) -> None:
        self.rule = node.rule or node._form
        #: The class of nodes that are made again.
        self.kind: Any = node.__class__ if node.rule is None else OpNode
        self.metadata = node.output_metadata
        self.cost = node.cost
        #: Where its gradients go: the number of a node, a source, a leaf of the call's own as a
        #: `Made`, or None. And to which input.
        self.edges = edges
        self.positions = [as_edge(stored).input_nr for stored in stored_edges(node)]
        #: The template of what it saves, or a `Freed`.
        self.saved: Any = node.saved
        #: For each version counter that it checks: the counter's number, or another, which stays
        #: as it is because nobody can change the tensor; and by how much its version has grown
        #: from then to the end of the call.
        self.guards: list[tuple[int | VersionCounter, int]] = []
        #: The node's `guard` if the call has released what the node saved, else None.
        self.guard = node.guard if self.saved.__class__ is Freed else None

    def describe(self, node: Any, recorder: KnownArrays, counted: dict[Any, int]) -> None:
        """Note what the node has saved, and which version counters it checks."""
        self.saved = saved_in(recorder, node, node.saved)
        if node.guard is None:
            return
        guards, versions = node.guard, node.version
        if guards.__class__ is not tuple:
            guards, versions = (guards,), (versions,)
        for counter, version in zip(guards, versions, strict=False):
            if counter.cuts_since(version):
                raise UnrepeatableError("it detaches a tensor in place that its graph has saved")
            grown = counter.changed_since(version)
            unseen = VersionCounter()
            unseen.value = counter.version
            self.guards.append((counted.get(counter, unseen), grown))

    def set_guards(self, node: Any, counters: list[VersionCounter], versions: list[int]) -> None:
        """Give a node that was made again its version counters, of those that a replay has."""
        if not self.guards:
            return
        guards = tuple([counters[at] if isinstance(at, int) else at for at, _ in self.guards])
        expected = tuple(
            [(versions[at] if isinstance(at, int) else at.value) - less for at, less in self.guards]
        )
        single = len(guards) == 1
        node.guard = guards[0] if single else guards
        node.version = expected[0] if single else expected
