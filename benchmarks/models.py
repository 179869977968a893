"""Training steps of whole models: forward, backward and the optimiser's step."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import torch

import asyncgrad as ag
from benchmarks.harness import blas_threads, check_equal, interleave, with_torch_threads
from benchmarks.networks import Training, networks
from benchmarks.report import MILLISECONDS, compared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Setting
    from benchmarks.report import Row

#: What is to be reached, in PyTorch's time on one thread.
TO_REACH = {"MLP": 1.1, "ResNet": 1.4, "LSTM": 1.1, "GPT": 1.4}
#: Why a step takes longer than that.
REASONS = {
    "ResNet": "half of a convolution's time are copies: images are put side by side and windows "
    "laid out as columns, where PyTorch's oneDNN makes none",
    "LSTM": "each step of time is some twenty-five calls of NumPy, whose passes over memory are a "
    "few in PyTorch's kernels; PyTorch's own time is 29 to 42 ms, and the same for all steps of a "
    "process",
}
#: Steps per turn.
STEPS = 2


def measure(setting: Setting) -> Iterator[Row]:
    """One training step of each model, on one thread, synchronously."""
    for network in networks(small=setting.quick):
        torch.manual_seed(0)
        mine, other = Training(network, ag), Training(network, torch)
        mine.take_weights(other)
        batch = next(network.batches(np.random.default_rng(0)))

        def turn(training: Training, batch: tuple = batch) -> float:
            inputs, targets = training.tensors(batch)
            start = time.perf_counter()
            for _ in range(STEPS):
                training.step(inputs, targets)
            return (time.perf_counter() - start) / STEPS

        losses = [[t.step(*t.tensors(batch)).detach().numpy()] for t in (mine, other)]
        check_equal(network.name, *losses)
        sides = {
            "asyncgrad": lambda mine=mine, turn=turn: turn(mine),
            "PyTorch T1": with_torch_threads(1, lambda other=other, turn=turn: turn(other)),
        }
        with blas_threads(1):
            samples = interleave(sides, setting.repetitions(24))
        yield compared(
            "models",
            f"training step, {network.name}",
            samples,
            ours="asyncgrad",
            to="PyTorch T1",
            unit="ms",
            scale=MILLISECONDS,
            to_reach=TO_REACH[network.name],
            note=REASONS.get(network.name, ""),
        )
