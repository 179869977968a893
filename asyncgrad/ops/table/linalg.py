"""Matrix products, contractions and distances."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.devices.fp_errors import without_fp_errors
from asyncgrad.ops import batch_products, batch_rules
from asyncgrad.ops.op import fused, linear, operation
from asyncgrad.ops.table.activation import VECTORS, ones
from asyncgrad.ops.table.shape import in_order
from asyncgrad.ops.widening import widening
from asyncgrad.types import Array, Library, Namespace, Number, Shape, Value

#: A conservative estimate of a core's floating-point operations in a nanosecond.
_FLOPS_PER_NS = 60
#: Nanoseconds of the two calls of BLAS, or of NumPy's loop, for one of a batch of matrices.
_MATRIX_NS = 100
#: `_weight_goes_first` for weights of so many elements and of sides of this length at least, and
#: for so many rows and results of so many elements at most.
_LARGE, _NARROW, _FEW = 1 << 18, 256, 32
#: The same for smaller weights: for so many rows at least, and for weights of so many rows and
#: columns.
_FEWEST, _ROWS, _COLUMNS = 16, range(96, 513), range(32, 501)
#: For so many multiplications at most, OpenBLAS reads the operands where they are.
_UNCOPIED = 10**6
#: For fewer elements a weight is always second: with AVX2 all small ones are, and a user may ask
#: OpenBLAS not to use AVX-512.
_SMALL = 1 << 12 if VECTORS and "OPENBLAS_CORETYPE" not in os.environ else _LARGE


@widening
def total_of_rows(xp: Any, x: Any) -> Any:
    """The sum of a real matrix's rows; BLAS takes less than half the time of NumPy and CuPy."""
    # CUDA graphs capture the library's function, and not the method of an array.
    return xp.dot((ones if xp.ndarray is np.ndarray else xp.ones)(len(x), x.dtype), x)


def product_cost(multiplications: int, elements: int) -> int:
    """The cost of both gradients of a product; each multiplication comes with an addition.

    Thin matrices take as long as the memory takes for the `elements` of operands and result.
    """
    return 3_000 + max(int(4 * multiplications / _FLOPS_PER_NS), elements)


@lru_cache(maxsize=1024)
def products_cost(shape: Shape, columns: int) -> int:
    """The cost for a batch of matrices as first operands; NumPy computes one after the other."""
    *batch, rows, length = shape
    elements = rows * length + length * columns + rows * columns
    count = prod(batch)
    return product_cost(count * rows * length * columns, count * (elements + _MATRIX_NS))


def _cost(x: Variable, y: Variable) -> int:
    cost = products_cost(x._metadata.shape, y._metadata.shape[-1])
    return 4 * cost if x._metadata.is_complex else cost


def rows_cost(x: Variable, y: Variable) -> int:
    """The same for products of all rows of one matrix with all rows of another."""
    return products_cost(x._metadata.shape, y._metadata.shape[-2])


def adjoint(xp: Library, x: Array) -> Any:
    """The conjugate transpose of the last two axes."""
    out = x.swapaxes(-1, -2)
    return out.conj() if out.dtype.kind == "c" else out


def real(F: Namespace, x: Value) -> Any:
    """The real part; a real array itself."""
    return F.real(x) if x.dtype.kind == "c" else x


def conjugate(F: Namespace, x: Value) -> Any:
    """The conjugate; a real array itself."""
    return F.conj(x) if x.dtype.kind == "c" else x


# -- linear layers --------------------------------------------------------------------------------


def _linear(xp: Library, x: Array, weight: Array) -> Any:
    rows = x if x.ndim == 2 else x.reshape(prod(x.shape[:-1]), x.shape[-1])
    if weight.size < _SMALL or len(rows) > _FEW or not _weight_goes_first(xp, rows, weight):
        out = xp.dot(rows, weight.T)
    else:
        # OpenBLAS copies the operands of large products itself.
        large = weight.size >= _LARGE
        turned = rows.T if large else xp.ascontiguousarray(rows.T)
        if not large and len(rows) * weight.size <= _UNCOPIED:
            # Of two transposed operands OpenBLAS computes the transposed product, too.
            out = xp.dot(turned.T, weight.T)
        else:
            out = xp.ascontiguousarray(xp.dot(weight, turned).T)
    return out if rows is x else out.reshape((*x.shape[:-1], weight.shape[0]))


