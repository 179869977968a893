"""The node that stands for the whole graph of what a replay has returned. See `replay.graph`."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any

from asyncgrad.core.exec_info import ALL, SOME
from asyncgrad.core.modes import current
from asyncgrad.core.node import (
    Edge,
    Freed,
    Node,
    OpNode,
    as_edge,
    as_stored,
    init_node,
    stored_edges,
)
from asyncgrad.core.node_streams import note_streams
from asyncgrad.core.run_node import apply_rule, call_node, is_wanted, some_pulls
from asyncgrad.core.saved import values_as_tensors
from asyncgrad.core.variable import (
    AccumulateGrad,
    View,
    autograd_meta,
    counter_of,
    gradient_edge,
    is_inference,
)
from asyncgrad.core.versions import VersionCounter
from asyncgrad.ops.registry import RECORDED
from asyncgrad.replay.graph import Graph
from asyncgrad.replay.graph_pass import record
from asyncgrad.replay.steps import filled

#: The counter of tensors that nobody can change.
_UNCHANGED = VersionCounter()


@dataclass(slots=True, eq=False, repr=False)
class State:
    """What a `GraphNode` knows besides what it has saved."""

    #: What the node stands for.
    graph: Graph
    #: The expected versions of what the node's `guard` holds.
    versions: list[int]
    #: Nothing else refers to the gradients that the node has computed last.
    fresh: bool = False
    #: Which of the graph's nodes the last pass has run, and those that passes have released.
    ran: Any = frozenset()
    freed: list[tuple[Any, Freed]] = field(default_factory=list)
    #: The nodes of an eager call with the result's own, if a pass has needed them. From then on the
    #: `GraphNode` is in the place of the result's own node, and leads to the others.
    made: tuple[list[Any], Any] | None = None
    #: Then: the edges from the graph to the leaves.
    slots: tuple[Any, ...] = ()


class GraphNode(Node):
    """Stands for the whole graph of what a replay has returned; its `version` is a `State`."""

    __slots__ = ()

    sees_modes = False

    @property
    def fresh(self) -> bool:
        """Nothing else refers to what `apply` has returned."""
        return bool(self.version.fresh)

    def apply(self, gradients: tuple[Any, ...], task: Any) -> Any:
        """Compute the gradients for the edges, which lead out of the graph, or to its nodes."""
        (gradient,) = gradients
        state = self.version
        state.fresh, state.ran = False, frozenset()
        if task is None:
            _, root = state.made or self.made_again()
            return call_node(root, gradients, RECORDED)
        edges = self.following
        if state.made is None and gradient is None:
            # A `Function` behind it gives none.
            return (None,) * len(edges)
        # Hooks get what the result's own node computes.
        is_hooked = self.extras is not None and self.extras.post
        if state.made is None and task.recorded is None and not (is_hooked or _share(edges)):
            received = self._by_program(gradient, self._flags(edges, task))
            # If this runs in a thread, another pass may have made the nodes by now.
            if received is not None and self.following is edges:
                return received
        return self._as_own(gradient, task)

    def made_again(self) -> tuple[list[Any], Any]:
        """Make the nodes of the recorded call for a replay; returns them and the result's own."""
        graph, kept = self.version.graph, self.saved
        released = kept.__class__ is Freed
        arrays = dict(zip(graph.saved, repeat(None) if released else kept, strict=not released))
        leaving: dict[Any, Any] = dict(zip(graph.slots, self.following, strict=True))
        for leaf in graph.own_leaves if not released else ():
            variable = filled(leaf, arrays)
            autograd_meta(variable).requires_grad = True
            leaving[leaf] = gradient_edge(variable)
        freed = {number: one for ran, one in self.version.freed for number in ran}
        stream = getattr(self, "stream", None)
        nodes: list[Any] = []
        for number, known in enumerate(graph.nodes):
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
            node.sequence_nr = self.sequence_nr - 1 + (number + 1) / (len(graph.nodes) + 1)
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
                    known.set_guards(node, self.guard, self.version.versions)
            if stream is not None:
                node.stream = stream
            nodes.append(node)
        return nodes, nodes[graph.roots[0]]

    def _flags(self, edges: tuple[Any, ...], task: Any) -> Any:
        """Which of these edges a pass needs; None if it needs all."""
        return None if task.exec_info is None else tuple([is_wanted(task, x) for x in edges])

    def _by_program(self, gradient: Any, flags: Any) -> Any:
        """Compute the gradients in one go; None if an eager call's nodes have to do that."""
        saved, state = self.saved, self.version
        graph = state.graph
        key = flags, gradient.strides, gradient.dtype
        backward = graph.backwards.get(key)
        ran = graph.nodes_run(flags) if backward is None else backward[2]
        if not (
            saved.__class__ is not Freed
            and self._is_unchanged()
            and all(released.isdisjoint(ran) for released, _ in state.freed)
        ):
            return None
        fresh = False
        if backward is None:
            received = record(graph, self.made_again()[0], saved, gradient, key, ran)
        else:
            program, fresh, _ = backward
            run = program.run
            memory = program.take_memory()
            received = program.call(memory, run, (gradient, *saved), [False], memory.buffers)
            program.give_memory(memory)
            # If this runs in a thread, a task on the loop may have changed a tensor by now.
            if not self._is_unchanged():
                return None
        state.fresh, state.ran = fresh, ran
        return received

    def _as_own(self, gradient: Any, task: Any) -> Any:
        """Compute the gradients of the result's own node, and have the pass run the others."""
        state, graph = self.version, self.version.graph
        if state.made is None:
            made = self.made_again()
            edges = stored_edges(made[1])
            # Another thread may have made some during a call. From this check to the assignment
            # Python makes no call, and so does not switch threads.
            if state.made is None:
                state.slots, self.following, state.made = self.following, edges, made
        nodes, root = state.made
        dependencies, info = task.dependencies, task.exec_info
        inner = set(nodes)
        if not any(as_edge(x).node in inner and is_wanted(task, x) for x in self.following):
            # The pass has counted the edges from the graph to the leaves: this is the first that
            # comes here, or it had started before. The nodes between are not counted yet.
            for number, wanted in graph.wanted(self._flags(state.slots, task)).items():
                node = nodes[number]
                if info is not None:
                    info.leads[node] = ALL if all(wanted) else SOME
                for edge, flag in zip(stored_edges(node), wanted, strict=True):
                    target = as_edge(edge).node
                    if flag and target in inner:
                        dependencies[target] = dependencies.get(target, 0) + 1
        rule = root.rule
        wanted = self._flags(self.following, task)
        run = rule.run if wanted is None else some_pulls(rule.run, rule.pulls, wanted)
        if task.recorded is not None and rule.arrays:
            # The gradients have graphs that lead to this node, where later passes sum what arrives.
            run = partial(_leading_to, self, root, run)
        several = root.output_metadata.__class__ is tuple
        given = [gradient] + [None] * (root.num_inputs - 1) if several else gradient
        received, state.fresh = apply_rule(task, root, given, run, task.recorded)
        return received

    def _is_unchanged(self) -> bool:
        """Whether no tensor that others can see has been changed in place since."""
        expected: list[int] = self.version.versions
        return [counter.value for counter in self.guard] == expected

    def release_saved(self, freed: Freed) -> None:
        """Release what was saved, and keep it for other nodes than those that have run."""
        state = self.version
        if state.made is not None:
            # Each node releases what it has saved.
            self.saved = freed
            self.guard = None
            return
        state.freed.append((state.ran, freed))
        saving = state.graph.saving
        if saving and saving <= set().union(*[released for released, _ in state.freed]):
            lasting = state.graph.lasting
            if any(lasting):
                kept = zip(self.saved, lasting, strict=True)
                self.saved = [value if lasts else None for value, lasts in kept]
            else:
                self.saved = freed
                self.guard = None

    def name(self) -> str:
        """How errors and traces call it, as in PyTorch."""
        return "CompiledFunctionBackward"


