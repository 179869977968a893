"""Learning beside the requests: at low priority, a correction at a time, published in one go."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Self

import numpy as np

import asyncgrad as ag
from examples.digits.data import load as load_digits
from examples.service import checkpoint
from examples.service.model import Published, make_model

if TYPE_CHECKING:
    from pathlib import Path

#: Less urgent than any request.
BACKGROUND = -10
#: Steps that a correction is good for, and how often it is in the batch of each.
STEPS, REPEATED = 12, 8
BATCH = 64
#: Corrections that wait; the next is refused.
WAITING = 256


class Learner:
    """Owns the weights. An asynchronous context manager: within it, corrections are learnt.

    Args:
        path: the file of the weights.
        first_steps: how many steps are made where there is no such file.
    """

    def __init__(self, path: Path, first_steps: int = 400) -> None:
        self._path = path
        self._first_steps = first_steps
        self._model = make_model()
        self._digits = load_digits()
        self._random = np.random.default_rng(0)
        self._optimizer = ag.optim.Adam(self._model.parameters(), lr=2e-3)
        self._corrections: asyncio.Queue[tuple[np.ndarray, int]] = asyncio.Queue(WAITING)
        self._remembered: list[tuple[np.ndarray, int]] = []
        self._watchers: set[asyncio.Queue[dict]] = set()
        self.step = 0
        self.learnt = 0
        self.published = Published.of(self._model, 0)

    @property
    def waiting(self) -> int:
        """How many corrections are still to be learnt."""
        return self._corrections.qsize()

    async def __aenter__(self) -> Self:
        found = await ag.offload(checkpoint.load, self._path, self._model)
        if found is None:
            for _ in range(self._first_steps):
                await self._learn([])
            await self._publish()
        else:
            self.published, self.step = found, found.step
        self._task = asyncio.create_task(self._run(), name="learner")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def correct(self, image: np.ndarray, digit: int) -> int:
        """Learn from an image that its author has named; returns how many wait.

        Raises:
            asyncio.QueueFull: if too many wait.
        """
        self._corrections.put_nowait((image, digit))
        return self.waiting

    @contextlib.contextmanager
    def watching(self):
        """A queue of what happens, for as long as somebody reads it."""
        events: asyncio.Queue[dict] = asyncio.Queue(1_000)
        self._watchers.add(events)
        try:
            yield events
        finally:
            self._watchers.discard(events)

    async def _run(self) -> None:
        """Learn from one correction after the other."""
        while True:
            correction = await self._corrections.get()
            self._remembered = [*self._remembered[-99:], correction]
            for _ in range(STEPS):
                loss = await self._learn([correction] * REPEATED + self._remembered)
                self._tell({"step": self.step, "loss": loss, "waiting": self.waiting})
            self.learnt += 1
            await self._publish()

    async def _learn(self, corrections: list[tuple[np.ndarray, int]]) -> float:
        """One step on a batch of the digits, with some corrections among them."""
        chosen = self._random.integers(0, len(self._digits.train_labels), BATCH)
        images = [self._digits.train_images[chosen], *[image[None] for image, _ in corrections]]
        labels = [*self._digits.train_labels[chosen], *[digit for _, digit in corrections]]
        x = ag.from_numpy(np.concatenate(images, dtype=np.float32))
        loss = ag.nn.functional.cross_entropy(self._model(x), ag.tensor(labels))
        self._optimizer.zero_grad()
        await loss.backward(priority=BACKGROUND)
        await self._optimizer.step_async()
        await ag.cooperate()
        self.step += 1
        return loss.item()

    async def _publish(self) -> None:
        """Answer with the newest weights, and keep them."""
        published = Published.of(self._model, self.step)
        await ag.offload(checkpoint.save, published, self._path)
        self.published = published
        self._tell({"step": self.step, "published": True, "waiting": self.waiting})

    def _tell(self, event: dict) -> None:
        for events in self._watchers:
            if not events.full():
                events.put_nowait(event)
