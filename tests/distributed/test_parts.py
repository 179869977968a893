"""Parts of a model on workers: the same gradients as in one process, and nothing left behind."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import math
import pickle
import random
import sys
import threading
import weakref
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from deterministic import Engine, world_of
from hypothesis import given, settings
from hypothesis import strategies as st
from models import (
    Affine,
    Both,
    Failing,
    Held,
    Kept,
    Mixed,
    Outer,
    Settings,
    fails_on_rank_1,
    freeze,
    gives_back,
    gradients,
    identity,
    no_module,
    refuses,
    second,
)

import asyncgrad as ag
from asyncgrad import distributed as dist
from asyncgrad.distributed.errors import sendable
from asyncgrad.distributed.lifetimes import Lifetimes
from asyncgrad.distributed.messages import Message
from asyncgrad.errors import GraphFreedError, NestingError, PendingBackwardError

if TYPE_CHECKING:
    from pathlib import Path


def leaf(*values: float) -> ag.Tensor:
    return ag.tensor(np.array(values or (0.1, -0.2, 0.3)), requires_grad=True)


#: What a host counts that holds one part.
ONE_PART = dict.fromkeys(("calls", "passes", "optimizers", "runs", "working"), 0) | {"parts": 1}


def kept(statistics: list[Any]) -> list[int]:
    """What hosts keep beside parts, in numbers."""
    return [sum(v for k, v in one.items() if k != "parts") for one in statistics]


@pytest.mark.asyncio
async def test_a_part_is_a_node_of_the_callers_graph() -> None:
    engine = Engine(2)
    async with world_of(engine) as world:
        part = await world.remote(1, Affine, 3.0)
        assert (part.rank, world.size) == (1, 2)
        x, here = leaf(), Affine(3.0)
        y = leaf(*x.tolist())
        loss = ((await part(x * 2)) * 5).sum()
        expected = (here(y * 2) * 5).sum()
        assert loss.item() == expected.item()
        await loss.backward()
        await expected.backward()
        assert x.grad.tolist() == y.grad.tolist()
        assert await part.apply(gradients) == gradients(here)
        with pytest.raises(AttributeError, match="no 'sum': await it for its result"):
            part(x).sum()
        for transform in (ag.func.grad, ag.func.vmap):
            with pytest.raises(RuntimeError, match=r"call a part on a worker .* transformed"):
                await transform(part)(x)
        with ag.autograd.forward_ad.dual_level():
            with_tangent = ag.autograd.forward_ad.make_dual(x.detach(), ag.ones_like(x))
            with pytest.raises(RuntimeError, match="called with a tangent"):
                await part(with_tangent)
        for _ in range(10):
            # The worker is told to drop what it has computed.
            await asyncio.sleep(0)
        with pytest.raises(AttributeError, match=r"no 'parameters' here: `await part\.apply"):
            part.parameters()
        assert kept(await world.statistics()) == [0, 0]


def low_rank(**options: int) -> Any:
    return lambda: options


async def given_options(**options: int) -> Any:
    return options


@pytest.mark.asyncio
async def test_a_factory_and_the_function_of_a_run_take_any_keyword() -> None:
    """Also those by which the methods call their own arguments: adapters have a `rank`."""
    options = {"rank": 8, "factory": 1, "function": 2}
    async with world_of(Engine(1)) as world:
        part = await world.remote(0, low_rank, **options)
        assert await part() == options
        assert await world.run(given_options, **options) == [options]


@pytest.mark.asyncio
async def test_a_commit_does_not_wait_for_other_messages() -> None:
    """A worker that does not confirm it in time is lost, and many passes may be on their way."""
    engine = Engine(1)
    committed = asyncio.Event()
    async with world_of(engine) as world:
        part = await world.remote(0, Affine)
        loss = (await part(leaf())).sum()
        holding: list[Any] = []

        async def hold(gate: asyncio.Lock) -> None:
            async with gate:
                await asyncio.wait_for(committed.wait(), 10)

        def crowd(rank: int, message: Message) -> None:
            if message.method == "prepare":
                holding.append(asyncio.create_task(hold(world._site._gate)))
            elif message.method == "commit":
                committed.set()

        engine.on_message = crowd
        await loss.backward()
        await asyncio.gather(*holding)
    assert holding


@pytest.mark.asyncio
async def test_a_change_in_place_before_the_await_of_a_call_counts() -> None:
    """For the values and the gradients, and also if the call was passed on."""
    async with world_of(Engine(2)) as world:
        parts = [await world.remote(rank, Affine) for rank in range(2)]
        for passed_on in (False, True):
            x, y, own = leaf(), leaf(), Affine()
            given, expected = x * 2, (y * 2).mul_(3)
            call = parts[1](parts[0](given)) if passed_on else parts[0](given)
            given.mul_(3)
            found, expected = await call, own(own(expected)) if passed_on else own(expected)
            assert found.tolist() == expected.tolist()
            await found.sum().backward()
            await expected.sum().backward()
            assert x.grad.tolist() == y.grad.tolist()


@pytest.mark.asyncio
async def test_all_of_an_optimizers_states_are_loaded_or_none() -> None:
    """A state that does not fit is found before any is loaded, and a cancellation ends nothing."""
    engine = Engine(2)
    async with world_of(engine) as world:
        parts = [await world.remote(rank, Affine) for rank in range(2)]
        optimizer = await world.optimizer(ag.optim.Adam, [*parts, Affine()], lr=0.5)
        state = await optimizer.state_dict()
        states = [state["own"], *state["workers"].values()]
        for one in states:
            one["param_groups"][0]["lr"] = 0.25
        for one in states:
            group, one["param_groups"] = one["param_groups"], []
            with pytest.raises(ValueError, match="different number of parameter groups"):
                await optimizer.load_state_dict(state)
            assert await optimizer.apply(rates) == [[0.5]] * 3
            one["param_groups"] = group
        loading = asyncio.ensure_future(optimizer.load_state_dict(state))

        def cancel(rank: int, message: Message) -> None:
            if message.method == "optimize" and message.args[1] == "load_state_dict":
                loading.cancel()

        engine.on_message = cancel
        with pytest.raises(asyncio.CancelledError):
            await loading
        assert await optimizer.apply(rates) == [[0.25]] * 3


#: What code that is given no world finds, on workers in this process, too.
_found: dict[str, Any] = {}


async def uses(optimizer: Any, name: str, on_worker: bool) -> None:
    """Use a method of the optimizer of parts whose `apply` calls this."""
    if on_worker or optimizer.param_groups[0]["lr"] == 0.25:
        method = getattr(_found["optimizer"], name)
        args = {"apply": [rates], "load_state_dict": [{}], "clip_grad_norm_": [1.0]}
        await asyncio.gather(method(*args.get(name, [])))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "name", ["step_async", "zero_grad", "apply", "clip_grad_norm_", "state_dict", "load_state_dict"]
)
async def test_an_optimizer_that_is_used_within_its_own_apply_raises(name: str) -> None:
    """It would wait for itself."""
    async with world_of(Engine(1)) as world:
        part = await world.remote(0, Affine)
        optimizer = await world.optimizer(ag.optim.SGD, [part, Affine()], lr=0.5)
        optimizer._own.param_groups[0]["lr"] = 0.25
        _found["optimizer"] = optimizer
        with pytest.raises(RuntimeError, match="within the function that its own apply"):
            await optimizer.apply(uses, name, False)
        with pytest.raises(RuntimeError, match="used by code that runs on its worker 0") as caught:
            await optimizer.apply(uses, name, True)
        assert "on worker 0, during optimize" in caught.value.__notes__
        # Another optimizer may be used, and so may this one by tasks that outlive the call.
        _found["optimizer"] = await world.optimizer(ag.optim.SGD, [part], lr=0.5)
        later: list[asyncio.Task[Any]] = []

        async def begins(own: Any) -> None:
            await _found["optimizer"].step_async()
            later.append(asyncio.create_task(goes_on()))

        async def goes_on() -> None:
            await ended.wait()
            await own.step_async()

        own, ended = await world.optimizer(ag.optim.SGD, [Affine()], lr=0.5), asyncio.Event()
        await own.apply(begins)
        ended.set()
        await later[0]


class Recursive(ag.nn.Module):
    """Calls itself, with no end."""

    async def forward(self, x: Any) -> Any:
        return await self.parts[0](x)


def takes(module: Any, *parts: Any) -> None:
    module.parts = parts


@pytest.mark.asyncio
async def test_a_part_that_calls_itself_for_ever_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world_of(Engine(1)) as world:
        part = await world.remote(0, Recursive)
        await part.apply(takes, part)
        monkeypatch.setattr(sys, "getrecursionlimit", lambda: 20)
        with pytest.raises(RecursionError, match="more than 20 deep"):
            await part(leaf())


async def uses_the_world() -> Any:
    return await _found["world"].run(uses_the_world)


@pytest.mark.asyncio
async def test_a_world_can_not_be_used_by_code_on_its_own_workers() -> None:
    """In one process such code could find it, and its caller might wait for that code."""
    async with world_of(Engine(1)) as world, world_of(Engine(1)) as other:
        _found["world"] = world
        with pytest.raises(RuntimeError, match="used by code that runs on its worker 0"):
            await world.run(uses_the_world)
        with pytest.raises(RuntimeError, match="used by code that runs on its worker 0"):
            await other.run(uses_the_world)


@pytest.mark.asyncio
async def test_what_is_passed_on_goes_from_worker_to_worker() -> None:
    """No activation and no gradient between them passes through the caller."""
    engine = Engine(2)
    async with world_of(engine) as world:
        first, second = await world.remote(0, Affine, 3.0), await world.remote(1, Affine, 0.5)
        x = leaf()
        call = first(x)
        loss = (await second(call)).sum()
        await loss.backward()
        sent = [(sender, method, rank) for sender, method, rank in engine.log if "o" in method]
        assert (1, "hand_over", 0) in sent
        assert (1, "deposit", 0) in sent
        assert not [method for sender, method, _ in engine.log if method == "fetch"]
        a, b, y = Affine(3.0), Affine(0.5), leaf()
        await b(a(y)).sum().backward()
        assert x.grad.tolist() == y.grad.tolist()
        assert [await first.apply(gradients), await second.apply(gradients)] == [
            gradients(a), gradients(b)
        ]  # fmt: skip


@pytest.mark.asyncio
async def test_a_call_can_be_awaited_and_passed_on() -> None:
    async with world_of(Engine(2)) as world:
        first, second = await world.remote(0, Affine, 3.0), await world.remote(1, Affine, 0.5)
        x, y = leaf(), leaf()
        call = first(x)
        z = await second(call)
        await ((await call) * 2 + z + await second(call)).sum().backward()
        a, b = Affine(3.0), Affine(0.5)
        h = a(y)
        await (h * 2 + b(h) + b(h)).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-15)
        assert await second.apply(gradients) == gradients(b)


@pytest.mark.asyncio
async def test_a_part_calls_parts_on_other_workers_and_on_its_own() -> None:
    for rank in (0, 1):
        async with world_of(Engine(2)) as world:
            inner = await world.remote(rank, Affine, 3.0)
            outer = await world.remote(0, Outer, inner)
            x, y, here = leaf(), leaf(), Affine(3.0)
            own = Affine(0.5)
            await (await outer(x)).sum().backward()
            await here(here(own(y))).sum().backward()
            assert x.grad.tolist() == y.grad.tolist()
            assert await inner.apply(gradients) == gradients(here)
            assert await outer.apply(gradients) == gradients(own)
            await asyncio.sleep(0)
            gc.collect()
            assert kept(await world.statistics()) == [0, 0]


@pytest.mark.asyncio
async def test_parts_called_at_the_same_time_have_the_order_of_their_calls() -> None:
    """Whichever answers first, gradients are summed as if one had followed the other."""
    firsts, seconds = [Affine(0.3 + i) for i in range(6)], [Both(0.9 - i) for i in range(6)]
    x, y = leaf(), leaf(1.0, 2.0, 3.0)
    await sum(b(a(x), y).sum() for a, b in zip(firsts, seconds, strict=True)).backward()
    for seed in range(4):
        rng = random.Random(seed)
        async with world_of(Engine(3, partial(rng.randint, 0))) as world:
            first = [await world.remote(i % 3, Affine, 0.3 + i) for i in range(6)]
            second = [await world.remote(i % 2, Both, 0.9 - i) for i in range(6)]
            u, v = leaf(), leaf(1.0, 2.0, 3.0)
            calls = [b(a(u), v) for a, b in zip(first, second, strict=True)]
            results = await asyncio.gather(*map(_awaited, calls))
            await sum(result.sum() for result in results).backward()
            assert (u.grad.tolist(), v.grad.tolist()) == (x.grad.tolist(), y.grad.tolist())


@pytest.mark.asyncio
async def test_a_tensor_changed_before_its_call_is_sent_has_the_gradient_of_what_is_sent() -> None:
    async with world_of(Engine(1)) as world:
        part, here = await world.remote(0, Affine), Affine()
        x, y = leaf(), leaf()
        changed = x * 1
        call = part(changed)
        changed.mul_(3)
        await (await call).sum().backward()
        await here(y * 3).sum().backward()
        assert x.grad.tolist() == y.grad.tolist()


class Impatient(ag.nn.Module):
    """Gives up a part that takes too long."""

    def __init__(self, slow: Any) -> None:
        super().__init__()
        self.slow = slow

    async def forward(self, x: Any) -> Any:
        try:
            async with asyncio.timeout(None) as limit:
                _limits.append(limit)
                return await self.slow(x)
        except TimeoutError:
            return x * 2


#: The time limit of a part that waits for another; it passes when that begins.
_limits: list[asyncio.Timeout] = []


class Endless(ag.nn.Module):
    async def forward(self, x: Any) -> Any:
        _limits.pop().reschedule(0)
        await asyncio.Event().wait()


@pytest.mark.asyncio
@pytest.mark.parametrize("rank", [0, 1])
async def test_a_part_keeps_another_and_may_give_it_up_on_any_worker(rank: int) -> None:
    """Nobody but the part refers to the other part."""
    async with world_of(Engine(2)) as world:
        part = await world.remote(rank, Impatient, await world.remote(0, Endless))
        assert (await part(ag.ones(2))).tolist() == [2.0, 2.0]
        for _ in range(100):
            await asyncio.sleep(0)
        assert all(one["working"] == 0 for one in await world.statistics())


class Doubling(ag.nn.Module):
    """Changes its argument in place, as `ReLU(inplace=True)` does."""

    def forward(self, x: Any) -> Any:
        return ag.tanh(x.mul_(2).relu_())


class Keeping(ag.nn.Module):
    """Goes on with what it has given to another part."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    async def forward(self, x: Any) -> Any:
        y = x * 3
        return await self.inner(y) * y


