"""The same program in several ways: they differ in these few lines and in nothing else.

The model, the first weights, the data and the order of everything are the same, and so is the
number of threads: one core computes, the other is left to the event loop and the clients.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import ModuleType


@dataclass(frozen=True)
class Variant:
    """A library and its way of running a backward pass on an event loop."""

    name: str
    library: ModuleType
    #: Runs a backward pass.
    backward: Callable[[Any], Awaitable[None]]
    #: Runs a function on tensors (a forward pass, an optimiser's step) off the event loop.
    offload: Callable[..., Awaitable[Any]]


async def _awaited(loss: Any) -> None:
    await loss.backward()


async def _blocking(loss: Any) -> None:
    with importlib.import_module("asyncgrad").blocking():
        loss.backward()  # nothing else runs on the loop until this is over


async def _inline(loss: Any) -> None:
    loss.backward()  # the same of PyTorch


async def _in_thread(loss: Any) -> None:
    await asyncio.to_thread(loss.backward)


NAMES = ("asyncgrad", "asyncgrad-blocking", "torch-inline", "torch-thread")


def to_compare() -> tuple[str, ...]:
    """The variants to run: asyncgrad beside PyTorch, or beside blocking passes without PyTorch."""
    return NAMES[:2] if importlib.util.find_spec("torch") is None else (NAMES[0], *NAMES[2:])


def load(name: str) -> Variant:
    """Import the library of a variant, and no other library."""
    if name.startswith("asyncgrad"):
        asyncgrad = importlib.import_module("asyncgrad")
        backward = _awaited if name == "asyncgrad" else _blocking
        return Variant(name, asyncgrad, backward, asyncgrad.offload)
    torch = importlib.import_module("torch")
    # As many threads as asyncgrad's engine lets BLAS use on an event loop.
    torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))
    return Variant(
        name, torch, _inline if name == "torch-inline" else _in_thread, asyncio.to_thread
    )


def classifier(library: ModuleType, width: int, seed: int) -> Any:
    """Build a perceptron 64-width-width-10 with the same first weights in either library."""
    nn = library.nn
    model = nn.Sequential(
        nn.Linear(64, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, 10),
    )
    rng = np.random.default_rng(seed)
    state = {}
    for name, tensor in model.state_dict().items():
        shape = tuple(tensor.shape)
        if len(shape) == 2:
            bound = shape[1] ** -0.5  # of the inputs, for the weight and the bias that follows it
        state[name] = library.from_numpy(rng.uniform(-bound, bound, shape).astype(np.float32))
    model.load_state_dict(state)
    return model
