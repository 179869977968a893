"""Participants that have promised others to do as these decide: no cancellation while they wait."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from functools import partial
from typing import Any

import numpy as np
import pytest
from passes import assert_nothing_runs, calls, interrupts, leaf, settle, until
from test_participants import Member, joined, loss_of

import asyncgrad as ag
from asyncgrad.core.frames import PACKAGE

pytestmark = pytest.mark.usefixtures("nothing_is_left")


class Decides(Member):
    """Waits for a decision once all have agreed."""

    def __init__(self, log: list[Any], leaves: Any = ()) -> None:
        super().__init__(log, leaves, decide=1)
        self.asked, self.decided = asyncio.Event(), asyncio.Event()

    async def decide(self) -> None:
        self.asked.set()
        await self._act("decide")
        await self.decided.wait()


@pytest.fixture
def pair() -> tuple[ag.Tensor, ag.Tensor]:
    return leaf(), leaf()


@pytest.mark.asyncio
@pytest.mark.parametrize("fails", [False, True])
async def test_while_a_decision_is_awaited_neither_deadline_nor_cancellation_counts(
    pair: Any, fails: bool
) -> None:
    log: list[Any] = []
    other, member = Member(log, pair, prepare=5), Decides(log, pair)
    if fails:
        member.fails["decide"] = ValueError("planned")
    deadline = asyncio.get_running_loop().time() + 60
    future = loss_of(*pair, member, other).backward(deadline=deadline)
    await member.asked.wait()
    verbs = [verb for verb, _ in log]
    # All have agreed before.
    assert verbs.index("decide") > max(
        place for place, verb in enumerate(verbs) if verb == "prepare ends"
    )
    assert not future.cancel()
    # What its timer would do.
    ag.engine()._expire(future._task)
    await settle()
    assert fails or not future.done()
    member.decided.set()
    if fails:
        with pytest.raises(ValueError, match="planned") as caught:
            await future
        assert "raised by Decides.decide" in caught.value.__notes__
    else:
        await future
    assert future.committed() != fails
    assert not any(added for verb, places in log if verb == "decide" for added in places)
    assert (pair[0].grad is None) == fails
    assert log[-1][0] == ("abort ends" if fails else "commit ends")
    assert len([verb for verb, _ in log if verb in {"commit", "abort"}]) == 2
    await assert_nothing_runs()


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [3, 200_000], ids=["on the loop", "in a thread"])
async def test_a_decision_is_awaited_wherever_all_have_agreed(size: int) -> None:
    """Also if `prepare` is a plain function, so that nothing of a large pass waits for the loop."""
    x = leaf(size)
    member = Decides([], ())
    member.prepare = lambda gradients: None  # type: ignore[assignment]
    member.fails["decide"] = ValueError("planned")
    member.decided.set()
    with pytest.raises(ValueError, match="planned"):
        await loss_of(x, x, member).backward()
    assert member.asked.is_set()
    assert x.grad is None


@pytest.mark.asyncio
async def test_of_decisions_that_fail_together_nothing_is_reported_as_lost(pair: Any) -> None:
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, facts: complaints.append(facts))

    async def fail() -> None:
        raise ValueError("planned")

    members = [Member([]) for _ in range(2)]
    for member in members:
        member.decide = fail  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="planned"):
        await loss_of(*pair, *members).backward()
    await settle()
    gc.collect()
    assert not complaints


@pytest.mark.asyncio
async def test_who_awaits_a_pass_that_is_decided_on_is_cancelled_after_it(pair: Any) -> None:
    member = Decides([])

    async def step() -> None:
        await loss_of(*pair, member).backward()

    task = asyncio.create_task(step())
    await member.asked.wait()
    task.cancel()
    await settle()
    assert not task.done()
    member.decided.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pair[0].grad is not None
    await assert_nothing_runs()


@pytest.mark.asyncio
@pytest.mark.parametrize("blocks", [False, True])
async def test_a_commit_that_would_fail_fails_before_the_decision(pair: Any, blocks: bool) -> None:
    x, y = pair
    array = np.zeros(3)
    array.setflags(write=False)
    y.grad = ag.from_numpy(array)
    member = Decides([])
    loss = loss_of(x, y, member)
    with pytest.raises(RuntimeError, match="read-only"):
        await (asyncio.to_thread(loss.backward) if blocks else loss.backward())
    assert member.verbs() == ["prepare", "prepare ends", "abort", "abort ends"]
    assert x.grad is None


@pytest.mark.asyncio
async def test_a_large_pass_is_decided_on_too() -> None:
    x = ag.zeros(100_000, requires_grad=True)
    member = Decides([])
    member.decided.set()
    await joined(x * 1, member).sum().backward()
    assert member.verbs()[2] == "decide"
    assert x.grad[0] == 1
    await assert_nothing_runs()


@pytest.mark.parametrize("fails", [False, True])
def test_without_a_loop_decisions_are_awaited_elsewhere(pair: Any, fails: bool) -> None:
    member = Decides([])

    async def decide() -> None:
        await member._act("decide")

    member.decide = decide  # type: ignore[method-assign]
    if fails:
        member.fails["decide"] = ValueError("planned")
        with pytest.raises(ValueError, match="planned"):
            loss_of(*pair, member).backward()
    else:
        loss_of(*pair, member).backward()
    assert member.verbs()[2] == "decide"
    assert (pair[0].grad is None) == fails
    assert member.verbs()[-1] == ("abort ends" if fails else "commit ends")


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("blocks", [False, True])
def test_a_refused_decision_keeps_no_graph_alive(pair: Any, blocks: bool) -> None:
    member = Member([])

    async def refuse() -> None:
        raise ValueError("planned")

    member.decide = refuse  # type: ignore[attr-defined]

    async def main() -> weakref.ref[Any]:
        loss = loss_of(*pair, member)
        with pytest.raises(ValueError, match="planned"):
            await loss.backward()
        return weakref.ref(loss.grad_fn)

    def block() -> weakref.ref[Any]:
        loss = loss_of(*pair, member)
        with pytest.raises(ValueError, match="planned"):
            loss.backward()
        return weakref.ref(loss.grad_fn)

    graph = block() if blocks else asyncio.run(main())
    assert graph() is None


@pytest.mark.parametrize("blocks", [False, True])
def test_nobody_joins_and_no_callback_is_queued_while_a_decision_is_awaited(
    pair: Any, blocks: bool
) -> None:
    """They would never be asked or called."""
    member, late = Decides([]), Member([])
    errors: list[str] = []

    async def decide() -> None:
        for add in (
            lambda: ag.autograd.graph.join(late),
            lambda: ag.autograd.graph.queue_callback(late.log.clear),
        ):
            with pytest.raises(RuntimeError) as caught:
                add()
            errors.append(str(caught.value))

    member.decide = decide  # type: ignore[method-assign]

    async def main() -> None:
        await loss_of(*pair, member).backward()

    if blocks:
        loss_of(*pair, member).backward()
    else:
        asyncio.run(main())
    assert len(errors) == 2
    assert member.verbs()[-1] == "commit ends"
    assert late.log == []


@pytest.mark.parametrize("decides", [False, True])
def test_an_interrupt_without_a_loop_ends_the_decision_and_all_are_told(
    pair: Any, decides: bool
) -> None:
    """Else the participants would wait for ever, and might do what the pass has not done."""
    member = Decides([])

    async def decide() -> None:
        try:
            await interrupt()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not decides:
                raise

    member.decide = decide  # type: ignore[method-assign]
    with interrupts() as interrupt, pytest.raises(KeyboardInterrupt):
        loss_of(*pair, member).backward()
    assert (pair[0].grad is not None) == decides
    assert member.verbs()[-1] == ("commit ends" if decides else "abort ends")


@pytest.mark.parametrize("verb", ["commit", "abort"])
def test_an_interrupt_without_a_loop_waits_until_all_have_been_told(pair: Any, verb: str) -> None:
    """Else a participant might still act on a pass whose caller has gone on."""
    member = Member([])

    async def told() -> None:
        await interrupt()
        # The interrupted thread needs some turns of the loop to cancel what it waits for.
        await until(lambda: any(task.cancelling() for task in asyncio.all_tasks()))
        await member._act(verb)

    setattr(member, verb, told)
    if verb == "abort":
        member.fails["prepare"] = ValueError("planned")
    with interrupts() as interrupt, pytest.raises(KeyboardInterrupt):
        loss_of(*pair, member).backward()
    assert member.verbs()[-1] == f"{verb} ends"
    assert (pair[0].grad is not None) == (verb == "commit")


def test_the_end_of_the_loop_ends_a_pass_that_waits_for_a_decision(pair: Any) -> None:
    async def main() -> Any:
        member = Decides([])
        future = loss_of(*pair, member).backward()
        await member.asked.wait()
        return future

    future = asyncio.run(main())
    assert future.done()
    assert not future.committed()
    assert "CancelledError" in str(future.exception())
    assert pair[0].grad is None


@pytest.mark.filterwarnings("ignore:coroutine 'Member.prepare' was never awaited")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("decides", [False, True])
@pytest.mark.parametrize("deadline", [None, 1e9])
def test_an_interrupt_after_any_call_leaves_no_participant_untold(
    decides: bool, deadline: float | None
) -> None:
    """Nor told that the pass was aborted if its gradients are added."""

    def run(interrupted: int) -> tuple[int, list[str], bool]:
        """Run a pass and interrupt it after so many calls: how many there were, and its end."""
        x, member, count = leaf(), Member([]), 0
        if decides:
            member.decide = partial(member._act, "decide")  # type: ignore[attr-defined]
            member.turns["decide"] = 0

        def note(frame: Any, event: str, _: Any) -> None:
            # Where Python looks for signals: when a function begins, and after one in C.
            nonlocal count
            if event in {"call", "c_return"} and frame.f_code.co_filename.startswith(PACKAGE):
                count += 1
                if count == interrupted:
                    sys.setprofile(None)
                    raise KeyboardInterrupt

        def join() -> None:
            ag.autograd.graph.join(member)
            sys.setprofile(note)

        loss = calls(x, join).sum()
        try:
            loss.backward(deadline=deadline)
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        return count, member.verbs(), x.grad is not None

    total, *_ = run(0)
    ends: set[str] = set()
    for interrupted in range(1, total + 1):
        _, verbs, added = run(interrupted)
        assert verbs[-1] == ("commit ends" if added else "abort ends"), interrupted
        ends.add(verbs[-1])
    assert ends == {"commit ends", "abort ends"}
