"""Hooks and nodes that are coroutines: awaited while the rest of the pass goes on."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import numpy as np
import pytest
from passes import (
    CHEAP,
    HEAVY,
    assert_nothing_runs,
    calls,
    hold,
    leaf,
    long_pass,
    others,
    settle,
    until,
)

import asyncgrad as ag
from asyncgrad.core.modes import current
from asyncgrad.core.variable import gradient_edge
from asyncgrad.errors import AutogradError
from asyncgrad.scheduler.helpers import Helpers

pytestmark = pytest.mark.asyncio


async def test_a_coroutine_hook_is_awaited_and_may_replace_the_gradient() -> None:
    x = leaf()
    y = x * 2

    async def hook(gradient: ag.Tensor) -> ag.Tensor:
        await asyncio.sleep(0)
        return gradient * 10

    y.register_hook(hook)
    await y.sum().backward()
    assert x.grad.tolist() == [20.0] * 3
    await assert_nothing_runs()


async def test_a_coroutine_hook_that_returns_nothing_leaves_the_gradient_as_it_is() -> None:
    x = leaf()
    y = x * 2
    seen = []

    async def hook(gradient: ag.Tensor) -> None:
        seen.append(gradient.tolist())

    y.register_hook(hook)
    await y.sum().backward()
    assert seen == [[1.0] * 3]
    assert x.grad.tolist() == [2.0] * 3


@pytest.mark.parametrize("kind", ["tensor", "leaf", "node", "prehook", "post_accumulate", "apply"])
async def test_every_kind_of_hook_and_a_node_itself_can_be_a_coroutine(kind: str) -> None:
    x = leaf()
    y = x * 2
    ran = []

    async def hook(*args: object) -> None:
        await asyncio.sleep(0)
        ran.append(kind)

    async def apply() -> tuple:
        await hook()
        return (np.full(3, 5.0),)

    if kind == "tensor":
        y.register_hook(hook)
    elif kind == "leaf":
        x.register_hook(hook)
    elif kind == "node":
        y.grad_fn.register_hook(hook)
    elif kind == "prehook":
        y.grad_fn.register_prehook(hook)
    elif kind == "post_accumulate":
        x.register_post_accumulate_grad_hook(hook)
    else:
        y = calls(y, apply)
    await y.sum().backward()
    assert ran == [kind]
    assert x.grad.tolist() == ([10.0] * 3 if kind == "apply" else [2.0] * 3)
    await assert_nothing_runs()


async def test_the_rest_of_the_pass_goes_on_while_a_coroutine_waits() -> None:
    """The older branch lets the younger one go on: with one after the other, nothing would end."""
    x = leaf()
    old, young = x * 2, x * 3
    reached = asyncio.Event()

    async def wait(gradient: ag.Tensor) -> None:
        await reached.wait()

    young.register_hook(wait)
    old.register_hook(lambda gradient: reached.set())
    await (old + young).sum().backward()
    assert x.grad.tolist() == [5.0] * 3


async def test_several_coroutines_of_one_pass_wait_at_the_same_time() -> None:
    x = leaf()
    barrier = asyncio.Barrier(4)

    async def wait(gradient: ag.Tensor) -> None:
        await barrier.wait()

    total = x * 0
    for factor in range(4):
        part = x * factor
        part.register_hook(wait)
        total = total + part
    await total.sum().backward()
    assert x.grad.tolist() == [6.0] * 3


async def test_a_coroutine_hook_that_awaits_its_own_pass_is_told_so() -> None:
    """As a task that awaits itself is: it would wait for ever."""
    x = leaf()
    y = x * 2
    began = asyncio.Event()

    async def hook(gradient: ag.Tensor) -> None:
        began.set()
        await future

    y.register_hook(hook)
    future = y.sum().backward()
    await began.wait()
    with pytest.raises(AutogradError, match="awaits its own pass"):
        await future
    assert x.grad is None
    await assert_nothing_runs()


@pytest.mark.parametrize("by", ["itself", "a task", "gather"])
async def test_passes_whose_nodes_await_one_another_are_an_error(by: str) -> None:
    """The last await would close the circle, and all would wait for ever."""
    leaves = [leaf() for _ in range(3)]
    passes: list[Any] = []
    began = [asyncio.Event() for _ in leaves]

    def waiting(number: int) -> Any:
        async def wait() -> None:
            await passes[(number + 1) % 3]

        async def hook(gradient: ag.Tensor) -> None:
            began[number].set()
            if number == 2:
                await asyncio.gather(*[event.wait() for event in began])
            if by == "gather" and number < 2:
                await asyncio.gather(passes[number + 1], asyncio.sleep(0))
            elif by == "a task":
                await asyncio.create_task(wait())
            else:
                await wait()

        return hook

    for number, x in enumerate(leaves):
        y = x * 2
        y.register_hook(waiting(number))
        passes.append(y.sum().backward())
    async with asyncio.timeout(30):
        ends = await asyncio.gather(*passes, return_exceptions=True)
    assert all("would wait for ever" in str(end) for end in ends)
    assert [x.grad for x in leaves] == [None] * 3
    await assert_nothing_runs()


async def test_a_task_that_a_hook_starts_may_await_the_hooks_pass() -> None:
    x = leaf()
    y = x * 2
    told = []

    async def tell() -> None:
        await future
        told.append(x.grad.tolist())

    async def hook(gradient: ag.Tensor) -> None:
        await asyncio.sleep(0)
        told.append(asyncio.create_task(tell()))

    y.register_hook(hook)
    future = y.sum().backward()
    await future
    await told[0]
    assert told[1:] == [[2.0] * 3]


async def test_other_passes_go_on_while_a_coroutine_waits() -> None:
    x, y = leaf(), leaf()
    held = x * 2
    release = asyncio.Event()

    async def wait(gradient: ag.Tensor) -> None:
        await release.wait()

    held.register_hook(wait)
    first = held.sum().backward()
    await long_pass(y).backward()
    assert y.grad.tolist() == [1.0] * 3
    assert not first.done()
    release.set()
    await first
    assert x.grad.tolist() == [2.0] * 3


async def test_a_sum_has_the_same_bits_whatever_the_coroutines_take() -> None:
    """Floating addition is not associative: order shows."""
    rng = np.random.default_rng(0)
    scales = [10.0**k for k in rng.integers(-8, 8, 6)]

    async def once(order: list[int]) -> bytes:
        x = ag.tensor(rng_values, requires_grad=True)
        turns = [asyncio.Event() for _ in order]
        turns[order[0]].set()
        total = x.sum() * 0
        for place, scale in enumerate(scales):
            part = x * scale

            async def hook(gradient: ag.Tensor, place: int = place) -> None:
                await turns[place].wait()
                after = order.index(place) + 1
                if after < len(order):
                    turns[order[after]].set()

            part.register_hook(hook)
            total = total + (part * part).sum()
        await total.backward()
        return x.grad.numpy().tobytes()

    rng_values = rng.normal(size=5)
    results = set()
    for _ in range(12):
        results.add(await once([int(place) for place in rng.permutation(6)]))
    assert len(results) == 1


class TestContext:
    async def test_a_hook_sees_the_callers_context_variables(self) -> None:
        variable = contextvars.ContextVar("variable", default="default")
        x = leaf()
        y = x * 2
        seen = []

        async def hook(gradient: ag.Tensor) -> None:
            seen.append(variable.get())
            await asyncio.sleep(0)
            variable.set("hook's own")

        y.register_hook(hook)
        variable.set("caller's")
        future = y.sum().backward()
        variable.set("later")
        await future
        assert seen == ["caller's"]
        assert variable.get() == "later"

    async def test_hooks_of_one_pass_do_not_share_what_they_set(self) -> None:
        variable = contextvars.ContextVar("variable", default=None)
        x = leaf()
        barrier = asyncio.Barrier(2)
        seen = []

        async def hook(gradient: ag.Tensor) -> None:
            mine = object()
            variable.set(mine)
            await barrier.wait()
            seen.append(variable.get() is mine)

        a, b = x * 2, x * 3
        a.register_hook(hook)
        b.register_hook(hook)
        await (a + b).sum().backward()
        assert seen == [True, True]

    @pytest.mark.parametrize("create_graph", [False, True])
    async def test_a_hook_records_only_where_the_pass_does(self, create_graph: bool) -> None:
        x = leaf()
        y = x * 2
        seen = []

        async def hook(gradient: ag.Tensor) -> None:
            await asyncio.sleep(0)
            seen.append(ag.is_grad_enabled())

        y.register_hook(hook)
        await (y * y).sum().backward(create_graph=create_graph)
        assert seen == [create_graph]

    async def test_a_hook_can_await_passes_of_its_own(self) -> None:
        x, z = leaf(), leaf()
        y = x * 2

        async def hook(gradient: ag.Tensor) -> ag.Tensor:
            with ag.enable_grad():
                (inner,) = await ag.grad((z * z * 3).sum(), [z])
            return gradient * inner

        y.register_hook(hook)
        await y.sum().backward()
        assert x.grad.tolist() == [12.0] * 3
        assert z.grad is None
        await assert_nothing_runs()


class TestErrors:
    async def test_an_error_of_a_coroutine_hook_is_the_passs(self) -> None:
        x = leaf()
        y = x * 2
        error = ValueError("no")

        async def hook(gradient: ag.Tensor) -> None:
            await asyncio.sleep(0)
            raise error

        y.register_hook(hook)
        with pytest.raises(ValueError, match="no") as caught:
            await y.sum().backward()
        assert caught.value is error
        assert "raised by MulBackward0" in error.__notes__[0]
        assert x.grad is None
        await assert_nothing_runs()

    async def test_a_hook_that_raises_cancelled_error_fails_and_cancels_nobody(self) -> None:
        """Who awaits the pass was not cancelled, and must not be told so."""
        x = leaf()
        y = x * 2

        async def hook(gradient: ag.Tensor) -> None:
            await asyncio.sleep(0)
            raise asyncio.CancelledError("the hook's own affair")

        y.register_hook(hook)
        future = y.sum().backward()
        with pytest.raises(AutogradError, match="CancelledError") as caught:
            await future
        assert isinstance(caught.value.__cause__, asyncio.CancelledError)
        assert not future.cancelled()
        assert asyncio.current_task().cancelling() == 0

    async def test_coroutines_end_with_the_pass_that_fails(self) -> None:
        """Nobody would ever set what this one waits for."""
        x = leaf()
        good, bad = x * 2, x * 3
        ended = []

        async def wait(gradient: ag.Tensor) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("waiting")

        async def fail(gradient: ag.Tensor) -> None:
            await asyncio.sleep(0)
            raise ValueError("no")

        good.register_hook(wait)
        bad.register_hook(fail)
        with pytest.raises(ValueError, match="no") as caught:
            await (good + bad).sum().backward()
        assert ended == ["waiting"]
        notes = "".join(caught.value.__notes__)
        assert "later" not in notes, "a coroutine that was told to end did not fail"
        assert x.grad is None
        await assert_nothing_runs()

    async def test_coroutines_that_have_not_begun_never_do_if_a_node_of_their_slice_fails(
        self,
    ) -> None:
        x = leaf()
        old, young = x * 2, x * 3
        began = []

        async def wait(gradient: ag.Tensor) -> None:
            began.append(gradient)

        def fail(gradient: ag.Tensor) -> None:
            raise ValueError("no")

        young.register_hook(wait)
        old.register_hook(fail)
        with pytest.raises(ValueError, match="no"):
            await (old + young).sum().backward()
        assert began == []
        await assert_nothing_runs()

    async def test_a_second_error_while_the_first_is_drained_is_a_note(self) -> None:
        x = leaf()
        good, bad = x * 2, x * 3

        async def wait(gradient: ag.Tensor) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                raise KeyError("cleaning up")

        async def fail(gradient: ag.Tensor) -> None:
            await asyncio.sleep(0)
            raise ValueError("no")

        good.register_hook(wait)
        bad.register_hook(fail)
        with pytest.raises(ValueError, match="no") as caught:
            await (good + bad).sum().backward()
        assert caught.value.__notes__[1] == "later in the same pass: KeyError('cleaning up')"

    async def test_a_hook_that_returns_something_else_than_a_tensor_is_refused(self) -> None:
        x = leaf()
        y = x * 2

        async def hook(gradient: ag.Tensor) -> int:
            return 1

        y.register_hook(hook)
        with pytest.raises(TypeError, match="hook returned 'int'"):
            await y.sum().backward()
        assert x.grad is None


class TestCancellation:
    async def test_the_future_ends_when_the_coroutine_has_cleaned_up(self) -> None:
        x = leaf()
        y = x * 2
        began, may_end = asyncio.Event(), asyncio.Event()
        trace = []

        async def hook(gradient: ag.Tensor) -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                trace.append("told")
                await may_end.wait()
                trace.append("ended")
                raise

        y.register_hook(hook)
        future = y.sum().backward()
        await began.wait()
        assert future.cancel()
        await settle()
        assert trace == ["told"]
        assert not future.done()
        assert not future.cancelled()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await future
        assert trace == ["told", "ended"]
        assert future.cancelled()
        assert x.grad is None
        await assert_nothing_runs()

    async def test_cancelling_again_does_not_disturb_the_clean_up(self) -> None:
        """anyio's scopes say it again at every turn of the loop."""
        x = leaf()
        y = x * 2
        began, may_end = asyncio.Event(), asyncio.Event()
        told = []

        async def hook(gradient: ag.Tensor) -> None:
            began.set()
            while True:
                try:
                    await may_end.wait()
                    return
                except asyncio.CancelledError:
                    told.append("told")

        y.register_hook(hook)
        future = y.sum().backward()
        await began.wait()
        for _ in range(20):
            assert future.cancel()
            await asyncio.sleep(0)
        assert told == ["told"]
        may_end.set()
        await asyncio.wait([future])
        assert future.cancelled()
        assert x.grad is None

    async def test_a_coroutine_that_has_not_begun_is_closed(self) -> None:
        """Cancelled in the turn of the loop in which the pass was started."""
        x = leaf()
        y = x * 2
        began = []

        async def hook(gradient: ag.Tensor) -> None:
            began.append(gradient)

        y.register_hook(hook)
        future = y.sum().backward()
        assert future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await future
        assert began == []
        await assert_nothing_runs()

    async def test_a_future_that_a_hook_returned_is_cancelled(self) -> None:
        x = leaf()
        y = x * 2
        waiting = asyncio.get_running_loop().create_future()
        y.register_hook(lambda gradient: waiting)
        future = y.sum().backward()
        await settle()
        future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await future
        assert waiting.cancelled()

    async def test_a_coroutine_that_ends_in_the_turn_of_the_cancel_is_dropped(self) -> None:
        x = leaf()
        y = x * 2
        ready = asyncio.Event()

        async def hook(gradient: ag.Tensor) -> None:
            await ready.wait()

        y.register_hook(hook)
        future = y.sum().backward()
        await settle()
        ready.set()
        future.cancel()
        await asyncio.wait([future])
        assert future.cancelled()
        assert x.grad is None
        await assert_nothing_runs()

    async def test_the_coroutines_of_other_passes_are_left_alone(self) -> None:
        x, z = leaf(), leaf()
        y, w = x * 2, z * 2
        go = asyncio.Event()

        async def hook(gradient: ag.Tensor) -> None:
            await go.wait()

        y.register_hook(hook)
        w.register_hook(hook)
        first, second = y.sum().backward(), w.sum().backward()
        await settle()
        first.cancel()
        await asyncio.wait([first])
        go.set()
        await second
        assert (x.grad, z.grad.tolist()) == (None, [2.0] * 3)
        assert others() == set()


