"""The same program on three engines: they differ in these few lines and in nothing else.

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


async def _inline(loss: Any) -> None:
    loss.backward()  # nothing else runs on the loop until this is over


async def _in_thread(loss: Any) -> None:
    await asyncio.to_thread(loss.backward)


NAMES = ("asyncgrad", "torch-inline", "torch-thread")


def is_installed(name: str) -> bool:
    """Whether the library of a variant is there: PyTorch need not be."""
    return importlib.util.find_spec(name.partition("-")[0]) is not None


def load(name: str) -> Variant:
    """Import the library of a variant: only the one that runs is in the process."""
    if name == "asyncgrad":
        asyncgrad = importlib.import_module("asyncgrad")
        return Variant(name, asyncgrad, _awaited, asyncgrad.offload)
    torch = importlib.import_module("torch")
    # What asyncgrad's engine gives to BLAS when it runs on an event loop.
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
