"""One engine for each event loop, created on first use; a forked child starts with none."""

from __future__ import annotations

import sys
from asyncio.events import _get_running_loop
from typing import TYPE_CHECKING

from asyncgrad.core.locks import at_fork, lasting_lock
from asyncgrad.scheduler.engine import Engine

if TYPE_CHECKING:
    import asyncio

_engines: dict[int, Engine] = {}
#: Held while an engine is added or removed.
_changing = lasting_lock()
#: In a forked child: the parent's engines. They are kept, because an engine that dies notifies its
#: loop, which the child shares with the parent.
_inherited: list[Engine] = []


def engine_of(loop: asyncio.AbstractEventLoop) -> Engine:
    """The engine of a loop, created on first use."""
    engine = _engines.get(id(loop))
    if engine is None or engine._loop() is not loop:
        _sweep()
        engine = Engine(loop, _forget, _after_collection)
        with _changing:
            _engines[id(loop)] = engine
    return engine


def engine() -> Engine:
    """The engine of the running event loop.

    Raises:
        RuntimeError: if no loop is running.
    """
    return running_engine("engine")


def running_engine(name: str) -> Engine:
    """The engine of the running event loop, for a function that needs one."""
    return engine_of(running_loop(name))


def running_loop(name: str) -> asyncio.AbstractEventLoop:
    """The running event loop, for a function that needs one."""
    loop = _get_running_loop()
    if loop is None:
        refuse_trio(name)
        raise RuntimeError(f"{name}(): no running event loop. Call it from a coroutine.")
    return loop


def refuse_trio(name: str) -> None:
    """Raise if the caller runs on trio: a pass would hold its loop, and nothing can be awaited.

    A blocking pass in a thread that trio started is fine, as no task of trio's runs there.
    """
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        raise RuntimeError(
            f"{name}: asyncgrad is awaited on asyncio's event loops, not on trio's. Here, run the "
            "blocking call in a thread, trio.to_thread.run_sync(loss.backward), or let it block "
            "the loop, with asyncgrad.blocking()."
        )


def _sweep() -> None:
    """Close the engines of loops that were closed or freed without a shut-down."""
    for engine in tuple(_engines.values()):
        if engine.is_abandoned():
            # An interrupt may come before it is forgotten: then it is closed again.
            engine.close()
            _forget(engine)


def _after_collection() -> None:
    """Close engines of closed loops after a run of the collector, as loops don't report their end.

    This is done in a thread, because the code that the collector interrupts may hold the locks that
    are needed.
    """
    for engine in tuple(_engines.values()):
        if engine.is_abandoned():
            engine.thread_segments.threads.submit(_sweep)


def _forget(engine: Engine) -> None:
    """Remove a closed engine."""
    with _changing:
        for key, other in list(_engines.items()):
            if other is engine:
                del _engines[key]


def _after_fork() -> None:
    """Let a child process start without engines: the threads were not forked."""
    for engine in _engines.values():
        engine.drop()
        _inherited.append(engine)
    _engines.clear()


at_fork(_after_fork)
