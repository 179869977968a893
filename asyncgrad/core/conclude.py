"""The end of a pass: participants, its commit, callbacks, devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.core.commit import commit, commit_revocably
from asyncgrad.core.hook_calls import awaited
from asyncgrad.core.participants import check_given, staged_given
from asyncgrad.core.run_node import in_turn
from asyncgrad.core.variable import wrap
from asyncgrad.errors import AutogradError

if TYPE_CHECKING:
    from collections.abc import Generator

    from asyncgrad.core.participants import Member
    from asyncgrad.core.pass_state import PassState
    from asyncgrad.core.streams import PassStreams


def commit_staged(task: PassState, wait: bool) -> bool:
    """Add what a pass has staged; nothing, and return False, if another commits and not `wait`."""
    staged = task.staged
    if task.streams is not None:
        prepared = task.streams.prepared
        if not commit(staged, task.recorded, wait, prepared):
            return False
        # Free the replaced `.grad` arrays now, even if the pass object is kept.
        prepared.clear()
        return True
    if not staged:
        return True
    if task.recorded is None:
        return commit(staged, None, wait)
    # Sums are part of the recorded graph, so they must be made in the pass's own grad mode.
    return bool(task.within(commit, staged, task.recorded, wait))


def conclude(task: PassState) -> Generator[Any, Any, None]:
    """Commit a pass that has callbacks, or that must wait for devices, and call its callbacks.

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


def ask(task: PassState, member: Member) -> Generator[Any, Any, None]:
    """Ask a participant; gradients that it returns replace the staged ones of the same leaves."""
    if task.streams is not None:
        # Participants may read the gradients in any stream, or on the host.
        yield from task.streams.wait(task)
    given = yield from awaited(member.participant.prepare(_staged(task)))
    if given is None:
        return
    check_given(member.name(), given)
    if not given:
        return
    if task.captures is not None:
        raise AutogradError(
            f"{member.name()} gave gradients for leaves to a pass of grad(), which adds to none: "
            f"return None from prepare() there"
        )
    others: frozenset[Any] = frozenset().union(*(other.given for other in task.members))
    for leaf in given:
        if leaf in others:
            raise AutogradError(
                f"{member.name()} gave a gradient for a leaf of shape {leaf._metadata.shape}, and "
                f"so did another participant: let one of them give it"
            )
    member.given = frozenset(given)
    kept = [entry for entry in task.staged if entry[0] not in member.given]
    task.secured = len(kept)
    task.staged = kept + staged_given(given, recorded=task.recorded is not None)


def _staged(task: PassState) -> dict[Any, Any]:
    """The staged gradients by leaf, as tensors."""
    gradients: dict[Any, Any] = {}
    for variable, gradient, _ in task.staged:
        F = variable._metadata.F
        if task.recorded is None:
            array = F.in_own_dtype(gradient, variable._metadata.dtype)
            gradient = wrap(array, F.metadata_of(array))
        known = gradients.get(variable)
        if known is not None and task.recorded is not None:
            gradient = task.recorded.add(known, gradient)
        elif known is not None:
            total, _ = F.accumulate(known._array, False, gradient._array, False)
            gradient = wrap(total, gradient._metadata)
        gradients[variable] = gradient
    return gradients
