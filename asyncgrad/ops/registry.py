"""Builds the functions of every op in the table, on tensors and on arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncgrad.ops.dispatch import dispatch_of, tensors_dispatch
from asyncgrad.ops.namespace import OPS, RECORDED, add_raw_function
from asyncgrad.ops.op import Op
from asyncgrad.ops.promotion import promote_binary
from asyncgrad.ops.save_plan import plan_of
from asyncgrad.ops.table import (
    activation,
    attention,
    convolution,
    elementwise,
    fourier,
    in_place,
    index,
    linalg,
    loss,
    matrices,
    normalisation,
    pooling,
    random,
    recurrent,
    reduction,
    scans,
    shape,
    sort,
    strided,
    transcendental,
)
from asyncgrad.ops.template import is_pair

CHAPTERS = (
    elementwise, shape, strided, index, reduction, scans, sort, linalg, matrices, fourier,
    convolution, pooling, recurrent, attention, activation, loss, normalisation, in_place, random,
    transcendental,
)  # fmt: skip


def add_op(op: Op) -> Callable[..., Any]:
    """Add an op that the table does not have.

    Returns:
        Its function: on any operands if it broadcasts, otherwise on tensors of one dtype.

    Raises:
        ValueError: if the name is taken, or a rule names a value that the op does not have.
    """
    name = op.name
    if name in OPS or hasattr(RECORDED, name) or not name.isidentifier():
        raise ValueError(f"the table of derivatives can't take {name!r}: it is no free name")
    if op.inputs != ("*xs",):
        plan_of(op, tuple(range(len(op.inputs))), ())  # Raises for rules that name unknown values.
    add_raw_function(op)
    dispatch = tensors_dispatch(op)
    if is_pair(op):
        promotes: Any = "floating" if op.pulls else "any"
        dispatch = promote_binary(op._replace(numbers="either", promotes=promotes), dispatch)
    setattr(RECORDED, name, dispatch)
    return dispatch


OPS.update({op.name: op for chapter in CHAPTERS for op in chapter.OPS})
for _op in OPS.values():
    setattr(RECORDED, _op.name, dispatch_of(_op))
RECORDED.mh = RECORDED.adjoint
RECORDED.chain = lambda g, d: g * (RECORDED.conj(d) if d._metadata.is_complex else d)

__all__ = ["OPS", "RECORDED", "add_op"]
