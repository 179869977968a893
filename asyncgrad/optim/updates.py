"""What updates are made of: state, checked options, pieces that fit the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.autograd.modes import no_grad
from asyncgrad.core.array_holders import is_held, rebind, weights_lock
from asyncgrad.core.variable import Variable, bump_version, wrap
from asyncgrad.devices import CPU
from asyncgrad.ops.api.conversion import to
from asyncgrad.ops.namespace import metadata_of
from asyncgrad.ops.promotion import category

if TYPE_CHECKING:
    from collections.abc import Callable

#: Elements that are updated at a time: what an update touches stays in the cache.
TILE = 65_536


def zeros_like(parameter: Any) -> Any:
    """A tensor of zeros for an optimiser's state, laid out like the parameter."""
    metadata = parameter._metadata
    return wrap(metadata.F.xp.zeros_like(parameter._array), metadata)


def copied_beside(key: str, value: Any, parameter: Any) -> Any:
    """A value of a loaded state, beside the parameter, and with its dtype if that is a real one.

    Complex parameters have state of both kinds. The count of steps keeps its dtype, and is on the
    host: nobody has to wait for it.
    """
    if isinstance(value, (list, tuple)):
        return type(value)(copied_beside(key, part, parameter) for part in value)
    if isinstance(value, dict):
        return {name: copied_beside(name, part, parameter) for name, part in value.items()}
    if not isinstance(value, Variable):
        return value
    place, dtype = parameter._metadata.device, parameter._metadata.dtype
    if key == "step":
        place = CPU
    if key == "step" or category(dtype) != 2:
        dtype = value._metadata.dtype
    with no_grad():
        return to(value, place, dtype, copy=True)


def put_values(variable: Any, values: Any) -> None:
    """Give a leaf the values of a new array: in place, or that array itself where it is held."""
    if is_held(variable):
        with weights_lock:
            rebind(variable, values)
    else:
        bump_version(variable)
        variable._metadata.device.launching(np.copyto)(variable._array, values)


def host_number(value: float) -> Any:
    """A number of an optimiser's state; a tensor of the host, as in PyTorch's state dicts."""
    array = np.array(value, dtype=np.float32)
    return wrap(array, metadata_of(array, CPU))


def new_step() -> Any:
    """A count of steps."""
    return host_number(0.0)


def count_step(state: dict[str, Any]) -> int:
    """The number of this step."""
    step = state.get("step")
    if step is None:
        step = state["step"] = new_step()
    array = step._array
    array += 1
    return int(array)


def descending(
    g: Any, p: Any, weight_decay: float, maximize: bool, *, shrink: float | None = None
) -> Any:
    """The gradient to step against, with weight decay; it may be a new array.

    Args:
        g: the gradient.
        p: the parameter's values.
        weight_decay: adds as much of the parameter to the gradient.
        maximize: step along the gradient.
        shrink: shrink the parameter by so much of `weight_decay` instead.
    """
    if maximize:
        g = -g
    if weight_decay:
        if shrink is None:
            return g + weight_decay * p
        p *= 1 - shrink * weight_decay
    return g


def follow_mean(g: Any, mean: Any, beta: float) -> Any:
    """Move the mean of the gradient; returns an array to be written into."""
    t = g - mean
    t *= 1 - beta
    mean += t
    return t


def follow_square(g: Any, square: Any, beta: float, out: Any = None) -> Any:
    """The same for the gradient's square; what is returned is `out` if that is given."""
    t = np.multiply(g, g, out=out)
    t *= 1 - beta
    square *= beta
    square += t
    return t


def follow(g: Any, mean: Any, square: Any, beta1: float, beta2: float) -> Any:
    """Move the means of the gradient and of its square; returns an array to be written into."""
    return follow_square(g, square, beta2, follow_mean(g, mean, beta1))


def in_tiles(kernel: Callable[..., None], arrays: tuple[Any, ...], *options: Any) -> None:
    """Run an elementwise update on arrays, piece by piece where they are large.

    Complex arrays are updated as their real and imaginary parts.

    Args:
        kernel: a function of as many arrays, which it changes in place, and of the options.
        arrays: of one shape; None for those that the update goes without.
        options: numbers.
    """
    first = arrays[0]
    if first.dtype.kind == "c":
        for part in ("real", "imag"):
            in_tiles(
                kernel, tuple(None if a is None else getattr(a, part) for a in arrays), *options
            )
        return
    if not first.shape:
        # NumPy answers 0-d arrays with scalars, which can't be written into.
        arrays = tuple(None if a is None else a.reshape(1) for a in arrays)
        first = arrays[0]
    size = first.size
    # Launching is what costs on other devices, and the host's cache is of no use there.
    if (
        size <= TILE
        or not isinstance(first, np.ndarray)
        or not all(a is None or a.flags.c_contiguous for a in arrays)
    ):
        kernel(*arrays, *options)
        return
    flat = tuple(None if a is None else a.reshape(-1) for a in arrays)
    for start in range(0, size, TILE):
        piece = slice(start, start + TILE)
        kernel(*[None if a is None else a[piece] for a in flat], *options)


def check_option(name: str, value: Any, *, below: float | None = None) -> None:
    """Raise unless an option is at least 0, and less than `below`.

    Raises:
        ValueError: with PyTorch's words.
    """
    if isinstance(value, Variable) and value._metadata.size != 1:
        raise ValueError(f"Tensor {'lr' if name == 'learning rate' else name} must be 1-element")
    if not (value >= 0.0 and (below is None or value < below)):
        raise ValueError(f"Invalid {name}: {value}")


def check_bound(name: str, value: Any, *, least: float = 0) -> None:
    """Raise unless an option is at least so great.

    Raises:
        ValueError: with PyTorch's words.
    """
    if isinstance(value, Variable) and value._metadata.size != 1:
        raise ValueError("Tensor lr must be 1-element")
    if not value >= least:
        raise ValueError(f"{name} should be >= {least} but is: {value}")


def refuse_complex(name: str, parameter: Any) -> None:
    """Raise if a parameter is complex, which the optimiser can't update.

    Raises:
        RuntimeError: with PyTorch's words.
    """
    if parameter._metadata.is_complex:
        raise RuntimeError(
            f"{name} does not support complex parameters. Give them to another optimizer, as Adam."
        )


def check_betas(betas: Any) -> None:
    """Raise unless they are two numbers, or two tensors of one element, within [0, 1).

    Raises:
        ValueError: with PyTorch's words.
    """
    beta1, beta2 = betas
    if not any(all(isinstance(beta, kind) for beta in betas) for kind in (float, Variable)):
        raise ValueError("betas must be either both floats or both Tensors")
    check_option("beta parameter at index 0", beta1, below=1.0)
    check_option("beta parameter at index 1", beta2, below=1.0)


def check_manner(name: str, differentiable: bool, foreach: Any, fused: Any = None) -> None:
    """Raise for what in-place updates can't do, and for options that exclude one another."""
    if fused and (foreach or differentiable):
        raise RuntimeError(
            "`fused` and `foreach` cannot be `True` together."
            if foreach
            else "`fused` does not support `differentiable`"
        )
    if differentiable:
        raise NotImplementedError(
            f"{name}: differentiable=True is not supported: a step is not recorded. Write the "
            f"update as tensor operations, with gradients from asyncgrad.grad(create_graph=True)."
        )
