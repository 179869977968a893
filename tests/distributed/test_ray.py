"""The same on a Ray cluster, which proves the border to the engine."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import pytest
from models import Affine, gradients, train
from worlds import leaf, passes_as_one_process

import asyncgrad as ag
from asyncgrad import distributed as dist

ray = pytest.importorskip("ray", reason="Ray is not installed")

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    with pytest.raises(RuntimeError, match=r"ray\.init\(\) first"):
        dist.RayEngine(2)
    here = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": here}},
    )
    yield
    ray.shutdown()


def pid_of(module: object) -> int:
    return os.getpid()


async def passes() -> None:
    async with dist.connect(dist.RayEngine(workers=2)) as world:
        await passes_as_one_process(world)
        # Large enough for Ray's store, whose arrays nobody may write to.
        optimizer = await world.optimizer(
            ag.optim.SGD, [await world.remote(1, Affine, 1.0, 100_000)], lr=0.1
        )
        await optimizer.load_state_dict(await optimizer.state_dict())
        losses = await world.run(train, 200)
        assert losses[0] == losses[1]
        assert [one["working"] for one in await world.statistics()] == [0, 0]


def test_a_world_on_ray_passes_as_one_on_dask() -> None:
    asyncio.run(passes())


async def killed() -> None:
    async with dist.connect(dist.RayEngine(workers=2)) as world:
        parts = [await world.remote(rank, Affine) for rank in range(2)]
        x = leaf()
        loss = (await parts[1](parts[0](x))).sum()
        os.kill(await parts[0].apply(pid_of), signal.SIGKILL)
        with pytest.raises(dist.WorkerLostError) as caught:
            await loss.backward()
        assert caught.value.rank == 0
        assert x.grad is None
        assert await parts[1].apply(gradients) == [None, None]
        assert set(world.lost) == {0}
        y = leaf()
        await (await parts[1](y)).sum().backward()
        assert y.grad is not None


def test_a_killed_process_is_noticed_and_nothing_is_committed() -> None:
    asyncio.run(killed())


async def noticed() -> None:
    """Also while nothing is asked of it."""
    engine = dist.RayEngine(workers=1)
    async with dist.connect(engine) as world:
        part = await world.remote(0, Affine)
        os.kill(await part.apply(pid_of), signal.SIGKILL)
        await engine.lost(0)
        assert set(world.lost) == {0}
    with pytest.raises(RuntimeError, match="can't be used any more"):
        await part(leaf())


def test_a_death_is_noticed_without_a_call() -> None:
    asyncio.run(noticed())
