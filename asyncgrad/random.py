"""Random generator state: PyTorch's `torch.random`.

`default_generator` belongs to the process. `fork_rng` makes a copy of it for the task or thread
that enters it; inside, these functions use that copy.
"""

from __future__ import annotations

from asyncgrad.ops.tensors.rng import Generator, default_generator, fork_rng, source_of
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
    return source_of().manual_seed(int(seed))


def seed() -> int:
    """Seed the current generator unpredictably, and return the seed."""
    return source_of().seed()


def initial_seed() -> int:
    """The last seed of the current generator."""
    return source_of().initial_seed()


def get_rng_state() -> Tensor:
    """The state of the current generator, as a tensor of bytes."""
    state: Tensor = source_of().get_state()
    return state


def set_rng_state(new_state: Tensor) -> None:
    """Restore a state returned by `get_rng_state`."""
    source_of().set_state(new_state)
