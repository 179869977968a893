"""Steps of a replicated model that come at the same time, or whose loss leaves the model out."""

from __future__ import annotations

import asyncio
import gc
import random
from contextlib import nullcontext
from typing import Any

import pytest
from deterministic import Engine, world_of
from hypothesis import given, settings
from hypothesis import strategies as st
from models import Affine, gradients

import asyncgrad as ag
from asyncgrad import distributed as dist
from asyncgrad.autograd import graph


def rows() -> Any:
    return ag.ones(2, 3, dtype=ag.float64)


def make_affine() -> Affine:
    return Affine()


async def waits_before_and_after(model: Any, x: Any, before: int, after: int) -> Any:
    for _ in range(before):
        await asyncio.sleep(0)
    y = model(x)
    for _ in range(after):
        await asyncio.sleep(0)
    return y.sum()


async def two_steps(rng: random.Random, *, in_turn: bool) -> tuple[int, list[Any]]:
    """How many of two steps at the same time succeed, and each worker's gradients."""
    async with world_of(Engine(2, lambda most: rng.randint(0, most))) as world:
        model = await world.replicate(make_affine, bucket_cap_mb=1e-6)
        if not in_turn:
            # As if a worker that has hung took the messages of both.
            model._turn = nullcontext()  # type: ignore[assignment]
        steps = [
            model.forward_backward(
                waits_before_and_after,
                [(rows(), rng.randint(0, 30), rng.randint(0, 30)) for _ in range(2)],
            )
            for _ in range(2)
        ]
        found = await asyncio.gather(*steps, return_exceptions=True)
        errors = [one for one in found if isinstance(one, BaseException)]
        assert all(isinstance(error, RuntimeError) for error in errors), errors
        return 2 - len(errors), [await part.apply(gradients) for part in model.parts]


async def gradients_of(steps: int) -> Any:
    module = Affine()
    for _ in range(steps):
        await module(rows()).sum().backward()
    return gradients(module)


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.booleans())
def test_of_steps_at_the_same_time_those_that_succeed_are_committed(
    seed: int, in_turn: bool
) -> None:
    done, found = asyncio.run(two_steps(random.Random(seed), in_turn=in_turn))
    assert found == [asyncio.run(gradients_of(done))] * 2
    if in_turn:
        assert done == 2


def leaves_the_model_out(model: Any, x: Any) -> Any:
    own = ag.ones(3, dtype=ag.float64, requires_grad=True)
    return own.sum() if dist.get_rank() == 1 else model(x).sum()


@pytest.mark.asyncio
async def test_a_loss_without_the_model_is_an_error_and_keeps_nobody_waiting() -> None:
    async with world_of(Engine(2)) as world:
        model = await world.replicate(make_affine)
        shards = [(rows(),)] * 2
        with pytest.raises(RuntimeError, match="depends on no parameter of the model"):
            await model.forward_backward(leaves_the_model_out, shards)
        assert [await part.apply(gradients) for part in model.parts] == [[None, None]] * 2
        await model.forward_backward(waits_before_and_after, [(rows(), 0, 0)] * 2)
        found = [await part.apply(gradients) for part in model.parts]
        assert found == [await gradients_of(1)] * 2


@pytest.mark.asyncio
async def test_a_pass_through_one_copy_says_so_and_does_not_wait_for_the_others() -> None:
    async with world_of(Engine(2)) as world:
        model = await world.replicate(make_affine)
        y = await model.parts[0](rows())
        with pytest.raises(RuntimeError, match="one copy of a replicated model"):
            await y.sum().backward()
        await model.forward_backward(waits_before_and_after, [(rows(), 0, 0)] * 2)
        found = [await part.apply(gradients) for part in model.parts]
        assert found == [await gradients_of(1)] * 2


_copies: dict[int, Any] = {}


def remembers(module: Any, rank: int) -> None:
    _copies[rank] = module


def uses_another_model(model: Any, x: Any) -> Any:
    return _copies[dist.get_rank()](x).sum()


@pytest.mark.asyncio
async def test_a_pass_is_not_that_of_another_model_whose_copy_is_at_hand() -> None:
    async with world_of(Engine(2)) as world:
        model, other = [await world.replicate(make_affine) for _ in range(2)]
        for rank, part in enumerate(other.parts):
            await part.apply(remembers, rank)
        try:
            with pytest.raises(RuntimeError, match="one copy of a replicated model"):
                await model.forward_backward(uses_another_model, [(rows(),)] * 2)
        finally:
            _copies.clear()
        for part in (*model.parts, *other.parts):
            assert await part.apply(gradients) == [None, None]


async def notes_its_pass(model: Any, x: Any) -> Any:
    def note(gradient: Any) -> None:
        running = graph.current_pass()
        assert running is not None
        if (running.priority, running.deadline is not None) != (3, True):
            raise ValueError(f"a pass has {running}")

    y = model(x)
    y.register_hook(note)
    return y.sum()


@pytest.mark.asyncio
async def test_a_request_holds_for_a_step_on_all_workers() -> None:
    async with world_of(Engine(2)) as world:
        model = await world.replicate(make_affine)
        shards = [(rows(),)] * 2
        now = asyncio.get_running_loop().time()
        with ag.request(priority=3, deadline=now + 1_000):
            await model.forward_backward(notes_its_pass, shards)
        with pytest.raises(ValueError, match="a pass has"):
            await model.forward_backward(notes_its_pass, shards)
        with ag.request(deadline=now), pytest.raises(TimeoutError, match="forward_backward"):
            await model.forward_backward(notes_its_pass, shards)


def sum_of(model: Any, x: Any) -> Any:
    return model(x).sum()


@pytest.mark.asyncio
async def test_of_a_models_copies_one_counts_for_the_norm() -> None:
    async with world_of(Engine(3)) as world:
        model = await world.replicate(make_affine)
        part, own = await world.remote(1, Affine), Affine()
        optimizer = await world.optimizer(ag.optim.SGD, [own, part, *model.parts], lr=0.1)
        await model.forward_backward(sum_of, [(rows(),)] * 3)
        await (own(rows()) + await part(rows())).sum().backward()
        here = [Affine() for _ in range(3)]
        await sum(module(rows()) for module in here).sum().backward()
        norm = ag.nn.utils.clip_grad_norm_([p for m in here for p in m.parameters()], 0.1)
        assert (await optimizer.clip_grad_norm_(0.1)).item() == pytest.approx(norm.item())
        for clipped in (model.parts[0], model.parts[2], part):
            for found, wanted in zip(
                await clipped.apply(gradients), gradients(here[1]), strict=True
            ):
                assert found == pytest.approx(wanted)


@pytest.mark.asyncio
async def test_copies_count_once_also_when_the_caller_has_dropped_the_model() -> None:
    engine = Engine(2)
    async with world_of(engine) as world:
        model = await world.replicate(make_affine)
        optimizer = await world.optimizer(ag.optim.SGD, model.parts, lr=0.1)
        await model.forward_backward(sum_of, [(rows(),)] * 2)
        norm = await optimizer.clip_grad_norm_(100.0)
        del model
        while sum(found["runs"] for found in await world.statistics() if found):
            gc.collect()
        assert (await optimizer.clip_grad_norm_(100.0)).item() == norm.item()
