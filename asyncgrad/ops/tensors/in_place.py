"""Changes in place: check, compute and record them.

The new values are computed like any result and then copied into the tensor's memory. The tensor
takes the result's place in the graph. If the tensor is a view, its base gets a `CopySlices` node
that combines the base's old history with the view's new one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from asyncgrad.core.anomaly import remember
from asyncgrad.core.history import rebase_history
from asyncgrad.core.modes import current, install
from asyncgrad.core.node import OpNode, as_edge, init_node, name_of, next_sequence_nr
from asyncgrad.core.node_streams import note_streams
from asyncgrad.core.recording import note_copy
from asyncgrad.core.saved import restored
from asyncgrad.core.saved_values import keep_old_values, watch_result
from asyncgrad.core.variable import (
    Variable,
    View,
    bump_version,
    counter_of,
    creation_meta_of,
    gradient_edge,
    requires_grad,
    view_of,
    wrap,
)
from asyncgrad.core.versions import refuse_change
from asyncgrad.devices import CPU
from asyncgrad.errors import AutogradError, class_of
from asyncgrad.ops import batching, promotion
from asyncgrad.ops.arguments import is_expandable, number_argument
from asyncgrad.ops.forward import carry, follow, keep_old_of_tangents
from asyncgrad.ops.memory import unlocked
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import renamed
from asyncgrad.ops.overlap import refuse_overlap
from asyncgrad.ops.registry import OPS
from asyncgrad.ops.save_plan import plan_of
from asyncgrad.ops.scalar_cast import fitted
from asyncgrad.ops.signatures import Postponed, of_method
from asyncgrad.ops.table.in_place import Route
from asyncgrad.ops.tensors.transfer import to_device

#: Ops that write the same number everywhere: elements that share memory do not matter.
_ALIKE = frozenset({"fill_", "zero_"})
#: PyTorch's names of the nodes of changes that write one number.
_FILLED = {"fill_": "FillBackward2", "fill_(Tensor)": "FillBackward3", "zero_": "ZeroBackward0"}
#: Ops whose results are not converted to the tensor's dtype.
_EXACT = frozenset({"float_power_"})


def change(tensor: Any, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Replace a tensor's values by what a function computes from it and the other arguments."""
    if args or kwargs:
        refuse_overlap(tensor, (*args, *kwargs.values()), name)
    modes = current()
    # Tangents may be recorded even where values are not.
    since = next_sequence_nr() if modes.grad or modes.dual_level is not None else None
    # Like PyTorch, save a copy of the changed operand if it is also another operand.
    again = since is not None and _given_again(tensor, args, kwargs)
    given = tensor if modes.saved_hooks is None and not again else _as_before(tensor)
    if modes.grad and given._edge is not None:
        given = _without_hooks(tensor, given)
    result = function(given, *args, **kwargs)
    return assign(tensor, result, name, None if again else since)


def operator(function: Callable[[Any, Any], Any], name: str) -> Any:
    """Make an operator that puts a binary function's result into the first operand."""

    def changing(self: Any, other: Any) -> Any:
        try:
            return change(self, name, function, other)
        except TypeError:
            known = isinstance(other, Variable) or promotion.as_number(other) is not None
            if known or promotion.operator_must_refuse(name, other):
                raise
            # Python asks the other operand, as it does without the assignment.
            return NotImplemented

    changing.__name__ = changing.__qualname__ = name
    changing.__annotations__ = {"other": "Tensor | Number", "return": "Tensor"}
    return changing