class TestGrace:
    """A coroutine that ignores its cancellation does not hold its pass up for ever."""

    @pytest.fixture
    def complaints(self) -> list[dict[str, Any]]:
        return []

    async def stubborn(self, complaints: list[dict[str, Any]], fails: bool) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: complaints.append(context))
        ag.engine().limit(grace=0.0)
        x = leaf()
        y, z = x * 2, x * 3
        cancelled, go_on = asyncio.Event(), asyncio.Event()
        reached = asyncio.Event()

        async def hook(gradient: ag.Tensor) -> None:
            try:
                reached.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                await go_on.wait()

        async def fail(gradient: ag.Tensor) -> None:
            await reached.wait()
            if fails:
                raise ValueError("no")
            future.cancel()

        y.register_hook(hook)
        z.register_hook(fail)
        future = (y + z).sum().backward()
        with pytest.raises(ValueError if fails else asyncio.CancelledError):
            await future
        assert cancelled.is_set()
        assert x.grad is None
        assert [context["message"] for context in complaints] == [complaints[0]["message"]]
        assert "MulBackward0" in complaints[0]["message"]
        waiting = complaints[0]["task"]
        assert not waiting.done()
        go_on.set()
        await asyncio.wait([waiting])
        await assert_nothing_runs()
        await (x * 2).sum().backward()
        assert x.grad.tolist() == [2.0] * 3
        assert len(complaints) == 1

    async def test_a_cancelled_pass_ends_without_it(self, complaints: list) -> None:
        await self.stubborn(complaints, fails=False)

    async def test_a_failed_pass_ends_without_it(self, complaints: list) -> None:
        await self.stubborn(complaints, fails=True)


