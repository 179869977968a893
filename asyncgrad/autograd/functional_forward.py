"""Jacobians in forward mode: one call of the function for a batch of all unit vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.autograd.forward_ad import make_dual, nested_level, unpack_dual
from asyncgrad.autograd.functional_parts import basis, tuple_of
from asyncgrad.core.modes import Mode, current
from asyncgrad.creation import zeros_like
from asyncgrad.ops.api.shape import movedim, narrow
from asyncgrad.ops.batching import Level, batch_of, lift_batch
from asyncgrad.scheduler import call

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.aliases import Value


async def blocks_forward(func: Callable[..., Any], inputs: tuple[Any, ...]) -> tuple[bool, Any]:
    """The derivatives of all outputs of a function by all inputs.

    Returns:
        Whether there is a single output; and for each output, a tuple with one tensor by input, of
        the output's shape followed by the input's.
    """
    count = sum(x.numel() for x in inputs)
    level = Level(count, "error", current().batch, loops=True, tangents=True)
    with Mode(batch=level), nested_level():
        duals = [
            make_dual(x, lift_batch(unit, level))
            for x, unit in zip(inputs, basis(inputs), strict=True)
        ]
        found = await call(func, *duals)
        alone, outputs = tuple_of(found, "outputs of the user-provided function", "jacobian")
        columns = [batch_of(_tangent(out), level) for out in outputs]
    return alone, tuple(_blocks(column, inputs) for column in columns)


def _tangent(out: Value) -> Any:
    value, tangent = unpack_dual(out)
    return (zeros_like(value) if tangent is None else tangent).detach()


def _blocks(columns: Value, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Split one output's derivatives by all input elements into one tensor for each input."""
    shape = columns.shape[1:]
    blocks = []
    first = 0
    for x in inputs:
        own = movedim(narrow(columns, 0, first, x.numel()), 0, -1)
        blocks.append(own.reshape((*shape, *x.shape)))
        first += x.numel()
    return tuple(blocks)
