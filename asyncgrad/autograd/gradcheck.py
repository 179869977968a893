"""Gradients checked against finite differences: `torch.autograd.gradcheck`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.autograd.gradcheck_jacobians import compare, compare_forward
from asyncgrad.autograd.gradcheck_parts import (
    GradcheckError,
    Options,
    as_tuple,
    check_batched,
    check_batched_forward,
    check_inputs,
    check_linear,
    check_undefined,
    check_undefined_tangents,
    differentiable,
    differentiable_places,
    part_of,
    random_like,
)
from asyncgrad.autograd.passes import grad
from asyncgrad.core.modes import Mode
from asyncgrad.scheduler import call, run_multi_pass, waits

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.aliases import Value

__all__ = ["GradcheckError", "gradcheck", "gradcheck_async", "gradgradcheck", "gradgradcheck_async"]

# -- the public functions -------------------------------------------------------------------------


def gradcheck(func: Callable[..., Any], inputs: Value, **options: Value) -> bool:
    """Compare the gradients of a function with finite differences, blocking the thread.

    Args:
        func: a function or coroutine function of the inputs that returns a tensor or a tuple.
        inputs: a tensor or a tuple; tensors that require grad should be of double precision.
        options: as in PyTorch, by name: `eps=1e-6` is the perturbation; `atol=1e-5`, `rtol=1e-3`
            the tolerances; `raise_exception=True` raises where a check fails instead of giving
            False; `nondet_tol=0.0` is how much two passes may differ;
            `check_undefined_grad=True` leaves out gradients of outputs, and tangents of inputs;
            `check_grad_dtypes=False` compares dtypes; `check_batched_grad=False` compares with
            `is_grads_batched`; `check_forward_ad=False`, `check_batched_forward_grad=False` and
            `check_backward_ad=True` say which derivatives to check; `fast_mode=False` checks one
            random direction; `masked=None` tolerates rounding where gradients should be zero.

    Returns:
        True; False where a check failed and `raise_exception` is False.

    Raises:
        GradcheckError: where a check fails.
        ValueError: if no input requires grad.
        AssertionError: if nothing is to be checked.
        RuntimeError: if an input overlaps itself.

    Example:
        >>> x = ag.tensor([0.5, 1.0], dtype=ag.float64, requires_grad=True)
        >>> ag.autograd.gradcheck(lambda x: x.sin() * x, x)
        True
    """
    return bool(_blocking(_gradcheck(func, inputs, **options), func))


async def gradcheck_async(func: Callable[..., Any], inputs: Value, **options: Value) -> bool:
    """`gradcheck` as a coroutine: the loop runs between its passes."""
    return await _gradcheck(func, inputs, **options)


def gradgradcheck(
    func: Callable[..., Any], inputs: Value, grad_outputs: Value = None, **options: Value
) -> bool:
    """Compare the second derivatives of a function with finite differences of its gradients.

    Args:
        func: a function or coroutine function of the inputs that returns a tensor or a tuple.
        inputs: a tensor or a tuple; tensors that require grad should be of double precision.
        grad_outputs: the gradients of the outputs; random ones if None.
        options: those of `gradcheck`, with `check_fwd_over_rev=False` and
            `check_rev_over_rev=True` instead of `check_forward_ad` and `check_backward_ad`, and
            `gen_non_contig_grad_outputs=False`: whether random gradients are non-contiguous.

    Returns:
        True; False where a check failed and `raise_exception` is False.

    Raises:
        GradcheckError: where a check fails.
        ValueError: if no input requires grad.
        AssertionError: if nothing is to be checked.
    """
    return bool(_blocking(_gradgradcheck(func, inputs, grad_outputs, **options), func))


async def gradgradcheck_async(
    func: Callable[..., Any], inputs: Value, grad_outputs: Value = None, **options: Value
) -> bool:
    """`gradgradcheck` as a coroutine: the loop runs between its passes."""
    return await _gradgradcheck(func, inputs, grad_outputs, **options)


def _blocking(program: Value, func: Callable[..., Any]) -> Any:
    with Mode(blocking=True):
        return run_multi_pass(program, "gradcheck", waits=waits(func))


# -- the programs ---------------------------------------------------------------------------------


async def _gradcheck(
    func: Callable[..., Any], inputs: Value, *, eps: float = 1e-6, atol: float = 1e-5,
    rtol: float = 1e-3, raise_exception: bool = True, nondet_tol: float = 0.0,
    check_undefined_grad: bool = True, check_grad_dtypes: bool = False,
    check_batched_grad: bool = False, check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False, check_backward_ad: bool = True, fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:  # fmt: skip
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError(
            "Expected at least one of check_forward_ad or check_backward_ad to be True"
        )
    if check_batched_grad and not check_backward_ad:
        raise AssertionError(
            "Setting check_batched_grad=True requires check_backward_ad to be True"
        )
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError(
            "Setting check_batched_forward_grad=True requires check_forward_ad to be True"
        )
    options = Options(
        eps, atol, rtol, nondet_tol, check_undefined_grad, check_grad_dtypes, check_batched_grad,
        check_forward_ad, check_backward_ad, fast_mode, bool(masked),
    )  # fmt: skip
    try:
        await _check(func, as_tuple(inputs), options, check_batched_forward_grad)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


async def _gradgradcheck(
    func: Callable[..., Any], inputs: Value, grad_outputs: Value, *,
    gen_non_contig_grad_outputs: bool = False, check_undefined_grad: bool = True,
    check_batched_grad: bool = False, check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True, **options: Value,
) -> bool:  # fmt: skip
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError(
            "Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True"
        )
    for name, chosen in {
        "check_undefined_grad": check_undefined_grad,
        "check_batched_grad": check_batched_grad,
    }.items():
        if chosen and not check_rev_over_rev:
            raise AssertionError(f"Setting {name}=True requires check_rev_over_rev to be True")
    arguments = as_tuple(inputs)
    if grad_outputs is None:
        outputs = differentiable(await call(func, *arguments))
        vectors = tuple(random_like(out, gen_non_contig_grad_outputs) for out in outputs)
    else:
        vectors = as_tuple(grad_outputs)
    count = len(arguments)
    wanted = differentiable_places(arguments)
    asked = differentiable_places(vectors)

    async def gradients(*given: Value) -> Any:
        inputs, vectors = given[:count], given[count:]
        for place in wanted:
            inputs[place].requires_grad_()
        for place in asked:
            vectors[place].requires_grad_()
        outputs = differentiable(await call(func, *inputs))
        found = await grad(
            outputs,
            [inputs[place] for place in wanted],
            vectors,
            create_graph=True,
            allow_unused=True,
        )
        return tuple(gradient for gradient in found if gradient is not None)

    return await _gradcheck(
        gradients,
        arguments + vectors,
        check_undefined_grad=check_undefined_grad,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        **options,
    )


async def _check(
    func: Callable[..., Any], inputs: tuple[Any, ...], options: Options, batched_forward: bool
) -> None:
    check_inputs(inputs)
    found = as_tuple(await call(func, *inputs))
    outputs = differentiable(found)
    if options.check_backward_ad:
        if any(out.is_complex() for out in found):
            for part in ("imaginary", "real"):
                await compare(part_of(func, part), inputs, options, part, found)
        else:
            await compare(func, inputs, options, "", found)
    if options.check_forward_ad:
        await compare_forward(func, inputs, options)
        if options.check_undefined_grad:
            await check_undefined_tangents(func, inputs)
    if batched_forward:
        await check_batched_forward(func, inputs)
    if not options.check_backward_ad:
        return
    if options.check_batched_grad:
        for place, out in enumerate(outputs):
            await check_batched(place, out, inputs)
    await check_linear(outputs, inputs, options)
    if options.check_undefined_grad:
        await check_undefined(func, inputs)


# In PyTorch the function `gradcheck` hides its module, so programs find the class here.
gradcheck.GradcheckError = GradcheckError  # type: ignore[attr-defined]
