"""Requests that are computed together: how batches close, fail, and lose members."""

from __future__ import annotations

import asyncio
import copyreg
import traceback
import weakref
from itertools import pairwise

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.serving import Batcher, Overloaded

pytestmark = pytest.mark.asyncio
#: Longer than any test: a batch closes because it is full, or not at all.
NEVER = 1_000.0


async def settle():
    """Let everything that can happen happen."""
    for _ in range(10):
        await asyncio.sleep(0)


class Model:
    """Computes when it is told to, and remembers what it was given."""

    def __init__(self) -> None:
        self.batches: list[list] = []
        self.go = asyncio.Event()

    async def __call__(self, items):
        self.batches.append(items)
        await self.go.wait()
        return [item * 10 for item in items]


async def test_a_full_batch_is_computed_at_once_and_each_gets_its_own():
    model = Model()
    model.go.set()
    async with Batcher(model, max_size=3, max_delay=NEVER) as batcher:
        assert await asyncio.gather(*map(batcher, range(6))) == [0, 10, 20, 30, 40, 50]
    assert model.batches == [[0, 1, 2], [3, 4, 5]]
    statistics = batcher.statistics()
    assert (statistics.batches, statistics.requests, statistics.waiting) == (2, 6, 0)


async def test_a_batch_that_does_not_fill_up_is_computed_after_its_delay():
    model = Model()
    model.go.set()
    async with Batcher(model, max_size=100, max_delay=0.001) as batcher:
        assert await batcher(1) == 10
    async with Batcher(model, max_size=100, max_delay=0) as batcher:
        assert await batcher(2) == 20


async def test_while_one_is_computed_the_next_fills_up_with_the_urgent_first():
    model = Model()
    async with Batcher(model, max_size=2, max_delay=NEVER) as batcher:
        first = [asyncio.ensure_future(batcher(n)) for n in (1, 2)]
        await settle()
        rest = [asyncio.ensure_future(batcher(n, priority=p)) for n, p in ((3, 0), (4, 0), (5, 9))]
        await settle()
        assert model.batches == [[1, 2]]
        model.go.set()
        await asyncio.gather(*first)
        await settle()
        assert model.batches[1] == [5, 3]
        rest.append(asyncio.ensure_future(batcher(6)))
        assert await asyncio.gather(*rest) == [30, 40, 50, 60]


async def test_an_error_is_everybodys_in_the_batch_and_nobody_elses():
    async def compute(items):
        if "bad" in items:
            raise ValueError("bad item")
        return items

    async with Batcher(compute, max_size=2, max_delay=NEVER) as batcher:
        results = await asyncio.gather(
            *map(batcher, ["good", "bad", "fine", "well"]), return_exceptions=True
        )
    assert [str(r) for r in results] == ["bad item", "bad item", "fine", "well"]


class Coded(Exception):
    """Makes its message from its argument."""

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code:d}")
        self.code = code


class Named(Exception):
    """Has an argument that `args` does not keep."""

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code


@pytest.mark.parametrize(
    "make",
    [
        lambda: Coded(3), lambda: Named("a", code=3), lambda: OSError(2, "gone", "file"),
        lambda: UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"),
        lambda: ExceptionGroup("g", [ValueError("v")]),
    ],
    ids=lambda make: type(make()).__name__,
)  # fmt: skip
async def test_each_request_of_a_failed_batch_has_an_error_of_its_own(make, monkeypatch):
    """Else the notes, the cause and the traceback of all callers would be in one object."""
    error = make()
    # Dask registers reducers of its own, after which `copy` can't copy all errors.
    monkeypatch.setitem(copyreg.dispatch_table, type(error), lambda error: 1 / 0)

    async def compute(items):
        error.add_note("of the batch")
        raise error from LookupError("cause")

    async with Batcher(compute, max_size=3, max_delay=NEVER) as batcher:
        tasks = [asyncio.ensure_future(batcher(n)) for n in range(3)]
        await asyncio.wait(tasks)
    errors = [task.exception() for task in tasks]
    assert len({id(each) for each in errors}) == 3
    errors[0].add_note("mine")
    errors[0].__cause__ = None
    for each in errors[1:]:
        assert (type(each), str(each), each.args) == (type(error), str(error), error.args)
        assert vars(each) == vars(error) | {"__notes__": ["of the batch"]}
        assert isinstance(each.__cause__, LookupError)
        functions = [frame.name for frame in traceback.extract_tb(each.__traceback__)]
        assert functions.count("compute") == functions.count("__call__") == 1


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("fails", [False, True])
async def test_what_was_computed_is_freed_at_once_without_the_collector(fails):
    """Items may be large, and the last batch would keep its own until the next one comes."""

    class Item:
        pass

    async def compute(items):
        if fails:
            raise ValueError("bad")
        return items

    async with Batcher(compute, max_size=2, max_delay=NEVER) as batcher:
        items = [Item(), Item()]
        alive = weakref.WeakSet(items)
        tasks = [asyncio.ensure_future(batcher(item)) for item in items]
        await asyncio.wait(tasks)
        assert [isinstance(task.exception(), ValueError) for task in tasks] == [fails, fails]
        del items, tasks
        await settle()
        assert not alive


