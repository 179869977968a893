"""Random number generators.

Several threads and tasks can draw from a generator at once: each draw holds a lock. A large draw
takes only a seed under the lock and makes its values from that, so that others need not wait.
"""

from __future__ import annotations

import operator
import os
import weakref
from math import prod
from typing import Any

import numpy as np

from asyncgrad.core.locks import RLock, at_fork
from asyncgrad.core.modes import Mode, current
from asyncgrad.core.variable import Variable, wrap
from asyncgrad.devices import CPU
from asyncgrad.errors import AutogradError
from asyncgrad.ops.batching import check_randomness
from asyncgrad.ops.dtype import is_half, refuse
from asyncgrad.ops.dtype_device import as_device
from asyncgrad.ops.namespace import metadata_of

#: The seed of generators that got none, which is PyTorch's.
_DEFAULT_SEED = 67280421310721
#: From this many values on, a draw releases the lock before it makes them.
_LARGE = 1 << 16
#: The lengths in bytes of a state's fields: seed, state, increment, kept half, kept flag.
_FIELDS = (8, 16, 16, 4, 4)
#: The precision in bits of uniform numbers, for the dtypes that NumPy does not draw.
_BITS = {"float16": 11, "bfloat16": 8}


class Generator:
    """A source of random numbers, safe to draw from in several threads and tasks.

    Args:
        device: the device of the tensors that are drawn; the numbers are drawn on the host.

    Example:
        >>> one, two = ag.Generator().manual_seed(5), ag.Generator().manual_seed(5)
        >>> bool((ag.rand(3, generator=one) == ag.rand(3, generator=two)).all())
        True
    """

    __slots__ = ("__weakref__", "_lock", "_random", "_seed", "device")

    def __init__(self, device: Any = "cpu") -> None:
        #: The device of the tensors that are drawn.
        self.device = as_device("Generator", device)
        self._lock = RLock()
        self._start(_DEFAULT_SEED)
        _all.add(self)

    def _start(self, seed: int) -> None:
        fresh = np.random.Generator(np.random.PCG64(seed))
        with self._lock:
            self._seed = seed
            self._random = fresh

    def manual_seed(self, seed: int) -> Generator:
        """Restart from a seed.

        Args:
            seed: an integer of 64 bits, signed or unsigned.

        Raises:
            ValueError: if it has more than 64 bits.
        """
        try:
            number = operator.index(seed)
        except TypeError:
            raise RuntimeError(
                f"manual_seed expected a long, but got {type(seed).__name__}"
            ) from None
        if not -(1 << 63) <= number < 1 << 64:
            raise ValueError(
                f"manual_seed: Overflow when unpacking long long: {number} has more than 64 bits"
            )
        self._start(number % (1 << 64))
        return self

    def seed(self) -> int:
        """Restart from an unpredictable seed, and return it."""
        seed = int.from_bytes(os.urandom(8), "little")
        self._start(seed)
        return seed

    def initial_seed(self) -> int:
        """The seed from which the generator last started."""
        return self._seed

    def get_state(self) -> Any:
        """The state, from which all later numbers follow, as a tensor of bytes."""
        with self._lock:
            seed, found = self._seed, self._random.bit_generator.state
        inner = found["state"]
        values = (seed, inner["state"], inner["inc"], found["uinteger"], found["has_uint32"])
        state = b"".join(
            value.to_bytes(size, "little") for value, size in zip(values, _FIELDS, strict=True)
        )
        array = np.frombuffer(state, np.uint8).copy()
        return wrap(array, metadata_of(array, CPU))

    def __getstate__(self) -> tuple[Any, Any]:
        return self.device, self.get_state()

    def __setstate__(self, state: tuple[Any, Any]) -> None:
        self.device, numbers = state
        self._lock = RLock()
        self.set_state(numbers)
        _all.add(self)

    def set_state(self, new_state: Any) -> Generator:
        """Restore a state that `get_state` returned."""
        if not isinstance(new_state, Variable):
            raise TypeError(f"expected a ByteTensor, but got {type(new_state).__name__}")
        if new_state._metadata.dtype != np.uint8:
            raise TypeError(
                f"RNG state must be a ByteTensor, got a tensor of dtype {new_state._metadata.dtype}"
            )
        if new_state._metadata.shape != (sum(_FIELDS),):
            raise RuntimeError(
                f"Expected a generator's state of {sum(_FIELDS)} bytes but found the input RNG "
                f"state size to be {new_state._metadata.size}"
            )
        rest = bytes(new_state._array)
        values = []
        for size in _FIELDS:
            values.append(int.from_bytes(rest[:size], "little"))
            rest = rest[size:]
        seed, state, increment, kept, is_kept = values
        if not increment % 2 or is_kept > 1:
            raise RuntimeError(
                "set_state: these bytes are no state of a generator. Pass what get_state() gave."
            )
        source = np.random.PCG64(0)
        source.state = {
            "bit_generator": "PCG64",
            "state": {"state": state, "inc": increment},
            "has_uint32": is_kept,
            "uinteger": kept,
        }
        with self._lock:
            self._seed = seed
            self._random = np.random.Generator(source)
        return self

    def clone_state(self) -> Generator:
        """Another generator with the same state."""
        other = Generator(self.device)
        other.set_state(self.get_state())
        return other

    def draw(self, method: str, *args: Any, many: int = 0, **kwargs: Any) -> Any:
        """Call a method of NumPy's generator.

        Args:
            many: how many values it returns; if they are many, the lock is released meanwhile.
        """
        with self._lock:
            if many < _LARGE:
                return getattr(self._random, method)(*args, **kwargs)
            seeds = self._random.integers(0, 1 << 63, 2)
        child = np.random.Generator(np.random.PCG64(seeds))
        return getattr(child, method)(*args, **kwargs)

    def draw_on(
        self, device: Any, kind: str, shape: tuple[int, ...], dtype: Any, scale: float = 1.0,
        offset: float = 0.0,
    ) -> Any:  # fmt: skip
        """Many numbers that a device draws from a seed; None if they are few, or it draws none.

        Args:
            kind: "uniform" or "normal".
            scale: what they are multiplied by.
            offset: what is then added.
        """
        if not device.draws or prod(shape) < _LARGE or dtype.char not in "fd":
            return None
        with self._lock:
            seeds = self._random.integers(0, 1 << 63, 2).tolist()
        return device.draw(kind, seeds, shape, dtype, scale, offset)

    def uniform(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Floating numbers uniform in [0, 1), or complex numbers with such parts."""
        many = prod(shape)
        if dtype.kind == "f" and dtype.itemsize > 2:
            if many < _LARGE:
                # `draw` is written out, whose call takes longer than NumPy needs for few numbers.
                with self._lock:
                    return self._random.random(shape, dtype)
            return self.draw("random", shape, dtype, many=many)
        if is_half(dtype):
            # Rounded float32 numbers could be 1.
            bits = _BITS[dtype.name]
            numbers = self.draw("integers", 0, 1 << bits, shape, np.uint16, many=many)
            return (numbers.astype(np.float32) / (1 << bits)).astype(dtype)
        if dtype.kind == "c":
            return self._both_parts(self.uniform, shape, dtype)
        return refuse("uniform", dtype)

    def normal(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Standard normal numbers; of complex ones both parts together have variance 1."""
        many = prod(shape)
        if dtype.kind == "f" and dtype.itemsize > 2:
            if many < _LARGE:
                with self._lock:
                    return self._random.standard_normal(shape, dtype)
            return self.draw("standard_normal", shape, dtype, many=many)
        if is_half(dtype):
            return self.normal(shape, np.dtype("float32")).astype(dtype)
        if dtype.kind == "c":
            values = self._both_parts(self.normal, shape, dtype)
            values *= 0.5**0.5
            return values
        return refuse("normal", dtype)

    def _both_parts(self, one: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        real = np.dtype(f"f{dtype.itemsize // 2}")
        return one((*shape, 2), real).view(dtype)[..., 0]


_all: weakref.WeakSet[Generator] = weakref.WeakSet()

default_generator = Generator()
default_generator.seed()


def _after_fork() -> None:
    """Reset the locks after a fork: a thread that held one does not exist in the child."""
    for generator in _all:
        # The standard library does the same with its locks.
        generator._lock._at_fork_reinit()  # type: ignore[attr-defined]
        generator._random.bit_generator.lock._at_fork_reinit()  # type: ignore[attr-defined]


at_fork(_after_fork)


def generator_in_force() -> Generator:
    """The generator that is drawn from if none is given; to use its state, not to draw from it."""
    return current().generator or default_generator


def source_of(generator: Any) -> Generator:
    """The given generator to draw from, or else the one in force; TypeError for anything else."""
    modes = current()
    if modes.batch is not None:
        check_randomness()
        if modes.batch.randomness == "different":
            raise AutogradError(
                "vmap: this operation can't draw different numbers for each example. Draw them "
                "outside of vmap, or use randomness='same'."
            )
    if generator is None:
        return generator_in_force()
    if not isinstance(generator, Generator):
        raise TypeError(
            f"argument 'generator' must be asyncgrad.Generator, not {type(generator).__name__}"
        )
    return generator


class fork_rng(Mode):
    """Restore the generator after a block of draws.

    The block draws from a copy of the default generator that only this task or thread uses. Draws
    of others neither change nor repeat its numbers. Also usable as a decorator.

    Args:
        devices: accepted for PyTorch's programs; all devices draw from one generator.
        enabled: False disables the copy.
        device_type: accepted as `devices` is.

    Example:
        >>> with ag.random.fork_rng():
        ...     first = ag.rand(2)
        >>> bool((ag.rand(2) == first).all())
        True
    """

    def __init__(
        self, devices: Any = None, enabled: bool = True, *, device_type: str = "cuda"
    ) -> None:
        super().__init__()
        self._enabled = enabled

    def __enter__(self) -> fork_rng:
        self._put({"generator": generator_in_force().clone_state()} if self._enabled else {})
        return self
