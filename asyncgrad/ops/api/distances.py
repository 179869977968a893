"""Distances between the rows of matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from asyncgrad.choices import DistanceMode
from asyncgrad.core.recording import note_constant
from asyncgrad.ops.api.elementwise import where
from asyncgrad.ops.api.matrices import broadcast_batches
from asyncgrad.ops.api.shape import expand
from asyncgrad.ops.arguments import of_one_dtype
from asyncgrad.ops.dtype import is_half, refuse
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import renamed
from asyncgrad.ops.promotion import check_device
from asyncgrad.ops.requirements import requires
from asyncgrad.types import AtLeast2D, Matrix, Tensor

__all__ = ["cdist", "pdist"]

#: With more rows than this, Euclidean distances are computed by a matrix product.
_MANY = 25
_MODES: dict[DistanceMode, bool | None] = {
    "use_mm_for_euclid_dist_if_necessary": None,
    "use_mm_for_euclid_dist": True,
    "donot_use_mm_for_euclid_dist": False,
}


def _lengths(x: Tensor, p: float) -> Any:
    """The norms along the last axis; each of several maxima gets the full gradient."""
    *lead, length = x._metadata.shape
    axis = (len(lead),)
    if not length:
        return R.sum(x, axis, False)
    if not p:
        # This sum has a gradient of 0, as in PyTorch; the norm of order 0 has none.
        return R.sum(where(R.isnan(x), x.detach(), R.abs(R.sign(x))), axis, False)
    if p != math.inf:
        return R.vector_norm(x, p, axis, False)
    sizes = R.abs(x)
    known = sizes.detach()
    peak = R.amax(known, axis, True)
    # The difference of infinities would be NaN.
    reached = R.logical_and(R.eq(known, peak), R.lt(peak, math.inf))
    moved = where(reached, R.sub(sizes, known), 0.0)
    return R.add(R.reshape(peak, tuple(lead)), R.sum(moved, axis, False))


@requires(
    "p >= 0  # cdist only supports non-negative p values",
    *[
        f"{x}.dtype.kind == 'f'  # cdist only supports floating-point dtypes, {x.upper()} has none"
        for x in ("x1", "x2")
    ],
    "x1.shape[-1] == x2.shape[-1]  # X1 and X2 must have the same number of columns",
)
def cdist(
    x1: AtLeast2D, x2: AtLeast2D, p: float = 2.0,
    compute_mode: DistanceMode = "use_mm_for_euclid_dist_if_necessary",
) -> Tensor:  # fmt: skip
    """The distances, of shape (..., m, n), between all rows of one matrix and all rows of another.

    The gradient of the distance between equal rows is 0.

    Args:
        x1: floating, of shape (..., m, k).
        x2: of the same dtype, of shape (..., n, k); leading axes are broadcast.
        p: the order of the norm, not negative; infinity for the greatest difference.
        compute_mode: "use_mm_for_euclid_dist" computes Euclidean distances by a matrix product,
            which is faster and less exact; "donot_use_mm_for_euclid_dist" never does;
            "use_mm_for_euclid_dist_if_necessary" does from 26 rows on.
    """
    name = "cdist"
    of_one_dtype(name, x1, x2)
    if is_half(x1._metadata.dtype):
        refuse(name, x1._metadata.dtype)
    check_device(name, x1, x2)
    x1, x2 = broadcast_batches(name, x1, x2)
    product = _MODES[compute_mode]
    if product is None:
        product = max(x1.shape[-2], x2.shape[-2]) > _MANY
    if p == 2 and product and x1.shape[-1]:
        return R.euclidean_distances(x1, x2)
    *lead, m, k = x1.shape
    n = x2.shape[-2]
    rows = expand(R.reshape(x1, (*lead, m, 1, k)), (*lead, m, n, k))
    columns = expand(R.reshape(x2, (*lead, 1, n, k)), (*lead, m, n, k))
    return renamed(_lengths(R.sub(rows, columns), p), "CdistBackward0", saves=True)


@requires(
    "input.dtype.kind == 'f'  # pdist only supports floating-point dtypes",
    "p >= 0  # pdist only supports non-negative p values",
)
def pdist(input: Matrix, p: float = 2.0) -> Tensor:
    """The n (n - 1) / 2 distances between pairs of rows of a matrix, those of the first row first.

    Args:
        input: floating, of shape (n, k).
        p: as in `cdist`.
    """
    if is_half(input._metadata.dtype):
        refuse("pdist", input._metadata.dtype)
    first, second = (input._metadata.F.xp.asarray(part) for part in np.triu_indices(len(input), 1))
    note_constant(first)
    note_constant(second)
    pairs = R.sub(R.index(input, (first,)), R.index(input, (second,)))
    return renamed(_lengths(pairs, p), "PdistBackward0", saves=True)