@pytest.mark.asyncio
@pytest.mark.parametrize("rank", [0, 1])
async def test_a_part_may_change_in_place_what_it_is_given(rank: int) -> None:
    """As in one process, but for other uses of the same values, which it does not change."""
    async with world_of(Engine(2)) as world:
        part = await world.remote(rank, Doubling)
        first = await world.remote(0, Affine)
        keeping = await world.remote(0, Keeping, part)
        x, y = leaf(), leaf()
        call = first(x)
        sent = x * 1
        found = await part(call) + await part(sent) + await call + await keeping(x)
        found = found + sent
        await found.sum().backward()
        here, local = Affine(), Doubling()
        value = here(y)
        own = local(value.clone()) + local(y * 1) + value + local(y * 3) * (y * 3) + y * 1
        await own.sum().backward()
        assert found.tolist() == own.tolist()
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-15)
        for one, other in zip(await first.apply(gradients), gradients(here), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-15)


class Pair(ag.nn.Module):
    """Gives each argument back, a tensor doubled."""

    def forward(self, *given: Any) -> Any:
        return [x * 2 if isinstance(x, ag.Tensor) else [one * 2 for one in x] for x in given]


class RankOf(ag.nn.Module):
    """Asks for its rank in a run."""

    def forward(self, given: Any) -> int:
        return dist.get_rank()


class Sending(ag.nn.Module):
    """Gives another part what can't be sent."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    async def forward(self, x: Any) -> list[str]:
        return [
            await outcome(self.inner, one)
            for one in (threading.Lock(), Settings(x.requires_grad_()))
        ]


async def outcome(part: Any, *args: Any) -> str:
    try:
        await part(*args)
    except (TypeError, RuntimeError) as error:
        return type(error).__name__
    return "none"


class Changing(ag.nn.Module):
    """Changes what it is given, and gives its own buffer and what its graph has kept."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = ag.nn.Parameter(ag.zeros(2))
        self.register_buffer("held", ag.zeros(2))

    def forward(self, x: Any, array: Any, values: list[Any]) -> Any:
        x.mul_(2)
        array[...] = 7
        values.append({"changed"})
        return ag.exp(x + self.weight), self.held


class Using(ag.nn.Module):
    """Looks at what it has given to another part, and changes what that has given."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    async def forward(self, x: Any) -> Any:
        array, own = np.ones(2), ag.ones(2)
        result, held = await self.inner(own, array, [array])
        given = own.tolist(), array.tolist()
        state = await self.inner.apply(ag.nn.Module.state_dict)
        for one in (held, *state.values()):
            one.add_(1)
        return given, result.mul_(3) * x, await self.inner.apply(ag.nn.Module.state_dict)


@pytest.mark.asyncio
@pytest.mark.parametrize("rank", [0, 1])
async def test_parts_on_one_worker_share_no_memory(rank: int) -> None:
    """Neither sees what the other changes, as if they were on two."""
    async with world_of(Engine(2)) as world:
        inner = await world.remote(rank, Changing)
        part = await world.remote(0, Using, inner)
        given, result, state = await part(ag.ones(2))
        assert given == ([1.0, 1.0], [1.0, 1.0])
        assert [one.tolist() for one in state.values()] == [[0.0, 0.0], [0.0, 0.0]]
        await result.sum().backward()
        [gradient] = await inner.apply(gradients)
        np.testing.assert_allclose(gradient, 3 * np.exp([2.0, 2.0]), rtol=1e-6)


@pytest.mark.asyncio
async def test_a_call_on_the_own_worker_is_as_one_on_another() -> None:
    """It is refused what can't be sent, and is no part of a run of its caller's."""
    async with world_of(Engine(2)) as world:
        for rank in (0, 1):
            inner = await world.remote(rank, RankOf)
            part = await world.remote(0, Sending, inner)
            assert await part(ag.ones(2)) == ["TypeError", "AutogradError"]
            assert await world.run(outcome, inner, None) == ["AutogradError"] * 2


@pytest.mark.asyncio
async def test_an_input_that_a_pass_does_not_reach_gets_no_gradient() -> None:
    """A gradient of zeros would have an optimizer with momentum or decay change it."""
    async with world_of(Engine(2)) as world:
        first, second = [await world.remote(rank, Pair) for rank in range(2)]
        x, y, z = leaf(), leaf(), leaf()
        await (await first(x, y))[0].sum().backward()
        assert (x.grad is None, y.grad) == (False, None)
        await (await second(first(z, y), y))[0][0].sum().backward()
        assert (z.grad is None, y.grad) == (False, None)


class Heavy(ag.nn.Module):
    """Its backward runs in threads; it fails there, if it is asked to."""

    def __init__(self, fails: bool) -> None:
        super().__init__()
        self.fails = fails
        self.weights = ag.nn.ParameterList([ag.nn.Parameter(ag.eye(256)) for _ in range(4)])

    def fail(self, gradient: Any) -> None:
        if self.fails:
            raise ValueError("planned")

    def forward(self, x: Any) -> Any:
        for place, weight in enumerate(self.weights):
            x = ag.tanh(x @ weight)
            if place == 1:
                x.register_hook(self.fail)
        return x


@pytest.mark.asyncio
@pytest.mark.parametrize("who", [None, 0, 1, 2])
async def test_a_pass_that_runs_in_threads_fails_everywhere_or_nowhere(who: int | None) -> None:
    """On one of two workers, or at the caller."""
    async with world_of(Engine(2)) as world:
        parts = [await world.remote(rank, Heavy, rank == who) for rank in range(2)]
        head, x = Heavy(who == 2), ag.ones(256, 256).requires_grad_()
        loss = (await parts[1](parts[0](head(x)))).sum()
        if who is None:
            await loss.backward()
        else:
            with pytest.raises(ValueError, match="planned"):
                await loss.backward()
        have = [any(p.grad is not None for p in head.parameters()), x.grad is not None]
        have += [await part.apply(gradients) != [None] * 4 for part in parts]
        assert have == [who is None] * 4
        assert [one["passes"] for one in await world.statistics()] == [0, 0]


class Root(ag.nn.Module):
    """Its parameter's gradient is NaN, and that of what it is given is not."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = ag.nn.Parameter(ag.zeros(3, dtype=ag.float64))

    def forward(self, x: Any) -> Any:
        return x + ag.sqrt(self.weight) * 0