@pytest.mark.parametrize("limit", [1, 3])
async def test_no_more_coroutines_of_one_pass_wait_than_the_limit_allows(limit: int) -> None:
    ag.engine().limit(coroutine_nodes=limit)
    x = leaf()
    waiting, most = 0, 0
    order: list[int] = []

    def hook_of(place: int) -> Any:
        async def hook(gradient: ag.Tensor) -> None:
            nonlocal waiting, most
            waiting += 1
            most = max(most, waiting)
            await asyncio.sleep(0)
            order.append(place)
            waiting -= 1

        return hook

    total = x * 0.0
    for place in range(8):
        y = x * 2.0
        y.register_hook(hook_of(place))
        total = total + y
    await total.sum().backward()
    assert most == limit
    assert order == sorted(order, reverse=True), "those that are ready first are first"
    assert x.grad.tolist() == [16.0] * 3
    with pytest.raises(ValueError, match="at least one"):
        ag.engine().limit(coroutine_nodes=0)


def _waits_first(kind: str, ran: list[bool], log: list[str]) -> tuple[ag.Tensor, ag.Tensor]:
    """A leaf and an expensive node's tensor; it notes whether a loop runs in its thread."""
    x = leaf()

    def note() -> None:
        ran.append(asyncio._get_running_loop() is not None)

    async def hook(*facts: Any) -> None:
        await asyncio.sleep(0)
        log.append("hook")

    async def unpack(packed: ag.Tensor) -> ag.Tensor:
        await hook()
        return packed

    class Notes(ag.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: ag.Tensor) -> ag.Tensor:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, gradient: ag.Tensor) -> ag.Tensor:
            note()
            return gradient * ctx.saved_tensors[0].cos()

    if kind in {"unpack", "function"}:
        with ag.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
            y = x.sin() if kind == "unpack" else Notes.apply(x)
    else:
        y = x.sin()
    node = y.grad_fn
    if kind == "tensor":
        y.register_hook(hook)
    elif kind == "prehook":
        node.register_prehook(hook)
    elif kind == "posthook":
        node.register_hook(hook)
    elif kind == "leaf":
        node = gradient_edge(x)
        x.register_hook(hook)
        x.register_hook(lambda gradient: note())
    if kind not in {"function", "leaf"}:
        hold(y, note)
    node.cost = HEAVY
    return x, y