def give_node(graph: Graph, returned: Any, arguments: Any) -> Any:
    """Give the results of a program their node; returns what the function returns."""
    result, outs, saved, watched, views, bases = returned
    edges = tuple([gradient_edge(source.of(arguments)) for source in graph.slots])
    node = GraphNode()
    init_node(node, edges, outs[0]._metadata, graph.cost)
    # Greater than the number of any node that may be made in its place.
    node.topological_nr += len(graph.nodes)
    seen = (*outs, *watched)
    node.guard = guards = [
        _counter(seen[one] if one.__class__ is int else one.of(arguments)) for one in graph.counted
    ]
    node.saved = saved
    node.version = State(graph, [counter.value for counter in guards])
    nodes: list[Any] = [node]
    if len(outs) == 1:
        outs[0]._edge = node
        for known in graph.to_base:
            made = OpNode()
            init_node(made, nodes[-1], known.metadata, known.cost)
            made.rule, made.saved = known.rule, known.saved
            views[0]._edge = made
            nodes.append(made)
    else:
        # Hooks on one of them, and `grad()` of it, may need the nodes between it and others.
        nodes, _ = node.made_again()
        for out, number in zip(outs, graph.roots, strict=True):
            out._edge = nodes[number]
    for view, base, path in zip(views, bases, graph.paths, strict=True):
        view._counter = counter = counter_of(base)
        view._autograd = View(base, path, counter.value, None)
        counter.register(view)
    scope = current().streams
    for one in nodes if scope is not None else ():
        note_streams(one, scope)
    return result


def _counter(tensor: Any) -> VersionCounter:
    return _UNCHANGED if is_inference(tensor) else counter_of(tensor)


def _leading_to(front: Any, node: Any, run: Any, F: Any, gradient: Any, _: Any) -> Any:
    """Call a node's rule with tensors that lead into the graph, where `front` is in its place."""
    saved = values_as_tensors(node)
    for value in saved if saved.__class__ is tuple else (saved,):
        if getattr(value, "_edge", None) is node:
            value._edge = front
    return run(F, gradient, saved)


def _share(edges: tuple[Any, ...]) -> bool:
    """Whether leaves have one `.grad`: its bits follow from the order in which leaves add to it."""
    leaves: dict[int, Any] = {}
    for x in edges:
        meta = x.variable._autograd if x.__class__ is AccumulateGrad else None
        grad = None if meta is None else meta.grad
        if grad is not None and leaves.setdefault(id(grad), x) is not x:
            return True
    return False
