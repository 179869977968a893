"""Jacobians, Hessians and their products with vectors: `torch.autograd.functional`.

Each function returns an awaitable on a running loop and the result itself elsewhere. The user's
function may be a coroutine function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from asyncgrad.aliases import Value
from asyncgrad.autograd import functional_parts as parts
from asyncgrad.autograd.functional_parts import Call, grad_where_required, tuple_of
from asyncgrad.autograd.modes import enable_grad
from asyncgrad.autograd.signatures import Product
from asyncgrad.choices import Strategy, words
from asyncgrad.creation import zeros_like
from asyncgrad.errors import AutogradError
from asyncgrad.ops.signatures import named
from asyncgrad.scheduler import run_multi_pass, waits
from asyncgrad.scheduler.results import Results
from asyncgrad.types import Tensor

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

#: The tensors whose shapes the vector of most products has.
_INPUT = "input to the user-provided function is"


def _product(program: Callable[..., Any]) -> Product:
    """A function that computes a product with a vector, from the coroutine that does so.

    The coroutine gets the call and the vector. It returns the outputs and whether there is a single
    one; the product, the tensors that it is shaped like, and whether that is a single one; and
    strict mode's messages.
    """

    def computed(
        func: Callable[..., Any], inputs: Tensor | tuple[Tensor, ...],
        v: Tensor | tuple[Tensor, ...] | None = None, create_graph: bool = False,
        strict: bool = False,
    ) -> Any:  # fmt: skip
        name = program.__name__
        call = Call(name, func, *tuple_of(inputs, "inputs", name), create_graph, strict)

        async def finished() -> Any:
            outputs, alone, found, like, one, messages = await program(call, v)
            product = call.filled(found, like, messages)
            return call.finished(outputs, alone), call.finished(product, one)

        return run_multi_pass(finished(), name, waits=waits(func))

    return named(computed, program.__name__, program.__doc__ or "")


async def _with_gradient(call: Call, v: Value) -> tuple[Any, tuple[Any, ...], Any, Any]:
    """For a product with a Hessian: the output, the inputs, their gradient and the vector."""
    with enable_grad():
        tensors = call.inputs()
        v = call.vector(v, tensors, call.single, _INPUT)
        out = await call.scalar(tensors)
        gradients = await grad_where_required((out,), tensors, None, True)
        call.check_dependent(gradients, "jacobian")
    return out, tensors, gradients, v


@_product
async def vjp(call: Call, v: Value) -> Any:
    """A function's outputs, and the product of a vector with its Jacobian, shaped like the inputs.

    Args:
        func: a function or coroutine function of tensors that returns a tensor or a tuple of them.
        inputs: the point at which the Jacobian is taken.
        v: the vector, shaped like the outputs; may be left out for one output of one element.
        create_graph: make the results differentiable.
        strict: raise where an output does not depend on an input, instead of giving zeros.

    Raises:
        RuntimeError: if `v` does not fit, or if `strict` and an output is independent of an input.

    Example:
        >>> x = ag.tensor([1.0, 2.0])
        >>> y, product = ag.autograd.functional.vjp(lambda x: x * x, x, ag.tensor([1.0, 1.0]))
        >>> product.tolist()
        [2.0, 4.0]
    """
    with enable_grad():
        tensors = call.inputs()
        alone, outputs = await call.outputs(tensors)
        v = call.vector(v, outputs, alone, "user-provided function returns")
    found = await grad_where_required(outputs, tensors, v, call.create_graph)
    return outputs, alone, found, tensors, call.single, parts.BACK


@_product
async def jvp(call: Call, v: Value) -> Any:
    """A function's outputs, and the product of its Jacobian with a vector, shaped like the outputs.

    Args:
        v: the vector, shaped like the inputs; may be left out for one input of one element. The
            other arguments are those of `vjp`.
    """
    with enable_grad():
        tensors = call.inputs()
        v = call.vector(v, tensors, call.single, _INPUT)
        alone, outputs = await call.outputs(tensors)
        # The first pass's gradients are linear in the dummies, so their values do not matter: the
        # second pass transposes that function.
        dummies = tuple(zeros_like(out).requires_grad_() for out in outputs)
        gradients = await grad_where_required(outputs, tensors, dummies, True)
        call.check_dependent(gradients, "grad_inputs")
        found = await grad_where_required(gradients, dummies, v, call.create_graph)
    return outputs, alone, found, outputs, alone, parts.BACK_TRICK


def _check_strategy(
    name: str, option: str, strategy: Strategy, create_graph: bool, strict: bool, vectorize: bool
) -> None:
    """Raise for an unknown strategy, and for options that forward mode does not support."""
    if strategy not in words(Strategy):
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your '
            'function has more outputs than inputs, "forward-mode" tends to be more performant. '
            'Otherwise, prefer to use "reverse-mode".'
        )
    if strategy == "reverse-mode":
        return
    if create_graph:
        raise NotImplementedError(
            f'{name}: `create_graph=True` and `{option}="forward-mode"` are not supported '
            f'together. Set create_graph=False or {option}="reverse-mode".'
        )
    if strict:
        raise AutogradError(
            f'strict=True and {option}="forward-mode" are not supported together. Set '
            f'strict=False or {option}="reverse-mode".'
        )
    if not vectorize:
        raise NotImplementedError(
            "Computing Jacobian using forward-AD or forward-over-reverse Hessian is only "
            "implemented for `vectorize=True`."
        )


@overload
def jacobian(
    func: Callable[..., Tensor], inputs: Tensor, create_graph: bool = False, strict: bool = False,
    vectorize: bool = False, strategy: Strategy = "reverse-mode",
) -> Tensor: ...  # fmt: skip
@overload
def jacobian(
    func: Callable[..., Any], inputs: Tensor | tuple[Tensor, ...], create_graph: bool = False,
    strict: bool = False, vectorize: bool = False, strategy: Strategy = "reverse-mode",
) -> Results[Any]: ...  # fmt: skip
def jacobian(
    func: Callable[..., Any], inputs: Tensor | tuple[Tensor, ...], create_graph: bool = False,
    strict: bool = False, vectorize: bool = False, strategy: Strategy = "reverse-mode",
) -> Any:  # fmt: skip
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
        NotImplementedError: for forward mode with `create_graph` or without `vectorize`.
        RuntimeError: for `strict` with `vectorize`.
    """
    _check_strategy("jacobian", "strategy", strategy, create_graph, strict, vectorize)
    single, given = tuple_of(inputs, "inputs", "jacobian")
    call = Call("jacobian", func, single, given, create_graph, strict)
    program = parts.jacobian_program(call, vectorize, strategy)
    return run_multi_pass(program, "jacobian", waits=waits(func))


