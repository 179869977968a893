"""Random generator state: PyTorch's `torch.random`.

`default_generator` belongs to the process. `fork_rng` makes a copy of it for the task or thread
that enters it; inside, these functions use that copy.
"""

from __future__ import annotations

from asyncgrad.ops.tensors.rng import Generator, default_generator, fork_rng, generator_in_force
from asyncgrad.types import Tensor

__all__ = [
    "Generator", "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed",
    "seed", "set_rng_state",
]  # fmt: skip


def manual_seed(seed: int) -> Generator:
    """Seed the current generator, from which functions draw by default.

    Args:
        seed: a number; its fractional part is dropped.

    Raises:
        ValueError: if `seed` has more than 64 bits.
    """
    return generator_in_force().manual_seed(int(seed))


def seed() -> int:
    """Seed the current generator unpredictably, and return the seed."""
    return generator_in_force().seed()


def initial_seed() -> int:
    """The last seed of the current generator."""
    return generator_in_force().initial_seed()


def get_rng_state() -> Tensor:
    """The state of the current generator, as a tensor of bytes."""
    state: Tensor = generator_in_force().get_state()
    return state


def set_rng_state(new_state: Tensor) -> None:
    """Restore a state returned by `get_rng_state`."""
    generator_in_force().set_state(new_state)
