"""Learning beside the requests: at low priority, a correction at a time, published in one go."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any, Self

import anyio
import numpy as np

import asyncgrad as ag
from examples.digits.data import load as load_digits
from examples.service.calm import Calm
from examples.service.spool import Correction, Spool, lead

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from examples.service.trainer import Trainer

#: Steps that a correction is good for, and how often it is in the batch of each.
STEPS, REPEATED = 12, 8
#: Steps on known digits between two publications, for a learner that has nothing else to do.
REHEARSED = 200
#: Corrections that wait; the next is refused.
WAITING = 256
#: How many times as long as the last step took the next one gives way to requests: where they never
#: end, and on a machine of any speed, learning has a third of the loop.
GIVE_WAY = 2.0
#: Seconds between two looks at what other workers have left.
LOOK = 0.25
#: Seconds until it tries again what the disk did not let it do.
RETRY = 5.0

log = logging.getLogger(__name__)


class Learner:
    """Owns the weights. An asynchronous context manager: within it, corrections are learnt.

    Of several processes with the same file the first one learns; the others answer with what it
    publishes, and leave it their corrections.

    Args:
        trainer: what a step is.
        path: the file of the weights; corrections wait in a folder beside it.
        first_steps: how many steps are made where there is no such file.
        batch: how many known digits each step looks at.
        rehearse: whether to go on with known digits while no correction waits.
        calm: tells when a step is least in the way.
    """

    def __init__(
        self,
        trainer: Trainer,
        path: Path,
        *,
        first_steps: int = 400,
        batch: int = 64,
        rehearse: bool = False,
        calm: Calm | None = None,
    ) -> None:
        self._trainer = trainer
        self._path = path
        self._first_steps = first_steps
        self._batch = batch
        self._rehearse = rehearse
        self._calm = calm or Calm()
        self._took = 0.0
        self._digits = load_digits()
        self._random = np.random.default_rng(0)
        self._remembered: list[Correction] = []
        self._watchers: set[asyncio.Queue[dict]] = set()
        self._task: asyncio.Task[None] | None = None
        self.step = 0
        #: How many corrections are still to be learnt, when it last looked.
        self.waiting = 0
        #: Whether this process is the one that learns.
        self.leads = False
        #: What answers; None until the learner runs.
        self.published: Any = None

    @property
    def watchers(self) -> int:
        """How many read what happens."""
        return len(self._watchers)

    async def __aenter__(self) -> Self:
        beside = self._path.with_name
        self._spool = Spool(beside(f"{self._path.name}.corrections"), WAITING)
        self._came = asyncio.Event()
        self._lead = lead(beside(f"{self._path.name}.lock"))
        self.leads = self._lead is not None
        found = await self._trainer.load(self._path)
        while found is None and not self.leads:
            # The one that learns is about to publish for the first time.
            await asyncio.sleep(LOOK)
            found = await self._trainer.load(self._path)
        if found is None:
            for _ in range(self._first_steps):
                await self._learn([])
            await self._publish()
        else:
            self.published, self.step = found, found.step
        once = self._lead_on if self.leads else self._follow
        self._task = asyncio.create_task(self._ever(once), name="learner")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        if self._lead is not None:
            self._lead.close()

    async def correct(self, image: np.ndarray, digit: int) -> int:
        """Learn from an image that its author has named; returns how many wait.

        Raises:
            Full: if too many do.
        """
        self.waiting = await ag.offload(self._spool.put, image, digit)
        self._came.set()
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

    @property
    def alive(self) -> bool:
        """Whether it does what it is there for."""
        return self._task is not None and not self._task.done()

    async def _ever(self, once: Callable[[], Awaitable[None]]) -> None:
        """Do something again and again, whatever becomes of the disk."""
        while True:
            try:
                await once()
            except OSError:
                log.exception("the disk does not take part; the next try is in %s seconds", RETRY)
                await asyncio.sleep(RETRY)

    async def _lead_on(self) -> None:
        """Learn from a correction, or wait for one."""
        self._came.clear()
        correction, self.waiting = await ag.offload(self._spool.first)
        if correction is not None:
            await self._take_in(correction)
        elif self._rehearse:
            await self._practise()
        else:
            with anyio.move_on_after(LOOK):
                await self._came.wait()

    async def _take_in(self, correction: Correction) -> None:
        """Some steps on a correction; it is learnt when the weights that know it are kept."""
        self._remembered = [*self._remembered[-99:], correction]
        for _ in range(STEPS):
            loss = await self._learn([correction] * REPEATED + self._remembered)
            self._tell({"step": self.step, "loss": loss, "waiting": self.waiting})
        await self._publish()
        await ag.offload(correction.file.unlink)

    async def _practise(self) -> None:
        """Some steps on what is known, until a correction comes."""
        for _ in range(REHEARSED):
            loss = await self._learn(self._remembered)
            if self._came.is_set():
                break
        self._tell({"step": self.step, "loss": loss, "waiting": self.waiting})
        await self._publish()

    async def _follow(self) -> None:
        """Answer with what the process that learns has published last."""
        await asyncio.sleep(LOOK)
        if await ag.offload(self._trainer.kept_step, self._path) != self.step:
            self.published = await self._trainer.load(self._path)
            self.step = self.published.step
            self._tell({"step": self.step, "published": True, "waiting": self.waiting})

    async def _learn(self, corrections: list[Correction]) -> float:
        """One step on a batch of the digits, with some corrections among them."""
        chosen = self._random.integers(0, len(self._digits.train_labels), self._batch)
        images, labels = self._digits.train_images[chosen], self._digits.train_labels[chosen]
        if corrections:
            images = np.concatenate([images, [each.image for each in corrections]])
            labels = np.concatenate([labels, [each.digit for each in corrections]])
        await self._calm.wait(GIVE_WAY * self._took)
        start = time.perf_counter()
        loss = await self._trainer.learn(images, labels)
        self._took = time.perf_counter() - start
        self.step += 1
        return loss

    async def _publish(self) -> None:
        """Answer with the newest weights, and keep them."""
        published = await self._trainer.publish(self.step)
        await self._trainer.save(published, self._path)
        self.published = published
        self._tell({"step": self.step, "published": True, "waiting": self.waiting})

    def _tell(self, event: dict) -> None:
        for events in self._watchers:
            if not events.full():
                events.put_nowait(event)
