"""Initial values of parameters, PyTorch's `torch.nn.init`.

Every function overwrites its tensor without recording, even if the tensor requires a gradient, and
returns it. Random numbers come from `generator`, or from the default one.
"""

from __future__ import annotations

import math
import operator
from typing import Any, TypeVar

import numpy as np

from asyncgrad.choices import FanMode, GainOf, words
from asyncgrad.core.frames import warn
from asyncgrad.core.recording import called_anew
from asyncgrad.core.variable import Variable, bump_version
from asyncgrad.devices import CPU
from asyncgrad.ops.dtype import INEXACT, check_dtype
from asyncgrad.ops.scalar_cast import fitted
from asyncgrad.ops.tensors.rng import Generator, source_of

__all__ = [
    "calculate_gain", "constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_",
    "normal_", "ones_", "orthogonal_", "sparse_", "trunc_normal_", "uniform_", "xavier_normal_",
    "xavier_uniform_", "zeros_",
]  # fmt: skip

_T = TypeVar("_T", bound=Variable)

#: The gains other than 1.
_GAINS: dict[GainOf, float] = {"tanh": 5 / 3, "relu": math.sqrt(2), "selu": 3 / 4}


def _fill(tensor: _T, values: Any) -> _T:
    """Overwrite a tensor without recording, even if it requires a gradient."""
    _overwrite(tensor, values)
    return tensor


@called_anew
def _overwrite(tensor: Variable, values: Any) -> None:
    place = tensor._metadata.device
    if place is not CPU and isinstance(values, np.ndarray):
        values = place.from_host(values, pinned=False)
    bump_version(tensor)
    place.launching(operator.setitem)(tensor._array, ..., values)


def constant_(tensor: _T, val: float) -> _T:
    """Fill with one number."""
    return _fill(tensor, fitted("constant_", val, tensor._metadata.dtype))


def zeros_(tensor: _T) -> _T:
    """Fill with zeros."""
    return _fill(tensor, 0)


def ones_(tensor: _T) -> _T:
    """Fill with ones."""
    return _fill(tensor, 1)


