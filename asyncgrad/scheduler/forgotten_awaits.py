"""Finds forgotten awaits: which tasks have started passes whose outcome they never looked at."""

from __future__ import annotations

import weakref
from asyncio import current_task
from typing import TYPE_CHECKING, Any

from asyncgrad.errors import PendingBackwardError
from asyncgrad.scheduler.reentrant import is_in_node

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from asyncgrad.core.graph_task import GraphTask


class ForgottenAwaits:
    """The unobserved passes of one engine."""

    __slots__ = ("lost", "unobserved")

    def __init__(self) -> None:
        #: By the `id` of each unobserved future, the `id` of the task that started the pass. The
        #: future keeps its starter alive, and a starter may hold the future (a cancelled task has
        #: the frame that started the pass), so references in here would leak. Futures may die in
        #: any thread; each changes only its own entry.
        self.unobserved: dict[int, int] = {}
        #: The starters of unobserved passes whose futures are gone.
        self.lost: weakref.WeakSet[Any] = weakref.WeakSet()

    def note_lost(self, starter: asyncio.Task[Any] | None) -> None:
        """Note that an unobserved future is gone."""
        if starter is not None and not starter.done():
            self.lost.add(starter)

    def check_awaited(self, live: Iterable[GraphTask], name: str) -> None:
        """Raise if the current task has started a pass, live or lost, that it has not awaited."""
        starter = current_task()
        if is_in_node():
            # The node may belong to a pass that this very task has just started.
            return
        if (
            id(starter) in self.unobserved.values()
            or self._take_lost(starter)
            or any(task.future._starter is starter for task in live if task.future)
        ):
            raise PendingBackwardError(
                f"{name}: this task has started a backward pass that it has not awaited. Write "
                f"`await loss.backward()` before it."
            )

    def _take_lost(self, starter: asyncio.Task[Any] | None) -> bool:
        """Whether an unobserved future of the task is gone; True only once."""
        lost = starter in self.lost
        if lost:
            self.lost.discard(starter)
        return lost