class Table(ag.nn.Module):
    """Gives its weight, of which others use rows."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = ag.nn.Parameter(ag.ones(4, 2, dtype=ag.float64))

    def forward(self) -> Any:
        return self.weight * 3


def rows_of(table: Any) -> Any:
    return ag.nn.functional.embedding(ag.tensor([1, 3, 1]), table, sparse=True)


def make_rows_of() -> Any:
    return rows_of


def dense_gradient(module: Any) -> Any:
    return module.weight.grad.to_dense().tolist()


@pytest.mark.asyncio
async def test_row_sparse_gradients_go_from_worker_to_worker() -> None:
    async with world_of(Engine(2)) as world:
        part, other = await world.remote(0, Table), await world.remote(1, make_rows_of)
        own, here = Table(), Table()
        y = rows_of(await part()) + await other(part()) + await other(own.weight)
        await y.square().sum().backward()
        await (rows_of(here()) + rows_of(here()) + rows_of(here.weight)).square().sum().backward()
        total = ag.tensor(dense_gradient(own)) + ag.tensor(await part.apply(dense_gradient))
        assert total.tolist() == here.weight.grad.to_dense().tolist()


@pytest.mark.filterwarnings("ignore:Error detected in")
@pytest.mark.asyncio
@pytest.mark.parametrize("passed_on", [False, True])
async def test_anomaly_mode_of_the_caller_holds_on_workers(passed_on: bool) -> None:
    async with world_of(Engine(2)) as world:
        first, last = await world.remote(0, Root), await world.remote(1, Affine)
        x = leaf()
        with ag.autograd.set_detect_anomaly(True):
            call = first(x)
            loss = (await (last(call) if passed_on else call)).sum()
            words = "Function 'SqrtBackward0' returned nan values"
            with pytest.raises(RuntimeError, match=words) as caught:
                await loss.backward()
        assert any("on worker 0, during backward" in note for note in caught.value.__notes__)
        assert x.grad is None
        assert await last.apply(gradients) == [None, None]
        await (await first(x)).sum().backward()
        assert x.grad is not None


@pytest.mark.asyncio
async def test_structures_plain_data_and_results_without_gradient() -> None:
    async with world_of(Engine(1)) as world:
        part = await world.remote(0, Mixed)
        x = leaf()
        found = await part({"x": x, "y": ag.ones(3, dtype=ag.float64)}, times=4)
        assert found["rank"][1] == "plain"
        assert not found["rank"][0].requires_grad
        await found["sum"].sum().backward()
        assert x.grad.tolist() == [4.0] * 3


@pytest.mark.asyncio
async def test_grad_and_no_grad_leave_a_parts_parameters_alone() -> None:
    async with world_of(Engine(1)) as world:
        part = await world.remote(0, Affine)
        x = leaf()
        (found,) = await ag.grad((await part(x)).sum(), x)
        assert found.shape == (3,)
        with ag.no_grad():
            y = await part(x)
        assert not y.requires_grad
        assert await part.apply(gradients) == [None, None]
        assert kept(await world.statistics()) == [0]


@pytest.mark.asyncio
@pytest.mark.parametrize("passed_on", [False, True])
async def test_a_call_records_as_it_is_made_and_not_as_it_is_awaited(passed_on: bool) -> None:
    """The gradients of a part that was called without them would train it in silence."""
    async with world_of(Engine(2)) as world:
        first, second = await world.remote(0, Affine), await world.remote(1, Affine)
        with ag.no_grad():
            frozen = first(leaf())
        call = second(frozen if passed_on else await frozen)
        with ag.no_grad():
            loss = await call
        await loss.sum().backward()
        assert await first.apply(gradients) == [None, None]
        assert None not in await second.apply(gradients)
        with ag.no_grad():
            frozen = first(leaf())
        await frozen.sent()
        assert not (await frozen).requires_grad


@pytest.mark.asyncio
@pytest.mark.parametrize("rank", [0, 1])
async def test_a_pass_sends_nothing_to_parts_that_it_does_not_reach(rank: int) -> None:
    """Because they are frozen, or because other gradients were asked for."""
    async with world_of(Engine(2)) as world:
        first, second = await world.remote(0, Affine, 3.0), await world.remote(rank, Both)
        here, there = Affine(3.0), Both()
        x, y, u, v = leaf(), leaf(1.0, 2.0, 3.0), leaf(), leaf(1.0, 2.0, 3.0)
        await (await second(first(x), y)).sum().backward(inputs=[y])
        await there(here(u), v).sum().backward(inputs=[v])
        assert (x.grad, y.grad.tolist()) == (None, v.grad.tolist())
        (found,) = await ag.grad((await second(first(x), y)).sum(), y)
        assert found.tolist() == v.grad.tolist()
        assert await second.apply(gradients) == [None, None]
        await first.apply(freeze)
        await (await second(first(x.detach()), y)).sum().backward()
        freeze(here)
        await there(here(u.detach()), v).sum().backward()
        assert y.grad.tolist() == v.grad.tolist()
        assert await second.apply(gradients) == gradients(there)
        while any(kept(await world.statistics())):
            gc.collect()


@pytest.mark.asyncio
async def test_results_and_values_within_a_part_can_retain_their_gradients() -> None:
    """They get them with all others: at the end of the pass, or of the context."""
    engine = Engine(1)
    async with world_of(engine) as world:
        part, here = await world.remote(0, Kept), Kept()
        for shared in (False, True):
            x, y = leaf(), leaf()
            result, expected = await part(x), here(y)
            for tensor in (result, expected):
                tensor.retain_grad()
            if shared:
                async with dist.autograd.context():
                    await (result * 2).sum().backward()
                    hidden = engine.part(part).hidden
                    assert (result.grad, hidden.grad) == (None, None)
            else:
                await (result * 2).sum().backward()
            await (expected * 2).sum().backward()
            assert (result.grad.tolist(), x.grad.tolist()) == ([2.0] * 3, y.grad.tolist())
            assert engine.part(part).hidden.grad.tolist() == here.hidden.grad.tolist()
            assert await part.apply(gradients) == gradients(here)


@pytest.mark.asyncio
async def test_a_retained_graph_runs_again_and_a_released_one_says_so() -> None:
    async with world_of(Engine(1)) as world:
        part = await world.remote(0, Affine)
        x = leaf()
        loss = (await part(x)).sum()
        await loss.backward(retain_graph=True)
        once = x.grad.tolist()
        await loss.backward()
        assert x.grad.tolist() == [2 * g for g in once]
        with pytest.raises(RuntimeError, match="specify retain_graph=True"):
            await loss.backward()
        assert x.grad.tolist() == [2 * g for g in once]
        with pytest.raises(RuntimeError, match="can't be recorded"):
            await (await part(x)).sum().backward(create_graph=True)


@pytest.mark.asyncio
async def test_a_retained_graph_keeps_no_gradients_of_passes_that_were_cancelled() -> None:
    async with world_of(Engine(1)) as world:
        part = await world.remote(0, Affine)
        call = part(leaf())
        await call.sent()
        y = await call
        seen: list[Any] = []
        y.register_hook(lambda gradient: seen.append(weakref.ref(gradient._array)))
        loss = y.sum()
        for turn in range(8):
            running = loss.backward(retain_graph=True)
            for _ in range(turn):
                await asyncio.sleep(0)
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            del running
        gc.collect()
        assert seen
        assert not any(ref() is not None for ref in seen)


@pytest.mark.asyncio
async def test_forwards_without_a_backward_leave_nothing_on_the_worker() -> None:
    async with world_of(Engine(2)) as world:
        first, second = await world.remote(0, Affine), await world.remote(1, Affine)
        x = leaf()
        for _ in range(30):
            await second(first(x))
        statistics = await world.statistics()
        while any(kept(statistics)):
            statistics = await world.statistics()
        assert [one["parts"] for one in statistics] == [1, 1]
        del first, second
        while any(one["parts"] for one in statistics):
            statistics = await world.statistics()


@pytest.mark.parametrize("late", [False, True])
def test_a_forward_that_is_given_up_is_ended_on_its_worker(run: Any, late: bool) -> None:
    """By a cancellation, or by the deadline of a request."""
    run(forward_given_up(late))


async def forward_given_up(late: bool) -> None:
    engine = Engine(1)
    async with world_of(engine) as world:
        started, ended = asyncio.Event(), asyncio.Event()

        async def slow(x: Any) -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        part = await world.remote(0, Affine)
        engine.hosts[0]._parts[part.number] = slow
        deadline = asyncio.get_running_loop().time() + 0.1 if late else None
        with ag.request(deadline=deadline):
            call = part(leaf())
        waiting = asyncio.create_task(_awaited(call))
        del call
        await started.wait()
        if not late:
            waiting.cancel()
        with pytest.raises(TimeoutError if late else asyncio.CancelledError):
            await waiting
        del waiting
        await ended.wait()
        while any(kept(await world.statistics())):
            pass


class Passes(ag.nn.Module):
    """Gives the call of another part, which it has not awaited."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = [inner]

    async def forward(self, x: Any) -> Any:
        return self.inner[0](x)


@pytest.mark.asyncio
async def test_a_part_may_give_the_call_of_another() -> None:
    x, y = leaf(), leaf()
    async with world_of(Engine(2)) as world:
        inner = await world.remote(1, Affine)
        outer = await world.remote(0, Passes, inner)
        await (await outer(x)).sum().backward()
        own = Affine()
        await own(y).sum().backward()
        assert await inner.apply(gradients) == gradients(own)
    assert x.grad.tolist() == y.grad.tolist()


@pytest.mark.asyncio
async def test_a_call_that_has_failed_is_not_made_again() -> None:
    async with world_of(Engine(1)) as world:
        call = (await world.remote(0, Affine))("no tensor")
        with pytest.raises(TypeError):
            await call
        with pytest.raises(RuntimeError, match="call it anew"):
            await call
        with pytest.raises(TypeError, match="3 is not callable"):
            await world.remote(0, 3)  # type: ignore[arg-type]


@pytest.mark.asyncio
async def test_a_cancelled_call_is_ended_on_its_worker() -> None:
    """Also if the word of it overtakes the call."""
    engine = Engine(1)
    async with world_of(engine) as world:
        part = await world.remote(0, Held)
        module = engine.part(part)
        waiting = asyncio.create_task(part.apply(Held.wait, None))
        while not module.begun:  # noqa: ASYNC110  nobody announces it
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        while not module.ended:  # noqa: ASYNC110  nobody announces it
            await asyncio.sleep(0)
        site = world._site
        await site.call(0, "give_up", -1, 10**6)
        late = Message(site.session, -1, 10**6, "statistics", (), {})
        assert not (await engine.hosts[0].take(late))[0]
        assert [one.get_name() for one in engine.hosts[0]._requests.values()] == ["watch"]


@pytest.mark.asyncio
@pytest.mark.parametrize("how", ["awaited", "sent", "passed on"])
async def test_a_call_that_several_await_is_cancelled_with_the_last_of_them(how: str) -> None:
    engine = Engine(2)
    async with world_of(engine) as world:
        part, other = await world.remote(0, Affine), await world.remote(1, Affine)
        for both in (False, True):
            begun, allowed = asyncio.Event(), asyncio.Event()

            async def wait(x: Any, begun: Any = begun, allowed: Any = allowed) -> Any:
                begun.set()
                await allowed.wait()
                return x * 2

            engine.hosts[0]._parts[part.number] = wait
            call = part(leaf())
            use = {
                "awaited": lambda c=call: _awaited(c),
                "sent": call.sent,
                "passed on": lambda c=call: _awaited(other(c)),
            }[how]
            tasks = [asyncio.create_task(use()) for _ in range(2)]
            await begun.wait()
            for task in tasks[: 1 + both]:
                task.cancel()
            await asyncio.wait(tasks[: 1 + both])
            allowed.set()
            await asyncio.wait(tasks)
            assert [task.cancelled() for task in tasks] == [True, both]
            del call, use, tasks, task
        while any(kept(await world.statistics())):
            gc.collect()


async def _awaited(call: Any) -> Any:
    return await call


@pytest.mark.asyncio
@pytest.mark.parametrize("turns", range(1, 4))
async def test_a_call_that_was_given_up_does_not_cancel_who_awaits_it_later(turns: int) -> None:
    engine = Engine(1)
    async with world_of(engine) as world:
        part = await world.remote(0, Affine)
        begun = asyncio.Event()

        async def wait(x: Any) -> Any:
            begun.set()
            await asyncio.Event().wait()

        engine.hosts[0]._parts[part.number] = wait
        call = part(leaf())
        first = asyncio.create_task(_awaited(call))
        await begun.wait()
        first.cancel()
        for _ in range(turns):
            await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match=r"was given up|was used again"):
            await call
        await asyncio.wait([first])
        assert first.cancelled()


@pytest.mark.asyncio
async def test_errors_keep_their_class_and_name_the_worker() -> None:
    async with world_of(Engine(2)) as world:
        with pytest.raises(ValueError, match="planned") as caught:
            await world.remote(1, refuses)
        assert "on worker 1, during remote" in caught.value.__notes__
        with pytest.raises(TypeError, match="made a int"):
            await world.remote(0, no_module)
        for rank in (2, -1):
            with pytest.raises(ValueError, match="the ranks are 0 to 1"):
                await world.remote(rank, Affine)
        with pytest.raises(ValueError, match="planned"):
            await (await world.remote(0, Failing, "forward"))(leaf())
        part = await world.remote(0, Failing, "backward")
        x = leaf()
        with pytest.raises(ValueError, match="planned") as caught:
            await (await part(x)).sum().backward()
        notes = "\n".join(caught.value.__notes__)
        assert "on worker 0, during backward" in notes
        assert "Mul" in notes
        assert (x.grad, await part.apply(gradients)) == (None, [None])
        wrong = await world.remote(1, Affine, 1.0, 4)
        with pytest.raises((ValueError, RuntimeError), match="shape"):
            await wrong(part(leaf()))
        assert (await world.statistics())[1]["parts"] == 1


def planned_after_another() -> None:
    try:
        raise KeyError("the cause")
    except KeyError as error:
        refuses_because(error)


def refuses_because(error: Exception) -> None:
    raise ValueError("planned") from error


class Asking(ag.nn.Module):
    """Has another worker refuse."""

    def __init__(self, other: Any) -> None:
        super().__init__()
        self.other = other

    async def forward(self, x: Any) -> Any:
        return await self.other(x)


