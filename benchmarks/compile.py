"""Replays of `asyncgrad.compile`: `python -m benchmarks.compile`, with a table of its own.

Each case runs one function eagerly, replayed, in PyTorch, and written by hand in NumPy; JAX's `jit`
stands beside them where JAX is installed. All on one BLAS thread, in turns within this process.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
import tracemalloc
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import asyncgrad as ag
from asyncgrad.devices.pool import POOL
from benchmarks.harness import blas_threads, interleave, watched, with_torch_threads
from benchmarks.networks import Training, networks

if TYPE_CHECKING:
    from collections.abc import Callable

#: (case, side, other side, the ratio to reach or None)
_REACH = {
    ("four layers", "replayed", "by hand"): 1.15,
    ("four layers", "replayed", "torch"): 0.35,
    ("four layers", "replayed", "jax"): 0.8,
    ("four layers", "awaited", "replayed"): 1.1,
    ("chain", "replayed", "eager"): 0.5,
    ("chain", "replayed", "bare calls"): 1.3,
    ("Adam step", "replayed", "torch"): 0.4,
    ("Adam step", "replayed", "jax"): 0.9,
    ("LSTM", "replayed", "eager"): 0.7,
    ("GPT", "replayed", "eager"): 0.9,
    ("ResNet", "replayed", "eager"): 0.9,
    ("many", "replayed", "torch in to_thread"): 1 / 8,
    ("many", "replayed", "torch inline"): 1 / 2.5,
    ("recording", "recorded", "eager"): 3.0,
    ("deep", "recorded", "eager"): 3.0,
}


def calls(call: Callable[[], object], count: int) -> Callable[[], float]:
    """A turn: the seconds of one of `count` calls."""

    def turn() -> float:
        start = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - start) / count

    return turn


def four_layers() -> dict[str, Callable[[], float]]:
    """8x64 float32 through four tanh(x @ W), forward and gradients."""
    random = np.random.default_rng(0)
    arrays = [(random.standard_normal((64, 64)) * 0.1).astype(np.float32) for _ in range(4)]
    x = random.standard_normal((8, 64)).astype(np.float32)

    def function(lib: Any, weights: Any, grad: Any) -> Callable[[Any], Any]:
        def step(x: Any) -> Any:
            for w in weights:
                x = lib.tanh(x @ w)
            return grad(x.sum(), weights)

        return step

    ours = [ag.tensor(w, requires_grad=True) for w in arrays]
    theirs = [torch.tensor(w, requires_grad=True) for w in arrays]
    eager = function(ag, ours, ag.grad)
    replayed = ag.compile(eager)
    their_step = function(torch, theirs, torch.autograd.grad)

    @ag.compile
    async def awaited(x: Any) -> Any:
        for w in ours:
            x = ag.tanh(x @ w)
        return await ag.grad(x.sum(), ours)

    def by_hand() -> Any:
        states = [x]
        for w in arrays:
            states.append(np.tanh(states[-1] @ w))
        g = np.ones_like(states[-1])
        gradients = []
        for at in range(3, -1, -1):
            out = states[at + 1]
            g = g * (1 - out * out)
            gradients.append(states[at].T @ g)
            if at:
                g = g @ arrays[at].T
        return gradients

    ours_x, their_x = ag.tensor(x), torch.tensor(x)
    for found, wanted in zip(replayed(ours_x), by_hand()[::-1], strict=True):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-5)

    def on_loop() -> float:
        async def main() -> float:
            await awaited(ours_x)
            await awaited(ours_x)
            times = []
            for _ in range(40):
                await asyncio.sleep(0)
                start = time.perf_counter()
                for _ in range(5):
                    await awaited(ours_x)
                times.append((time.perf_counter() - start) / 5)
            return statistics.median(times)

        return asyncio.run(main())

    sides = {
        "eager": calls(lambda: eager(ours_x), 100),
        "replayed": calls(lambda: replayed(ours_x), 100),
        "by hand": calls(by_hand, 100),
        "torch": with_torch_threads(1, calls(lambda: their_step(their_x), 100)),
        "awaited": on_loop,
    }
    jitted = _jax_gradients(arrays, x)
    if jitted is not None:
        sides["jax"] = calls(jitted, 100)
    return sides


def _jax_gradients(arrays: Any, x: Any) -> Callable[[], object] | None:
    """The gradients by JAX's `jit`, None without JAX."""
    try:
        import jax
    except ImportError:
        return None

    def loss(weights: Any, x: Any) -> Any:
        for w in weights:
            x = jax.numpy.tanh(x @ w)
        return x.sum()

    step = jax.jit(jax.grad(loss))
    return lambda: jax.block_until_ready(step(arrays, x))


