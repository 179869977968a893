"""Finite differences, and the checks of `gradcheck` other than Jacobians."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from asyncgrad.aliases import Gradient, Value
from asyncgrad.autograd.forward_ad import UnpackedDualTensor, make_dual, nested_level, unpack_dual
from asyncgrad.autograd.function import Function
from asyncgrad.autograd.passes import grad
from asyncgrad.core.frames import warn
from asyncgrad.core.modes import Mode, current
from asyncgrad.core.variable import Variable, requires_grad, wrap
from asyncgrad.creation import zeros_like
from asyncgrad.devices import CPU
from asyncgrad.ops.batching import Level, batch_of, lift_batch
from asyncgrad.ops.memory import repeats
from asyncgrad.ops.namespace import RECORDED
from asyncgrad.ops.promotion import promote_dtypes
from asyncgrad.ops.tensors.rng import generator_in_force
from asyncgrad.ops.tensors.transfer import moved, on_host
from asyncgrad.records import NamedTuple
from asyncgrad.scheduler import call


def as_tuple(value: Value) -> tuple[Any, ...]:
    """Wrap a single tensor in a tuple; make lists tuples."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def values_of(x: Value) -> Any:
    """A copy of a tensor's values in host memory."""
    return np.array(on_host(x.detach()))


def placed(values: Value, like: Value) -> Any:
    """A tensor of the given values, with the dtype and device of another tensor."""
    metadata = like._metadata
    array = moved(np.asarray(values, metadata.dtype), CPU, metadata.device)
    return wrap(array, metadata.F.metadata_of(array))


async def slopes(
    func: Callable[..., Any], inputs: tuple[Any, ...], x: Value, directions: Sequence[Any],
    eps: float,
) -> list[list[Any]]:  # fmt: skip
    """The central differences of the outputs along some directions of one input."""
    start = values_of(x)

    def put(values: Value) -> None:
        if start.size:  # Otherwise the memory may be read-only.
            x._metadata.F.assign(x._array, placed(values, x)._array)

    found = []
    for direction in directions:
        sides = []
        try:
            for sign in (-eps, eps):
                put(start + sign * direction)
                outputs = as_tuple(await call(func, *inputs))
                sides.append([values_of(out) for out in outputs])
        finally:
            put(start)
        for low, high in zip(*sides, strict=True):
            for what in ("shape", "dtype"):
                if getattr(low, what) != getattr(high, what):
                    raise AssertionError(
                        f"Expected `func` to return outputs with the same {what} when inputs are "
                        f"perturbed by {eps}, but got: {what}s {getattr(low, what)} and "
                        f"{getattr(high, what)}."
                    )
        slope = [
            np.subtract(high, low, dtype=None if high.dtype.kind in "fc" else float) / (2 * eps)
            for low, high in zip(*sides, strict=True)
        ]
        found.append(slope)
    return found


def _axes(x: Value) -> tuple[complex, ...]:
    """The directions in which an element of a tensor can change."""
    return (1, 1j) if x.is_complex() else (1,)


def units(x: Value) -> list[Any]:
    """The unit vectors of a tensor: two for each complex element."""
    size = x.numel()
    return [axis * unit for unit in np.eye(size).reshape(size, *x.shape) for axis in _axes(x)]


def directions(x: Value, random: Value) -> list[Any]:
    """A random direction in the space of a tensor: real, and imaginary if it is complex."""
    return [axis * vector(x, random) for axis in _axes(x)]


def vector(x: Value, random: Value) -> Any:
    """A random vector of a tensor's shape and length one."""
    values = random.random(x.shape)
    return values / max(np.linalg.norm(values), 1e-300)


def close(found: Value, expected: Value, rtol: float = 1e-5, atol: float = 1e-8) -> bool:
    """Whether two arrays are equal within the tolerances."""
    dtype = promote_dtypes(found.dtype, expected.dtype)
    return np.allclose(found.astype(dtype), expected.astype(dtype), rtol, atol)


_DOUBLE = frozenset({np.dtype("float64"), np.dtype("complex128")})


class GradcheckError(RuntimeError):
    """Gradients differ from finite differences, or another check of `gradcheck` failed."""


class Options(NamedTuple):
    """The options of `gradcheck` that its checks use, with PyTorch's defaults."""

    eps: float = 1e-6
    atol: float = 1e-5
    rtol: float = 1e-3
    nondet_tol: float = 0.0
    check_undefined_grad: bool = True
    check_grad_dtypes: bool = False
    check_batched_grad: bool = False
    check_batched_forward_grad: bool = False
    check_forward_ad: bool = False
    check_backward_ad: bool = True
    fast_mode: bool = False
    masked: bool | None = None