@pytest.mark.asyncio
async def test_errors_bring_the_frames_of_users_code_with_those_of_their_causes() -> None:
    async with world_of(Engine(2)) as world:
        with pytest.raises(ValueError, match="planned") as caught:
            await world.remote(1, planned_after_another)
        (note,) = (one for one in caught.value.__notes__ if "traceback" in one)
        assert note.startswith("its traceback on worker 1:\n")
        places = [
            note.index(one) for one in ("the cause", "refuses_because(error)", "ValueError: ")
        ]
        assert places == sorted(places)
        assert "asyncgrad/distributed/inbox.py" not in note
        outer = await world.remote(1, Asking, await world.remote(0, Failing, "forward"))
        with pytest.raises(ValueError, match="planned") as caught:
            await outer(leaf())
        first, second = (one for one in caught.value.__notes__ if "traceback" in one)
        assert "on worker 0" in first
        assert 'raise ValueError("planned")' in first
        assert "on worker 1" in second
        assert "await self.other(x)" in second
        # Where no code of a user's has failed, there is nothing to show.
        with pytest.raises(TypeError, match="made a int") as plain:
            await world.remote(0, no_module)
        assert "traceback" not in "".join(plain.value.__notes__)


def with_what_can_not_be_pickled() -> Affine:
    module = Affine()
    module.extra = lambda: None
    return module


@pytest.mark.asyncio
async def test_a_module_that_a_function_gives_back_stays_on_its_worker() -> None:
    async with world_of(Engine(1)) as world:
        part = await world.remote(0, with_what_can_not_be_pickled)
        assert await part.apply(ag.nn.Module.eval) is part
        assert await part.apply(ag.nn.Module.train) is part


def with_a_lock(module: Any, *args: Any) -> Any:
    return {"given": [1, threading.Lock()]}


@pytest.mark.asyncio
async def test_what_can_not_be_pickled_is_named_with_the_call_that_sends_it() -> None:
    async with world_of(Engine(1)) as world:
        part = await world.remote(0, Affine)
        lock = threading.Lock()
        for coroutine in (
            part.apply(second, {"given": [1, lock]}),
            world.remote(0, Affine, lock),
            world.run(gives_back, lock),
            world.optimizer(ag.optim.SGD, [part], lr=lock),
        ):
            with pytest.raises(TypeError, match="a lock in its arguments can't be pickled"):
                await coroutine
        with pytest.raises(TypeError, match=r"remote: a function .*<lambda> in its arg"):
            await world.remote(0, lambda: Affine())
        with pytest.raises(TypeError, match="apply: a lock in its result can't be") as caught:
            await part.apply(with_a_lock)
        assert "on worker 0, during apply" in caught.value.__notes__
        with pytest.raises(ValueError, match="planned"):
            await part.apply(second, _Refuses())
        assert await part.apply(gradients) == [None, None]


class _Refuses:
    def __getstate__(self) -> Any:
        raise ValueError("planned")


class LostToo(dist.WorkerLostError):
    """A user's own."""


def loses(module: Any, kind: Any, rank: int) -> None:
    raise kind(rank, "planned", "planned")


@pytest.mark.asyncio
async def test_a_loss_that_users_code_has_made_up_loses_no_worker() -> None:
    async with world_of(Engine(2)) as world:
        part = await world.remote(0, Affine)
        for kind in (dist.WorkerLostError, LostToo):
            for rank in (0, 1, 9):
                with pytest.raises(kind):
                    await part.apply(loses, kind, rank)
        assert not world.lost


@pytest.mark.asyncio
async def test_without_dask_connect_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "asyncgrad.distributed.dask_engine", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'asyncgrad\[dask\]'"):
        await dist.connect(None).__aenter__()


def test_without_ray_its_engine_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'asyncgrad\[ray\]'"):
        dist.RayEngine(workers=1)


class Coded(Exception):
    """Can't be made from `args`."""

    def __init__(self, code: int, *, why: str) -> None:
        super().__init__(f"{code}: {why}")
        self.code = code


def raises_coded(module: Any) -> None:
    raise Coded(7, why="planned")


def raises_coded_in_group(module: Any) -> None:
    raise ExceptionGroup("several", [Coded(7, why="planned"), ValueError("planned")])


@pytest.mark.asyncio
async def test_errors_keep_their_class_whatever_its_constructor_takes() -> None:
    async with world_of(Engine(1)) as world:
        part = await world.remote(0, Affine)
        with pytest.raises(Coded, match="7: planned") as caught:
            await part.apply(raises_coded)
        with pytest.raises(ExceptionGroup) as group:
            await part.apply(raises_coded_in_group)
    assert caught.value.code == 7
    assert [str(error) for error in group.value.exceptions] == ["7: planned", "planned"]
    assert isinstance(group.value.exceptions[0], Coded)
    assert "on worker 0, during apply" in caught.value.__notes__


def test_errors_of_classes_that_cannot_be_imported_are_sent() -> None:
    class Local(Exception):
        pass

    error = Local("planned")
    error.add_note("a note")
    found = pickle.loads(pickle.dumps(sendable(error)))
    assert (type(found), found.args, found.__notes__) == (Local, ("planned",), ["a note"])


def test_errors_that_cannot_be_pickled_are_described() -> None:
    error = ValueError(threading.Lock())
    error.add_note("a note")
    found = sendable(error)
    assert "ValueError(<unlocked" in str(found)
    assert found.__notes__ == ["a note"]
    # It would close the coroutines of whoever awaits it.
    assert "GeneratorExit()" in str(sendable(GeneratorExit()))


@pytest.mark.parametrize(
    "error",
    [
        GraphFreedError("MulBackward0", "here"),
        NestingError(3),
        dist.WorkerLostError(1, "forward", "killed"),
    ],
)
def test_errors_that_make_their_message_are_sent_as_they_are(error: Exception) -> None:
    error.add_note("a note")
    found = pickle.loads(pickle.dumps(error))
    assert (type(found), str(found), found.__notes__) == (type(error), str(error), ["a note"])


@pytest.mark.asyncio
async def test_a_world_is_used_on_its_loop_until_its_end() -> None:
    async with world_of(Engine(1)) as world:
        part = await world.remote(0, Affine)
        loss = (await part(leaf())).sum()
        with pytest.raises(RuntimeError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, world.remote(0, Affine))
        with ag.blocking(), pytest.raises(RuntimeError):
            loss.backward()
        with pytest.raises(RuntimeError, match="another event loop"):
            await asyncio.to_thread(ag.sync.backward, (await part(leaf())).sum())
        loss = (await part(leaf())).sum()
    for use in (lambda: world.remote(0, Affine), loss.backward, lambda: part.apply(gradients)):
        with pytest.raises(RuntimeError, match="has been left"):
            await use()
    with pytest.raises(RuntimeError, match="has been left"):
        part(leaf())


@pytest.mark.asyncio
async def test_a_call_that_is_given_itself_raises() -> None:
    """It would wait for itself."""
    async with world_of(Engine(1)) as world, asyncio.timeout(60):
        part = await world.remote(0, Affine)
        arguments: list[Any] = [leaf()]
        arguments[0] = call = part(arguments)
        with pytest.raises(RuntimeError, match="was given itself"):
            await call


async def given_a_part(part: Any) -> None:
    await part(leaf())


@pytest.mark.asyncio
async def test_parts_of_two_worlds_do_not_mix() -> None:
    async with world_of(Engine(1)) as world, world_of(Engine(1)) as other:
        part, alien = await world.remote(0, Affine), await other.remote(0, Affine)
        with pytest.raises(RuntimeError, match="another world"):
            await part(alien(leaf()))
        with pytest.raises(RuntimeError, match=r"remote: .* of another world.* make the part in"):
            await world.remote(0, Outer, [alien])
        with pytest.raises(RuntimeError, match=r"run: .* of another world"):
            await world.run(given_a_part, part=alien)
        with pytest.raises(RuntimeError, match=r"apply: .* of another world"):
            await part.apply(print, alien)
        # Within another object it is noticed where it is used.
        outer = await world.remote(0, partial(Outer, alien))
        with pytest.raises(RuntimeError, match="another world"):
            await outer(leaf())
        with pytest.raises(RuntimeError, match="another world"):
            await world.optimizer(ag.optim.SGD, [alien], lr=1.0)
        loss = (await part(leaf())).sum() + (await alien(leaf())).sum()
        await loss.backward()
        assert (await part.apply(gradients)) == (await alien.apply(gradients))

        async def of_both() -> None:
            async with dist.autograd.context():
                await (await part(leaf())).sum().backward()
                await (await alien(leaf())).sum().backward()

        with pytest.raises(RuntimeError, match="one world"):
            await of_both()


@pytest.mark.asyncio
async def test_only_parts_can_be_sent_of_what_a_world_has_made() -> None:
    async with world_of(Engine(1)) as world:
        part = await world.remote(0, Affine)
        optimizer = await world.optimizer(ag.optim.SGD, [part], lr=1.0)
        for given in (world, optimizer, await world.replicate(Affine)):
            with pytest.raises(RuntimeError, match="can't be copied or sent"):
                await part.apply(second, given)
            with pytest.raises(RuntimeError, match="can't be copied or sent"):
                copy.deepcopy(given)


class Absent:
    """Its worker lacks what it is made by."""

    def __reduce__(self) -> Any:
        return __import__, ("absent",)


def total(model: Any, x: Any) -> Any:
    return model(x).sum()


def mean(model: Any, x: Any) -> Any:
    return model(x).mean()


@pytest.mark.asyncio
async def test_a_first_mistake_is_told_its_remedy() -> None:
    async with world_of(Engine(1)) as world:
        part, module = await world.remote(0, Affine), Affine()
        model = await world.replicate(Affine)
        sgd = ag.optim.SGD
        optimizer = await world.optimizer(sgd, [part], lr=0.1)
        for wrong, words in (
            (lambda: world.remote(0, module), "remote: .*give its class or a function"),
            (lambda: world.remote(Affine, 0), "that comes first, and then a factory"),
            (lambda: world.replicate(module), "replicate: .*give its class or a function"),
            (lambda: world.optimizer(sgd, part, lr=0.1), r"got RemoteModule: .* `\[part, head\]`"),
            (lambda: world.optimizer(sgd, [model], lr=0.1), "of a replicated model its `parts`"),
            (lambda: world.optimizer(sgd, module.parameters()), "no parameters"),
            (
                lambda: world.optimizer(sgd(module.parameters(), lr=0.1), [part]),
                "an optimizer's class",
            ),
            (lambda: world.run(Affine), "give the function itself"),
            (lambda: model(leaf()), "calls a copy"),
            (lambda: ag.optim.lr_scheduler.StepLR(optimizer, 1), r"await optimizer\.apply"),
            (lambda: ag.nn.Sequential(module, part), "await its call there if it is a part"),
        ):
            with pytest.raises(TypeError, match=words):
                await wrong()
        for missing, words in (
            (lambda: model.parameters, r"`model\.parts` are its copies"),
            (
                lambda: ag.nn.parallel.DistributedDataParallel,
                r"in asyncgrad\.distributed\.nn\.parallel",
            ),
        ):
            with pytest.raises(AttributeError, match=words):
                missing()
        with pytest.raises(ImportError, match="absent") as caught:
            await world.remote(0, Affine, Absent())
        assert "install it on all workers" in caught.value.__notes__[0]
        loss = (await part(leaf())).sum()
        for late in (
            lambda: model.forward_backward(mean, [(leaf().detach(),)], deadline=-30),
            lambda: loss.backward(deadline=-30),
        ):
            words = r"deadline -30.* of the loop's clock, .* deadline=loop\.time\(\) \+ 30"
            with pytest.raises(TimeoutError, match=words):
                await late()


