"""Those who take part in a pass: asked before its commit, told how it has ended."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from passes import HEAVY, assert_nothing_runs, calls, chain, give_way, leaf, others, settle, until

import asyncgrad as ag
from asyncgrad.autograd import graph
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.scheduler.segments import outlast

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("nothing_is_left")

ONES = [1.0, 1.0, 1.0]


class Member:
    """A participant that notes what it is asked, after some turns of the loop."""

    def __init__(self, log: list[Any], leaves: Any = (), **turns: int) -> None:
        self.log = log
        self.leaves = tuple(leaves)
        self.turns = {"prepare": 1, "commit": 1, "abort": 1} | turns
        self.gives: Any = None
        self.fails: dict[str, BaseException] = {}

    async def _act(self, verb: str) -> None:
        self.log.append((verb, [x.grad is not None for x in self.leaves]))
        for _ in range(self.turns[verb]):
            await asyncio.sleep(0)
        if verb in self.fails:
            raise self.fails[verb]
        self.log.append((f"{verb} ends", [x.grad is not None for x in self.leaves]))

    async def prepare(self, gradients: Any) -> Any:
        await self._act("prepare")
        return None if self.gives is None else self.gives(gradients)

    async def commit(self) -> None:
        await self._act("commit")

    async def abort(self) -> None:
        await self._act("abort")

    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.log]


def joined(x: ag.Tensor, *members: Any) -> ag.Tensor:
    """`x`, behind a node in which participants join the pass."""

    def join() -> None:
        for member in members:
            graph.join(member)

    return calls(x, join)


def loss_of(x: ag.Tensor, y: ag.Tensor, *members: Any) -> ag.Tensor:
    return (chain(joined(chain(x, 3), *members), 2) + y).sum()


@pytest.fixture
def pair() -> tuple[ag.Tensor, ag.Tensor]:
    return leaf(), leaf()


@pytest.mark.asyncio
async def test_all_agree_before_anything_is_added_and_are_told_before_the_pass_ends(
    pair: Any,
) -> None:
    log: list[Any] = []
    quick, slow = Member(log, pair), Member(log, pair, prepare=5, commit=7)
    future = loss_of(*pair, quick, slow).backward()
    future.add_done_callback(lambda _: log.append(("done", None)))
    await future
    await asyncio.sleep(0)
    nothing, all_added = [False, False], [True, True]
    assert log == [
        ("prepare", nothing), ("prepare", nothing),
        ("prepare ends", nothing), ("prepare ends", nothing),
        ("commit", all_added), ("commit", all_added),
        ("commit ends", all_added), ("commit ends", all_added),
        ("done", None),
    ]  # fmt: skip
    assert future.committed()
    await assert_nothing_runs()


@pytest.mark.asyncio
async def test_what_a_participant_gives_takes_the_place_of_what_was_staged(pair: Any) -> None:
    x, y = pair
    unreached = leaf()
    one, other = Member([]), Member([])
    one.gives = lambda gradients: {x: gradients[x] * 5, unreached: ag.ones(3)}
    other.gives = lambda gradients: {y: None}
    await loss_of(x, y, one, other).backward()
    assert (x.grad.tolist(), y.grad, unreached.grad.tolist()) == ([5.0] * 3, None, ONES)
    await loss_of(x, y).backward()
    assert x.grad.tolist() == [6.0] * 3


@pytest.mark.asyncio
async def test_gradients_are_shown_as_the_pass_will_add_them() -> None:
    """Of the leaf's dtype, and summed where a leaf is reached twice."""
    x = ag.ones(3, dtype=ag.float16, requires_grad=True)
    seen: dict[Any, Any] = {}
    member = Member([])
    member.gives = seen.update
    await (joined(x * 2, member) + ag.exp(x * 0)).sum().backward()
    assert list(seen) == [x]
    assert seen[x].dtype == ag.float16
    assert seen[x].tolist() == [2.0] * 3 == x.grad.tolist()


