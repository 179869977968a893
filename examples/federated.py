"""Federated averaging: workers train on data of their own, and the first of them to answer count.

Shows: four worker processes, each with a share of the digits that never leaves it; rounds in which
the first three of four are averaged, and the straggler's work is cancelled on its worker.
Leaves out: secure aggregation, and clients that come and go.
Source: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
2017.
Run: python examples/federated.py
"""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, LocalCluster

import asyncgrad as ag
from asyncgrad import distributed as dist

WORKERS, COUNTED, ROUNDS, LOCAL_STEPS = 4, 3, 8, 20
#: A straggler answers so many seconds later. Its answer counts if another worker has died.
DELAY = 10.0


def digits() -> tuple[Any, Any]:
    """1,797 images of 8x8 pixels and their digits."""
    with gzip.open(Path(__file__).parent / "data" / "digits.csv.gz", "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.int64)
    np.random.default_rng(0).shuffle(table)
    return ag.from_numpy((table[:, :64] / 16).astype(np.float32)), ag.from_numpy(
        table[:, 64].copy()
    )


def make_net() -> ag.nn.Module:
    """The network that all train."""
    ag.manual_seed(0)
    return ag.nn.Sequential(ag.nn.Linear(64, 64), ag.nn.ReLU(), ag.nn.Linear(64, 10))


class Participant:
    """A worker with its own data, which it reads itself."""

    def __init__(self, number: int) -> None:
        images, labels = digits()
        # A part of the images before the last 450, which are for the test.
        mine = slice(number * 330, number * 330 + 330)
        self.images, self.labels, self.net = images[mine], labels[mine], make_net()
        self.rounds = 0

    def __call__(self, images: Any) -> Any:
        """What this worker's network says of images."""
        return self.net(images)

    async def train(self, weights: Any, seed: int, straggles: bool) -> Any:
        """Some steps from the given weights on; returns the weights, and the number of examples."""
        self.net.load_state_dict(weights)
        optimizer = ag.optim.SGD(self.net.parameters(), lr=0.2)
        rng = np.random.default_rng(seed)
        with ag.enable_grad():
            for _ in range(LOCAL_STEPS):
                rows = ag.from_numpy(rng.choice(len(self.labels), 32))
                loss = ag.nn.functional.cross_entropy(
                    self.net(self.images[rows]), self.labels[rows]
                )
                optimizer.zero_grad()
                await loss.backward()
                await optimizer.step_async()
        if straggles:
            await asyncio.sleep(DELAY)
        self.rounds += 1
        return self.net.state_dict(), len(self.labels)


async def first(count: int, calls: list[Any]) -> list[Any]:
    """The results of those that end first; the others are cancelled, on their workers, too.

    A worker that dies is one of the others, as long as enough are left. The order is that of the
    calls: sums then have the same bits, whoever was first.
    """
    tasks = [asyncio.ensure_future(call) for call in calls]
    found: dict[Any, Any] = {}
    lost: list[Exception] = []
    running = {*tasks}
    try:
        if count > len(calls):
            raise ValueError(f"first: {count} results are wanted, of {len(calls)} calls")
        while len(found) < count:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task in done and len(found) < count:
                    try:
                        found[task] = await task
                    except dist.WorkerLostError as error:
                        lost.append(error)
            if len(found) + len(running) < count:
                raise lost[-1]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [found[task] for task in tasks if task in found]


def average(results: list[Any]) -> Any:
    """The mean of the weights, by number of examples."""
    total = sum(count for _, count in results)
    return {
        name: sum(weights[name] * (count / total) for weights, count in results)
        for name in results[0][0]
    }


async def main() -> float:
    """Some rounds, in each of which another worker straggles."""
    images, labels = digits()
    net = make_net()
    async with (
        LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, dashboard_address=":0", asynchronous=True,
            silence_logs=50,
        ) as cluster,
        Client(cluster, asynchronous=True) as client,
        dist.connect(client, workers=WORKERS) as world,
    ):  # fmt: skip
        parts = [await world.remote(rank, Participant, rank) for rank in range(WORKERS)]
        accuracy = 0.0
        for number in range(ROUNDS):
            calls = [
                part.apply(Participant.train, net.state_dict(), number, number % WORKERS == rank)
                for rank, part in enumerate(parts)
            ]
            results = await first(COUNTED, calls)
            net.load_state_dict(average(results))
            with ag.no_grad():
                right = net(images[1347:]).argmax(1) == labels[1347:]
            accuracy = float(right.float().mean())
            print(f"round {number}: the first {len(results)} of {WORKERS}, accuracy {accuracy:.1%}")
        async with asyncio.timeout(10):
            # This call may reach a worker before the cancellation of the last straggler does.
            while busy := sum(one["working"] for one in await world.statistics() if one):
                pass
        print(f"still running on workers: {busy}")
    return accuracy


if __name__ == "__main__":
    asyncio.run(main())