@pytest.mark.asyncio
@pytest.mark.parametrize("turns", range(12))
async def test_what_was_cancelled_while_it_was_made_is_not_kept(turns: int) -> None:
    async with world_of(Engine(1)) as world:
        part = await world.remote(0, Affine)
        for making in (
            world.remote(0, Affine),
            world.optimizer(ag.optim.SGD, [part], lr=1.0),
            world.replicate(Affine),
        ):
            task = asyncio.create_task(making)
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            del task, making
        while await world.statistics() != [ONE_PART]:
            gc.collect()


@pytest.mark.asyncio
async def test_what_failed_on_one_worker_is_not_kept_on_the_others() -> None:
    async with world_of(Engine(2)) as world:
        part, bare = await world.remote(0, Affine), await world.remote(1, method_of)
        with pytest.raises(TypeError, match="no parameters"):
            await world.optimizer(ag.optim.SGD, [part, bare], lr=1.0)
        with pytest.raises(ValueError, match="empty parameter list"):
            await world.optimizer(ag.optim.SGD, [], lr=1.0)
        with pytest.raises(ValueError, match="planned"):
            await world.replicate(fails_on_rank_1)
        model = await world.replicate(Affine)
        del model
        while await world.statistics() != [ONE_PART, ONE_PART]:
            gc.collect()


@pytest.mark.asyncio
async def test_a_release_that_fails_leaves_no_coroutine_behind(monkeypatch: Any) -> None:
    """One that is never awaited is an error of the test in which it is collected."""

    async def fail(lives: Lifetimes, key: Any) -> None:
        raise ValueError(key)

    async with world_of(Engine(1)) as world:
        with monkeypatch.context() as patched:
            patched.setattr(Lifetimes, "stop", fail)
            with pytest.raises(ValueError, match="99"):
                await world._site.call(0, "release", [99, 98])
        gc.collect()


@pytest.mark.asyncio
async def test_what_comes_after_its_release_is_refused() -> None:
    async with world_of(Engine(1)) as world:
        site = world._site
        await site.call(0, "release", [99, 98])
        with pytest.raises(dist.PassEndedError):
            await site.call(0, "remote", 99, Affine, (), {})
        with pytest.raises(dist.PassEndedError):
            await site.call(0, "optimizer", 98, ag.optim.SGD, [], {})


@pytest.mark.asyncio
async def test_a_tensor_that_requires_grad_is_no_plain_data() -> None:
    async with world_of(Engine(1)) as world:
        part, weight = await world.remote(0, Affine), leaf()
        for use in (
            lambda: world.remote(0, Affine, weight),
            lambda: part.apply(identity, weight),
            lambda: part(Settings(weight)),
            lambda: part({"given": {weight}}),
            lambda: part({"given": deque([weight])}),
            lambda: world.run(gives_back, [Settings({"x": weight})]),
        ):
            with pytest.raises(RuntimeError, match="requires grad"):
                await use()
        with pytest.raises(RuntimeError, match="call was sent as plain data"):
            await part.apply(second, part(weight))
        assert await part.apply(second, Settings(3)) == Settings(3)
        gives = await world.remote(0, Kept)
        with pytest.raises(RuntimeError, match="a part's result: a tensor in plain data requires"):
            await gives(leaf(), wrapped=True)


class Holder:
    """A plain object, whose attributes only a pickler sees."""

    def __init__(self, **given: Any) -> None:
        vars(self).update(given)


def weighted(holder: Any) -> Any:
    return Affine()


class Stateful(Affine):
    """Says itself what is pickled of it."""

    def __getstate__(self) -> Any:
        return dict(vars(self))


async def number_of(holder: Any) -> int:
    return len(list(holder.model.parameters()))


@pytest.mark.asyncio
async def test_a_tensor_that_requires_grad_can_hide_nowhere() -> None:
    """In attributes and closures no walk over structures finds it, but the pickler does."""
    async with world_of(Engine(1)) as world:
        part = await world.remote(0, Affine)
        for hidden in (leaf(), ag.nn.Parameter(ag.ones(3)), leaf() * 2):
            holder = Holder(deep=Holder(of=[{"weight": hidden}]))
            module = Affine()
            module.borrowed = Holder(of=hidden)
            for use in (
                lambda holder=holder: world.remote(0, weighted, holder),
                lambda holder=holder: world.remote(0, partial(weighted, holder)),
                lambda module=module: world.remote(0, weighted, module),
                lambda holder=holder: part.apply(second, holder),
                lambda holder=holder: part(leaf(), holder),
                lambda holder=holder: world.run(number_of, holder),
            ):
                with pytest.raises(RuntimeError, match=r"requires?_? ?grad"):
                    await use()
        assert await part.apply(gradients) == [None, None]
        # What stands beside the parameters of a module may refer to them, before or after it.
        model = Affine()
        optimizer = ag.optim.SGD(model.parameters(), lr=0.1)
        for holder in (
            Holder(optimizer=optimizer, model=model),
            Holder(model=model, weight=model.scale),
            Holder(model=Stateful()),
            Holder(model=ag.nn.Sequential(model, ag.nn.Linear(2, 2)), old=leaf().detach()),
        ):
            assert await world.run(number_of, holder) in ([2], [4])
        for who, use in (
            ("run", partial(world.run, number_of)),
            ("remote", partial(world.remote, 0, weighted)),
            ("a part", partial(part, leaf())),
        ):
            with pytest.raises(RuntimeError, match=rf"^{who}: a tensor of shape \(3,\) requires"):
                await use(Holder(model=model, weight=leaf()))


class Holds(Affine):
    """Gives a tensor that requires grad in an attribute."""

    def forward(self, x: Any) -> Any:
        return x * self.scale, Holder(of=self.shift)


@pytest.mark.asyncio
async def test_no_result_loses_its_gradient_in_an_attribute() -> None:
    async with world_of(Engine(2)) as world:
        part, other = await world.remote(0, Holds), await world.remote(1, Outer, None)
        with pytest.raises(RuntimeError, match=r"tensor of shape \(3,\) requires grad"):
            await part(leaf())
        with pytest.raises(RuntimeError, match=r"tensor of shape \(3,\) requires grad"):
            await other(part(leaf()))
        call = await part(leaf()).sent()
        with pytest.raises(RuntimeError, match=r"tensor of shape \(3,\) requires grad"):
            await call


def interrupts() -> None:
    raise KeyboardInterrupt


async def interrupts_the_loop() -> None:
    raise KeyboardInterrupt


class _Exits:
    """Unpickled, it does what a script does that a worker imports."""

    def __reduce__(self) -> Any:
        return sys.exit, (3,)


@pytest.mark.asyncio
async def test_a_function_that_exits_does_not_end_the_worker() -> None:
    async with world_of(Engine(1)) as world:
        with pytest.raises(RuntimeError, match=r"remote raised SystemExit\(3\)"):
            await world.remote(0, sys.exit, 3)
        for function in (interrupts, interrupts_the_loop):
            with pytest.raises(RuntimeError, match=r"remote raised KeyboardInterrupt\(\)"):
                await world.remote(0, function)
        with pytest.raises(RuntimeError, match=r"raised SystemExit\(3\) .*that it imports"):
            await world.remote(0, Affine, _Exits())
        await world.remote(0, Affine)


async def awaits_what_is_cancelled() -> None:
    other = asyncio.ensure_future(asyncio.sleep(60))
    other.cancel()
    await other


@pytest.mark.asyncio
async def test_a_function_that_awaits_what_was_cancelled_says_so() -> None:
    async with world_of(Engine(1)) as world:
        for call in (
            world.remote(0, awaits_what_is_cancelled),
            world.run(awaits_what_is_cancelled),
        ):
            with pytest.raises(RuntimeError, match=r"raised CancelledError\(\)") as caught:
                await call
            assert any("await other" in note for note in caught.value.__notes__)


class Hooked(Affine):
    """Has a hook on its result."""

    def __init__(self, hook: Any) -> None:
        super().__init__()
        self.hook = hook

    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        y.register_hook(self.hook)
        return y


def exits(gradient: Any) -> None:
    sys.exit(3)


async def exits_later(gradient: Any) -> None:
    await asyncio.sleep(0)
    sys.exit(3)


def joins_who_exits(gradient: Any) -> None:
    ag.autograd.graph.join(Exits())


class Exits:
    async def prepare(self, gradients: Any) -> None:
        sys.exit(3)

    async def commit(self) -> None: ...

    async def abort(self) -> None: ...


async def run_with(hook: Any) -> None:
    await Hooked(hook)(leaf()).sum().backward()


@pytest.mark.asyncio
@pytest.mark.parametrize("hook", [exits, exits_later, joins_who_exits])
async def test_a_hook_that_exits_fails_its_pass_and_not_the_worker(hook: Any) -> None:
    async with world_of(Engine(2)) as world:
        part, other = await world.remote(0, Hooked, hook), await world.remote(1, Affine)
        x = leaf()
        with pytest.raises(RuntimeError, match=r"a node raised SystemExit\(3\)") as caught:
            await (await other(part(x))).sum().backward()
        assert any("on worker 0" in note for note in caught.value.__notes__)
        assert any("raised by" in note for note in caught.value.__notes__)
        assert (x.grad, await other.apply(gradients)) == (None, [None, None])
        with pytest.raises(RuntimeError, match=r"a node raised SystemExit\(3\)"):
            await world.run(run_with, hook)
        await (await other(x)).sum().backward()


@pytest.mark.asyncio
async def test_a_model_given_twice_is_stepped_once() -> None:
    async with world_of(Engine(1)) as world:
        part, own, here = await world.remote(0, Affine), Affine(), Affine()
        optimizer = await world.optimizer(ag.optim.SGD, [part, own, part, own], lr=0.5)
        local = ag.optim.SGD(here.parameters(), lr=0.5)
        x = leaf().detach()
        await (await part(x)).sum().backward()
        await own(x).sum().backward()
        await here(x).sum().backward()
        await optimizer.step_async()
        local.step()
        expected = [p.tolist() for p in here.parameters()]
        assert [p.tolist() for p in own.parameters()] == expected
        assert [p.tolist() for p in (await part.apply(Affine.state_dict)).values()] == expected


# -- several passes, one commit -----------------------------------------------


@pytest.mark.asyncio
async def test_a_context_commits_several_passes_at_once() -> None:
    async with world_of(Engine(2)) as world:
        part, here = await world.remote(1, Affine), Affine()
        x, y = leaf(), leaf()
        async with dist.autograd.context():
            for _ in range(3):
                await (await part(x)).sum().backward()
                assert x.grad is None
                assert await part.apply(gradients) == [None, None]
        for _ in range(3):
            await here(y).sum().backward()
        assert x.grad.tolist() == y.grad.tolist()
        assert await part.apply(gradients) == gradients(here)

        async def fail() -> None:
            async with dist.autograd.context():
                await (await part(x)).sum().backward()
                raise ValueError("planned")

        with pytest.raises(ValueError, match="planned"):
            await fail()
        async with dist.autograd.context():
            pass
        assert x.grad.tolist() == y.grad.tolist()
        assert await part.apply(gradients) == gradients(here)
        assert kept(await world.statistics()) == [0, 0]


@pytest.mark.asyncio
async def test_a_step_within_a_context_is_refused_as_its_gradients_are_not_there() -> None:
    async with world_of(Engine(1)) as world:
        part = await world.remote(0, Affine)
        optimizer = await world.optimizer(ag.optim.SGD, [part], lr=0.1)
        before = await part.apply(state_of)

        async def later(uses: asyncio.Event) -> None:
            await uses.wait()
            await optimizer.step_async()

        for fails in (False, True):
            left = asyncio.Event()
            with suppress(KeyError):
                async with dist.autograd.context(), dist.autograd.context():
                    await optimizer.zero_grad()
                    await (await part(leaf())).sum().backward()
                    for use in (optimizer.step_async, partial(optimizer.clip_grad_norm_, 1.0)):
                        with pytest.raises(RuntimeError, match="call it after the block"):
                            await use()
                    assert str(await part.apply(state_of)) == str(before)
                    stepping = asyncio.create_task(later(left))
                    if fails:
                        raise KeyError
            left.set()
            # It was started in the block, and steps after it.
            await stepping
            assert (str(await part.apply(state_of)) == str(before)) is fails
            before = await part.apply(state_of)