class _Undefined(Function):
    """The identity; its backward returns no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Value) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Gradient) -> Any:
        return None


def part_of(func: Callable[..., Any], part: str) -> Any:
    """A function whose complex outputs are replaced by their real or imaginary parts."""
    factor = 1 if part == "real" else -1j

    async def seen(*inputs: Value) -> tuple[Any, ...]:
        outputs = as_tuple(await call(func, *inputs))
        return tuple(RECORDED.real(out * factor) if out.is_complex() else out for out in outputs)

    return seen


async def tangents_of(
    func: Callable[..., Any], inputs: tuple[Any, ...], directions: dict[int, Any]
) -> list[UnpackedDualTensor]:
    """The outputs and their tangents, from tangents of some inputs, none of which requires grad."""
    wanted = differentiable_places(inputs)
    with nested_level():
        given = [x.detach() if at in wanted else x for at, x in enumerate(inputs)]
        for place, direction in directions.items():
            given[place] = make_dual(given[place], placed(direction, inputs[place]))
        return [unpack_dual(out) for out in as_tuple(await call(func, *given))]


async def pushed(
    func: Callable[..., Any], inputs: tuple[Any, ...], place: int, direction: Value
) -> list[Any]:
    """The outputs' tangents, from a tangent of one input and zero tangents of the others."""
    directions = {at: np.zeros(inputs[at].shape) for at in differentiable_places(inputs)}
    directions[place] = direction
    return [
        np.zeros(primal.shape) if tangent is None else values_of(tangent)
        for primal, tangent in await tangents_of(func, inputs, directions)
    ]


async def check_batched(place: int, out: Value, inputs: tuple[Any, ...]) -> None:
    """Check that a batch of gradients gives the same as its gradients one by one."""
    wanted = [inputs[i] for i in differentiable_places(inputs)]
    vectors = [random_like(out, False).detach() for _ in range(2)]
    one_by_one = [
        [
            None if gradient is None else values_of(gradient)
            for gradient in await grad(out, wanted, vector, retain_graph=True, allow_unused=True)
        ]
        for vector in vectors
    ]
    batch = placed(np.stack([values_of(vector) for vector in vectors]), out)
    try:
        together = await grad(
            out, wanted, batch, retain_graph=True, allow_unused=True, is_grads_batched=True
        )
    except RuntimeError as error:
        raise GradcheckError(f"While computing batched gradients, got: {error}") from error
    _compare_batches(
        together,
        one_by_one,
        f"gradcheck or gradgradcheck failed while testing batched gradient computation. For output "
        f"{place} and input {{}}: ",
    )


def _compare_batches(together: Sequence[Any], one_by_one: Sequence[Any], message: str) -> None:
    for number, (found, *expected) in enumerate(zip(together, *one_by_one, strict=True)):
        if found is not None and not close(values_of(found), right := np.stack(expected)):
            raise GradcheckError(f"{message.format(number)}got\n{found}\nexpected\n{right}")


