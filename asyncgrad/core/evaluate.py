"""One node the long way: hooks, captures, Functions, and passes that record themselves.

`evaluate` is a generator. It yields what a coroutine hook or node wants awaited and is sent the
result; a node without coroutines runs to its end in one go. For one node the order is PyTorch's:
hooks of each output, `retain_grad`, the capture, hooks before the node, the node, hooks after it.
"""

from __future__ import annotations

from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from asyncgrad.core.accumulate_grad import AccumulateGrad
from asyncgrad.core.anomaly import check_nan, report
from asyncgrad.core.commit import commit, commit_revocably
from asyncgrad.core.kept import check_saved, node_metadata
from asyncgrad.core.modes import current, install
from asyncgrad.core.node import as_edge
from asyncgrad.core.saved import unpack_steps, values_as_tensors
from asyncgrad.core.variable import Variable, autograd_meta, grad_dtype, wrap
from asyncgrad.errors import AutogradError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from asyncgrad.core.graph_task import GraphTask
    from asyncgrad.core.hooks import Hooks


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
    info = task.exec_info
    if info is not None:
        needed = node in info.needed
        if extras is not None and not needed:
            yield from _tensor_hooks(task, node, gradients)
        for position, place in info.captures.get(node, ()):
            task.captured[place] = gradients[position]
        if not needed:
            return None
    if extras is not None:
        yield from _tensor_hooks(task, node, gradients)
        owned = False
        if extras.pre:
            gradients = yield from _pre_hooks(task, node, gradients)
    observer = task.observer
    token = observer.enter(task, node) if observer is not None else None
    if node.__class__ is AccumulateGrad:
        yield from _accumulate(
            task, node, gradients[0], owned if owned.__class__ is bool else False
        )
        if extras is not None and extras.post:
            yield from _post_hooks(task, node, (), gradients)
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
        received = yield from _post_hooks(task, node, received, gradients)
        fresh = False
    return received, fresh


def conclude(task: GraphTask) -> Generator[Any, Any, None]:
    """Commit the gradients of a pass that has run, and call what was queued to follow.

    Callbacks see the new `.grad`s. If one fails, or the pass is cancelled while one waits, the
    gradients are taken back when the pass ends.
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


#: Called in the context of a pass before anything of the user's runs there.
_prepare: list[Callable[[], Any]] = []


def bind_preparation(prepare: Callable[[], Any]) -> None:
    """Say what the context of a pass needs."""
    _prepare[:] = [prepare]


#: Gives what can be awaited until nobody commits, where a loop must not be held; None elsewhere.
_until_free: list[Callable[[GraphTask], Any]] = []


def bind_turns(until_free: Callable[[GraphTask], Any]) -> None:
    """Say how a pass waits for another one's commit."""
    _until_free[:] = [until_free]


def _in_turn(task: GraphTask, commit: Callable[[bool], Any]) -> Generator[Any, Any, Any]:
    """Commit when no other pass does.

    Args:
        task: the pass.
        commit: does so; told whether it may block, else it gives nothing where another one does.
    """
    while not (made := commit(False)):
        free = _until_free[0](task) if _until_free else None
        if free is None:
            return commit(True)
        yield free
    return made


def modes_within(task: GraphTask) -> Any:
    """What hooks and Functions find in their surroundings."""
    for prepare in _prepare:
        prepare()
    return current().replace(grad=task.create_graph, graph_task=task, in_node=True)


def awaited(result: Any) -> Generator[Any, Any, Any]:
    """What a hook or node returned, or what its coroutine does."""
    if isawaitable(result) and not isinstance(result, Variable):
        result = yield result
    return result


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
    F = task.recorded
    if node.extras is not None and node.extras.packed:
        saved = yield from unpack_steps(node, recorded=F is not None)
    else:
        saved = node.saved if F is None or rule.unpack is None else rule.unpack(node)
    if F is None:
        F = node_metadata(node).F
    info = task.exec_info
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
    if not task.keep_graph:
        node.release_saved(task.freed)
    return received, rule.fresh


def _apply_watched(
    task: GraphTask, node: Any, gradients: list[Any]
) -> Generator[Any, Any, tuple[Any, Any]]:
    """The same in anomaly mode: nodes know who made them, and NaN is an error."""
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
    """The gradients of a node's inputs, outside of a pass and without its hooks.

    Args:
        node: the node.
        gradients: a tensor or None for each of its outputs.
        recorded: the namespace of functions on tensors.

    Raises:
        TypeError: if the gradients are no tensors, or not as many as the outputs.
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
    """Whether the gradient along an edge is needed in this pass."""
    return as_edge(edge).node in task.dependencies


def _accumulate(
    task: GraphTask, node: AccumulateGrad, gradient: Any, owned: bool
) -> Generator[Any, Any, None]:
    """Stage a leaf's gradient, or commit it at once where hooks wait for it."""
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
    for hook in tuple(hooks.values()):
        result = yield from awaited(hook(variable))
        if result is not None and result is not variable:
            if not isinstance(result, Variable):
                raise TypeError(f"expected Variable, but hook returned '{type(result).__name__}'")
            raise AutogradError(
                f"hooks registered with register_post_accumulate_grad_hook should return None, "
                f"but {_name(hook)!r} returned {type(result).__name__}"
            )


