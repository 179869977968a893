"""Jacobians, Hessians and their products with vectors: `torch.autograd.functional`.

Each function may be awaited on a running loop and gives its result at once elsewhere. The user's
function may be a coroutine function. Products of Jacobians with vectors are made of two passes:
the first gives a function of its own gradients that is linear, the second transposes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.autograd.functional_forward import blocks_forward
from asyncgrad.autograd.functional_parts import (
    BACK,
    BACK_TRICK,
    DOUBLE_BACK,
    DOUBLE_BACK_TRICK,
    basis,
    check_dependent,
    check_forward,
    check_one_element,
    check_scalar,
    check_strategy,
    filled,
    finished,
    hessian_vector,
    prepared,
    tuple_of,
    unpacked,
    vector,
)
from asyncgrad.autograd.modes import enable_grad
from asyncgrad.autograd.passes import grad
from asyncgrad.creation import zeros, zeros_like
from asyncgrad.errors import AutogradError
from asyncgrad.ops.functions.shape import stack
from asyncgrad.scheduler import call, run_program, waits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncgrad.tensor import Tensor

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

# -- the public functions -------------------------------------------------------------------------


def vjp(
    func: Callable[..., Any],
    inputs: Tensor | tuple[Tensor, ...],
    v: Tensor | tuple[Tensor, ...] | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> Any:
    """The product of a vector with the Jacobian of a function.

    Args:
        func: a function or coroutine function of tensors that returns a tensor or a tuple of them.
        inputs: where the Jacobian is taken.
        v: the vector, shaped like the outputs; may be left out for one output of one element.
        create_graph: make the results differentiable.
        strict: raise where an output does not depend on an input, instead of giving zeros.

    Returns:
        The function's outputs, and the product, shaped like the inputs.

    Raises:
        TypeError: if inputs or outputs are no tensors.
        RuntimeError: if `v` does not fit, or `strict` finds an independence.

    Example:
        >>> x = ag.tensor([1.0, 2.0])
        >>> y, product = ag.autograd.functional.vjp(lambda x: x * x, x, ag.tensor([1.0, 1.0]))
        >>> product.tolist()
        [2.0, 4.0]
    """
    tuple_of(inputs, "inputs", "vjp")
    return run_program(_vjp(func, inputs, v, create_graph, strict), waits=waits(func))


def jvp(
    func: Callable[..., Any],
    inputs: Tensor | tuple[Tensor, ...],
    v: Tensor | tuple[Tensor, ...] | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> Any:
    """The product of the Jacobian of a function with a vector.

    Args:
        func: a function or coroutine function of tensors that returns a tensor or a tuple of them.
        inputs: where the Jacobian is taken.
        v: the vector, shaped like the inputs; may be left out for one input of one element.
        create_graph: make the results differentiable.
        strict: raise where an output does not depend on an input, instead of giving zeros.

    Returns:
        The function's outputs, and the product, shaped like the outputs.

    Raises:
        TypeError: if inputs or outputs are no tensors.
        RuntimeError: if `v` does not fit, or `strict` finds an independence.
    """
    tuple_of(inputs, "inputs", "jvp")
    return run_program(_jvp(func, inputs, v, create_graph, strict), waits=waits(func))


def jacobian(
    func: Callable[..., Any],
    inputs: Tensor | tuple[Tensor, ...],
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian of a function.

    Args:
        func: a function or coroutine function of tensors that returns a tensor or a tuple of them.
        inputs: where it is taken.
        create_graph: make the result differentiable.
        strict: raise where an output does not depend on an input, instead of giving zeros.
        vectorize: compute all rows in one pass.
        strategy: "reverse-mode", or "forward-mode", which takes `vectorize=True`.

    Returns:
        A tensor of the output's shape followed by the input's; a tuple of them for several inputs
        or outputs, a tuple for each output of a tuple for each input for several of both.

    Raises:
        AssertionError: if there is no such strategy.
        NotImplementedError: for forward mode with `create_graph` or without `vectorize`.
        TypeError: if inputs or outputs are no tensors.
        RuntimeError: if `strict` finds an independence, or comes with `vectorize`.
    """
    check_strategy(strategy)
    if strategy == "forward-mode":
        if create_graph:
            raise NotImplementedError(
                'jacobian: create_graph=True and strategy="forward-mode" are not supported '
                'together. Set create_graph=False or strategy="reverse-mode".'
            )
        check_forward(strict, vectorize)
    tuple_of(inputs, "inputs", "jacobian")
    program = _jacobian(func, inputs, create_graph, strict, vectorize, strategy)
    return run_program(program, waits=waits(func))


