"""Reductions and scans."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from asyncgrad.choices import MatrixNorm, words
from asyncgrad.core.frames import warn
from asyncgrad.core.recording import note_result, recorders
from asyncgrad.core.variable import Variable
from asyncgrad.ops import return_types
from asyncgrad.ops.arguments import many_dims, matrices, one_dim
from asyncgrad.ops.batching import by_parts, mapped, mapped_along
from asyncgrad.ops.converted import accumulates, converted, writes, writes_exactly
from asyncgrad.ops.dtype import REAL, check_dtype, check_inexact
from asyncgrad.ops.fused import assign
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import watch
from asyncgrad.ops.promotion import cast, category, default_dtype
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.ops.signatures import named
from asyncgrad.ops.table.reduction import AllAxes
from asyncgrad.ops.table.shape import in_order
from asyncgrad.ops.tensors.new_tensors import leaf
from asyncgrad.types import Array, Axis, DTypeLike, Ints, Library, Number, Tensor

__all__ = [
    "all", "amax", "amin", "any", "argmax", "argmin", "cumsum", "logcumsumexp", "logsumexp", "max",
    "mean", "min", "norm", "prod", "std", "sum", "var",
]  # fmt: skip
METHODS = tuple(__all__)
IN_PLACE = ("cumsum",)

_INT64 = np.dtype("int64")
#: Extremes along the columns of larger arrays are looked for in a copy.
_FAR = 1 << 17
#: All axes of an array, by its number of axes.
_ALL = [AllAxes(range(ndim)) for ndim in range(65)]


def _axes(name: str, dim: Ints | None, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of a reduction; None or an empty sequence means all."""
    if dim is None:
        return _ALL[len(shape)]
    if dim.__class__ is int and 0 <= dim < len(shape):
        return (dim,)
    return many_dims(name, dim, len(shape))


def _summed(x: Tensor, dtype: DTypeLike | None) -> Any:
    """The operand of a sum or product, in `dtype`, or in int64 if its dtype is integer or bool."""
    if dtype is not None:
        return cast(x, dtype)
    return cast(x, _INT64) if category(x._metadata.dtype) < 2 else x


@accumulates
def sum(
    input: Tensor, dim: Ints | None = None, keepdim: bool = False, *, dtype: DTypeLike | None = None
) -> Tensor:
    """The sum over some axes.

    Args:
        dim: an axis, or a sequence of them; all if None.
        keepdim: keep the reduced axes with length 1.
        dtype: converted to before the reduction; if None, int64 for integers and booleans.
    """
    metadata = input._metadata
    if dtype is not None or metadata.needs_checks:
        input = _summed(input, dtype)
    return R.sum(input, _axes("sum", dim, metadata.shape), keepdim)


@accumulates
def mean(
    input: Tensor, dim: Ints | None = None, keepdim: bool = False, *, dtype: DTypeLike | None = None
) -> Tensor:
    """The mean over some axes, of a floating or complex tensor; see `sum`.

    Raises:
        RuntimeError: for integers and booleans, or if an axis is named twice.
    """
    if dtype is not None:
        input = cast(input, dtype)
    metadata = input._metadata
    if metadata.needs_checks and category(metadata.dtype) < 2:
        raise unmet("mean", "could not infer output dtype. "
                    f"{'Input' if dtype is None else 'Optional'} dtype must be either a floating "
                    "point or complex dtype. Convert it first, or pass dtype=",
                    dtype=metadata.dtype)  # fmt: skip
    return R.mean(input, _axes("mean", dim, metadata.shape), keepdim)