async def test_a_cancelled_request_leaves_the_line_and_one_being_computed_is_dropped():
    model = Model()
    async with Batcher(model, max_size=2, max_delay=NEVER) as batcher:
        first = [asyncio.ensure_future(batcher(n)) for n in (1, 2)]
        await settle()
        waiting = asyncio.ensure_future(batcher(3))
        await settle()
        for request in (first[0], waiting):
            request.cancel()
        await settle()
        assert batcher.statistics().waiting == 0
        rest = [asyncio.ensure_future(batcher(n)) for n in (4, 5)]
        model.go.set()
        assert await first[1] == 20
        assert await asyncio.gather(*rest) == [40, 50]
        assert model.batches == [[1, 2], [4, 5]]


async def test_too_many_waiting_are_refused_at_once():
    model = Model()
    async with Batcher(model, max_size=1, max_delay=NEVER, max_waiting=1) as batcher:
        inside = asyncio.ensure_future(batcher(1))
        await settle()
        waiting = asyncio.ensure_future(batcher(2))
        await settle()
        with pytest.raises(Overloaded):
            await batcher(3)
        assert batcher.statistics().refused == 1
        model.go.set()
        assert await asyncio.gather(inside, waiting) == [10, 20]


async def test_closing_answers_those_who_wait_and_refuses_others():
    model = Model()
    batcher = Batcher(model, max_size=100, max_delay=NEVER)
    with pytest.raises(RuntimeError, match="not open"):
        await batcher(0)
    async with batcher:
        waiting = asyncio.ensure_future(batcher(1))
        await settle()
        model.go.set()
    assert await waiting == 10
    with pytest.raises(RuntimeError, match="not open"):
        await batcher(2)


async def test_an_error_in_the_block_is_raised_as_it_is():
    with pytest.raises(KeyError, match="mine"):
        async with Batcher(Model()):
            raise KeyError("mine")


async def test_a_wrong_number_of_results_is_an_error_that_says_so():
    async def compute(items):
        return []

    async with Batcher(compute, max_size=1) as batcher:
        with pytest.raises(ValueError, match="1 items and has returned 0 results"):
            await batcher(1)


async def test_what_computes_no_sequence_is_an_error_that_says_so():
    async def nothing(items):
        pass

    async def unordered(items):
        return {*items}

    for compute, said in (
        (list, "an async function"), (nothing, "not NoneType"), (unordered, "not set"),
    ):  # fmt: skip
        async with Batcher(compute, max_size=1) as batcher:
            with pytest.raises(TypeError, match=f"^Batcher: compute .*{said}"):
                await batcher(1)


async def test_one_pass_gives_every_request_its_own_gradient():
    weight = ag.tensor([1.0, 2.0, 3.0])

    async def explain(inputs):
        x = ag.tensor(np.stack(inputs), requires_grad=True)
        (gradients,) = await ag.grad((x * x * weight).sum(), x)
        return list(gradients.numpy())

    rows = [np.array([1.0, 1.0, 1.0]), np.array([0.0, 5.0, -1.0])]
    async with Batcher(explain, max_size=2, max_delay=NEVER) as batcher:
        results = await asyncio.gather(*map(batcher, rows))
    for row, gradient in zip(rows, results, strict=True):
        assert np.allclose(gradient, 2 * row * np.array([1, 2, 3]))


async def test_several_batches_are_computed_at_once_where_that_is_wanted():
    model = Model()
    async with Batcher(model, max_size=1, max_delay=NEVER, concurrent=2) as batcher:
        requests = [asyncio.ensure_future(batcher(n)) for n in (1, 2, 3)]
        await settle()
        assert model.batches == [[1], [2]]
        model.go.set()
        assert await asyncio.gather(*requests) == [10, 20, 30]
        # With nothing to do, they sleep, and wake for what comes then.
        await settle()
        model.go.clear()
        requests = [asyncio.ensure_future(batcher(n)) for n in (4, 5)]
        await settle()
        assert model.batches[3:] == [[4], [5]]
        model.go.set()
        assert await asyncio.gather(*requests) == [40, 50]


async def test_a_delay_counts_from_when_a_request_came_not_from_when_there_was_room(monkeypatch):
    now = 0.0
    monkeypatch.setattr("anyio.current_time", lambda: now)
    model = Model()
    async with Batcher(model, max_size=2, max_delay=NEVER) as batcher:
        first = [asyncio.ensure_future(batcher(n)) for n in (1, 2)]
        await settle()
        late = asyncio.ensure_future(batcher(3))
        await settle()
        now = NEVER + 1.0
        model.go.set()
        assert await asyncio.gather(*first, late) == [10, 20, 30]
    assert model.batches == [[1, 2], [3]]