def chain() -> dict[str, Callable[[], float]]:
    """2,000 elementwise functions of 16 float64, forward and backward."""
    x = ag.tensor(np.random.default_rng(0).standard_normal(16))

    def eager(x: Any) -> Any:
        leaf = y = x.detach().requires_grad_()
        for _ in range(500):
            y = ag.sin(ag.tanh(y * 1.01) + 0.1)
        return ag.grad(y.sum(), leaf)[0]

    replayed = ag.compile(eager)
    replayed(x)
    replayed(x)

    def bare() -> None:
        """The array functions that the replay calls, on arrays that are there."""
        a = x.numpy()
        b, c = a.copy(), a.copy()
        multiply, tanh, add, sin, cos = np.multiply, np.tanh, np.add, np.sin, np.cos
        subtract = np.subtract
        for _ in range(500):
            multiply(a, 1.01, b)
            tanh(b, b)
            add(b, 0.1, c)
            sin(c, c)
        for _ in range(500):
            cos(a, b)
            multiply(a, b, b)
            multiply(b, b, c)
            subtract(1.0, c, c)
            multiply(b, c, b)
            multiply(b, 1.01, b)

    their_x = torch.tensor(x.numpy())

    def theirs() -> Any:
        leaf = y = their_x.detach().requires_grad_()
        for _ in range(500):
            y = torch.sin(torch.tanh(y * 1.01) + 0.1)
        return torch.autograd.grad(y.sum(), leaf)[0]

    assert replayed(x).tolist() == eager(x).tolist()
    return {
        "eager": calls(lambda: eager(x), 2),
        "replayed": calls(lambda: replayed(x), 2),
        "bare calls": calls(bare, 2),
        "torch": with_torch_threads(1, calls(theirs, 2)),
    }


def adam_step() -> dict[str, Callable[[], float]]:
    """A training step: MLP 64-128-128-10, batch 32, Adam."""

    def training(lib: Any, **options: Any) -> Callable[[Any, Any], Any]:
        nn = lib.nn
        model = nn.Sequential(
            nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 10)
        )
        update = lib.optim.Adam(model.parameters(), lr=1e-3, **options)
        loss_of = nn.functional.cross_entropy

        def step(x: Any, target: Any) -> Any:
            update.zero_grad()
            loss = loss_of(model(x), target)
            loss.backward()
            update.step()
            return loss.detach()

        return step

    random = np.random.default_rng(0)
    x, target = random.standard_normal((32, 64)).astype(np.float32), random.integers(0, 10, 32)
    inputs, theirs = (ag.tensor(x), ag.tensor(target)), (torch.tensor(x), torch.tensor(target))
    eager, replayed = training(ag), ag.compile(training(ag))
    other = training(torch, foreach=True)
    sides = {
        "eager": calls(lambda: eager(*inputs), 30),
        "replayed": calls(lambda: replayed(*inputs), 30),
        "torch": with_torch_threads(1, calls(lambda: other(*theirs), 30)),
    }
    jitted = _jax_step(x, target)
    if jitted is not None:
        sides["jax"] = calls(jitted, 30)
    return sides


