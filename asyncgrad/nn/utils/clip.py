"""Clipping of gradients."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any

import numpy as np

from asyncgrad.core.recording import called_anew
from asyncgrad.core.variable import Variable, bump_version, wrap
from asyncgrad.creation import zeros
from asyncgrad.ops.dtype import is_half
from asyncgrad.ops.tensors.transfer import moved
from asyncgrad.scheduler import check_awaited
from asyncgrad.types import Array, Tensor


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Any]:
    """The gradients of one parameter or several, without those that are None."""
    parameters = [parameters] if isinstance(parameters, Variable) else list(parameters)
    metas = [parameter._autograd for parameter in parameters]
    return [meta.grad for meta in metas if meta is not None and meta.grad is not None]


@called_anew
def get_total_norm(
    tensors: Tensor | Iterable[Tensor], norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:  # fmt: skip
    """The norm, without dimensions, of all elements of some tensors, as if they were one vector.

    The other arguments are those of `clip_grad_norm_`.
    """
    tensors = [tensors] if isinstance(tensors, Variable) else list(tensors)
    order = float(norm_type)
    if not tensors:
        return zeros(())
    F, device = tensors[0]._metadata.F, tensors[0]._metadata.device
    norms = []
    with np.errstate(all="ignore"):
        for tensor in tensors:
            place = tensor._metadata.device
            norm = place.launching(_norm)(tensor._array, order)
            norms.append(norm if place is device else moved(norm, place, device))
        total = F.as_array(device.launching(_norm)(F.xp.stack(norms), order))
    out: Tensor = wrap(total, F.metadata_of(total))
    if error_if_nonfinite and not math.isfinite(float(out)):
        raise RuntimeError(
            f"The total norm of order {order} for gradients from `parameters` is non-finite, so it "
            f"cannot be clipped. To disable this error and scale the gradients by the non-finite "
            f"norm anyway, set `error_if_nonfinite=False`"
        )
    return out


def _norm(array: Array, order: float) -> Any:
    vector = array.reshape(-1)
    narrow = is_half(vector.dtype)
    if narrow:
        # Squares of half-precision numbers above 255 are infinite.
        vector = vector.astype(np.float32)
    if order == 2 and vector.__class__ is np.ndarray and vector.dtype.kind == "f":
        # What NumPy's function does, in half the time for a small array.
        vector = vector.ravel()
        norm = np.sqrt(vector.dot(vector))
    else:
        norm = np.linalg.norm(vector, order) if vector.size else abs(vector).sum()
    return norm.astype(array.dtype) if narrow else norm


@called_anew
def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor,
    foreach: bool | None = None,
) -> None:  # fmt: skip
    """Scale gradients in place by `max_norm / total_norm`, the norm they have, if that is below 1.

    The other arguments are those of `clip_grad_norm_`.
    """
    _scale(_gradients(parameters), max_norm, total_norm)


def _scale(gradients: Iterable[Tensor], max_norm: float, total_norm: Tensor) -> None:
    home: Any = None
    if isinstance(total_norm, Variable) and total_norm._metadata.device.streamed:
        # A norm on a device is not read, since the host would wait for it.
        home = total_norm._metadata.device
        xp, total = total_norm._metadata.F.xp, total_norm._array
        factor = home.launching(lambda: xp.minimum(float(max_norm) / (total + 1e-6), 1.0))()
    else:
        # A Python number does not change the gradients' dtype.
        factor = float(max_norm) / (float(total_norm) + 1e-6)
        # If the norm is NaN, this is False and the gradients become NaN, too.
        if factor >= 1.0:
            return
    with np.errstate(all="ignore"):
        for gradient in gradients:
            place = gradient._metadata.device
            here = factor if home is None or place is home else moved(factor, home, place)
            bump_version(gradient)
            place.launching(operator.imul)(gradient._array, here)


@called_anew
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0,
    error_if_nonfinite: bool = False, foreach: bool | None = None,
) -> Tensor:  # fmt: skip
    """Scale gradients in place so that their total norm is at most `max_norm`; return that before.

    Args:
        norm_type: the norm's order; may be `float("inf")`.
        foreach: accepted for PyTorch compatibility, without effect.

    Raises:
        PendingBackwardError: if this task has started a pass that it has not awaited.
    """
    check_awaited("clip_grad_norm_")
    gradients = _gradients(parameters)
    total = get_total_norm(gradients, norm_type, error_if_nonfinite)
    _scale(gradients, max_norm, total)
    return total


@called_anew
def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Clamp the elements of the gradients, which are real, to [-clip_value, clip_value], in place.

    The other arguments, and what it raises, are those of `clip_grad_norm_`.

    Raises:
        NotImplementedError: if a gradient is complex.
        PendingBackwardError: if this task has started a pass that it has not awaited.
    """
    check_awaited("clip_grad_value_")
    bound = float(clip_value)
    gradients = _gradients(parameters)
    if any(gradient._metadata.dtype.kind == "c" for gradient in gradients):
        raise NotImplementedError(
            "clip_grad_value_: clamp is not supported for complex types. Use clip_grad_norm_."
        )
    for gradient in gradients:
        clip = gradient._metadata.device.launching(np.clip)
        bump_version(gradient)
        clip(gradient._array, -bound, bound, out=gradient._array)