@pytest.mark.asyncio
async def test_what_a_pass_shows_is_not_what_a_hook_has_kept() -> None:
    x, y = leaf(), leaf()
    kept = []
    member = Member([])
    member.gives = lambda gradients: {x: gradients[x].mul_(3)}
    loss = (joined(x, member) + y).sum()
    y.register_hook(kept.append)
    await loss.backward()
    assert x.grad.tolist() == [3.0] * 3
    assert kept[0].tolist() == ONES == y.grad.tolist()


@pytest.mark.asyncio
async def test_a_recorded_pass_shows_and_takes_tensors_with_a_graph() -> None:
    x = leaf()
    member = Member([])
    member.gives = lambda gradients: {x: gradients[x] * x}
    await joined(x * x, member).sum().backward(create_graph=True)
    (second,) = await ag.grad(x.grad.sum(), x)
    assert (x.grad.tolist(), second.tolist()) == ([2.0] * 3, [4.0] * 3)
    x.grad = None


GIVEN: dict[str, tuple[Any, type[Exception], str]] = {
    "a list": (lambda x, y: [ag.ones(3)], TypeError, "a dictionary of gradients by leaf, not list"),
    "an empty list": (lambda x, y: [], TypeError, "a dictionary of gradients by leaf, not list"),
    "no leaf": (lambda x, y: {"x": ag.ones(3)}, TypeError, "by leaf, not by str"),
    "another tensor": (lambda x, y: {x * 1: ag.ones(3)}, RuntimeError, "no leaf"),
    "no grad": (lambda x, y: {ag.ones(3): ag.ones(3)}, RuntimeError, "requires no grad"),
    "no tensor": (lambda x, y: {x: np.ones(3)}, TypeError, "Tensor or None, not ndarray"),
    "shape": (lambda x, y: {y: ag.ones(4)}, RuntimeError, r"shape of a leaf is \(3,\)"),
    "dtype": (
        lambda x, y: {y: ag.ones(3, dtype=ag.complex64)},
        RuntimeError,
        "the dtype of a leaf",
    ),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("what", GIVEN)
async def test_gradients_that_do_not_fit_fail_the_pass(pair: Any, what: str) -> None:
    gives, kind, words = GIVEN[what]
    x, y = pair
    member, witness = Member([]), Member([])
    member.gives = lambda gradients: gives(x, y)
    with pytest.raises(kind, match=words):
        await loss_of(x, y, member, witness).backward()
    with pytest.raises(kind, match=words):
        await graph.accumulate(gives(x, y))
    assert (x.grad, y.grad) == (None, None)
    assert witness.verbs()[-2:] == ["abort", "abort ends"]


@pytest.mark.asyncio
async def test_a_value_that_retains_its_gradient_has_one_to_replace(pair: Any) -> None:
    x, y = pair
    z = x * y
    z.retain_grad()
    member = Member([])
    member.gives = lambda gradients: {tensor: ag.ones(3) for tensor in (*gradients, z)}
    await loss_of(z, y, member).backward()
    assert [t.grad.tolist() for t in (x, y, z)] == [ONES] * 3
    await graph.accumulate({x: None, z: ag.ones(3)})
    assert z.grad.tolist() == [2.0] * 3


@pytest.mark.asyncio
async def test_a_leaf_that_a_hook_freezes_after_its_gradient_has_one_to_replace(pair: Any) -> None:
    x, y = pair
    member = Member([])
    member.gives = lambda gradients: {tensor: ag.ones(3) * 2 for tensor in gradients}

    def freeze(gradient: Any) -> None:
        y.requires_grad_(False)

    x.register_hook(freeze)
    await loss_of(x, y, member).backward()
    assert [t.grad.tolist() for t in pair] == [[2.0] * 3] * 2


@pytest.mark.asyncio
async def test_two_that_give_a_gradient_for_one_leaf_fail_the_pass(pair: Any) -> None:
    members = [Member([]), Member([])]
    for member in members:
        member.gives = lambda gradients: {pair[0]: ag.ones(3)}
    with pytest.raises(RuntimeError, match="so did another participant"):
        await loss_of(*pair, *members).backward()
    assert pair[0].grad is None


@pytest.mark.asyncio
async def test_a_pass_of_grad_asks_too_and_adds_nothing(pair: Any) -> None:
    member = Member([])
    (found,) = await ag.grad(loss_of(*pair, member), pair[0])
    assert found.tolist() == ONES
    assert member.verbs() == ["prepare", "prepare ends", "commit", "commit ends"]
    member.gives = lambda gradients: {pair[0]: ag.ones(3)}
    with pytest.raises(RuntimeError, match=r"pass of grad\(\)"):
        await ag.grad(loss_of(*pair, member), pair[0])
    assert pair[0].grad is None


# -- failure, cancellation, deadline at every await ---------------------------


@pytest.mark.asyncio
@pytest.mark.parametrize("large", [False, True])
async def test_cancelled_in_every_turn_of_the_loop(large: bool) -> None:
    """Either all has happened, and everybody was told so, or nothing."""
    size = 60_000 if large else 3
    turn, in_time = 0, 0
    while True:
        x, y = (ag.tensor(np.ones(size), requires_grad=True) for _ in range(2))
        members = [Member([], (x, y), prepare=2), Member([], (x, y), commit=3)]
        loss = (joined(calls(x, give_way), *members) + y).sum()
        futures = []

        async def train(loss: Any = loss, futures: Any = futures) -> None:
            futures.append(loss.backward())
            await futures[0]

        task = asyncio.create_task(train())
        await until(lambda futures=futures: futures)
        for _ in range(turn):
            await asyncio.sleep(0)
        (future,) = futures
        if future.done():
            await task
            break
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        committed = future.committed()
        for member in members:
            verbs = member.verbs()
            assert verbs.count("commit ends") == committed
            # Who has not joined by then need not be told.
            assert verbs.count("abort ends") <= (not committed)
            if "prepare" in verbs and not committed:
                assert verbs.count("abort ends") == 1
        assert [t.grad is not None for t in (x, y)] == [committed, committed]
        in_time += not committed
        await assert_nothing_runs()
        assert others() == set()
        # Large gradients are added in a thread, for as many turns as the machine likes.
        turn += 1 + turn // 20
    assert in_time > 3


@pytest.mark.asyncio
@pytest.mark.parametrize("where", ["prepare", "a node after it", "local commit"])
async def test_a_failure_before_all_have_agreed_aborts_all(pair: Any, where: str) -> None:
    x, y = pair
    one, other = Member([], pair), Member([], pair, prepare=3)
    value = joined(x, one, other)
    if where == "prepare":
        one.fails["prepare"] = ValueError("planned")
    elif where == "local commit":
        x.grad = ag.ones(3, dtype=ag.float64)
        x.grad._array.flags.writeable = False
    else:

        def fail() -> None:
            raise ValueError("planned")

        value = joined(calls(x, fail), one, other)
    with pytest.raises((ValueError, RuntimeError), match=r"planned|read-only"):
        await (value + y).sum().backward()
    assert y.grad is None
    for member in (one, other):
        assert member.verbs()[-2:] == ["abort", "abort ends"]
        assert "commit" not in member.verbs()
    await assert_nothing_runs()


@pytest.mark.asyncio
async def test_the_deadline_ends_those_that_prepare(pair: Any) -> None:
    """On a busy machine a pass may end at its deadline before it comes to that: try a later one."""
    started, within = asyncio.Event(), 0.01

    async def prepare(gradients: Any) -> None:
        started.set()
        await asyncio.Event().wait()

    while not started.is_set():
        member = Member([])
        member.prepare = prepare  # type: ignore[method-assign]
        deadline = asyncio.get_running_loop().time() + within
        with pytest.raises(TimeoutError, match=r"no \.grad was touched"):
            await loss_of(*pair, member).backward(deadline=deadline)
        within *= 2
    assert member.verbs() == ["abort", "abort ends"]
    assert pair[0].grad is None
    await assert_nothing_runs()


@pytest.mark.asyncio
async def test_after_the_point_of_no_return_neither_deadline_nor_cancellation_counts(
    pair: Any,
) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()
    member = Member([])

    async def commit() -> None:
        entered.set()
        await go_on.wait()

    member.commit = commit  # type: ignore[method-assign]
    deadline = asyncio.get_running_loop().time() + 60
    future = loss_of(*pair, member).backward(deadline=deadline)
    await entered.wait()
    assert pair[0].grad is not None
    assert not future.cancel()
    # What its timer would do.
    ag.engine()._expire(future._task)
    await settle()
    assert not future.done()
    go_on.set()
    await future
    assert future.committed()
    await assert_nothing_runs()


@pytest.mark.asyncio
async def test_errors_of_commit_go_to_the_loop_and_those_of_abort_become_notes(pair: Any) -> None:
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, facts: told.append(facts))
    member, other = Member([]), Member([])
    member.fails["commit"] = OSError("planned")
    await loss_of(*pair, member, other).backward()
    assert "Member.commit failed" in told[0]["message"]
    assert str(told[0]["exception"]) == "planned"
    assert other.verbs()[-1] == "commit ends"
    member.fails = {"abort": OSError("cannot undo"), "prepare": ValueError("planned")}
    with pytest.raises(ValueError, match="planned") as caught:
        await loss_of(*pair, member, other).backward()
    assert any("cannot undo" in note for note in caught.value.__notes__)
    assert other.verbs()[-1] == "abort ends"
    assert len(told) == 1
    await assert_nothing_runs()


