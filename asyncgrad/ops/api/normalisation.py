"""Layer, RMS, batch and instance norms."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from asyncgrad.core.modes import Mode
from asyncgrad.core.recording import called_anew
from asyncgrad.core.variable import bump_version
from asyncgrad.ops.arguments import check_constant, one_shape
from asyncgrad.ops.batching import level_of
from asyncgrad.ops.dtype import FLOATING, INEXACT, check_dtype
from asyncgrad.ops.float32_compute import computing_dtype, in_parameters_dtype
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.promotion import cast
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.ops.tensors import in_place
from asyncgrad.ops.tensors.new_tensors import new_beside
from asyncgrad.types import Array, Ints, Tensor

#: The functions at PyTorch's top level; all functions here are in `nn.functional`.
__all__ = ["rms_norm"]


def _checked(name: str, input: Tensor, normalized_shape: Ints) -> tuple[Any, tuple[int, ...]]:
    """The checked input and the shape of its last axes."""
    wanted = one_shape(name, (normalized_shape,))
    shape = input._metadata.shape
    if not wanted:
        raise unmet(name, "Expected normalized_shape to be at least 1-dimensional, i.e., "
                    "containing at least one element", normalized_shape=wanted)  # fmt: skip
    if name == "rms_norm" and len(shape) < len(wanted):
        raise unmet(name, f"Input tensor must have at least {len(wanted)} dimensions",
                    ValueError, input=input)  # fmt: skip
    if shape[len(shape) - len(wanted) :] != wanted or len(shape) < len(wanted):
        raise unmet(name, f"Given normalized_shape={list(wanted)}, expected input with shape [*, "
                    f"{str(wanted)[1:-1].rstrip(',')}]", input=input)  # fmt: skip
    check_dtype(name, input._metadata.dtype, INEXACT)
    return input, wanted


def _check_shape(name: str, what: str, value: Tensor | None, shape: tuple[int, ...]) -> None:
    """Raise unless a parameter has the normalised shape."""
    if value is not None and value._metadata.shape != shape:
        raise unmet(name, f"Expected {what} to be of same shape as normalized_shape",
                    **{what: value}, normalized_shape=shape)  # fmt: skip


def layer_norm(
    input: Tensor, normalized_shape: Ints, weight: Tensor | None = None,
    bias: Tensor | None = None, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalise the last axes to mean 0 and variance 1, then scale and shift.

    Args:
        input: a floating tensor of shape (*, *normalized_shape).
        normalized_shape: the shape of the axes that are normalised together.
        weight: the factors, of that shape.
        bias: the summands, of that shape.
        eps: added to the variance.
    """
    x, shape = _checked("layer_norm", input, normalized_shape)
    _check_shape("layer_norm", "weight", weight, shape)
    _check_shape("layer_norm", "bias", bias, shape)
    check_dtype("layer_norm", x._metadata.dtype, FLOATING)
    if weight is None and bias is None:
        return R.normalise(x, len(shape), eps, [])
    x = in_parameters_dtype("layer_norm", x, weight, bias)
    weight = new_beside("layer_norm", x, "ones", shape) if weight is None else weight
    bias = new_beside("layer_norm", x, "zeros", shape) if bias is None else bias
    return cast(R.layer_norm(x, weight, bias, len(shape), eps, []), input._metadata.dtype)


