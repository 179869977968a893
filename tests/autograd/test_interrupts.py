"""KeyboardInterrupt in the midst of a commit: all leaves or none, and no lock that stays taken."""

from __future__ import annotations

import dis
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.core import commit as commits
from asyncgrad.core import variable as variables
from asyncgrad.devices import cores, pool
from asyncgrad.ops import fused, namespace, rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

#: Whose code is interrupted.
FILES = {module.__file__ for module in (commits, cores, fused, namespace, pool, rows)}
#: After these Python looks for signals; `for` and `with` call without it.
LOOKS = ("CALL", "JUMP_BACKWARD", "RESUME")


def interrupt_commit(at: int, call: Callable[[], Any]) -> bool:
    """Call a function, with an interrupt where Python looks for signals in a commit.

    Args:
        at: the how manieth time that it does.
        call: makes a pass.

    Returns:
        False if the commit has ended before.
    """
    looked = -1
    before: dict[FrameType, str] = {}

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal looked
        if frame.f_code is commits.commit.__code__:
            looked = max(looked, 0)
        if frame.f_code.co_filename not in FILES or looked < 0:
            return trace
        frame.f_trace_opcodes = True
        if event == "opcode":
            looks = before.get(frame, "").startswith(LOOKS)
            before[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if looks:
                looked += 1
                if looked == at:
                    raise KeyboardInterrupt
        elif event == "return" and frame.f_code is commits.commit.__code__:
            looked = -(10**9)
        return trace

    found = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(found)
        before.clear()
    return False


class Leaves:
    """One of each kind; the large one is added to in two parts."""

    def __init__(self) -> None:
        table = np.ones((5, 3), np.float32)
        self.all = [
            ag.tensor(np.ones((300_000,), np.float32), requires_grad=True),
            ag.tensor(np.ones((3,), np.float32), requires_grad=True),
            ag.tensor(np.ones((4,), np.float32), requires_grad=True),
            *(ag.tensor(table, requires_grad=True) for _ in range(4)),
        ]
        places = ag.tensor([1, 2, 2])
        _, _, fresh, added, outgrown, summed, moved = self.all
        added.grad = ag.zeros(5, 3)
        for leaf in (outgrown, summed, moved):
            ag.nn.functional.embedding(places, leaf, sparse=True).sum().backward()
        for leaf in self.all[:2]:
            leaf.sum().backward()
        self.before = self.now()
        sparse = [
            ag.nn.functional.embedding(ag.tensor(which), leaf, sparse=True)
            for leaf, which in ((added, [1, 3]), (summed, [1, 2, 2]), (moved, [4]))
        ]
        terms = [*self.all[:2], fresh, *sparse, outgrown * 1.0]
        self.loss: Any = sum(term.sum() for term in terms)

    def now(self) -> list[Any]:
        """The values of all gradients."""
        grads = [leaf.grad for leaf in self.all]
        arrays = [None if grad is None else grad._array for grad in grads]
        return [a.dense() if isinstance(a, rows.Rows) else np.array(a) for a in arrays]

    def changed(self) -> set[str]:
        """Whether gradients are as before, or as they are to be."""
        undisturbed = Leaves()
        undisturbed.loss.backward()
        found = set()
        for now, before, after in zip(self.now(), self.before, undisturbed.now(), strict=True):
            as_before, as_after = np.array_equal(now, before), np.array_equal(now, after)
            assert as_before != as_after
            found.add("before" if as_before else "after")
        return found


def test_all_leaves_or_none_wherever_an_interrupt_comes() -> None:
    at, seen = 1, set()
    while True:
        leaves = Leaves()
        interrupted = interrupt_commit(at, leaves.loss.backward)
        assert not commits._committing.locked()
        changed = leaves.changed()
        assert len(changed) == 1, f"{at}: {changed}"
        if not interrupted:
            break
        seen |= changed
        at += 1
    assert seen == {"before", "after"}
    assert changed == {"after"}
    assert at > 50


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals are the main's"
)
@pytest.mark.parametrize("name", ["commit", "gradient_edge"])
def test_an_interrupt_while_it_waits_for_a_lock_leaves_the_lock_free(name: str) -> None:
    """Python sees the signal when the lock has been taken: nobody else would give it back."""
    lock = commits._committing if name == "commit" else variables._accumulators
    x = ag.tensor(np.ones(3), requires_grad=True)
    call = x.sum().backward if name == "commit" else x.sum
    main = threading.main_thread().ident or 0
    taken = threading.Event()

    def interrupt() -> None:
        with lock:
            taken.set()
            while sys._current_frames()[main].f_code.co_name != name:
                pass
            # To this thread: it does not wake the main one, which goes on waiting for the lock.
            signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    taken.wait()
    try:
        with pytest.raises(KeyboardInterrupt):
            call()
    finally:
        thread.join()
    assert not lock.locked()
