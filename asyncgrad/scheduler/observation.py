"""Who has started passes and not looked at them: a forgotten await is found by rule."""

from __future__ import annotations

import weakref
from asyncio import current_task
from typing import TYPE_CHECKING, Any

from asyncgrad.core.modes import current
from asyncgrad.errors import PendingBackwardError

if TYPE_CHECKING:
    from asyncgrad.scheduler.engine import Engine


class Observation:
    """What one engine knows of it."""

    __slots__ = ("lost", "unobserved")

    def __init__(self) -> None:
        """Nothing was started."""
        #: Passes started by a task that nobody has looked at, by the task's `id`: their futures
        #: keep it alive. It may hold them itself (a cancelled one has the frame that started a
        #: pass), so that tasks which were in here would never go.
        self.unobserved: dict[int, int] = {}
        #: And those whose futures are gone.
        self.lost: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def note_observed(self, key: int) -> None:
        """A pass of a task has been looked at."""
        left = self.unobserved[key] - 1
        if left:
            self.unobserved[key] = left
        else:
            del self.unobserved[key]

    def note_lost(self, starter: Any) -> None:
        """The future of a pass is gone, and nobody has looked at it."""
        self.note_observed(id(starter))
        if starter is not None and not starter.done():
            self.lost[starter] = self.lost.get(starter, 0) + 1

    def check_awaited(self, engine: Engine, name: str) -> None:
        """Raise if the current task has started a pass that it has not awaited."""
        starter = current_task()
        if current().graph_task is not None:
            # A hook, maybe in the first slice of the pass that its own task has just started.
            return
        if (
            id(starter) in self.unobserved
            or (starter is not None and self.lost.pop(starter, 0))
            or any(task.future._starter is starter for task in engine.live if task.future)
        ):
            raise PendingBackwardError(
                f"{name}: this task has started a backward pass that it has not awaited. Write "
                f"`await loss.backward()` before it."
            )
