"""Make a pass from its roots and their gradients, and start it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from operator import index
from typing import Any

from asyncgrad.aliases import Namespace, Value
from asyncgrad.autograd.arguments import (
    ONES,
    checked_gradient,
    implicit_gradient,
    sequence_of,
    wrong_number,
)
from asyncgrad.autograd.edges import GradientEdge, stored
from asyncgrad.autograd.modes import checked_deadline, checked_priority
from asyncgrad.core.frames import warn
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.last_steps import staged_given
from asyncgrad.core.modes import DEFAULT, current, install, refuse_in_transform
from asyncgrad.core.node import metadata_at
from asyncgrad.core.pass_state import running_pass
from asyncgrad.core.run_node import modes_within
from asyncgrad.core.variable import Variable, gradient_edge, wrap
from asyncgrad.errors import AutogradError, NestingError, class_of
from asyncgrad.ops.namespace import RECORDED
from asyncgrad.scheduler import check_deadline, start, start_chain


def start_pass(task: GraphTask, priority: int | None = None, deadline: float | None = None) -> Any:
    """Start a pass, with priority and deadline of the call, the context or the parent pass."""
    modes = current()
    if modes is DEFAULT and priority is None and deadline is None:
        return start(task)
    set_request(task, priority, deadline)
    if modes.recorder is not None:
        modes.recorder.begin(task)
    return start(task) if modes.starts is None else modes.starts(task, start)


def set_request(
    task: GraphTask, priority: int | None = None, deadline: float | None = None
) -> None:
    """Set the priority and deadline of a pass: those of the call, the context or its parent."""
    modes = current()
    parent = task.parent
    if parent is not None and task.depth > modes.nesting_limit:
        raise NestingError(modes.nesting_limit)
    if priority is not None:
        task.priority = checked_priority(priority)
    elif parent is None:
        task.priority = modes.priority
    else:
        task.priority = max(parent.priority, modes.priority)
    deadline = modes.deadline if deadline is None else checked_deadline(deadline)
    if parent is not None and parent.deadline is not None:
        # The parent waits for this pass, so its deadline holds for both.
        deadline = parent.deadline if deadline is None else min(deadline, parent.deadline)
    if deadline is not None:
        task.deadline = deadline
        check_deadline(task)


def add_gradients(
    gradients: Mapping[Any, Any], members: Sequence[Any] = (),
    callbacks: Sequence[Callable[[], Any]] = (), error: BaseException | None = None,
) -> Any:  # fmt: skip
    """Start a pass that only adds gradients of tensors, which fit, to the `.grad` of these.

    Args:
        gradients: the gradients by tensor.
        members: the `Member`s that take part in the pass.
        callbacks: what the pass calls at its end.
        error: fails the pass at once, so that participants learn of that.
    """
    task = GraphTask((), (), context=copy_context())
    task.staged = staged_given(gradients, recorded=False)
    task.members, task.callbacks = members, [*callbacks]
    if members or callbacks:
        # No node does it for them.
        task.within(lambda: install(modes_within(task)))
    if error is not None:
        task.inbox.append(partial(task.fail, error))
    for leaf in gradients:
        device = leaf._metadata.device
        if device.streamed:
            streams = task.enter_streams()
            streams.follow(leaf, streams.caller_stream(device))
    set_request(task)
    return start(task)


def pass_along_chain(root: Value, given: Value, retain_graph: bool | None) -> Any:
    """Run a pass of `backward()` at once if it goes along a chain and no mode is in force.

    Returns:
        What `start_pass` returns; None, with nothing done, if it is any other pass.
    """
    if current() is not DEFAULT or not isinstance(root, Variable) or root._edge is None:
        return None
    metadata = root._metadata
    if given is None:
        gradient = ONES.get(metadata)
    elif isinstance(given, Variable) and given._metadata is metadata and not given._batched:
        gradient = given._array
    else:
        gradient = None
    if gradient is None:
        return None
    return start_chain(root._edge, gradient, retain_graph is not None and is_set(retain_graph))


def new_pass(
    roots: tuple[Any, ...], given: Value, retain_graph: bool | None, create_graph: bool,
    inputs: list[Any] | None, grad: bool, recorded: Namespace = None,
) -> GraphTask:  # fmt: skip
    """Check the roots and their gradients, and make the pass.

    Arguments are passed by position here and below: keywords would cost a tenth of a small pass.
    """
    if given is not None:
        # A tensor, the usual case, takes no call.
        given = (given,) if isinstance(given, Variable) else sequence_of(given)
        if len(given) != len(roots):
            raise wrong_number(roots, given)
    edges: list[Any] = []
    gradients = []
    streamed = False
    modes = current()
    if modes is not DEFAULT:
        if not grad and (modes.transform is not None or modes.batch is not None):
            refuse_in_transform("backward()")
        if modes.dual_level is not None:
            # Here gradients have tangents, and only recorded functions compute tangents.
            recorded = RECORDED
    if create_graph and is_set(create_graph):
        recorded = RECORDED
    for root in roots:
        # For a single root, the usual case, this takes less time than `enumerate`.
        place = len(edges)
        if isinstance(root, Variable):
            edge = root._edge or gradient_edge(root)
            metadata = root._metadata
        elif isinstance(root, GradientEdge):
            edge = stored(root)
            metadata = metadata_at(root.node, root.output_nr)
        else:
            raise TypeError(
                f"element {place} of tensors must be a Tensor or a GradientEdge, not "
                f"{class_of(root)}"
            )
        gradient = None if given is None else given[place]
        if gradient is not None and getattr(gradient, "_metadata", None) is not metadata:
            gradient = checked_gradient(place, metadata, gradient)
        if edge is None:
            raise AutogradError(
                f"element {place} of tensors does not require grad and does not have a grad_fn. "
                f"Call requires_grad_() on a leaf it is computed from, outside of no_grad()."
            )
        if gradient is None:
            array = ONES.get(metadata)
            if array is None:
                array = implicit_gradient(metadata)
                streamed = streamed or metadata.device.streamed
            gradients.append(array if recorded is None else wrap(array, metadata))
        else:
            if recorded is None:
                if gradient._batched:
                    # Only recorded functions support batched gradients.
                    flags = (retain_graph, create_graph, inputs, grad)
                    return new_pass(roots, given, *flags, RECORDED)
                gradient = gradient._array
            gradients.append(gradient)
            streamed = streamed or metadata.device.streamed
        edges.append(edge)
    if create_graph and not grad:
        _warn_of_cycle()
    keep_graph = create_graph if retain_graph is None else is_set(retain_graph)
    parent = modes.graph_task
    if parent is not None:
        # An asyncio task that a hook started may outlive the hook's pass.
        parent = running_pass(parent)
    task = GraphTask(
        edges, gradients, keep_graph, create_graph, inputs, not grad, recorded, copy_context(),
        parent,
    )  # fmt: skip
    if modes is not DEFAULT and (modes.observer is not None or modes.anomaly):
        task.observer = modes.observer
        task.careful = True
    if streamed:
        task.enter_streams().begin(task)
    return task


def is_set(flag: Any) -> bool:
    """A flag as a bool; PyTorch also accepts integers."""
    if flag.__class__ is bool:
        return bool(flag)
    try:
        return index(flag) != 0
    except TypeError:
        raise TypeError(
            f"backward() and grad(): retain_graph, create_graph and other flags must be bool, not "
            f"{class_of(flag)}"
        ) from None


#: Not empty once the warning about `backward(create_graph=True)` has been shown.
_warned: list[bool] = []


def _warn_of_cycle() -> None:
    if not _warned:
        _warned.append(True)
        warn(
            "Using backward() with create_graph=True will create a reference cycle between the "
            "parameter and its gradient which can cause a memory leak. We recommend using "
            "autograd.grad when creating the graph to avoid this. If you have to use this "
            "function, make sure to reset the .grad fields of your parameters to None after use "
            "to break the cycle and avoid the leak."
        )
