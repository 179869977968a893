"""The node that stands for the whole graph of what a replay has returned. See `replay.graph`."""

from __future__ import annotations

from typing import Any, Protocol

from asyncgrad.core.node import Freed, Node, OpNode, refuse_freed
from asyncgrad.core.run_node import is_wanted
from asyncgrad.core.variable import AccumulateGrad


class Graph(Protocol):
    """What a `GraphNode` asks of the graph that it stands for: a `replay.graph.Graph`."""

    #: The numbers of nodes that have saved something.
    saving: set[int]
    #: By wanted gradients and layout of the given one: a program, and whether its arrays are new.
    backwards: dict[Any, Any]

    def nodes_run(self, flags: Any) -> Any:
        """Which of the nodes that can run once a pass runs."""

    def passed(self, front: Any, gradient: Any, flags: Any, shown: Any, *, recorded: bool) -> Any:
        """Run a pass node by node."""

    def record(self, front: Any, gradient: Any, key: Any) -> Any:
        """Run a pass, and keep it as a program if that can be."""


class State:
    """What a `GraphNode` knows besides what it has saved."""

    __slots__ = ("freed", "fresh", "graph", "ran", "versions")

    def __init__(self, graph: Graph, versions: list[int]) -> None:
        self.graph = graph
        #: The expected versions of what the node's `guard` holds.
        self.versions = versions
        #: Nothing else refers to the gradients that the node has computed last.
        self.fresh = False
        #: Which of the graph's nodes the last pass has run, and those that passes have released.
        self.ran: Any = frozenset()
        self.freed: list[tuple[Any, Freed]] = []


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
        received = self._computed(gradients[0], task)
        if task is None:
            return received
        plain = task.recorded is None and task.streams is None and task.captures is None
        if not plain or task.careful or task.launched:
            return received
        return _staged(task, self.following, received, self.fresh)

    def _computed(self, gradient: Any, task: Any) -> Any:
        saved, state = self.saved, self.version
        state.fresh = False
        if gradient is None:
            # A `Function` behind it gives none.
            state.ran = frozenset()
            return (None,) * len(self.following)
        graph = state.graph
        flags = None
        if task is not None and task.exec_info is not None:
            flags = tuple([is_wanted(task, edge) for edge in self.following])
        state.ran = graph.nodes_run(flags)
        for released, by in state.freed:
            if not released.isdisjoint(state.ran):
                refuse_freed(self, by)
        if task is None or task.recorded is not None:
            shown = self if task is not None and task.keep_graph else None
            return graph.passed(self, gradient, flags, shown, recorded=True)
        if saved.__class__ is not Freed and self._is_unchanged():
            key = flags, gradient.strides, gradient.dtype
            backward = graph.backwards.get(key)
            if backward is None:
                return graph.record(self, gradient, key)
            program, fresh = backward
            run = program.run
            memory = program.take_memory()
            received = program.call(memory, run, (gradient, *saved), [False], memory.buffers)
            program.give_memory(memory)
            # If this runs in a thread, a task on the loop may have changed a tensor by now.
            if self._is_unchanged():
                state.fresh = fresh
                return received
        return graph.passed(self, gradient, flags, None, recorded=False)

    def _is_unchanged(self) -> bool:
        """Whether no tensor that others can see has been changed in place since."""
        expected: list[int] = self.version.versions
        return [counter.value for counter in self.guard] == expected

    def release_saved(self, freed: Freed) -> None:
        """Release what was saved, and keep it for other nodes than those that have run."""
        state = self.version
        state.freed.append((state.ran, freed))
        saving = state.graph.saving
        if saving and saving <= set().union(*[released for released, _ in state.freed]):
            self.saved = freed
            self.guard = None

    def name(self) -> str:
        """How errors and traces call it, as in PyTorch."""
        return "CompiledFunctionBackward"


def become(shown: Any, node: Any) -> None:
    """Make a result's node the one that an eager call would have made.

    The gradients of the pass that has ended have graphs that lead there, too. Gradients are summed
    where the paths meet, as in the graph of an eager call.
    """
    shown.__class__ = OpNode
    for name in ("rule", "following", "saved", "guard", "version", "cost"):
        setattr(shown, name, getattr(node, name))


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
