"""A pass gives the same bits, whoever computes its nodes and whatever else is going on."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from passes import HEAVY, assert_nothing_runs, calls, chain, leaf
from seeded import seeded

import asyncgrad as ag
from asyncgrad.core.states import InputBuffer
from asyncgrad.core.variable import gradient_edge

#: Of one graph: so many operations, of which each may lead to any before it.
_OPERATIONS = 60


class Graph:
    """Operations at random on a few leaves, some of them expensive; sums have many addends."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        values = np.random.default_rng(seed)
        self.leaves = [
            ag.tensor(values.standard_normal((8, 8)).astype(np.float32), requires_grad=True)
            for _ in range(4)
        ]

    def loss(self) -> ag.Tensor:
        rng = random.Random(self.seed)
        made = list(self.leaves)
        for _ in range(_OPERATIONS):
            # Old ones, too: their gradients come over many edges.
            x, y = rng.choice(made), rng.choice(made[-6:])
            kind = rng.randrange(4)
            if kind == 0:
                z = ag.tanh(x) * y
            elif kind == 1:
                z = x @ y * 0.3
            elif kind == 2:
                z = x * 0.7 + y
            else:
                z = ag.sin(y) - x
            gradient_edge(z).cost = rng.choice([10, 5_000, HEAVY, HEAVY])
            made.append(z)
        return sum((z.mean() for z in [*made[:4], *made[-8:]]), start=made[4].mean())

    def expected(self) -> list[bytes]:
        """What a blocking pass gives."""
        with ag.blocking():
            return bits(ag.grad(self.loss(), self.leaves))


def bits(gradients: Any) -> list[bytes]:
    return [gradient.numpy().tobytes() for gradient in gradients]


async def neighbours(rng: random.Random) -> None:
    """Other passes, which end, fail and are cancelled."""

    def fail() -> None:
        raise ValueError("planned")

    started = [
        chain(calls(leaf(), rng.choice([int, fail])), 50, cost=rng.choice([10, 20_000, HEAVY]))
        .sum()
        .backward(priority=rng.choice([-1, 0, 1]))
        for _ in range(3)
    ]
    rng.choice(started).cancel()
    await asyncio.gather(*started, return_exceptions=True)


async def check(rng: random.Random, graphs: list[tuple[Graph, list[bytes]]]) -> None:
    """Start passes of all graphs, a few neighbours beside each, and compare."""
    for graph, expected in graphs:
        priorities = [rng.choice([0, 0, 1, 3]) for _ in range(3)]
        results = await asyncio.gather(
            *(ag.grad(graph.loss(), graph.leaves, priority=priority) for priority in priorities),
            neighbours(rng),
        )
        assert [bits(gradients) for gradients in results[:-1]] == [expected] * 3
        for x in graph.leaves:
            x.grad = None
        await graph.loss().backward()
        assert bits(x.grad for x in graph.leaves) == expected
    await assert_nothing_runs()


@pytest.mark.asyncio
async def test_with_threads() -> None:
    graphs = [Graph(seed) for seed in range(6)]
    await check(random.Random(1), [(graph, graph.expected()) for graph in graphs])


def test_on_seeded_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Expensive nodes are handed out, and come back in any order."""
    graph = Graph(1)
    expected = graph.expected()
    for seed in range(25):
        with seeded(monkeypatch, seed) as loop:
            loop.run_until_complete(check(loop.random, [(graph, expected)]))


@pytest.mark.asyncio
async def test_beside_threads_with_passes_of_their_own() -> None:
    """Through the same graphs' leaves, and with the same results."""
    graph = Graph(2)
    expected = graph.expected()

    def blocking() -> list[list[bytes]]:
        return [bits(ag.sync.grad(graph.loss(), graph.leaves)) for _ in range(5)]

    others = [asyncio.create_task(asyncio.to_thread(blocking)) for _ in range(3)]
    for _ in range(5):
        assert bits(await ag.grad(graph.loss(), graph.leaves)) == expected
    for found in await asyncio.gather(*others):
        assert found == [expected] * 5


def test_sums_in_the_order_of_arrival_would_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is: these schedules would show it."""
    graph = Graph(1)
    expected = graph.expected()
    F = graph.leaves[0]._metadata.F

    def add_at_once(
        buffer: InputBuffer, sequence_nr: int, position: int, gradient: Any, fresh: bool
    ) -> None:
        buffer.add(position, gradient, fresh, F)

    monkeypatch.setattr(InputBuffer, "hold", add_at_once)
    found = set()
    for seed in range(25):
        with seeded(monkeypatch, seed) as loop:

            async def one() -> None:
                found.add(tuple(bits(await ag.grad(graph.loss(), graph.leaves))))

            loop.run_until_complete(one())
    assert found - {tuple(expected)}


_PROGRAM = """
import asyncio, hashlib, os, sys

os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[1])])

import numpy as np
import asyncgrad as ag
from asyncgrad.devices import pieces

F = ag.nn.functional
values = np.random.default_rng(0)
w = [
    ag.tensor(values.standard_normal(shape).astype(dtype) / 20, requires_grad=True)
    for shape, dtype in (
        ((311, 517), "f8"), ((517, 640), "f8"), ((640, 333), "f8"), ((300, 700), "f4"),
        ((700, 777), "f4"), ((2, 1, 150, 200), "f4"), ((3, 200, 250), "f4"),
        ((8, 4, 32, 32), "f4"), ((6, 4, 3, 3), "f4"), ((4, 16, 65, 32), "f4"), ((0, 700), "f4"),
    )
]
reader = ag.nn.LSTM(60, 129)
for at, weight in enumerate(reader.parameters()):
    with ag.no_grad():
        weight.copy_(w[4].detach().ravel()[at : at + weight.numel()].reshape(weight.shape))