def _jax_step(x: Any, target: Any) -> Callable[[], object] | None:
    """The same step by JAX's `jit`, which may overwrite its state; None without JAX."""
    try:
        import jax
    except ImportError:
        return None
    xp = jax.numpy
    random = np.random.default_rng(0)
    weights = []
    for rows, columns in ((64, 128), (128, 128), (128, 10)):
        weights += [random.standard_normal((rows, columns)) * 0.1, np.zeros(columns)]
    weights = [xp.asarray(w, xp.float32) for w in weights]

    def loss(weights: Any) -> Any:
        h = xp.tanh(x @ weights[0] + weights[1])
        h = xp.tanh(h @ weights[2] + weights[3])
        out = jax.nn.log_softmax(h @ weights[4] + weights[5])
        return -out[xp.arange(32), target].mean()

    def step(weights: Any, means: Any, squares: Any, count: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(weights)
        count += 1
        means = [m + 0.1 * (g - m) for m, g in zip(means, gradients, strict=True)]
        squares = [s * 0.999 + 0.001 * g * g for s, g in zip(squares, gradients, strict=True)]
        length, correction = 1e-3 / (1 - 0.9**count), xp.sqrt(1 - 0.999**count)
        weights = [
            w - length * m / (xp.sqrt(s) / correction + 1e-8)
            for w, m, s in zip(weights, means, squares, strict=True)
        ]
        return value, weights, means, squares, count

    jitted = jax.jit(step, donate_argnums=(0, 1, 2))
    state = [weights, [xp.zeros_like(w) for w in weights], [xp.zeros_like(w) for w in weights], 0.0]

    def call() -> None:
        value, *state[:] = jitted(*state)
        jax.block_until_ready(value)

    return call


def model(number: int) -> tuple[dict[str, Callable[[], float]], Callable[[], tuple[int, int]]]:
    """A training step of one of the networks, and its peak memory replayed and eager."""
    network = networks()[number]
    batch = next(network.batches(np.random.default_rng(0)))

    def step_of(training: Training) -> Any:
        def step(inputs: Any, targets: Any) -> Any:
            return training.step(inputs, targets).detach()

        return step

    trainings = [Training(network, ag) for _ in range(2)]
    inputs = trainings[0].tensors(batch)
    eager, replayed = step_of(trainings[0]), ag.compile(step_of(trainings[1]))
    other = Training(network, torch)
    theirs = other.tensors(batch)

    def peak(call: Callable[..., object]) -> int:
        # Memory that is kept between calls counts, but not what others have left in the pool. Drop
        # gradients, and the memory of a replay that holds them: what exists already is not traced.
        for training in trainings:
            training.optimizer.zero_grad()
        POOL.shrink(0)
        tracemalloc.start()
        call(*inputs)
        call(*inputs)
        call(*inputs)
        tracemalloc.reset_peak()
        call(*inputs)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    sides = {
        "eager": calls(lambda: eager(*inputs), 1),
        "replayed": calls(lambda: replayed(*inputs), 1),
        "torch": with_torch_threads(1, calls(lambda: other.step(*theirs), 1)),
    }
    return sides, lambda: (peak(replayed), peak(eager))


def many() -> tuple[dict[str, Callable[[], float]], Callable[[], tuple[float, float]]]:
    """1,000 small passes at once, and the lag (p99) of a ticker.

    The ticker is beside 1,000 tasks of five passes each that come in twenty turns of the loop, as
    requests do, and beside as many that do nothing: made in one turn, these alone hold the loop for
    longer than is allowed.
    """
    random = np.random.default_rng(0)
    array = random.standard_normal((16, 16)).astype(np.float32)
    w, their_w = ag.tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)
    x, their_x = ag.tensor(array[:4]), torch.tensor(array[:4])

    @ag.compile
    async def ours(x: Any) -> Any:
        for _ in range(3):
            x = ag.tanh(x @ w)
        return await ag.grad(x.sum(), w)

    def theirs(x: Any) -> Any:
        for _ in range(3):
            x = torch.tanh(x @ their_w)
        return torch.autograd.grad(x.sum(), their_w)

    async def all_ours() -> None:
        await ours(x)
        await asyncio.gather(*[ours(x) for _ in range(1000)])

    async def all_inline() -> None:
        async def one() -> Any:
            return theirs(their_x)

        await asyncio.gather(*[one() for _ in range(1000)])

    async def all_threads() -> None:
        await asyncio.gather(*[asyncio.to_thread(theirs, their_x) for _ in range(1000)])

    def turn(work: Callable[[], Any]) -> Callable[[], float]:
        def run() -> float:
            async def main() -> float:
                start = time.perf_counter()
                await work()
                return time.perf_counter() - start

            return asyncio.run(main())

        return run

    sides = {
        "replayed": turn(all_ours),
        "torch inline": with_torch_threads(1, turn(all_inline)),
        "torch in to_thread": with_torch_threads(1, turn(all_threads)),
    }

    async def kept_going(one: Callable[[], Any]) -> None:
        async def several() -> None:
            for _ in range(5):
                await one()

        async with asyncio.TaskGroup() as together:
            for number in range(1000):
                if number % 50 == 0:
                    await asyncio.sleep(0)
                together.create_task(several())

    def lag(one: Callable[[], Any]) -> float:
        return asyncio.run(watched(partial(kept_going, one))).lag.p99

    return sides, lambda: (lag(lambda: ours(x)), lag(lambda: asyncio.sleep(0)))


