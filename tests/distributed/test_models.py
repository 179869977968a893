"""Usual models over workers have the bits of one process; uses that are cancelled leave nothing."""

from __future__ import annotations

import asyncio
import gc
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from deterministic import Engine, world_of
from models import Affine, Outer, mean_square

import asyncgrad as ag
from asyncgrad import distributed as dist
from asyncgrad import nn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from asyncgrad.distributed import World

F = nn.functional


def shaken(count: int, seed: int) -> Engine:
    """An engine that delays and doubles messages."""
    turn = random.Random(seed)
    return Engine(count, lambda most: turn.randrange(most + 1))


def state_of(module: Any) -> dict[str, Any]:
    gradients = {name: p.grad for name, p in module.named_parameters()}
    return {f"gradient of {name}": g for name, g in gradients.items()} | module.state_dict()


async def check_equal(parts: list[Any], own: list[Any]) -> None:
    for part, module in zip(parts, own, strict=True):
        found, expected = await part.apply(state_of), state_of(module)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            if value is None:
                assert found[name] is None
            else:
                np.testing.assert_array_equal(found[name].numpy(), value.detach().numpy(), name)


class Block(nn.Module):
    """A residual block whose activations work in place."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        ag.manual_seed(seed)
        self.layers = nn.Sequential(
            nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(inplace=True),
            nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3),
        )  # fmt: skip
        self.last = nn.ReLU(inplace=True)
        self.double()

    def forward(self, x: Any) -> Any:
        return self.last(self.layers(x) + x)


@pytest.mark.asyncio
async def test_blocks_with_running_statistics_train_and_are_evaluated() -> None:
    async with world_of(shaken(3, 1)) as world:
        parts = [await world.remote(seed % 3, Block, seed) for seed in range(4)]
        own = [Block(seed) for seed in range(4)]
        optimizer = await world.optimizer(ag.optim.AdamW, parts, lr=0.01)
        mine = ag.optim.AdamW([p for module in own for p in module.parameters()], lr=0.01)
        x = ag.tensor(np.random.default_rng(1).normal(size=(4, 3, 5, 5)))
        for _ in range(3):
            y: Any = x
            z = x
            for part, module in zip(parts, own, strict=True):
                y, z = part(y), module(z)
            loss = (await y).square().mean()
            assert loss.item() == z.square().mean().item()
            await loss.backward()
            await z.square().mean().backward()
            await check_equal(parts, own)
            await optimizer.step_async()
            await optimizer.zero_grad()
            await mine.step_async()
            mine.zero_grad()
            await check_equal(parts, own)
        states = [await part.apply(nn.Module.state_dict) for part in parts]
        fresh = [await world.remote(0, Block, 9) for _ in parts]
        y = x
        for part, state, module in zip(fresh, states, own, strict=True):
            await part.apply(nn.Module.load_state_dict, state)
            assert await part.apply(nn.Module.eval) is part
            module.eval()
            y = part(y)
        for module in own:
            x = module(x)
        np.testing.assert_array_equal((await y).detach().numpy(), x.detach().numpy())


class Tokens(nn.Module):
    """An embedding whose weight is that of the last layer, too."""

    def __init__(self) -> None:
        super().__init__()
        ag.manual_seed(0)
        self.embedding = nn.Embedding(11, 8)
        self.double()

    def forward(self, tokens: Any, *, last: Any = None) -> Any:
        return self.embedding(tokens) if last is None else last @ self.embedding.weight.T


class Layers(nn.Module):
    """A transformer."""

    def __init__(self) -> None:
        super().__init__()
        ag.manual_seed(1)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.double()

    def forward(self, x: Any, mask: Any) -> Any:
        return self.layer(x, src_mask=mask)


@pytest.mark.asyncio
async def test_a_weight_is_shared_by_calls_of_one_part_around_another() -> None:
    async with world_of(shaken(2, 2)) as world:
        parts = [await world.remote(0, Tokens), await world.remote(1, Layers)]
        own = [Tokens(), Layers()]
        mask = nn.Transformer.generate_square_subsequent_mask(5).double()
        tokens = ag.tensor(np.arange(10).reshape(2, 5))
        for _ in range(2):
            found = parts[0](tokens, last=parts[1](parts[0](tokens), mask))
            loss = F.cross_entropy((await found).reshape(-1, 11), tokens.reshape(-1))
            await loss.backward()
            mine = own[0](tokens, last=own[1](own[0](tokens), mask))
            await F.cross_entropy(mine.reshape(-1, 11), tokens.reshape(-1)).backward()
            await check_equal(parts, own)


class Recurrent(nn.LSTM):
    """Two layers with dropout between them."""

    def __init__(self) -> None:
        ag.manual_seed(2)
        super().__init__(8, 4, num_layers=2, dropout=0.5, batch_first=True)
        self.double()


def seed(module: Any, number: int) -> None:
    ag.manual_seed(number)


@pytest.mark.asyncio
async def test_states_and_random_numbers_of_a_recurrent_part_go_on() -> None:
    async with world_of(shaken(2, 3)) as world:
        parts = [await world.remote(0, Tokens), await world.remote(1, Recurrent)]
        own = [Tokens(), Recurrent()]
        tokens = ag.tensor(np.arange(10).reshape(2, 5))
        await parts[1].apply(seed, 5)
        y, state = await parts[1](parts[0](tokens))
        y_2, _ = await parts[1](parts[0](tokens), state)
        await (y.sum() + y_2.square().sum()).backward()
        ag.manual_seed(5)
        z, state = own[1](own[0](tokens))
        z_2, _ = own[1](own[0](tokens), state)
        await (z.sum() + z_2.square().sum()).backward()
        await check_equal(parts, own)


# -- cancelled at any turn of the loop ----------------------------------------


def rows() -> ag.Tensor:
    return ag.ones(4, 3, dtype=ag.float64)


def total(model: Any, x: Any) -> Any:
    return model(x).sum()


async def trained_together() -> None:
    model = await dist.nn.parallel.DistributedDataParallel(Affine(), bucket_cap_mb=1e-6)
    optimizer = dist.optim.ZeroRedundancyOptimizer(model.parameters(), ag.optim.Adam, lr=0.1)
    await model(rows()).sum().backward()
    await optimizer.step_async()


async def optimized(world: World, parts: list[Any], path: Path) -> None:
    optimizer = await world.optimizer(ag.optim.Adam, parts, lr=0.1)
    await (await parts[1](parts[0](rows()))).sum().backward()
    await optimizer.clip_grad_norm_(0.1)
    await optimizer.step_async()
    await optimizer.load_state_dict(await optimizer.state_dict())


async def replicated(world: World, parts: list[Any], path: Path) -> None:
    model = await world.replicate(Affine, bucket_cap_mb=1e-6)
    await model.forward_backward(total, [(rows(),), None])


async def run(world: World, parts: list[Any], path: Path) -> None:
    await world.run(trained_together)


async def piped(world: World, parts: list[Any], path: Path) -> None:
    await dist.pipelining.Pipeline(parts, microbatches=2).step(rows(), rows(), mean_square)


async def nested(world: World, parts: list[Any], path: Path) -> None:
    outer = await world.remote(0, Outer, parts[1])
    async with dist.autograd.context():
        for _ in range(2):
            await (await outer(parts[0](rows()))).sum().backward()


async def traced(world: World, parts: list[Any], path: Path) -> None:
    async with world.trace_passes(path / "passes.json"):
        await (await parts[1](parts[0](rows()))).sum().backward()
    await world.metrics()


USES: list[Callable[[World, list[Any], Path], Awaitable[None]]]
USES = [optimized, replicated, run, piped, nested, traced]


@pytest.mark.asyncio
@pytest.mark.parametrize("use", USES)
async def test_a_use_cancelled_at_any_turn_leaves_nothing(use: Any, tmp_path: Path) -> None:
    turns, has_ended = 0, False
    while not has_ended:
        engine = shaken(2, turns)
        async with world_of(engine) as world:
            parts = [await world.remote(rank, Affine) for rank in range(2)]
            task = asyncio.ensure_future(use(world, parts, tmp_path))
            for _ in range(turns):
                await asyncio.sleep(0)
            has_ended = task.done()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            assert not world.lost
            scales = [engine.part(part).scale.grad is None for part in parts]
            assert len(set(scales)) == 1
            clean = {"parts": 1, "calls": 0, "passes": 0, "optimizers": 0, "runs": 0, "working": 0}
            async with asyncio.timeout(20):
                while [await host.on_statistics() for host in engine.hosts] != [clean, clean]:
                    gc.collect()
                    for _ in range(20):
                        await asyncio.sleep(0)
        turns += 11