def _weight_goes_first(xp: Library, rows: Array, weight: Array) -> bool:
    """Whether the product takes less time if the weight is its first operand.

    For few rows of float32, OpenBLAS takes up to twice as long with AVX-512, and up to a quarter
    longer with AVX2. But to transpose a large result takes longer than that, and with AVX2 also a
    small one.
    """
    if weight.size < _LARGE:
        shape = weight.shape
        fits = len(rows) >= _FEWEST and shape[0] in _ROWS and shape[1] in _COLUMNS
    else:
        fits = min(weight.shape) >= _NARROW and len(rows) * len(weight) <= _LARGE
    return (
        fits
        and 1 < len(rows) <= _FEW
        and weight.dtype == np.float32
        and weight.flags.c_contiguous
        # The order of a product decides its bits: replays note the same one.
        and xp.on_host
    )


def _linear_with_bias(xp: Library, x: Array, weight: Array, bias: Array) -> Any:
    out = _linear(xp, x, weight)
    out += bias
    return out


def _rows(F: Namespace, x: Value) -> Any:
    """The array as a matrix whose rows lie along the last axis."""
    shape = x.shape
    return x if len(shape) == 2 else F.reshape(x, (prod(shape[:-1]), shape[-1]))


def _linear_by_input(F: Namespace, g: Value, weight: Value, x_shape: Shape) -> Any:
    out = F.mm(_rows(F, g), conjugate(F, weight))
    return out if len(x_shape) == 2 else F.reshape(out, x_shape)


def _linear_by_weight(F: Namespace, g: Value, x: Value) -> Any:
    return F.mm(F.permute(_rows(F, g), (1, 0)), conjugate(F, _rows(F, x)))


def _linear_cost(x: Variable, weight: Variable, bias: Variable | None = None) -> int:
    return _rows_cost(x._metadata.shape, weight._metadata.shape[0])


@lru_cache(maxsize=1024)
def _rows_cost(shape: Shape, columns: int) -> int:
    return 1_000 + products_cost((prod(shape[:-1]), shape[-1]), columns)


def _addmm(xp: Library, bias: Array, x: Array, y: Array, beta: Number, alpha: Number) -> Any:
    out = xp.dot(x, y)
    if alpha != 1:
        out *= alpha
    if beta != 0:
        out += bias if beta == 1 else bias * beta
    return out


def _addmm_by_bias(F: Namespace, g: Value, bias_shape: Shape, beta: Number) -> Any:
    if beta != 1:
        g = F.mul_scalar(g, beta.conjugate())
    elif g.shape == bias_shape:
        return F.clone(g)
    return F.sum_to(g, bias_shape)


def _scaled(F: Namespace, x: Value, alpha: Number) -> Any:
    return x if alpha == 1 else F.mul_scalar(x, alpha.conjugate())


# -- contractions ---------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _contraction(x: tuple[int, ...], y: tuple[int, ...], out: tuple[int, ...]) -> Any:
    """How to compute a contraction as one matrix product.

    Returns:
        The orders of the axes: of x as (batch, own, summed), of y as (batch, summed, own) and of
        the result, which comes as (batch, x's own, y's own); and how many axes are batch, x's own
        and summed. If nothing is summed: the orders of the axes of x and of y in the result, the
        indices that add the other's axes to x and to y, and None. None alone if the result is in
        order once the operands have changed places.
    """
    batch = [label for label in out if label in x and label in y]
    left = [label for label in out if label in x and label not in y]
    right = [label for label in out if label in y and label not in x]
    summed = [label for label in x if label in y and label not in out]
    if not summed:
        return (
            *(tuple(t.index(label) for label in out if label in t) for t in (x, y)),
            [tuple(slice(None) if label in t else None for label in out) for t in (x, y)],
            None,
        )
    made = [*batch, *left, *right]
    if made != [*out] == [*batch, *right, *left]:
        return None
    return (
        tuple(x.index(label) for label in (*batch, *left, *summed)),
        tuple(y.index(label) for label in (*batch, *summed, *right)),
        tuple(made.index(label) for label in out),
        (len(batch), len(left), len(summed)),
    )