@pytest.mark.asyncio
async def test_a_context_holds_passes_back_that_come_to_no_part() -> None:
    """Whether a model is on a worker, or with the caller, makes no difference."""
    async with world_of(Engine(1)) as world:
        part, here = await world.remote(0, Affine), Affine()
        x, y = leaf(), leaf()

        async def step(fails: bool, *models: Any) -> None:
            async with dist.autograd.context():
                for model in models:
                    await ag.tensor([1.0]).requires_grad_().sum().backward()
                    call = model(x)
                    await (call if model is here else await call).sum().backward()
                    (slope,) = await ag.autograd.grad((x * x).sum(), [x])
                    assert slope.tolist() == (x * 2).tolist()
                assert x.grad is None
                assert here.scale.grad is None
                if fails:
                    raise ValueError("planned")

        for models in ([here], [here, part], [part, here]):
            with pytest.raises(ValueError, match="planned"):
                await step(True, *models)
            assert (x.grad, here.scale.grad) == (None, None)
            await step(False, *models)
            own = Affine()
            for _ in models:
                await own(y).sum().backward()
            assert x.grad.tolist() == y.grad.tolist()
            x.grad = y.grad = here.scale.grad = here.shift.grad = None
        assert await part.apply(gradients) != [None, None]
        with pytest.raises(RuntimeError, match=r"create_graph=True.*start it outside"):
            async with dist.autograd.context():
                await here(x).sum().backward(create_graph=True)
        assert x.grad is None


def test_a_context_waits_for_workers_until_the_deadline_of_its_passes(run: Any) -> None:
    run(late_context())


async def late_context() -> None:
    engine = Engine(1)
    async with world_of(engine, grace=0.1) as world:
        part, x = await world.remote(0, Affine), leaf()
        loop = asyncio.get_running_loop()
        engine.on_message = lambda rank, message: (
            engine.stop(0) if message.method == "prepare" else None
        )

        async def step() -> None:
            async with dist.autograd.context():
                for _ in range(2):
                    await (await part(x)).sum().backward(deadline=loop.time() + 0.6)

        with pytest.raises(TimeoutError, match=r"commit of a context\(\) did not end"):
            await step()
        assert x.grad is None
        engine.wake(0)
        assert await part.apply(gradients) == [None, None]


@pytest.mark.asyncio
async def test_a_context_with_a_failed_pass_commits_nothing() -> None:
    engine = Engine(2)
    async with world_of(engine) as world:
        part, bad = await world.remote(1, Affine), await world.remote(0, Failing, "backward")
        x = leaf()

        async def step() -> None:
            async with dist.autograd.context():
                await (await part(x)).sum().backward()
                with pytest.raises(ValueError, match="planned"):
                    await (await bad(x)).sum().backward()
                with pytest.raises(dist.PassEndedError, match="has failed"):
                    await (await part(x)).sum().backward()

        with pytest.raises(dist.PassEndedError, match="has failed"):
            await step()
        # Told once: a host that does not answer is waited for once.
        assert [name for _, name, _ in engine.log].count("abort") == 2
        assert (x.grad, await part.apply(gradients)) == (None, [None, None])
        assert kept(await world.statistics()) == [0, 0]


@pytest.mark.usefixtures("no_collector")
@pytest.mark.asyncio
async def test_a_failed_context_leaves_nothing_to_the_garbage_collector() -> None:
    async with world_of(Engine(1)) as world:
        part = await world.remote(0, Failing, "backward")

        async def fails() -> weakref.ref[Any]:
            context = dist.autograd.context()
            with suppress(ValueError):
                async with context:
                    await (await part(leaf())).sum().backward()
            return weakref.ref(context)

        gc.collect()
        alive = await fails()
        for _ in range(50):
            await asyncio.sleep(0)
        assert alive() is None


@pytest.mark.asyncio
@pytest.mark.parametrize("how", ["hook", "cancelled", "nested"])
async def test_a_pass_that_fails_before_it_comes_to_a_part_fails_its_context(how: str) -> None:
    """It depends on when an error or a deadline comes whether the pass has come to a part."""

    async def waits(gradient: Any) -> None:
        if how == "hook":
            raise ValueError("planned")
        with ag.enable_grad():
            nested = (weight * 2).sum()
        nested.register_hook(refuses)
        with pytest.raises(ValueError, match="planned"):
            await nested.backward()

    async with world_of(Engine(2)) as world:
        part, x, weight = await world.remote(1, Affine), leaf(), leaf()

        async def step() -> None:
            async with dist.autograd.context():
                await (await part(x)).sum().backward()
                loss = (await part(x)).sum()
                if how != "cancelled":
                    loss.register_hook(waits)
                running = loss.backward()
                if how == "cancelled":
                    running.cancel()
                await asyncio.wait([running])
                running.cancelled() or running.exception()

        if how == "nested":
            await step()
            assert x.grad is not None
            return
        with pytest.raises(dist.PassEndedError, match="has failed"):
            await step()
        assert (x.grad, await part.apply(gradients)) == (None, [None, None])
        assert kept(await world.statistics()) == [0, 0]


class StartsPasses(Affine):
    """A hook starts a pass that goes through another part, and one of `grad()`, and may fail."""

    def __init__(self, other: Any, *, fails: bool) -> None:
        super().__init__()
        # In a tuple it is none of this module's own.
        self.others, self.fails, self.local = (other,), fails, Affine()

    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        y.register_hook(self.start)
        return y

    async def start(self, gradient: Any) -> None:
        with ag.enable_grad():
            x = self.local(leaf())
            first, second = [(await self.others[0](x)).sum() for _ in range(2)]
        await first.backward(retain_graph=True)
        if self.fails:
            raise ValueError("planned")
        await ag.autograd.grad(second, x)


@pytest.mark.asyncio
@pytest.mark.parametrize("fails", [False, True])
async def test_a_pass_that_a_hook_on_a_worker_starts_commits_by_itself(fails: bool) -> None:
    """As in one process: of the outer pass neither its success nor its gradients follow."""
    async with world_of(Engine(2)) as world:
        other = await world.remote(1, Affine)
        part = await world.remote(0, StartsPasses, other, fails=fails)
        other_here = Affine()
        here = StartsPasses(other_here, fails=fails)
        for outer in (part, here):
            with suppress(ValueError):
                await (await outer(leaf())).sum().backward()
        assert await part.apply(gradients) == gradients(here)
        assert await other.apply(gradients) == gradients(other_here)
        assert kept(await world.statistics()) == [0, 0]


@pytest.mark.asyncio
async def test_a_pass_that_a_hook_starts_within_a_context_commits_by_itself() -> None:
    async with world_of(Engine(1)) as world:
        part, x, y = await world.remote(0, Affine), leaf(), leaf()

        async def start(gradient: Any) -> None:
            with ag.enable_grad():
                loss = (await part(y)).sum()
            await loss.backward()

        with suppress(KeyError):
            async with dist.autograd.context():
                out = x * 2
                out.register_hook(start)
                await out.sum().backward()
                raise KeyError
        here, alone = Affine(), leaf()
        await here(alone).sum().backward()
        assert (x.grad, y.grad.tolist()) == (None, alone.grad.tolist())
        assert await part.apply(gradients) == gradients(here)
        assert kept(await world.statistics()) == [0]


@pytest.mark.asyncio
async def test_what_is_frozen_after_its_pass_gets_the_gradient_as_in_one_process() -> None:
    async with world_of(Engine(1)) as world:
        part, own = await world.remote(0, Affine), Affine()
        async with dist.autograd.context():
            await own(await part(leaf())).sum().backward()
            await part.apply(freeze)
            freeze(own)
        assert None not in [*await part.apply(gradients), *gradients(own)]
        assert world.lost == {}


def grow(module: Any) -> None:
    for parameter in module.parameters():
        parameter.data = ag.zeros(4, dtype=ag.float64)


@pytest.mark.asyncio
@pytest.mark.parametrize("passes", [1, 2])
async def test_data_that_are_replaced_after_the_promise_leave_the_old_gradient(passes: int) -> None:
    """As in one process, where they are replaced after the commit, whether there was a `.grad`."""
    engine, here = Engine(1), Affine()
    for _ in range(passes):
        await here(leaf()).sum().backward()
    async with world_of(engine) as world:
        part = await world.remote(0, Affine)
        losses = [(await part(leaf())).sum() for _ in range(passes)]
        for loss in losses[1:]:
            await loss.backward()

        def replace(rank: int, message: Any) -> None:
            if message.method == "commit":
                grow(engine.part(part))

        engine.on_message = replace
        await losses[0].backward()
        assert await part.apply(gradients) == gradients(here)


class Freezing(Affine):
    """A hook freezes one parameter before, and the other after the pass has come to it."""

    def forward(self, x: Any) -> Any:
        y = x * self.scale
        y.register_hook(self.freeze)
        return ag.tanh(y + self.shift)

    def freeze(self, gradient: Any) -> None:
        freeze(self)


async def train_freezing() -> Any:
    model = await dist.nn.parallel.DistributedDataParallel(Freezing())
    await model(leaf()).sum().backward()
    return gradients(model.module)


@pytest.mark.asyncio
async def test_what_a_hook_freezes_within_its_pass_gets_the_gradient_as_in_one_process() -> None:
    here = Freezing()
    await here(leaf()).sum().backward()
    assert [found is None for found in gradients(here)] == [True, False]
    async with world_of(Engine(2)) as world:
        part, kept_back = await world.remote(0, Freezing), Freezing()
        await (await part(leaf())).sum().backward()
        async with dist.autograd.context():
            await kept_back(leaf()).sum().backward()
        model = await world.replicate(Freezing)
        await model.forward_backward(total, [(leaf().detach(),)] * 2)
        found = [await part.apply(gradients), gradients(kept_back)]
        found += [await copy.apply(gradients) for copy in model.parts]
        assert found + await world.run(train_freezing) == [gradients(here)] * 6


@pytest.mark.asyncio
async def test_a_context_is_entered_once() -> None:
    """Passes that are started in a block that has ended are not kept back."""
    x, once = leaf(), dist.autograd.context()
    async with once:
        with pytest.raises(RuntimeError, match="make one for each block"):
            await once.__aenter__()
    with pytest.raises(RuntimeError, match="make one for each block"):
        async with once:
            await (x * x).sum().backward()
    assert x.grad is None


@pytest.mark.asyncio
async def test_a_context_within_another_is_a_part_of_it() -> None:
    async with world_of(Engine(2)) as world:
        part, here = await world.remote(1, Affine), Affine()
        x, y = leaf(), leaf()

        async def inner(fails: bool) -> None:
            async with dist.autograd.context():
                await (await part(x)).sum().backward()
                if fails:
                    raise ValueError("planned")

        async with dist.autograd.context():
            await inner(False)
            await inner(False)
            assert (x.grad, await part.apply(gradients)) == (None, [None, None])
        for _ in range(2):
            await here(y).sum().backward()
        assert x.grad.tolist() == y.grad.tolist()
        assert await part.apply(gradients) == gradients(here)

        async def outer() -> None:
            async with dist.autograd.context():
                await inner(False)
                with pytest.raises(ValueError, match="planned"):
                    await inner(True)

        with pytest.raises(dist.PassEndedError, match="has failed"):
            await outer()
        assert x.grad.tolist() == y.grad.tolist()
        assert await part.apply(gradients) == gradients(here)
        assert kept(await world.statistics()) == [0, 0]


