"""Training steps of whole models: forward, backward and the optimiser's step."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

import asyncgrad as ag
from benchmarks.harness import (
    blas_threads,
    check_equal,
    event_loop,
    interleave,
    with_torch_threads,
)
from benchmarks.networks import Training, networks
from benchmarks.report import MILLISECONDS, compared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from benchmarks.harness import Setting
    from benchmarks.report import Row

#: What is to be reached, in PyTorch's time on one thread.
TO_REACH = {"MLP": 1.1, "ResNet": 1.4, "LSTM": 1.1, "GPT": 1.4}
#: Why a step takes longer than that.
REASONS = {
    "ResNet": "a third of a convolution's time are copies: images are put side by side, and apart "
    "again, where PyTorch's oneDNN makes no copies",
    "LSTM": "each step of time is some twenty-five calls of NumPy, whose passes over memory are a "
    "few in PyTorch's kernels; PyTorch's own time is 19 to 53 ms, and the same for all steps of a "
    "process",
}
#: Why one that is awaited takes longer than PyTorch's on two threads.
_AWAITED = (
    "two threads of one interpreter hand the GIL over between calls of NumPy of 10 to 100 us: two "
    "compute a convolution 1.0 to 1.4 times as fast as one, two processes 1.6 to 1.9 times; and a "
    "virtual machine often wakes the second thread on the core of the first, where one of them "
    "waits for the other for up to 10 ms"
)
#: Steps per turn.
STEPS = 2


def measure(setting: Setting) -> Iterator[Row]:
    """One training step of each model, on one thread, synchronously."""
    for name, mine, other, batch in _pairs(setting):
        with blas_threads(1):
            samples = interleave(
                {
                    "asyncgrad": partial(_steps, mine, batch),
                    "PyTorch T1": with_torch_threads(1, partial(_steps, other, batch)),
                },
                setting.repetitions(24),
            )
        yield compared(
            "models",
            f"training step, {name}",
            samples,
            ours="asyncgrad",
            to="PyTorch T1",
            unit="ms",
            scale=MILLISECONDS,
            to_reach=TO_REACH[name],
            note=REASONS.get(name, ""),
        )


def measure_awaited(setting: Setting) -> Iterator[Row]:
    """One training step of each model on two cores: awaited, beside PyTorch's on the loop."""
    for name, mine, other, batch in _pairs(setting):

        async def awaited(mine: Training = mine, batch: tuple = batch) -> float:
            inputs, targets = mine.tensors(batch)
            # The first call starts the threads before the measurement.
            await ag.offload(int)
            start = time.perf_counter()
            for _ in range(STEPS):
                await mine.awaited_step(inputs, targets)
            return (time.perf_counter() - start) / STEPS

        def on_a_loop(awaited: Callable[[], Any] = awaited) -> float:
            """On one of its own: while an engine lives, its loop's thread has a core at once."""
            with event_loop(setting.loop) as run:
                return run(awaited)

        samples = interleave(
            {
                "asyncgrad": on_a_loop,
                "inline T2": with_torch_threads(2, partial(_steps, other, batch)),
            },
            setting.repetitions(24),
        )
        yield compared(
            "awaited",
            f"training step, {name}, awaited",
            samples,
            ours="asyncgrad",
            to="inline T2",
            to_reach=1.15,
            note=_AWAITED,
        )


def _pairs(setting: Setting) -> Iterator[tuple[str, Training, Training, tuple]]:
    """Each network of both libraries, from the same weights, with a batch."""
    for network in networks(small=setting.quick):
        torch.manual_seed(0)
        mine, other = Training(network, ag), Training(network, torch)
        mine.take_weights(other)
        batch = next(network.batches(np.random.default_rng(0)))
        losses = [[t.step(*t.tensors(batch)).detach().numpy()] for t in (mine, other)]
        check_equal(network.name, *losses)
        yield network.name, mine, other, batch


def _steps(training: Training, batch: tuple) -> float:
    """Seconds for a step."""
    inputs, targets = training.tensors(batch)
    start = time.perf_counter()
    for _ in range(STEPS):
        training.step(inputs, targets)
    return (time.perf_counter() - start) / STEPS
