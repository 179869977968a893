"""Runs one node in the general way: hooks, captures, Functions, passes that record themselves.

`evaluate` is a generator. It yields what a coroutine hook or node wants awaited and is sent the
result; a node without coroutines runs to its end in one go. For one node the order is PyTorch's:
hooks of each output, `retain_grad`, the capture, hooks before the node, the node, hooks after it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from asyncgrad.core.accumulate_grad import AccumulateGrad
from asyncgrad.core.anomaly import check_nan, report
from asyncgrad.core.commit import commit, commit_revocably
from asyncgrad.core.hook_calls import (
    awaited,
    post_accumulate_hooks,
    post_hooks,
    pre_hooks,
    tensor_hooks,
)
from asyncgrad.core.modes import current, install
from asyncgrad.core.node import as_edge, first_metadata
from asyncgrad.core.saved import unpack_steps, values_as_tensors
from asyncgrad.core.saved_values import check_saved, check_version
from asyncgrad.core.variable import Variable, autograd_meta, grad_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from asyncgrad.core.graph_task import GraphTask


def evaluate(
    task: GraphTask, node: Any, gradient: Any, owned: Any
) -> Generator[Any, Any, tuple[Any, Any] | None]:
    """Run one node.

    Returns:
        The gradients for the next edges and whether they are fresh, or None if none go on.
    """
    if task.context is not None and current().graph_task is not task:
        install(modes_within(task))
    several = node.output_metadata.__class__ is tuple
    gradients = list(gradient) if several else [gradient]
    extras = node.extras
    if node.__class__ is AccumulateGrad and autograd_meta(node.variable).grad_dtype is not None:
        gradients[0] = _in_grad_dtype(task, node.variable, gradients[0])
    elif task.recorded is None:
        _in_own_dtypes(node.output_metadata if several else (node.output_metadata,), gradients)
    info = task.exec_info
    if info is not None:
        needed = node in info.needed
        if extras is not None and not needed:
            yield from tensor_hooks(task, node, gradients)
        # As in PyTorch: if a captured node also runs, the capture precedes its hooks.
        for position, place in info.captures.get(node, ()):
            task.captured[place] = gradients[position]
        if not needed:
            return None
    if extras is not None:
        yield from tensor_hooks(task, node, gradients)
        owned = False
        if extras.pre:
            gradients = yield from pre_hooks(task, node, gradients)
    observer = task.observer
    token = observer.enter(task, node) if observer is not None else None
    if node.__class__ is AccumulateGrad:
        yield from _accumulate(task, node, gradients[0], owned)
        if extras is not None and extras.post:
            yield from post_hooks(task, node, (), gradients)
        if observer is not None:
            observer.leave(task, node, token)
        return None
    if task.careful and current().anomaly:
        received, fresh = yield from _apply_watched(task, node, gradients)
    else:
        received, fresh = yield from _apply(task, node, gradients)
    if observer is not None:
        observer.leave(task, node, token)
    if extras is not None and extras.post:
        received = yield from post_hooks(task, node, received, gradients)
        fresh = False
    return received, fresh


def conclude(task: GraphTask) -> Generator[Any, Any, None]:
    """Commit the gradients of a pass that has run, and call the queued callbacks.

    Callbacks see the new `.grad`s. If one fails, or the pass is cancelled while one waits, the
    commit is undone when the pass ends.
    """
    streams = task.streams
    prepared = [] if streams is None else streams.prepared
    shared = streams is not None and streams.shares(task)
    task.revoke = yield from _in_turn(
        task, lambda wait: commit_revocably(task.staged, task.recorded, wait, prepared)
    )
    task.staged.clear()
    prepared.clear()
    if shared:
        yield from streams.wait(task)  # type: ignore[union-attr]
    while task.callbacks:
        yield from awaited(task.callbacks.pop(0)())


#: Called in the context of a pass before any user code runs there.
_prepare: list[Callable[[], Any]] = []


def bind_preparation(prepare: Callable[[], Any]) -> None:
    """Set the function that prepares the context of a pass."""
    _prepare[:] = [prepare]


#: Returns an awaitable that ends when no pass commits, or None if the caller may block.
_until_free: list[Callable[[GraphTask], Any]] = []


def bind_turns(until_free: Callable[[GraphTask], Any]) -> None:
    """Set the function that says how a pass waits for another pass's commit."""
    _until_free[:] = [until_free]


def _in_turn(task: GraphTask, commit: Callable[[bool], Any]) -> Generator[Any, Any, Any]:
    """Commit when no other pass does.

    Args:
        task: the pass.
        commit: called with whether it may block; returns a false value if another pass commits.
    """
    while not (made := commit(False)):
        free = _until_free[0](task) if _until_free else None
        if free is None:
            return commit(True)
        yield free
    return made


def modes_within(task: GraphTask) -> Any:
    """The record of modes for hooks and Functions of a pass."""
    for prepare in _prepare:
        prepare()
    # `blocking` is off, as `in_node` suffices to block, and tasks that hooks make must not.
    return current().replace(grad=task.create_graph, graph_task=task, in_node=True, blocking=False)