def recording(layers: int) -> dict[str, Callable[[], float]]:
    """The first calls beside an eager one, of a step of some layers; a check of ten arguments.

    The second call writes the program. For another shape it finds the code of the first.
    """
    weights = [ag.ones(64, 64, requires_grad=True) for _ in range(layers)]
    x, larger = ag.ones(8, 64), ag.ones(9, 64)

    def step(x: Any) -> Any:
        for w in weights:
            x = ag.tanh(x @ w)
        return ag.grad(x.sum(), weights)

    def ten(*tensors: Any) -> Any:
        return tensors[0] + tensors[9]

    def first_calls(*inputs: Any) -> None:
        compiled = ag.compile(step)
        for one in inputs:
            compiled(one)

    tensors = [ag.ones(2) for _ in range(10)]
    replayed = ag.compile(ten)
    replayed(*tensors)
    replayed(*tensors)
    entry = replayed._entries[0]
    return {
        "eager": calls(lambda: step(x), 30),
        "recorded": calls(lambda: first_calls(x), 30),
        "recorded, replayed": calls(lambda: first_calls(x, x), 10),
        "the same of two shapes": calls(lambda: first_calls(x, x, larger, larger), 10),
        "check of ten arguments": calls(
            lambda: entry.signature.match(tensors, {}) and entry.reached.holds(), 300
        ),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--only", nargs="*", help="cases, by their names")
    parser.add_argument("--numba", action="store_true", help="asyncgrad with compiled kernels")
    options = parser.parse_args()
    if options.numba:
        ag.backends.numba.enable()
    lstm, gpt, resnet = model(2), model(3), model(1)
    crowd = many()
    cases: dict[str, dict[str, Callable[[], float]]] = {
        "four layers": four_layers(),
        "chain": chain(),
        "Adam step": adam_step(),
        "LSTM": lstm[0],
        "GPT": gpt[0],
        "ResNet": resnet[0],
        "many": crowd[0],
        "recording": recording(4),
        "deep": recording(64),
    }
    with blas_threads(1):
        print(f"{'case':12} {'side':24} {'median us':>11}   ratios")
        for case, sides in cases.items():
            if options.only and case not in options.only:
                continue
            for side in sides.values():
                side()
            samples = interleave(sides, options.repetitions, settle=0.002)
            medians = {side: statistics.median(found) for side, found in samples.items()}
            for side, seconds in medians.items():
                print(f"{case:12} {side:24} {seconds * 1e6:11.1f}   {_ratios(case, side, medians)}")
        if options.only:
            return
        for name, (_, peak) in (("LSTM", lstm), ("GPT", gpt), ("ResNet", resnet)):
            replayed, eager = peak()
            print(
                f"{name:12} peak memory, replayed to eager: {replayed / eager:.2f} (to reach 0.8)"
            )
        lag, empty = crowd[1]()
        print(
            f"many         lag p99 of a ticker: {lag * 1e3:.2f} ms (to reach 1), "
            f"of empty tasks {empty * 1e3:.2f} ms"
        )


def _ratios(case: str, side: str, medians: dict[str, float]) -> str:
    """What stands beside a side, and what it is to reach."""
    found = []
    for (where, one, other), wanted in _REACH.items():
        if where == case and one == side and other in medians:
            ratio = medians[side] / medians[other]
            verdict = "" if ratio <= wanted else ", not reached"
            found.append(f"{ratio:.2f} of {other} (to reach {wanted:.3g}{verdict})")
    return "; ".join(found)


if __name__ == "__main__":
    main()
