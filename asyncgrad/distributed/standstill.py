"""Ranks of a run that wait for one another: all of them are told, and raise.

A run's function that awaits a pass, or a collective, does nothing else meanwhile. So if another
rank has begun something that this rank has not, this rank tells it what it awaits. If that rank's
function awaits what is missing here, and has not begun what is awaited here, neither goes on.
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from asyncgrad.distributed.lifetimes import Memory
from asyncgrad.records import NamedTuple

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from asyncgrad.distributed.site import Site

#: Names what all ranks take part in: the first two members of the keys of its messages.
Key = tuple[Any, Any]


class Wait(NamedTuple):
    """What a rank's function awaits."""

    keys: set[Key]
    what: str


class Ranks(Protocol):
    """What `Standstill` uses of `Group`, whose module imports this one."""

    site: Site
    run: Any
    rank: int
    others: list[int]

    def stop_waiting(self, why: str) -> None:
        """End all waits for other ranks."""


class Standstill:
    """Notices, on one rank, that its run's function and that of another wait for one another."""

    def __init__(self, group: Ranks) -> None:
        """Start with nothing begun."""
        self._group = group
        #: The task of the run's function; None where there is none to wait.
        self.function: asyncio.Task[Any] | None = None
        #: Which ranks wait for one another: the error of all that follows.
        self.found: str | None = None
        self._begun = Memory()
        #: By rank: what it has begun, and this rank has not; and what it was told of that.
        self._missing: dict[int, set[Key]] = {}
        self._answered: dict[int, Any] = {}
        #: What may be awaited here, each with the future of its pass; None for a collective.
        self._waits: list[tuple[Wait, Any]] = []
        #: What other ranks await, each with what they have not begun.
        self._told: dict[int, tuple[Wait, set[Key]]] = {}
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
    def awaiting(self, keys: set[Key], what: str, future: Any = None) -> Iterator[None]:
        """In the block this rank waits for the others."""
        entry = Wait(keys, what), future
        self._waits.append(entry)
        # By then the function awaits the pass that it has just started.
        self._group.site.loop.call_soon(self._look)
        try:
            yield
        finally:
            self._waits.remove(entry)

    def came(self, sender: int, key: Key) -> None:
        """Take note of a message of another rank."""
        if self.function is not None and key not in self._begun:
            self._missing.setdefault(sender, set()).add(key)
            self._look()

    def told(self, rank: int, wait: Wait, missing: set[Key]) -> None:
        """Take note of what the function of another rank awaits."""
        self._told[rank] = wait, missing
        self._look()

    def _awaited(self) -> Wait | None:
        """The wait for other ranks that the run's function is in, if it is in one."""
        waiter = getattr(self.function, "_fut_waiter", None)
        for wait, future in self._waits:
            if future is None or future is waiter:
                return wait
        return None

    def _look(self) -> None:
        """End all waits if another rank waits for this one; tell the others what is awaited."""
        own = self._awaited()
        if own is None or self.found is not None:
            return
        group = self._group
        for rank, (wait, missing) in self._told.items():
            if missing.intersection(own.keys) and any(key not in self._begun for key in wait.keys):
                found = (
                    f"ranks {group.rank} and {rank} wait for one another: rank {group.rank} in "
                    f"{own.what}, rank {rank} in {wait.what}. Call collectives, and passes of data "
                    f"parallel models, in the same order on all ranks"
                )
                group.stop_waiting(found)
                for other in group.others:
                    group.site.tell(other, "stop_waiting", group.run, found)
                return
        for rank, keys in self._missing.items():
            answer = own, set(keys)
            if keys and self._answered.get(rank) != answer:
                self._answered[rank] = answer
                group.site.tell(rank, "awaits", group.run, group.rank, *answer)
