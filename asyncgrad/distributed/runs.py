"""The runs of one host: functions that run on all workers at once, and the mail of their ranks."""

from __future__ import annotations

import asyncio
from typing import Any

from asyncgrad.core.modes import current, install
from asyncgrad.distributed.errors import late
from asyncgrad.distributed.group import Group
from asyncgrad.distributed.lifetimes import Lifetimes, Memory, one_of
from asyncgrad.distributed.site import Site
from asyncgrad.distributed.values import awaited
from asyncgrad.errors import AutogradError
from asyncgrad.scheduler.segments import retrieve
from asyncgrad.utils.data import sampler


class Runs:
    """The runs of one host."""

    def __init__(self, site: Site, lives: Lifetimes) -> None:
        """Start with none."""
        self._site = site
        self._lives = lives
        #: The groups of runs.
        self._groups: dict[Any, Group] = {}
        #: By run, key and sender: a future for the name and content of the message.
        self._mail: dict[Any, dict[Any, asyncio.Future[Any]]] = {}
        #: Of each run, the passes that have ended here: models' numbers and passes' names.
        self._closed = Memory()
        #: By run, the ranks on which its function has returned.
        self._returned: dict[Any, set[int]] = {}

    def __len__(self) -> int:
        return len(self._mail)

    async def on_run(self, run: Any, function: Any, args: Any, kwargs: Any) -> Any:
        """Run a function as one of a group."""
        async with self._lives.scope(run):
            group = self._groups[run] = Group(self._site, run, self)
            group.standstill.function = asyncio.current_task()
            sampler.running_group.set(group)
            install(current().replace(starts=group.starts.start))
            try:
                found = await awaited(function(*args, **kwargs))
            finally:
                # The task will have its error, whose traceback may hold the group: a cycle.
                group.standstill.function = None
            await group.starts.told()
            group.check_whole()
            self._site.check_living(range(group.size), "run")
            # All it has sent has arrived. Ranks that wait for more are told that nothing comes, and
            # of a standstill, which ends their waits with its own words.
            why = group.standstill.found
            await self._site.tell_all(group.others, "returned", run, group.rank, why)
            return found

    def enter(self, run: Any) -> None:
        """Make a run's group the current one."""
        group = self._groups.get(run)
        if group is None:
            group = self._groups[run] = Group(self._site, run, self)
        sampler.running_group.set(group)

    def has_ended(self, run: Any) -> bool:
        """Whether a run has ended here: it has failed somewhere, or nobody waits for it."""
        return run in self._lives.ended

    def box(self, run: Any, key: Any, sender: int) -> asyncio.Future[Any]:
        """A future for the name and content of a message; raises if the run has ended."""
        if self.has_ended(run):
            # A pass that nobody awaits may outlive its run.
            raise late("the run")
        boxes = self._mail.setdefault(run, {})
        box = boxes.get((key, sender))
        if box is None:
            box = boxes[key, sender] = self._site.loop.create_future()
            if sender in self._site.lost:
                self._lose(box, sender)
            elif (group := self._groups.get(run)) is not None and group.standstill.found:
                _fail(box, AutogradError(group.standstill.found))
            elif sender in self._returned.get(run, ()):
                _fail(box, _missed(sender))
        return box

    def on_mail(self, run: Any, tag: Any, sender: int, content: Any) -> None:
        """Keep what has come, for a run that may not have begun here."""
        if (run, tag[1:3]) in self._closed:
            return
        box = self.box(run, tag[1:], sender)
        if not box.done():
            box.set_result((tag[0], content))
        group = self._groups.get(run)
        if group is not None:
            group.standstill.came(sender, tag[1:3])

    async def receive(self, run: Any, key: Any, sender: int) -> Any:
        """Await what another has sent, with the name it has given it; it is kept no longer.

        Raises:
            TimeoutError: if it does not come in time.
        """
        box = self.box(run, key, sender)
        try:
            # If this wait is cancelled, its run has ended, or does not need the message any more.
            if not await one_of(box, seconds=self._site.timeout):
                raise TimeoutError(
                    f"rank {sender} has sent nothing within {self._site.timeout:g} s, the timeout "
                    f"of the world"
                )
            return box.result()
        finally:
            self._mail.get(run, {}).pop((key, sender), None)
            # The traceback of its error holds this frame: a cycle.
            del box

    def close(self, run: Any, name: Any) -> None:
        """Drop the mail of a pass, and what of it comes later."""
        self._closed.add((run, name))
        boxes = self._mail.get(run, {})
        for key, sender in [box for box in boxes if box[0][:2] == name]:
            boxes.pop((key, sender)).cancel()

    def on_returned(self, run: Any, rank: int, why: str | None) -> None:
        """The function of a run has returned on a rank, perhaps after a standstill.

        Nothing more comes from it.
        """
        if self.has_ended(run):
            return
        if why is not None:
            self.on_stop_waiting(run, why)
        self._returned.setdefault(run, set()).add(rank)
        for (_, sender), box in tuple(self._mail.get(run, {}).items()):
            if sender == rank and not box.done():
                _fail(box, _missed(rank))

    def on_awaits(self, run: Any, rank: int, waits: Any, missing: set[Any]) -> None:
        """Note what a run's tasks await on a rank that lacks what this rank has begun."""
        group = self._groups.get(run)
        if group is not None:
            group.standstill.told(rank, waits, missing)

    def on_stop_waiting(self, run: Any, why: str) -> None:
        """End all waits of a run for other ranks, except those for what rank 0 has decided."""
        group = self._groups.get(run)
        if group is None or group.standstill.found is not None:
            return
        group.standstill.found = why
        for (key, _), box in tuple(self._mail.get(run, {}).items()):
            if key[-1] != "decision" and not box.done():
                _fail(box, AutogradError(why))

    def lose(self, rank: int) -> None:
        """A worker is lost: nothing more comes from it."""
        for boxes in tuple(self._mail.values()):
            for (_, sender), box in tuple(boxes.items()):
                if sender == rank and not box.done():
                    self._lose(box, rank)

    def _lose(self, box: asyncio.Future[Any], rank: int) -> None:
        _fail(box, self._site.lost_error(rank, "a collective"))

    async def decided(self, run: Any) -> None:
        """Wait until passes that have voted know the decision, for the grace at most."""
        boxes = self._mail.get(run, {}).items()
        waiting = [box for (key, _), box in boxes if key[-1] == "decision"]
        # If this wait is cancelled, the world ends.
        await self._site.wait(waiting)

    def end_all(self) -> None:
        """Drop the mail of all runs, and refuse what comes later."""
        for run in {*self._groups, *self._mail}:
            self._lives.ended.add(run, "closed")
            self.forget(run)

    def forget(self, run: Any) -> None:
        """Drop the mail of a run."""
        group = self._groups.pop(run, None)
        if group is not None:
            group.starts.leave()
        self._returned.pop(run, None)
        for box in self._mail.pop(run, {}).values():
            box.cancel()


def _missed(rank: int) -> AutogradError:
    return AutogradError(
        f"the function of the run has returned on rank {rank}, which has not taken part in "
        f"what this rank waits for: call collectives, and passes of a data parallel model, "
        f"equally often on all ranks"
    )


def _fail(box: asyncio.Future[Any], error: Exception) -> None:
    box.set_exception(error)
    retrieve(box)
