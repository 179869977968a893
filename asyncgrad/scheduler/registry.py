"""One engine for each event loop, made on first use; a forked child starts afresh."""

from __future__ import annotations

import os
from asyncio.events import _get_running_loop
from typing import TYPE_CHECKING

from asyncgrad.scheduler import blas
from asyncgrad.scheduler.engine import Engine

if TYPE_CHECKING:
    import asyncio

_engines: dict[int, Engine] = {}
#: In a forked child: the parent's. If they died, their loops, which are shared, would be told.
_inherited: list[Engine] = []


def engine_of(loop: asyncio.AbstractEventLoop) -> Engine:
    """The engine of a loop, made on first use."""
    engine = _engines.get(id(loop))
    if engine is None or engine._loop() is not loop:
        for key, other in list(_engines.items()):
            gone = other._loop()
            if (gone is None or gone.is_closed()) and _engines.pop(key, None) is other:
                other.close()
        engine = _engines[id(loop)] = Engine(loop, _forget)
    return engine


def engine() -> Engine:
    """The engine of the running event loop.

    Raises:
        RuntimeError: if no loop is running.
    """
    loop = _get_running_loop()
    if loop is None:
        raise RuntimeError("engine(): no running event loop. Call it from a coroutine.")
    return engine_of(loop)


def _forget(engine: Engine) -> None:
    """Let go of a closed engine."""
    for key, other in list(_engines.items()):
        if other is engine:
            del _engines[key]


def _after_fork() -> None:
    """A child starts afresh: the threads were not forked."""
    for engine in _engines.values():
        engine.disown()
        _inherited.append(engine)
    _engines.clear()
    blas.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
