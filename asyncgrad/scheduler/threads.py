"""The threads of an engine, which start and end with it.

`Thread.start` blocks until the thread runs, which takes 15 ms in a busy interpreter. So one extra
thread starts the others. If the system allows no more threads, it does their work itself.
"""

from __future__ import annotations

import atexit
import weakref
from _thread import start_new_thread
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING

from asyncgrad.core.locks import at_fork
from asyncgrad.devices import pieces
from asyncgrad.scheduler.queues import ORDINARY, FairQueue, take

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.scheduler.queues import Urgency

    #: Must not raise.
    Job = Callable[[], None]

#: How many jobs go before the one that has waited longest.
_PATIENCE = 64


class Threads:
    """A fixed number of threads that run jobs in order of urgency.

    `submit` must not block, not even for a lock: see `FairQueue`.
    """

    def __init__(self, number: int, kept: int = 0) -> None:
        """Prepare the threads; `start` starts them."""
        #: To leave cores to the event loop, so many idle threads don't share the work of others.
        self.kept = kept
        #: True for each job, False for each thread that should end.
        self._calls: SimpleQueue[bool] = SimpleQueue()
        self._queue: FairQueue[Urgency, tuple[Job, Job | None]] = FairQueue(_PATIENCE)
        #: Held by the thread that takes a job; `submit` does not need it.
        self._taking = Lock()
        #: One entry for each thread that runs a job.
        self._busy: list[None] = []
        self._members: list[Thread] = []
        #: Each thread pops a number at its end; the last one gets 0.
        self._present = list(range(number))
        #: What the last thread calls; it refers to the loop.
        self._ended: list[Callable[[], None]] = []
        self.closed = False
        #: Held until all threads have begun.
        self._starting = Lock()
        for place in range(number):
            # The threads are daemons, because `_end_all` waits for them when the interpreter ends.
            member = Thread(target=self._work, name=f"asyncgrad_{place}", daemon=True)
            self._members.append(member)

    def start(self) -> None:
        """Start the threads, without waiting for that."""
        self._starting.acquire()
        try:
            start_new_thread(self._start, ())
        except RuntimeError:
            self._starting.release()
            # No thread can be started, so the loop does the work. Python 3.12.1 starts none after
            # the main thread has ended.
            self.closed = True
            self._members.clear()
            self._present.clear()
        _all.add(self)

    def _start(self) -> None:
        try:
            for member in self._members:
                try:
                    member.start()
                except RuntimeError:
                    self._work()
        finally:
            self._starting.release()

    def submit(self, job: Job, urgency: Urgency = ORDINARY, then: Job | None = None) -> None:
        """Run a job in a thread, when one is free and nothing more urgent waits.

        The thread is idle again when it calls `then`, which may start work that needs one.
        """
        try:
            self._queue.push(urgency, (job, then))
        finally:
            # Also after an interrupt, which may come when the job is in the queue.
            self._calls.put(True)

    def most_urgent(self) -> Urgency | None:
        """The urgency of the next job, None if there are threads for all waiting jobs."""
        if len(self._members) - len(self._busy) >= self._calls.qsize():
            return None
        return self._queue.first()

    def lend(self, job: Job, most: int) -> int:
        """Run a job in idle threads, at most in so many of them; says in how many."""
        number = min(self.spare(), most)
        for _ in range(number):
            self.submit(job)
        return number

    def _take(self) -> tuple[Job, Job | None]:
        """Take the next job: there is one for each call, unless an interrupt cut `submit` off."""
        with self._taking:
            try:
                return self._queue.pop()
            except IndexError:
                return (lambda: None), None

    def _work(self) -> None:
        calls, busy = self._calls, self._busy
        pieces.here.lender, pieces.here.is_engine_thread = self, True
        while calls.get():
            busy.append(None)
            job, then = self._take()
            job()
            busy.pop()
            # While the thread waits for the next job, it must not keep what this one refers to.
            del job
            if then is not None:
                then()
            del then
        if not self._present.pop():
            self._leave()

    def _leave(self) -> None:
        """Call `ended` after the last thread; that thread and `close` may both try to."""
        ended = take(self._ended)
        if ended is not None:
            ended()

    def idle(self) -> int:
        """About how many threads are idle."""
        return max(0, len(self._members) - len(self._busy) - self._calls.qsize())

    def spare(self) -> int:
        """About how many idle threads may share what one thread could do alone."""
        return max(0, self.idle() - self.kept)

    def close(self, ended: Callable[[], None] | None = None) -> None:
        """Let the threads end after the jobs that they were given; the last one calls `ended`."""
        if ended is not None:
            self._ended.append(ended)
        self.closed = True
        for _ in self._members:
            self._calls.put(False)
        if not self._present:
            self._leave()

    def alive(self) -> bool:
        """Whether a thread has begun and not ended."""
        return any(member.is_alive() for member in self._members)


_all: weakref.WeakSet[Threads] = weakref.WeakSet()


def _end_all() -> None:
    """At exit, wait for the threads of loops that were not shut down."""
    for threads in tuple(_all):
        threads.close()
        # Python 3.11 frees the state of a thread that has not begun, which then crashes.
        threads._starting.acquire()
        for member in threads._members:
            if member.is_alive():
                member.join()


atexit.register(_end_all)
# A child has none of its parent's threads.
at_fork(_all.clear)
