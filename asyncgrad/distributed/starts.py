"""Passes of a run that fail before they come to a data parallel model: the other ranks are told.

Hooks on a model's parameters take part in a pass when its first gradient has come. A pass that has
failed, was cancelled, or is past its deadline before that would leave the other ranks waiting, and
this rank would give its next pass the number that they have given this one. So all passes that a
run's function starts are watched until they end.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

from asyncgrad.core.exec_info import arrivals
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.states import DONE
from asyncgrad.core.variable import AccumulateGrad
from asyncgrad.distributed.site import Site


class Starts:
    """Watches the passes that the function of a run starts on one rank."""

    def __init__(self, site: Site) -> None:
        self._site = site
        #: Each is a `Reducer`, whose module knows this one.
        self._models: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._telling: set[asyncio.Task[Any]] = set()

    def add(self, model: Any) -> None:
        """Tell the other ranks also of passes that do not come to this model.

        It takes the place of one that was made from the same module.
        """
        for number, other in tuple(self._models.items()):
            if other.module() is model.module():
                del self._models[number]
                other.leave()
        self._models[model.number] = model

    def leave(self) -> None:
        """Let no model take part in passes any more."""
        for model in self._models.values():
            model.leave()

    def places(self) -> dict[int, str]:
        """Which parameter of which model each is, by its `id`."""
        return {
            id(parameter): f"(parameter {place} of {model.name})"
            for model in self._models.values()
            for place, parameter in enumerate(model.parameters)
        }

    def start(self, task: GraphTask, start: Callable[[GraphTask], Any]) -> Any:
        """Start a pass by a function of the scheduler's, and watch it until its end."""
        models = [model for _, model in sorted(self._models.items()) if model.is_voted()]
        if not models or task.exec_info is not None:
            # Passes of grad(), and those with `inputs=`, concern this rank alone.
            return start(task)
        # The pass drops it when it ends.
        root = task.root

        def ended(_: object = None) -> None:
            if task.state is not DONE:
                nodes = (root, *arrivals(root, None))
                reached = {id(node.variable) for node in nodes if isinstance(node, AccumulateGrad)}
                for model in models:
                    leads = not reached.isdisjoint(map(id, model.parameters))
                    if leads and (telling := model.missed(task)) is not None:
                        self._spawn(telling)

        return watched(task, start, ended)

    def _spawn(self, telling: Coroutine[Any, Any, None]) -> None:
        loop = self._site.loop
        if asyncio.events._get_running_loop() is not loop:
            loop.call_soon_threadsafe(self._spawn, telling)
            return
        told = self._site.spawn(telling)
        self._telling.add(told)
        told.add_done_callback(self._telling.discard)

    async def told(self) -> None:
        """Wait until the other ranks have been told."""
        # If this wait is cancelled, they are told all the same.
        while self._telling:
            await asyncio.wait(self._telling)


def watched(task: GraphTask, start: Callable[[GraphTask], Any], ended: Callable[..., None]) -> Any:
    """Start a pass by a function of the scheduler's, and call another when it has ended."""
    try:
        found = start(task)
    except BaseException:
        # The pass has blocked this thread.
        ended()
        raise
    if isinstance(found, asyncio.Future) and not found.done():
        # Not the method of the pass's own class: for that the caller would have looked at it.
        # Called before what the caller adds, and so before the caller can start the next pass.
        asyncio.Future.add_done_callback(found, ended)
    else:
        ended()
    try:
        return found
    finally:
        # The traceback of the pass's error may hold this frame: a cycle.
        del found
