"""A queue in order of urgency in which nothing starves."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_U = TypeVar("_U")
_T = TypeVar("_T")

#: One turn in so many may go to the oldest instead of the most urgent.
_EVERY = 16


class FairQueue(Generic[_U, _T]):
    """The most urgent goes first; one turn in 16 goes to the oldest, if it was overtaken too often.

    `push` must not block, not even for a lock, so each of its steps is atomic in the interpreter.
    An item is in a box (a list), which is in a heap and in a line. Popping the item from its box
    takes it, and empty boxes are skipped. Only one thread at a time may call `pop`.
    """

    __slots__ = ("_line", "_numbers", "_patience", "_urgent", "taken")

    def __init__(self, patience: int) -> None:
        """Start empty; after `patience` turns of others the oldest may get one."""
        self._patience = patience
        self._urgent: list[tuple[_U, int, list[_T]]] = []
        #: The boxes in order of arrival, with the number of items taken up to then.
        self._line: deque[tuple[int, list[_T]]] = deque()
        self._numbers = count()
        #: How many items have been taken.
        self.taken = 0

    def push(self, urgency: _U, item: _T) -> list[_T]:
        """Add an item; whoever empties the box that is returned withdraws it."""
        box = [item]
        self._line.append((self.taken, box))
        heappush(self._urgent, (urgency, next(self._numbers), box))
        return box

    def pop(self, renewed: Callable[[_U, _T], _U] | None = None) -> _T:
        """Take the next item; there must be one. `renewed` gives the urgency that one has now."""
        self.taken += 1
        line, urgent = self._line, self._urgent
        while not line[0][1]:
            line.popleft()
        came, box = line[0]
        if self.taken % _EVERY == 0 and self.taken - came > self._patience:
            return box.pop()
        while True:
            urgency, number, box = heappop(urgent)
            if not box:
                continue
            now = urgency if renewed is None else renewed(urgency, box[0])
            if now == urgency:
                return box.pop()
            heappush(urgent, (now, number, box))

    def first(self) -> _U | None:
        """The urgency of the most urgent item; None if there is none."""
        try:
            return self._urgent[0][0]
        except IndexError:
            # A thread has just taken it.
            return None

    def items(self) -> list[_T]:
        """The items in order of arrival."""
        return [box[0] for _, box in self._line if box]
