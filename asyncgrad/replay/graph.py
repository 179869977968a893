"""The graph of what a recorded call returns, and the node that stands for it in replays.

A replay makes no nodes. If it returns a tensor that requires grad, one node leads from it to the
leaves, and to the arguments that have a graph. It saves what the nodes of an eager call would have
saved. When a pass first comes there, these nodes are made after all, and the pass through them is
recorded as a program of its own, which later passes run. A pass that records itself, as with
`create_graph=True`, and one through saved values that were changed or released, runs the nodes
themselves. If several results require grad, the replay makes them at once.

This file is long because all of this is about one object, from the recording to the last pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import repeat
from typing import Any

from asyncgrad.core.modes import current
from asyncgrad.core.node import (
    Edge,
    Freed,
    OpNode,
    as_edge,
    as_stored,
    first_metadata,
    init_node,
    name_of,
    stored_edges,
)
from asyncgrad.core.node_streams import note_streams
from asyncgrad.core.run_node import some_pulls
from asyncgrad.core.saved_values import run_rule
from asyncgrad.core.states import InputBuffer
from asyncgrad.core.variable import (
    AccumulateGrad,
    autograd_meta,
    counter_of,
    gradient_edge,
    is_inference,
)
from asyncgrad.core.versions import VersionCounter
from asyncgrad.replay.arrays import ONE_ARRAY, KnownArrays
from asyncgrad.replay.changes import OUTGROWN, Changes
from asyncgrad.replay.graph_node import GraphNode, State
from asyncgrad.replay.memory import Families
from asyncgrad.replay.program import Program
from asyncgrad.replay.steps import (
    Load,
    Made,
    Place,
    Recorded,
    Source,
    UnrepeatableError,
    filled,
    places_in,
)
from asyncgrad.replay.watched_pass import WatchedPass, saved_in

#: How many programs of passes are kept for one graph.
_LIMIT = 8
#: The counter of tensors that nobody can change.
_UNCHANGED = VersionCounter()


class _Recorded:
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

    def set_guards(self, node: Any, front: GraphNode) -> None:
        """Give a node that was made again its version counters."""
        guards = self.guards
        if not guards:
            return
        counters = tuple([front.guard[at] if isinstance(at, int) else at for at, _ in guards])
        versions = tuple(
            [
                (front.version.versions[at] if isinstance(at, int) else at.value) - less
                for at, less in guards
            ]
        )
        single = len(guards) == 1
        node.guard = counters[0] if single else counters
        node.version = versions[0] if single else versions


class Graph:
    """What is known of the graph of one recorded call's results."""

    def __init__(self, recorder: Changes, returned: Any) -> None:
        """Follow the recorded call's own graph; raises if a replay could not make it again."""
        #: The outputs that require grad.
        self._outputs = [output for output, _ in recorder.with_graph]
        #: For each gradient that leaves the graph: where it goes.
        self._slots: list[Source] = []
        #: The nodes, each after those that it leads to.
        self._nodes: list[_Recorded] = []
        #: Whose version counters are checked: sources, and numbers of outputs.
        self._counted: list[Any] = []
        #: Outputs without a graph that the nodes have saved. Their numbers follow those of the
        #: outputs with one.
        self._watched: list[Any] = []
        #: By the layouts of the gradients that come in and the edges that are wanted: the program
        #: of a pass, and whether nothing else refers to the gradients that it returns.
        self.backwards: dict[Any, tuple[Program, bool]] = {}
        #: Why passes through the graph can't be replayed.
        self.reason: str | None = None
        self._follow(recorder)
        if len({output.metadata.device for output in self._outputs}) > 1:
            raise UnrepeatableError("its results are on several devices")
        self._cost = sum(one.cost for one in self._nodes)
        #: The numbers of the nodes that can run once, and of those that a kind of passes runs.
        self.saving = {n for n, one in enumerate(self._nodes) if one.rule.saves}
        self._nodes_by_flags: dict[Any, Any] = {}
        saved = [place for one in self._nodes for place in places_in(one.saved)]
        if not recorder.given.isdisjoint(saved):
            raise UnrepeatableError("its graph has saved a tensor that others have been given")
        #: What the node saves.
        self._saved = list(dict.fromkeys([*saved, *[leaf.place for leaf in self._own_leaves]]))
        self._constants = [place for place in self._saved if place in recorder.constants]
        #: Which of that is needed when all that can run once has run.
        again = [one.saved for one in self._nodes if not one.rule.saves]
        last = {*places_in(again), *[leaf.place for leaf in self._own_leaves]}
        self.lasting = [place in last for place in self._saved]
        parts = [self._outputs, self._saved, self._watched]
        self.template = [tuple, [returned, *[[tuple, part] for part in parts]]]

    # -- the recorded call ------------------------------------------------------------------------

    def _follow(self, recorder: Changes) -> None:
        """Describe the nodes."""
        ends = {
            tuple(as_edge(edge)): source
            for source in recorder.sources.values()
            if (edge := gradient_edge(source.tensor)) is not None
        }
        found: dict[Any, None] = {}
        own: dict[Any, Made] = {}
        slots: list[tuple[int, int, Source]] = []
        todo = [tensor._edge for _, tensor in recorder.with_graph]
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
            found[node] = None
            if node.rule is None and node._form is None:
                raise UnrepeatableError(f"what it returns has a graph with {name_of(node)}")
            if node.extras is not None:
                raise UnrepeatableError("it has hooks")
            for number, stored in enumerate(stored_edges(node)):
                source = ends.get(tuple(as_edge(stored)))
                if source is not None:
                    slots.append((-node.sequence_nr, number, source))
                elif stored is not None:
                    todo.append(as_edge(stored).node)
        if not slots:
            raise UnrepeatableError("what it returns has a graph that leads to no other tensor")
        self._slots = [source for *_, source in sorted(slots, key=lambda slot: slot[:2])]
        nodes = sorted(found, key=lambda node: node.sequence_nr)
        numbers: dict[Any, Any] = {node: number for number, node in enumerate(nodes)} | own
        counted = self._counters(recorder, nodes)
        for node in nodes:
            edges = [
                ends.get(tuple(as_edge(stored)), numbers.get(as_edge(stored).node))
                for stored in stored_edges(node)
            ]
            known = _Recorded(node, edges)
            if known.saved.__class__ is not Freed:
                if recorder.is_outgrown(node):
                    raise UnrepeatableError(OUTGROWN)
                known.describe(node, recorder, counted)
            self._nodes.append(known)
        #: Those leaves, which are made anew: gradients with graphs lead there, too.
        self._own_leaves = [*own.values()]
        #: The numbers of the nodes of the outputs.
        self._roots = [numbers[tensor._edge] for _, tensor in recorder.with_graph]

    def _counters(self, recorder: KnownArrays, nodes: list[Any]) -> dict[Any, int]:
        """The numbers of the version counters that the nodes check and others can see."""
        for _, tensor in recorder.with_graph:
            if tensor._edge.rule.arrays:
                # If a node has saved its output, it gets the counter.
                counter_of(tensor)
        checked: set[Any] = set()
        for node in nodes:
            if node.saved.__class__ is not Freed and node.guard is not None:
                single = node.guard.__class__ is not tuple
                checked.update((node.guard,) if single else node.guard)
        if any(grad._counter in checked for grad, _ in recorder.gradients.values()):
            raise UnrepeatableError("its graph has saved a .grad")
        seen: list[tuple[Any, Any]] = [
            (source, source.tensor) for source in recorder.sources.values()
        ]
        seen += [(number, tensor) for number, (_, tensor) in enumerate(recorder.with_graph)]
        for output, tensor in recorder.without_graph:
            if tensor._counter in checked:
                seen.append((len(self._outputs) + len(self._watched), tensor))
                self._watched.append(output)
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
                counted[tensor._counter] = len(self._counted)
                self._counted.append(what)
        return counted

    # -- replays ----------------------------------------------------------------------------------

    def finish(self, returned: Any, arguments: Any) -> Any:
        """Give the results of a program their node; returns what the function returns."""
        result, outs, saved, watched = returned
        edges = tuple([gradient_edge(tensor_of(source, arguments)) for source in self._slots])
        node = GraphNode()
        init_node(node, edges, outs[0]._metadata, self._cost)
        # Greater than the number of any node that may be made in its place.
        node.topological_nr += len(self._nodes)
        seen = (*outs, *watched)
        node.guard = guards = [
            _counter(seen[one] if one.__class__ is int else tensor_of(one, arguments))
            for one in self._counted
        ]
        node.saved = saved
        node.version = State(self, [counter.value for counter in guards])
        nodes: list[Any] = [node]
        if len(outs) == 1:
            outs[0]._edge = node
        else:
            # Hooks on one of them, and `grad()` of it, may need the nodes between it and others.
            nodes, _ = self.made_again(node)
            for out, number in zip(outs, self._roots, strict=True):
                out._edge = nodes[number]
        scope = current().streams
        for made in nodes if scope is not None else ():
            note_streams(made, scope)
        return result

    # -- passes -----------------------------------------------------------------------------------

    def made_again(self, front: GraphNode) -> tuple[list[Any], Any]:
        """Make the nodes of the recorded call for a replay; returns them and the result's own."""
        kept = front.saved
        released = kept.__class__ is Freed
        arrays = dict(zip(self._saved, repeat(None) if released else kept, strict=not released))
        leaving: dict[Any, Any] = dict(zip(self._slots, front.following, strict=True))
        for leaf in self._own_leaves if not released else ():
            variable = filled(leaf, arrays)
            autograd_meta(variable).requires_grad = True
            leaving[leaf] = gradient_edge(variable)
        freed = {number: one for ran, one in front.version.freed for number in ran}
        stream = getattr(front, "stream", None)
        nodes: list[Any] = []
        for number, known in enumerate(self._nodes):
            edges = tuple(
                [
                    as_stored(Edge(nodes[x], position)) if x.__class__ is int else leaving.get(x)
                    for x, position in zip(known.edges, known.positions, strict=True)
                ]
            )
            node = known.kind()
            init_node(node, edges if len(edges) > 1 else edges[0], known.metadata, known.cost)
            # Numbered as if the replayed call had made it, by fractions below the number of the
            # whole graph's node: the order of a pass, and so of its sums, follows these numbers.
            node.sequence_nr = front.sequence_nr - 1 + (number + 1) / (len(self._nodes) + 1)
            if known.kind is OpNode:
                node.rule = known.rule
            if known.saved.__class__ is Freed:
                node.saved, node.guard = known.saved, known.guard
            else:
                node.saved = filled(known.saved, arrays)
                if number in freed:
                    # Its name may follow from saved values that are not arrays.
                    node.release_saved(freed[number])
                else:
                    known.set_guards(node, front)
            if stream is not None:
                node.stream = stream
            nodes.append(node)
        return nodes, nodes[self._roots[0]]

    def wanted(self, flags: Any) -> dict[int, list[bool]]:
        """The nodes of a pass by number, in their order, with the edges that it needs.

        `flags` says which outgoing gradients are wanted; None if all are.
        """
        sources: Any = set(self._slots)
        if flags is not None:
            sources = {source for source, flag in zip(self._slots, flags, strict=True) if flag}
        found: dict[int, list[bool]] = {}
        for number, node in enumerate(self._nodes):
            wanted = [x in sources or x in found for x in node.edges]
            if any(wanted):
                found[number] = wanted
        return dict(reversed(found.items()))

    def nodes_run(self, flags: Any) -> Any:
        """Which of the nodes that can run once a pass runs; see `wanted`."""
        if flags is None:
            return self.saving
        found = self._nodes_by_flags.get(flags)
        if found is None:
            found = self.saving.intersection(self.wanted(flags))
            if len(self._nodes_by_flags) < _LIMIT:
                self._nodes_by_flags[flags] = found
        return found

    def record(self, front: GraphNode, gradient: Any, key: Any) -> Any:
        """Run a pass through the nodes, and keep it as a program; None if that can't be."""
        nodes, _ = self.made_again(front)
        recorder = KnownArrays(Recorded())
        watch = WatchedPass(recorder)
        numbers: dict[Place, int] = {}
        for number, (place, value) in enumerate(zip(self._saved, front.saved, strict=True)):
            if id(value) not in recorder.known:
                mine = recorder.new(value)
                numbers[mine] = number
                if place in self._constants:
                    recorder.constants.add(mine)
        # The graph may have saved the gradient's own array, which then has another place.
        gradient = gradient.view()
        given = recorder.new(gradient)
        try:
            result = self._in_slots(self._observed(nodes, gradient, key[0], watch))
        except Exception:
            # The pass itself has to fail, so that nodes before the failure are released.
            return None
        try:
            if recorder.reason is not None:
                raise UnrepeatableError(recorder.reason)
            slots = [None if x is None else watch.place(x) for x in result]
            self._keep(recorder, numbers, given, slots, key)
        except UnrepeatableError as error:
            self.reason = str(error)
            return None
        return tuple(result)

    def _observed(
        self, nodes: Sequence[Any], gradient: Any, flags: Any, watch: WatchedPass
    ) -> dict[Any, Any]:
        """Run a pass through nodes, each of which is watched; returns what arrives, by source."""
        buffers: dict[int, InputBuffer] = {}
        arrived: dict[Any, Any] = {}

        def arrive(target: Any, position: int, gradient: Any, owned: bool, F: Any) -> None:
            if target.__class__ is not int:
                arrived.setdefault(target, []).append(gradient)
                return
            buffer = buffers.setdefault(target, InputBuffer(nodes[target].num_inputs))
            buffer.add(position, gradient, owned, watch.adding(F))

        arrive(self._roots[0], 0, gradient, False, None)
        for number, wanted in self.wanted(flags).items():
            if number not in buffers:
                continue
            node, known, buffer = nodes[number], self._nodes[number], buffers.pop(number)
            F, rule = first_metadata(node).F, known.rule
            pulls = rule.pulls and tuple(
                [partial(watch.call, node, rule, n) for n in range(len(rule.pulls))]
            )
            run = some_pulls(partial(watch.call, node, rule, None), pulls, wanted)
            several = node.output_metadata.__class__ is tuple
            received = run_rule(node, run, F, buffer.values if several else buffer.values[0], None)
            owned = rule.fresh
            if node.following.__class__ is not tuple:
                received = (received,)
                owned = owned or (rule.passes and buffer.owned[0])
            ends = zip(known.edges, known.positions, received or (), strict=False)
            for target, position, part in ends:
                if part is not None:
                    arrive(target, position, part, owned, F)
        return arrived

    def _in_slots(self, arrived: dict[Any, Any]) -> list[Any]:
        """What has arrived at the ends of the graph, in the order of the node's edges."""
        queues = {source: iter(arrived.get(source) or ()) for source in set(self._slots)}
        return [next(queues[source], None) for source in self._slots]

    def _keep(
        self,
        recorder: KnownArrays,
        numbers: dict[Place, int],
        given: Place,
        slots: list[Place | None],
        key: Any,
    ) -> None:
        """Make the program of a recorded pass."""
        if len(self.backwards) >= _LIMIT:
            raise UnrepeatableError("the gradients of its results have another layout each time")
        found: dict[Source, Any] = {}
        for source, place in zip(self._slots, slots, strict=True):
            if place is not None:
                layout = place.sample.strides
                if found.setdefault(source, layout) != layout:
                    # That of their sum follows from which of them the pass may add into.
                    raise UnrepeatableError("gradients of one tensor have several layouts")
        read = [place for step in recorder.steps for place in step.read]
        read += [place for place in slots if place is not None]
        needed = [
            x for x in dict.fromkeys(read) if x in numbers and x not in recorder.constants
        ]  # fmt: skip
        inputs = [given, *needed]
        places = [0, *[1 + numbers[x] for x in needed]]
        sources = [Source(None, place, is_array=True) for place in places]
        loads = [Load(source, x, False) for source, x in zip(sources, inputs, strict=True)]
        recorder.steps[:0] = loads
        recorder.foreign.update(inputs)
        families = Families(recorder)
        roots = [families.of(place) for place in slots if place is not None]
        foreign = {families.of(place) for place in families.foreign}
        # A rule may return an array that is in a list.
        lists = any(place.sample.__class__ is list for place in needed)
        fresh = not lists and len(set(roots)) == len(roots) and foreign.isdisjoint(roots)
        self.backwards[key] = Program(recorder, [tuple, slots]), fresh


def tensor_of(source: Source, arguments: Any) -> Any:
    """The tensor of a source in this call."""
    return source.tensor if source.argument is None else arguments[source.argument]


def _is_unseen_leaf(node: Any) -> bool:
    """Whether a node, which leads to no source, leads to a leaf of the call's own.

    Nobody sees the gradient that a pass outside of the call would give to that leaf.
    """
    if node.__class__ is not AccumulateGrad or node.extras is not None:
        return False
    meta: Any = node.variable._autograd
    return meta.extras is None and meta.grad is None


def _counter(tensor: Any) -> VersionCounter:
    return _UNCHANGED if is_inference(tensor) else counter_of(tensor)