def _contract(
    xp: Library, x: Array, y: Array, x_labels: Sequence[int | str], y_labels: Sequence[int | str],
    out_labels: Sequence[int | str],
) -> Any:  # fmt: skip
    """Sum the products over the labels that are not in the result."""
    orders = _contraction(x_labels, y_labels, out_labels)
    if orders is None:
        return _contract(xp, y, x, y_labels, x_labels, out_labels)
    x_order, y_order, order, counts = orders
    x, y = x.transpose(x_order), y.transpose(y_order)
    if counts is None:
        # Computed in its order, the result has PyTorch's strides.
        return x[order[0]] * y[order[1]]
    batch, left, summed = counts
    batches, rows, columns = (
        x.shape[:batch],
        x.shape[batch : batch + left],
        y.shape[batch + summed :],
    )
    length = prod(x.shape[batch + left :])
    x = x.reshape((prod(batches), prod(rows), length)[not batch :])
    y = y.reshape((prod(batches), length, prod(columns))[not batch :])
    out = (xp.matmul if batch else xp.dot)(x, y).reshape((*batches, *rows, *columns))
    return out if order == tuple(range(len(order))) else out.transpose(order)


def _contract_cost(
    x: Variable, y: Variable, x_labels: Sequence[int | str], y_labels: Sequence[int | str],
    out_labels: Sequence[int | str],
) -> int:  # fmt: skip
    batch = summed = own = 1
    for n, label in zip(y._metadata.shape, y_labels, strict=True):
        if label not in x_labels:
            own *= n
        elif label in out_labels:
            batch *= n
        else:
            summed *= n
    rows = x._metadata.size // max(1, batch * summed)
    return products_cost((batch, rows, summed), own)


def _products(xp: Library, x: Array, y: Array) -> Any:
    out = in_order(xp.matmul(x, y))
    # NumPy's products of bfloat16 have dtype float32.
    return out if out.dtype == x.dtype else out.astype(x.dtype)


# -- distances ------------------------------------------------------------------------------------


def _euclidean_distances(xp: Library, x: Array, y: Array) -> Any:
    """The distances of all rows of one matrix from all rows of another."""
    sizes = xp.sum(x * x, -1)[..., None] + xp.sum(y * y, -1)[..., None, :]
    return xp.sqrt(xp.maximum(sizes - 2 * xp.matmul(x, adjoint(xp, y)), 0))


def quotient(F: Namespace, g: Value, out: Value) -> Any:
    """A quotient, and 0 where the divisor is 0, with derivatives of any order."""
    return F.mask(F.div(g, F.where(out != 0, out, F.zero(out) + 1)), out != 0)


def _apart(F: Namespace, shares: Value, x: Value, y: Value) -> Any:
    """The gradient by the rows of `x`: the sum of share * (x - y) over the rows of `y`."""
    last = len(shares.shape) - 1
    return F.sub(F.mul(x, F.sum(shares, (last,), True)), F.bmm(shares, y))


def _lengthened(F: Namespace, t: Value, x: Value, y: Value) -> Any:
    """For all pairs of rows the product of a row's tangent and the difference of the two rows."""
    last = len(t.shape) - 1
    return F.sub(F.sum(F.mul(t, x), (last,), True), F.bmm(t, F.adjoint(y)))


#: The pulls of `linear` with and without a bias.
_LINEAR_PULLS: dict[str, Callable[..., Any]] = {"x": _linear_by_input, "weight": _linear_by_weight}