def _in_grad_dtype(task: GraphTask, variable: Variable, gradient: Any) -> Any:
    """A leaf's gradient in the dtype that the leaf wants it in."""
    dtype = grad_dtype(variable)
    if gradient is None or dtype is None or gradient.dtype == dtype:
        return gradient
    if task.recorded is not None:
        return task.recorded.to(gradient, dtype)
    return variable._metadata.F.in_dtype(gradient, dtype)


def _as_tensor(gradient: Any, metadata: Any) -> Any:
    """A gradient as hooks see it."""
    if gradient is None or isinstance(gradient, Variable):
        return gradient
    F = metadata.F
    array = F.as_array(gradient)
    return wrap(array, metadata if array.dtype == metadata.dtype else F.metadata_of(array))


def _from_tensor(task: GraphTask, gradient: Any) -> Any:
    """A hook's result as the pass carries gradients."""
    if gradient is None or task.recorded is not None:
        return gradient
    return gradient._array


def _metadata(node: Any, position: int) -> Any:
    metadata = node.output_metadata
    return metadata[position] if metadata.__class__ is tuple else metadata


def _tensor_hooks(task: GraphTask, node: Any, gradients: list[Any]) -> Generator[Any, Any, None]:
    """Hooks on the node's forward outputs, then what `retain_grad` asked for."""
    extras = node.extras
    for position, hooks in extras.tensor.items():
        if hooks:
            gradients[position] = yield from _call_hooks(
                task, hooks, gradients[position], _metadata(node, position)
            )
    for position, retain in extras.retain.items():
        if gradients[position] is not None:
            variable = retain()
            if variable is not None:
                task.staged.append((variable, gradients[position], False))


def _call_hooks(
    task: GraphTask, hooks: Hooks, gradient: Any, metadata: Any
) -> Generator[Any, Any, Any]:
    """One gradient through hooks that may each replace it."""
    value = _as_tensor(gradient, metadata)
    for hook in tuple(hooks.values()):
        result = yield from awaited(hook(value))
        if result is not None and result is not value:
            check_replacement(hook, value, result)
            value = result
    return _from_tensor(task, value)


def check_replacement(hook: Any, value: Any, result: Any) -> None:
    """Raise unless a hook's result may stand for the gradient it was given."""
    if value is None:
        raise AutogradError(
            f"hook {_name(hook)!r} can't replace a None gradient with a non-None value"
        )
    if not isinstance(result, Variable):
        raise TypeError(f"expected Variable, but hook returned '{type(result).__name__}'")
    for what in ("shape", "dtype", "device"):
        before, after = getattr(value._metadata, what), getattr(result._metadata, what)
        if before != after:
            label = {"shape": "size", "dtype": "type", "device": "device"}[what]
            raise AutogradError(
                f"hook {_name(hook)!r} has changed the {label} of value: {what} {before} came in "
                f"and {after} came back. Return a gradient like the one it was given, or None."
            )


def _pre_hooks(task: GraphTask, node: Any, gradients: list[Any]) -> Generator[Any, Any, list[Any]]:
    """Hooks before the node, which may replace its gradients."""
    values = tuple(_as_tensor(g, _metadata(node, i)) for i, g in enumerate(gradients))
    for hook in tuple(node.extras.pre.values()):
        result = yield from awaited(hook(values))
        if result is not None:
            values = _replaced(hook, values, result)
    return [_from_tensor(task, value) for value in values]


def _post_hooks(
    task: GraphTask, node: Any, received: Any, gradients: list[Any]
) -> Generator[Any, Any, tuple[Any, ...]]:
    """Hooks after the node, which may replace what it returned."""
    following = node.next_edges
    rule = node.rule
    places = range(len(following)) if rule is None else rule.places
    inputs: tuple[Any, ...] = (None,) * len(following)
    if received:
        by_place = dict(zip(places, received, strict=True))
        inputs = tuple(
            None if edge.node is None else _as_tensor(by_place[i], _metadata(*edge))
            for i, edge in enumerate(following)
        )
    outputs = tuple(_as_tensor(g, _metadata(node, i)) for i, g in enumerate(gradients))
    for hook in tuple(node.extras.post.values()):
        result = yield from awaited(hook(inputs, outputs))
        if result is not None:
            inputs = _replaced(hook, inputs, result)
    return tuple(_from_tensor(task, inputs[place]) for place in places)


def _replaced(hook: Any, values: tuple[Any, ...], result: Any) -> tuple[Any, ...]:
    """A hook's tuple in place of the one it was given, checked."""
    if not isinstance(result, tuple):
        raise TypeError(f"expected tuple, but hook returned '{type(result).__name__}'")
    if len(result) != len(values):
        raise AutogradError(
            f"hook {_name(hook)!r} has returned an incorrect number of values (got "
            f"{len(result)}, but expected {len(values)})"
        )
    for value, replacement in zip(values, result, strict=True):
        if replacement is not None and replacement is not value:
            check_replacement(hook, value, replacement)
    return result


def _name(hook: Any) -> str:
    return getattr(hook, "__name__", None) or type(hook).__name__