@pytest.mark.asyncio
async def test_an_abort_that_does_not_end_is_given_up_after_the_grace(pair: Any) -> None:
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, facts: told.append(facts))
    ag.engine().limit(grace=0.01)
    member = Member([])
    member.fails["prepare"] = ValueError("planned")

    async def abort() -> None:
        await asyncio.Event().wait()

    member.abort = abort  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="planned"):
        await loss_of(*pair, member).backward()
    assert ["Member.abort has not ended in 0.01 s" in facts["message"] for facts in told] == [True]
    await until(lambda: others() == set())


@pytest.mark.asyncio
async def test_a_pass_that_was_aborted_is_not_kept_for_the_grace(pair: Any) -> None:
    """asyncio keeps a timer that was cancelled until its time, with the context it was made in."""
    member = Member([], abort=3)
    member.fails["prepare"] = ValueError("planned")
    future = loss_of(*pair, member).backward()
    kept = weakref.ref(future._task)
    with pytest.raises(ValueError, match="planned"):
        await future
    # The error's traceback holds the frames of the pass, and this turn of the loop the future.
    member.fails.clear()
    del future
    await settle()
    gc.collect()
    assert kept() is None


@pytest.mark.asyncio
async def test_cancellations_do_not_prolong_the_grace() -> None:
    waiting = asyncio.ensure_future(outlast(asyncio.Future(), seconds=0.01))
    async with asyncio.timeout(60):
        while not waiting.done():
            await asyncio.sleep(0)
            waiting.cancel()


