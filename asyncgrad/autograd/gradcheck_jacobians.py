"""The checks of `gradcheck` that compare Jacobians with finite differences.

A function with complex outputs is checked twice, for their real and their imaginary parts. A
complex input is perturbed along both axes, and gradients follow PyTorch's convention: the
derivative of a real number by the conjugate. Fast mode compares one random direction of inputs and
outputs instead of the whole Jacobian.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.autograd.gradcheck_parts import (
    GradcheckError,
    Options,
    as_tuple,
    close,
    differentiable,
    differentiable_places,
    directions,
    placed,
    pushed,
    slopes,
    units,
    values_of,
    vector,
)
from asyncgrad.autograd.passes import grad
from asyncgrad.scheduler import call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncgrad.aliases import Value


async def compare(
    func: Callable[..., Any], inputs: tuple[Any, ...], options: Options, part: str, whole: Value
) -> None:
    """Compare reverse mode with finite differences, for one `part` of complex outputs."""
    found = as_tuple(await call(func, *inputs))
    outputs = differentiable(found)
    wanted = [inputs[place] for place in differentiable_places(inputs)]
    kept = [place for place, out in enumerate(found) if out.requires_grad]
    if not outputs:
        for x in wanted:
            for column in await slopes(func, inputs, x, units(x), options.eps):
                if any(array.any() for array in column):
                    raise GradcheckError("Numerical gradient for function expected to be zero")
        return
    if options.fast_mode:
        await _compare_fast(func, inputs, options, part, whole, outputs, kept)
        return
    numerical = [await slopes(func, inputs, x, units(x), options.eps) for x in wanted]
    for row, out in enumerate(outputs):
        analytical = await _columns(out, wanted, options, [side for side, *_ in units(out)])
        for number, (x, exact) in enumerate(zip(wanted, analytical, strict=True)):
            near = _matrix([slope[kept[row]] for slope in numerical[number]], x, out)
            if not close(exact, near, options.rtol, options.atol):
                raise GradcheckError(_mismatch(part, whole, row, number, near, exact))


async def _compare_fast(
    func: Callable[..., Any], inputs: tuple[Any, ...], options: Options, part: str, whole: Value,
    outputs: tuple[Any, ...], kept: list[int],
) -> None:  # fmt: skip
    """Compare along one random direction of the inputs and one of the outputs.

    `outputs` are those that require grad, `kept` their numbers.
    """
    wanted = [inputs[place] for place in differentiable_places(inputs)]
    random = np.random.default_rng(0)
    right = [directions(x, random) for x in wanted]
    left = [vector(out, random) for out in outputs]
    numerical = [
        await slopes(func, inputs, x, u, options.eps) for x, u in zip(wanted, right, strict=True)
    ]
    for row, (out, v) in enumerate(zip(outputs, left, strict=True)):
        analytical = await _columns(out, wanted, options, [v])
        for column, (ends, exact) in enumerate(zip(right, analytical, strict=True)):
            (u,) = ends
            pulled = exact.reshape(-1)
            one = pulled.real @ u[0].reshape(-1)
            if len(u) > 1:
                one = one + 1j * (pulled.imag @ u[1].reshape(-1))
            near = numerical[column][0][kept[row]].reshape(-1) @ v.reshape(-1)
            scale = sum(float(side.sum()) for side in u) * float(v.sum())
            if not close(one, near, options.rtol, options.atol * scale):
                slow = options._replace(fast_mode=False)
                message = _mismatch(part, whole, row, column, near, one)
                try:
                    await compare(func, inputs, slow, part, whole)
                except GradcheckError as error:
                    raise GradcheckError(f"{message}In slow mode: {error}") from None
                raise GradcheckError(
                    f"{message}Fast gradcheck failed but element-wise differences are small: the "
                    f"check might pass with fast_mode=False."
                )


async def compare_forward(
    func: Callable[..., Any], inputs: tuple[Any, ...], options: Options
) -> None:
    """Compare forward mode with finite differences."""
    wanted = differentiable_places(inputs)
    random = np.random.default_rng(0)
    for column, place in enumerate(wanted):
        x = inputs[place]
        along = directions(x, random) if options.fast_mode else units(x)
        sides = [[factor * side] for d in along for factor, side in zip((1, 1j), d, strict=False)]
        outputs = as_tuple(await call(func, *inputs))
        found = await slopes(func, inputs, x, sides, options.eps)
        for slope, (side,) in zip(found, sides, strict=True):
            tangents = await pushed(func, inputs, place, side)
            for row, (near, tangent) in enumerate(zip(slope, tangents, strict=True)):
                seen = outputs[row].requires_grad
                if seen and not close(tangent, near, options.rtol, options.atol):
                    raise GradcheckError(
                        _mismatch("", (), row, column, near, tangent, "computed with forward mode ")
                    )


async def _columns(out: Value, wanted: Sequence[Any], options: Options, rows: list[Any]) -> Any:
    """The gradients of each input for some gradients of an output, as columns."""
    twice: list[list[Any]] = []
    for _ in range(2):
        found: list[list[Any]] = [[] for _ in wanted]
        for row in rows:
            ends = placed(row.reshape(out.shape), out)
            gradients = await grad(out, wanted, ends, retain_graph=True, allow_unused=True)
            for column, x, gradient in zip(found, wanted, gradients, strict=True):
                if gradient is not None and gradient.shape != x.shape:
                    raise GradcheckError("Analytical gradient has incorrect size")
                if gradient is not None and gradient.dtype != x.dtype and options.check_grad_dtypes:
                    raise GradcheckError("Gradient has dtype mismatch")
                blank = np.zeros(x.shape, x.dtype)
                column.append(blank if gradient is None else values_of(gradient))
        twice.append(
            [
                np.stack([g.reshape(-1) for g in column], axis=1)
                if column
                else np.zeros((x.numel(), 0), x.dtype)
                for column, x in zip(found, wanted, strict=True)
            ]
        )
    for first, second in zip(*twice, strict=True):
        if first.size and not np.max(np.abs(first - second)) <= options.nondet_tol:
            raise GradcheckError(
                f"Backward is not reentrant, i.e., running backward with same input and "
                f"grad_output multiple times gives different values, although analytical gradient "
                f"matches numerical gradient. The tolerance for nondeterminism was "
                f"{options.nondet_tol}. Pass nondet_tol= if the function is not deterministic."
            )
    return twice[0]


def _matrix(slopes_: list[Any], x: Value, out: Value) -> Any:
    """Slopes as a matrix, by input element and output element."""
    if not slopes_:
        return np.zeros((x.numel(), out.numel()))
    return np.stack([slope.reshape(-1) for slope in slopes_])


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