def method(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Make the in-place form of a function, which changes its first argument."""

    def changing(self: Any, *args: Any, **kwargs: Any) -> Any:
        return change(self, name, function, *args, **kwargs)

    changing.__name__ = changing.__qualname__ = name
    changing.__doc__ = f"`{name[:-1]}`, in place."
    changing.__signature__ = Postponed(of_method, function)  # type: ignore[attr-defined]
    return changing


def _given_again(tensor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the changed tensor, or one that shares its memory, is also another operand."""
    counter = tensor._counter
    return any(
        other is tensor
        or (counter is not None and isinstance(other, Variable) and other._counter is counter)
        for other in (*args, *kwargs.values())
    )


def _as_before(tensor: Any) -> Any:
    """A tensor with the old values, copied, and the same edge: nodes save it instead."""
    edge = gradient_edge(tensor)
    if edge is None:
        return tensor
    metadata = tensor._metadata
    old = restored(metadata.F.clone(tensor._array), metadata, edge)
    note_copy(tensor._array, old._array)
    level = current().dual_level
    if level is not None:
        level.copy(tensor._array, old._array)
    return old


def _without_hooks(tensor: Any, given: Any) -> Any:
    """The operand that a change reads.

    A view whose node has hooks, or is an `as_strided`, is taken again: its node is left out.
    """
    view, node = view_of(tensor), as_edge(tensor._edge).node
    if view is None or node is None or view.creation_meta is not None:
        return given
    if node.extras is None and name_of(node) != "AsStridedBackward0":
        return given
    given = wrap(given._array, given._metadata, edge_from_base(view))
    given._counter = tensor._counter
    return given


def copy(tensor: Any, source: Any, name: str = "copy_", *, non_blocking: bool = False) -> Any:
    """Put another tensor's values, broadcast and from any device, into a tensor."""
    shape = tensor._metadata.shape
    if tensor._batched or getattr(source, "_batched", False):
        return _copy_batched(tensor, source, name, copy)
    if not isinstance(source, Variable):
        number = promotion.as_number(source)
        if number is None:
            raise TypeError(f"{name}(): argument 'other' must be Tensor, not {class_of(source)}")
        source = promotion.constant(number, tensor, np.result_type(type(number)))
    device = tensor._metadata.device
    if source._metadata.device is not device:
        # The host reads the values right away, so a copy to the CPU must have finished.
        source = to_device(source, device, non_blocking=non_blocking and device is not CPU)
    if source._metadata.is_complex and not tensor._metadata.is_complex:
        source = R.to(source, source._array.real.dtype)
    given = source = promotion.cast(source, tensor._metadata.dtype)
    if source._metadata.shape != shape:
        if name == "copy_" and len(source._metadata.shape) > len(shape):
            raise AutogradError(
                f"{name}: output with shape {list(shape)} doesn't match the broadcast shape "
                f"{list(source._metadata.shape)}. Reshape the source."
            )
        source = _broadcast(source, shape, name)
    refuse_overlap(tensor, (given if name == "copy_" else source,), name)
    if view_of(tensor) is None and current().grad:
        check_change(tensor, name, recorded=requires_grad(tensor) or requires_grad(source))
        source = R.overwrite(tensor, source)
        if name in _FILLED:
            source = renamed(source, _FILLED[name])
    return assign(tensor, source, name, made=False)


def _copy_batched(tensor: Any, source: Any, name: str, put: Callable[..., Any]) -> Any:
    """Change a batched tensor through the tensors that hold the batches."""
    level = batching.level_of((tensor, source))
    if not (tensor._batched and tensor._level is level):
        raise AutogradError(
            f"vmap: inplace arithmetic({name}) is not possible because there exists a Tensor "
            f"`other` in extra_args that has more elements than `self`: the batch of a vmap can't "
            f"be put into a tensor that is the same for all examples. Use the functional form."
        )
    source = promotion.cast(source, tensor._metadata.dtype)
    if source._metadata.shape != tensor._metadata.shape:
        source = _broadcast(source, tensor._metadata.shape, name)
    _, (held, values) = batching.together(tensor, source)
    put(held, values, name=name)
    return tensor


def _broadcast(source: Any, shape: tuple[int, ...], name: str) -> Any:
    given = source._metadata.shape
    extra = len(given) - len(shape)
    if extra > 0 and given[:extra] == (1,) * extra:
        source = R.reshape(source, given[extra:])
        given = given[extra:]
    if not is_expandable(given, shape):
        raise AutogradError(
            f"{name}: shape mismatch: values of shape {list(given)} can't be broadcast to "
            f"{list(shape)}"
        )
    return R.expand(source, shape)


def fill(tensor: Any, value: Any, name: str = "fill_") -> Any:
    """Set every element of a tensor to one number."""
    if isinstance(value, Variable):
        name = f"{name}(Tensor)"
    return copy(tensor, filling(name, value, tensor), name)


def filling(name: str, value: Any, like: Any) -> Any:
    """The value that another tensor is filled with, as a tensor without axes."""
    if not isinstance(value, Variable):
        number = number_argument(name, "value", value)
        return promotion.constant(fitted(name, number, like._metadata.dtype), like)
    if value._metadata.shape:
        raise AutogradError(
            f"{name} only supports 0-dimension value tensor but got tensor with "
            f"{len(value._metadata.shape)} dimensions."
        )
    return value


def check_change(tensor: Any, name: str, *, recorded: bool) -> None:
    """Raise if a change in place is impossible or, if it is recorded, makes the graph wrong."""
    check_history(tensor, name, recorded=recorded)
    check_memory(tensor, name)


def check_memory(tensor: Any, name: str) -> None:
    """Raise if the elements of a tensor can't be changed one by one."""
    F, array = tensor._metadata.F, tensor._array
    repeated = name in _ALIKE and unlocked(array) is not None
    if not repeated and not F.make_writeable(array) and array.size:
        raise AutogradError(
            f"{name}: unsupported operation: the tensor's memory is read-only, or more than one "
            f"element of it refers to a single memory location (an expanded tensor). Clone it "
            f"first."
        )


def check_history(tensor: Any, name: str, *, recorded: bool) -> None:
    """Raise if a change in place would make the graph wrong, even if no element changes."""
    meta = tensor._autograd
    modes = current()
    if modes.before_change is not None:
        modes.before_change(tensor)
    if modes.transform is not None:
        modes.transform.check_change(tensor, name)
    if meta is not None and meta.inference and not modes.inference:
        raise AutogradError(
            f"{name}: Inplace update to inference tensor outside InferenceMode is not allowed. "
            f"You can make a clone to get a normal tensor before doing inplace update."
        )
    if recorded and modes.grad:
        view = view_of(tensor)
        if view is not None and creation_meta_of(view) is not None:
            refuse_change(view.creation_meta, indirect=False, edge=tensor._edge)
        if meta is not None and meta.requires_grad and tensor._edge is None:
            raise AutogradError(
                f"{name}: a leaf Variable that requires grad is being used in an in-place "
                f"operation. Use the functional form, or put it under asyncgrad.no_grad()."
            )
        if view is not None and view.base._edge is None and requires_grad(tensor):
            raise AutogradError(
                f"{name}: a view of a leaf Variable that requires grad is being used in an "
                f"in-place operation. Use the functional form, or put it under "
                f"asyncgrad.no_grad()."
            )


def assign(
    tensor: Any, result: Any, name: str, since: int | None = None, *, made: bool = True
) -> Any:
    """Give a tensor the values and the history of an operation's result, in place.

    Args:
        result: the operation's result, of the tensor's shape.
        name: the operation, for errors.
        since: nodes with greater sequence numbers belong to the operation and may have saved the
            tensor's old values, which are then copied.
        made: the operation has made the result; otherwise others may have it, too.
    """
    if result._batched or tensor._batched:
        return _copy_batched(tensor, result, name, partial(assign, since=since))
    recorded = current().grad and (requires_grad(tensor) or requires_grad(result))
    check_change(tensor, name, recorded=recorded)
    if result._metadata.shape != tensor._metadata.shape:
        raise AutogradError(
            f"{name}: output with shape {list(tensor.shape)} doesn't match the broadcast shape "
            f"{list(result.shape)}. Use the functional form."
        )
    given, found = tensor._metadata.dtype, result._metadata.dtype
    if promotion.category(found) > promotion.category(given) or (name in _EXACT and found != given):
        raise AutogradError(
            f"{name}: result type {result.dtype} can't be cast to the desired output type "
            f"{tensor.dtype}. Convert the tensor first."
        )
    edge = None
    if recorded:
        edge = gradient_edge(promotion.cast(result, tensor._metadata.dtype))
        if since is not None:
            keep_old_values(edge, tensor, since)
    modes = current()
    moves = modes.dual_level is not None and modes.forward
    if moves and since is not None:
        keep_old_of_tangents(tensor, result, since)
    if modes.recorder is not None:
        modes.recorder.assigned(tensor, result)
    bump_version(tensor)
    tensor._metadata.F.assign(unlocked(tensor._array), result._array)
    if moves:
        carry(tensor, result)
    if recorded:
        if made:
            watch_result(edge, result, counter_of(tensor))
        rebase(tensor, edge)
    elif tensor._counter is not None and tensor._counter.views:
        tensor._counter.forget_edges()
    return tensor


def rebase(tensor: Any, edge: Any) -> None:
    """Make an edge, or None, the history of a tensor that was changed in place."""
    view = view_of(tensor)
    if view is None:
        rebase_history(tensor, _copied(tensor, edge, None) if edge is None else edge)
    else:
        route = Route(view.path, view.base)
        rebase_history(view.base, _copied(view.base, edge, route))


def _copied(base: Any, edge: Any, route: Route | None) -> Any:
    """Make the node of a base whose view at `route` was changed; None: all of it was changed."""
    before = gradient_edge(base)
    places = tuple([place for place, known in enumerate((before, edge)) if known is not None])
    following = (before, edge) if len(places) == 2 else before if edge is None else edge
    node = OpNode()
    init_node(node, following, base._metadata, 2 * base._metadata.cost)
    if route is None:
        node.rule = plan_of(OPS["overwrite"], (0,), ()).rule
    else:
        node.rule = plan_of(OPS["copy_slices"], places, ()).rule
        node.saved = route
    modes = current()
    if modes.anomaly:
        remember(node, modes)
    if modes.streams is not None:
        note_streams(node, modes.streams)
    return node


def edge_from_base(view: View) -> Any:
    """Take a view again from its base, recorded, and return its edge."""
    found = current()
    install(found.replace(grad=True, inference=False, saved_hooks=None, forward=False))
    try:
        return follow(view.base, view.path)._edge
    finally:
        install(found)