def test_the_end_of_the_loop_ends_a_pass_whose_participants_never_answer() -> None:
    x, y = leaf(), leaf()
    entered: list[int] = []
    member = Member([])

    async def commit() -> None:
        entered.append(1)
        await asyncio.Event().wait()

    member.commit = commit  # type: ignore[method-assign]

    async def main() -> None:
        future = loss_of(x, y, member).backward()
        await until(lambda: entered)
        asyncio.get_running_loop().set_exception_handler(lambda _, facts: None)
        future.add_done_callback(lambda _: None)

    asyncio.run(main())
    assert x.grad.tolist() == ONES


def test_what_stops_the_program_does_not_wait_for_participants() -> None:
    x, y = leaf(), leaf()
    member = Member([], abort=10**9)

    def stop() -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        await (joined(x, member) + calls(chain(y, 600), stop)).sum().backward()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert (x.grad, y.grad) == (None, None)


# -- who may join -------------------------------------------------------------


def test_join_outside_of_a_pass_raises() -> None:
    with pytest.raises(RuntimeError, match="outside of a pass"):
        graph.join(Member([]))
    assert graph.current_pass() is None


@pytest.mark.asyncio
async def test_who_joins_several_times_takes_part_once(pair: Any) -> None:
    member = Member([], pair)
    await loss_of(*pair, member, member).backward()
    assert member.verbs() == ["prepare", "prepare ends", "commit", "commit ends"]