def _apply(
    task: GraphTask, node: Any, gradients: list[Any]
) -> Generator[Any, Any, tuple[Any, Any]]:
    """Compute the gradients for the next edges, as a tuple."""
    rule = node.rule
    if rule is None:
        yield from node.prefetch()
        received = node.apply(tuple(gradients), task)
        if received.__class__ is not tuple:
            received = yield from awaited(received)
        received = node.conclude(received, task)
        if not task.keep_graph:
            node.release_saved(task.freed)
        return received, node.fresh
    following = node.following
    single = following.__class__ is not tuple
    gradient: Any = gradients
    if node.output_metadata.__class__ is not tuple:
        gradient = gradients[0]
    if gradient is None or (gradient is gradients and not any(g is not None for g in gradients)):
        return (None,) * (1 if single else len(following)), False
    check_saved(node)
    recorded = task.recorded
    F = first_metadata(node).F if recorded is None else recorded
    info = task.exec_info
    while True:
        kept = node.saved
        if node.extras is not None and node.extras.packed:
            saved = yield from unpack_steps(node, recorded=recorded is not None)
        else:
            saved = kept if recorded is None or rule.unpack is None else rule.unpack(node)
        if info is not None and not single and rule.pulls is not None:
            received = tuple(
                pull(F, gradient, saved) if is_wanted(task, edge) else None
                for edge, pull in zip(following, rule.pulls, strict=True)
            )
        elif info is not None and single and not is_wanted(task, following):
            received = (None,)
        else:
            received = rule.run(F, gradient, saved)
            if single:
                received = (received,)
        # As in `steadily`: in a thread, the loop may have changed a saved tensor meanwhile.
        if node.guard is None or check_version(node, running=False) is kept:
            break
    if not task.keep_graph:
        node.release_saved(task.freed)
    return received, rule.fresh


def _apply_watched(
    task: GraphTask, node: Any, gradients: list[Any]
) -> Generator[Any, Any, tuple[Any, Any]]:
    """`_apply` in anomaly mode: new nodes note this one, and NaN is an error."""
    modes = current()
    install(modes.replace(node=node))
    try:
        received, fresh = yield from _apply(task, node, gradients)
        if modes.check_nan:
            check_nan(node, received)
    except Exception as error:
        report(node, error)
        raise
    finally:
        install(modes)
    return received, fresh


def call_node(node: Any, gradients: tuple[Any, ...], recorded: Any) -> tuple[Any, ...]:
    """Compute the gradients of a node's inputs, outside of a pass and without its hooks.

    Args:
        node: the node.
        gradients: a tensor or None for each of its outputs.
        recorded: the namespace of functions on tensors.

    Raises:
        TypeError: if the gradients are not tensors, or their number is wrong.
        RuntimeError: if what the node has saved has been released, or changed in place.
    """
    several = node.output_metadata.__class__ is tuple
    for place, gradient in enumerate(gradients):
        if gradient is not None and not isinstance(gradient, Variable):
            raise TypeError(
                f"{node.name()}: argument {place} is not a Variable, but {type(gradient).__name__}"
            )
    if len(gradients) != node.num_inputs:
        raise TypeError(
            f"{node.name()}: expected {node.num_inputs} arguments, got {len(gradients)} arguments "
            f"instead: one gradient for each output"
        )
    if node.__class__ is AccumulateGrad:
        if gradients[0] is not None:
            commit([(node.variable, gradients[0]._array, False)], None, wait=True)
        return ()
    rule = node.rule
    if rule is None:
        concluded: tuple[Any, ...] = node.conclude(node.apply(gradients, None), None)
        return concluded
    if not any(gradient is not None for gradient in gradients):
        undefined: tuple[Any, ...] = (None,) * rule.arity
        return undefined
    check_saved(node)
    saved = node.saved if rule.unpack is None else values_as_tensors(node)
    received = rule.run(recorded, gradients if several else gradients[0], saved)
    if node.following.__class__ is not tuple:
        received = (received,)
    by_place = dict(zip(rule.places, received, strict=True))
    return tuple(by_place.get(place) for place in range(rule.arity))


def is_wanted(task: GraphTask, edge: Any) -> bool:
    """Whether this pass needs the gradient along an edge."""
    return as_edge(edge).node in task.dependencies


def _accumulate(
    task: GraphTask, node: AccumulateGrad, gradient: Any, owned: bool
) -> Generator[Any, Any, None]:
    """Stage a leaf's gradient, or commit it at once if the leaf has post-accumulate hooks."""
    variable = node.variable
    meta = variable._autograd
    if meta is not None and not meta.requires_grad:
        return
    hooks = None if meta is None else meta.post_accumulate
    if not hooks:
        if gradient is not None:
            task.staged.append((variable, gradient, owned))
        return
    if gradient is not None:
        yield from _in_turn(task, partial(commit, [(variable, gradient, owned)], task.recorded))
    yield from post_accumulate_hooks(variable, hooks)


def _in_own_dtypes(metadata: tuple[Any, ...], gradients: list[Any]) -> None:
    """Convert gradients to the dtypes of the outputs before user code sees them.

    Rules for half precision may return float32.
    """
    for place, facts in enumerate(metadata):
        if gradients[place] is not None:
            gradients[place] = facts.F.in_own_dtype(gradients[place], facts.dtype)


def _in_grad_dtype(task: GraphTask, variable: Variable, gradient: Any) -> Any:
    """Convert a leaf's gradient to the dtype that the leaf asks for."""
    dtype = grad_dtype(variable)
    if gradient is None or dtype is None or gradient.dtype == dtype:
        return gradient
    if task.recorded is not None:
        return task.recorded.to(gradient, dtype)
    return variable._metadata.F.in_dtype(gradient, dtype)
