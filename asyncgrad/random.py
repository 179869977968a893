"""The state of the random numbers, PyTorch's `torch.random`.

`default_generator` is the process's. Inside `fork_rng` a copy of it is in force for the task or
thread that entered it, and these functions are about that copy.
"""

from __future__ import annotations

from typing import Any

from asyncgrad.ops.tensors.rng import Generator, default_generator, fork_rng, source_of

__all__ = [
    "Generator", "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed",
    "seed", "set_rng_state",
]  # fmt: skip


def manual_seed(seed: Any) -> Generator:
    """Seed the generator that functions draw from unless they are given one.

    Args:
        seed: a number, of which the integer part is taken.

    Raises:
        ValueError: if it is no number, or has more than 64 bits.
    """
    return source_of().manual_seed(int(seed))


def seed() -> int:
    """Seed that generator with a number that nobody can foresee, and return the number."""
    return source_of().seed()


def initial_seed() -> int:
    """The seed that its numbers started from."""
    return source_of().initial_seed()


def get_rng_state() -> Any:
    """All that its next numbers depend on, as a tensor of bytes."""
    return source_of().get_state()


def set_rng_state(new_state: Any) -> None:
    """Go on from where `get_rng_state` was called.

    Raises:
        TypeError: if the state is no tensor of bytes.
        RuntimeError: if it is no state.
    """
    source_of().set_state(new_state)