def _spread(name: str, doc: str) -> Callable[..., Tensor]:
    def reduce(
        input: Tensor, dim: Ints | None = None, unbiased: bool | None = None, keepdim: bool = False,
        *, correction: Number | None = None,
    ) -> Tensor:  # fmt: skip
        if dim.__class__ is bool:
            dim, unbiased = None, dim
        if correction is None:
            correction = 0 if unbiased is False else 1
        elif unbiased is not None:
            raise TypeError(f"{name}(): pass one of unbiased= and correction=, not both")
        elif isinstance(correction, complex):
            raise RuntimeError(
                f"{name}(): correction={correction} cannot be converted to a real number"
            )
        metadata = input._metadata
        if metadata.needs_checks and category(metadata.dtype) < 2:
            raise unmet(name, "std and var only support floating point and complex dtypes",
                        input=metadata.dtype)  # fmt: skip
        shape = metadata.shape
        if dim is None:
            count = metadata.size
            dims: tuple[int, ...] = _ALL[len(shape)]
        else:
            dims = many_dims(name, dim, len(shape))
            count = math.prod([shape[axis] for axis in dims])
        if count <= correction:
            warn(
                f"{name}(): degrees of freedom is <= 0. Correction should be strictly less than "
                f"the reduction factor (input numel divided by output numel)."
            )
        return (R.var if name == "var" else R.std)(input, dims, correction, keepdim)

    return writes(named(reduce, name, doc))


var = _spread(
    "var",
    """The variance over some axes.

    Args:
        input: a floating or complex tensor; the result is real.
        dim: an axis, or a sequence of them; all if None. A bool here is `unbiased`.
        unbiased: the old form of `correction`: 1 if True, 0 if False.
        correction: subtracted from the number of elements; 1 if left out.

    Raises:
        RuntimeError: for integers and booleans, or if an axis is named twice.
    """,
)
std = _spread("std", "The standard deviation over some axes; the gradient of 0 is 0; see `var`.")


@accumulates
def prod(
    input: Tensor, dim: Axis | None = None, keepdim: bool = False, *, dtype: DTypeLike | None = None
) -> Tensor:
    """The product of all elements, or along an axis; gradients are exact even at zeros.

    Args:
        dim: an axis; all if None.
        dtype: converted to before the reduction; if None, int64 for integers and booleans.
    """
    metadata = input._metadata
    if dtype is not None or metadata.needs_checks:
        input = _summed(input, dtype)
    ndim = len(metadata.shape)
    dims = _ALL[ndim] if dim is None else (dim,)[:ndim]
    return R.prod(input, dims, keepdim)


# -- extremes -------------------------------------------------------------------------------------


