"""Matrix products, `tensordot` and `einsum`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.errors import class_of
from asyncgrad.ops.api.matrices import broadcast_batches
from asyncgrad.ops.api.shape import squeeze
from asyncgrad.ops.arguments import is_expandable, of_one_dtype, one_dim
from asyncgrad.ops.converted import writes, writes_exactly
from asyncgrad.ops.dispatch import product_dispatch
from asyncgrad.ops.dtype import refuse
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import renamed
from asyncgrad.ops.promotion import (
    as_number,
    as_tensor_operand,
    cast,
    category,
    operator_must_refuse,
    promote_dtypes,
    result_dtype,
)
from asyncgrad.ops.registry import OPS
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.ops.scalar_cast import fitted
from asyncgrad.ops.tensors.out import put
from asyncgrad.types import Ints, Number, Tensor, Vector

__all__ = [
    "addmm", "bmm", "dot", "einsum", "ger", "inner", "matmul", "mm", "mv", "outer", "tensordot",
]  # fmt: skip
METHODS = ("addmm", "bmm", "dot", "ger", "inner", "matmul", "mm", "mv", "outer")
IN_PLACE = ("addmm",)


def _misaligned(name: str, a: tuple[int, ...], b: tuple[int, ...]) -> RuntimeError:
    """The error of factors whose axes do not fit, in PyTorch's words for their numbers of axes."""
    if len(a) == len(b) == 1:
        words = (
            f"inconsistent tensor size, expected tensor [{a[0]}] and src [{b[0]}] to have the same "
            f"number of elements, but got {a[0]} and {b[0]} elements respectively"
        )
    elif len(b) == 1:
        rows = prod(a[:-1])
        words = f"size mismatch, got input ({rows}), mat ({rows}x{a[-1]}), vec ({b[0]})"
    elif len(b) == 2:
        words = (
            f"mat1 and mat2 shapes cannot be multiplied ({prod(a[:-1])}x{a[-1]} and {b[0]}x{b[1]})"
        )
    else:
        count = prod(b[:-2])
        words = (
            f"Expected size for first two dimensions of batch2 tensor to be: "
            f"[{a[0] if name == 'bmm' else count}, {a[-1]}] but got: [{count}, {b[-2]}]"
        )
    if name == "linear":
        remedy = f"The last axis of the input, whose shape is {a}, has to be {b[0]} long."
    else:
        remedy = f"The shapes are {a} and {b}: transpose or reshape one of them."
    return RuntimeError(f"{name}: {words}. {remedy}")


def _refuse_booleans(name: str, x: Tensor, y: Tensor) -> None:
    """Raise for factors of a dtype and of shapes of which PyTorch has no products of matrices."""
    if y._metadata.dtype.kind != "b":
        return
    vectors = len(x._metadata.shape) == len(y._metadata.shape) == 1
    summed = name in {"einsum", "tensordot"}
    if (x._metadata.size and y._metadata.size) or (vectors and not summed):
        refuse(name, y._metadata.dtype)


def _aligned(name: str, ndims: tuple[int, int], *operands: Tensor) -> Any:
    """Operands of one dtype; the last two are factors with so many axes, which align."""
    found = of_one_dtype(name, *operands)
    a, b = found[-2]._metadata.shape, found[-1]._metadata.shape
    if (len(a), len(b)) != ndims:
        for place, ndim in enumerate(ndims, len(found) - 1):
            operand = found[place - 1]
            if operand.ndim != ndim:
                raise unmet(name, f"argument {place} must be a "
                            f"{('1D tensor', 'matrix', '3D tensor')[ndim - 1]}",
                            argument=operand)  # fmt: skip
    if a[-1] != b[max(len(b) - 2, 0)] or (len(b) == 3 and a[0] != b[0]):
        raise _misaligned(name, a, b)
    if found[-1]._metadata.needs_checks:
        _refuse_booleans(name, *found[-2:])
    return found


