"""Learning beside the requests: at low priority, a correction at a time, published in one go."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import anyio
import numpy as np

import asyncgrad as ag
from examples.digits.data import load as load_digits
from examples.service.calm import Calm
from examples.service.model import DIGITS
from examples.service.spool import Correction, Spool, Undo, lead

if TYPE_CHECKING:
    from pathlib import Path

    from examples.service.trainer import Trainer

#: The steps made for a correction, and how often it is in the batch of each of them.
STEPS, REPEATED = 12, 8
#: Steps on known digits between two publications, while no correction waits.
REHEARSED = 200
#: The most corrections that may wait; further ones are refused.
WAITING = 256
#: How many of the last corrections can be undone, and how many losses a new watcher is shown.
UNDONE, SHOWN = 20, 240
#: A step waits for a pause between requests, for at most so many times the duration of the last
#: step. So learning gets a third of the loop even if requests never end, on a machine of any speed.
GIVE_WAY = 2.0
#: Seconds between two looks for corrections, or new weights, of other processes.
LOOK = 0.25
#: Seconds before a failed access to the disk is tried again.
RETRY = 5.0

log = logging.getLogger(__name__)


class Learner:
    """Owns the weights. An asynchronous context manager: within it, corrections are learnt.

    Of several processes with the same file the first one learns; the others answer with what it
    publishes, and leave it their corrections. When it ends, another one learns.

    Args:
        trainer: takes the steps.
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
        #: The last corrections learnt, each with the state of the trainer before it.
        self._learnt: deque[tuple[Correction, Any]] = deque(maxlen=UNDONE)
        self._received: deque[Correction] = deque(maxlen=UNDONE)
        #: The names of corrections that this process has received while it learns, and is not
        #: learning yet; and of those among them that were undone before.
        self._waiting: set[str] = set()
        self._withdrawn: set[str] = set()
        #: The names of the last corrections that were undone.
        self._undone: deque[str] = deque(maxlen=UNDONE)
        #: The loss of each of the last steps on corrections.
        self.losses: deque[float] = deque(maxlen=SHOWN)
        self._watchers: set[asyncio.Queue[dict]] = set()
        self._task: asyncio.Task[None] | None = None
        #: The lock that only the process which learns holds.
        self._lock: Any = None
        self.step = 0
        #: How many corrections waited at the last look.
        self.waiting = 0
        #: Whether this process is the one that learns: it has the lock, and the newest weights.
        self.leads = False
        #: The weights that answer; None until the learner runs.
        self.published: Any = None

    @property
    def watchers(self) -> int:
        """The number of those who watch the learning."""
        return len(self._watchers)

    async def __aenter__(self) -> Self:
        beside = self._path.with_name
        self._spool = Spool(beside(f"{self._path.name}.corrections"), WAITING)
        self._came = asyncio.Event()
        try:
            await self._try_to_lock()
            while not await self._load():
                if self._lock is not None:
                    for _ in range(self._first_steps):
                        await self._learn([])
                    await self._publish()
                    self.leads = True
                    break
                # The process that learns is about to publish for the first time.
                await asyncio.sleep(LOOK)
                await self._try_to_lock()
        except BaseException:
            self._unlock()
            raise
        self._task = asyncio.create_task(self._ever(), name="learner")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        finally:
            self._unlock()

    async def _try_to_lock(self) -> None:
        if self._lock is None:
            self._lock = await ag.offload(lead, self._path.with_name(f"{self._path.name}.lock"))

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
        self._lock, self.leads = None, False

    async def _load(self) -> bool:
        """Answer with the weights that are kept, and learn on from them; whether there are any."""
        found = await self._trainer.load(self._path)
        if found is None:
            return False
        self.published, self.step = found, found.step
        if self._lock is not None:
            # This process lacks the states that undoing another one's corrections needs.
            self.published = replace(found, learnt=())
            self._undone.extend(found.undone)
            self.leads = True
        return True

    async def correct(self, image: np.ndarray, digit: int) -> str:
        """Learn from an image that its author has named; returns the correction's name.

        Raises:
            Full: if too many wait.
        """
        correction, self.waiting = await ag.offload(self._spool.put, image, digit)
        self._received.append(correction)
        if self.leads:
            self._waiting.add(correction.name)
        self._tell({"step": self.step, "corrections": [self._described(correction)]})
        self._came.set()
        return correction.name

    async def undo(self, name: str) -> None:
        """Forget a correction: leave it out if it waits, or learn anew what came after it.

        Raises:
            KeyError: if it is none of the last ones that this process has received, or that are in
                the published weights.
            Full: if too many wait.
        """
        if name not in {*self.learnt, *(each.name for each in self._received)}:
            raise KeyError(name)
        if self.leads and name in self._waiting:
            self._withdrawn.add(name)
        else:
            await ag.offload(self._spool.put_undo, name)
            self._came.set()

    @property
    def learnt(self) -> tuple[str, ...]:
        """The names of the last corrections that are in the published weights."""
        return self.published.learnt

    def examples(self) -> list[dict[str, Any]]:
        """A digit of each kind that was not learnt from: what it is, and its pixels."""
        images, labels = self._digits.test_images, self._digits.test_labels
        firsts = [int(np.argmax(labels == digit)) for digit in range(DIGITS)]
        return [
            {"digit": digit, "pixels": images[first].tolist()} for digit, first in enumerate(firsts)
        ]

    def story(self) -> dict[str, Any]:
        """What has happened so far, for who begins to watch."""
        return {
            "step": self.step,
            "waiting": self.waiting,
            "losses": list(self.losses),
            "corrections": [self._described(each) for each in self._received],
            "learnt": self.learnt,
            "undone": self.published.undone,
        }

    def _described(self, correction: Correction) -> dict[str, Any]:
        return {
            "name": correction.name,
            "digit": correction.digit,
            "pixels": correction.image.tolist(),
        }

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
        """Whether the learner's task runs."""
        return self._task is not None and not self._task.done()

    async def _ever(self) -> None:
        """Learn, or follow the process that does, also after errors of the disk."""
        while True:
            try:
                await (self._lead_on() if self.leads else self._follow())
            except OSError:
                log.exception("the disk does not take part; the next try is in %s seconds", RETRY)
                await asyncio.sleep(RETRY)

    async def _lead_on(self) -> None:
        """Learn from a correction or undo one, or wait for one."""
        self._came.clear()
        came, self.waiting = await ag.offload(self._spool.first)
        if came is None and self._rehearse:
            await self._practise()
        elif came is None:
            with anyio.move_on_after(LOOK):
                await self._came.wait()
        else:
            # If the disk has failed after a correction was learnt, it comes a second time.
            known = {correction.name for correction, _ in self._learnt} | self._withdrawn
            if isinstance(came, Undo):
                await self._forget(came.name)
            elif came.name not in known:
                await self._study(came)
            elif came.name in self._withdrawn:
                self._note_undone(came.name)
            await self._publish()
            await ag.offload(came.file.unlink)
            for names in (self._waiting, self._withdrawn):
                names.discard(came.name)

    async def _study(self, correction: Correction) -> None:
        """Some steps on a correction; it is learnt when the weights that know it are kept."""
        self._waiting.discard(correction.name)
        before = await self._trainer.state()
        self._remembered = [*self._remembered[-99:], correction]
        for _ in range(STEPS):
            loss = await self._learn([correction] * REPEATED + self._remembered)
            self.losses.append(loss)
            self._tell({"step": self.step, "loss": loss, "waiting": self.waiting})
        self._learnt.append((correction, before))

    async def _forget(self, name: str) -> None:
        """Return to what was before a correction, and learn again from those that came after it.

        Nothing happens if it is too long ago, or was learnt before this process began.
        """
        names = [correction.name for correction, _ in self._learnt]
        if name not in names:
            return
        later = list(self._learnt)[names.index(name) :]
        for _ in later:
            self._learnt.pop()
        forgotten = {correction.name for correction, _ in later}
        self._remembered = [each for each in self._remembered if each.name not in forgotten]
        self._note_undone(name)
        await self._trainer.restore(later[0][1])
        for correction, _ in later[1:]:
            await self._study(correction)

    def _note_undone(self, name: str) -> None:
        if name not in self._undone:
            self._undone.append(name)

    async def _practise(self) -> None:
        """Some steps on what is known, until a correction comes."""
        for _ in range(REHEARSED):
            loss = await self._learn(self._remembered)
            self.losses.append(loss)
            if self._came.is_set():
                break
        self._tell({"step": self.step, "loss": loss, "waiting": self.waiting})
        await self._publish()

    async def _follow(self) -> None:
        """Answer with what the process that learns has published last; if that ended, learn."""
        await asyncio.sleep(LOOK)
        await self._try_to_lock()
        kept = await ag.offload(self._trainer.kept_fields, self._path)
        # Not the step alone: undoing the last correction changes weights, and takes no step.
        now = self.published.step, self.published.learnt, self.published.undone
        if self._lock is not None or kept != now:
            await self._load()
            self._tell_published()

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
        learnt = tuple(correction.name for correction, _ in self._learnt)
        published = await self._trainer.publish(self.step, learnt, tuple(self._undone))
        await self._trainer.save(published, self._path)
        self.published = published
        self._tell_published()

    def _tell_published(self) -> None:
        names = {"learnt": self.learnt, "undone": self.published.undone}
        self._tell({"step": self.step, "published": True, "waiting": self.waiting, **names})

    def _tell(self, event: dict) -> None:
        for events in self._watchers:
            if not events.full():
                events.put_nowait(event)