OPS = (
    linear(
        "adjoint",
        adjoint,
        lambda F, g: F.adjoint(g),
        passes=True,
        view=True,
        batch=batch_rules.same,
    ),
    operation(
        "mm",
        "dot",
        "x y",
        pulls={"x": lambda F, g, y: F.mm(g, F.mh(y)), "y": lambda F, g, x: F.mm(F.mh(x), g)},
        multilinear=True,
        cost=_cost,
        batch=batch_products.mm,
    ),
    operation(
        "bmm",
        _products,
        "x y",
        pulls={
            "x": lambda F, g, y: F.bmm(g, F.adjoint(y)),
            "y": lambda F, g, x: F.bmm(F.adjoint(x), g),
        },
        multilinear=True,
        cost=_cost,
        batch=batch_rules.over_axes,
    ),
    operation(
        "mv",
        "dot",
        "x y",
        pulls={
            "x": lambda F, g, y: F.outer(g, conjugate(F, y)),
            "y": lambda F, g, x: F.mv(F.adjoint(x), g),
        },
        multilinear=True,
        cost=lambda x, y: 3_000 + x._metadata.size,
        batch=batch_products.mv,
    ),
    operation(
        "dot",
        "dot",
        "x y",
        pulls={"x": lambda F, g, y: F.chain(g, y), "y": lambda F, g, x: F.chain(g, x)},
        multilinear=True,
        cost=lambda x, y: 2_000 + 2 * int(x._metadata.cost),
        batch=batch_products.dot,
    ),
    operation(
        "outer",
        lambda xp, x, y: xp.multiply(x[:, None], y),
        "x y",
        pulls={
            "x": lambda F, g, y: F.mv(g, conjugate(F, y)),
            "y": lambda F, g, x: F.mv(F.permute(g, (1, 0)), conjugate(F, x)),
        },
        multilinear=True,
        node="MulBackward0",
        cost=lambda x, y: 3_000 + x._metadata.size * y._metadata.size,
        batch=batch_products.outer,
    ),
    operation(
        "linear",
        _linear,
        "x weight",
        pulls=_LINEAR_PULLS,
        multilinear=True,
        node="MmBackward0",
        cost=_linear_cost,
        batch=batch_products.linear,
    ),
    operation(
        "linear_with_bias",
        _linear_with_bias,
        "x weight bias",
        pulls={
            **_LINEAR_PULLS,
            "bias": fused(
                lambda xp, g: total_of_rows(xp, g.reshape(prod(g.shape[:-1]), g.shape[-1])),
                lambda F, g: F.sum(g, tuple(range(len(g.shape) - 1)), False),
            ),
        },
        pushes={
            "x": lambda F, t, weight: F.linear(t, weight),
            "weight": lambda F, t, x: F.linear(x, t),
            "bias": lambda F, t, out_shape: F.expand(t, out_shape),
        },
        # Devices have products of half precision.
        wide="host",
        node="AddmmBackward0",
        cost=_linear_cost,
        batch=batch_products.linear,
    ),
    operation(
        "addmm",
        _addmm,
        "bias x y",
        pulls={
            "bias": _addmm_by_bias,
            "x": lambda F, g, y, alpha: _scaled(F, F.mm(g, F.adjoint(y)), alpha),
            "y": lambda F, g, x, alpha: _scaled(F, F.mm(F.adjoint(x), g), alpha),
        },
        pushes={
            "bias": lambda F, t, out_shape, beta: F.expand(F.mul_scalar(t, beta), out_shape),
            "x": lambda F, t, y, alpha: F.mul_scalar(F.mm(t, y), alpha),
            "y": lambda F, t, x, alpha: F.mul_scalar(F.mm(x, t), alpha),
        },
        wide="host",
        cost=lambda bias, x, y, beta, alpha: _cost(x, y),
        batch=batch_products.addmm,
    ),
    operation(
        "contract",
        _contract,
        "x y",
        pulls={
            "x": lambda F, g, y, x_labels, y_labels, out_labels: F.contract(
                g, conjugate(F, y), out_labels, y_labels, x_labels
            ),
            "y": lambda F, g, x, x_labels, y_labels, out_labels: F.contract(
                conjugate(F, x), g, x_labels, out_labels, y_labels
            ),
        },
        multilinear=True,
        node="BmmBackward0",
        cost=_contract_cost,
        batch=batch_products.contract,
    ),
    operation(
        "euclidean_distances",
        without_fp_errors(_euclidean_distances),
        "x y",
        pulls={
            "x": lambda F, g, x, y, out: _apart(F, quotient(F, g, out), x, y),
            "y": lambda F, g, x, y, out: _apart(F, F.adjoint(quotient(F, g, out)), y, x),
        },
        pushes={
            "x": lambda F, t, x, y, out: quotient(F, _lengthened(F, t, x, y), out),
            "y": lambda F, t, x, y, out: quotient(F, F.adjoint(_lengthened(F, t, y, x)), out),
        },
        node="CdistBackward0",
        cost=lambda x, y: 4 * rows_cost(x, y),
        batch=batch_rules.over_axes,
    ),
)