@pytest.mark.asyncio
@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph")
@pytest.mark.parametrize("recorded", [False, True])
async def test_both_gradients_of_a_leaf_that_is_reached_twice_are_given_as_one(
    recorded: bool, pair: Any
) -> None:
    """`set_` gives a leaf a new accumulator; graphs from before lead to the first one."""
    x, member, seen = pair[0], Member([]), []
    member.gives = lambda gradients: seen.append(gradients[x].tolist())
    before = x * 2
    with ag.no_grad():
        x.set_(ag.ones(x.shape, dtype=x.dtype))
    await joined(before + x * 3, member).sum().backward(create_graph=recorded)
    assert seen == [x.grad.tolist()] == [ag.full(x.shape, 5.0).tolist()]


@pytest.mark.asyncio
async def test_a_participant_without_a_method_is_refused(pair: Any) -> None:
    class Half:
        async def prepare(self, gradients: Any) -> None: ...

    with pytest.raises(TypeError, match=r"Half has no method commit\(\)"):
        await loss_of(*pair, Half()).backward()


@pytest.mark.asyncio
async def test_plain_methods_take_part_too(pair: Any) -> None:
    log: list[str] = []

    class Plain:
        def prepare(self, gradients: Any) -> None:
            log.append("prepare")

        def commit(self) -> None:
            log.append("commit")

        def abort(self) -> None:
            log.append("abort")

    await loss_of(*pair, Plain()).backward()
    refusing = Member([])
    refusing.fails["prepare"] = ValueError("planned")
    with pytest.raises(ValueError, match="planned"):
        await loss_of(*pair, Plain(), refusing).backward()
    assert log == ["prepare", "commit", "prepare", "abort"]


@pytest.mark.asyncio
@pytest.mark.parametrize("place", [0, 1])
async def test_a_leaf_that_does_not_wait_for_the_end_fails_a_pass_with_participants(
    pair: Any, place: int
) -> None:
    """Its gradient would be added before all have agreed; of the second it already is."""
    member, called = Member([]), []
    handle = pair[place].register_post_accumulate_grad_hook(called.append)
    with pytest.raises(RuntimeError, match="post-accumulate hook"):
        await loss_of(*pair, member).backward()
    assert [pair[0].grad is None, bool(called)] == [True, place == 1]
    assert member.verbs() == ([] if place else ["abort", "abort ends"])
    handle.remove()
    pair[1].grad = None
    await loss_of(*pair, Member([])).backward()
    assert [x.grad.tolist() for x in pair] == [ONES, ONES]


@pytest.mark.asyncio
async def test_who_joins_while_others_prepare_is_asked_after_them(pair: Any) -> None:
    log: list[Any] = []
    first, second = Member(log), Member(log)
    second.gives = lambda gradients: log.append(("sees", gradients[pair[0]].tolist()))

    def gives(gradients: Any) -> Any:
        graph.join(second)
        return {pair[0]: gradients[pair[0]] * 2}

    first.gives = gives
    await loss_of(*pair, first).backward()
    assert [verb for verb, _ in log] == [
        "prepare", "prepare ends", "prepare", "prepare ends", "sees",
        "commit", "commit", "commit ends", "commit ends",
    ]  # fmt: skip
    assert ("sees", [2.0] * 3) in log