_WAITS = ["tensor", "prehook", "posthook", "unpack", "function"]


@pytest.mark.parametrize("how", ["backward", "grad", "create_graph", "anomaly"])
@pytest.mark.parametrize("kind", [*_WAITS, "leaf"])
async def test_an_expensive_node_that_has_waited_does_not_run_on_the_loop(
    kind: str, how: str
) -> None:
    """The loop would be held for as long as the node takes."""
    ran: list[bool] = []
    pairs = [_waits_first(kind, ran, []) for _ in range(3)]
    leaves = [x for x, _ in pairs]
    loss = sum(y for _, y in pairs).sum()
    if how in {"backward", "anomaly"} or kind == "leaf":
        with ag.autograd.set_detect_anomaly(how == "anomaly"):
            await loss.backward(create_graph=how == "create_graph")
        gradients = [x.grad for x in leaves]
    else:
        gradients = await ag.grad(loss, leaves, create_graph=how == "create_graph")
    assert ran == [False] * 3
    assert [g.tolist() for g in gradients] == [leaf().cos().tolist()] * 3
    await assert_nothing_runs()


@pytest.mark.parametrize("kind", _WAITS)
async def test_an_expensive_node_that_has_waited_may_be_cancelled_before_a_thread_has_it(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Who cancels keeps the modes: what is closed in anomaly mode puts back those of the pass."""
    ran: list[bool] = []
    log: list[str] = []
    sent: list[Any] = []
    thread_segments = ag.engine().thread_segments
    send = thread_segments.send
    monkeypatch.setattr(thread_segments, "send", lambda *to: sent.append(to) if log else send(*to))
    x, y = _waits_first(kind, ran, log)
    modes = current()
    with ag.autograd.set_detect_anomaly(True):
        future = y.sum().backward()
    await until(lambda: sent)
    future.cancel()
    assert current() is modes
    with pytest.raises(asyncio.CancelledError):
        await future
    assert x.grad is None
    assert ran == ([False] if kind == "posthook" else [])
    await assert_nothing_runs()


async def test_who_cancels_a_pass_beyond_its_limit_of_coroutines_keeps_the_modes() -> None:
    """What never began is closed where the pass is cancelled."""
    ag.engine().limit(coroutine_nodes=1)
    waiting = [_waits_first("unpack", [], [])[1] for _ in range(3)]
    for y in waiting:
        y.grad_fn.cost = CHEAP
    loss = sum(waiting).sum()
    modes = current()
    with ag.autograd.set_detect_anomaly(True):
        future = loss.backward()
    await until(lambda: future._task.suspended)
    future.cancel()
    assert current() is modes
    with pytest.raises(asyncio.CancelledError):
        await future
    await assert_nothing_runs()


async def test_a_report_that_a_thread_did_not_see_any_more_is_read_when_the_pass_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread has ended because all that is left waits for that report."""
    loop = asyncio.get_running_loop()
    no_node_left = asyncio.Event()
    reported = threading.Event()
    join = Helpers.join

    def joins(self: Helpers) -> bool:
        found = join(self)
        loop.call_soon_threadsafe(no_node_left.set)
        reported.wait(30)
        return found

    async def waits() -> None:
        await no_node_left.wait()

    monkeypatch.setattr(Helpers, "join", joins)
    x = leaf()
    old = calls(x, lambda: None, HEAVY)
    young = calls(x, waits)
    future = (old + young).sum().backward()
    await until(lambda: future._task.inbox)
    reported.set()
    await until(lambda: not ag.engine().thread_segments.tasks)
    await settle()
    assert future.done()
    assert x.grad.tolist() == [2.0] * 3
    await future
