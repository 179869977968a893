"""The end of a pass that has more to do than to commit: queued callbacks, `.grad`s of devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.core.commit import commit_revocably
from asyncgrad.core.hook_calls import awaited
from asyncgrad.core.run_node import in_turn

if TYPE_CHECKING:
    from collections.abc import Generator

    from asyncgrad.core.pass_state import PassState
    from asyncgrad.core.streams import PassStreams


def conclude(task: PassState) -> Generator[Any, Any, None]:
    """Commit the gradients of a pass that has run, and call the queued callbacks.

    Callbacks see the new `.grad`s. If one fails, or the pass is cancelled while one waits, the
    commit is undone when the pass ends.
    """
    streams: PassStreams | None = task.streams
    prepared = [] if streams is None else streams.prepared
    shared = streams is not None and streams.shares(task)
    task.revoke = yield from in_turn(
        task, lambda wait: commit_revocably(task.staged, task.recorded, wait, prepared)
    )
    task.staged.clear()
    prepared.clear()
    if shared:
        yield from streams.wait(task)  # type: ignore[union-attr]
    while task.callbacks:
        yield from awaited(task.callbacks.pop(0)())
