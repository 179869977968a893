"""Passes that may not block are in line, and those that may block let them commit first.

Here nobody blocks: the lock of a place in line asks the test what happens meanwhile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import asyncgrad as ag
from asyncgrad.core import commit_turns
from asyncgrad.core.commit import commit
from asyncgrad.core.commit_turns import leave_line, line_up

#: What may happen while a thread waits for a place in line to be left.
EVENTS = ["left", "another left", "comes", "again", "too long", "too long, and another commits"]


class Held:
    """The lock of commits, which another thread may have."""

    def __init__(self) -> None:
        self.by_another = False

    def acquire(self, wait: bool = True) -> bool:
        assert not (wait and self.by_another)
        return not self.by_another

    def release(self) -> None:
        pass

    def _is_owned(self) -> bool:
        return False


class Line(RuleBasedStateMachine):
    """Passes of several loops that get in line and leave it, and threads that commit."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.lock = Held()
        self.thread = 0
        machine = self

        class Turn:
            """A lock that is held until its pass has had its turn."""

            def __init__(self) -> None:
                self.free = True

            def acquire(self, wait: bool = True, timeout: float = -1.0) -> bool:
                if not self.free and wait:
                    machine.happens(self, timeout)
                free, self.free = self.free, False
                return free

            def release(self) -> None:
                assert not self.free
                self.free = True

        for name, value in {
            "committing": self.lock,
            "line": {},
            "Lock": Turn,
            "get_ident": lambda: self.thread,
        }.items():
            self.patch.setattr(commit_turns, name, value)
        #: Those whose passes have not had their turn; and those of them that are in line.
        self.places: list[Any] = []
        self.line: list[Any] = []
        #: How long threads wait for each.
        self.patience: dict[Any, float] = {}
        #: While a thread waits: what happens, for whom it has waited, and who has come since.
        self.events: list[str] = []
        self.waited: list[Any] = []

    def teardown(self) -> None:
        self.patch.undo()

    def as_thread(self, thread: int, call: Any, *args: Any) -> Any:
        before, self.thread = self.thread, thread
        try:
            return call(*args)
        finally:
            self.thread = before

    @rule(loop=st.integers(1, 3))
    def comes(self, loop: int) -> None:
        place = self.as_thread(loop, line_up)
        self.places.append(place)
        self.line.append(place)
        self.patience[place] = commit_turns._PATIENCE

    @precondition(lambda self: self.places)
    @rule(which=st.integers(0, 9), loop=st.integers(1, 3))
    def again(self, which: int, loop: int) -> None:
        """It has tried, and another commits; meanwhile the line may have been ended."""
        place = self.places[which % len(self.places)]
        assert self.as_thread(loop, line_up, place) is place
        if place not in self.line:
            self.line.append(place)
            self.patience[place] *= 2

    @precondition(lambda self: self.places)
    @rule(which=st.integers(0, 9))
    def leaves(self, which: int) -> None:
        self.leave(self.places[which % len(self.places)])

    def leave(self, place: Any) -> None:
        leave_line(place)
        self.places.remove(place)
        if place in self.line:
            self.line.remove(place)

    @rule(events=st.lists(st.sampled_from(EVENTS), max_size=8))
    def commits(self, events: list[str]) -> None:
        """In a thread without a loop."""
        self.events, self.waited, before = events, [], self.line.copy()
        assert self.as_thread(0, commit, (), None, True)
        # In the order in which they came, and for nobody who came later.
        positions = [before.index(place) for place in self.waited]
        assert positions == sorted(positions)
        assert not any(place in self.line for place in before)

    def happens(self, turn: Any, timeout: float) -> None:
        """While a thread waits for a place to be left."""
        (place,) = [each for each in self.places if each.turn is turn]
        assert timeout == self.patience[place]
        if place not in self.waited:
            self.waited.append(place)
        event = self.events.pop(0) if self.events else "left"
        self.lock.by_another = event.endswith("commits")
        if event == "left":
            self.leave(place)
        elif event == "another left":
            self.leave(self.places[-1])
        elif event == "comes":
            self.comes(2)
        elif event == "again":
            self.again(0, 2)
        elif event == "too long":
            self.line.clear()
        if event in {"another left", "comes", "again"} and not turn.free:
            # The thread sleeps on.
            self.happens(turn, timeout)

    @rule(loop=st.integers(1, 3))
    def commits_on_a_loop(self, loop: int) -> None:
        """By a pass that blocks: it lets others go first, unless some are its own thread's."""
        if any(commit_turns.line[place] == loop for place in self.line):
            line = self.line.copy()
            self.events, self.waited = [], []
            assert self.as_thread(loop, commit, (), None, True)
            assert self.waited == []
            assert self.line == line

    @invariant()
    def those_in_line_are_known(self) -> None:
        assert list(commit_turns.line) == self.line
        assert not any(place.turn.free for place in self.places)


TestLine = pytest.mark.filterwarnings("error")(Line.TestCase)
TestLine.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def test_commits_that_may_not_block_do_not_wait() -> None:
    place = line_up()
    commit_turns.line[place] = -1
    x = ag.ones(3, requires_grad=True)
    assert commit([(x, np.ones(3, np.float32), True)], None, wait=False)
    assert x.grad is not None
    leave_line(place)
