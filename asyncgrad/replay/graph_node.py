"""The node that stands for the whole graph of what a replay has returned. See `replay.graph`."""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

from asyncgrad.core.node import Freed, Node, OpNode, as_edge, stored_edges
from asyncgrad.core.run_node import apply_rule, call_node, is_wanted, wanted_rule
from asyncgrad.core.saved import values_as_tensors
from asyncgrad.core.variable import AccumulateGrad
from asyncgrad.ops.registry import RECORDED


class Graph(Protocol):
    """What a `GraphNode` asks of the graph that it stands for: a `replay.graph.Graph`."""

    #: The numbers of nodes that have saved something.
    saving: set[int]
    #: By wanted gradients and layout of the given one: a program, and whether its arrays are new.
    backwards: dict[Any, Any]

    def nodes_run(self, flags: Any) -> Any:
        """Which of the nodes that can run once a pass runs."""

    def wanted(self, flags: Any) -> dict[int, list[bool]]:
        """The nodes of a pass by number, with the edges that it needs."""

    def record(self, front: Any, gradient: Any, key: Any) -> Any:
        """Run a pass, and keep it as a program; None if that can't be."""

    def made_again(self, front: Any) -> tuple[list[Any], Any]:
        """Make the nodes of an eager call, and return them with the result's own."""


class State:
    """What a `GraphNode` knows besides what it has saved."""

    __slots__ = ("freed", "fresh", "graph", "made", "ran", "versions")

    def __init__(self, graph: Graph, versions: list[int]) -> None:
        self.graph = graph
        #: The expected versions of what the node's `guard` holds.
        self.versions = versions
        #: Nothing else refers to the gradients that the node has computed last.
        self.fresh = False
        #: Which of the graph's nodes the last pass has run, and those that passes have released.
        self.ran: Any = frozenset()
        self.freed: list[tuple[Any, Freed]] = []
        #: The nodes of an eager call with the result's own, if a pass has needed them: then all
        #: later passes run these.
        self.made: tuple[list[Any], Any] | None = None


class GraphNode(Node):
    """Stands for the whole graph of what a replay has returned."""

    # No slots, so that an instance can become an `OpNode`.
    __slots__ = ()

    sees_modes = False

    @property
    def fresh(self) -> bool:
        """Nothing else refers to what `apply` has returned."""
        return bool(self.version.fresh)

    def apply(self, gradients: tuple[Any, ...], task: Any) -> Any:
        """Compute the gradients of the leaves, and of the arguments that have a graph."""
        (gradient,) = gradients
        state = self.version
        state.fresh, state.ran = False, frozenset()
        if gradient is None:
            # A `Function` behind it gives none.
            return (None,) * len(self.following)
        if task is None:
            self._become_own()
            return call_node(self, gradients, RECORDED)
        flags = None
        if task.exec_info is not None:
            flags = tuple([is_wanted(task, edge) for edge in self.following])
        plain = task.recorded is None and state.made is None and not _share(self.following)
        received = self._by_program(gradient, flags) if plain else None
        if received is None:
            return self._through_nodes(gradient, flags, task)
        if task.streams is not None or task.captures is not None or task.careful or task.launched:
            return received
        return _staged(task, self.following, received, self.fresh)

    def _by_program(self, gradient: Any, flags: Any) -> Any:
        """Compute the gradients in one go; None if an eager call's nodes have to do that."""
        saved, state = self.saved, self.version
        graph = state.graph
        ran = graph.nodes_run(flags)
        if not (
            saved.__class__ is not Freed
            and self._is_unchanged()
            and all(released.isdisjoint(ran) for released, _ in state.freed)
        ):
            return None
        key = flags, gradient.strides, gradient.dtype
        backward = graph.backwards.get(key)
        fresh = False
        if backward is None:
            received = graph.record(self, gradient, key)
        else:
            program, fresh = backward
            run = program.run
            memory = program.take_memory()
            received = program.call(memory, run, (gradient, *saved), [False], memory.buffers)
            program.give_memory(memory)
            # If this runs in a thread, a task on the loop may have changed a tensor by now.
            if not self._is_unchanged():
                return None
        state.fresh, state.ran = fresh, ran
        return received

    def _through_nodes(self, gradient: Any, flags: Any, task: Any) -> Any:
        """Have the pass run the nodes of an eager call."""
        state, graph = self.version, self.version.graph
        if state.made is None:
            state.made = graph.made_again(self)
        nodes, root = state.made
        dependencies, info = task.dependencies, task.exec_info
        own = task.recorded is not None and task.keep_graph
        if own:
            # The gradients have graphs that lead here, too. Gradients are summed where the ways
            # meet, so this has to be the node where they meet in the graph of an eager call.
            for edge in stored_edges(self):
                if (target := as_edge(edge).node) in dependencies:
                    dependencies[target] -= 1
            self._become_own()
        for number, wanted in graph.wanted(flags).items():
            node = self if own and nodes[number] is root else nodes[number]
            if info is not None and info.needed.__class__ is set:
                info.needed.add(node)
                if not all(wanted):
                    info.trimmed.add(node)
            for edge, flag in zip(stored_edges(node), wanted, strict=True):
                if flag:
                    target = as_edge(edge).node
                    dependencies[target] = dependencies.get(target, 0) + 1
        several = root.output_metadata.__class__ is tuple
        given = [gradient] + [None] * (root.num_inputs - 1) if several else gradient
        if own:
            run = wanted_rule(task, self)  # type: ignore[arg-type]
            if root.rule.arrays:
                run = partial(_with_tensors, self, run)
            return apply_rule(task, self, given, run)[0]  # type: ignore[arg-type]
        task.make_ready(root, given, [False] * root.num_inputs if several else False)
        return (None,) * len(stored_edges(self))

    def _become_own(self) -> None:
        """Make this the node that an eager call would have made for the result."""
        state = self.version
        _, root = state.made or state.graph.made_again(self)
        self.__class__ = OpNode  # type: ignore[assignment]
        for name in ("rule", "following", "saved", "guard", "version", "output_metadata", "cost"):
            setattr(self, name, getattr(root, name))

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
            self.saved = freed
            self.guard = None

    def name(self) -> str:
        """How errors and traces call it, as in PyTorch."""
        return "CompiledFunctionBackward"


def _with_tensors(node: Any, run: Any, F: Any, gradient: Any, _: Any) -> Any:
    """Call a rule with tensors that lead into the graph."""
    return run(F, gradient, values_as_tensors(node))


def _share(edges: tuple[Any, ...]) -> bool:
    """Whether leaves have one `.grad`: its bits follow from the order in which leaves add to it."""
    metas = [x.variable._autograd for x in set(edges) if x.__class__ is AccumulateGrad]
    grads = [id(x.grad) for x in metas if x is not None and x.grad is not None]
    return len(grads) > len(set(grads))


def _staged(task: Any, edges: Any, received: tuple[Any, ...], fresh: bool) -> tuple[Any, ...]:
    """Stage the gradients of leaves that get no other gradient; return the rest.

    The pass itself would do the same, but takes 1 us for each leaf.
    """
    dependencies, buffers = task.dependencies, task.not_ready
    rest: list[Any] = []
    for target, gradient in zip(edges, received, strict=True):
        if (
            target.__class__ is AccumulateGrad
            and target.extras is None
            and dependencies.get(target) == 1
            and target not in buffers
        ):
            del dependencies[target]
            if gradient is not None:
                task.staged.append((target.variable, gradient, fresh))
            rest.append(None)
        else:
            rest.append(gradient)
    return tuple(rest)
