"""The same on a Dask cluster: real processes, killed, stopped and woken."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import re
import shutil
import signal
import subprocess
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest

import asyncgrad as ag
from asyncgrad import distributed as dist

pytest.importorskip("distributed", reason="Dask distributed is not installed")

import cloudpickle
from clusters import cluster
from distributed import Client, LocalCluster
from distributed.security import Security
from models import Affine, Held, gradients, mean_square, pid_of, refuses, train
from process_faults import AtEachMessage, Model, killed
from reference_examples import run_examples
from tornado.iostream import IOStream
from worlds import leaf, passes_as_one_process

from asyncgrad.distributed import dask_engine
from asyncgrad.distributed.dask_engine import DaskEngine, DaskPeers
from asyncgrad.distributed.host import Host

if TYPE_CHECKING:
    from collections.abc import Iterator

# Dask's own, at the end of processes that were killed.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def _nothing_of_dask_left() -> Iterator[None]:
    """Its connections to killed processes are collected here, and not in another test."""
    yield
    gc.collect()


def test_a_cluster_without_workers_is_told_to_wait_for_some() -> None:
    async def main() -> None:
        async with cluster(0, processes=False) as client:
            with pytest.raises(ValueError, match=r"await client\.wait_for_workers\(1\)"):
                async with dist.connect(client):
                    pass

    asyncio.run(main())


async def refused(client: Any) -> None:
    async with dist.connect(client) as world:
        sent = ag.zeros(1)
        with suppress(ValueError):
            await world.remote(0, refuses, sent)
        found = weakref.ref(sent)
        del sent
        assert found() is None


@pytest.mark.usefixtures("no_collector")
def test_an_error_of_a_worker_leaves_nothing_to_the_garbage_collector() -> None:
    """Dask has it bring a traceback, whose frames have what was sent."""

    async def main() -> None:
        async with cluster(1, processes=False) as client:
            await refused(client)

    asyncio.run(main())


def test_workers_whose_names_are_numbers_have_ranks_in_their_order() -> None:
    known = {f"tcp://{name}": {"name": name} for name in range(12)}
    assert dask_engine._chosen(known, None) == list(known)


async def in_one_process() -> None:
    async with cluster(2, processes=False) as client:
        async with dist.connect(client, workers=2) as world:
            with pytest.raises(RuntimeError, match="used by another world"):
                async with dist.connect(client):
                    pass
            await passes_as_one_process(world)
            # An array that arrives is the worker's own.
            kept = ag.zeros(3, dtype=ag.float64)
            part = await world.remote(0, _Adds, kept)
            assert (await part(ag.ones(3, dtype=ag.float64))).tolist() == [1.0] * 3
            assert kept.tolist() == [0.0] * 3
        with pytest.raises(ValueError, match="3 workers are wanted, and the cluster has 2"):
            async with dist.connect(client, workers=3):
                pass
        with pytest.raises(ValueError, match="address or name"):
            async with dist.connect(client, workers=["nowhere"]):
                pass
        for grace in (-1.0, 0, np.nan):
            with pytest.raises(ValueError, match="a positive number of seconds"):
                async with dist.connect(client, grace=grace):
                    pass
        with pytest.raises(TypeError, match="asynchronous client"):
            async with dist.connect(object()):
                pass
        with pytest.raises(ValueError, match=r"0 workers are wanted.*one is needed"):
            async with dist.connect(client, workers=0):
                pass
        with pytest.raises(TypeError, match="expected a number of workers"):
            async with dist.connect(client, workers=1.5):
                pass
        for workers in (["1"], "1", np.int64(1)):
            async with dist.connect(client, workers=workers) as world:
                assert world.size == 1
        # The scheduler forgets the hosts.
        while [key for key in client.futures if "asyncgrad" in key]:
            await client.scheduler.identity()


class _Adds:
    def __init__(self, kept: Any) -> None:
        self.kept = kept

    def __call__(self, x: Any) -> Any:
        self.kept += 1
        return self.kept * x


def test_an_optimizer_of_a_script_is_sent_with_what_its_step_uses() -> None:
    """Its step is wrapped by a function of the package, which looks at the modes."""
    source = (
        "import asyncgrad as ag\n"
        "class Own(ag.optim.SGD):\n"
        "    def step(self, closure=None):\n"
        "        self.steps = getattr(self, 'steps', 0) + 1\n"
        "        return super().step(closure)\n"
    )
    script: dict[str, Any] = {"__name__": "__main__"}
    exec(source, script)
    kind = cloudpickle.loads(cloudpickle.dumps(script["Own"]))
    parameter = ag.ones(2, requires_grad=True)
    parameter.grad = ag.ones(2)
    optimizer = kind([parameter], lr=0.5)
    optimizer.step()
    assert (optimizer.steps, parameter.tolist()) == (1, [0.5, 0.5])
    with pytest.raises(TypeError, match=r"cannot pickle '_contextvars\.ContextVar' object"):
        cloudpickle.dumps(contextvars.ContextVar("another"))


def test_a_cluster_in_one_process() -> None:
    asyncio.run(in_one_process())


async def exchanges() -> int:
    return len(await dist.all_gather(dist.get_rank()))


async def over_sockets() -> None:
    """What asyncio calls when a socket can be read keeps the context that the socket came from."""
    async with cluster(2, processes=False, protocol="tcp://") as client:
        async with dist.connect(client, grace=0.1) as world:
            assert await world.run(exchanges) == [2, 2]
        async with asyncio.timeout(20):
            while any(type(one) is Host for one in gc.get_objects()):
                await client.scheduler.identity()
                gc.collect()


def test_connections_between_workers_keep_nothing_of_a_world() -> None:
    asyncio.run(over_sockets())


def length(module: Any, x: Any) -> int:
    return len(x)


async def large_data(monkeypatch: pytest.MonkeyPatch) -> None:
    turn, pieces = 0, []
    write = IOStream.write_to_fd

    def noted(stream: Any, data: memoryview) -> Any:
        pieces.append((turn, len(data)))
        return write(stream, data)

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async with (
        cluster(1, processes=False, protocol="tcp://") as client,
        dist.connect(client) as world,
    ):
        part = await world.remote(0, Affine)
        monkeypatch.setattr(IOStream, "write_to_fd", noted)
        counting = asyncio.create_task(count())
        assert await part.apply(length, ag.zeros(500_000)) == 500_000
        counting.cancel()
        large = [turn for turn, size in pieces if size > 10_000]
        assert sum(size for _, size in pieces) > 2_000_000
        assert max(size for _, size in pieces) <= 1 << 17
        assert len(set(large)) == len(large)


def test_others_on_the_loop_get_a_turn_between_pieces_of_large_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asyncio.run(large_data(monkeypatch))


async def hangs_at_the_start() -> None:
    async with cluster(2, processes=True) as client:
        async with dist.connect(client) as world:
            part = await world.remote(1, Affine)
            process = psutil.Process(await part.apply(pid_of))
        process.suspend()
        with pytest.raises(TimeoutError, match=r"not all workers have started within 0\.5 s"):
            async with dist.connect(client, timeout=0.5):
                pass
        process.resume()
        async with dist.connect(client) as world:
            assert world.size == 2


def test_a_worker_that_hangs_at_the_start_is_not_waited_for() -> None:
    asyncio.run(hangs_at_the_start())


DOCS = Path(__file__).parent.parent.parent / "docs" / "distributed.md"
BLOCKS = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS)
def test_the_page_runs_as_it_stands(block: str) -> None:
    assert "assert" in block
    exec(block, {})


def test_examples_of_the_reference_print_what_they_say() -> None:
    run_examples("distributed")


@pytest.mark.parametrize("lacks", [False, True])
def test_versions_are_compared(monkeypatch: pytest.MonkeyPatch, lacks: bool) -> None:
    def versions() -> dict[str, str]:
        if lacks:
            raise ModuleNotFoundError("No module named 'asyncgrad'")
        return {"asyncgrad": "another"}

    async def main() -> None:
        async with cluster(1, processes=False) as client, dist.connect(client):
            pass

    monkeypatch.setattr("asyncgrad.distributed.dask_engine.versions", versions)
    words = "can't import asyncgrad" if lacks else "has other versions than the caller"
    with pytest.raises(RuntimeError, match=words):
        asyncio.run(main())


async def with_certificates(key: str, certificate: str) -> None:
    files = {"tls_ca_file": certificate}
    for role in ("scheduler", "worker", "client"):
        files |= {f"tls_{role}_cert": certificate, f"tls_{role}_key": key}
    security = Security(require_encryption=True, **files)
    async with (
        LocalCluster(
            n_workers=2,
            processes=False,
            protocol="tls://",
            security=security,
            dashboard_address=":0",
            asynchronous=True,
            silence_logs=60,
        ) as local,
        Client(local.scheduler_address, security=security, asynchronous=True) as client,
        dist.connect(client) as world,
    ):
        assert all(address.startswith("tls://") for address in world._site._peers._addresses)
        await passes_as_one_process(world)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_client_with_certificates_uses_a_cluster_by_tls(tmp_path: Path) -> None:
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test"
    subprocess.run(
        [*make.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True
    )
    asyncio.run(with_certificates(key, certificate))


async def dies_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(2, processes=True) as client:
        compare = DaskEngine._compare

        async def kill(engine: DaskEngine) -> None:
            await compare(engine)
            address = engine._addresses[1]
            pids = await client.run(os.getpid, workers=[address])
            os.kill(pids[address], signal.SIGKILL)
            await engine.lost(1)

        monkeypatch.setattr(DaskEngine, "_compare", kill)
        with pytest.raises(dist.WorkerLostError, match="during start") as caught:
            async with dist.connect(client):
                pass
        assert caught.value.rank == 1


def test_a_worker_that_dies_at_the_start_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(asyncio.wait_for(dies_at_the_start(monkeypatch), 60))


async def closed_within() -> None:
    async with cluster(1, processes=False) as client, dist.connect(client) as world:
        part = await world.remote(0, Affine)
        await client.close()
        await part(leaf())


async def closing() -> None:
    async with cluster(2, processes=False) as client, dist.connect(client) as world:
        part = await world.remote(0, Held)
        waiting = asyncio.ensure_future(part.apply(Held.wait, None))
        while not (await world.statistics())[0]["working"]:
            pass
        await client.cluster.workers[0].close()
        with pytest.raises(dist.WorkerLostError, match=r"closed it|has removed it"):
            await waiting
        assert list(world.lost) == [0]


def test_a_worker_that_closes_is_lost_at_once() -> None:
    """It closes when its scheduler has died, too, of which the client would not learn for long."""
    asyncio.run(asyncio.wait_for(closing(), 20))


async def removing() -> None:
    heard: list[Any] = []
    async with cluster(2, processes=False) as client:
        client.subscribe_topic("all", heard.append)
        async with dist.connect(client, grace=1.0) as world:
            address = client.cluster.workers[1].address
            await client.cluster.scheduler.remove_worker(address, stimulus_id="", close=False)
            while not world.lost:  # noqa: ASYNC110  nobody announces it
                await asyncio.sleep(0)
            assert world.lost == {1: "the scheduler has removed it"}
        assert "all" in client._event_handlers
    assert address in {facts.get("worker") for _, facts in heard}


def test_a_worker_that_the_scheduler_removes_is_lost() -> None:
    """No message is on its way to it. A handler of the user's hears of it, too."""
    asyncio.run(asyncio.wait_for(removing(), 20))


