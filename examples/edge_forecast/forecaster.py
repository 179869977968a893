"""The forecaster, and its training in the background.

What is published is never changed: training makes a model of its own, and publishing is one
assignment. A training that is cancelled leaves the published forecaster as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import asyncgrad as ag
from examples.edge_forecast.readings import AHEAD, FEATURES, HIGHEST, PAST, features, targets

if TYPE_CHECKING:
    from collections.abc import Callable

#: The number of days that are held out from training.
HELD_OUT = 120
#: The priority of training, below that of all other passes.
BACKGROUND = -1


def make_model() -> ag.nn.Sequential:
    """Three layers from what is known to the next week."""
    return ag.nn.Sequential(
        ag.nn.Linear(FEATURES, 48),
        ag.nn.Tanh(),
        ag.nn.Linear(48, 48),
        ag.nn.Tanh(),
        ag.nn.Linear(48, AHEAD),
    )


@dataclass(frozen=True)
class Forecaster:
    """A trained model, and its error on the held-out days."""

    model: ag.nn.Sequential
    #: The number of readings in the training.
    learnt_from: int
    #: Root mean square error on the held-out days in degrees Celsius.
    error: float
    #: The error of forecasting that the week will be like the day before it.
    error_of_yesterday: float

    def forecast(self, readings: np.ndarray) -> list[float]:
        """The highest temperatures of the next week, in degrees Celsius."""
        with ag.no_grad():
            ahead = self.model(ag.from_numpy(features(readings, np.array([len(readings)]))))
        return (10 * ahead.numpy()[0]).tolist()


async def train(
    readings: np.ndarray,
    *,
    epochs: int = 20,
    batch: int = 32,
    seed: int = 0,
    progress: Callable[[int, float], None] = lambda step, loss: None,
) -> Forecaster:
    """Make a forecaster from readings; cancel it whenever you like.

    Args:
        readings: what has been measured, day by day.
        epochs: how often each day is looked at.
        batch: how many days a step looks at.
        seed: of the first weights and of the order of the days.
        progress: told of each step and its loss.
    """
    rng = np.random.default_rng(seed)
    ag.manual_seed(seed)
    model = make_model()
    optimizer = ag.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-3)
    last = len(readings) - AHEAD + 1
    days = np.arange(PAST, last - HELD_OUT)
    step = 0
    for _ in range(epochs):
        rng.shuffle(days)
        for start in range(0, len(days), batch):
            chosen = days[start : start + batch]
            with ag.request(priority=BACKGROUND):
                await ag.cooperate()
                guess = model(ag.from_numpy(features(readings, chosen)))
                loss = ag.nn.functional.mse_loss(guess, ag.from_numpy(targets(readings, chosen)))
                await ag.cooperate()
                optimizer.zero_grad()
                await loss.backward()
                await optimizer.step_async()
            step += 1
            progress(step, loss.item())
    judged = np.arange(last - HELD_OUT, last)
    truth = targets(readings, judged)
    with ag.no_grad():
        guess = (await ag.offload(model, ag.from_numpy(features(readings, judged)))).numpy()
    yesterday = readings[judged - 1, HIGHEST, None] / np.float32(10)
    return Forecaster(model, len(readings), _error(guess - truth), _error(yesterday - truth))


def _error(off: np.ndarray) -> float:
    return float(10 * np.sqrt(np.mean(np.square(off))))
