"""Parts of updates: state tensors, option checks, and elementwise kernels run in tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from asyncgrad.core.array_holders import holders, rebind
from asyncgrad.core.variable import Variable, bump_version, wrap
from asyncgrad.devices import CPU
from asyncgrad.ops.namespace import metadata_of
from asyncgrad.ops.promotion import default_dtype
from asyncgrad.records import NamedTuple
from asyncgrad.types import Array, Tensor

#: A group of parameters: the list `params`, and options by their names.
Group: TypeAlias = dict[str, Any]
#: A parameter's state by the names of its entries.
State: TypeAlias = dict[str, Any]
#: A learning rate, and the decay rates of two means.
Rate: TypeAlias = "float | Tensor"
Betas: TypeAlias = "tuple[float, float] | tuple[Tensor, Tensor]"
#: What optimisers are made for: tensors, pairs of a name and a tensor, or groups with options.
Params: TypeAlias = "Iterable[Tensor | tuple[str, Tensor] | dict[str, Any]]"
#: Those parameters of a group that have a gradient, and their gradients.
Gradients: TypeAlias = "list[tuple[Any, Any]]"

#: The number of elements updated at a time, so that the arrays of an update stay in the cache.
TILE = 65_536


class Step(NamedTuple):
    """What a step does to the arrays that it is given."""

    #: The name of an update in `devices.updates`.
    update: str
    #: The update's numbers: floats, or arrays without dimensions on the device.
    numbers: Sequence[Any]
    #: The update's flags.
    flags: tuple[bool, ...] = ()
    #: Whether the values shrink first, by a factor that is the last of the numbers.
    shrinks: bool = False
    #: How much of the values is added to the gradient, which is negated before if `maximize`.
    decay: float = 0.0
    maximize: bool = False

    def for_kernel(self) -> tuple[Any, ...]:
        """The numbers that a compiled kernel takes."""
        return (*self.numbers, self.decay, float(self.maximize), *map(float, self.flags))

    def all_flags(self) -> tuple[bool, ...]:
        """The flags of the update with its direction, `of_gradient`."""
        return (self.maximize, bool(self.decay), *self.flags)


def zeros_like(parameter: Tensor) -> Tensor:
    """A tensor of zeros for an optimiser's state, with the parameter's memory layout."""
    metadata = parameter._metadata
    made: Tensor = wrap(metadata.F.xp.zeros_like(parameter._array), metadata)
    return made


def put_values(variable: Tensor, values: Array) -> None:
    """Copy new values into a leaf, or give it the new array if its old values are still needed."""
    if holders(variable):
        rebind({variable: values})
    else:
        bump_version(variable)
        variable._metadata.device.launching(np.copyto)(variable._array, values)


def filled_like(parameter: Tensor, value: float) -> Tensor:
    """A state tensor of one number, in both parts of a complex parameter's."""
    metadata = parameter._metadata
    number = complex(value, value) if metadata.is_complex else value
    made: Tensor = wrap(metadata.F.xp.full_like(parameter._array, number), metadata)
    return made


def host_number(value: float) -> Tensor:
    """A number of an optimiser's state as a host tensor, of float32 unless floats are float64."""
    array = np.array(value, dtype=np.promote_types(np.float32, default_dtype()))
    made: Tensor = wrap(array, metadata_of(array, CPU))
    return made


def steps_of(state: State) -> Array:
    """How many steps a state has taken. It gets a tensor of the number if it has none."""
    step = state.get("step")
    if not isinstance(step, Variable):
        # Older versions of PyTorch have saved a plain number.
        step = state["step"] = host_number(step or 0.0)
    array: Array = step._array
    return array


def next_number(state: State) -> int:
    """The number of a state's next step, from 1.

    It is counted after the update: an interrupt before leaves the number that the state belongs to.
    """
    return int(steps_of(state)) + 1


def in_tiles(kernel: Callable[..., None], arrays: Sequence[Array]) -> None:
    """Run an elementwise update on arrays of one shape, in place, in tiles if they are large.

    Complex arrays are updated as their real and imaginary parts.
    """
    first = arrays[0]
    if first.dtype.kind == "c":
        for part in ("real", "imag"):
            in_tiles(kernel, [getattr(a, part) for a in arrays])
        return
    if not first.shape:
        # NumPy's operations on 0-d arrays return scalars, which can't be written to.
        arrays = [a.reshape(1) for a in arrays]
        first = arrays[0]
    size = first.size
    # On other devices each launch is costly, and tiles would not help: the cache is the host's.
    if (
        size <= TILE
        or not isinstance(first, np.ndarray)
        or not all(a.flags.c_contiguous for a in arrays)
    ):
        kernel(*arrays)
        return
    flat = [a.reshape(-1) for a in arrays]
    for start in range(0, size, TILE):
        piece = slice(start, start + TILE)
        kernel(*[a[piece] for a in flat])


def check_option(name: str, value: Any, *, below: float | None = None) -> None:
    """Raise PyTorch's ValueError unless an option is at least 0, and less than `below`."""
    if isinstance(value, Variable) and value._metadata.size != 1:
        raise ValueError(f"Tensor {'lr' if name == 'learning rate' else name} must be 1-element")
    if not (value >= 0.0 and (below is None or value < below)):
        raise ValueError(f"Invalid {name}: {value}")


def check_bound(name: str, value: Any, *, least: float = 0) -> None:
    """Raise PyTorch's ValueError unless an option is at least `least`."""
    if isinstance(value, Variable) and value._metadata.size != 1:
        raise ValueError("Tensor lr must be 1-element")
    if not value >= least:
        raise ValueError(f"{name} should be >= {least} but is: {value}")


#: How errors call an option: by its name and "value" if it is not here.
_LABELS = {"lr": "learning rate", "eps": "epsilon value"}


def check_options(options: Mapping[str, Any], *names: str) -> None:
    """Raise PyTorch's ValueError unless options are at least 0, and `betas` less than 1."""
    for name in names:
        value = options[name]
        if name == "betas":
            for index in range(2):
                check_option(f"beta parameter at index {index}", value[index], below=1.0)
        else:
            check_option(_LABELS.get(name, f"{name} value"), value)


def check_manner(options: Mapping[str, Any]) -> None:
    """Raise for conflicting options."""
    if options.get("fused") and (options["foreach"] or options["differentiable"]):
        raise RuntimeError(
            "`fused` and `foreach` cannot be `True` together."
            if options["foreach"]
            else "`fused` does not support `differentiable`"
        )
