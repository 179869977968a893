"""What the asyncio tasks of a run's function wait for, as far as that can be told for certain."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterable
from contextvars import Context
from pathlib import Path
from typing import Any, TypeVar

from asyncgrad.utils.data import sampler

Function = TypeVar("Function", bound="Callable[..., Any]")

_PACKAGE = Path(__file__).parents[1]
#: Tasks of this package, which begin nothing that other ranks wait for.
_OURS = tuple(str(_PACKAGE / folder) for folder in ("distributed", "scheduler"))
#: The code of those of its coroutine functions that do.
_begins: set[Any] = set()


def begins(function: Function) -> Function:
    """Note that a coroutine function begins something in which all ranks take part."""
    _begins.add(function.__code__)
    return function


def tasks_of(function: asyncio.Task[Any]) -> list[asyncio.Task[Any]]:
    """The tasks of a run that may begin something: its function's, and those started by it."""
    found, group = [function], _group_of(function)
    for task in asyncio.all_tasks(function.get_loop()):
        if task is function or _group_of(task) is not group:
            continue
        code = getattr(task.get_coro(), "cr_code", None)
        if code is None or code in _begins or not code.co_filename.startswith(_OURS):
            found.append(task)
    return found


def _group_of(task: asyncio.Task[Any]) -> Any:
    """The group of the run whose function has started a task, directly or not."""
    # Python 3.11 has no `get_context`, but a task refers to its context.
    known = [task.get_context()] if hasattr(task, "get_context") else gc.get_referents(task)
    return next((one.get(sampler.running_group) for one in known if isinstance(one, Context)), None)


#: What a task needs that is in one of asyncio's own functions, from the variables there.
_NEEDS: dict[Any, Callable[[dict[str, Any]], Iterable[Any]]] = {
    getattr(asyncio.TaskGroup, "_aexit", asyncio.TaskGroup.__aexit__).__code__: (
        lambda own: own["self"]._tasks
    ),
    # With a timeout it may go on before.
    asyncio.tasks._wait.__code__: lambda own: own["fs"] if own["timeout"] is None else (),  # type: ignore[attr-defined]
    asyncio.wait_for.__code__: lambda own: (own["fut"],),
}


def awaited_by(task: asyncio.Task[Any]) -> list[Any]:
    """The futures of which a task needs one or more to go on; none if it goes on by itself."""
    waiter = getattr(task, "_fut_waiter", None)
    if waiter is None or waiter.done():
        return []
    coroutine: Any = task.get_coro()
    while hasattr(inner := getattr(coroutine, "cr_await", None), "cr_frame"):
        coroutine = inner
    frame = getattr(coroutine, "cr_frame", None)
    needed = frame and frame.f_code in _NEEDS and _NEEDS[frame.f_code](frame.f_locals)
    return _pending(needed or ()) or _pending([waiter])


def _pending(futures: Iterable[Any]) -> list[Any]:
    """The futures that are not done; a `gather` is replaced by the futures that it gathers."""
    found = []
    for future in futures:
        if not future.done():
            found += _pending(getattr(future, "_children", ())) or [future]
    return found