@pytest.mark.asyncio
async def test_callbacks_come_after_all_have_agreed_and_may_still_fail(pair: Any) -> None:
    member = Member([], pair)

    def fail() -> None:
        member.log.append(("callback", [x.grad is not None for x in pair]))
        with pytest.raises(RuntimeError, match="has added its gradients"):
            graph.join(Member([]))
        raise ValueError("planned")

    value = calls(joined(pair[0], member), lambda: graph.queue_callback(fail))
    with pytest.raises(ValueError, match="planned"):
        await (value + pair[1]).sum().backward()
    assert member.verbs() == ["prepare", "prepare ends", "callback", "abort", "abort ends"]
    assert member.log[2][1] == [True, True]
    assert member.log[-1][1] == [False, False]


@pytest.mark.asyncio
async def test_what_else_a_participant_has_is_its_own_affair(pair: Any) -> None:
    """As a lock with a method `hold`, which would be called with the pass."""
    x, y = pair
    log: list[Any] = []
    member: Any = Member(log)
    member.hold = member.held = member.given = "its own"
    await loss_of(x, y, member).backward()
    assert member.verbs() == ["prepare", "prepare ends", "commit", "commit ends"]


@pytest.mark.asyncio
async def test_participants_that_wait_for_one_another_are_all_asked(pair: Any) -> None:
    barrier = asyncio.Barrier(5)
    members = [Member([]) for _ in range(5)]

    async def prepare(gradients: Any) -> None:
        await barrier.wait()

    for member in members:
        member.prepare = prepare  # type: ignore[method-assign]
    await loss_of(*pair, *members).backward()
    assert pair[0].grad is not None


@pytest.mark.asyncio
async def test_a_pass_tells_its_id_priority_deadline_and_whether_it_accumulates() -> None:
    x = leaf()
    seen: list[Any] = []
    y = calls(x, lambda: seen.append(graph.current_pass())).sum()
    deadline = asyncio.get_running_loop().time() + 60
    await y.backward(retain_graph=True, priority=3, deadline=deadline)
    await ag.grad(y, x, retain_graph=True)
    await y.backward(inputs=[x])
    assert [(s.priority, s.deadline, s.accumulates) for s in seen] == [
        (3, deadline, True), (0, None, False), (0, None, False),
    ]  # fmt: skip
    assert len({s.id for s in seen}) == 3


# -- threads, no loop, a blocked loop -----------------------------------------


@pytest.mark.asyncio
async def test_nodes_in_threads_join_and_participants_run_on_the_loop(pair: Any) -> None:
    loops: list[Any] = []
    member = Member([])
    member.gives = lambda gradients: loops.append(asyncio.get_running_loop())
    value = calls(pair[0], lambda: graph.join(member), HEAVY)
    await (chain(value, 1, cost=HEAVY) + pair[1]).sum().backward()
    assert loops == [asyncio.get_running_loop()]
    assert member.verbs()[-1] == "commit ends"


@pytest.fixture
def _switching_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.asyncio
@pytest.mark.usefixtures("_switching_often")
async def test_participants_may_join_from_several_threads_at_once(pair: Any) -> None:
    ids: set[int] = set()
    log: list[Any] = []

    def join_many() -> None:
        ids.add(graph.current_pass().id)
        for _ in range(100):
            graph.join(Member(log))

    async def hook(gradient: Any) -> None:
        await asyncio.gather(*[asyncio.to_thread(join_many) for _ in range(4)])

    y = pair[0] * 1
    y.register_hook(hook)
    await y.sum().backward()
    assert len(ids) == 1
    verbs = [verb for verb, _ in log]
    assert verbs.count("prepare") == verbs.count("commit") == 400


