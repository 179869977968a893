"""Train a classifier whose layers are on three worker processes, one of which is killed on the way.

Shows: parts of a model on workers, passes that cross them, an optimizer of all, checkpoints; what a
pass does whose worker dies; how training goes on with a new worker and the last checkpoint.
Leaves out: machines. With the client of a real cluster in place of `LocalCluster` it is the same.
Run: make distributed, or python examples/distributed_training.py
"""

from __future__ import annotations

import asyncio
import gzip
import os
import signal
import sys
from pathlib import Path
from typing import Any

# Ctrl-C ends the program, without a traceback of the imports, which take long; the program ends its
# workers, which a terminal interrupts as well.
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
elif __name__ == "__mp_main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)

import dask
import numpy as np
from distributed import Client, LocalCluster

import asyncgrad as ag
from asyncgrad import distributed as dist

STEPS, KILLED_AT, CHECKPOINT_EVERY, BATCH = 60, 25, 10, 128
#: How many seconds a pass may take: it takes milliseconds, but for a machine that is busy.
PATIENCE = 120
#: How many seconds such a machine may take to start a worker anew.
RESTART = 600
SIZES = [(64, 128), (128, 64), (64, 10)]


def digits() -> tuple[Any, Any, Any, Any]:
    """1,797 images of 8x8 pixels and their digits, a quarter of them held out for the test."""
    with gzip.open(Path(__file__).parent / "data" / "digits.csv.gz", "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.int64)
    np.random.default_rng(0).shuffle(table)
    images = ag.from_numpy((table[:, :64] / 16).astype(np.float32))
    labels = ag.from_numpy(table[:, 64].copy())
    return images[:1347], labels[:1347], images[1347:], labels[1347:]


def make_layer(rank: int) -> ag.nn.Module:
    """The layer of a worker."""
    ag.manual_seed(rank)
    layer = ag.nn.Linear(*SIZES[rank])
    return layer if rank == 2 else ag.nn.Sequential(layer, ag.nn.Tanh())


def process_id(module: Any) -> int:
    """The process that a part is in."""
    return os.getpid()


class Trainer:
    """The model, its optimizer and its checkpoints, in one world."""

    def __init__(self, parts: list[Any], optimizer: Any) -> None:
        self.parts, self.optimizer = parts, optimizer

    @classmethod
    async def make(cls, world: dist.World, checkpoint: Any) -> Trainer:
        """Put the layers on the workers, as they were at a checkpoint if there is one."""
        parts = [await world.remote(rank, make_layer, rank) for rank in range(3)]
        optimizer = await world.optimizer(ag.optim.Adam, parts, lr=1e-2)
        if checkpoint is not None:
            for part, state in zip(parts, checkpoint["parts"], strict=True):
                await part.apply(ag.nn.Module.load_state_dict, state)
            await optimizer.load_state_dict(checkpoint["optimizer"])
        return cls(parts, optimizer)

    async def checkpoint(self, step: int) -> Any:
        """All that is needed to go on after a step."""
        states = [await part.apply(ag.nn.Module.state_dict) for part in self.parts]
        return {"step": step, "parts": states, "optimizer": await self.optimizer.state_dict()}

    async def forward(self, images: Any) -> Any:
        """The activations go from worker to worker; the last come here."""
        value: Any = images
        for part in self.parts:
            value = part(value)
        return await value

    async def step(self, images: Any, labels: Any, kill: int | None = None) -> float:
        """One step; with `kill`, that process dies while its pass runs."""
        loss = ag.nn.functional.cross_entropy(await self.forward(images), labels)
        running = loss.backward(deadline=asyncio.get_running_loop().time() + PATIENCE)
        if kill is not None:
            os.kill(kill, signal.SIGKILL)
        await running
        await self.optimizer.step_async()
        await self.optimizer.zero_grad()
        return loss.item()


def has_gradients(module: Any) -> bool:
    """Whether something has been added to a part's gradients."""
    return any(p.grad is not None for p in module.parameters())


async def train(client: Client, data: Any, checkpoint: Any, *, kill: bool) -> Any:
    """Train in a world of its own; returns the accuracy, or the checkpoint to go on from."""
    images, labels, test_images, test_labels = data
    async with dist.connect(client, workers=3) as world:
        trainer = await Trainer.make(world, checkpoint)
        victim = await trainer.parts[1].apply(process_id)
        start = 0 if checkpoint is None else checkpoint["step"]
        for step in range(start, STEPS):
            if step % CHECKPOINT_EVERY == 0:
                checkpoint = await trainer.checkpoint(step)
            rows = np.random.default_rng(step).choice(len(labels), BATCH, replace=False)
            chosen = ag.from_numpy(rows)
            dies = victim if kill and step == KILLED_AT else None
            try:
                loss = await trainer.step(images[chosen], labels[chosen], dies)
            except dist.WorkerLostError as error:
                print(f"step {step:3}  {error}")
                for part in (trainer.parts[0], trainer.parts[2]):
                    print(f"          gradients on worker {part.rank}: "
                          f"{await part.apply(has_gradients)}")  # fmt: skip
                return checkpoint
            if step % 10 == 0:
                print(f"step {step:3}  loss {loss:.3f}")
        with ag.no_grad():
            found = await trainer.forward(test_images)
        return float((found.argmax(1) == test_labels).float().mean())


async def main() -> float:
    """Train, lose a worker, and go on."""
    data = digits()
    # Dask would wait for a new worker for less.
    dask.config.set({"distributed.deploy.lost-worker-timeout": f"{RESTART} seconds"})
    async with (
        LocalCluster(
            n_workers=3, threads_per_worker=1, dashboard_address=":0", asynchronous=True,
            silence_logs=50,
        ) as cluster,
        # By its address: `wait_for_workers` asks the scheduler, and not the cluster's copy of what
        # the scheduler knows, which it would spoil.
        Client(cluster.scheduler_address, asynchronous=True) as client,
    ):  # fmt: skip
        found = await train(client, data, None, kill=True)
        print(f"          waiting for a new worker, to go on from step {found['step']}")
        await client.wait_for_workers(3, timeout=RESTART)
        accuracy = await train(client, data, found, kill=False)
    print(f"accuracy on images not seen in training: {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(130)  # what a shell reports for a program that Ctrl-C ended
