"""Gradients checked against finite differences: `torch.autograd.gradcheck`.

A function with complex outputs is checked twice, for their real and their imaginary parts. A
complex input is perturbed along both axes, and gradients follow PyTorch's convention: the
derivative of a real number by the conjugate. Fast mode compares one random direction of inputs and
outputs instead of the whole Jacobian.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from asyncgrad.aliases import Value
from asyncgrad.autograd import gradcheck_parts as parts
from asyncgrad.autograd.gradcheck_parts import GradcheckError, Options
from asyncgrad.autograd.passes import grad
from asyncgrad.core.modes import Mode
from asyncgrad.scheduler import call, run_multi_pass, waits

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
    return bool(_blocking(gradcheck_async(func, inputs, **options), func))


async def gradcheck_async(func: Callable[..., Any], inputs: Value, **options: Value) -> bool:
    """`gradcheck` as a coroutine: the loop runs between its passes."""
    raise_exception = options.pop("raise_exception", True)
    chosen = Options(**options)
    if not (chosen.check_forward_ad or chosen.check_backward_ad):
        raise AssertionError(
            "Expected at least one of check_forward_ad or check_backward_ad to be True"
        )
    if chosen.check_batched_grad and not chosen.check_backward_ad:
        raise AssertionError(_needs("check_batched_grad", "check_backward_ad"))
    if chosen.check_batched_forward_grad and not chosen.check_forward_ad:
        raise AssertionError(_needs("check_batched_forward_grad", "check_forward_ad"))
    try:
        await _check(func, parts.as_tuple(inputs), chosen)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., Any], inputs: Value, grad_outputs: Value = None, **options: Value
) -> bool:
    """Compare the second derivatives of a function with finite differences of its gradients.

    Returns and raises the same as `gradcheck`.

    Args:
        func, inputs: as for `gradcheck`.
        grad_outputs: the gradients of the outputs; random ones if None.
        options: those of `gradcheck`, with `check_fwd_over_rev=False` and
            `check_rev_over_rev=True` instead of `check_forward_ad` and `check_backward_ad`, and
            `gen_non_contig_grad_outputs=False`: whether random gradients are non-contiguous.

    Raises:
        GradcheckError: where a check fails.
        ValueError: if no input requires grad.
        AssertionError: if nothing is to be checked.
    """
    return bool(_blocking(gradgradcheck_async(func, inputs, grad_outputs, **options), func))


def _needs(name: str, needed: str) -> str:
    return f"Setting {name}=True requires {needed} to be True"


def _blocking(program: Value, func: Callable[..., Any]) -> Any:
    with Mode(blocking=True):
        return run_multi_pass(program, "gradcheck", waits=waits(func))


# -- the programs ---------------------------------------------------------------------------------


async def gradgradcheck_async(
    func: Callable[..., Any], inputs: Value, grad_outputs: Value = None, *,
    gen_non_contig_grad_outputs: bool = False, check_undefined_grad: bool = True,
    check_batched_grad: bool = False, check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True, **options: Value,
) -> bool:  # fmt: skip
    """`gradgradcheck` as a coroutine: the loop runs between its passes."""
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError(
            "Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True"
        )
    if check_undefined_grad and not check_rev_over_rev:
        raise AssertionError(_needs("check_undefined_grad", "check_rev_over_rev"))
    if check_batched_grad and not check_rev_over_rev:
        raise AssertionError(_needs("check_batched_grad", "check_rev_over_rev"))
    arguments = parts.as_tuple(inputs)
    if grad_outputs is None:
        outputs = parts.differentiable(await call(func, *arguments))
        vectors = tuple(parts.random_like(out, gen_non_contig_grad_outputs) for out in outputs)
    else:
        vectors = parts.as_tuple(grad_outputs)
    count = len(arguments)
    wanted = parts.differentiable_places(arguments)
    asked = parts.differentiable_places(vectors)

    async def gradients(*given: Value) -> Any:
        inputs, vectors = given[:count], given[count:]
        for place in wanted:
            inputs[place].requires_grad_()
        for place in asked:
            vectors[place].requires_grad_()
        outputs = parts.differentiable(await call(func, *inputs))
        found = await grad(
            outputs,
            [inputs[place] for place in wanted],
            vectors,
            create_graph=True,
            allow_unused=True,
        )
        return tuple(gradient for gradient in found if gradient is not None)

    return await gradcheck_async(
        gradients,
        arguments + vectors,
        check_undefined_grad=check_undefined_grad,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        **options,
    )


async def _check(func: Callable[..., Any], inputs: tuple[Any, ...], options: Options) -> None:
    parts.check_inputs(inputs)
    found = parts.as_tuple(await call(func, *inputs))
    outputs = parts.differentiable(found)
    if options.check_backward_ad:
        if any(out.is_complex() for out in found):
            for part in ("imaginary", "real"):
                await _compare(parts.part_of(func, part), inputs, options, part, found)
        else:
            await _compare(func, inputs, options, "", found)
    if options.check_forward_ad:
        await _compare_forward(func, inputs, options)
        if options.check_undefined_grad:
            await parts.check_undefined_tangents(func, inputs)
    if options.check_batched_forward_grad:
        await parts.check_batched_forward(func, inputs)
    if not options.check_backward_ad:
        return
    if options.check_batched_grad:
        for place, out in enumerate(outputs):
            await parts.check_batched(place, out, inputs)
    await parts.check_linear(outputs, inputs, options)
    if options.check_undefined_grad:
        await parts.check_undefined(func, inputs)


# -- Jacobians ------------------------------------------------------------------------------------


async def _compare(
    func: Callable[..., Any], inputs: tuple[Any, ...], options: Options, part: str, whole: Value
) -> None:
    """Compare reverse mode with finite differences, for one `part` of complex outputs."""
    found = parts.as_tuple(await call(func, *inputs))
    wanted = [inputs[place] for place in parts.differentiable_places(inputs)]
    kept = [place for place, out in enumerate(found) if out.requires_grad]
    fast = options.fast_mode and bool(kept)
    random = np.random.default_rng(0)
    along = [parts.directions(x, random) if fast else parts.units(x) for x in wanted]
    slopes = [
        await parts.slopes(func, inputs, x, directions, options.eps)
        for x, directions in zip(wanted, along, strict=True)
    ]
    if not kept and any(array.any() for slope in slopes for column in slope for array in column):
        raise GradcheckError("Numerical gradient for function expected to be zero")
    for row, place in enumerate(kept):
        out = found[place]
        ends = parts.directions(out, random) if fast else parts.units(out)
        analytical = await _columns(out, wanted, options, ends)
        for number, exact in enumerate(analytical):
            near = np.array([slope[place] for slope in slopes[number]])
            near, atol = near.reshape(len(along[number]), out.numel()), options.atol
            if wanted[number].is_complex():
                near = near[::2] + 1j * near[1::2]
            if fast:
                near, exact, atol = _along(near, exact, along[number], ends[0], atol)
            if not parts.close(exact, near, options.rtol, atol):
                message = _mismatch(part, whole, row, number, near, exact)
                if fast:
                    message += await _in_slow_mode(func, inputs, options, part, whole)
                raise GradcheckError(message)


def _along(near: Value, exact: Value, u: list[Any], v: Value, atol: float) -> tuple[Any, Any, Any]:
    """Both derivatives along one direction of an input and one of an output, and a tolerance."""
    pulled = exact.reshape(-1)
    one = pulled.real @ u[0].reshape(-1)
    if len(u) > 1:
        one = one + 1j * (pulled.imag @ u[1].imag.reshape(-1))
    scale = sum(float(side.real.sum() + side.imag.sum()) for side in u) * float(v.sum())
    return near[0] @ v.reshape(-1), one, atol * scale


async def _in_slow_mode(
    func: Callable[..., Any], inputs: tuple[Any, ...], options: Options, part: str, whole: Value
) -> str:
    """What the slow mode says of a mismatch that the fast mode has found."""
    try:
        await _compare(func, inputs, options._replace(fast_mode=False), part, whole)
    except GradcheckError as error:
        return f"In slow mode: {error}"
    return (
        "Fast gradcheck failed but element-wise differences are small: the check might pass with "
        "fast_mode=False."
    )


async def _compare_forward(
    func: Callable[..., Any], inputs: tuple[Any, ...], options: Options
) -> None:
    wanted = parts.differentiable_places(inputs)
    random = np.random.default_rng(0)
    for column, place in enumerate(wanted):
        x = inputs[place]
        along = parts.directions(x, random) if options.fast_mode else parts.units(x)
        outputs = parts.as_tuple(await call(func, *inputs))
        found = await parts.slopes(func, inputs, x, along, options.eps)
        for slope, direction in zip(found, along, strict=True):
            tangents = await parts.pushed(func, inputs, place, direction)
            for row, (near, tangent) in enumerate(zip(slope, tangents, strict=True)):
                seen = outputs[row].requires_grad
                if seen and not parts.close(tangent, near, options.rtol, options.atol):
                    raise GradcheckError(
                        _mismatch("", (), row, column, near, tangent, "computed with forward mode ")
                    )


async def _columns(out: Value, wanted: Sequence[Any], options: Options, rows: list[Any]) -> Any:
    """The gradients of each input for some gradients of an output, as columns."""
    twice = [[np.zeros((x.numel(), len(rows)), x.dtype) for x in wanted] for _ in range(2)]
    for matrices in twice:
        for place, row in enumerate(rows):
            ends = parts.placed(row.reshape(out.shape), out)
            gradients = await grad(out, wanted, ends, retain_graph=True, allow_unused=True)
            for matrix, x, gradient in zip(matrices, wanted, gradients, strict=True):
                if gradient is None:
                    continue
                if gradient.shape != x.shape:
                    raise GradcheckError("Analytical gradient has incorrect size")
                if gradient.dtype != x.dtype and options.check_grad_dtypes:
                    raise GradcheckError("Gradient has dtype mismatch")
                matrix[:, place] = parts.values_of(gradient).reshape(-1)
    for first, second in zip(*twice, strict=True):
        if not np.allclose(first, second, rtol=0, atol=options.nondet_tol, equal_nan=True):
            raise GradcheckError(
                f"Backward is not reentrant, i.e., running backward with same input and "
                f"grad_output multiple times gives different values, although analytical gradient "
                f"matches numerical gradient. The tolerance for nondeterminism was "
                f"{options.nondet_tol}. Pass nondet_tol= if the function is not deterministic."
            )
    return twice[0]


def _mismatch(
    part: str, whole: Value, row: int, column: int, near: Value, exact: Value, mode: str = ""
) -> str:
    complex_places = [out.is_complex() for out in whole if out.requires_grad]
    prefix = ""
    if part and complex_places[row]:
        prefix = f"While considering the {part} part of complex outputs only, "
    return (
        f"{prefix}Jacobian {mode}mismatch for output {row} with respect to input {column},\n"
        f"numerical:{near}\nanalytical:{exact}\n"
    )


# In PyTorch the function `gradcheck` hides its module, so programs find the class here.
gradcheck.GradcheckError = GradcheckError  # type: ignore[attr-defined]