@pytest.mark.asyncio
@pytest.mark.parametrize("how", ["error", "cancel"])
async def test_participants_of_a_pass_that_ends_in_a_thread_are_told(pair: Any, how: str) -> None:
    """The loop asks a pass that a thread has ended what comes next, and its members are not it."""
    member, loop = Member([], pair), asyncio.get_running_loop()
    begun, goes_on = asyncio.Event(), threading.Event()

    def end() -> None:
        loop.call_soon_threadsafe(begun.set)
        assert goes_on.wait(10)
        if how == "error":
            raise ValueError("planned")

    value = calls(calls(pair[0], end, HEAVY), lambda: graph.join(member), HEAVY)
    future = (chain(value, 1, cost=HEAVY) + pair[1]).sum().backward()
    await begun.wait()
    if how == "cancel":
        future.cancel()
    goes_on.set()
    with pytest.raises(ValueError if how == "error" else asyncio.CancelledError):
        await future
    assert member.verbs() == ["abort", "abort ends"]
    assert [x.grad for x in pair] == [None, None]
    await assert_nothing_runs()


@pytest.mark.parametrize("fails", [False, True])
def test_a_pass_without_a_loop_awaits_its_participants_elsewhere(pair: Any, fails: bool) -> None:
    member = Member([], pair)
    if fails:
        member.fails["prepare"] = ValueError("planned")
        with pytest.raises(ValueError, match="planned"):
            loss_of(*pair, member).backward()
        assert member.verbs() == ["prepare", "abort", "abort ends"]
        assert pair[0].grad is None
    else:
        loss_of(*pair, member).backward()
        assert member.verbs() == ["prepare", "prepare ends", "commit", "commit ends"]
        assert pair[0].grad.tolist() == ONES


