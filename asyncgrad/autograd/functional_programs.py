"""Jacobians row by row, in batches and in forward mode, and steps that `functional` shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.autograd.forward_ad import make_dual, nested_level, unpack_dual
from asyncgrad.autograd.functional_parts import (
    basis,
    check_dependent,
    check_scalar,
    filled,
    prepared,
    row_messages,
    tuple_of,
    unpacked,
)
from asyncgrad.autograd.modes import enable_grad
from asyncgrad.autograd.passes import grad
from asyncgrad.core.modes import Mode, current
from asyncgrad.creation import zeros, zeros_like
from asyncgrad.errors import AutogradError
from asyncgrad.ops.api.shape import movedim, narrow, stack
from asyncgrad.ops.batching import Level, batch_of, lift_batch
from asyncgrad.scheduler import call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncgrad.aliases import Value
    from asyncgrad.choices import Strategy


async def jacobian_program(
    func: Callable[..., Any], inputs: Value, create_graph: bool, strict: bool, vectorize: bool,
    strategy: Strategy = "reverse-mode",
) -> Any:  # fmt: skip
    """The Jacobian, by the chosen strategy."""
    single, given = tuple_of(inputs, "inputs", "jacobian")
    if strategy == "forward-mode":
        alone, blocks = await blocks_forward(func, given)
        return unpacked(blocks, alone, single)
    with enable_grad():
        tensors = prepared(given, create_graph)
        alone, outputs = await outputs_of(func, tensors, "jacobian", strict)
        if vectorize:
            if strict:
                raise AutogradError(
                    "jacobian: `strict=True` and `vectorized=True` are not supported together. "
                    "Set strict=False or vectorize=False."
                )
            rows = await _rows_at_once(outputs, tensors, create_graph)
        else:
            rows = tuple(
                [
                    await _rows(place, out, tensors, create_graph, strict)
                    for place, out in enumerate(outputs)
                ]
            )
    if not create_graph:
        rows = tuple(tuple(block.detach() for block in row) for row in rows)
    return unpacked(rows, alone, single)


async def _rows(place: int, out: Value, tensors: Value, create_graph: bool, strict: bool) -> Any:
    """The derivatives of one output, computed one row at a time."""
    flat = out.reshape(-1)
    rows = []
    for row in range(out.numel()):
        found = await grad_where_required(
            (flat[row],), tensors, None, create_graph, retain_graph=True
        )
        rows.append(filled(found, tensors, strict, create_graph, row_messages(place)))
    if not rows:
        return tuple(_blank(tensor, *out.shape) for tensor in tensors)
    return tuple(
        stack(block).reshape((*out.shape, *tensor.shape))
        for block, tensor in zip(zip(*rows, strict=True), tensors, strict=True)
    )


async def _rows_at_once(outputs: Value, tensors: Value, create_graph: bool) -> Any:
    """The derivatives of all outputs by all inputs, from one pass with batched gradients."""
    sizes = [out.numel() for out in outputs]
    pairs = [(out, b) for out, b in zip(outputs, basis(outputs), strict=True) if out.requires_grad]
    found: Any = (None,) * len(tensors)
    if pairs:
        roots, batches = zip(*pairs, strict=True)
        found = await grad(
            roots, tensors, batches, None, create_graph, allow_unused=True, is_grads_batched=True
        )
    columns = [
        _blank(tensor, sum(sizes)) if rows is None else rows
        for rows, tensor in zip(found, tensors, strict=True)
    ]
    blocks = [
        [
            part.reshape((*out.shape, *tensor.shape))
            for part, out in zip(column.split(sizes), outputs, strict=True)
        ]
        for column, tensor in zip(columns, tensors, strict=True)
    ]
    return tuple(zip(*blocks, strict=True))


def _blank(tensor: Value, *lead: int) -> Any:
    """Zeros with the dtype and device of a tensor, and extra axes before its own."""
    return zeros((*lead, *tensor.shape), dtype=tensor.dtype, device=tensor.device)


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


# -- steps of a program ---------------------------------------------------------------------------


async def outputs_of(
    func: Callable[..., Any], tensors: Value, name: str, strict: bool
) -> tuple[bool, Any]:
    """Call the user's function: whether it returned a single tensor, and the outputs as a tuple."""
    found = await call(func, *tensors)
    alone, outputs = tuple_of(found, "outputs of the user-provided function", name)
    check_dependent(outputs, "outputs", strict)
    return alone, outputs


async def gradient_of(
    func: Callable[..., Any], tensors: Value, name: str, strict: bool
) -> tuple[Any, Any]:
    """The user's function's output of one element, and its gradient, recorded."""
    alone, outputs = await outputs_of(func, tensors, name, strict)
    check_scalar(alone, outputs, name)
    gradients = await grad_where_required(outputs, tensors, None, True)
    check_dependent(gradients, "jacobian", strict)
    return outputs[0], gradients


def scalar_function(func: Callable[..., Any], strict: bool) -> Any:
    """The user's function, checked to return one element."""

    async def scalar(*tensors: Value) -> Any:
        alone, outputs = await outputs_of(func, tensors, "hessian", strict)
        check_scalar(alone, outputs, "hessian")
        return outputs[0].squeeze()

    return scalar


async def grad_where_required(
    outputs: Sequence[Any], tensors: Sequence[Any], vectors: Value, create_graph: bool,
    retain_graph: bool | None = None,
) -> Sequence[Any]:  # fmt: skip
    """`grad` of the outputs that require grad; None for all inputs if none does."""
    vectors = (None,) * len(outputs) if vectors is None else vectors
    pairs = [
        (out, vector)
        for out, vector in zip(outputs, vectors, strict=True)
        if out is not None and out.requires_grad
    ]
    if not pairs:
        return (None,) * len(tensors)
    roots, gradients = zip(*pairs, strict=True)
    found: Sequence[Any] = await grad(
        roots, tensors, gradients, retain_graph, create_graph, allow_unused=True
    )
    return found