@overload
def hessian(
    func: Callable[..., Tensor], inputs: Tensor, create_graph: bool = False, strict: bool = False,
    vectorize: bool = False, outer_jacobian_strategy: Strategy = "reverse-mode",
) -> Tensor: ...  # fmt: skip
@overload
def hessian(
    func: Callable[..., Any], inputs: Tensor | tuple[Tensor, ...], create_graph: bool = False,
    strict: bool = False, vectorize: bool = False,
    outer_jacobian_strategy: Strategy = "reverse-mode",
) -> Results[Any]: ...  # fmt: skip
def hessian(
    func: Callable[..., Any], inputs: Tensor | tuple[Tensor, ...], create_graph: bool = False,
    strict: bool = False, vectorize: bool = False,
    outer_jacobian_strategy: Strategy = "reverse-mode",
) -> Any:  # fmt: skip
    """The Hessian of a function of one element: the Jacobian of its Jacobian.

    Args:
        func: a function or coroutine function of tensors that returns one element.
        outer_jacobian_strategy: the `strategy` of `jacobian` for the outer Jacobian; the other
            arguments are those of `jacobian`.

    Returns:
        A tensor of the input's shape twice over; for several inputs a tuple of tuples.

    Raises:
        NotImplementedError: for forward mode with `create_graph` or without `vectorize`.
    """
    single, given = tuple_of(inputs, "inputs", "hessian")
    call = Call("hessian", func, single, given, create_graph, strict)
    _check_strategy(
        "hessian", "outer_jacobian_strategy", outer_jacobian_strategy, create_graph, strict,
        vectorize,
    )  # fmt: skip

    async def scalar(*tensors: Value) -> Any:
        return (await call.scalar(tensors)).squeeze()

    async def gradient(*tensors: Value) -> Any:
        if outer_jacobian_strategy == "forward-mode":
            # `prepared` would make a new leaf, and a new leaf would not have the tangent.
            tensors = tuple(tensor.requires_grad_() for tensor in tensors)
        inner = Call("jacobian", scalar, False, tensors, True, False)
        out = await parts.jacobian_program(inner, False)
        call.check_dependent(out, "jacobian")
        return out

    async def program() -> Any:
        outer = call._replace(func=gradient)
        rows = await parts.jacobian_program(outer, vectorize, outer_jacobian_strategy)
        # The inner Jacobian always comes in a tuple; one input alone has no tuple.
        return rows[0] if single else rows

    return run_multi_pass(program(), "hessian", waits=waits(func))


@_product
async def vhp(call: Call, v: Value) -> Any:
    """A function's one element, and a vector's product with its Hessian, shaped like the inputs.

    Args:
        func: a function or coroutine function of tensors that returns one element.
        v: as in `jvp`. The other arguments are those of `vjp`.
    """
    out, tensors, gradients, v = await _with_gradient(call, v)
    found = await grad_where_required(gradients, tensors, v, call.create_graph)
    return (out,), True, found, tensors, call.single, parts.DOUBLE_BACK


@_product
async def hvp(call: Call, v: Value) -> Any:
    """The product of the Hessian of a function of one element with a vector.

    Arguments and results are the same as for `vhp`, which needs one pass less. The two differ only
    where the Hessian is not symmetric.
    """
    out, tensors, gradients, v = await _with_gradient(call, v)
    with enable_grad():
        dummies = tuple(zeros_like(tensor).requires_grad_() for tensor in tensors)
        second = await grad_where_required(gradients, tensors, dummies, True)
        call.check_dependent(second, "hessian")
        found = await grad_where_required(second, dummies, v, call.create_graph)
    return (out,), True, found, tensors, call.single, parts.DOUBLE_BACK_TRICK
