"""Scans in which each result depends on the previous one.

They run step by step along the axis, for all lines at once: a parallel scan would need products of
factors, which may overflow or underflow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.devices.fp_errors import without_fp_errors
from asyncgrad.ops import batch_rules
from asyncgrad.ops.dtype import INEXACT, check_dtype
from asyncgrad.ops.op import linear, operation
from asyncgrad.ops.table.shape import in_order
from asyncgrad.ops.widening import rounding_once
from asyncgrad.types import Array, Library, Namespace, Value

#: The elements of a block of running sums, which stays in the cache.
_BLOCK = 1 << 16
#: Slices from this length on are combined with one another in a call for each.
_LONG = 256


def _running(name: str, *, back: bool = False) -> Callable[..., Any]:
    """The kernel of running sums ("add") or products ("multiply"), or of those from the end.

    Those of float32 are computed in float64, because each step would lose digits. Short sums are
    not, because that would take twice as long.
    """
    combine: np.ufunc = getattr(np, name)

    def kernel(xp: Library, x: Array, dim: int) -> Any:
        if not x.ndim:
            return x.copy()
        if combine is np.add and x.size < _LONG and not back:
            return in_order(xp.add.accumulate(x, dim, x.dtype))
        host = x.__class__ is np.ndarray
        wider = np.dtype(np.float64) if host and x.dtype.char == "f" else x.dtype
        if x.size < _LONG and not back:
            found = getattr(xp, name).accumulate(x, dim, wider)
            return in_order(found.astype(x.dtype, copy=False))
        made = out = xp.empty(x.shape, x.dtype)
        if back:
            turned = (slice(None),) * dim + (slice(None, None, -1),)
            x, out = x[turned], out[turned]
        if wider is not x.dtype and x.size and dim == x.ndim - 1:
            _along_lines(combine, x, out)
        elif host and dim < x.ndim - 1 and x.size >= _LONG * x.shape[dim]:
            _over_slices(combine, np.moveaxis(x, dim, 0), np.moveaxis(out, dim, 0), wider)
        else:
            getattr(xp, name).accumulate(x, dim, wider, out)
        return made

    return kernel


def _over_slices(combine: np.ufunc, x: Array, out: Array, wider: np.dtype[Any]) -> None:
    """Combine long slices with one another, because NumPy goes line by line."""
    out[:1] = x[:1]
    if wider is x.dtype:
        for before, added, place in zip(out, x[1:], out[1:], strict=False):
            combine(before, added, place)
    else:
        total = x[:1].astype(wider)
        for added, place in zip(x[1:], out[1:], strict=True):
            place[...] = combine(total, added, total)[0]


def _along_lines(combine: np.ufunc, x: Array, out: Array) -> None:
    """Combine along the last axis, in float64: a block at a time, in the cache."""
    length = x.shape[-1]
    lines, places = x.reshape(-1, length), out.reshape(-1, length)
    height = max(1, _BLOCK // length)
    last: Any = None
    for row in range(0, len(lines), height):
        for start in range(0, length, _BLOCK):
            at = slice(row, row + height), slice(start, start + _BLOCK)
            part = lines[at].astype(np.float64)
            if start:
                part[:, 0] = combine(part[:, 0], last)
            combine.accumulate(part, 1, None, part)
            places[at], last = part, part[:, -1]


def _recurrence(xp: Library, x: Array, y: Array, dim: int) -> Any:
    """`out[i] = x[i] + y[i] * out[i - 1]` along an axis; the first factor is ignored."""
    out = xp.array(x)
    lines, factors = xp.moveaxis(out, dim, 0), xp.moveaxis(y, dim, 0)
    for i in range(1, len(lines)):
        lines[i] += factors[i] * lines[i - 1]
    return out


def _before(F: Namespace, x: Value, dim: int) -> Any:
    """The previous element along an axis, 0 for the first."""
    return F.pad_zeros(F.narrow(x, dim, 0, x.shape[dim] - 1), x.shape, dim, 1)


def _behind(F: Namespace, x: Value, dim: int) -> Any:
    return F.pad_zeros(F.narrow(x, dim, 1, x.shape[dim] - 1), x.shape, dim, 0)


def _recurrence_back(F: Namespace, g: Value, y: Value, dim: int) -> Any:
    """The adjoint: the same recurrence from the end, with the next element's factor."""
    factors = F.flip(_behind(F, F.conj(y), dim), (dim,))
    return F.flip(F.recurrence(F.flip(g, (dim,)), factors, dim), (dim,))


def _recurrence_by_factors(F: Namespace, g: Value, y: Value, out: Value, dim: int) -> Any:
    return F.chain(_recurrence_back(F, g, y, dim), _before(F, out, dim))


