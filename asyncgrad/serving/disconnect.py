"""`unless_disconnected`: cancels work when its client disconnects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

_T = TypeVar("_T")


class Disconnected(Exception):
    """The client disconnected before the work had ended, and the work was cancelled."""


async def unless_disconnected(
    work: Callable[[], Awaitable[_T]], disconnected: Callable[[], Awaitable[object]]
) -> _T:
    """The result of `work`, which is cancelled if the client disconnects first.

    Args:
        work: a function without arguments that returns an awaitable.
        disconnected: an asynchronous function that returns when the client has disconnected.

    Raises:
        Disconnected: if the client disconnected; the work has then stopped completely.
        Exception: whatever `work` raises; or `disconnected`, whose error cancels the work.

    Example:
        >>> import asyncio
        >>> from asyncgrad.serving import unless_disconnected
        >>> async def work():
        ...     return 42
        >>> asyncio.run(unless_disconnected(work, asyncio.Event().wait))
        42
    """
    results: list[_T] = []
    errors: list[BaseException] = []
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            try:
                await disconnected()
            except Exception as error:
                errors.append(error)
            group.cancel_scope.cancel()

        group.start_soon(watch)
        try:
            results.append(await work())
        except Exception as error:
            errors.append(error)
        group.cancel_scope.cancel()
    if errors:
        try:
            raise errors[0]
        finally:
            errors.clear()
    if not results:
        raise Disconnected("the client has gone; its work was cancelled")
    return results[0]