_begun, _ended = asyncio.Event(), asyncio.Event()


async def waits_for_ever() -> None:
    _begun.set()
    try:
        await asyncio.Event().wait()
    finally:
        _ended.set()


async def closed_during_a_run() -> None:
    async with cluster(1, processes=False) as client:
        other = await Client(client.scheduler.address, asynchronous=True)
        async with dist.connect(other) as world:
            running = asyncio.ensure_future(world.run(waits_for_ever))
            await _begun.wait()
            # To the workers it is as if the caller's process had died.
            await other.close()
            await _ended.wait()
            with pytest.raises(dist.WorkerLostError):
                await running


async def cancelled_at_the_start() -> None:
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, facts: complaints.append(facts))
    async with cluster(2, processes=False) as client:

        async def connect() -> None:
            async with dist.connect(client):
                pass

        for turns in range(0, 60, 3):
            task = asyncio.create_task(connect())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            del task
        async with dist.connect(client) as world:
            assert all(not any(one.values()) for one in await world.statistics())
        gc.collect()
    assert complaints == []


async def beside_a_fetch_that_hangs() -> None:
    async with cluster(2, processes=False) as client:
        fetch, go_on = client._gather_remote, asyncio.Event()

        async def held(*args: Any) -> Any:
            await go_on.wait()
            return await fetch(*args)

        client._gather_remote = held
        fetching = asyncio.ensure_future(client.gather(client.submit(int)))
        async with dist.connect(client) as world:
            assert len(await world.statistics()) == 2
        go_on.set()
        assert await fetching == 0