def _log_of_two(xp: Library, x: Array, y: Array) -> Any:
    """As in PyTorch, the angle is counted from that of the operand with the larger real part."""
    first = x.real >= y.real
    more, less = xp.where(first, x, y), xp.where(first, y, x)
    return xp.where(xp.isfinite(more.real), more + xp.log1p(xp.exp(less - more)), more)


@without_fp_errors
def _logcumsumexp(xp: Library, x: Array, dim: int) -> Any:
    check_dtype("logcumsumexp", x.dtype, INEXACT)
    if not x.ndim:
        return x.copy()
    if x.__class__ is np.ndarray and x.dtype.kind == "f":
        # In float32 each step would lose digits; in float64 it takes no longer. NumPy keeps the GIL
        # if it has to convert the elements itself.
        found = np.logaddexp.accumulate(x.astype(np.float64, copy=False), dim)
        return in_order(found.astype(x.dtype, copy=False))
    out = xp.array(x, order="C")
    lines = xp.moveaxis(out, dim, 0)
    for i in range(1, len(lines)):
        lines[i] = _log_of_two(xp, lines[i - 1], lines[i])
    return out


def _ratios(F: Namespace, out: Value, dim: int) -> Any:
    """The ratio of each sum to the one before: exp(out[i - 1] - out[i]), 0 for the first."""
    length = out.shape[dim]
    steps = F.sub(F.narrow(out, dim, 0, length - 1), F.narrow(out, dim, 1, length - 1))
    return F.exp(F.pad_zeros(steps, out.shape, dim, 1))


def _logcumsumexp_pull(F: Namespace, g: Value, x: Value, out: Value, dim: int) -> Any:
    share = F.exp(F.sub(x, out))
    if not x.shape or not x.shape[dim]:
        return F.chain(g, share)
    return F.chain(_recurrence_back(F, g, _ratios(F, out, dim), dim), share)


def _logcumsumexp_push(F: Namespace, t: Value, x: Value, out: Value, dim: int) -> Any:
    moved = F.mul(t, F.exp(F.sub(x, out)))
    if not x.shape or not x.shape[dim]:
        return moved
    return F.recurrence(moved, _ratios(F, out, dim), dim)


def _product_before(F: Namespace, out: Value, dim: int) -> Any:
    """The product of all previous elements, 1 for the first."""
    first = F.zero(F.narrow(out, dim, 0, 1)) + 1
    return F.cat((first, F.narrow(out, dim, 0, out.shape[dim] - 1)), dim)


def _cumprod_pull(F: Namespace, g: Value, x: Value, out: Value, dim: int) -> Any:
    """The gradient, by division on the host if no product is 0."""
    if not x.shape or not x.shape[dim]:
        return F.clone(g)
    if F.fused and out.__class__ is np.ndarray and np.count_nonzero(out) == out.size:
        return F.div(F.cumsum_back(F.mul(g, out), dim), x)
    return F.chain(_recurrence_back(F, g, x, dim), _product_before(F, out, dim))


def _cumprod_push(F: Namespace, t: Value, x: Value, out: Value, dim: int) -> Any:
    if not x.shape or not x.shape[dim]:
        return F.clone(t)
    return F.recurrence(F.mul(t, _product_before(F, out, dim)), x, dim)


def _steps_cost(x: Variable, *rest: Any) -> int:
    """The cost of a recurrence, whose steps Python takes."""
    shape, dim = x._metadata.shape, rest[-1]
    return 5_000 + 2_000 * (shape[dim] if shape else 0) + 6 * int(x._metadata.cost)


OPS = (
    linear(
        "cumsum",
        _running("add"),
        lambda F, g, dim: F.cumsum_back(g, dim),
        wide=True,
        cost=5,
        batch=batch_rules.line,
    ),
    linear(
        "cumsum_back",
        _running("add", back=True),
        lambda F, g, dim: F.cumsum(g, dim),
        wide=True,
        cost=5,
        batch=batch_rules.line,
    ),
    operation(
        "cumprod",
        _running("multiply"),
        pulls={"x": _cumprod_pull},
        pushes={"x": _cumprod_push},
        renews=True,
        wide=True,
        cost=_steps_cost,
        batch=batch_rules.line,
    ),
    operation(
        "recurrence",
        _recurrence,
        "x y",
        pulls={"x": _recurrence_back, "y": _recurrence_by_factors},
        pushes={
            "x": lambda F, t, y, dim: F.recurrence(t, y, dim),
            "y": lambda F, t, y, out, dim: F.recurrence(F.mul(t, _before(F, out, dim)), y, dim),
        },
        cost=_steps_cost,
    ),
    operation(
        "logcumsumexp",
        _logcumsumexp,
        "x",
        "dim",
        pulls={"x": rounding_once(_logcumsumexp_pull)},
        pushes={"x": rounding_once(_logcumsumexp_push)},
        wide=True,
        cost=_steps_cost,
        batch=batch_rules.line,
    ),
)
