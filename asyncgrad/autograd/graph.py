"""The graph as users see it: nodes and edges, hooks on gradients, and version counters."""

from __future__ import annotations

import weakref
from asyncio.events import _get_running_loop
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from asyncgrad.aliases import Gradient
from asyncgrad.autograd.edges import GradientEdge, get_gradient_edge
from asyncgrad.autograd.new_pass import add_gradients
from asyncgrad.autograd.saved_tensors import (
    allow_mutation_on_saved_tensors,
    disable_saved_tensors_hooks,
    save_on_cpu,
    save_to_disk,
    saved_tensors_hooks,
)
from asyncgrad.autograd.svg import to_svg
from asyncgrad.autograd.visualize import memory, to_dot
from asyncgrad.choices import HookMode, words
from asyncgrad.core.exec_info import arrivals, predicted_order
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.hooks import RemovableHandle
from asyncgrad.core.last_steps import Member, Participant, check_given
from asyncgrad.core.locks import lasting_lock
from asyncgrad.core.modes import current
from asyncgrad.core.node import Node, as_edge
from asyncgrad.core.pass_state import PassState, running_pass
from asyncgrad.core.recording import unrepeatable
from asyncgrad.core.run_node import call_node
from asyncgrad.core.states import ENDED
from asyncgrad.core.variable import Variable, bump_version, gradient_edge
from asyncgrad.errors import AutogradError, class_of
from asyncgrad.ops.namespace import RECORDED
from asyncgrad.records import NamedTuple
from asyncgrad.scheduler.reentrant import is_in_node
from asyncgrad.types import Tensor

