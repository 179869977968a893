"""The runs of one host: functions that run on all workers at once."""

from __future__ import annotations

import asyncio
from typing import Any

from asyncgrad.core.modes import current, install
from asyncgrad.distributed.errors import late
from asyncgrad.distributed.group import Group
from asyncgrad.distributed.lifetimes import Lifetimes, Memory
from asyncgrad.distributed.site import Site
from asyncgrad.distributed.values import awaited
from asyncgrad.utils.data import sampler


class Runs:
    """The runs of one host, and the passes of replicated models, which exchange messages, too."""

    def __init__(self, site: Site, lives: Lifetimes) -> None:
        self._site = site
        self._lives = lives
        #: By run, or by pass of a replicated model.
        self.groups: dict[Any, Group] = {}
        #: The passes that succeed, as rank 0, or a rank that it has told, says: by run and key.
        self.succeeded = Memory()

    def group(self, run: Any) -> Group:
        """The group of a run, which is made when the first message comes, or the run begins."""
        if run in self._lives.ended:
            raise late("the run")
        if run not in self.groups:
            self.groups[run] = Group(self._site, run)
        return self.groups[run]

    def enter(self, run: Any) -> Group:
        """Make a run's group the current one."""
        group = self.group(run)
        sampler.running_group.set(group)
        return group

    async def on_run(self, run: Any, function: Any, args: Any, kwargs: Any) -> Any:
        """Run a function as one of a group."""
        with self._lives.scope(run):
            group = self.enter(run)
            group.standstill.function = asyncio.current_task()
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
            why = group.mail.stopped
            await self._site.tell_all(group.others, "returned", run, group.rank, why)
            return found

    def on_mail(self, run: Any, tag: Any, sender: int, content: Any) -> None:
        """Keep what has come for a run."""
        self.group(run).take(tag, sender, content)

    def on_gave_up(self, run: Any, key: Any, sender: int, why: str | None) -> None:
        """Another rank has given a pass up."""
        self.group(run).give_up(key, sender, why)

    def on_succeeds(self, run: Any, key: Any) -> None:
        """Rank 0 has decided that a pass succeeds."""
        if self.group(run).mail.decide(key, succeeds=True):
            self.succeeded.add((run, key))

    def on_has_succeeded(self, run: Any, key: Any, lost: dict[int, str]) -> bool:
        """Whether this rank knows that a pass succeeds; it listens to none of the lost any more."""
        for rank, reason in lost.items():
            self._site.fence(rank, reason)
        return (run, key) in self.succeeded

    def on_returned(self, run: Any, rank: int, why: str | None) -> None:
        """The function of a run has returned on a rank, perhaps after a standstill."""
        if why is not None:
            self.group(run).mail.stop(why)
        self.group(run).mail.returned(rank)

    def on_awaits(self, run: Any, rank: int, waits: Any, missing: set[Any]) -> None:
        """Note what a run's tasks await on a rank that lacks what this rank has begun."""
        self.group(run).standstill.told(rank, waits, missing)

    def on_stop_waiting(self, run: Any, why: str) -> None:
        """End all waits of a run for other ranks."""
        self.group(run).mail.stop(why)

    def lose(self, rank: int) -> None:
        """A worker is lost: nothing more comes from it."""
        for group in self.groups.values():
            group.mail.lose(rank)

    def forget(self, run: Any) -> None:
        """Drop the messages of a run or a pass."""
        group = self.groups.pop(run, None)
        if group is not None:
            group.end()
