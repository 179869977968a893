"""The threads of an engine: there before they are needed, and gone with it.

Starting a thread the ordinary way waits until it runs, for which a busy interpreter takes 15 ms.
Here nobody waits: a thread of its own starts the others.
"""

from __future__ import annotations

import atexit
import weakref
from _thread import start_new_thread
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    #: Does not raise.
    Job = Callable[[], None]


class Threads:
    """A fixed number of threads that run jobs in the order in which they come."""

    def __init__(self, count: int, name: str) -> None:
        """Start them, without waiting for it.

        Args:
            count: how many.
            name: what their names begin with.
        """
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        #: One entry for each thread that runs a job.
        self._busy: list[None] = []
        self._members: list[Thread] = []
        #: Those that have not taken their leave.
        self._present = [object()] * count
        self._ended: Callable[[], None] | None = None
        self.closed = False
        for number in range(count):
            # The interpreter does not wait for daemons; `_end_all` does.
            member = Thread(target=self._work, name=f"{name}_{number}", daemon=True)
            self._members.append(member)
        start_new_thread(_start, (self._members,))
        _all.add(self)

    def submit(self, job: Job) -> None:
        """Have a thread run a job, when one is free."""
        self._jobs.put(job)

    def _work(self) -> None:
        jobs, busy = self._jobs, self._busy
        while (job := jobs.get()) is not None:
            busy.append(None)
            job()
            busy.pop()
            # A thread that waits holds nothing.
            del job
        self._present.pop()
        if not self._present and self._ended is not None:
            # It leads to the loop.
            ended, self._ended = self._ended, None
            ended()

    def idle(self) -> int:
        """About how many threads have nothing to do."""
        return max(0, len(self._members) - len(self._busy) - self._jobs.qsize())

    def busy(self) -> bool:
        """Whether a thread works, or is about to."""
        return bool(self._busy) or not self._jobs.empty()

    def close(self, ended: Callable[[], None] | None = None) -> None:
        """Let the threads end with the jobs that they were given.

        Args:
            ended: called in the last of them, at its end.
        """
        if not self.closed:
            self.closed = True
            self._ended = ended
            for _ in self._members:
                self._jobs.put(None)

    def alive(self) -> bool:
        """Whether a thread has begun and not ended."""
        return any(member.is_alive() for member in self._members)


def _start(members: Sequence[Thread]) -> None:
    for member in members:
        member.start()


_all: weakref.WeakSet[Threads] = weakref.WeakSet()


def _end_all() -> None:
    """Wait for the threads of loops that were not shut down: the interpreter ends."""
    for threads in tuple(_all):
        threads.close()
        for member in threads._members:
            if member.is_alive():
                member.join()


atexit.register(_end_all)