def uniform_(tensor: _T, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> _T:
    """Fill with floating or complex numbers uniform in [a, b)."""
    check_dtype("uniform_", tensor._metadata.dtype, INEXACT)
    if a > b:
        raise RuntimeError(
            f"uniform_ expects to return a [from, to) range, but found from={a} > to={b}"
        )
    return _fill(tensor, source_of(generator).draw("uniform", a, b, tensor._metadata.shape))


def normal_(
    tensor: _T, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> _T:
    """Fill with normal numbers, floating or complex."""
    check_dtype("normal_", tensor._metadata.dtype, INEXACT)
    if std < 0:
        raise RuntimeError(f"normal_ expects std >= 0.0, but found std={std}")
    return _fill(tensor, source_of(generator).draw("normal", mean, std, tensor._metadata.shape))


def trunc_normal_(
    tensor: _T, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0,
    generator: Generator | None = None,
) -> _T:  # fmt: skip
    """Fill with normal numbers that lie in [a, b]; numbers outside are redrawn.

    Raises:
        ZeroDivisionError: if `std` is 0.
        NotImplementedError: for integers and booleans.
    """
    check_dtype("trunc_normal_", tensor._metadata.dtype, INEXACT)
    if a > b:
        raise RuntimeError(f"trunc_normal_ expects a <= b, but found a={a} > b={b}")
    if mean < a - 2 * std or mean > b + 2 * std:
        warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. "
            "The distribution of values may be incorrect."
        )
    values = np.empty(tensor._metadata.size)
    refused = np.arange(values.size)
    low, high = sorted((bound - mean) / std for bound in (a, b))
    # If few normal numbers lie in [a, b], others are drawn and accepted by their density.
    narrow = math.erf(high / math.sqrt(2)) - math.erf(low / math.sqrt(2)) < 0.6
    nearest = max(low, min(0.0, high))
    while refused.size:
        if not narrow:
            drawn = source_of(generator).draw("standard_normal", refused.size)
            kept = (drawn >= low) & (drawn <= high)
        else:
            drawn = source_of(generator).draw("random", refused.size)
            if nearest == 0:
                drawn = low + (high - low) * drawn
                chance = np.exp(-(drawn**2) / 2)
            else:
                # From the end nearest to 0, the density falls at least exponentially.
                beyond = -np.log1p(drawn * np.expm1(-abs(nearest) * (high - low))) / abs(nearest)
                drawn = nearest + math.copysign(1.0, nearest) * beyond
                chance = np.exp(-(beyond**2) / 2)
            kept = source_of(generator).draw("random", refused.size) <= chance
        values[refused[kept]] = drawn[kept]
        refused = refused[~kept]
    values *= std
    values += mean
    return _fill(tensor, np.clip(values, a, b).reshape(tensor._metadata.shape))


def eye_(tensor: _T) -> _T:
    """Fill a matrix with the identity."""
    _check_ndim(tensor, {2}, "Only tensors with 2 dimensions are supported")
    rows, columns = tensor._metadata.shape
    return _fill(tensor, np.eye(rows, columns))


def dirac_(tensor: _T, groups: int = 1) -> _T:
    """Fill the weight of a convolution so that it passes on as many channels as possible."""
    _check_ndim(tensor, {3, 4, 5}, "Only tensors with 3, 4, or 5 dimensions are supported")
    shape = tensor._metadata.shape
    if shape[0] % groups:
        raise ValueError(f"dim 0 must be divisible by groups: {shape[0]} and {groups}")
    per_group = shape[0] // groups
    values = np.zeros(shape)
    centre = tuple(size // 2 for size in shape[2:])
    for group in range(groups):
        for channel in range(min(per_group, shape[1])):
            values[(group * per_group + channel, channel, *centre)] = 1
    return _fill(tensor, values)


def _check_ndim(tensor: Variable, allowed: set[int], words: str) -> None:
    if len(tensor._metadata.shape) not in allowed:
        raise ValueError(f"{words}, got shape {tensor._metadata.shape}")


def _calculate_fan_in_and_fan_out(tensor: Variable) -> tuple[int, int]:
    """The number of inputs of each output, and of outputs of each input."""
    shape = tensor._metadata.shape
    if len(shape) < 2:
        raise ValueError(
            f"Fan in and fan out can not be computed for tensor with fewer than 2 dimensions, got "
            f"shape {shape}"
        )
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


def calculate_gain(nonlinearity: GainOf, param: float | None = None) -> float:
    """The gain that goes with an activation; `param` is the slope of a leaky relu."""
    if nonlinearity not in words(GainOf):
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(f"negative_slope {slope} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    return _GAINS.get(nonlinearity, 1.0)


def xavier_uniform_(tensor: _T, gain: float = 1.0, generator: Generator | None = None) -> _T:
    """Fill uniformly, with the variance that keeps magnitudes in both passes (Glorot)."""
    bound = math.sqrt(3.0) * gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: _T, gain: float = 1.0, generator: Generator | None = None) -> _T:
    """Fill normally, with the variance that keeps magnitudes in both passes (Glorot)."""
    std = gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return normal_(tensor, 0.0, std, generator)


def _kaiming_std(tensor: _T, a: float, mode: FanMode, nonlinearity: GainOf) -> float | None:
    """The standard deviation by which to fill; None for a tensor without elements."""
    if 0 in tensor._metadata.shape:
        warn("Initializing zero-element tensors is a no-op")
        return None
    gain = calculate_gain(nonlinearity, a)
    if mode.lower() not in words(FanMode):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return gain / math.sqrt(fan_in if mode.lower() == "fan_in" else fan_out)


def kaiming_uniform_(
    tensor: _T, a: float = 0, mode: FanMode = "fan_in", nonlinearity: GainOf = "leaky_relu",
    generator: Generator | None = None,
) -> _T:  # fmt: skip
    """Fill uniformly, with the variance that keeps magnitudes in one pass through relus (He)."""
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    if std is None:
        return tensor
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: _T, a: float = 0, mode: FanMode = "fan_in", nonlinearity: GainOf = "leaky_relu",
    generator: Generator | None = None,
) -> _T:  # fmt: skip
    """Fill normally, with the variance that keeps magnitudes in one pass through relus (He)."""
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor if std is None else normal_(tensor, 0.0, std, generator)


def orthogonal_(tensor: _T, gain: float = 1, generator: Generator | None = None) -> _T:
    """Fill with a matrix whose rows or columns are orthonormal, times `gain`."""
    shape = tensor._metadata.shape
    if len(shape) < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if 0 in shape:
        return tensor
    check_dtype("orthogonal_", tensor._metadata.dtype, INEXACT)
    rows, columns = shape[0], tensor._metadata.size // shape[0]
    flat = source_of(generator).draw("standard_normal", (max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(flat)
    # Multiplied by these signs, q is uniform over all orthogonal matrices.
    q = q * np.sign(np.diag(r))
    return _fill(tensor, gain * (q.T if rows < columns else q).reshape(shape))


def sparse_(
    tensor: _T, sparsity: float, std: float = 0.01, generator: Generator | None = None
) -> _T:
    """Fill a matrix normally and set a fraction of each column to zero."""
    _check_ndim(tensor, {2}, "Only tensors with 2 dimensions are supported")
    check_dtype("sparse_", tensor._metadata.dtype, INEXACT)
    rows, columns = tensor._metadata.shape
    values = source_of(generator).draw("normal", 0.0, std, (rows, columns))
    for column in range(columns):
        values[
            source_of(generator).draw("permutation", rows)[: math.ceil(sparsity * rows)], column
        ] = 0
    return _fill(tensor, values)