def _no_identity(name: str, shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    """Raise if a maximum or minimum has no elements."""
    for axis in dims:
        if shape[axis] == 0:
            raise unmet(name, f"Expected reduction dim {axis} to have non-zero size",
                        IndexError, **{"input.shape": shape})  # fmt: skip


def _needs_dim(name: str) -> RuntimeError:
    """The error for a maximum or minimum of no elements at all."""
    return RuntimeError(
        f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
        f"reduction dim with the 'dim' argument."
    )


def _extreme(name: str, greatest: str) -> Callable[..., Any]:
    def reduce(input: Tensor, dim: Ints | None = (), keepdim: bool = False) -> Tensor:
        metadata = input._metadata
        shape = metadata.shape
        dims = many_dims(name, dim, len(shape))
        if metadata.size == 0:
            if dim is None or (isinstance(dim, (tuple, list)) and not dim):
                raise _needs_dim(name)
            _no_identity(name, shape, dims)
        return getattr(R, name)(input, dims, keepdim)

    doc = f"""The {greatest} elements over some axes; the gradient is shared among ties.

    Args:
        input: any real tensor.
        dim: an axis, or a sequence of them; all if it is empty.

    Raises:
        RuntimeError: for a tensor without elements and no `dim`, or if an axis is named twice.
    """
    return writes_exactly(named(reduce, name, doc))


amax = _extreme("amax", "greatest")
amin = _extreme("amin", "smallest")


def _with_index(name: str, greatest: str) -> Callable[..., Any]:
    kind = getattr(return_types, name)
    pick = {"max": "argmax", "min": "argmin"}[name]

    def reduce(
        input: Tensor, dim: Tensor | int | None = None, keepdim: bool = False, *,
        other: Tensor | None = None,
    ) -> Tensor | return_types.max | return_types.min:  # fmt: skip
        metadata = input._metadata
        if dim is None and other is None:
            if keepdim is not False:
                raise TypeError(f"{name}() missing 1 required positional argument: 'dim'")
            if metadata.size == 0:
                raise _needs_dim(name)
            return getattr(R, name)(input)
        if other is not None or (isinstance(dim, Variable) and not keepdim):
            return getattr(R, f"{name}imum")(input, dim if other is None else other)
        if metadata.is_complex:
            raise RuntimeError(f"{name}(): does not support complex input")
        shape = metadata.shape
        axis = one_dim(name, dim, len(shape))
        if input._batched:
            return mapped_along(reduce, input, axis, keepdim=keepdim)
        F = metadata.F
        if not shape:
            return kind(*selected(input, f"{name}_along", F.xp.zeros((), dtype=_INT64), 0, True))
        if shape[axis] == 0:
            _no_identity(name, shape, (axis,))
        indices = _places(pick, F.xp, input._array, axis, True)
        if recorders:
            note_result(indices, functools.partial(_places, pick, F.xp), input._array, axis, True)
        return kind(*selected(input, f"{name}_along", indices, axis, keepdim))

    doc = f"""The {greatest} element of all, along an axis, or of each pair.

    Args:
        input: any real tensor.
        dim: None for the {greatest} of all, whose gradient is shared among ties; an axis for a
            named tuple of `values` and `indices`, where all of the gradient goes to the index that
            is returned; another tensor for `{name}imum`.
        other: the other tensor, by name.

    Raises:
        RuntimeError: for complex numbers, or a tensor without elements and no `dim`.
        TypeError: for `keepdim` and no `dim`.
    """
    return writes(named(reduce, name, doc))


def _places(name: str, xp: Library, x: Array, axis: int | None, keepdim: bool) -> Any:
    """What `argmax` or `argmin` finds; NumPy copies large matrices slowly to go along columns."""
    if axis != 0 or x.__class__ is not np.ndarray or x.size <= _FAR or x.ndim < 2:
        return getattr(xp, name)(x, axis=axis, keepdims=keepdim)
    lines = xp.empty((x.size // len(x), len(x)), x.dtype)
    assign(lines, x.reshape(len(x), -1).T)
    return getattr(lines, name)(1).reshape(((1,) if keepdim else ()) + x.shape[1:])


def selected(x: Tensor, name: str, indices: Array, axis: int, keepdim: bool) -> tuple[Any, Any]:
    """The elements at indices that keep the axis, by the op `name`, and the indices."""
    F = x._metadata.F
    values = F.as_array(F.along(x._array, indices, axis, keepdim))
    kept = indices if keepdim else F.as_array(indices.squeeze(axis))
    if recorders:
        note_result(values, F.along, x._array, indices, axis, keepdim)
        if kept is not indices:
            note_result(kept, np.squeeze, indices, axis)
    out = getattr(R, name)(x, values, indices, axis, keepdim)
    places = leaf(name, kept, x._metadata.device)
    if out._edge is not None:
        watch(out._edge, (places,))
    return out, places


max = _with_index("max", "greatest")
min = _with_index("min", "smallest")


def _arg_extreme(name: str, greatest: str) -> Callable[..., Tensor]:
    @requires(
        "input.dtype != bool  # does not support bool input",
        "not input.is_complex()  # does not support complex input",
    )
    def reduce(input: Tensor, dim: Axis | None = None, keepdim: bool = False) -> Tensor:
        metadata = input._metadata
        shape = metadata.shape
        if metadata.size == 0:
            if dim is None:
                raise unmet(name, "Expected reduction dim to be specified for input.numel() == 0",
                            IndexError, dim=dim, input=input)  # fmt: skip
            _no_identity(name, shape, (dim,))
        if input._batched:
            if dim is None:
                return by_parts(reduce, input, dim, keepdim)
            return mapped_along(reduce, input, dim, keepdim=keepdim)
        F = metadata.F
        if not shape:
            dim, keepdim = None, False
        if keepdim or F.array_type is not np.ndarray or (dim == 0 and metadata.size > _FAR):
            array = F.as_array(_places(name, F.xp, input._array, dim, keepdim))
        else:
            array = F.as_array(getattr(input._array, name)(dim))
        if recorders:
            note_result(array, reduce, input, dim, keepdim)
        return leaf(name, array, metadata.device)

    doc = f"""The index of the {greatest} element, the first of several; no gradient.

    Args:
        input: a real tensor.
        dim: an axis; None for the index into the flattened tensor.

    Raises:
        RuntimeError: for booleans and complex numbers.
    """
    return writes_exactly(named(reduce, name, doc))


argmax = _arg_extreme("argmax", "greatest")
argmin = _arg_extreme("argmin", "smallest")


def _logical(name: str) -> Callable[..., Tensor]:
    ufunc: Any = np.logical_and if name == "all" else np.logical_or

    def reduce(input: Tensor, dim: Ints | None = None, keepdim: bool = False) -> Tensor:
        metadata = input._metadata
        F = metadata.F
        # As in PyTorch, an empty sequence means no axes, not all.
        empty = dim is not None and isinstance(dim, (tuple, list)) and not dim
        dims = () if empty else _axes(name, dim, metadata.shape)
        if input._batched:
            shifted = tuple(axis + 1 for axis in dims)
            return mapped(reduce, input, dim=shifted, keepdim=keepdim)
        if F.array_type is np.ndarray:
            # `np.all` and `np.any` call this in the end.
            array = in_order(F.as_array(ufunc.reduce(input._array, dims, bool, None, keepdim)))
        else:
            array = getattr(F.xp, name)(input._array, axis=dims, keepdims=keepdim)
        if metadata.dtype == np.uint8:
            array = F.to(array, metadata.dtype)
        if recorders:
            note_result(array, reduce, input, dim, keepdim)
        return leaf(name, array, metadata.device)

    doc = f"""Whether {name} elements are nonzero; no gradient.

    Args:
        input: any tensor; the result is bool, or uint8 for uint8.
        dim: an axis, or a sequence of them; all if None.
    """
    return writes_exactly(named(reduce, name, doc))


all = _logical("all")
any = _logical("any")


# -- the rest -------------------------------------------------------------------------------------


@writes
@requires(
    "dim is not None  # argument 'dim' must be tuple of ints, not NoneType. Name the axes",
    error=TypeError,
)
def logsumexp(input: Tensor, dim: Ints | None, keepdim: bool = False) -> Tensor:
    """The logarithm of the sum of the exponentials over some axes, without overflow.

    Args:
        input: any tensor; integers become floating.
        dim: an axis, or a sequence of them.
    """
    metadata = input._metadata
    if metadata.needs_checks and category(metadata.dtype) < 2:
        input = cast(input, default_dtype())
    return R.logsumexp(input, many_dims("logsumexp", dim, len(metadata.shape)), keepdim)


@accumulates
def cumsum(input: Tensor, dim: Axis, *, dtype: DTypeLike | None = None) -> Tensor:
    """The cumulative sums along an axis.

    Args:
        dtype: converted to first, not bool; if None, int64 for integers and booleans.
    """
    if dtype is not None or input._metadata.needs_checks:
        input = _summed(input, dtype)
        check_dtype("cumsum", input._metadata.dtype, f"{REAL}c")
    return R.cumsum(input, dim)


@writes_exactly
def logcumsumexp(input: Tensor, dim: Axis) -> Tensor:
    """The cumulative `logsumexp` along an axis, without overflow.

    Args:
        input: a floating or complex tensor.
    """
    return R.logcumsumexp(input, dim)


@writes_exactly
def norm(
    input: Tensor, p: float | MatrixNorm | None = "fro", dim: Ints | None = None,
    keepdim: bool = False, dtype: DTypeLike | None = None,
) -> Tensor:  # fmt: skip
    """The norm of a tensor as a vector, over some axes; PyTorch's older name.

    Args:
        input: a floating or complex tensor.
        p: the order: a number, "fro" or None for the Euclidean norm, "nuc" for the sum of the
            singular values of matrices.
        dim: an axis, or a sequence of them; all if None.
        dtype: the dtype that the elements are converted to first.
    """
    if isinstance(p, str) and p not in words(MatrixNorm):
        raise RuntimeError(f"linalg.matrix_norm: Order {p} not supported.")
    if p == "nuc":
        return _nuclear_norm(input if dtype is None else cast(input, dtype), dim, keepdim)
    if p is None or p == "fro":
        p = 2
    return vector_norm(input, p, dim, keepdim, dtype=dtype)


def _nuclear_norm(x: Tensor, dim: Ints | None, keepdim: bool) -> Any:
    matrices("linalg.matrix_norm", x, False, 1)
    shape = x._metadata.shape
    ndim = len(shape)
    if dim is None:
        if ndim > 2:
            raise unmet("norm", "the nuclear norm of more than 2 axes needs dim=, the two axes of "
                        "its matrices: dim must be a 2-tuple", input=x, dim=dim)  # fmt: skip
        dim = (0, 1)
    dims = many_dims("norm", dim, ndim)
    if len(dims) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {dim}")
    rest = tuple(axis for axis in range(ndim) if axis not in dims)
    out = R.nuclear_norm(R.permute(x, rest + dims))
    if keepdim:
        out = R.reshape(out, tuple(1 if i in dims else n for i, n in enumerate(shape)))
    return out


@functools.partial(
    converted, out="exact", others={"input": "x", "axis": "dim", "keepdims": "keepdim"}
)
def vector_norm(
    x: Tensor, ord: Number = 2, dim: Ints | None = None, keepdim: bool = False, *,
    dtype: DTypeLike | None = None,
) -> Tensor:  # fmt: skip
    """The norm of a tensor as a vector, over some axes.

    Args:
        x: a floating or complex tensor; the result is real.
        ord: the order: any real number, or an infinity; 0 counts nonzero elements.
        dim: an axis, or a sequence of them; all if None.
        dtype: the dtype that the elements are converted to first.

    Raises:
        RuntimeError: for integers, a complex order, a dtype of less precision or another kind, or
            where the norm of no elements is not defined.
    """
    order: Any = ord
    if isinstance(order, complex):
        raise unmet(
            "linalg.vector_norm", "Expected a non-complex scalar as the order of norm", ord=order
        )
    metadata = x._metadata
    if metadata.needs_checks:
        check_inexact("linalg.vector_norm", metadata.dtype)
    if dtype is not None:
        x = _norm_operand(x, dtype)
    shape = metadata.shape
    dims = _axes("linalg.vector_norm", dim, shape)
    if metadata.size == 0 and (order < 0 or order == math.inf):
        empty = [axis for axis in dims if shape[axis] == 0]
        if empty:
            raise unmet("linalg.vector_norm", f"linalg.vector_norm cannot compute the {order} norm "
                        "on an empty tensor because the operation does not have an identity",
                        x=x, dim=empty)  # fmt: skip
    return R.vector_norm(x, order, dims, keepdim)


def _norm_operand(x: Tensor, dtype: DTypeLike) -> Any:
    """The operand of a norm, in a dtype that loses no precision."""
    held = x._metadata.dtype
    if category(dtype) < 2 or (category(dtype) == 3) != (category(held) == 3):
        kind = "complex" if category(held) == 3 else "real"
        raise RuntimeError(
            f"linalg.vector_norm: dtype should be {kind} for {kind} inputs, but got {dtype}"
        )
    if np.promote_types(held, dtype) != dtype:
        raise unmet("linalg.vector_norm", f"the dtype of the input ({held}) should be convertible "
                    f"without narrowing to the specified dtype ({dtype})")  # fmt: skip
    return cast(x, dtype)