@pytest.mark.asyncio
async def test_a_pass_that_a_context_has_not_waited_for_says_so() -> None:
    async with world_of(Engine(1)) as world:
        part, x = await world.remote(0, Affine), leaf()
        ended = asyncio.Event()

        async def late() -> None:
            await ended.wait()
            await (await part(x)).sum().backward()

        async with dist.autograd.context():
            task = asyncio.create_task(late())
            await asyncio.sleep(0)
        ended.set()
        with pytest.raises(dist.PassEndedError, match="after the block's end"):
            await task
        assert (x.grad, await part.apply(gradients)) == (None, [None, None])
        del task
        while any(kept(await world.statistics())):
            gc.collect()


@pytest.mark.asyncio
async def test_a_context_cancelled_while_it_commits_has_committed() -> None:
    engine = Engine(1)
    async with world_of(engine) as world:
        part, x = await world.remote(0, Affine), leaf()

        async def step() -> None:
            async with dist.autograd.context():
                await (await part(x)).sum().backward()

        task = asyncio.create_task(step())

        async def cancel(rank: int, message: Message) -> None:
            if message.method == "commit":
                task.cancel()
                await asyncio.sleep(0)

        engine.on_message = cancel
        with pytest.raises(asyncio.CancelledError):
            await task
        assert x.grad is not None
        # Nothing goes on when the block has been left.
        assert engine.part(part).scale.grad is not None


@pytest.mark.asyncio
async def test_one_trace_shows_what_all_have_computed(tmp_path: Path) -> None:
    engine = Engine(3)
    async with world_of(engine) as world:
        parts = [await world.remote(rank, Affine) for rank in range(3)]
        async with world.trace_passes(tmp_path / "trace.json"):
            await (await parts[1](parts[0](leaf()))).sum().backward()
            engine.kill(2)
        await (await parts[1](parts[0](leaf()))).sum().backward()
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {one["pid"]: one["args"]["name"] for one in events if one["name"] == "process_name"}
    assert list(names.values()) == ["caller", "worker 0", "worker 1"]
    nodes = [(names[one["pid"]], one["name"]) for one in events if one.get("cat") == "node"]
    assert nodes.count(("worker 0", "TanhBackward0")) == 1
    assert nodes.count(("worker 1", "TanhBackward0")) == 1
    assert ("caller", "SumBackward0") in nodes
    times = [one["ts"] for one in events if one.get("cat") == "node"]
    assert max(times) - min(times) < 60e6
    threads = {names[one["pid"]] for one in events if one["name"] == "thread_name"}
    assert threads == set(names.values())


@pytest.mark.asyncio
async def test_a_world_has_one_trace_at_a_time(tmp_path: Path) -> None:
    """The end of the second would take what the first has recorded."""
    async with world_of(Engine(1)) as world:
        for _ in range(2):
            async with world.trace_passes(tmp_path / "first.json"):
                with pytest.raises(RuntimeError, match="is traced already"):
                    await world.trace_passes(tmp_path / "second.json").__aenter__()


@pytest.mark.asyncio
async def test_a_worker_that_hangs_holds_neither_a_trace_nor_the_statistics(tmp_path: Path) -> None:
    engine, path = Engine(2), tmp_path / "pass.json"
    async with world_of(engine, grace=0.1) as world:
        part = await world.remote(0, Affine)
        async with world.trace_passes(path):
            await (await part(leaf())).sum().backward()
            engine.stop(1)
        events = json.loads(path.read_text())["traceEvents"]
        named = [one["args"]["name"] for one in events if one["name"] == "process_name"]
        assert named == ["caller", "worker 0"]
        assert await world.statistics() == [ONE_PART, None]
        engine.wake(1)


@pytest.mark.asyncio
async def test_a_trace_that_cannot_begin_on_one_worker_ends_on_the_others(tmp_path: Path) -> None:
    engine = Engine(2)
    begun = asyncio.Event()

    async def kill(rank: int, message: Any) -> None:
        if message.method == "trace" and rank == 1:
            await begun.wait()
            engine.kill(1)
        elif message.method == "trace":
            begun.set()

    engine.on_message = kill
    async with world_of(engine) as world:
        with pytest.raises(dist.WorkerLostError):
            async with world.trace_passes(tmp_path / "trace.json"):
                pass
        assert engine.site(0).host._trace is None


# -- optimizers ---------------------------------------------------------------


def method_of() -> Any:
    return Affine().forward


@pytest.mark.asyncio
async def test_an_optimizer_steps_parts_and_modules() -> None:
    async with world_of(Engine(2)) as world:
        parts = [await world.remote(0, Affine), await world.remote(1, Affine)]
        head, heres = Affine(), [Affine(), Affine(), Affine()]
        optimizer = await world.optimizer(ag.optim.Adam, [*parts, head], lr=0.1)
        local = ag.optim.Adam([p for m in heres for p in m.parameters()], lr=0.1)
        for _ in range(3):
            await head(await parts[1](parts[0](leaf()))).sum().backward()
            await heres[2](heres[1](heres[0](leaf()))).sum().backward()
            await optimizer.step_async()
            await local.step_async()
            await optimizer.zero_grad()
            local.zero_grad()
        for part, here in zip(parts, heres, strict=False):
            state = await part.apply(ag.nn.Module.state_dict)
            assert all(state[k].tolist() == v.tolist() for k, v in here.state_dict().items())
        assert head.scale.tolist() == heres[2].scale.tolist()
        assert await parts[0].apply(gradients) == [None, None]
        state = await optimizer.state_dict()
        await optimizer.load_state_dict(state)
        for wrong in (None, ["own", "workers"], state | {"workers": [0, 1]}, state | {"own": 3}):
            with pytest.raises(
                TypeError, match=r"load_state_dict: expected .* not (None|list|int)"
            ):
                await optimizer.load_state_dict(wrong)
        for empty in (state | {"own": {}}, state | {"workers": {0: state["workers"][0], 1: {}}}):
            with pytest.raises(ValueError, match=r"load_state_dict: .*state' and 'p"):
                await optimizer.load_state_dict(empty)
        assert await optimizer.apply(rates) == [[0.1]] * 3
        scaler = ag.amp.GradScaler("cpu")
        scaler.scale(ag.ones(()))
        with pytest.raises(TypeError, match=r"RemoteOptimizer has no .* takes no scaler"):
            scaler.step(optimizer)
        state["workers"].pop(0)
        with pytest.raises(ValueError, match=r"parts on workers \[1\]"):
            await optimizer.load_state_dict(state)
        with pytest.raises(ValueError, match="has 'own' and 'workers', this has"):
            await optimizer.load_state_dict({"state": {}})
        with pytest.raises(TypeError, match="parts and modules"):
            await world.optimizer(ag.optim.Adam, [3], lr=0.1)
        with pytest.raises(TypeError, match="a method, which has no parameters"):
            await world.optimizer(ag.optim.Adam, [await world.remote(0, method_of)], lr=0.1)
        stage = await world.remote(1, ag.nn.Tanh)
        optimizer = await world.optimizer(ag.optim.SGD, [parts[0], stage], lr=0.1)
        await optimizer.step_async()
        assert await optimizer.apply(rates) == [[0.1]]
        with pytest.raises(AttributeError, match=r"no 'step' here: `await optimizer\.step_async"):
            optimizer.step()
        with pytest.raises(ValueError, match="empty parameter list"):
            await world.optimizer(ag.optim.SGD, [stage], lr=0.1)
        optimizer = await world.optimizer(ag.optim.LBFGS, [*parts, head])
        with pytest.raises(TypeError, match="closure"):
            await optimizer.step_async()


@pytest.mark.asyncio
async def test_a_step_that_fails_on_one_worker_has_ended_on_the_others() -> None:
    """Parameters would change after the error."""
    engine = Engine(2)
    async with world_of(engine) as world:
        parts = [await world.remote(rank, Affine) for rank in range(2)]
        optimizer = await world.optimizer(ag.optim.SGD, parts, lr=0.1)
        await (await parts[1](parts[0](leaf()))).sum().backward()
        (failing,) = engine.hosts[0]._optimizers.values()
        failing.register_step_pre_hook(refuses)

        async def late(rank: int) -> None:
            for _ in range(50 * rank):
                await asyncio.sleep(0)

        engine.on_message = lambda rank, message: late(rank)
        with pytest.raises(ValueError, match="planned"):
            await optimizer.step_async()
        assert [engine.part(part).scale.tolist() == [2.0] * 3 for part in parts] == [True, False]


async def cancelled_at(number: int) -> set[bool]:
    """Cancel a step at one of its messages: whether each has stepped."""
    engine, seen, own = Engine(2), 0, Affine()
    async with world_of(engine) as world:
        parts = [await world.remote(rank, Affine) for rank in range(2)]
        optimizer = await world.optimizer(ag.optim.Adam, [*parts, own], lr=0.1)
        await own(await parts[1](parts[0](leaf()))).sum().backward()

        def notice(rank: int, message: Message) -> None:
            nonlocal seen
            if seen == number:
                stepping.cancel()
            seen += 1

        engine.on_message = notice
        stepping = asyncio.create_task(optimizer.step_async())
        await asyncio.wait([stepping])
        assert stepping.cancelled()
        await optimizer.zero_grad()
        values = [engine.part(part).scale.tolist() for part in parts]
    return {one != [2.0] * 3 for one in [*values, own.scale.tolist()]}


@pytest.mark.asyncio
async def test_a_cancelled_step_of_an_optimizer_is_complete() -> None:
    """Otherwise some workers' parameters would be a step ahead of the others'."""
    assert [await cancelled_at(number) for number in range(2)] == [{True}] * 2


class InThread(ag.optim.Adam):
    """Its step is long enough for a thread, and waits there until it may go on."""

    begun, may_go_on = threading.Event(), threading.Event()

    def _cost(self, group: Any, parameter: Any) -> float:
        return 1e9

    def _update_group(self, *args: Any) -> None:
        self.begun.set()
        assert self.may_go_on.wait(60)
        super()._update_group(*args)


@pytest.mark.asyncio
async def test_a_state_is_loaded_after_a_step_that_was_begun_before() -> None:
    """A worker that is in a step refuses the state, which others would have loaded by then."""
    async with world_of(engine := Engine(2)) as world:
        parts = [await world.remote(rank, Affine) for rank in range(2)]
        InThread.begun.clear()
        InThread.may_go_on.clear()
        optimizer = await world.optimizer(InThread, parts, lr=0.1)
        state = await optimizer.state_dict()
        for one in state["workers"].values():
            one["param_groups"][0]["lr"] = 0.25
        await (await parts[1](parts[0](leaf()))).sum().backward()
        stepping = asyncio.create_task(optimizer.step_async())
        await asyncio.to_thread(InThread.begun.wait, 60)
        loading = asyncio.create_task(optimizer.load_state_dict(state))
        saving = asyncio.create_task(optimizer.state_dict())
        late = asyncio.create_task(optimizer.step_async())
        engine.on_message = lambda rank, message: InThread.may_go_on.set()
        await asyncio.sleep(0)
        late.cancel()
        asyncio.get_running_loop().call_soon(InThread.may_go_on.set)
        await asyncio.gather(stepping, loading)
        # It was saved after the state was loaded, and nothing was done by the cancelled step.
        saved = await saving
        assert [one["state"] for one in saved["workers"].values()] == [{}, {}]
        assert await optimizer.apply(rates) == [[0.25]] * 2
        assert late.cancelled()


def waits_in_thread(optimizer: Any) -> None:
    """Let the optimizer be another one for as long as a test says."""
    group = optimizer.param_groups[0]
    group["lr"] = 100.0
    InThread.begun.set()
    assert InThread.may_go_on.wait(60)
    group["lr"] = 0.1


