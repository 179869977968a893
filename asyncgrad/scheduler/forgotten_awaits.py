"""Who has started passes and not looked at them: a forgotten await is found by rule."""

from __future__ import annotations

import weakref
from asyncio import current_task
from typing import TYPE_CHECKING, Any

from asyncgrad.errors import PendingBackwardError
from asyncgrad.scheduler.reentrant import is_in_node

if TYPE_CHECKING:
    from asyncgrad.scheduler.engine import Engine


class ForgottenAwaits:
    """What one engine knows of it."""

    __slots__ = ("lost", "unobserved")

    def __init__(self) -> None:
        """Nothing was started."""
        #: The starters of passes that nobody has looked at, by the future: by the `id` of each,
        #: for the future keeps its starter alive. That may hold the future itself (a cancelled
        #: task has the frame that started a pass), so that tasks in here would never go. Futures
        #: may die in any thread: each of them changes its own entry only.
        self.unobserved: dict[int, int] = {}
        #: The starters of those whose futures are gone.
        self.lost: weakref.WeakSet[Any] = weakref.WeakSet()

    def note_lost(self, starter: Any) -> None:
        """The future of a pass is gone, and nobody has looked at it."""
        if starter is not None and not starter.done():
            self.lost.add(starter)

    def check_awaited(self, engine: Engine, name: str) -> None:
        """Raise if the current task has started a pass that it has not awaited."""
        starter = current_task()
        if is_in_node():
            # Maybe in the first slice of the pass that its own task has just started.
            return
        if (
            id(starter) in self.unobserved.values()
            or self._take_lost(starter)
            or any(task.future._starter is starter for task in engine.live if task.future)
        ):
            raise PendingBackwardError(
                f"{name}: this task has started a backward pass that it has not awaited. Write "
                f"`await loss.backward()` before it."
            )

    def _take_lost(self, starter: Any) -> bool:
        """Whether the future of a pass of a task is gone; says so once."""
        lost = starter in self.lost
        if lost:
            self.lost.discard(starter)
        return lost