def rms_norm(
    input: Tensor, normalized_shape: Ints, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Divide by the root mean square over the last axes, then scale.

    Args:
        input: a floating or complex tensor of shape (*, *normalized_shape).
        normalized_shape, weight: as in `layer_norm`.
        eps: added to the mean square; if None the machine epsilon of the dtype in which sums are
            computed: float32 for half precision.
    """
    x, shape = _checked("rms_norm", input, normalized_shape)
    _check_shape("rms_norm", "weight", weight, shape)
    dtype = x._metadata.dtype
    if eps is None:
        eps = float(np.finfo(computing_dtype(dtype)).eps)
    if weight is not None and weight._metadata.dtype != dtype:
        x = cast(x, computing_dtype(dtype))
    metadata = x._metadata
    if metadata.is_complex or (weight is not None and weight._metadata.dtype != metadata.dtype):
        ndim = len(metadata.shape)
        dims = tuple(range(ndim - len(shape), ndim))
        squares = R.mul_scalar(R.sum(R.mul(x, x), dims, True), 1 / max(prod(shape), 1))
        out = R.mul(x, R.rsqrt(R.add_scalar(squares, eps)))
        return out if weight is None else cast(R.mul(out, weight), dtype)
    if weight is None:
        return R.root_mean_square(x, len(shape), eps, [])
    return cast(R.rms_norm(x, weight, len(shape), eps, []), dtype)


def _check_channels(name: str, what: str, value: Tensor, channels: int) -> None:
    """Raise unless a parameter or running moment has one element for each channel."""
    found = value._metadata
    if found.shape != (channels,):
        raise RuntimeError(
            f"{name}: {what} should contain {channels} elements not {found.size}: shape "
            f"{found.shape}"
        )


@requires(
    "not (training and eps <= 0)  # batch_norm eps must be positive during training",
    "not eps < 0  # batch_norm eps must be non-negative", error=ValueError,
)  # fmt: skip
def batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalise each channel to mean 0 and variance 1, then scale and shift.

    Args:
        input: a floating tensor of shape (n, channels, ...).
        running_mean: the mean of each channel, of shape (channels,). In training it may be None,
            otherwise it is moved towards the batch's.
        running_var: the variance of each channel, likewise.
        weight: the factor of each channel.
        bias: the summand of each channel.
        training: normalise with the moments of the batch instead of the running ones.
        momentum: the weight of the new moments in the running ones.
        eps: added to the variance.

    Raises:
        ValueError: in training, if there is one value per channel only, or `eps` is out of range.
    """
    name = "batch_norm"
    metadata = input._metadata
    shape = metadata.shape
    if len(shape) < 2:
        if shape == (0,):
            return R.clone(input)
        raise RuntimeError(f"{name}: expected input of 2 dimensions or more, got shape {shape}")
    check_dtype(name, metadata.dtype, FLOATING)
    channels = shape[1]
    count = shape[0] * prod(shape[2:])
    if training and count == 1:
        raise unmet("batch_norm", "Expected more than 1 value per channel when training",
                    ValueError, input=input)  # fmt: skip
    for what, value in (
        ("running_mean", running_mean), ("running_var", running_var), ("weight", weight),
        ("bias", bias),
    ):  # fmt: skip
        if value is not None:
            _check_channels(name, what, value, channels)
            if what.startswith("running"):
                check_constant(name, what, value)
                if training and not value._batched:
                    in_place.check_memory(value, name)
        elif not training and what.startswith("running"):
            raise unmet(name, f"Expected {what} to be defined when training=False: {what} must "
                        "be defined in evaluation mode")  # fmt: skip
    x = in_parameters_dtype(name, input, running_mean, running_var, weight, bias)
    weight = new_beside(name, x, "ones", channels) if weight is None else weight
    bias = new_beside(name, x, "zeros", channels) if bias is None else bias
    if not training:
        out = R.batch_norm_by_moments(x, weight, bias, running_mean, running_var, eps)
        return cast(out, metadata.dtype)
    kept: list[Any] = []
    out = cast(R.batch_norm(x, weight, bias, eps, kept), metadata.dtype)
    if (running_mean is None and running_var is None) or not count:
        return out
    if level_of((input, weight, bias, running_mean, running_var)) is not None:
        _move_examples(input, running_mean, running_var, momentum)
        return out
    mean, variance = kept[0]
    move = metadata.device.launching(_move)
    if running_mean is not None:
        move(running_mean, mean, momentum)
    if running_var is not None:
        # The running variance is unbiased: it is divided by count - 1.
        move(running_var, variance, momentum, momentum * count / (count - 1))
    return out


@requires(
    "input.ndim >= 2",
    "use_input_stats or not (running_mean is None or running_var is None)  # Expected running_mean "
    "and running_var to be defined when use_input_stats is false",
)
@requires(
    "not use_input_stats or prod(input.shape[2:]) != 1"
    "  # Expected more than 1 spatial element when training",
    error=ValueError,
)
def instance_norm(
    input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None,
    weight: Tensor | None = None, bias: Tensor | None = None, use_input_stats: bool = True,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalise each channel of each example to mean 0 and variance 1, then scale and shift.

    Args:
        input: a floating tensor of shape (n, channels, ...).
        running_mean: the mean of each channel, of shape (channels,), which is moved towards the
            examples'; or None.
        running_var: the variance of each channel, likewise.
        use_input_stats: normalise with the moments of the examples instead of the running ones.
        weight, bias, momentum, eps: as in `batch_norm`.

    Raises:
        ValueError: if an example has one value per channel only.
    """
    n, channels, *image = input.shape
    # Instance norm is batch norm of one example that has the channels of all examples.
    mean, var, scale, shift = (
        None if part is None else part.repeat(n)
        for part in (running_mean, running_var, weight, bias)
    )
    flat = R.reshape(input, (1, n * channels, *image))
    # As in PyTorch, `eps` is not checked here.
    unchecked: Any = batch_norm.__wrapped__  # type: ignore[attr-defined]
    out = unchecked(flat, mean, var, scale, shift, use_input_stats, momentum, eps)
    if use_input_stats and n:
        for running, moved in ((running_mean, mean), (running_var, var)):
            if running is not None and moved is not None:
                moments = R.mean(R.reshape(moved.detach(), (n, channels)), (0,), False)
                in_place.copy(running, moments, "instance_norm")
    return R.reshape(out, input.shape)


def _move_examples(
    x: Tensor, running_mean: Tensor | None, running_var: Tensor | None, momentum: float
) -> None:
    """Update the running moments inside `vmap`, where each example has its own."""
    for running in (running_mean, running_var):
        if running is not None and level_of((running,)) is not level_of((x, running)):
            raise RuntimeError(
                "batch_norm: the running moments can't be moved by the examples of a vmap, each "
                "of which would have its own. Pass track_running_stats=False, or call eval() "
                "before, or map over the buffers, too."
            )
    dims = (0, *range(2, len(x.shape)))
    with Mode(grad=False):
        for running, moment in (
            (running_mean, R.mean(x, dims, False)),
            (running_var, R.var(x, dims, 1, False)),
        ):
            if running is not None:
                kept = R.mul_scalar(running, 1 - momentum)
                in_place.copy(running, R.add(kept, R.mul_scalar(moment, momentum)), "batch_norm")


@called_anew
def _move(running: Tensor, batch: Array, momentum: float, share: float | None = None) -> None:
    """Move a running moment towards the batch's, in place."""
    array = running._array
    bump_version(running)
    array *= 1 - momentum
    array += (momentum if share is None else share) * batch
