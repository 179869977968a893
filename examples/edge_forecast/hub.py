"""The hub: sensors, a scheduler, a page, and training, on one event loop and one process."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from examples.edge_forecast.forecaster import Forecaster, train
from examples.edge_forecast.web import Web

if TYPE_CHECKING:
    import numpy as np

#: The heating is switched on some days before it is colder than this, in degrees Celsius.
COLD = 10.0
DAYS_BEFORE = 2


@dataclass
class Lateness:
    """By how many milliseconds something happened too late, each time."""

    values: list[float] = field(default_factory=list)

    def note(self, due: float) -> None:
        """Note an event that happens now and was due at `due`."""
        self.values.append((time.perf_counter() - due) * 1e3)

    def percentile(self, percent: int) -> float:
        """A percentile of the delays."""
        ordered = sorted(self.values)
        return ordered[(len(ordered) - 1) * percent // 100] if ordered else 0.0


class Hub:
    """Replays four years, a day in each tick, and forecasts as it goes.

    Args:
        readings: the years.
        known: how many of their days have passed when the hub starts.
        tick: seconds that a day takes.
    """

    def __init__(self, readings: np.ndarray, *, known: int, tick: float) -> None:
        self._readings = readings
        self._known = known
        self._tick = tick
        #: The forecaster, None before the first training has ended.
        self.published: Forecaster | None = None
        self.trainings = 0
        self.steps = 0
        self.switched: list[tuple[int, bool]] = []
        self.sensors, self.scheduler = Lateness(), Lateness()
        self._training: asyncio.Task[None] | None = None
        self.web = Web({
            ("GET", "/forecast"): self.forecast,
            ("GET", "/status"): self.status,
            ("POST", "/training/start"): self.start_training,
            ("POST", "/training/cancel"): self.cancel_training,
        })  # fmt: skip

    async def run(self, days: int) -> None:
        """Live for so many days, and until the first training has ended, if one has begun.

        Whoever wants the page opens `web`.
        """
        async with asyncio.TaskGroup() as group:
            living = [group.create_task(self._sense(days)), group.create_task(self._schedule())]
            await living[0]
            if self._training is not None and self.published is None:
                await asyncio.wait([self._training])
            living[1].cancel()
            if self._training is not None:
                self._training.cancel()
                await asyncio.gather(self._training, return_exceptions=True)

    async def _sense(self, days: int) -> None:
        """A reading in each tick."""
        start = time.perf_counter()
        for passed in range(1, days + 1):
            due = start + passed * self._tick
            await asyncio.sleep(due - time.perf_counter())
            self.sensors.note(due)
            self._known = min(self._known + 1, len(self._readings))

    async def _schedule(self) -> None:
        """Decide on the heating, four times in a tick."""
        heating = False
        while True:
            due = time.perf_counter() + self._tick / 4
            await asyncio.sleep(self._tick / 4)
            self.scheduler.note(due)
            forecaster = self.published
            if forecaster is not None:
                ahead = forecaster.forecast(self.readings)
                wanted = min(ahead[:DAYS_BEFORE]) < COLD
                if wanted != heating:
                    heating = wanted
                    self.switched.append((self._known, heating))

    @property
    def readings(self) -> np.ndarray:
        """What has been measured so far."""
        return self._readings[: self._known]

    # -- what the page asks for -----------------------------------------------------------------

    def forecast(self) -> dict[str, Any]:
        """The next week."""
        forecaster = self.published
        if forecaster is None:
            return {"day": self._known, "celsius": None}
        return {"day": self._known, "celsius": forecaster.forecast(self.readings)}

    def status(self) -> dict[str, Any]:
        """What the hub is doing."""
        forecaster = self.published
        return {
            "day": self._known,
            "training": self._training is not None and not self._training.done(),
            "steps": self.steps,
            "trainings": self.trainings,
            "learnt_from": 0 if forecaster is None else forecaster.learnt_from,
            "error": None if forecaster is None else forecaster.error,
        }

    def start_training(self) -> dict[str, Any]:
        """Learn from what has been measured so far, if that is not being done already."""
        if self._training is None or self._training.done():
            self._training = asyncio.create_task(self._train(), name="training")
        return {"training": True}

    def cancel_training(self) -> dict[str, Any]:
        """Stop learning; forecasts go on as before it began."""
        if self._training is not None:
            self._training.cancel()
        return {"training": False}

    async def _train(self) -> None:
        def note(step: int, loss: float) -> None:
            self.steps += 1

        forecaster = await train(self.readings, progress=note)
        # Until this line forecasts use the old weights, and after it all of the new ones.
        self.published = forecaster
        self.trainings += 1
