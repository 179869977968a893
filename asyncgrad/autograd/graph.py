"""The graph as users see it: nodes and edges, hooks on gradients, and version counters."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from itertools import count
from typing import TYPE_CHECKING, Any

from asyncgrad.autograd.edges import GradientEdge, get_gradient_edge
from asyncgrad.autograd.mutation import allow_mutation_on_saved_tensors
from asyncgrad.autograd.saved_tensors import (
    disable_saved_tensors_hooks,
    save_on_cpu,
    save_to_disk,
    saved_tensors_hooks,
)
from asyncgrad.autograd.svg import to_svg
from asyncgrad.autograd.visualize import memory, to_dot
from asyncgrad.core.exec_info import predicted_order, reachable
from asyncgrad.core.hooks import RemovableHandle
from asyncgrad.core.modes import current
from asyncgrad.core.node import Node, as_edge
from asyncgrad.core.run_node import call_node
from asyncgrad.core.variable import Variable, bump_version, gradient_edge
from asyncgrad.errors import AutogradError
from asyncgrad.ops.namespace import RECORDED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncgrad.aliases import Gradient
    from asyncgrad.core.graph_task import GraphTask
    from asyncgrad.tensor import Tensor

__all__ = [
    "GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks",
    "get_gradient_edge", "increment_version", "memory", "queue_callback",
    "register_multi_grad_hook",
    "save_on_cpu", "save_to_disk", "saved_tensors_hooks", "to_dot", "to_svg",
]  # fmt: skip


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Count an in-place change that was made to tensors by means unknown to asyncgrad."""
    several = isinstance(tensor, Iterable) and not isinstance(tensor, Variable)
    tensors: Any = tuple(tensor) if several else (tensor,)
    for one in tensors:
        if not isinstance(one, Variable):
            raise AutogradError(
                f"increment_version expect a Iterable[Tensor] as input, but got a "
                f"{type(one).__name__}"
            )
    for one in tensors:
        bump_version(one)


def queue_callback(callback: Callable[[], Any]) -> None:
    """Call a function after the current pass has run all its nodes.

    Callbacks run in the order in which they were queued, and may queue more. They see the pass's
    gradients in `.grad`; if a callback fails, the pass fails and the gradients are taken back.

    Raises:
        RuntimeError: outside of a pass.
    """
    task = current().graph_task
    if task is None:
        raise AutogradError("Final callbacks can only be installed during backward pass.")
    task.callbacks.append(callback)


#: The ids of passes; a pass gets one when `_current_graph_task_id` is first called in it.
_numbers: weakref.WeakKeyDictionary[GraphTask, int] = weakref.WeakKeyDictionary()
_next_number = count().__next__


def _current_graph_task_id() -> int:
    """The id of the current pass, -1 outside of one."""
    task = current().graph_task
    if task is None:
        return -1
    number = _numbers.get(task)
    if number is None:
        number = _numbers[task] = _next_number()
    return number


def _current_graph_task_execution_order() -> list[Node]:
    """The nodes of the current pass in the order of execution; raises outside of a pass."""
    task = current().graph_task
    if task is None:
        raise AutogradError(
            "_current_graph_task_execution_order should only be called during the backward pass."
        )
    return predicted_order(task.root, task.exec_info)


# -- hooks on several tensors ------------------------------------------------------------------


class _Handles(RemovableHandle):
    """A handle for several hooks."""

    __slots__ = ("_handles",)

    def __init__(self, handles: Iterable[RemovableHandle]) -> None:
        self._handles = tuple(handles)

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[..., Any], *, mode: str = "all"
) -> RemovableHandle:
    """Call a function once in each pass, with the gradients of several tensors.

    Args:
        tensors: the tensors.
        fn: a function or coroutine function. With `mode="all"` it is called when the last gradient
            that this pass computes has come, with a list (None for tensors without one); with
            `mode="any"` it is called with the first gradient.
        mode: "all" or "any".

    Returns:
        A handle with `remove()`.

    ValueError: for another mode.
    """
    if mode not in {"all", "any"}:
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    if mode == "any":
        ran: weakref.WeakSet[GraphTask] = weakref.WeakSet()

        def first(gradient: Gradient) -> Any:
            task = current().graph_task
            if task in ran:
                return None
            ran.add(task)
            return fn(gradient)

        return _Handles([t.register_hook(first) for t in tensors if t.requires_grad])

    if any(gradient_edge(tensor) is None for tensor in tensors):
        raise AssertionError("Expected gradient function to be set")
    finders = [_node_finder(tensor) for tensor in tensors]
    waiting: weakref.WeakKeyDictionary[GraphTask, _Gathered] = weakref.WeakKeyDictionary()

    def one_of_them(place: int) -> Callable[[Any], Any]:
        def hook(gradient: Gradient) -> Any:
            task = current().graph_task
            gathered = waiting.get(task)
            if gathered is None:
                gathered = waiting[task] = _Gathered(task, [find() for find in finders])
            gathered.gradients[place] = gradient
            gathered.left -= 1
            if gathered.left:
                return None
            del waiting[task]
            return fn(gathered.gradients)

        return hook

    return _Handles([t.register_hook(one_of_them(i)) for i, t in enumerate(tensors)])


class _Gathered:
    """The gradients of several tensors in one pass."""

    __slots__ = ("gradients", "left")

    def __init__(self, task: GraphTask, nodes: Sequence[Node | None]) -> None:
        """Count the nodes that will get a gradient; None stands for a node that was freed."""
        self.gradients: list[Any] = [None] * len(nodes)
        info = task.exec_info
        reached = reachable(task.root, [node for node in nodes if node is not None])
        self.left = sum(
            node in reached and (info is None or info.should_execute(node)) for node in nodes
        )


def _node_finder(tensor: Tensor) -> Callable[[], Node | None]:
    """A function that finds the node with a tensor's hooks.

    It holds tensor and node weakly, because the hooks hold the function.
    """
    if not tensor.is_leaf:
        return weakref.ref(as_edge(gradient_edge(tensor)).node)
    leaf = weakref.ref(tensor)

    def accumulator() -> Node | None:
        # A leaf holds its accumulator weakly: the node lives as long as a graph leads to it.
        found = leaf()
        return None if found is None else as_edge(gradient_edge(found)).node

    return accumulator


def call_recorded(node: Node, gradients: tuple[Any, ...]) -> Any:
    """Call a node outside of a pass, recorded like any other function."""
    received = call_node(node, gradients, RECORDED)
    return received[0] if len(received) == 1 else received