@pytest.mark.asyncio
async def test_a_step_waits_for_a_function_that_was_cancelled_and_goes_on() -> None:
    async with world_of(engine := Engine(1)) as world:
        part = await world.remote(0, Affine)
        optimizer = await world.optimizer(ag.optim.SGD, [part], lr=0.1)
        await (await part(leaf())).sum().backward()
        wanted = engine.part(part).scale - 0.1 * engine.part(part).scale.grad
        InThread.begun.clear()
        InThread.may_go_on.clear()
        applying = asyncio.create_task(optimizer.apply(waits_in_thread))
        await asyncio.to_thread(InThread.begun.wait, 60)
        applying.cancel()
        await asyncio.wait([applying])
        stepping = asyncio.create_task(optimizer.step_async())
        # The function that was cancelled, the message that has ended it, and the step.
        while (await world.statistics())[0]["working"] < 3:
            assert not stepping.done()
        InThread.may_go_on.set()
        await stepping
        assert engine.part(part).scale.tolist() == wanted.tolist()


def doubled(optimizer: Any) -> None:
    with ag.no_grad():
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.mul_(2)


@pytest.mark.asyncio
@pytest.mark.parametrize("method", ["step_async", "apply"])
async def test_what_waits_for_its_turn_changes_nothing_if_a_worker_is_lost_meanwhile(
    method: str,
) -> None:
    own, held = Affine(), asyncio.Event()
    async with world_of(engine := Engine(2)) as world:
        parts = [await world.remote(rank, Affine) for rank in range(2)]
        optimizer = await world.optimizer(ag.optim.SGD, [*parts, own], lr=0.1)
        await own(await parts[1](parts[0](leaf()))).sum().backward()
        engine.on_message = lambda rank, message: held.wait()
        earlier = asyncio.create_task(optimizer.zero_grad())
        given = (doubled,) if method == "apply" else ()
        later = asyncio.create_task(getattr(optimizer, method)(*given))
        while engine.log[-1][1] != "optimize":  # noqa: ASYNC110
            await asyncio.sleep(0)
        for parameter in own.parameters():
            parameter.grad = ag.ones(3, dtype=ag.float64)
        engine.kill(1)
        engine.on_message = lambda rank, message: None
        held.set()
        for one in earlier, later:
            with pytest.raises(dist.WorkerLostError):
                await one
        assert own.scale.tolist() == [2.0] * 3
        assert engine.part(parts[0]).scale.tolist() == [2.0] * 3


def halved(optimizer: Any) -> None:
    schedule = ag.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    optimizer.register_step_post_hook(lambda *_: schedule.step())


def rates(optimizer: Any) -> list[float]:
    return [group["lr"] for group in optimizer.param_groups]


class Noisy(Affine):
    """With what a forward draws and keeps: a dropout, and running statistics."""

    def __init__(self, scale: float) -> None:
        super().__init__(scale)
        self.norm = ag.nn.BatchNorm1d(3, dtype=ag.float64)
        self.drop = ag.nn.Dropout(0.25)

    def forward(self, x: Any) -> Any:
        return self.drop(self.norm(super().forward(x)))


def state_of(module: Any) -> dict[str, Any]:
    return {name: tensor.tolist() for name, tensor in module.state_dict().items()}


@pytest.mark.asyncio
async def test_training_over_workers_has_the_bits_of_one_process() -> None:
    """Dropout, running statistics, accumulation, clipping over all workers, and a schedule."""
    async with world_of(Engine(3)) as world:
        scales = (0.5, 3.0)
        parts = [await world.remote(rank, Noisy, scale) for rank, scale in enumerate(scales)]
        theirs, mine = ag.nn.Linear(3, 2, dtype=ag.float64), [Noisy(scale) for scale in scales]
        mine.append(copy.deepcopy(theirs))
        optimizer = await world.optimizer(ag.optim.Adam, [*parts, theirs], lr=0.1)
        alone = ag.optim.Adam([p for module in mine for p in module.parameters()], lr=0.1)
        await optimizer.apply(halved)
        halved(alone)
        generator = np.random.default_rng(0)
        for step in range(4):
            for half in range(2):
                x = ag.tensor(generator.normal(size=(8, 3)))
                ag.manual_seed(10 * step + half)
                loss = (theirs(await parts[1](parts[0](x)))).square().sum()
                await loss.backward()
                ag.manual_seed(10 * step + half)
                own = mine[2](mine[1](mine[0](x))).square().sum()
                await own.backward()
                assert loss.item() == own.item()
            norm = await optimizer.clip_grad_norm_(0.5)
            assert (
                norm.item()
                == ag.nn.utils.clip_grad_norm_(list(alone.param_groups[0]["params"]), 0.5).item()
                > 0.5
            )
            await optimizer.step_async()
            await optimizer.zero_grad()
            alone.step()
            alone.zero_grad()
            assert await optimizer.apply(rates) == [rates(alone)] * 3
        for part, module in zip(parts, mine, strict=False):
            saved = await part.apply(ag.nn.Module.state_dict)
            assert {name: one.tolist() for name, one in saved.items()} == state_of(module)
            again = await world.remote(2, Noisy, 0.0)
            await again.apply(ag.nn.Module.load_state_dict, saved)
            assert await again.apply(state_of) == state_of(module)
        assert state_of(theirs) == state_of(mine[2])


@pytest.mark.asyncio
async def test_gradients_that_can_not_be_clipped_stay_as_they_are() -> None:
    engine = Engine(2)
    async with world_of(engine) as world:
        parts = [await world.remote(rank, Affine) for rank in range(2)]
        optimizer = await world.optimizer(ag.optim.SGD, parts, lr=0.1)
        assert (await optimizer.clip_grad_norm_(1.0)).item() == 0
        loss = (await parts[1](parts[0](leaf()))).sum()
        waiting = loss.backward()
        with pytest.raises(PendingBackwardError, match=r"RemoteOptimizer\.clip_grad_norm_"):
            await optimizer.clip_grad_norm_(1.0)
        await waiting
        await (await parts[0](leaf() * math.inf)).sum().backward()
        before = [await part.apply(gradients) for part in parts]
        with pytest.raises(RuntimeError, match="non-finite"):
            await optimizer.clip_grad_norm_(1.0, error_if_nonfinite=True)
        assert str([await part.apply(gradients) for part in parts]) == str(before)
        with pytest.raises(RuntimeError, match="requires grad"):
            await optimizer.apply(rates, leaf())
        with pytest.raises(TypeError, match="give a function"):
            await optimizer.apply("zero_grad")
        engine.kill(1)
        with pytest.raises(dist.WorkerLostError):
            await optimizer.clip_grad_norm_(1e-9)
        assert str(await parts[0].apply(gradients)) == str(before[0])


@pytest.mark.asyncio
async def test_an_optimizer_refuses_while_its_task_has_a_pass_not_awaited() -> None:
    async with world_of(Engine(1)) as world:
        part = await world.remote(0, Affine)
        optimizer = await world.optimizer(ag.optim.SGD, [part], lr=0.1)
        running = (await part(leaf())).sum().backward()
        for use in (optimizer.step_async, optimizer.zero_grad):
            with pytest.raises(PendingBackwardError):
                await use()
        await running
        await optimizer.step_async()


@pytest.mark.asyncio
async def test_an_optimizer_that_cannot_reach_a_worker_changes_nothing() -> None:
    engine = Engine(2)
    own = Affine()
    async with world_of(engine) as world:
        parts = [await world.remote(rank, Affine) for rank in range(2)]
        both = await world.optimizer(ag.optim.SGD, [*parts, own], lr=0.1)
        living = await world.optimizer(ag.optim.SGD, [parts[0], own], lr=0.1)
        await own(await parts[0](leaf())).sum().backward()
        states = await both.state_dict(), await living.state_dict()
        before = own.scale.tolist(), gradients(own)
        engine.kill(1)
        await asyncio.sleep(0)
        uses = (lambda: both.step_async(), both.zero_grad, lambda: both.load_state_dict(states[0]))
        for use in uses:
            with pytest.raises(dist.WorkerLostError):
                await use()
        assert await parts[0].apply(gradients) != [None, None]
    uses = living.step_async, living.zero_grad, lambda: living.load_state_dict(states[1])
    for use in uses:
        with pytest.raises(RuntimeError, match="the world can't be used any more"):
            await use()
    assert (own.scale.tolist(), gradients(own)) == before


# -- any graph, cut anywhere --------------------------------------------------


class Step(NamedTuple):
    """One value of a random graph."""

    kind: str
    rank: int
    #: The values that it is made of.
    sources: tuple[int, int]
    #: An earlier step, whose module is used again or within this one.
    earlier: int
    #: The caller fetches it.
    awaited: bool

    def of(self, values: list[Any], module: Any) -> Any:
        first, other = (values[source] for source in self.sources)
        if self.kind == "sum":
            return first * 0.5 + other
        return module(first, other) if self.kind == "both" else module(first)


def planned(rng: random.Random, workers: int) -> list[Step]:
    """A graph in which every value that the caller has not fetched is used by parts alone."""
    plan: list[Step] = []
    for step in range(rng.randint(1, 9)):
        kind = rng.choice(["part", "again", "both", "outer", "sum"])
        single = [at for at, one in enumerate(plan) if one.kind in {"part", "outer"}]
        if kind in {"again", "outer"} and not single:
            kind = "part"
        fetched = [0, *[at + 1 for at, one in enumerate(plan) if one.awaited]]
        choices = fetched if kind == "sum" else range(step + 1)
        sources = rng.choice(choices), rng.choice(choices)
        earlier = rng.choice(single) if kind in {"again", "outer"} else step
        rank = rng.randrange(workers)
        plan.append(Step(kind, rank, sources, earlier, kind == "sum" or rng.random() < 0.5))
    return plan


def inside(outer: Any, inner: Any) -> Any:
    """What `Outer` does, in one process."""
    return lambda x: inner(inner(outer.own(x)))


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_any_graph_cut_anywhere_has_the_gradients_of_one_process(seed: int, workers: int) -> None:
    """Bit for bit, whatever is delayed or comes twice."""
    rng = random.Random(seed)
    plan = planned(rng, workers)

    async def remote() -> Any:
        engine = Engine(workers, lambda most: rng.randint(0, most))
        async with world_of(engine) as world:
            values: list[Any] = [leaf()]
            parts: list[Any] = []
            for step in plan:
                if step.kind == "outer":
                    part: Any = await world.remote(step.rank, Outer, parts[step.earlier])
                elif step.kind == "again":
                    part = parts[step.earlier]
                else:
                    part = await world.remote(step.rank, MODULES[step.kind], 1.0 + len(parts))
                parts.append(part)
                value = step.of(values, part)
                if step.kind != "sum":
                    value = await value if step.awaited else await value.sent()
                values.append(value)
            loss = values[0].sum()
            for value, step in zip(values[1:], plan, strict=True):
                loss = loss + value.sum() if step.awaited else loss
            await loss.backward()
            found = [await part.apply(gradients) for part in parts]
            return values[0].grad.tolist(), found

    async def local() -> Any:
        values: list[Any] = [leaf()]
        modules: list[Any] = []
        calls: list[Any] = []
        for step in plan:
            if step.kind == "outer":
                modules.append(Outer(None))
                calls.append(inside(modules[-1], calls[step.earlier]))
            elif step.kind == "again":
                modules.append(modules[step.earlier])
                calls.append(calls[step.earlier])
            else:
                modules.append(MODULES[step.kind](1.0 + len(modules)))
                calls.append(modules[-1])
            values.append(step.of(values, calls[-1]))
        loss = values[0].sum()
        for value, step in zip(values[1:], plan, strict=True):
            loss = loss + value.sum() if step.awaited else loss
        await loss.backward()
        return values[0].grad.tolist(), [gradients(module) for module in modules]

    assert asyncio.run(remote()) == asyncio.run(local())


#: What steps of a random graph make, by kind.
MODULES = {"part": Affine, "both": Both, "sum": Affine}