@pytest.mark.parametrize("deadline", [None, 1e9])
def test_an_interrupt_between_two_nodes_aborts_all(
    pair: Any, deadline: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a loop; a coroutine of the pass may be running elsewhere then."""
    member = Member([])
    run = GraphTask.run

    def interrupted(task: GraphTask, *args: Any, **options: Any) -> None:
        monkeypatch.undo()
        run(task, *args, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(GraphTask, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        loss_of(*pair, member).backward(deadline=deadline)
    assert pair[0].grad is None
    assert member.verbs()[-1] == "abort ends"


@pytest.mark.asyncio
async def test_a_pass_that_blocks_the_loop_refuses_participants(pair: Any) -> None:
    member = Member([])
    with ag.blocking(), pytest.raises(RuntimeError, match="blocks the event loop"):
        loss_of(*pair, member).backward()
    assert pair[0].grad is None
    assert member.log == []


@pytest.mark.usefixtures("no_collector")
@pytest.mark.asyncio
async def test_a_pass_with_participants_leaves_nothing_behind() -> None:
    def refuse(gradients: Any) -> None:
        raise ValueError("planned")

    gc.collect()
    x, y = leaf(), leaf()
    member = Member([])
    reference = weakref.ref(member)
    await loss_of(x, y, member).backward()
    member = Member([])
    member.gives = refuse
    failed = weakref.ref(member)
    with pytest.raises(ValueError, match="planned"):
        await loss_of(x, y, member).backward()
    del member
    await asyncio.sleep(0)
    assert reference() is None
    assert failed() is None


# -- given gradients ----------------------------------------------------------


@pytest.mark.asyncio
async def test_given_gradients_are_added_to_all_leaves_or_to_none(pair: Any) -> None:
    x, y = pair
    large = ag.zeros(60_000, requires_grad=True)
    hooked: list[int] = []
    x.register_hook(lambda gradient: hooked.append(1))
    future = graph.accumulate({x: ag.ones(3), y: None, large: ag.ones(60_000)})
    await future
    assert (x.grad.tolist(), y.grad, large.grad.sum().item()) == (ONES, None, 60_000)
    assert hooked == []
    y.grad = ag.ones(3, dtype=ag.float64)
    y.grad._array.flags.writeable = False
    with pytest.raises(RuntimeError, match="read-only"):
        await graph.accumulate({x: ag.ones(3), y: ag.ones(3)})
    assert x.grad.tolist() == ONES
    await graph.accumulate({})


@pytest.mark.parametrize("views", [False, True])
def test_gradients_of_other_leaves_are_added_as_they_were(views: bool) -> None:
    """Though adding to the first changes what is added to the second."""
    x, y = leaf(), leaf()
    x.grad, y.grad = ag.full_like(x, 1.0), ag.full_like(y, 2.0)
    given = {x: y.grad.view(-1), y: x.grad.view(-1)} if views else {x: y.grad, y: x.grad}
    graph.accumulate(given)
    assert (x.grad.tolist(), y.grad.tolist()) == ([3.0] * 3, [3.0] * 3)


def test_given_gradients_are_added_without_a_loop() -> None:
    x = leaf()
    given = ag.ones(3)
    graph.accumulate({x: given})
    graph.accumulate({x: given})
    assert x.grad.tolist() == [2.0] * 3
    assert given.tolist() == ONES


def test_a_given_gradient_is_converted_to_the_dtype_of_its_leaf() -> None:
    """Also without axes, where arrays of all dtypes have the same strides."""
    for shape in ((), (3,)):
        x = ag.zeros(shape, requires_grad=True)
        graph.accumulate({x: ag.ones(shape, dtype=ag.float64)})
        assert x.grad.numpy().dtype == x.grad.dtype == ag.float32


# -- interleavings ------------------------------------------------------------


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 4), st.integers(0, 4), st.integers(0, 4), st.sampled_from("yyyyn")
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 25),
    st.sampled_from(["runs", "cancelled", "fails"]),
)
def test_all_or_nothing_in_any_order(plan: Any, turn: int, how: str) -> None:
    """Whoever is slow, whoever refuses, and whenever the pass is cancelled or a node fails."""

    async def main() -> None:
        x, y = leaf(), leaf()
        members = []
        for prepare, commit, abort, agrees in plan:
            member = Member([], (x, y), prepare=prepare, commit=commit, abort=abort)
            if agrees == "n":
                member.fails["prepare"] = ValueError("planned")
            members.append(member)

        async def node() -> None:
            for _ in range(turn):
                await asyncio.sleep(0)
            raise ValueError("planned")

        value = calls(y, node) if how == "fails" else y
        future = (joined(x, *members) + value).sum().backward()
        if how == "cancelled":
            for _ in range(turn):
                await asyncio.sleep(0)
            future.cancel()
        await asyncio.wait([future])
        agreed = all(agrees == "y" for *_, agrees in plan) and how != "fails"
        if how != "cancelled":
            assert future.committed() == agreed
        committed = future.committed()
        assert [t.grad is not None for t in (x, y)] == [committed, committed]
        if not future.cancelled():
            future.exception()
        for member in members:
            verbs = member.verbs()
            # No word of joining: the pass was over before the node ran.
            assert verbs.count("commit ends") == committed or not verbs
            assert verbs.count("abort ends") == (not committed) or not verbs
        assert others() == set()

    asyncio.run(main())


@pytest.mark.asyncio
async def test_a_task_cancelled_before_it_tells_a_participant_leaves_no_coroutine(
    pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that ends cancels all its tasks; Python would warn of what was never awaited."""
    log: list[Any] = []
    real = asyncio.ensure_future

    def cancelled(coroutine: Any) -> Any:
        monkeypatch.undo()
        task = real(coroutine)
        task.cancel()
        return task

    monkeypatch.setattr(asyncio, "ensure_future", cancelled)
    await loss_of(*pair, Member(log, pair)).backward()
    assert [verb for verb, _ in log] == ["prepare", "prepare ends", "commit", "commit ends"]