async def test_a_batch_that_nobody_waits_for_any_more_is_cancelled():
    ended = []

    class Endless(Model):
        async def __call__(self, items):
            try:
                return await super().__call__(items)
            finally:
                ended.append(items)

    model = Endless()
    async with Batcher(model, max_size=2, max_delay=NEVER) as batcher:
        requests = [asyncio.ensure_future(batcher(n)) for n in (1, 2)]
        await settle()
        requests[0].cancel()
        await settle()
        assert not ended
        requests[1].cancel()
        await settle()
        assert ended == [[1, 2]]
        # And the next one is computed as if nothing had been.
        model.go.set()
        assert await asyncio.gather(batcher(3), batcher(4)) == [30, 40]


async def test_a_cancellation_of_what_compute_awaits_stops_its_batch_and_not_the_batcher():
    """A pass may be cancelled by whoever has its future."""

    async def compute(items):
        x = ag.tensor(1.0, requires_grad=True)
        y = x * 2
        if 1 in items:
            # It never ends by itself.
            y.register_hook(lambda gradient: asyncio.Event().wait())
        backward = y.backward()
        if 1 in items:
            backward.cancel()
        await backward
        return items

    async with Batcher(compute, max_size=1, max_delay=NEVER) as batcher:
        with pytest.raises(RuntimeError, match="the computation was stopped by CancelledError"):
            await batcher(1)
        assert await batcher(2) == 2


async def test_a_loop_that_ends_ends_a_batcher_in_the_midst_of_a_batch():
    """It cancels all tasks at once: the batcher's own, and who has opened it."""
    computing, ended = asyncio.Event(), []

    async def compute(items):
        computing.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(items)

    async def serve():
        async with Batcher(compute, max_size=1, max_delay=NEVER) as batcher:
            await batcher(1)

    serving = asyncio.create_task(serve())
    await computing.wait()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.wait([serving])
    assert ended == [[1]]
    assert serving.cancelled()


async def test_whoever_still_waits_when_the_batcher_is_stopped_is_told():
    async def one(batcher, item):
        with pytest.raises(RuntimeError, match="the batcher was stopped"):
            await batcher(item)

    batcher, others = Batcher(Model(), max_size=1, max_delay=NEVER), []

    async def stop():
        async with batcher:
            others.extend(asyncio.ensure_future(one(batcher, n)) for n in range(3))
            await settle()
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await stop()
    await asyncio.gather(*others)
    assert batcher.statistics().waiting == 0


async def test_a_batcher_is_opened_once_at_a_time_and_again_later():
    model = Model()
    model.go.set()
    batcher = Batcher(model, max_size=1)
    async with batcher:
        with pytest.raises(RuntimeError, match="open already"):
            async with batcher:
                pass
        assert await batcher(1) == 10
    async with batcher:
        assert await batcher(2) == 20


async def test_others_have_turns_between_batches_even_if_nothing_is_awaited_for_them():
    turns = 0

    async def bystander():
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    seen = []

    async def compute(items):
        seen.append(turns)
        return items

    async with Batcher(compute, max_size=1, max_delay=NEVER) as batcher:
        beside = asyncio.ensure_future(bystander())
        await asyncio.gather(*map(batcher, range(8)))
        beside.cancel()
    assert all(later > earlier for earlier, later in pairwise(seen))


@pytest.mark.parametrize("wrong", ["max_size", "concurrent", "max_waiting"])
async def test_limits_under_which_nothing_is_computed_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{wrong} must be at least 1"):
        Batcher(len, **{wrong: 0})
    with pytest.raises(TypeError, match=f"{wrong} must be .* a whole number, not 2.5"):
        Batcher(len, **{wrong: 2.5})


@pytest.mark.parametrize("wrong", [-1, float("nan"), "1", None])
async def test_a_delay_that_is_none_is_refused(wrong):
    with pytest.raises(ValueError, match="max_delay must be a number of seconds"):
        Batcher(len, max_delay=wrong)


async def test_a_priority_that_is_no_number_is_refused_and_nothing_waits():
    async with Batcher(Model(), max_delay=NEVER) as batcher:
        with pytest.raises(TypeError, match="priority must be an int, not str"):
            await batcher(1, priority="high")
        assert batcher.statistics().waiting == 0


async def test_another_threads_loop_is_told_that_the_batcher_is_not_its_own():
    """Else the caller would wait for ever: nothing wakes its loop."""
    async with Batcher(Model(), max_delay=NEVER) as batcher:

        async def call():
            await batcher(1)

        with pytest.raises(ag.errors.WrongLoopError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, call())
        assert batcher.statistics().waiting == 0