__all__ = [
    "GradientEdge", "Node", "Pass", "accumulate", "allow_mutation_on_saved_tensors",
    "current_pass", "disable_saved_tensors_hooks", "get_gradient_edge", "increment_version", "join",
    "memory", "queue_callback", "register_multi_grad_hook", "save_on_cpu", "save_to_disk",
    "saved_tensors_hooks", "to_dot", "to_svg",
]  # fmt: skip


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Count an in-place change that was made to tensors by means unknown to asyncgrad."""
    several = isinstance(tensor, Iterable) and not isinstance(tensor, Variable)
    tensors: Any = tuple(tensor) if several else (tensor,)
    for one in tensors:
        if not isinstance(one, Variable):
            raise AutogradError(
                f"increment_version expect a Iterable[Tensor] as input, but got a {class_of(one)}"
            )
    unrepeatable("counts changes of tensors")
    for one in tensors:
        bump_version(one)


def _examined_pass() -> PassState | None:
    """The pass that runs this code, for code that goes by what the pass is, or takes part in it.

    A replay makes other passes, so it can't call such code.
    """
    task = running_pass(current().graph_task)
    if task is not None:
        task.examined()
    return task


def queue_callback(callback: Callable[[], Any]) -> None:
    """Call a function after the current pass has run all its nodes.

    Callbacks run in the order in which they were queued, and may queue more. They see the pass's
    gradients in `.grad`, and so does everybody else. If a callback fails, or the pass is cancelled
    before all have ended, the gradients are taken back: but not from a `.grad` that others have
    changed meanwhile, as by another pass. A participant (`join`) is asked before any is added.

    Raises:
        RuntimeError: outside of a pass, and in a task of a hook whose pass has ended.
    """
    task = _examined_pass()
    if task is None or task.ending:
        raise AutogradError("Final callbacks can only be installed during backward pass.")
    task.callbacks.append(callback)


#: The ids of passes; a pass gets one when it is first asked for.
_numbers: weakref.WeakKeyDictionary[PassState, int] = weakref.WeakKeyDictionary()
next_pass_id = count().__next__


class Pass(NamedTuple):
    """What hooks and Functions may know of the pass that runs them."""

    #: Differs from that of every other pass of this process.
    id: int
    priority: int
    #: A time of the loop's clock; None for none.
    deadline: float | None
    #: The pass adds to `.grad` of every leaf that it reaches: `backward()` without `inputs=`.
    accumulates: bool
    #: Saved values survive the pass, for another one.
    retains_graph: bool


def current_pass() -> Pass | None:
    """The pass that runs the current hook or Function; None outside of passes.

    Example:
        >>> x = ag.tensor(2.0, requires_grad=True)
        >>> _ = x.register_hook(lambda gradient: print(ag.autograd.graph.current_pass().priority))
        >>> _ = (x * 3).backward(priority=4)
        4
    """
    task = _examined_pass()
    if task is None:
        return None
    number = _numbers.get(task)
    if number is None:
        # Another thread may ask for it at the same time.
        number = _numbers.setdefault(task, next_pass_id())
    accumulates = task.exec_info is None
    return Pass(number, task.priority, task.deadline, accumulates, task.keep_graph)


def _current_graph_task_id() -> int:
    """The id of the current pass, -1 outside of one."""
    running = current_pass()
    return -1 if running is None else running.id


_joining = lasting_lock()


def join(participant: Participant) -> None:
    """Take part in the current pass: it succeeds only if all its participants agree.

    Call it in a hook or Function. A participant has three coroutine methods:

    - `prepare(gradients)` is awaited when the last node has run. It gets the gradients that the
      pass is about to add, as a dictionary of tensors by leaf, or by tensor that retains its
      gradient; they belong to the pass, so copy what is kept. It returns None, or a dictionary of
      gradients that take their place: a tensor for a leaf, also for one that the pass has not
      reached, or None to add nothing. It may fail and be cancelled, as a coroutine hook may.
    - `commit()` is awaited when every participant has agreed and the gradients have been added.
      The pass has then succeeded and can't be cancelled; an error goes to the loop's exception
      handler.
    - `abort()` is awaited if the pass has failed, was cancelled, or is past its deadline, also
      before `prepare`. It has as long as `asyncgrad.engine().limit(grace=)` says; its error becomes
      a note.

    It may have a fourth, `decide()`, if it has promised others to do as they decide. It is awaited
    when all have agreed. From then on neither cancellation nor deadline ends the pass: it fails if
    `decide` raises, and so `decide` has to limit its time itself.

    One that joins a pass several times is called once. The participants of a pass are called at the
    same time, and the pass ends when all are done. No `.grad` changes before all have agreed. A
    pass without a loop awaits them on a loop in another thread.

    Raises:
        RuntimeError: outside of a pass, when its gradients have been added (one of them, if a leaf
            has a post-accumulate hook), and in a pass that blocks an event loop, which could then
            not run the participant.

    Example:
        >>> import asyncio, asyncgrad as ag
        >>> class Clipped:
        ...     async def prepare(self, gradients):
        ...         return {leaf: gradient.clamp(max=1.0) for leaf, gradient in gradients.items()}
        ...     async def commit(self):
        ...         print("added")
        ...     async def abort(self):
        ...         print("nothing was added")
        >>> async def main():
        ...     x = ag.tensor([1.0, 2.0], requires_grad=True)
        ...     y = x * x
        ...     _ = y.register_hook(lambda gradient: ag.autograd.graph.join(Clipped()))
        ...     await (y / 4).sum().backward()
        ...     return x.grad.tolist()
        >>> asyncio.run(main())
        added
        [0.5, 1.0]
    """
    task = current().graph_task
    if task is None:
        raise AutogradError("join() was called outside of a pass: call it in a hook or a Function")
    for name in ("prepare", "commit", "abort"):
        if not callable(getattr(participant, name, None)):
            raise TypeError(
                f"join: {type(participant).__qualname__} has no method {name}(): a participant "
                f"has prepare(gradients), commit() and abort()"
            )
    if task.ending or task.revoke is not None or task.state in ENDED:
        raise AutogradError(
            "join: the pass has added its gradients, or has ended: join in a hook or node of it, "
            "not in what follows its last node"
        )
    task.examined()
    if task.committed_early:
        raise AutogradError(
            "join: the pass has added to a leaf with a post-accumulate hook, which does not wait "
            "for participants: use a tensor hook, register_hook(), in its place"
        )
    if task.future is None and _get_running_loop() is not None and is_in_node():
        raise AutogradError(
            "join: the pass blocks the event loop that would have to run the participant: use "
            "await, and start nested passes in coroutine hooks"
        )
    # A coroutine hook runs on the loop, perhaps while a thread runs other hooks of the pass.
    with _joining:
        if all(member.participant is not participant for member in task.members):
            task.members = [*task.members, Member(participant)]


def accumulate(gradients: Mapping[Any, Any]) -> Any:
    """Add given gradients to the `.grad` of leaves, to all of them or to none.

    Tensors that retain their gradient count as leaves. No hook is called. Like a pass, it can be
    cancelled until it begins to add, has the priority and deadline of `asyncgrad.request`, and does
    not hold the event loop.

    Args:
        gradients: a dictionary of tensors, each of its leaf's shape and device, by leaf.

    Returns:
        A `BackwardFuture` on a running loop. Without a loop, it is done when this returns.

    Raises:
        RuntimeError: if a tensor is neither a leaf that requires grad nor retains its gradient, or
            a gradient does not fit.

    Example:
        >>> x, y = (ag.zeros(2, requires_grad=True) for _ in range(2))
        >>> _ = ag.autograd.graph.accumulate({x: ag.ones(2), y: ag.ones(2) * 2})
        >>> y.grad.tolist()
        [2.0, 2.0]
    """
    check_given("accumulate", gradients)
    unrepeatable("adds given gradients")
    return add_gradients(gradients)


def _current_graph_task_execution_order() -> list[Node]:
    """The nodes of the current pass in the order of execution; raises outside of a pass."""
    task = _examined_pass()
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
    tensors: Sequence[Tensor], fn: Callable[..., Any], *, mode: HookMode = "all"
) -> RemovableHandle:
    """Call a function once in each pass, with the gradients of several tensors.

    Args:
        fn: a function or coroutine function, whose result does not count. With `mode="all"` it is
            called when the last gradient that this pass computes has come, with a list (None for
            tensors without one); with `mode="any"` it is called with the first gradient.
        mode: "all" or "any".
    """
    if mode not in words(HookMode):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    if mode == "any":
        ran: weakref.WeakSet[GraphTask] = weakref.WeakSet()

        def first(gradient: Gradient) -> Any:
            task: Any = _examined_pass()
            if task in ran:
                return None
            ran.add(task)
            return fn(gradient)

        first.only_sees = True  # type: ignore[attr-defined]
        return _Handles([t.register_hook(first) for t in tensors if t.requires_grad])

    if any(gradient_edge(tensor) is None for tensor in tensors):
        raise AssertionError("Expected gradient function to be set")
    finders = [_node_finder(tensor) for tensor in tensors]
    #: By pass, the gradients that have come, and the number of those still to come.
    waiting: weakref.WeakKeyDictionary[GraphTask, tuple[list[Any], int]]
    waiting = weakref.WeakKeyDictionary()

    def one_of_them(place: int) -> Callable[[Any], Any]:
        def hook(gradient: Gradient) -> Any:
            task: Any = _examined_pass()
            if task not in waiting:
                waiting[task] = [None] * len(finders), _coming(task, [find() for find in finders])
            gathered, left = waiting[task]
            gathered[place] = gradient
            if left > 1:
                waiting[task] = gathered, left - 1
                return None
            del waiting[task]
            return fn(gathered)

        hook.only_sees = True  # type: ignore[attr-defined]
        return hook

    return _Handles([t.register_hook(one_of_them(i)) for i, t in enumerate(tensors)])


def _coming(task: GraphTask, nodes: Sequence[Node | None]) -> int:
    """How many nodes get a gradient in a pass; None stands for a node that was freed."""
    info = task.exec_info
    reached = arrivals(task.root, info)
    if info is None or info.should_execute(task.root):
        reached[task.root] = 1
    return sum(node in reached for node in nodes)


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