def hessian(
    func: Callable[..., Any],
    inputs: Tensor | tuple[Tensor, ...],
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The Hessian of a function of one element: the Jacobian of its Jacobian.

    Args:
        func: a function or coroutine function of tensors that returns one element.
        inputs: where it is taken.
        create_graph: make the result differentiable.
        strict: raise where the Jacobian does not depend on an input, instead of giving zeros.
        vectorize: compute all rows in one pass.
        outer_jacobian_strategy: "reverse-mode", or "forward-mode", which takes `vectorize=True`.

    Returns:
        A tensor of the input's shape twice; for several inputs a tuple of tuples.

    Raises:
        AssertionError: if there is no such strategy.
        NotImplementedError: for forward mode with `create_graph` or without `vectorize`.
        TypeError: if inputs or output are no tensors.
        RuntimeError: if the output has more than one element or `strict` finds an independence.
    """
    single, _ = tuple_of(inputs, "inputs", "hessian")
    check_strategy(outer_jacobian_strategy)

    async def gradient(*tensors: Any) -> Any:
        if outer_jacobian_strategy == "forward-mode":
            # A new leaf would not have the tangent.
            tensors = tuple(tensor.requires_grad_() for tensor in tensors)
        out = await _jacobian(_scalar(func, strict), tensors, True, False, False)
        check_dependent(out, "jacobian", strict)
        return out

    async def program() -> Any:
        rows = await _jacobian(
            gradient, inputs, create_graph, strict, vectorize, outer_jacobian_strategy
        )
        # The gradient is a tuple, whether or not the inputs are.
        return rows[0] if single else rows

    if outer_jacobian_strategy == "forward-mode":
        if create_graph:
            raise NotImplementedError(
                'hessian: create_graph=True and outer_jacobian_strategy="forward-mode" are not '
                "supported together. Set one of them otherwise."
            )
        check_forward(strict, vectorize)
    return run_program(program(), waits=waits(func))


def vhp(
    func: Callable[..., Any],
    inputs: Tensor | tuple[Tensor, ...],
    v: Tensor | tuple[Tensor, ...] | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> Any:
    """The product of a vector with the Hessian of a function of one element.

    Args:
        func: a function or coroutine function of tensors that returns one element.
        inputs: where the Hessian is taken.
        v: the vector, shaped like the inputs; may be left out for one input of one element.
        create_graph: make the results differentiable.
        strict: raise where the Jacobian does not depend on an input, instead of giving zeros.

    Returns:
        The function's output, and the product, shaped like the inputs.

    Raises:
        TypeError: if inputs or output are no tensors.
        RuntimeError: if the output has more than one element, `v` does not fit, or `strict` finds
            an independence.
    """
    tuple_of(inputs, "inputs", "vhp")
    return run_program(_vhp(func, inputs, v, create_graph, strict), waits=waits(func))


def hvp(
    func: Callable[..., Any],
    inputs: Tensor | tuple[Tensor, ...],
    v: Tensor | tuple[Tensor, ...] | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> Any:
    """The product of the Hessian of a function of one element with a vector.

    The arguments and results are `vhp`'s, which takes one pass less: the two differ only where the
    Hessian is not symmetric.
    """
    tuple_of(inputs, "inputs", "hvp")
    return run_program(_hvp(func, inputs, v, create_graph, strict), waits=waits(func))


# -- the programs ---------------------------------------------------------------------------------


async def _vjp(func: Any, inputs: Any, v: Any, create_graph: bool, strict: bool) -> Any:
    single, given = tuple_of(inputs, "inputs", "vjp")
    with enable_grad():
        tensors = prepared(given, create_graph)
        alone, outputs = await _outputs(func, tensors, "vjp", strict)
        if v is None:
            check_one_element(outputs, "user-provided function returns")
        else:
            v = vector(v, outputs, alone, create_graph, "vjp")
    found = await _grad(outputs, tensors, v, create_graph)
    product = filled(found, tensors, strict, create_graph, BACK)
    return finished(outputs, alone, create_graph), finished(product, single, create_graph)


async def _jvp(func: Any, inputs: Any, v: Any, create_graph: bool, strict: bool) -> Any:
    _, given = tuple_of(inputs, "inputs", "jvp")
    single = not isinstance(inputs, tuple)
    with enable_grad():
        tensors = prepared(given, create_graph)
        if v is None:
            check_one_element(tensors, "input to the user-provided function is")
        else:
            v = vector(v, tensors, single, create_graph, "jvp")
        alone, outputs = await _outputs(func, tensors, "jvp", strict)
        # The first pass is linear in these: their values do not matter.
        dummies = tuple(zeros_like(out).requires_grad_() for out in outputs)
        gradients = await _grad(outputs, tensors, dummies, True)
        check_dependent(gradients, "grad_inputs", strict)
        found = await _grad(gradients, dummies, v, create_graph)
    product = filled(found, outputs, strict, create_graph, BACK_TRICK)
    return finished(outputs, alone, create_graph), finished(product, alone, create_graph)


async def _jacobian(
    func: Any,
    inputs: Any,
    create_graph: bool,
    strict: bool,
    vectorize: bool,
    strategy: str = "reverse-mode",
) -> Any:
    single, given = tuple_of(inputs, "inputs", "jacobian")
    if strategy == "forward-mode":
        alone, blocks = await blocks_forward(func, given)
        return unpacked(blocks, alone, single)
    with enable_grad():
        tensors = prepared(given, create_graph)
        alone, outputs = await _outputs(func, tensors, "jacobian", strict)
        if vectorize:
            if strict:
                raise AutogradError(
                    "jacobian: strict=True and vectorize=True are not supported together. Set one "
                    "of them to False."
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


async def _rows(place: int, out: Any, tensors: Any, create_graph: bool, strict: bool) -> Any:
    """The derivatives of one output, a row at a time."""
    blocks: list[list[Any]] = [[] for _ in tensors]
    flat = out.reshape(-1)
    for row in range(out.numel()):
        found = await _grad((flat[row],), tensors, None, create_graph, retain_graph=True)
        for where, (block, gradient, tensor) in enumerate(zip(blocks, found, tensors, strict=True)):
            if strict and gradient is None:
                raise AutogradError(
                    f"Output {place} of the user-provided function is independent of input "
                    f"{where}. This is not allowed in strict mode."
                )
            if strict and create_graph and not gradient.requires_grad:
                raise AutogradError(
                    f"The jacobian of the user-provided function is independent of input {place}. "
                    f"This is not allowed in strict mode when create_graph=True."
                )
            block.append(zeros_like(tensor) if gradient is None else gradient)
    return tuple(
        stack(block).reshape(*out.shape, *tensor.shape) if block else _blank(tensor, *out.shape)
        for block, tensor in zip(blocks, tensors, strict=True)
    )


async def _rows_at_once(outputs: Any, tensors: Any, create_graph: bool) -> Any:
    """The derivatives of all outputs by all inputs, from one pass over a batch of gradients."""
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
            part.reshape(*out.shape, *tensor.shape)
            for part, out in zip(column.split(sizes), outputs, strict=True)
        ]
        for column, tensor in zip(columns, tensors, strict=True)
    ]
    return tuple(zip(*blocks, strict=True))


def _blank(tensor: Any, *lead: int) -> Any:
    """Zeros of a tensor's kind with further axes before its own."""
    return zeros((*lead, *tensor.shape), dtype=tensor.dtype, device=tensor.device)


async def _vhp(func: Any, inputs: Any, v: Any, create_graph: bool, strict: bool) -> Any:
    single, given = tuple_of(inputs, "inputs", "vhp")
    with enable_grad():
        tensors = prepared(given, create_graph)
        v = hessian_vector(v, tensors, single, create_graph, "vhp")
        out, gradients = await _gradient(func, tensors, "vhp", strict)
    found = await _grad(gradients, tensors, v, create_graph)
    product = filled(found, tensors, strict, create_graph, DOUBLE_BACK)
    return finished((out,), True, create_graph), finished(product, single, create_graph)


async def _hvp(func: Any, inputs: Any, v: Any, create_graph: bool, strict: bool) -> Any:
    single, given = tuple_of(inputs, "inputs", "hvp")
    with enable_grad():
        tensors = prepared(given, create_graph)
        v = hessian_vector(v, tensors, single, create_graph, "hvp")
        out, gradients = await _gradient(func, tensors, "hvp", strict)
        dummies = tuple(zeros_like(tensor).requires_grad_() for tensor in tensors)
        second = await _grad(gradients, tensors, dummies, True)
        check_dependent(second, "hessian", strict)
        found = await _grad(second, dummies, v, create_graph)
    product = filled(found, tensors, strict, create_graph, DOUBLE_BACK_TRICK)
    return finished((out,), True, create_graph), finished(product, single, create_graph)


# -- steps of a program ---------------------------------------------------------------------------


async def _outputs(func: Any, tensors: Any, name: str, strict: bool) -> tuple[bool, Any]:
    """What the user's function returns: whether it is one tensor, and a tuple."""
    found = await call(func, *tensors)
    alone, outputs = tuple_of(found, "outputs of the user-provided function", name)
    check_dependent(outputs, "outputs", strict)
    return alone, outputs


async def _gradient(func: Any, tensors: Any, name: str, strict: bool) -> tuple[Any, Any]:
    """The one element that the user's function returns, and its differentiable gradient."""
    alone, outputs = await _outputs(func, tensors, name, strict)
    check_scalar(alone, outputs, name)
    gradients = await _grad(outputs, tensors, None, True)
    check_dependent(gradients, "jacobian", strict)
    return outputs[0], gradients


def _scalar(func: Any, strict: bool) -> Any:
    """The user's function, which has to return one element."""

    async def scalar(*tensors: Any) -> Any:
        alone, outputs = await _outputs(func, tensors, "hessian", strict)
        check_scalar(alone, outputs, "hessian")
        return outputs[0].squeeze()

    return scalar


async def _grad(
    outputs: Sequence[Any],
    tensors: Sequence[Any],
    vectors: Any,
    create_graph: bool,
    retain_graph: bool | None = None,
) -> Sequence[Any]:
    """`grad` that passes over the outputs without a gradient, and gives None without any."""
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
