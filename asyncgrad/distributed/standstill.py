"""Ranks of a run that wait for one another: all of them are told, and raise.

A rank stands still while all tasks of its function wait for one another, or for something in which
all ranks take part. If another rank has then begun something that this rank has not, this rank
tells it what it awaits. Of ranks that stand still none goes on if, for all that they await, one of
them has not begun it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from asyncgrad.distributed.lifetimes import Memory
from asyncgrad.distributed.mail import Mail
from asyncgrad.distributed.site import Site
from asyncgrad.distributed.waiting import awaited_by, tasks_of
from asyncgrad.records import NamedTuple

if TYPE_CHECKING:
    import asyncio

#: Names what all ranks take part in: the first two members of the keys of its messages.
Key = tuple[Any, Any]


class Wait(NamedTuple):
    """What a task of a rank's function awaits."""

    keys: set[Key]
    what: str


#: By rank: what it awaits, and what it has not begun; None for this rank.
Stuck = dict[int, tuple[list[Wait], set[Key] | None]]


class Standstill:
    """Notices, on one rank, that its run's function and those of others wait for one another."""

    def __init__(self, site: Site, run: Any, mail: Mail) -> None:
        self._site = site
        self._run = run
        self._mail = mail
        #: The task of the run's function; None where there is none to wait.
        self.function: asyncio.Task[Any] | None = None
        self._begun = Memory()
        #: By rank: what it has begun, and this rank has not; and what it was told of that.
        self._missing: dict[int, set[Key]] = {}
        self._answered: dict[int, Any] = {}
        #: What is awaited here, each with the future of its pass, or the task of a collective.
        self._waits: list[tuple[Wait, asyncio.Future[Any]]] = []
        #: By rank: what it awaits, and what it has not begun, if it stood still when it said so.
        self._told: dict[int, tuple[list[Wait], set[Key]]] = {}
        #: What is looked at again when it is done.
        self._watched: weakref.WeakSet[asyncio.Future[Any]] = weakref.WeakSet()
        self._looks_soon = False
        #: The models that take part in each pass.
        self._together: weakref.WeakKeyDictionary[Any, dict[Key, str]] = weakref.WeakKeyDictionary()

    def together(self, task: Any) -> dict[Key, str]:
        """The names of the models that take part in a pass, by the keys of their messages."""
        return self._together.setdefault(task, {})

    def begin(self, key: Key) -> None:
        """Note that this rank takes part in something."""
        self._begun.add(key)
        for missing in self._missing.values():
            missing.discard(key)

    @contextmanager
    def awaiting(self, keys: set[Key], what: str, future: Any) -> Iterator[None]:
        """In the block a pass, or the task of a collective, waits for the others."""
        entry = Wait(keys, what), future
        self._waits.append(entry)
        # By then the function awaits the pass that it has just started.
        self._look_soon()
        try:
            yield
        finally:
            self._waits.remove(entry)
            # What others were told of it no longer holds, though another task may still wait.
            self._look_soon()
            # The traceback of an error holds this frame, and the task may hold the error: a cycle.
            del entry, future

    def came(self, sender: int, key: Key) -> None:
        """Take note of a message of another rank."""
        if sender in self._told:
            self._told[sender][1].discard(key)
        if key not in self._begun:
            self._missing.setdefault(sender, set()).add(key)
            self._look_soon()

    def told(self, rank: int, waits: list[Wait], missing: set[Key]) -> None:
        """Take note of what another rank awaits, which stands still."""
        self._told[rank] = waits, missing
        self._look_soon()

    def _look_soon(self, _: object = None) -> None:
        # In the normal case nothing is missing, and nothing is looked at.
        if self.function is not None and not self._looks_soon and any(self._missing.values()):
            self._looks_soon = True
            self._site.loop.call_soon(self._look)

    def _awaited(self) -> list[Wait]:
        """What the run's tasks await, if none of them goes on without it."""
        found: list[Wait] = []
        if self.function is None or not self._waits:
            return found
        tasks = tasks_of(self.function)
        for task in tasks:
            own = [wait for wait, future in self._waits if future is task]
            if own:
                found += own
                continue
            awaited = awaited_by(task)
            for future in awaited:
                waits = [wait for wait, pending in self._waits if pending is future]
                if not waits and future not in tasks:
                    # Nothing is known of what ends this future: that may happen at any time.
                    if future not in self._watched:
                        self._watched.add(future)
                        future.add_done_callback(self._look_soon)
                    return []
                found += waits
            if not awaited:
                # The task is about to go on.
                self._look_soon()
                return []
        return sorted(found, key=lambda wait: wait.what)

    def _look(self) -> None:
        self._looks_soon = False
        own, this = self._awaited(), self._site.rank
        if not own or self._mail.stopped is not None:
            return
        # Of this rank it is known what it has begun, so that nothing has to be listed.
        stuck: Stuck = {**self._told, this: (own, None)}
        while free := [rank for rank in stuck if self._goes_on(rank, stuck)]:
            for rank in free:
                del stuck[rank]
        if this in stuck:
            wait, rank = next(
                (wait, rank) for wait in own for rank in stuck if self._lacks(rank, wait, stuck)
            )
            other = stuck[rank][0][0].what
            found = (
                f"ranks {this} and {rank} wait for one another: rank {this} in "
                f"{wait.what}, rank {rank} in {other}. Call collectives, and passes of data "
                f"parallel models, in the same order on all ranks"
            )
            self._mail.stop(found)
            for other_rank in {*range(self._site.size)} - {this}:
                self._site.tell(other_rank, "stop_waiting", self._run, found)
            return
        missing = set().union(*self._missing.values())
        for rank, keys in self._missing.items():
            answer = own, missing
            if keys and self._answered.get(rank) != answer:
                self._answered[rank] = answer
                self._site.tell(rank, "awaits", self._run, this, *answer)

    def _goes_on(self, rank: int, stuck: Stuck) -> bool:
        """Whether something that a rank awaits lacks none of these ranks."""
        waits = stuck[rank][0]
        return any(not any(self._lacks(one, wait, stuck) for one in stuck) for wait in waits)

    def _lacks(self, rank: int, wait: Wait, stuck: Stuck) -> bool:
        """Whether a rank has not begun all of what another awaits."""
        missing = stuck[rank][1]
        if missing is None:
            return any(key not in self._begun for key in wait.keys)
        return not wait.keys.isdisjoint(missing)
