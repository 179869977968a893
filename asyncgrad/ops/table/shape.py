"""Functions that rearrange, copy and cast elements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, Literal, Self

import numpy as np

from asyncgrad.devices import Device
from asyncgrad.devices.arena import reshaped
from asyncgrad.devices.fp_errors import fp_errors_ignored, restore_fp_errors
from asyncgrad.devices.pieces import here
from asyncgrad.ops import batch_rules
from asyncgrad.ops.columns import border_of, bordered
from asyncgrad.ops.fused import assign
from asyncgrad.ops.op import Op, Part, linear, operation
from asyncgrad.types import Array, Library, Namespace, Shape, Value

#: The most elements of a matrix whose triangle mask is cached.
_SMALL = 1024
#: The fewest rows, and elements, of larger matrices that are copied at a time.
_STRIP, _PART = 64, 1 << 16


def _expand(xp: Library, x: Array, shape: tuple[int, ...]) -> Any:
    """A broadcast view; a single element, the most frequent case, is handled first."""
    if x.size == 1 and x.__class__ is np.ndarray:
        buffer = np.ascontiguousarray(x) if x.shape else x
        out = np.ndarray(shape, x.dtype, buffer, 0, (0,) * len(shape))
        out.flags.writeable = False
        return out
    if x.__class__ is np.ndarray and x.flags.c_contiguous:
        # This takes a third of the time of `broadcast_to`.
        lead = len(shape) - x.ndim
        axes = zip(x.strides, x.shape, shape[lead:], strict=True)
        strides = (0,) * lead + tuple([step if n == m else 0 for step, n, m in axes])
        out = np.ndarray(shape, x.dtype, x, 0, strides)
        out.flags.writeable = False
        return out
    return xp.broadcast_to(x, shape)


def _squeezed(xp: Library, x: Array, dims: tuple[int, ...]) -> Any:
    """A view even if no axis is removed, where `squeeze` would return `x` itself."""
    return x.squeeze(dims) if dims else x[...]


def kept_shape(shape: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...]:
    """The shape after a reduction over `dims` that keeps them with length 1."""
    kept = list(shape)
    for i in dims:
        kept[i] = 1
    return tuple(kept)


class Named(tuple[int, ...]):
    """Axes, with PyTorch's node name for the function that uses them."""

    #: PyTorch's name of the node.
    node: str

    def __new__(cls, axes: Iterable[int], node: str) -> Self:
        """Store the axes and the node's name."""
        named = super().__new__(cls, axes)
        named.node = node
        return named


@lru_cache(1024)
def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """The inverse of a permutation."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def _pad_zeros(xp: Library, g: Array, shape: tuple[int, ...], dim: int, start: int) -> Any:
    """Zeros of `shape` with `g` from `start` along `dim`."""
    out = xp.zeros(shape, dtype=g.dtype)
    out[(slice(None),) * dim + (slice(start, start + g.shape[dim]),)] = g
    return out


def _cat_pull(F: Namespace, g: Value, place: int, ends: Shape, dim: int) -> Any:
    start = ends[place - 1] if place else 0
    return F.narrow(g, dim, start, ends[place] - start)


def _stack_pull(F: Namespace, g: Value, place: int, dim: int) -> Any:
    return F.getitem(g, ((slice(None),) * dim) + (place, Ellipsis))


def _to(xp: Library, x: Array, dtype: np.dtype[Any]) -> Any:
    kind, wanted = x.dtype.kind, dtype.kind
    if kind == "c" and wanted == "b":
        # NumPy's own conversion of some NaN gives False.
        return x != 0
    if kind == "c" and wanted != "c":
        x = x.real
    if x.base is not None and 0 in x.strides:
        # NumPy would put repeated axes last in memory, and the result could not be viewed in order.
        x = x.copy("C")
    if kind in "iub" or (wanted == kind and dtype.itemsize >= x.dtype.itemsize):
        return x.astype(dtype)
    # Numbers that do not fit become infinite or undefined, as in C, without a warning.
    for token in fp_errors_ignored:
        try:
            out = x.astype(dtype)
        finally:
            restore_fp_errors(token)
        break
    return out


def _repeat_adjoint(F: Namespace, g: Value, x_shape: Shape, repeats: Shape) -> Any:
    lead = (1,) * (len(repeats) - len(x_shape))
    pairs = zip(repeats, lead + x_shape, strict=True)
    blocks = F.reshape(g, tuple(n for pair in pairs for n in pair))
    return F.reshape(F.sum(blocks, tuple(range(0, 2 * len(repeats), 2)), False), x_shape)


def _diagonal(xp: Library, x: Array, offset: int, dim1: int, dim2: int) -> Any:
    out = x.diagonal(offset, dim1, dim2)
    if out.__class__ is np.ndarray:
        # NumPy's view is read-only by default, PyTorch's is not.
        out.flags.writeable = x.flags.writeable
    return out


def _pairs(xp: Library, x: Array) -> Any:
    """Real and imaginary parts along a new last axis; a copy on devices."""
    if x.__class__ is not np.ndarray:
        return xp.stack((x.real, x.imag), -1)
    return x[..., None].view(f"f{x.dtype.itemsize // 2}")


def _unpaired(xp: Library, x: Array) -> Any:
    """Complex numbers from their parts along the last axis."""
    if x.__class__ is not np.ndarray:
        return x[..., 0] + 1j * x[..., 1]
    return x.view(f"c{2 * x.dtype.itemsize}")[..., 0]


def _slowest_first(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """The order of axes in PyTorch's copies: by stride, with axes of stride 0 left in place."""
    order = list(range(len(shape)))[::-1]
    for i in range(1, len(order)):
        place = i
        for other in range(i - 1, -1, -1):
            slow, fast = order[other], order[place]
            if not (strides[slow] and strides[fast]):
                continue
            before, after = (abs(strides[slow]), shape[slow]), (abs(strides[fast]), shape[fast])
            if before < after:
                break
            if before > after:
                order[other], order[place] = fast, slow
                place = other
    return tuple(order[::-1])


