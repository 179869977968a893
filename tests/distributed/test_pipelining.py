"""Pipelines: the gradients of one process, one micro-batch at a time in a stage, all or nothing."""

from __future__ import annotations

import asyncio
import functools
import random
from collections import Counter
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from deterministic import Engine, world_of
from models import Failing, freeze, gradients

import asyncgrad as ag
from asyncgrad import distributed as dist
from asyncgrad.autograd import graph
from asyncgrad.distributed import errors

Pipeline = dist.pipelining.Pipeline


class Layer(ag.nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        weight = np.random.default_rng(seed).normal(size=(3, 3))
        self.weight = ag.nn.Parameter(ag.tensor(weight))

    def forward(self, x: Any) -> Any:
        return ag.tanh(x @ self.weight)


class Pair(Layer):
    """Takes two tensors of each example, and gives two."""

    def forward(self, given: Any) -> Any:
        return {"layer": super().forward(given["x"]), "product": given["x"] * given["y"]}


class Watched(ag.nn.Module):
    """Notes what runs in it, and lets the loop turn meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.running = self.most = self.kept = self.most_kept = 0
        self.log: list[str] = []

    async def turn(self, what: str) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        self.log.append(what)
        for _ in range(5):
            await asyncio.sleep(0)
        self.running -= 1

    async def forward(self, x: Any) -> Any:
        await self.turn("f")
        self.kept += 1
        self.most_kept = max(self.most_kept, self.kept)
        y = x * 1.0

        async def hook(gradient: Any) -> None:
            await self.turn("b")
            self.kept -= 1

        y.register_hook(hook)
        return y


def mean_square(y: Any, target: Any) -> Any:
    return ((y - target) ** 2).mean()


def of_both(found: Any, targets: Any) -> Any:
    return mean_square(found["layer"], targets[0]) + mean_square(found["product"], targets[1])


def no_scalar(y: Any, target: Any) -> Any:
    return y


def data(rows: int = 10) -> Any:
    generator = np.random.default_rng(3)
    return tuple(ag.tensor(generator.normal(size=(rows, 3))) for _ in range(2))


@pytest.mark.asyncio
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
async def test_a_pipeline_has_the_gradients_of_one_process(schedule: str) -> None:
    engine = Engine(3)
    async with world_of(engine) as world:
        stages = [await world.remote(rank, Layer, rank) for rank in range(3)]
        pipeline = Pipeline(stages, microbatches=4, schedule=schedule)
        layers = [Layer(rank) for rank in range(3)]
        x, target = data()
        x.requires_grad_()
        mine = x.detach().requires_grad_()
        for _ in range(2):
            loss = await pipeline.step(x, target, mean_square)
            total = 0.0
            for start, stop in ((0, 2), (2, 5), (5, 7), (7, 10)):
                y = mine[start:stop]
                for layer in layers:
                    y = layer(y)
                part = mean_square(y, target[start:stop]) * ((stop - start) / 10)
                await part.backward()
                total += part.item()
            np.testing.assert_allclose(loss.item(), total, rtol=1e-14)
            found = [(await stage.apply(gradients))[0] for stage in stages]
            for one, layer in zip(found, layers, strict=True):
                np.testing.assert_allclose(one, layer.weight.grad.numpy(), rtol=1e-12)
            np.testing.assert_allclose(x.grad.numpy(), mine.grad.numpy(), rtol=1e-12)
        # Neither activations nor gradients between stages pass through the caller. For each
        # micro-batch it sends each stage two messages: what is spent needs no third. With "1f1b"
        # one message asks the last stage for both.
        counted = Counter(method for sender, method, _ in engine.log if sender == -1)
        assert counted["forward"] == 2 * 4 * 3
        assert counted["backward"] == 2 * 4 * (2 if schedule == "1f1b" else 3)
        assert counted["fetch"] == counted["release"] == 0
        kept = await world.statistics()
        while any(one["calls"] or one["passes"] for one in kept):
            kept = await world.statistics()


@pytest.mark.asyncio
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
async def test_stages_compute_one_micro_batch_at_a_time(schedule: str) -> None:
    engine = Engine(2)
    async with world_of(engine) as world:
        stages = [await world.remote(rank, Watched) for rank in range(2)]
        x, target = data()
        pipeline = Pipeline(stages, microbatches=6, schedule=schedule)
        x.requires_grad_()
        await pipeline.step(x, target, mean_square)
        modules = [engine.part(stage) for stage in stages]
        assert [module.most for module in modules] == [1, 1]
        log = "".join(modules[-1].log)
        if schedule == "gpipe":
            assert log == "f" * 6 + "b" * 6
        else:
            assert log == "fb" * 6
            assert modules[-1].most_kept == 1
            assert max(module.most_kept for module in modules) <= 3


class Counting(Layer):
    """Keeps a running mean, as a BatchNorm does, so that the order of what it is given matters."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.register_buffer("mean", ag.zeros(3, dtype=ag.float64))

    def forward(self, x: Any) -> Any:
        self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return super().forward(x)


def mean_of(module: Counting) -> Any:
    return module.mean.tolist()


@pytest.mark.asyncio
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("frozen", [False, True])
async def test_micro_batches_enter_a_stage_in_order_whichever_message_comes_first(
    schedule: str, frozen: bool
) -> None:
    """Buffers, and random numbers, would otherwise be others in each run."""
    turn = random.Random(4)
    async with world_of(Engine(3, lambda most: turn.randrange(most + 1))) as world:
        stages = [await world.remote(rank, Counting, rank) for rank in (0, 1, 2)]
        stages.append(stages[0])
        if frozen:
            await stages[0].apply(freeze)
        pipeline = Pipeline(stages, microbatches=5, schedule=schedule)
        layers = [Counting(rank) for rank in (0, 1, 2)]
        x, target = data()
        for _ in range(3):
            await pipeline.step(x, target, mean_square)
            for start in range(0, 10, 2):
                y = x[start : start + 2]
                for layer in layers:
                    y = layer(y)
        found = [await stage.apply(mean_of) for stage in stages[1:3]]
        assert found == [layer.mean.tolist() for layer in layers[1:]]
        while any(one["calls"] or one["passes"] for one in await world.statistics()):
            pass


class Asked(ag.nn.Module):
    """Notes what its passes are told."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[Any] = set()

    def forward(self, x: Any) -> Any:
        y = x * 1.0
        y.register_hook(self.note)
        return y

    def note(self, gradient: Any) -> None:
        running = graph.current_pass()
        assert running is not None
        self.asked.add((running.priority, running.deadline is not None))


@pytest.mark.asyncio
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
async def test_a_request_holds_for_the_passes_of_all_stages(schedule: str) -> None:
    engine = Engine(2)
    async with world_of(engine) as world:
        stages = [await world.remote(rank, Asked) for rank in range(2)]
        x, target = data()
        x.requires_grad_()
        pipeline = Pipeline(stages, microbatches=2, schedule=schedule)
        now = asyncio.get_running_loop().time()
        with ag.request(priority=3, deadline=now + 1_000):
            await pipeline.step(x, target, mean_square)
        assert [engine.part(stage).asked for stage in stages] == [{(3, True)}] * 2
        with ag.request(deadline=now), pytest.raises(TimeoutError):
            await pipeline.step(x, target, mean_square)


@pytest.mark.asyncio
async def test_gradients_are_added_up_as_passes_end() -> None:
    """A worker keeps those of the passes that run, not those of all micro-batches."""
    engine, most = Engine(2), 0

    def notice(rank: int, message: Any) -> None:
        nonlocal most
        for host in engine.hosts:
            for staged in host._staged.values():
                most = max(most, len(staged.gradients._parts))

    engine.on_message = notice
    async with world_of(engine) as world:
        stages = [await world.remote(rank, Layer, rank) for rank in range(2)]
        x, target = data(24)
        await Pipeline(stages, microbatches=12).step(x, target, mean_square)
        assert 0 < most <= 4


@pytest.mark.asyncio
async def test_a_step_that_fails_or_is_too_late_commits_nothing() -> None:
    engine = Engine(2)
    async with world_of(engine) as world:
        good, bad = await world.remote(0, Layer, 0), await world.remote(1, Failing, "backward")
        x, target = data()
        with pytest.raises(ValueError, match="planned"):
            await Pipeline([good, bad]).step(x, target, mean_square)
        with pytest.raises(RuntimeError, match="one element"):
            await Pipeline([good]).step(x, target, no_scalar)
        with pytest.raises(TimeoutError):
            await Pipeline([good]).step(x, target, mean_square, deadline=0.0)
        pipeline = Pipeline([good], microbatches=2)
        step = asyncio.create_task(pipeline.step(x, target, mean_square))
        engine.on_message = lambda rank, message: (
            step.cancel() if message.method == "prepare" else None
        )
        with pytest.raises(asyncio.CancelledError):
            await step
        engine.on_message = lambda rank, message: None
        assert await good.apply(gradients) == [None]
        await pipeline.step(x, target, mean_square)
        assert await good.apply(gradients) != [None]


class Weighted(ag.nn.Module):
    """A loss with a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = ag.nn.Parameter(ag.tensor(2.0, dtype=ag.float64))

    def forward(self, found: ag.Tensor, target: ag.Tensor) -> ag.Tensor:
        return self.weight * mean_square(found, target)


@pytest.mark.asyncio
async def test_parameters_of_a_loss_do_not_lose_their_gradients() -> None:
    async with world_of(Engine(1)) as world:
        pipeline = Pipeline([await world.remote(0, Layer, 0)], microbatches=2)
        x, target = data()
        loss = Weighted()
        with pytest.raises(RuntimeError, match="loss function, a Weighted, require grad"):
            await pipeline.step(x, target, loss)
        weighted = await pipeline.step(x, target, loss.requires_grad_(False))
        assert weighted == 2 * await pipeline.step(x, target, mean_square)


@pytest.mark.asyncio
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize(
    "loss_fn",
    [
        ag.nn.MSELoss(reduction="sum"),
        functools.partial(ag.nn.functional.mse_loss, reduction="sum"),
        functools.partial(ag.nn.MSELoss(reduction="sum").forward),
        ag.nn.functional.mse_loss,
    ],
    ids=["module", "partial", "partial of a method", "mean"],
)
async def test_micro_batches_add_up_to_the_loss_of_the_batch(schedule: str, loss_fn: Any) -> None:
    """Of a sum no share is taken: it would be neither the sum of the batch nor its mean."""
    x, target = data()
    here = Layer(0)
    expected = loss_fn(here(x), target)
    await expected.backward()
    async with world_of(Engine(1)) as world:
        stage = await world.remote(0, Layer, 0)
        pipeline = Pipeline([stage], microbatches=3, schedule=schedule)
        loss = await pipeline.step(x, target, loss_fn)
        assert loss.item() == pytest.approx(expected.item())
        for found, own in zip(await stage.apply(gradients), gradients(here), strict=True):
            np.testing.assert_allclose(found, own)


@pytest.mark.asyncio
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
async def test_a_batch_may_have_several_inputs_and_targets(schedule: str) -> None:
    async with world_of(Engine(1)) as world:
        stage, here = await world.remote(0, Pair, 0), Pair(0)
        x, y = data()
        y.requires_grad_()
        given, targets = {"x": x, "y": y}, (x * 2, x * 3)
        pipeline = Pipeline([stage], microbatches=2, schedule=schedule)
        loss = await pipeline.step(given, targets, of_both)
        both, gradient, y.grad = 0, y.grad, None
        for rows in (slice(0, 5), slice(5, 10)):
            part = of_both(here({"x": x[rows], "y": y[rows]}), [one[rows] for one in targets]) / 2
            await part.backward()
            both += part.item()
        assert loss.item() == both
        assert gradient.tolist() == y.grad.tolist()
        assert await stage.apply(gradients) == gradients(here)


@pytest.mark.asyncio
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("end", ["cancel", "kill", "error", "stop"])
async def test_a_step_that_ends_at_any_message_commits_everywhere_or_nowhere(
    schedule: str, end: str
) -> None:
    place = 0
    while await struck(schedule, end, place):
        place += 1
    assert place > 20


async def struck(schedule: str, end: str, place: int) -> bool:
    """End a step at its message of some number; False if it sends fewer."""
    engine, seen, ended = Engine(3), 0, False
    async with world_of(engine, grace=0.05 if end == "stop" else 5.0) as world:
        stages = [await world.remote(rank, Layer, rank) for rank in range(3)]
        x, target = data(4)
        x.requires_grad_()
        pipeline = Pipeline(stages, microbatches=2, schedule=schedule)
        await pipeline.step(x, target, mean_square)
        before = [await stage.apply(gradients) for stage in stages]
        own = x.grad.tolist()
        step = asyncio.create_task(pipeline.step(x, target, mean_square))

        async def fail() -> None:
            raise OSError("planned")

        def strike(rank: int, message: Any) -> Any:
            nonlocal seen, ended
            seen += 1
            if step.done() or seen != place + 1:
                return None
            ended = True
            if end == "kill":
                engine.kill(2)
            elif end == "error":
                return fail()
            else:
                if end == "stop":
                    engine.stop(rank)
                step.cancel()
            return None

        engine.on_message = strike
        (error,) = await asyncio.gather(step, return_exceptions=True)
        engine.on_message = lambda rank, message: None
        for rank in tuple(engine.stopped):
            engine.wake(rank)
        living = [rank for rank in range(3) if rank not in engine.dead | world.lost.keys()]
        changed = {await stages[rank].apply(gradients) != before[rank] for rank in living}
        # All or none; and none, if the step raised an error.
        assert changed == {x.grad.tolist() != own}
        assert changed == {False} or not isinstance(error, Exception)
        while any(kept["passes"] for kept in await world.statistics() if kept):
            assert end == "stop"
            await asyncio.sleep(0)
    return ended


@pytest.mark.usefixtures("no_collector")
@pytest.mark.asyncio
async def test_a_step_that_has_failed_leaves_nothing_to_the_garbage_collector() -> None:
    engine = Engine(2)
    async with world_of(engine) as world:
        stages = [await world.remote(0, Layer, 0), await world.remote(1, Failing, "forward")]
        x, target = data()
        with suppress(ValueError):
            await Pipeline(stages).step(x, target, mean_square)
        for _ in range(300):
            await asyncio.sleep(0)
        assert [one["calls"] for one in await world.statistics()] == [0, 0]


@pytest.mark.usefixtures("no_collector")
@pytest.mark.asyncio
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
async def test_a_step_that_is_too_late_leaves_nothing_to_the_garbage_collector(
    schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its calls have computed would stay on the workers until the caller collects."""
    engine = Engine(2)
    async with world_of(engine, grace=0.05) as world:
        stages = [await world.remote(rank, Layer, rank) for rank in range(2)]
        pipeline = Pipeline(stages, microbatches=2, schedule=schedule)
        x, target = data()
        loop, limits = asyncio.get_running_loop(), list[asyncio.Timeout]()
        deadline = loop.time() + 1_000

        def noted(limit: asyncio.Timeout, when: float | None) -> None:
            if when == deadline:
                limits.append(limit)

        monkeypatch.setattr(errors, "end_at", noted)

        def hang(rank: int, message: Any) -> None:
            if message.method == "deposit" and not engine.stopped:
                engine.stop(0)
                limits[0].reschedule(loop.time())

        engine.on_message = hang
        step = asyncio.create_task(pipeline.step(x, target, mean_square, deadline=deadline))
        with pytest.raises(TimeoutError, match=r"Pipeline\.step did not end by its deadline"):
            await step
        limits.clear()
        del step
        engine.on_message = lambda rank, message: None
        engine.wake(0)
        for _ in range(500):
            await asyncio.sleep(0)
        found = [host._entries for host in engine.hosts]
        assert found == [{}, {}]


@pytest.mark.asyncio
async def test_a_deadline_that_passes_while_all_commit_comes_too_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(1)
    async with world_of(engine) as world:
        stage = await world.remote(0, Layer, 0)
        x, target = data()
        loop = asyncio.get_running_loop()
        timeouts: list[asyncio.Timeout] = []
        deadline = loop.time() + 1_000

        def noted(limit: asyncio.Timeout, when: float | None) -> None:
            if when == deadline:
                timeouts.append(limit)

        async def pass_the_deadline(rank: int, message: Any) -> None:
            if message.method == "commit":
                (timeout,) = timeouts
                timeout.reschedule(loop.time())
                # The loop's next turn cancels the step.
                await asyncio.sleep(0)

        monkeypatch.setattr(errors, "end_at", noted)
        engine.on_message = pass_the_deadline
        loss = await Pipeline([stage]).step(x, target, mean_square, deadline=deadline)
        assert timeouts[0].expired()
        assert loss.item() > 0
        assert await stage.apply(gradients) != [None]


@pytest.mark.asyncio
async def test_arguments_that_make_no_sense_raise() -> None:
    async with world_of(Engine(1)) as world:
        stage = await world.remote(0, Layer, 0)
        for arguments, kind in (
            ({"stages": [stage], "schedule": "zigzag"}, ValueError),
            ({"stages": []}, ValueError),
            ({"stages": [stage], "microbatches": 0}, ValueError),
            ({"stages": [Layer(0)]}, TypeError),
            ({"stages": [stage], "microbatches": 2.5}, TypeError),
        ):
            with pytest.raises(kind, match=r"Pipeline|integer"):
                Pipeline(**arguments)
        x, target = data(4)
        for given in (
            (x, target),
            (x.sum(), target),
            (x, target[:2]),
            (x, (target, x[:2])),
            ((), ()),
        ):
            with pytest.raises(ValueError, match="as many"):
                await Pipeline([stage]).step(*given, mean_square)
        x, target = data()
        for given in ((x, None), (x.numpy(), target), (x, [target, 3])):
            with pytest.raises(TypeError, match="are Tensors, not"):
                await Pipeline([stage]).step(*given, mean_square)
        leaf = x.detach().requires_grad_()
        for given in ((leaf * 2, target), (x, leaf.sum(1, keepdim=True) * target)):
            with pytest.raises(RuntimeError, match="each micro-batch's pass"):
                await Pipeline([stage], microbatches=2).step(*given, mean_square)
        await Pipeline([stage], microbatches=2).step(leaf, target, mean_square)
        assert leaf.grad is not None
