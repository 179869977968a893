"""Arguments that hold others: some are compared item by item, others must be the same object."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from replay_counts import replays

import asyncgrad as ag
from asyncgrad.ops import namespace

FACTOR = 2.0


@dataclass
class Batch:
    """What a step is given."""

    x: Any
    power: int = 2
    parts: list[float] = field(default_factory=list)

    def scaled(self):
        return self.x * FACTOR


class Pair(NamedTuple):
    """The same, as a tuple."""

    x: Any
    power: int = 2


def named(x, power):
    """A dictionary that has an attribute, too."""
    made = OrderedDict(x=x)
    made.power = power
    return made


@pytest.mark.parametrize(
    ("function", "make"),
    [
        (lambda batch: batch.x**batch.power, lambda x, power: Batch(x, power)),
        (lambda batch: batch.x**batch.power, lambda x, power: Pair(x, power)),
        (lambda batch: batch.x**batch.power, lambda x, power: SimpleNamespace(x=x, power=power)),
        (lambda batch: batch["x"] ** batch["n"], lambda x, power: OrderedDict(x=x, n=power)),
        (lambda batch: batch["x"] ** batch["n"], lambda x, power: defaultdict(int, x=x, n=power)),
        (lambda batch: batch["x"] ** batch.power, lambda x, power: named(x, power)),
        (lambda batch: batch[0] * ag.ones(batch[1]), lambda x, n: (x, ag.Size([n, 1]))),
        (lambda batch: batch.x.x**batch.power, lambda x, power: Batch(Pair(x), power)),
        (lambda batch: batch._replace(x=batch.x * 2).x, lambda x, power: Pair(x, power)),
        (lambda batch: batch[0] * sum(batch[1:]), lambda x, power: Pair(x, power)),
    ],
    ids=[
        "dataclass", "pair", "namespace", "ordered", "default", "attribute", "size", "nested",
        "replaced", "items",
    ],
)  # fmt: skip
def test_new_records_with_the_same_fields_are_replayed(function, make):
    fast = ag.compile(function)
    for exponent in (2, 2, 3, 3, 2):
        for number in range(3):
            x = ag.full((2,), float(number))
            assert fast(make(x, exponent)).tolist() == function(make(x, exponent)).tolist()
    assert replays(fast) == 13


def test_a_new_record_may_be_returned():
    fast = ag.compile(lambda batch: Pair(batch.x * 2, batch.power))
    for number in range(3):
        made = fast(Pair(ag.full((2,), float(number)), 5))
        assert type(made) is Pair
        assert made.x.tolist() == [2.0 * number] * 2
        assert made.power == 5
    assert replays(fast) == 2


def test_what_methods_of_a_record_read_is_compared(monkeypatch):
    fast = ag.compile(lambda batch: batch.scaled())
    for factor in (2.0, 3.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        for _ in range(2):
            assert fast(Batch(ag.ones(2))).tolist() == [factor] * 2
    monkeypatch.setattr(Batch, "scaled", lambda self: self.x * 7)
    assert fast(Batch(ag.ones(2))).tolist() == [7.0] * 2


def test_a_record_that_the_call_changes_is_changed_each_time():
    def function(batch):
        batch.power += 1
        batch.parts.append(1.0)
        return batch.x * batch.power

    fast = ag.compile(function)
    batch = Batch(ag.ones(2))
    assert [fast(batch).tolist()[0] for _ in range(4)] == [3, 4, 5, 6]
    assert (batch.power, len(batch.parts)) == (6, 4)


def test_fields_more_or_less_and_other_classes_are_told_apart():
    class Other(Batch):
        def scaled(self):
            return self.x * 11

    fast = ag.compile(lambda batch: batch.scaled())
    for kind, factor in ((Batch, 2.0), (Other, 11.0), (Batch, 2.0)):
        for _ in range(2):
            assert fast(kind(ag.ones(1))).tolist() == [factor]
    with_more = ag.compile(lambda batch: batch.x * (3.0 if hasattr(batch, "more") else 1.0))
    for more in ({}, {"more": 1}, {}):
        for _ in range(2):
            batch = SimpleNamespace(x=ag.ones(1), **more)
            assert with_more(batch).tolist() == [3.0 if more else 1.0]


@pytest.mark.parametrize("make", [list, dict, SimpleNamespace, lambda: Batch(1.0)])
def test_objects_that_are_one_are_not_two(make):
    """Nor is an argument the object that the function reaches by another way."""
    known = [make()]

    def function(x, a, b):
        return x * (2.0 if a is b else 3.0) * (5.0 if a is known[0] else 1.0)

    fast = ag.compile(function)
    x, one, other = ag.ones(1), make(), make()
    for pair in ((one, one), (one, other), (known[0], other), (other, one), (known[0], known[0])):
        for _ in range(2):
            assert fast(x, *pair).tolist() == function(x, *pair).tolist()
    assert replays(fast) >= 5


def test_a_list_that_holds_itself():
    fast = ag.compile(lambda x, held: x * len(held))
    held: list[Any] = [1.0]
    held.append(held)
    assert [fast(ag.ones(1), held).item() for _ in range(3)] == [2, 2, 2]
    assert fast(ag.ones(1), [1.0, held]).item() == 2


@pytest.mark.parametrize("kind", [slice, range])
def test_slices_and_ranges_are_compared_by_value(kind):
    """Each call makes new ones."""
    fast = ag.compile(lambda x, places: x[places] * 2)
    x = ag.arange(6.0)
    for stop in (2, 3, 2, 3, 2):
        assert fast(x, kind(1, stop, 1)).tolist() == (x[kind(1, stop, 1)] * 2).tolist()
    assert "2 recorded, 3 replayed" in fast.explain()


def test_calls_with_many_other_shapes_in_between(monkeypatch):
    """The cache of metadata keeps what recorded calls compare by identity."""
    monkeypatch.setattr(namespace, "_limit", len(namespace._records) + 5)
    fast = ag.compile(lambda x: x * 2)
    for number in range(3):
        fast(ag.ones(2, 3))
        for length in range(10):
            ag.ones(1, 100 + 10 * number + length)
    assert replays(fast) == 2
    assert namespace._limit == namespace._CACHE_LIMIT


def nested(x, depth, kind):
    """A tensor within so many containers of a kind."""
    for _ in range(depth):
        x = kind([("x", x)]) if kind is dict else kind([x])
    return x


def innermost(held):
    while not isinstance(held, ag.Tensor):
        (held,) = held.values() if isinstance(held, dict) else held
    return held


@pytest.mark.parametrize("kind", [list, tuple, dict])
def test_what_is_nested_too_deeply_makes_a_call_eager(kind):
    """Programs have linked lists and trees; to describe them takes Python's stack."""
    takes = ag.compile(lambda held: innermost(held) * 2)
    gives = ag.compile(lambda x: nested(x * 2, 2000, kind))
    for number in range(3):
        x = ag.ones(2) * number
        assert takes(nested(x, 2000, kind)).tolist() == (x * 2).tolist()
        assert innermost(gives(x)).tolist() == (x * 2).tolist()
    assert "not replayed: what it returns is nested too deeply" in gives.explain()
    assert "its arguments are nested too deeply (3 calls)" in takes.explain()
    with pytest.raises(ag.errors.AutogradError, match="its arguments are nested too deeply"):
        ag.compile(innermost, fullgraph=True)(nested(ag.ones(2), 2000, kind))


@pytest.mark.parametrize("kind", [list, tuple, dict])
def test_what_python_cannot_write_in_one_expression_is_said_in_a_few_words(kind):
    """Python's error also holds the line, of thousands of characters."""
    gives = ag.compile(lambda x: nested(x * 2, 250, kind))
    for _ in range(3):
        assert innermost(gives(ag.ones(2))).tolist() == [2, 2]
    assert "its program can't be written: too many nested parentheses\n" in gives.explain()