def _clone(xp: Library, x: Array, order: Literal["C", "K"] = "K") -> Any:
    if x.__class__ is not np.ndarray:
        return x.copy(order)
    if order == "C":
        out = xp.empty(x.shape, x.dtype)
    elif 0 in x.strides:
        # NumPy would put the repeated axes last in memory.
        axes = _slowest_first(x.shape, x.strides)
        out = np.empty([x.shape[axis] for axis in axes], x.dtype).transpose(inverse(axes))
    else:
        return x.copy(order)
    assign(out, x)
    return out


@lru_cache(64)
def _triangle(rows: int, columns: int, diagonal: int) -> Any:
    return np.tri(rows, columns, diagonal, bool)


def in_order(out: Array) -> Any:
    """A new array, contiguous: NumPy's has the operand's order of axes, PyTorch's has not."""
    return out if out.flags.c_contiguous else out.copy()


def _one_triangle(*, above: bool) -> Callable[..., Any]:
    """NumPy's `triu` or `tril`, but with a cached mask for small matrices."""

    def triangle(xp: Library, x: Array, diagonal: int) -> Any:
        if x.__class__ is not np.ndarray:
            return in_order((xp.triu if above else xp.tril)(x, diagonal))
        if x.shape[-1] * x.shape[-2] > _SMALL:
            return _one_side(xp, x, diagonal - above, above)
        mask = _triangle(*x.shape[-2:], diagonal - above)
        zero = x.dtype.type(0)
        return in_order(np.where(mask, zero, x) if above else np.where(mask, x, zero))

    return triangle


