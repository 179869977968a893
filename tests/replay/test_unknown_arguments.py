"""Arguments that can't be followed, as NumPy arrays: what reads them is called, and the rest is
replayed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from io import StringIO
from random import Random
from typing import Any

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.errors import AutogradError


def replayed(function: Any) -> int:
    """How many times programs of a function's parts were replayed."""
    lines = function.explain().splitlines()
    return sum(int(line.split()[-2]) for line in lines if line.endswith(" replayed"))


def batches(count: int, dtype: str = "f4") -> list[tuple[Any, Any]]:
    random = np.random.default_rng(0)
    return [
        (random.standard_normal((5, 4)).astype(dtype), random.standard_normal((5, 2)))
        for _ in range(count)
    ]


class Trainer:
    """A model and its optimiser."""

    def __init__(self) -> None:
        ag.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        self.optimizer = ag.optim.Adam(self.model.parameters(), lr=0.1)

    def loss(self, x: Any, y: Any) -> Any:
        """The loss of a step, after it."""
        self.optimizer.zero_grad()
        loss = ((self.model(x) - y) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def same_name(self, x: Any, y: Any) -> Any:
        x = ag.from_numpy(x)
        y = ag.tensor(y, dtype=ag.float32)
        return self.loss(x, y)

    def other_names(self, x: Any, y: Any) -> Any:
        inputs, targets = ag.as_tensor(x), ag.as_tensor(y, dtype=ag.float32)
        loss = self.loss(inputs, targets)
        return loss, x

    def by_name(self, *, x: Any, y: Any) -> Any:
        return self.same_name(x, y)

    def keywords(self, **arrays: Any) -> Any:
        x = ag.from_numpy(arrays["x"])
        y = ag.tensor(arrays["y"], dtype=ag.float32)
        return self.loss(x, y)

    def packed(self, *arrays: Any) -> Any:
        x, y = arrays
        x, y = ag.from_numpy(x), ag.tensor(y, dtype=ag.float32)
        return self.loss(x, y)

    def branching(self, x: Any, y: Any) -> Any:
        scale = 2.0 if x.max() > 2 else 1.0
        x = ag.from_numpy(x)
        y = ag.tensor(y, dtype=ag.float32)
        return self.loss(x * scale, y)

    def nested(self, batch: Any) -> Any:
        x, y = batch
        return self.same_name(x, y)

    def in_dictionary(self, batch: Any) -> Any:
        x = ag.from_numpy(batch["x"])
        y = ag.tensor(batch["y"], dtype=ag.float32)
        return self.loss(x, y)

    def in_record(self, batch: Any) -> Any:
        x = ag.from_numpy(batch.x)
        y = ag.tensor(batch.y, dtype=ag.float32)
        return self.loss(x, y)


@dataclass
class Batch:
    x: Any
    y: Any


CALLS = {
    "same_name": lambda step, x, y: step(x, y),
    "other_names": lambda step, x, y: step(x, y=y),
    "keywords": lambda step, x, y: step(x=x, y=y),
    "packed": lambda step, x, y: step(x, y),
    "branching": lambda step, x, y: step(x, y),
    "in_dictionary": lambda step, x, y: step({"x": x, "y": y}),
    "in_record": lambda step, x, y: step(Batch(x, y)),
}
#: Here the lines that read arrays are the whole step.
CALLED = {
    "by_name": lambda step, x, y: step(x=x, y=y),
    "nested": lambda step, x, y: step([x, y]),
}


@pytest.mark.parametrize("name", [*CALLS, *CALLED])
def test_steps_that_take_arrays(name: str) -> None:
    """Every batch is another array, and so are the weights and losses."""
    call = {**CALLS, **CALLED}[name]
    eager, other = Trainer(), Trainer()
    slow, fast = getattr(eager, name), ag.compile(getattr(other, name))
    for x, y in batches(8):
        expected, found = call(slow, x, y), call(fast, x, y)
        if isinstance(expected, tuple):
            assert found[1] is x
            expected, found = expected[0], found[0]
        assert found.tolist() == expected.tolist()
    for mine, theirs in zip(eager.model.parameters(), other.model.parameters(), strict=True):
        assert mine.tolist() == theirs.tolist()
    assert (replayed(fast) >= 5) is (name in CALLS)


def test_an_array_that_is_changed_in_place_is_read_again() -> None:
    """It is the same object, of the same layout."""

    def slow(x: Any) -> Any:
        y = ag.from_numpy(x)
        y = (y * 2 + 1 - y.sin() * 3).exp()
        return y.sum() + y.mean() - y.std()

    fast = ag.compile(slow)
    x = np.zeros(3, "f4")
    found = []
    for number in range(6):
        x[:] = number, number + 1, number * 2
        found.append(fast(x).item())
        assert found[-1] == slow(x).item()
    assert len(set(found)) == 6
    assert replayed(fast) >= 4


def test_a_tensor_that_shares_the_memory_changes_the_array() -> None:
    """As in an eager call."""

    @ag.compile
    def decay(x: Any) -> Any:
        y = ag.from_numpy(x)
        y.mul_(0.5)
        y = y + 1
        return (y * y).sum() + y.mean() * y.std() - y.max()

    x = np.full(4, 16, "f4")
    for _ in range(4):
        decay(x)
    assert x.tolist() == [1] * 4


@pytest.mark.asyncio
async def test_awaited_steps_that_take_arrays() -> None:
    """A coroutine function is divided, too."""
    trainers = Trainer(), Trainer()

    def step_of(trainer: Trainer) -> Any:
        async def step(x: Any, y: Any) -> Any:
            x = ag.from_numpy(x)
            y = ag.tensor(y, dtype=ag.float32)
            trainer.optimizer.zero_grad()
            loss = ((trainer.model(x) - y) ** 2).mean()
            await loss.backward()
            trainer.optimizer.step()
            return loss.detach()

        return step

    slow, fast = step_of(trainers[0]), ag.compile(step_of(trainers[1]))
    for x, y in batches(6):
        assert (await fast(x, y)).tolist() == (await slow(x, y)).tolist()
        await asyncio.sleep(0)
    assert replayed(fast) >= 4


def test_fullgraph_refuses_arrays() -> None:
    """Then there is to be one program."""
    step = ag.compile(Trainer().same_name, fullgraph=True)
    with pytest.raises(AutogradError, match="a ndarray, which may change unseen"):
        step(*batches(1)[0])


def test_arrays_and_tensors_take_turns() -> None:
    """Lines that are called for an array are called for a tensor, too."""
    eager, other = Trainer(), Trainer()

    def step_of(trainer: Trainer) -> Any:
        def step(x: Any, y: Any) -> Any:
            x, y = ag.as_tensor(x), ag.as_tensor(y, dtype=ag.float32)
            return trainer.loss(x, y)

        return step

    slow, fast = step_of(eager), ag.compile(step_of(other))
    for number, (x, y) in enumerate(batches(9)):
        given = (ag.tensor(x), ag.tensor(y)) if number % 3 else (x, y)
        assert fast(*given).tolist() == slow(*given).tolist()
    assert replayed(fast) >= 6


def test_other_arguments_that_cannot_be_followed() -> None:
    """A generator of random numbers gives others at each call, and a file is written to."""

    def step_of(trainer: Trainer) -> Any:
        def step(x: Any, y: Any, random: Any, *files: Any) -> Any:
            scale = random.random()
            y = ag.tensor(y, dtype=ag.float32)
            loss = trainer.loss(x, y)
            out = loss * scale
            files[0].write(f"{loss.item()}\n")
            return out

        return step

    lines, results, compiled = [], [], ag.compile(step_of(Trainer()))
    for step in (step_of(Trainer()), compiled):
        random, file = Random(0), StringIO()
        results.append([
            step(ag.tensor(x), ag.tensor(y), random, file).item() for x, y in batches(8)
        ])  # fmt: skip
        lines.append(file.getvalue())
    assert results[0] == results[1]
    assert lines[0] == lines[1]
    assert replayed(compiled) >= 3


def test_classes_that_name_no_module() -> None:
    """Code that is run without a `__name__` makes such."""
    made: dict[str, Any] = {}
    exec("kind = type('Kind', (), {'scale': 2.0})\none = kind()", made)
    step = ag.compile(lambda x, given: x * made["one"].scale * given.scale)
    for scale in (2.0, 3.0):
        made["kind"].scale = scale
        for given in (made["one"], made["kind"]):
            assert step(ag.ones(1), given).tolist() == [scale * scale]
