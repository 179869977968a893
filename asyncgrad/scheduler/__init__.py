"""Runs passes on an event loop or in threads: the only package that waits."""

from __future__ import annotations

from asyncio.events import _get_running_loop
from sys import modules
from typing import Any

from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.modes import current
from asyncgrad.core.pass_state import PassState
from asyncgrad.scheduler.completion import check_deadline
from asyncgrad.scheduler.coroutines import until_free
from asyncgrad.scheduler.engine import Engine
from asyncgrad.scheduler.future import BackwardFuture, refuse_forgotten
from asyncgrad.scheduler.inline import run_inline, start_chain
from asyncgrad.scheduler.multi_pass import MultiPass, call, run_multi_pass, waits
from asyncgrad.scheduler.offload import cooperate, offload, turn_of_caller
from asyncgrad.scheduler.portal import call_on_portal
from asyncgrad.scheduler.reentrant import is_in_node
from asyncgrad.scheduler.registry import engine, engine_of, refuse_trio
from asyncgrad.scheduler.results import as_result, awaitable

__all__ = [
    "BackwardFuture", "Engine", "MultiPass", "awaitable", "awaits", "call", "call_on_portal",
    "check_awaited", "check_deadline", "cooperate", "engine", "engine_of", "offload",
    "run_multi_pass", "start", "start_chain", "turn_of_caller", "until_free_for", "waits",
]  # fmt: skip


def start(task: GraphTask) -> Any:
    """Start a pass on the running loop, or run it to its end if it could not be awaited there.

    The latter happens where no loop runs, where blocking is asked for, and in a synchronous node.
    The result is the future of the pass, or what `as_result` makes of one that has ended.
    """
    loop = _get_running_loop()
    if loop is not None:
        modes = current()
        if not modes.blocking and not is_in_node():
            return engine_of(loop).submit(task, loop)
    elif "trio" in modules and not current().blocking:
        refuse_trio("grad" if task.captures else "backward")
    return as_result(run_inline(task))


def awaits(task: PassState | None) -> bool:
    """Whether a pass runs on the running loop, so that it can await what a node returns."""
    return task is not None and task.future is not None and _get_running_loop() is not None


def until_free_for(task: PassState) -> Any:
    """What a pass on the running loop awaits before it commits; None for one that may block."""
    return until_free() if awaits(task) else None


def check_awaited(name: str) -> None:
    """Raise if the current task has started a pass that it has not awaited."""
    loop = _get_running_loop()
    if loop is not None:
        refuse_forgotten(engine_of(loop), name)
