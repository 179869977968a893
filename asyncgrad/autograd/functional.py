"""Jacobians, Hessians and their products with vectors: `torch.autograd.functional`.

Each function returns an awaitable on a running loop and the result itself elsewhere. The user's
function may be a coroutine function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from asyncgrad.autograd.functional_parts import (
    check_dependent,
    check_forward,
    check_strategy,
    tuple_of,
)
from asyncgrad.autograd.functional_programs import (
    hvp_program,
    jacobian_program,
    jvp_program,
    scalar_function,
    vhp_program,
    vjp_program,
)
from asyncgrad.autograd.signatures import product
from asyncgrad.scheduler import run_multi_pass, waits

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.aliases import Value
    from asyncgrad.scheduler.results import Results
    from asyncgrad.tensor import Tensor

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


@product
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
        inputs: the point at which the Jacobian is taken.
        v: the vector, shaped like the outputs; may be left out for one output of one element.
        create_graph: make the results differentiable.
        strict: raise where an output does not depend on an input, instead of giving zeros.

    Returns:
        The function's outputs, and the product, shaped like the inputs.

    Raises:
        RuntimeError: if `v` does not fit, or if `strict` and an output is independent of an input.

    Example:
        >>> x = ag.tensor([1.0, 2.0])
        >>> y, product = ag.autograd.functional.vjp(lambda x: x * x, x, ag.tensor([1.0, 1.0]))
        >>> product.tolist()
        [2.0, 4.0]
    """
    tuple_of(inputs, "inputs", "vjp")
    return run_multi_pass(vjp_program(func, inputs, v, create_graph, strict), waits=waits(func))


@product
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
        inputs: the point at which the Jacobian is taken.
        v: the vector, shaped like the inputs; may be left out for one input of one element.
        create_graph: make the results differentiable.
        strict: raise where an output does not depend on an input, instead of giving zeros.

    Returns:
        The function's outputs, and the product, shaped like the outputs.

    Raises:
        RuntimeError: if `v` does not fit, or if `strict` and an output is independent of an input.
    """
    tuple_of(inputs, "inputs", "jvp")
    return run_multi_pass(jvp_program(func, inputs, v, create_graph, strict), waits=waits(func))


@overload
def jacobian(
    func: Callable[..., Tensor],
    inputs: Tensor,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Tensor: ...
@overload
def jacobian(
    func: Callable[..., Any],
    inputs: Tensor | tuple[Tensor, ...],
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Results[Any]: ...
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
        inputs: the point at which it is taken.
        create_graph: make the result differentiable.
        strict: raise where an output does not depend on an input, instead of giving zeros.
        vectorize: compute all rows in one pass.
        strategy: "reverse-mode", or "forward-mode", which takes `vectorize=True`.

    Returns:
        A tensor of the output's shape followed by the input's. For several inputs or several
        outputs a tuple of these; for several of both, a tuple by output of tuples by input.

    Raises:
        AssertionError: if there is no such strategy.
        NotImplementedError: for forward mode with `create_graph` or without `vectorize`.
        RuntimeError: if `strict` and an output is independent of an input, or with `vectorize`.
    """
    check_strategy(strategy)
    if strategy == "forward-mode":
        if create_graph:
            raise NotImplementedError(
                'jacobian: `create_graph=True` and `strategy="forward-mode"` are not supported '
                'together. Set create_graph=False or strategy="reverse-mode".'
            )
        check_forward(strict, vectorize)
    tuple_of(inputs, "inputs", "jacobian")
    program = jacobian_program(func, inputs, create_graph, strict, vectorize, strategy)
    return run_multi_pass(program, waits=waits(func))


@overload
def hessian(
    func: Callable[..., Tensor],
    inputs: Tensor,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Tensor: ...
@overload
def hessian(
    func: Callable[..., Any],
    inputs: Tensor | tuple[Tensor, ...],
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Results[Any]: ...
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
        inputs: the point at which it is taken.
        create_graph: make the result differentiable.
        strict: raise where the Jacobian does not depend on an input, instead of giving zeros.
        vectorize: compute all rows in one pass.
        outer_jacobian_strategy: "reverse-mode", or "forward-mode", which takes `vectorize=True`.

    Returns:
        A tensor of the input's shape twice over; for several inputs a tuple of tuples.

    Raises:
        AssertionError: if there is no such strategy.
        NotImplementedError: for forward mode with `create_graph` or without `vectorize`.
        RuntimeError: if the output has more than one element, or `strict` raises.
    """
    single, _ = tuple_of(inputs, "inputs", "hessian")
    check_strategy(outer_jacobian_strategy)

    async def gradient(*tensors: Value) -> Any:
        if outer_jacobian_strategy == "forward-mode":
            # `prepared` would make a new leaf, and a new leaf would not have the tangent.
            tensors = tuple(tensor.requires_grad_() for tensor in tensors)
        out = await jacobian_program(scalar_function(func, strict), tensors, True, False, False)
        check_dependent(out, "jacobian", strict)
        return out

    async def program() -> Any:
        rows = await jacobian_program(
            gradient, inputs, create_graph, strict, vectorize, outer_jacobian_strategy
        )
        # The inner Jacobian always comes in a tuple; one input alone has no tuple.
        return rows[0] if single else rows

    if outer_jacobian_strategy == "forward-mode":
        if create_graph:
            raise NotImplementedError(
                'hessian: create_graph=True and outer_jacobian_strategy="forward-mode" are not '
                "supported together. Set one of them otherwise."
            )
        check_forward(strict, vectorize)
    return run_multi_pass(program(), waits=waits(func))


@product
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
        inputs: the point at which the Hessian is taken.
        v: the vector, shaped like the inputs; may be left out for one input of one element.
        create_graph: make the results differentiable.
        strict: raise where the Jacobian does not depend on an input, instead of giving zeros.

    Returns:
        The function's output, and the product, shaped like the inputs.

    Raises:
        RuntimeError: if the output has more than one element, `v` does not fit, or `strict` raises.
    """
    tuple_of(inputs, "inputs", "vhp")
    return run_multi_pass(vhp_program(func, inputs, v, create_graph, strict), waits=waits(func))


@product
def hvp(
    func: Callable[..., Any],
    inputs: Tensor | tuple[Tensor, ...],
    v: Tensor | tuple[Tensor, ...] | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> Any:
    """The product of the Hessian of a function of one element with a vector.

    Arguments and results are the same as for `vhp`, which needs one pass less. The two differ only
    where the Hessian is not symmetric.
    """
    tuple_of(inputs, "inputs", "hvp")
    return run_multi_pass(hvp_program(func, inputs, v, create_graph, strict), waits=waits(func))
