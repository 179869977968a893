"""Whose turn it is to commit: passes commit one at a time.

A thread that may block waits for the lock. A loop goes on instead: its pass gets in line, and tries
again when it is called. Those who may block, and come later, let the passes in line go first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from asyncgrad.core.locks import Lock, acquiring, at_fork, get_ident, is_held_here, lasting_lock

#: Passes commit one at a time, so that no update is lost; but a signal handler, or a `__del__` that
#: the garbage collector calls, may run a pass while its thread commits another.
committing = lasting_lock()
#: Functions to call as soon as no pass commits, by the thread that has committed last.
awaiting: deque[Callable[[], None]] = deque()
#: The places in line of passes on loops that have found another pass at it, in the order in which
#: they came, and the threads of their loops. Whoever may block and comes later lets them go first:
#: otherwise threads that commit without a pause would leave a loop no moment in which no pass
#: commits.
line: dict[Place, int] = {}
#: How many seconds the next in line has to come when it has been called; twice as many each time
#: that it has come too late, because the turns of its loop may take longer.
_PATIENCE = 0.05

# Those who wait are passes of the parent, whose loops do not run in a child process.
at_fork(awaiting.clear)
at_fork(line.clear)


class Place:
    """The place in line of a pass."""

    __slots__ = ("patience", "turn")

    def __init__(self) -> None:
        self.patience = _PATIENCE
        #: Held until the pass has had its turn.
        self.turn = Lock()
        self.turn.acquire(False)


def when_free(call: Callable[[], None]) -> None:
    """Call a function, in any thread, once no pass commits: perhaps now.

    An interrupt during the call makes it be called twice.
    """
    awaiting.append(call)
    _call_if_free()


def _call_if_free() -> bool:
    """Call those who wait until no pass commits, unless one does; whether none does."""
    taken = False
    for taken in acquiring(committing, False):
        if taken:
            committing.release()
            call_awaiting()
        break
    return taken


def call_awaiting() -> None:
    """Call the functions that wait until no pass commits."""
    try:
        # As `acquiring` explains, no interrupt comes between a call by `for` and the body.
        for call in iter(awaiting.popleft, None):
            try:
                call()
            except BaseException:
                # An interrupt, perhaps before it has done anything.
                call()
                raise
    except IndexError:
        # None is left.
        return
    except BaseException:
        call_awaiting()
        raise


def line_up(place: Place | None = None) -> Place:
    """Have those who may block, and come later, let a pass on the running loop go first.

    Args:
        place: what this has returned before for the same turn.

    Returns:
        The place in line, for `leave_line`.
    """
    if place is None:
        place = Place()
    elif place not in line:
        # Those for whom it took too long have ended the line.
        place.patience *= 2
    line[place] = get_ident()
    return place


def leave_line(place: Place) -> None:
    """Let others go on, because the pass has had its turn or needs none any more."""
    line.pop(place, None)
    place.turn.release()


def wait_for_line() -> None:
    """Block until the passes that are in line have had their turn.

    They may never have it, because a loop was stopped or waits for this thread. So if the next in
    line does not come though no pass commits, nobody waits for those in line until they try again.
    """
    if is_held_here(committing) or get_ident() in line.values():
        # Those in line could not have their turn before this thread goes on.
        return
    for place in line.copy():
        while place in line:
            if place.turn.acquire(timeout=place.patience):
                place.turn.release()
            elif _call_if_free():
                line.clear()
