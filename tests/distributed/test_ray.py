"""The same on a Ray cluster, which proves the border to the engine."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from models import Affine, pid_of, train
from process_faults import AtEachMessage, Model
from worlds import leaf, passes_as_one_process

import asyncgrad as ag
from asyncgrad import distributed as dist
from asyncgrad.distributed.ray_engine import RayPeers

ray = pytest.importorskip("ray", reason="Ray is not installed")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


async def misused() -> None:
    engine = dist.RayEngine(workers=1)
    async with dist.connect(engine) as world:
        with pytest.raises(RuntimeError, match="used by another world"):
            async with dist.connect(engine):
                pass
        assert (await world.remote(0, Affine)).rank == 0
    # Ray waits for room, and who does not want to wait cancels that.
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0), dist.connect(dist.RayEngine(1, num_cpus=1_000)):
            pass
    with pytest.raises(ValueError, match="at least one"):
        dist.RayEngine(0)


def test_a_ray_engine_is_of_one_world_and_waits_for_room() -> None:
    asyncio.run(misused())


@pytest.fixture(autouse=True)
def _untrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traps are taken away after each test."""
    monkeypatch.setattr(dist.RayEngine, "call", RayPeers.call)


class TestFaults(AtEachMessage):
    def run(self, what: Callable[..., Any], *args: Any, workers: int = 2) -> None:
        async def main() -> None:
            async with dist.connect(dist.RayEngine(workers), grace=self.grace) as world:
                await what(Model(world, dist.RayEngine, RayPeers), *args)

        asyncio.run(asyncio.wait_for(main(), 120))


def test_a_world_on_ray_passes_as_one_on_dask() -> None:
    asyncio.run(passes())


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