def test_the_start_waits_for_no_fetch_of_others_which_may_be_cancelled() -> None:
    asyncio.run(asyncio.wait_for(beside_a_fetch_that_hangs(), 30))


def test_a_client_closed_within_the_world_loses_the_workers() -> None:
    with pytest.raises(dist.WorkerLostError, match="closed") as caught:
        asyncio.run(asyncio.wait_for(closed_within(), 60))
    assert any("in a world of Dask at" in note for note in caught.value.__notes__)


def test_what_runs_on_workers_ends_with_the_client() -> None:
    asyncio.run(asyncio.wait_for(closed_during_a_run(), 60))


def test_a_connect_that_is_cancelled_leaves_nothing() -> None:
    asyncio.run(asyncio.wait_for(cancelled_at_the_start(), 60))


async def with_processes() -> None:
    async with cluster(3, processes=True) as client:
        async with dist.connect(client, workers=3, grace=AtEachMessage.grace) as world:
            parts = [await world.remote(rank, Affine) for rank in range(3)]
            held = await world.remote(1, Held)
            pids = [await part.apply(pid_of) for part in parts]
            assert len({*pids, os.getpid()}) == 4
            x, y = leaf(), leaf()
            here = [Affine() for _ in parts]
            await (await parts[2](parts[1](parts[0](x)))).sum().backward()
            await here[2](here[1](here[0](y))).sum().backward()
            assert x.grad.tolist() == y.grad.tolist()
            assert [await p.apply(gradients) for p in parts] == [gradients(m) for m in here]
            gc.collect()

            # All ranks get the same bits, also of what is too large for one message each.
            results = await world.run(train, 200)
            assert len({gradient for _, gradient in results}) == 1
            assert len({loss for loss, _ in results}) == 1
            pipeline = dist.pipelining.Pipeline(parts, microbatches=4)
            rows = ag.ones(8, 3, dtype=ag.float64)
            assert (await pipeline.step(rows, rows, mean_square)).item() > 0

            # Stopped: the deadline ends the pass; when it wakes, nothing is left of it.
            loss = (await held(x)).sum()
            loop, site = asyncio.get_running_loop(), world._site
            os.kill(pids[1], signal.SIGSTOP)
            # It is waited for so long, and no longer. Who lives has more time to confirm a commit.
            site.grace = 0.1
            with pytest.raises(TimeoutError):
                await loss.backward(deadline=loop.time() + 0.05)
            site.grace = AtEachMessage.grace
            os.kill(pids[1], signal.SIGCONT)
            assert await held.apply(gradients) == [None]
            del loss
            while any(v for k, v in (await world.statistics())[1].items() if k != "parts"):
                pass
            assert x.grad.tolist() == y.grad.tolist()

            # Killed once its part of the pass is done: the pass fails, the others go on.
            loss = (await parts[1](x) + await parts[0](x)).sum()
            kills = x.register_hook(lambda gradient: os.kill(pids[1], signal.SIGKILL))
            with pytest.raises(dist.WorkerLostError) as caught:
                await loss.backward()
            kills.remove()
            assert caught.value.rank == 1
            assert x.grad.tolist() == y.grad.tolist()
            with pytest.raises(dist.WorkerLostError):
                await parts[1](x)
            await (await parts[2](parts[0](x))).sum().backward()
            assert sorted(world.lost) == [1]
        # What it held is gone, and its name, too: a new world of the workers that are there. One of
        # the slow tests of process faults, at a message between workers.
        await client.wait_for_workers(2)
        async with dist.connect(client, workers=2, grace=AtEachMessage.grace) as world:
            await killed(Model(world, DaskEngine, DaskPeers), (1, "deposit", 0))


def test_processes_are_stopped_woken_and_killed() -> None:
    asyncio.run(with_processes())