async def check_batched_forward(func: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
    """Check that a batch of tangents gives the same as its tangents one by one."""
    wanted = differentiable_places(inputs)
    for number, place in enumerate(wanted):
        x = inputs[place]
        directions = np.stack([values_of(random_like(x, False)) for _ in range(2)])
        one_by_one = [await pushed(func, inputs, place, direction) for direction in directions]
        level = Level(2, "error", current().batch, tangents=True)
        try:
            with Mode(batch=level), nested_level():
                given = [x.detach() if at in wanted else x for at, x in enumerate(inputs)]
                given[place] = make_dual(given[place], lift_batch(placed(directions, x), level))
                found = await call(func, *given)
                tangents = [unpack_dual(out).tangent for out in as_tuple(found)]
                together = [None if t is None else batch_of(t, level) for t in tangents]
        except RuntimeError as error:
            raise GradcheckError(f"While computing batched gradients, got: {error}") from error
        _compare_batches(
            together,
            one_by_one,
            f"gradcheck failed while testing batched gradient computation with forward-mode AD. "
            f"For output {{}} and input {number}: ",
        )


async def check_linear(outputs: Value, inputs: tuple[Any, ...], options: Options) -> None:
    """Check that zero gradients of the outputs give zeros, with dtype and shape of the inputs."""
    wanted = [inputs[place] for place in differentiable_places(inputs)]
    if not outputs:
        return
    for x, gradient in zip(wanted, await _from_zeros(outputs, wanted), strict=True):
        if gradient is None:
            continue
        array = values_of(gradient)
        if (not close(array, 0 * array)) if options.masked else array.any():
            raise GradcheckError("backward not multiplied by grad_output")
        for what, wrong in {"dtype": "type", "device": "device", "shape": "size"}.items():
            if getattr(gradient, what) != getattr(x, what):
                raise GradcheckError(f"grad is incorrect {wrong}")


async def check_undefined_tangents(func: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
    """Check that an input without a tangent gives the same as one with a tangent of zeros."""
    wanted = differentiable_places(inputs)
    directions = {place: values_of(random_like(inputs[place], False)) for place in wanted}
    for place in wanted:
        x = inputs[place]
        others = {at: direction for at, direction in directions.items() if at != place}
        zeros = await tangents_of(func, inputs, {**others, place: np.zeros(x.shape)})
        missing = await tangents_of(func, inputs, others)
        for row, ((_, one), (_, other)) in enumerate(zip(zeros, missing, strict=True)):
            if one is None or other is None:
                continue
            got, expected = values_of(one), values_of(other)
            if not close(got, expected):
                raise GradcheckError(
                    f"Mismatch in tangent values for output with index: {row} when input: {x} has "
                    f"an undefined tangent value. Got: {got} but expected: {expected}. Pass "
                    f"check_undefined_grad=False if that never occurs."
                )


async def check_undefined(func: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
    """Check that backward accepts missing gradients, all at once and one at a time."""
    wanted = [inputs[place] for place in differentiable_places(inputs)]
    count = len(differentiable(await call(func, *inputs)))
    for missing in [None, *range(count if count > 1 else 0)]:
        outputs = [
            _Undefined.apply(out) if missing in {None, place} else out
            for place, out in enumerate(differentiable(await call(func, *inputs)))
        ]
        if not outputs:
            return
        try:
            gradients = await _from_zeros(outputs, wanted)
        except RuntimeError as error:
            raise GradcheckError(
                f"Expected backward function to handle undefined output grads, got: {error}. Pass "
                f"check_undefined_grad=False if they never occur."
            ) from error
        for gradient in gradients:
            if gradient is not None and values_of(gradient).any():
                raise GradcheckError(
                    "Expected all input grads to be undefined or zero when all output grads are "
                    "undefined or zero. Pass check_undefined_grad=False if they never occur."
                )


async def _from_zeros(outputs: Sequence[Any], wanted: Sequence[Any]) -> Any:
    zeros = [zeros_like(out) for out in outputs]
    return await grad(outputs, wanted, zeros, retain_graph=True, allow_unused=True)


def check_inputs(inputs: tuple[Any, ...]) -> None:
    """Raise if no input requires grad, or elements of an input share memory."""
    wanted = differentiable_places(inputs)
    for place in wanted:
        x = inputs[place]
        if x.dtype not in _DOUBLE:
            warn(
                f"Input #{place} requires gradient and is not a double precision floating point "
                f"or complex. This check will likely fail if all the inputs are not of double "
                f"precision floating point or complex."
            )
        if x.numel() and repeats(x._array):
            raise RuntimeError(
                f"The {place}th input has a dimension with stride 0. gradcheck only supports "
                f"inputs that are non-overlapping to be able to compute the numerical gradients "
                f"correctly. You should call .contiguous on the input before passing it to "
                f"gradcheck."
            )
        if x.numel() and not x._metadata.F.make_writeable(x._array):
            raise RuntimeError(
                f"gradcheck changes its inputs in place, but the memory of the {place}th is "
                f"read-only. Clone it first."
            )
    if not wanted:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them "
            "have requires_grad=True."
        )


def differentiable_places(inputs: tuple[Any, ...]) -> list[int]:
    """The indices of the inputs that require grad."""
    return [i for i, x in enumerate(inputs) if isinstance(x, Variable) and requires_grad(x)]


def differentiable(outputs: Value) -> tuple[Any, ...]:
    """The outputs that require grad."""
    return tuple(out for out in as_tuple(outputs) if out.requires_grad)


def random_like(out: Value, gaps: bool) -> Any:
    """A random gradient for an output, non-contiguous if `gaps`."""
    # Drawn as all else is, so that a seed makes a check repeatable.
    values = generator_in_force().draw("uniform", -1, 1, (2, *out.shape))
    array = (values[0] + 1j * values[1] if out.is_complex() else values[0]).astype(out.dtype)
    if gaps and array.ndim:
        array = np.repeat(array, 2, axis=-1)[..., ::2]
    array = out._metadata.F.xp.asarray(array)
    return wrap(array, out._metadata).requires_grad_()