def _matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product, batched and broadcast over leading axes.

    Args:
        input: of shape (..., m, k), or (k,).
        other: of shape (..., k, n), or (k,).
    """
    x = as_tensor_operand(input, "matmul", 1)
    y = as_tensor_operand(other, "matmul", 2)
    a, b = x._metadata.shape, y._metadata.shape
    if not a or not b:
        raise unmet("matmul", "both arguments to matmul need to be at least 1D. Multiply by a "
                    "number with *", input=x, other=y)  # fmt: skip
    if x._metadata.dtype is not y._metadata.dtype:
        of_one_dtype("matmul", x, y)
    if a[-1] != b[max(len(b) - 2, 0)]:
        raise _misaligned("matmul", a, b)
    if x._metadata.needs_checks:
        _refuse_booleans("matmul", x, y)
    if len(a) == 2 and len(b) == 2:
        return R.mm(x, y)
    if len(b) == 1 and len(a) <= 2:
        return R.dot(x, y) if len(a) == 1 else R.mv(x, y)
    if len(a) == 1:
        node = "SqueezeBackward4" if len(b) == 2 else "UnsafeViewBackward0"
        return renamed(squeeze(_matmul(R.reshape(x, (1, *a)), y), -2), node)
    if len(b) == 1:
        return renamed(squeeze(_matmul(x, R.reshape(y, (*b, 1))), -1), "UnsafeViewBackward0")
    if len(b) == 2:
        rows = R.reshape(x, (prod(a[:-1]), a[-1]))
        return renamed(R.reshape(R.mm(rows, y), (*a[:-1], b[-1])), "UnsafeViewBackward0")
    return R.bmm(*broadcast_batches("matmul", x, y))


def _matmul_or_not(input: Tensor, other: Any) -> Any:
    """`_matmul`, or `NotImplemented` so that Python tries the other operand's method."""
    for operand in (input, other):
        ours = isinstance(operand, Variable) or as_number(operand) is not None
        if not ours and not operator_must_refuse("matmul", operand):
            return NotImplemented
    return _matmul(input, other)


product = product_dispatch(OPS["mm"], _matmul)
#: The operator `@`.
operator_product: Callable[[Any, Any], Tensor] = product_dispatch(OPS["mm"], _matmul_or_not)
operator_product.__annotations__ = product.__annotations__


def matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The matrix product; `__doc__` is that of `_matmul`."""
    found = product(input, other)
    return found if out is None else put(out, "matmul", found, exact=True)


matmul.__doc__ = _matmul.__doc__
matmul.dispatch = product  # type: ignore[attr-defined]


@writes_exactly
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices, (m, k) and (k, n)."""
    return matmul(*_aligned("mm", (2, 2), input, mat2))


@writes_exactly
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The products of two batches of matrices, (b, m, k) and (b, k, n)."""
    return R.bmm(*_aligned("bmm", (3, 3), input, mat2))


@writes_exactly
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """The product of a matrix and a vector, (m, k) and (k,)."""
    return R.mv(*_aligned("mv", (2, 1), input, vec))


@writes_exactly
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The sum of the products of two vectors, neither conjugated."""
    return R.dot(*_aligned("dot", (1, 1), input, tensor))


@writes
def outer(input: Vector, vec2: Vector) -> Tensor:
    """The outer product of two vectors.

    Args:
        input: of shape (m,).
        vec2: of shape (n,).
    """
    dtype = result_dtype(input, vec2)
    return R.outer(cast(input, dtype), cast(vec2, dtype))


ger = outer


@writes_exactly
@requires(
    "not (input.ndim and other.ndim) or input.shape[-1] == other.shape[-1]  # inner() the last "
    "dimension must match on both input tensors. Transpose or reshape one of them"
)
def inner(input: Tensor, other: Tensor) -> Tensor:
    """The sums of products along the last axes of two tensors.

    Args:
        input: of shape (..., k).
        other: of shape (..., k).
    """
    a, b = input._metadata.shape, other._metadata.shape
    if not a or not b:
        return R.mul(input, other)
    of_one_dtype("inner", input, other)
    _refuse_booleans("inner", input, other)
    if len(a) == 1 and len(b) == 1:
        return R.dot(input, other)
    first, second = tuple(range(len(a) - 1)), tuple(range(len(a), len(a) + len(b) - 1))
    return R.contract(input, other, (*first, -1), (*second, -1), (*first, *second))


@writes_exactly
def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """`beta * input + alpha * (mat1 @ mat2)`; with a `beta` of 0 the input is ignored.

    Args:
        input: a tensor that can be broadcast to (m, n).
        mat1: of shape (m, k).
        mat2: of shape (k, n).
    """
    bias, x, y = _aligned("addmm", (2, 2), input, mat1, mat2)
    shape = (x._metadata.shape[0], y._metadata.shape[1])
    if not is_expandable(bias._metadata.shape, shape):
        raise unmet("addmm", "The expanded size of the tensor must match the product's shape "
                    f"{shape}", input=bias)  # fmt: skip
    beta, alpha = (fitted("addmm", factor, x._metadata.dtype) for factor in (beta, alpha))
    if not x._metadata.size:
        # As in PyTorch, a product of no terms is 0, and not NaN for an `alpha` that is not finite.
        alpha = 1
    return R.addmm(bias, x, y, beta, alpha)


