"""In-place changes of a tensor's axes: shape and strides change, the memory does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncgrad.core.history import lead_elsewhere, rebase_history
from asyncgrad.core.modes import Mode, current
from asyncgrad.core.recording import unrepeatable
from asyncgrad.core.variable import (
    Variable,
    autograd_meta,
    bump_version,
    counter_of,
    is_inference,
    requires_grad,
    view_of,
)
from asyncgrad.errors import AutogradError
from asyncgrad.ops.api import shape, strided
from asyncgrad.ops.signatures import Postponed, named, of_method
from asyncgrad.ops.tensors import in_place
from asyncgrad.types import Tensor

__all__: list[str] = []
METHODS = ("as_strided_", "squeeze_", "swapaxes_", "swapdims_", "t_", "transpose_", "unsqueeze_")


def _turning(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def method(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        found = current()
        if found.grad or input._edge is None or view_of(input) is not None:
            return _become(input, function(input, *args, **kwargs), name)
        # The change is recorded even in no-grad mode, as the tensor's node expects the old axes.
        with Mode(grad=True, inference=False):
            out = function(input, *args, **kwargs)
        return _become(input, out, name)

    method.__signature__ = Postponed(of_method, function)  # type: ignore[attr-defined]
    return named(method, name, f"`{name[:-1]}`, in place: the same tensor with other axes.")


def _become(tensor: Any, out: Any, name: str) -> Any:
    """Make a tensor take over the shape, strides and edge of `out`, a view of it."""
    if tensor._batched:
        # Under `vmap` only this example's axes change, not those of the batch.
        tensor._value, tensor._metadata = out._value, out._metadata
        return tensor
    recorded = out._edge is not None or (current().grad and requires_grad(tensor))
    in_place.check_history(tensor, name, recorded=recorded)
    unrepeatable("changes the axes of a tensor in place")
    if is_inference(tensor):
        tensor._array, tensor._metadata = out._array, out._metadata
        return tensor
    seen, counter = view_of(tensor), counter_of(tensor)
    if seen is None:
        # Existing views are defined relative to the base's old axes.
        views: list[Any] = [reference() for reference in counter.views or ()]
        if any(view is not out and _is_base_of(tensor, view) for view in views):
            raise AutogradError(
                f"{name}: the axes of a tensor can't be changed in place while there are views of "
                f"it. Use the form that is not in place."
            )
    edge, found = out._edge, view_of(out)
    tensor._array, tensor._metadata = out._array, out._metadata
    bump_version(tensor)
    if seen is None:
        autograd_meta(tensor).transposed_at = counter.value
        out._edge = None
        if recorded:
            rebase_history(tensor, edge)
    else:
        assert found is not None
        found.creation_meta = seen.creation_meta
        if recorded:
            found.version = counter.value
        if tensor._autograd is seen:
            tensor._autograd = found
        else:
            tensor._autograd.view = found
        # If `edge` is None, the view's edge is recomputed from the base when it is needed.
        lead_elsewhere(tensor, edge)
        if edge is not None:
            counter.register(tensor)
    return tensor


def _is_base_of(tensor: Variable, view: Variable | None) -> bool:
    how = None if view is None else view_of(view)
    return how is not None and how.base is tensor


as_strided_ = _turning("as_strided_", strided.as_strided)
squeeze_ = _turning("squeeze_", shape.squeeze)
swapaxes_ = _turning("swapaxes_", shape.transpose)
swapdims_ = _turning("swapdims_", shape.transpose)
t_ = _turning("t_", shape.t)
transpose_ = _turning("transpose_", shape.transpose)
unsqueeze_ = _turning("unsqueeze_", shape.unsqueeze)
