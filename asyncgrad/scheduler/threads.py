"""The threads of an engine: there before they are needed, and gone with it.

Starting a thread the ordinary way waits until it runs, for which a busy interpreter takes 15 ms.
Here nobody waits: a thread of its own starts the others, and does the work of those that the system
does not allow.
"""

from __future__ import annotations

import atexit
import weakref
from _thread import start_new_thread
from collections import deque
from heapq import heappop, heappush
from itertools import count
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING

from asyncgrad.scheduler.device_queue import ORDINARY

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.scheduler.device_queue import Urgency

    #: Does not raise.
    Job = Callable[[], None]

#: One job in so many is the oldest, if so many have overtaken it: nothing starves.
_EVERY = 16
_PATIENCE = 64


class Threads:
    """A fixed number of threads that run jobs in order of urgency.

    Who hands a job in must not wait, not even for a lock: each step of it is one of the
    interpreter's own. A job is in a box, which is in a heap and in a line; taking it out of the box
    is taking it, and a box that is found empty is passed over.
    """

    def __init__(self, number: int, name: str) -> None:
        """Start them, without waiting for it.

        Args:
            number: how many.
            name: what their names begin with.
        """
        #: True for each job, False for each thread that is to end.
        self._calls: SimpleQueue[bool] = SimpleQueue()
        self._urgent: list[tuple[Urgency, int, list[Job]]] = []
        #: The boxes in the order in which they came, with how many jobs had been taken by then.
        self._line: deque[tuple[int, list[Job]]] = deque()
        self._numbers = count()
        #: Among the threads alone: who takes a job.
        self._taking = Lock()
        self._taken = 0
        #: One entry for each thread that runs a job.
        self._busy: list[None] = []
        self._members: list[Thread] = []
        #: One entry for each thread that has not taken its leave; the last takes the first.
        self._present = list(range(number))
        #: What is to be called then; it leads to the loop.
        self._ended: list[Callable[[], None]] = []
        self.closed = False
        for place in range(number):
            # The interpreter does not wait for daemons; `_end_all` does.
            member = Thread(target=self._work, name=f"{name}_{place}", daemon=True)
            self._members.append(member)
        try:
            start_new_thread(self._start, ())
        except RuntimeError:
            # Not even one: the loop does the work. Python 3.12.1 starts none when the main thread
            # has ended.
            self.closed = True
            self._members.clear()
            self._present.clear()
        _all.add(self)

    def _start(self) -> None:
        for member in self._members:
            try:
                member.start()
            except RuntimeError:
                self._work()

    def submit(self, job: Job, urgency: Urgency = ORDINARY) -> None:
        """Have a thread run a job, when one is free and nothing more urgent waits."""
        box = [job]
        self._line.append((self._taken, box))
        heappush(self._urgent, (urgency, next(self._numbers), box))
        self._calls.put(True)

    def most_urgent(self) -> Urgency | None:
        """The urgency of what goes next, None if there are threads for all that waits."""
        if len(self._members) - len(self._busy) >= self._calls.qsize():
            return None
        try:
            return self._urgent[0][0]
        except IndexError:
            # It has been taken this moment.
            return None

    def _take(self) -> Job:
        """The job that goes next; there is one for each call."""
        line = self._line
        with self._taking:
            self._taken += 1
            while not line[0][1]:
                line.popleft()
            came, box = line[0]
            if self._taken % _EVERY or self._taken - came <= _PATIENCE:
                while not (box := heappop(self._urgent)[2]):
                    pass
            return box.pop()

    def _work(self) -> None:
        calls, busy = self._calls, self._busy
        while calls.get():
            busy.append(None)
            job = self._take()
            job()
            busy.pop()
            # A thread that waits holds nothing.
            del job
        if not self._present.pop():
            self._leave()

    def _leave(self) -> None:
        """Nobody is here any more; both the last one and who closes may find that."""
        try:
            ended = self._ended.pop()
        except IndexError:
            return
        ended()

    def idle(self) -> int:
        """About how many threads have nothing to do."""
        return max(0, len(self._members) - len(self._busy) - self._calls.qsize())

    def close(self, ended: Callable[[], None] | None = None) -> None:
        """Let the threads end with the jobs that they were given.

        Args:
            ended: called in the last of them, at its end; here if that has been.
        """
        if ended is not None:
            self._ended.append(ended)
        if not self.closed:
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
    """Wait for the threads of loops that were not shut down: the interpreter ends."""
    for threads in tuple(_all):
        threads.close()
        for member in threads._members:
            if member.is_alive():
                member.join()


atexit.register(_end_all)