@writes_exactly
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`input @ weight.T + bias`.

    Args:
        input: of shape (..., k).
        weight: of shape (n, k), or (k,).
        bias: of shape (n,), or ().
    """
    a, b = input._metadata.shape, weight._metadata.shape
    dtype = input._metadata.dtype
    if weight._metadata.dtype is not dtype or (
        bias is not None and bias._metadata.dtype is not dtype
    ):
        of_one_dtype("linear", input, weight, *([] if bias is None else [bias]))
    if a and len(b) == 2 and a[-1] != b[-1]:
        raise _misaligned("linear", a, b[::-1])
    if not a or len(b) not in {1, 2} or a[-1] != b[-1]:
        raise unmet("linear", "both arguments to linear need to be at least 1D, weight at most 2D, "
                    "with last axes of the same length", input=input, weight=weight)  # fmt: skip
    if input._metadata.needs_checks:
        _refuse_booleans("linear", input, weight)
    if len(b) == 1:
        out = matmul(input, weight)
        return out if bias is None else R.add(out, bias)
    if bias is None:
        return R.linear(input, weight)
    if bias._metadata.shape == b[:1]:
        return R.linear_with_bias(input, weight, bias)
    out = R.linear(input, weight)
    if not is_expandable(bias._metadata.shape, out._metadata.shape):
        raise unmet("linear", "The expanded size of the tensor must match the product's shape "
                    f"{out._metadata.shape}", bias=bias)  # fmt: skip
    return R.add(out, bias)


@writes_exactly
def tensordot(a: Tensor, b: Tensor, dims: Ints | Sequence[Sequence[int]] | Tensor = 2) -> Tensor:
    """The sums of products over axes of two tensors.

    Args:
        dims: the number of last axes of `a` and first axes of `b`, or two sequences of axes.
    """
    x, y = of_one_dtype("tensordot", a, b)
    shape, other = x._metadata.shape, y._metadata.shape
    if isinstance(dims, Variable):
        dims = dims.tolist()
    if not isinstance(dims, (int, tuple, list)):
        raise RuntimeError(
            f"tensordot expects dims to be int or two sequences of ints, but got {dims!r}"
        )
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot: expects dims >= 0, but got dims={dims}")
        if dims > len(shape) or dims > len(other):
            raise unmet("tensordot", "expects dims <= the number of axes of both tensors",
                        dims=dims, a=x, b=y)  # fmt: skip
        first, second = list(range(len(shape) - dims, len(shape))), list(range(dims))
    else:
        first, second = (
            [
                one_dim("tensordot", dim, len(s))
                for dim in ([part] if isinstance(part, int) else part)
            ]
            for part, s in zip(dims, (shape, other), strict=True)
        )
    if len(first) != len(second) or len(set(first)) < len(first) or len(set(second)) < len(second):
        raise unmet("tensordot", "both dimension lists should have same length and no axis twice",
                    dims=(first, second))  # fmt: skip
    x_labels = list(range(len(shape)))
    y_labels = list(range(len(shape), len(shape) + len(other)))
    kept = [label for label in x_labels if label not in first]
    kept += [label for place, label in enumerate(y_labels) if place not in second]
    for i, j in zip(first, second, strict=True):
        if shape[i] != other[j] and 1 not in {shape[i], other[j]}:
            raise unmet("tensordot", f"contracted dimensions need to match, but dims {i} and {j} "
                        "don't", a=x, b=y)  # fmt: skip
        if shape[i] != other[j]:
            # One of the two lengths is 1 and is broadcast, so both axes can be summed separately.
            x, y = R.sum(x, (i,), True), R.sum(y, (j,), True)
        y_labels[j] = x_labels[i]
    _refuse_booleans("tensordot", a, b)
    return R.contract(x, y, tuple(x_labels), tuple(y_labels), tuple(kept))


_INT64 = np.dtype("int64")

# -- einsum ---------------------------------------------------------------------------------------

#: The label of the last axis of "..."; the labels of earlier axes count down from it.
_ELLIPSIS = -1


def einsum(*args: str | Tensor | Sequence[object]) -> Tensor:
    """Sums of products of tensors, by the labels of their axes.

    Args:
        args: an equation like "bij,bjk->bik" and the tensors; or each tensor followed by the list
            of its labels (numbers below 52), and perhaps the list of the result's.
    """
    if not args or len(args) < 2:
        raise unmet("einsum", "must specify the equation string and at least one operand, or at "
                    "least one operand and its subscripts list", ValueError)  # fmt: skip
    if isinstance(args[0], str):
        equation = args[0]
        operands = args[1:]
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = tuple(operands[0])
    else:
        places = range(0, len(args) - 1, 2)
        operands = tuple(args[place] for place in places)
    if not operands:
        raise ValueError("einsum(): must provide at least one operand")
    tensors = [as_tensor_operand(x, "einsum", place + 1) for place, x in enumerate(operands)]
    if not isinstance(args[0], str):
        equation = ",".join(_letters(args[place + 1]) for place in places)
        if len(args) % 2:
            equation += "->" + _letters(args[-1])
    steps = _einsum_steps(equation, tuple(tensor._metadata.shape for tensor in tensors))
    prepared, contractions, final_sum, order = steps
    for place, (diagonals, dropped, summed) in enumerate(prepared):
        x = tensors[place]
        for first, second in diagonals:
            x = R.diagonal(x, 0, first, second)
        if dropped:
            shape = x._metadata.shape
            x = R.reshape(x, tuple(n for i, n in enumerate(shape) if i not in dropped))
        if summed:
            # The sum of a single tensor is in int64, as in `sum`; products keep their dtype.
            x = R.sum(cast(x, _INT64) if category(x._metadata.dtype) < 2 else x, summed, False)
        tensors[place] = x
    out = tensors[0]
    for y, (x_sum, labels) in zip(tensors[1:], contractions, strict=True):
        if out._metadata.dtype is not y._metadata.dtype or out._metadata.needs_checks:
            out, y = _of_one_dtype(out, y, *labels)
        out = R.contract(R.sum(out, x_sum, False) if x_sum else out, y, *labels)
    if final_sum:
        out = R.sum(out, final_sum, False)
    axes = tuple(range(len(out._metadata.shape)))
    if order is None and out is operands[0]:
        order = axes
    return out if order is None else R.permute(out, order)


def _of_one_dtype(x: Tensor, y: Tensor, first: Any, second: Any, kept: Any) -> tuple[Any, Any]:
    """Promote operands of different dtypes, unless their products are summed."""
    if not set(first).intersection(second).issubset(kept):
        # Sums of products are products of matrices, which have one dtype.
        of_one_dtype("einsum", x, y)
        _refuse_booleans("einsum", x, y)
    dtype = promote_dtypes(x._metadata.dtype, y._metadata.dtype)
    return cast(x, dtype), cast(y, dtype)


def _letters(labels: Any) -> str:
    """A list of labels as a term of an equation."""
    if not isinstance(labels, (list, tuple)):
        raise TypeError(
            f"einsum(): the labels of a tensor are a list of ints, not {class_of(labels)}. An "
            f"equation comes before the tensors."
        )
    parts = []
    for label in labels:
        if label is Ellipsis:
            parts.append("...")
        elif not 0 <= label < 52:
            raise ValueError(
                f"einsum(): subscripts must be in the range [0, 52), got {label} in {list(labels)}"
            )
        else:
            parts.append(chr(ord("A") + label) if label < 26 else chr(ord("a") + label - 26))
    return "".join(parts)


def _labels(term: str, ndim: int | None, equation: str) -> list[int]:
    """The labels of one operand's axes, or of the result's if `ndim` is None."""
    before, dots, after = term.replace(" ", "").partition("...")
    if not all(c.isascii() and c.isalpha() for c in before + after):
        raise unmet("einsum", f"invalid subscript in {term!r}, subscripts must be in [a-zA-Z] or "
                    "'...'", equation=equation)  # fmt: skip
    named = len(before) + len(after)
    hidden = 0
    if ndim is not None:
        hidden = ndim - named
        if hidden < 0 or (hidden and not dots):
            raise unmet("einsum", f"the number of subscripts in the equation's {term!r} does not "
                        f"match the number of dimensions ({ndim}) for the operand",
                        equation=equation)  # fmt: skip
    ellipsis = list(range(_ELLIPSIS - hidden + 1, _ELLIPSIS + 1))
    return [*map(ord, before), *ellipsis, *map(ord, after)]


@lru_cache(maxsize=1024)
def _einsum_steps(equation: str, shapes: tuple[tuple[int, ...], ...]) -> Any:
    """The steps of an `einsum` of tensors of given shapes.

    Returns:
        For each tensor, the pairs of axes whose diagonals are taken, the axes to drop and the axes
        to sum; for each but the first, the axes of the intermediate result to sum and the labels
        of the contraction with it; the axes of the result to sum; its order or None.
    """
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise unmet("einsum", f"{'fewer' if len(shapes) < len(terms) else 'more'} operands were "
                    "provided than specified in the equation",
                    operands=len(shapes), equation=equation)  # fmt: skip
    labels = [_labels(t, len(s), equation) for t, s in zip(terms, shapes, strict=True)]
    hidden = sorted({label for part in labels for label in part if label < 0})
    everything = [label for part in labels for label in part]
    if arrow:
        if right.count("...") > 1:
            raise RuntimeError(f"einsum(): more than one '...' in the output of {equation!r}")
        named = _labels(right, None, equation)
        at = len(_labels(right.partition("...")[0], None, equation))
        output = [*named[:at], *hidden, *named[at:]] if "..." in right else named
    else:
        output = hidden + sorted(
            label for label in set(everything) if label > 0 and everything.count(label) == 1
        )
    for label in output:
        if output.count(label) > 1 or label not in everything:
            raise RuntimeError(
                f"einsum(): output subscript {chr(abs(label))} appears more than once, or in no "
                f"operand of {equation!r}"
            )
    diagonals = [
        _take_diagonals(part, list(shape), equation)
        for part, shape in zip(labels, shapes, strict=True)
    ]
    lengths = _lengths(labels, [shape for _, shape in diagonals])
    prepared = []
    for place, (part, (pairs, shape)) in enumerate(zip(labels, diagonals, strict=True)):
        dropped = tuple(i for i, n in enumerate(shape) if n == 1 and lengths[part[i]] != 1)
        part[:] = [label for i, label in enumerate(part) if i not in dropped]
        others = {label for p, other in enumerate(labels) if p != place for label in other}
        summed = tuple(i for i, c in enumerate(part) if c not in others and c not in output)
        part[:] = [label for i, label in enumerate(part) if i not in summed]
        prepared.append((tuple(pairs), dropped, summed))
    contractions = []
    current = labels[0]
    for place, part in enumerate(labels[1:], 1):
        later = {label for other in labels[place + 1 :] for label in other} | set(output)
        x_sum = tuple(i for i, c in enumerate(current) if c not in part and c not in later)
        current = [label for i, label in enumerate(current) if i not in x_sum]
        both = [c for c in (*output, *current, *part) if c in current or c in part]
        made = [c for c in dict.fromkeys(both) if c in later]
        contractions.append((x_sum, (tuple(current), tuple(part), tuple(made))))
        current = made
    final_sum = tuple(i for i, label in enumerate(current) if label not in output)
    current = [label for label in current if label in output]
    order = tuple(current.index(label) for label in output)
    return prepared, contractions, final_sum, None if order == tuple(range(len(order))) else order


def _take_diagonals(
    labels: list[int], shape: list[int], equation: str
) -> tuple[list[tuple[int, int]], list[int]]:
    """The pairs of axes with equal labels, and the shape after taking their diagonals.

    `labels` is updated in place: the axis of a diagonal becomes the last.
    """
    pairs = []
    while len(set(labels)) < len(labels):
        label = next(label for label in labels if labels.count(label) > 1)
        first = labels.index(label)
        second = labels.index(label, first + 1)
        if shape[first] != shape[second]:
            raise unmet("einsum", f"subscript {chr(label)} is repeated for one operand but the "
                        f"sizes don't match, {shape[second]} != {shape[first]}",
                        equation=equation)  # fmt: skip
        pairs.append((first, second))
        length = shape[first]
        for axis in (second, first):
            del labels[axis], shape[axis]
        labels.append(label)
        shape.append(length)
    return pairs, shape


def _lengths(labels: list[list[int]], shapes: list[list[int]]) -> dict[int, int]:
    """The length of the axes of each label; axes of length 1 are broadcast."""
    lengths: dict[int, int] = {}
    for part, shape in zip(labels, shapes, strict=True):
        for label, length in zip(part, shape, strict=True):
            held = lengths.setdefault(label, length)
            if held == 1:
                lengths[label] = length
            elif length not in {1, held}:
                raise unmet("einsum", f"an axis has size {length}, which does not broadcast with "
                            f"previously seen size {held}", shapes=shapes)  # fmt: skip
    return lengths