def _one_side(xp: Library, x: Array, diagonal: int, above: bool) -> Any:
    """The elements of large matrices above a diagonal, or the others; zeros in their places.

    A few rows at a time: only where they cross the diagonal, a mask is needed.
    """
    out = xp.empty(x.shape, x.dtype)
    rows, columns = x.shape[-2:]
    strip = max(_STRIP, _PART // max(columns, 1))
    for top in range(0, rows, strip):
        height = min(strip, rows - top)
        start, stop = (min(max(top + diagonal + n, 0), columns) for n in (1, height))
        given, made = x[..., top : top + height, :], out[..., top : top + height, :]
        made[..., :start] = 0 if above else given[..., :start]
        made[..., stop:] = given[..., stop:] if above else 0
        mask = _triangle(height, stop - start, top + diagonal - start)
        made[..., start:stop] = np.where(mask ^ above, given[..., start:stop], x.dtype.type(0))
    return out


def _pinned(xp: Library, x: Array, device: Device) -> Any:
    out = device.empty_pinned(x.shape, x.dtype)
    assign(out, x)
    return out


def _put_diagonal(
    xp: Library, g: Array, shape: tuple[int, ...], offset: int, dim1: int, dim2: int
) -> Any:
    out = xp.zeros(shape, dtype=g.dtype)
    _diagonal(xp, out, offset, dim1, dim2)[...] = g
    return out


def _pad_adjoint(F: Namespace, g: Value, widths: Sequence[tuple[int, int]]) -> Any:
    return F.pad(g, tuple((-before, -after) for before, after in widths), 0)


def _reflection(n: int, before: int, after: int) -> Any:
    # Elements are counted in the padded axis. The last one may be the axis' first, and there is no
    # number in front of 0 at which a slice could end.
    last = before + n - 2 - after
    return slice(2 * before, before, -1), slice(before + n - 2, None if last < 0 else last, -1)


#: Which elements of an axis are repeated in front of it, and which behind it.
_REPEATED: dict[str, Callable[[int, int, int], tuple[slice, slice]]] = {
    "reflect": _reflection,
    "replicate": lambda n, before, after: (
        slice(before, before + 1), slice(before + n - 1, before + n),
    ),
    "circular": lambda n, before, after: (slice(n, n + before), slice(before, before + after)),
}  # fmt: skip


#: The same layer pads arrays of the same shapes again and again.
@lru_cache(256)
def _frame_of(shape: Shape, widths: Sequence[tuple[int, int]], mode: str) -> tuple[Any, ...]:
    """The shape of an array that is padded by its own elements, its place there, and the strips.

    A strip is an axis, what is padded along it, and where that is copied from. Axes come in order,
    so that what a later one copies is padded along the earlier ones.
    """
    pairs = list(zip(shape, widths, strict=True))
    inner = tuple(slice(before, before + n) for n, (before, _) in pairs)
    strips: list[tuple[int, Any, Any]] = []
    for axis, (n, (before, after)) in enumerate(pairs):
        lead, rest = (slice(None),) * axis, inner[axis + 1 :]
        places = slice(0, before), slice(before + n, None)
        sources = _REPEATED[mode](n, before, after)
        for width, place, source in zip((before, after), places, sources, strict=True):
            if width:
                strips.append((axis, (*lead, place, *rest), (*lead, source, *rest)))
    return tuple(n + before + after for n, (before, after) in pairs), inner, strips


def _frame(xp: Library, x: Array, widths: tuple[tuple[int, int], ...], mode: str) -> Any:
    """Pad each axis by (before, after) of its own elements."""
    shape, inner, strips = _frame_of(x.shape, widths, mode)
    out = xp.empty(shape, x.dtype)
    out[inner] = x
    for _, place, source in strips:
        out[place] = out[source]
    return out


def _unframe(xp: Library, x: Array, widths: tuple[tuple[int, int], ...], mode: str) -> Any:
    """Add each padded element to the one that it is a copy of."""
    shape = tuple(n - sum(w) for n, w in zip(x.shape, widths, strict=True))
    _, inner, strips = _frame_of(shape, widths, mode)
    sums = x.copy()
    for axis, place, source in reversed(strips):
        strip = sums[place]
        sums[source] += strip.sum(axis, keepdims=True) if mode == "replicate" else strip
    return sums[inner].copy()


#: A view of all elements.
_view = partial(linear, passes=True, view=True)

OPS = (
    linear(
        "expand",
        _expand,
        lambda F, g, x_shape: F.sum_to(g, x_shape),
        fresh=False,
        view=True,
        batch=batch_rules.expand,
    ),
    _view(
        "reshape",
        lambda xp, x, shape: x.reshape(shape) if here.arena is None else reshaped(x, shape),
        lambda F, g, x_shape: F.reshape(g, x_shape),
        node="ViewBackward0",
    ),
    _view(
        "permute",
        lambda xp, x, order: x.transpose(order),
        lambda F, g, order: F.permute(g, inverse(order)),
        variant=("order", lambda order: getattr(order, "node", "PermuteBackward0")),
    ),
    _view(
        "unsqueeze",
        lambda xp, x, dim: x.reshape((*x.shape[:dim], 1, *x.shape[dim:])),
        lambda F, g, dim: F.squeeze(g, (dim,)),
    ),
    _view(
        "squeeze",
        _squeezed,
        lambda F, g, x_shape, dims: F.reshape(g, x_shape),
        variant=("dims", lambda dims: getattr(dims, "node", "SqueezeBackward2")),
    ),
    linear(
        "narrow",
        lambda xp, x, dim, start, length: x[(slice(None),) * dim + (slice(start, start + length),)],
        lambda F, g, x_shape, dim, start: F.pad_zeros(g, x_shape, dim, start),
        view=True,
        node="SliceBackward0",
    ),
    linear(
        "pad_zeros",
        _pad_zeros,
        lambda F, g, x_shape, dim, start: F.narrow(g, dim, start, x_shape[dim]),
        attributes="shape dim start",
        fresh=False,
    ),
    Op(
        "cat",
        lambda xp, xs, dim: in_order(xp.concatenate(xs, axis=dim)),
        ("*xs",),
        ("dim",),
        pulls={"*xs": Part(("place", "ends", "dim"), _cat_pull)},
        pushes={"*xs": Part(("dim",), lambda F, ts, dim: F.cat(ts, dim))},
        fresh=False,
    ),
    Op(
        "stack",
        lambda xp, xs, dim: in_order(xp.stack(xs, axis=dim)),
        ("*xs",),
        ("dim",),
        pulls={"*xs": Part(("place", "dim"), _stack_pull)},
        pushes={"*xs": Part(("dim",), lambda F, ts, dim: F.stack(ts, dim))},
        fresh=False,
    ),
    linear(
        "clone",
        _clone,
        lambda F, g: g,
        attributes="order",
        passes=True,
        batch=batch_rules.same,
    ),
    linear("pin_memory", _pinned, lambda F, g: g, passes=True, batch=batch_rules.same),
    linear(
        "to",
        _to,
        lambda F, g, x_dtype: F.to(g, x_dtype),
        node="ToCopyBackward0",
        batch=batch_rules.same,
    ),
    linear("flip", lambda xp, x, dims: xp.flip(x, dims).copy(), lambda F, g, dims: F.flip(g, dims)),
    linear(
        "roll",
        lambda xp, x, shifts, dims: in_order(xp.roll(x, shifts, dims)),
        lambda F, g, shifts, dims: F.roll(g, tuple(-n for n in shifts), dims),
    ),
    linear(
        "repeat",
        lambda xp, x, repeats: in_order(xp.tile(x, repeats)),
        _repeat_adjoint,
        fresh=False,
        cost=11,
        batch=batch_rules.repeat,
    ),
    linear(
        "tril",
        _one_triangle(above=False),
        lambda F, g, diagonal: F.tril(g, diagonal),
        cost=3,
        batch=batch_rules.same,
    ),
    linear(
        "triu",
        _one_triangle(above=True),
        lambda F, g, diagonal: F.triu(g, diagonal),
        cost=3,
        batch=batch_rules.same,
    ),
    linear(
        "diagonal",
        _diagonal,
        lambda F, g, x_shape, offset, dim1, dim2: F.put_diagonal(g, x_shape, offset, dim1, dim2),
        view=True,
    ),
    # Not a view: some layouts of a gradient do not allow one.
    linear(
        "view_as_real",
        _pairs,
        lambda F, g: F.complex(F.getitem(g, (Ellipsis, 0)), F.getitem(g, (Ellipsis, 1))),
        view=True,
        batch=batch_rules.same,
    ),
    linear(
        "view_as_complex",
        _unpaired,
        lambda F, g: F.view_as_real(g),
        fresh=False,
        view=True,
        batch=batch_rules.same,
    ),
    linear(
        "put_diagonal",
        _put_diagonal,
        lambda F, g, offset, dim1, dim2: F.diagonal(g, offset, dim1, dim2),
        attributes="shape offset dim1 dim2",
        fresh=False,
        node="DiagEmbedBackward0",
    ),
    operation(
        "pad",
        lambda xp, x, widths, value: bordered(xp, x, *border_of(x.shape, widths), value),
        pulls={"x": _pad_adjoint},
        pushes={"x": lambda F, t, widths: F.pad(t, widths, 0)},
        node="ConstantPadNdBackward0",
    ),
    linear("frame", _frame, lambda F, g, widths, mode: F.unframe(g, widths, mode)),
    linear("unframe", _unframe, lambda F, g, widths, mode: F.frame(g, widths, mode)),
)