rows = w[5].detach()[..., :60].reshape(30, 10, 60).tile((1, 4, 1))[:, :33]

def loss():
    a, b, c, d, e, batch, matrices, images, kernels, heads, none = w[:11]
    loss = ag.tanh(ag.tanh(ag.tanh(a @ b) @ c).T @ a).sum() + ag.tanh(ag.sin(d) @ e).sum()
    loss = loss + ag.tanh(batch @ matrices).sum() + (none @ e).sum() + (e[::2].T @ e[1::2]).std()
    loss = loss + F.conv2d(images, kernels, padding=1).square().mean()
    loss = loss + F.gelu(e).sum() + F.softmax(e, 1).square().sum()
    loss = loss + (F.layer_norm(e, (777,), e[0], e[1]) + F.rms_norm(e, (777,), e[2])).exp().mean()
    loss = loss + (ag.complex(d, d * 0.5) @ ag.complex(e, e * 0.3)).abs().mean()
    loss = loss + reader(rows)[0].square().mean()
    return loss + F.scaled_dot_product_attention(heads, heads * 2, heads).square().sum()

w += reader.parameters()

async def given_up():
    # A pass and a forward pass that are cancelled while they compute.
    running = [asyncio.ensure_future(ag.offload(loss)), ag.grad(loss(), w)]
    await asyncio.sleep(0)
    for one in running:
        one.cancel()
    await asyncio.wait(running)

def bits(*tensors):
    return hashlib.sha256(b"".join(t.detach().numpy().tobytes() for t in tensors)).hexdigest()

async def neighbour():
    while True:
        sum(range(10_000))
        await asyncio.sleep(0)

async def main(loaded):
    ag.engine()
    others = [asyncio.create_task(neighbour())] if loaded else []
    found = set()
    for _ in range(2):
        made = loss()
        offloaded = await ag.offload(loss)
        passes = [ag.grad(made, w), ag.grad(offloaded, w)]
        if not loaded:
            passes = [await one for one in passes]
        else:
            passes, _ = await asyncio.gather(asyncio.gather(*passes), given_up())
        found |= {bits(made, *gradients) for gradients in passes}
        found.add(bits(offloaded, *passes[0]))
        with ag.blocking():
            found.add(bits(loss(), *ag.grad(loss(), w)))
    for task in others:
        task.cancel()
    return found

(found,) = asyncio.run(main(False)) | asyncio.run(main(True))
print(found, max(len(pieces._tiles(640, 333 * 8, 517)), len(pieces._tiles(300, 2800, 777))))
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes choose no cores here")
def test_on_any_number_of_cores_idle_and_loaded() -> None:
    """Products, elementwise functions, attention and an LSTM are cut, always in the same way."""
    found = set()
    for cores in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", _PROGRAM, cores],
            env=os.environ | {"PYTHONPATH": str(Path(ag.__file__).parents[1])},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        found.add(run.stdout)
    (said,) = found
    assert int(said.split()[1]) > 2


_FORKS = """
import asyncio, os, sys, threading
import numpy as np
import asyncgrad as ag
from asyncgrad.devices import pieces

values = np.random.default_rng(0).standard_normal((700, 700))
w = ag.tensor(values.astype("f4") / 30, requires_grad=True)

def loss():
    return ag.tanh(ag.tanh(w @ w) @ w).sum()

async def gradient():
    (found,) = await ag.grad(await ag.offload(loss), [w])
    return found.numpy().tobytes()

def child():
    asyncio.events._set_running_loop(None)
    ag.grad(loss(), [w])
    ended = [asyncio.run(gradient()) == expected for _ in range(2)]
    os._exit(not (all(ended) and len(threading.enumerate()) == 1 and not pieces.threads))

def fork():
    pid = os.fork()
    if not pid:
        child()
    return pid

async def main():
    codes = []
    for number in range(4):
        running = [asyncio.ensure_future(gradient()) for _ in range(3)]
        while not all(thread.is_alive() for thread in ag.engine().thread_segments.threads._members):
            await asyncio.sleep(0)
        pid = await ag.offload(fork) if number % 2 else fork()
        assert await asyncio.gather(*running) == [expected] * 3
        codes.append((await asyncio.to_thread(os.waitpid, pid, 0))[1])
    return codes

expected = asyncio.run(gradient())
print(asyncio.run(main()))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
def test_in_a_child_that_is_forked_while_pieces_are_computed() -> None:
    """By the loop's thread, and by one that computes pieces."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _FORKS],
        env=os.environ | {"PYTHONPATH": str(Path(ag.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, "[0, 0, 0, 0]\n"), run.stderr


def test_on_loops_in_several_threads_of_which_each_begins_and_ends() -> None:
    """The first loop has ended when the others begin, and each of them computes in pieces."""
    values = np.random.default_rng(0).standard_normal((700, 700)).astype(np.float32) / 30
    w = ag.tensor(values, requires_grad=True)

    async def gradients(count: int) -> set[bytes]:
        def loss() -> ag.Tensor:
            return ag.tanh(w @ w).sum()

        return {bits(await ag.grad(await ag.offload(loss), [w]))[0] for _ in range(count)}

    expected = asyncio.run(gradients(1))
    with ThreadPoolExecutor(3) as loops:
        assert list(loops.map(asyncio.run, map(gradients, (1, 2, 5)))) == [expected] * 3
