"""Whose attributes a name in the code may be: no others count, and none is left out."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import operator
import os
import types
from typing import Any, NamedTuple

import pytest
from replay_counts import counts

import asyncgrad as ag
from asyncgrad import nn


class Scaled:
    """What an optimiser has, too, under the names of its methods."""

    def __init__(self, by=2.0):
        self.by = by

    def step(self, x):
        return x * self.by


class Training:
    """A step that counts, by names that optimisers have."""

    def __init__(self):
        self.model = nn.Linear(3, 2)
        with ag.no_grad():
            self.model.weight.copy_(ag.arange(6.0).reshape(2, 3) / 7)
            self.model.bias.zero_()
        self.update = ag.optim.Adam(self.model.parameters(), lr=0.1)
        self.last_epoch = self.defaults = 0
        self.state = []

    def step(self, x):
        self.last_epoch += 1
        self.learn(x)
        self.defaults += 1
        self.state.append(x.sum().item())

    def learn(self, x):
        self.update.zero_grad()
        (self.model(x) ** 2).mean().backward()
        self.update.step()


def test_a_step_that_steps_an_optimiser_is_not_called_by_it():
    """`self.update.step` is no method of the class of `self`, whose counters change."""
    ours, theirs = Training(), Training()
    fast = ag.compile(ours.step)
    for number in range(12):
        x = ag.ones(4, 3) * number
        fast(x)
        theirs.step(x)
        assert ours.model.weight.tolist() == theirs.model.weight.tolist()
    assert (ours.last_epoch, ours.state) == (12, theirs.state)
    parts = fast._cuts.division.compiled_parts()
    assert max(counts(part)[1] for part in parts) > 8, fast.explain()


def held_by_a_property():
    scaled = Scaled()

    class Holder:
        @property
        def owner(self):
            return scaled

    holder = Holder()
    return lambda x: holder.owner.step(x), scaled


def held_by_an_enum():
    scaled = Scaled()
    kind = enum.Enum("kind", {"only": scaled})
    return lambda x: kind.only.value.step(x), scaled


def held_by_names_that_are_values():
    scaled, named = Scaled(), {"owner": Scaled()}
    other = types.SimpleNamespace(owner=scaled)
    return (
        lambda x: types.SimpleNamespace(**named).owner.step(x) + other.owner.step(x),
        named["owner"],
        scaled,
    )


def held_by_a_new_record():
    scaled, other = Scaled(), types.SimpleNamespace(owner=ag.nn.Linear(1, 1))

    class Pair(NamedTuple):
        owner: Any

    @dataclasses.dataclass
    class Record:
        owner: Any

    return (
        lambda x: Pair(scaled).owner.step(x) + Record(scaled).owner.step(x) if other.owner else x,
        scaled,
    )


def held_under_a_computed_name():
    scaled, other, name = Scaled(), types.SimpleNamespace(owner=Scaled()), "renwo"

    class Empty:
        pass

    def function(x):
        first, second = Empty(), Empty()
        setattr(first, name[::-1], scaled)
        object.__setattr__(second, name[::-1], scaled)
        third = types.SimpleNamespace(**{name[::-1]: scaled})
        x = first.owner.step(x) + second.owner.step(x)
        return x + third.owner.step(x) + other.owner.step(x)

    return function, scaled, other.owner


def held_under_a_variable_name():
    scaled, other = Scaled(), types.SimpleNamespace(owner=ag.nn.Linear(1, 1))
    name = "owner"

    class Empty:
        pass

    def function(x):
        empty = Empty()
        setattr(empty, name, scaled)
        return empty.owner.step(x) if other.owner else x

    return function, scaled


def held_by_a_class_of_the_call():
    scaled, other = Scaled(), types.SimpleNamespace(owner=Scaled())

    def function(x):
        class Holder:
            owner = scaled

        return Holder.owner.step(x) + Holder().owner.step(x) + other.owner.step(x)

    return function, scaled, other.owner


def held_by_variables_that_are_set_again():
    scaled, other = Scaled(), types.SimpleNamespace(owner=Scaled())

    def function(x):
        first = other.owner
        for _ in range(2):
            second = first
            x = second.step(x)
            first = [scaled][0]
        return x

    return function, scaled, other.owner


def held_by_what_is_computed():
    scaled, other = Scaled(), types.SimpleNamespace(owner=Scaled())

    class Holder:
        def __getattr__(self, name):
            return scaled

    holder = Holder()
    return lambda x: holder.owner.step(x) + other.owner.step(x), scaled, other.owner


def held_by_a_variable_of_the_call():
    scaled, other = Scaled(), types.SimpleNamespace(owner=Scaled())

    def function(x):
        owner = scaled if other else other.owner
        return (lambda: owner.step(x))() + other.owner.step(x)

    return function, scaled, other.owner


def held_by_either_of_two():
    scaled, other = Scaled(), types.SimpleNamespace(owner=Scaled())
    return lambda x: (other.owner if other.owner.by > 5 else scaled).step(x), scaled, other.owner


def held_after_a_change():
    holder = types.SimpleNamespace(owner=None)

    class Changing:
        def change(self, to):
            holder.owner = to

    scaled, changing = Scaled(), Changing()

    def function(x):
        changing.change(scaled)
        x = holder.owner.step(x)
        changing.change(None)
        return x

    return function, scaled


def called_by_a_class():
    class Other:
        by = 3.0

        def run(self, x):
            return Scaled.step(self, x) + self.scaled.step(x)

    other = Other()
    other.scaled = Scaled()
    return other.run, other, other.scaled


def called_by_the_class_of_an_instance():
    class Other:
        by = 3.0

        def run(self, x):
            return type(self.scaled).step(self, x)

    other = Other()
    other.scaled = Scaled()
    return other.run, other


def called_with_another_class_of_instances():
    class Shown(Scaled):
        again = Scaled.step

        @property
        def factor(self):
            return self.by

    scaled, *others = Shown(), *[types.SimpleNamespace(by=number) for number in (3.0, 5.0, 7.0)]
    first, second, third = others

    def function(x):
        x = type(scaled).again(first, scaled.step(x))
        return scaled.__class__.step(second, x) * type(scaled).factor.fget(third)

    return function, *others


def called_by_a_method_s_function():
    class Other:
        by = 3.0

        def run(self, x):
            return self.scaled.step.__func__(self, x)

    other = Other()
    other.scaled = Scaled()
    return other.run, other


def called_by_what_gets_the_class():
    class Wrapped:
        def __get__(self, instance, owner):
            return lambda x: owner.step(instance.other, x)

    class Holder(Scaled):
        wrapped = Wrapped()

    holder = Holder()
    holder.other = types.SimpleNamespace(by=4.0)
    return lambda x: holder.wrapped(x), holder.other


def called_for_another():
    class Holder(Scaled):
        def run(self, x):
            self = self.other
            return x * self.by

    holder = Holder()
    holder.other = types.SimpleNamespace(by=4.0)
    return holder.run, holder.other


def called_by_a_derived_class():
    class Derived(Scaled):
        def step(self, x):
            return super().step(x) + self.more

    derived = Derived()
    derived.more = 1.0
    return derived.step, derived


@pytest.mark.parametrize(
    "make",
    [part for name, part in [*globals().items()] if name.startswith(("held_", "called_"))],
)
def test_changes_of_what_may_be_meant(make):
    function, *owners = make()
    fast = ag.compile(function)
    x = ag.arange(3.0)
    for owner in (None, *owners):
        if owner is not None:
            owner.by = 7.0 + owner.by
        for number in range(3):
            assert fast(x + number).tolist() == function(x + number).tolist()


def test_fields_of_arguments():
    """Records and tuples among the arguments are others at each call."""
    scaled, other = Scaled(), types.SimpleNamespace(owner=Scaled())
    record = dataclasses.make_dataclass("record", ["owner"])
    pair = collections.namedtuple("pair", "owner")

    def function(held, x):
        return held.owner.step(x) + other.owner.step(x)

    for kind in (record, pair):
        fast = ag.compile(function)
        for number in range(6):
            scaled.by = float(number // 3)
            x = ag.ones(2) * number
            assert fast(kind(scaled), x).tolist() == function(kind(scaled), x).tolist()
        assert counts(fast) == (2, 4)


class Opened:
    """What is made by something that can't be followed, and reads a named tuple."""

    def __init__(self):
        with open(os.devnull):
            self.by = 2.0

    def step(self, pair, x):
        return Pair(x * self.by * pair.owner, pair.owner), f"{pair}"


class Pair(NamedTuple):
    first: Any
    owner: Any


def test_named_tuples_make_no_instances_of_other_classes():
    """What `collections` writes for them asks for the class, to show its name."""
    fast = ag.compile(Opened().step)
    for number in range(4):
        pair = Pair(None, number // 2)
        (first, owner), text = fast(pair, ag.ones(1))
        assert (first.item(), owner) == (2.0 * (number // 2), number // 2)
        assert text == repr(pair)
    assert counts(fast) == (2, 2)


def test_changes_of_what_makes_named_tuples():
    """A class may make them by a method of a program."""

    class Made(Pair):
        def __new__(cls, first, owner):
            return super().__new__(cls, first * scale[0], owner)

    scale = [2.0]
    pair = Made(ag.ones(1), 1)
    fast = ag.compile(lambda x: (type(pair)(x, 1).first, pair._replace(first=x).first))
    for number in range(4):
        scale[0] = float(number // 2)
        assert [y.item() for y in fast(ag.ones(1))] == [number // 2, 1]


@dataclasses.dataclass
class State:
    """What a training script keeps."""

    by: float = 1.0
    losses: list = dataclasses.field(default_factory=list)


@pytest.mark.parametrize("make", [State, lambda: types.SimpleNamespace(by=1.0, losses=[])])
def test_other_fields_of_what_is_neither_shown_nor_compared(make):
    """A script's state may get longer from step to step, while a program reads a number there."""
    state = make()
    fast = ag.compile(lambda x: x * state.by)
    for number in range(6):
        assert fast(ag.ones(())).item() == state.by
        state.losses.append(number)
        state.by = 1.0 + number // 4
    assert counts(fast) == (2, 4), fast.explain()


@pytest.mark.parametrize("make", [State, lambda: types.SimpleNamespace(by=1.0, losses=[])])
@pytest.mark.parametrize(
    "read",
    [
        lambda one, other: one == other,
        lambda one, other: one in [other],
        lambda one, other: [other].count(one),
        lambda one, other: operator.eq(one, other),
        lambda one, other: len(f"{one}"),
        lambda one, other: len(f"{one!r:>100}{other}"),
        lambda one, other: len(f"{(one, other)}"),
        lambda one, other: len(repr(one)),
        lambda one, other: len("%s" % (one,)),  # noqa: UP031
        lambda one, other: len("{}".format(one)),  # noqa: UP032
        lambda one, other: len(getattr(one, [*other.__dict__][1])),
        lambda one, other: len(copy.copy(one).losses),
    ],
)
def test_all_fields_of_what_is_shown_or_compared(make, read):
    """No field is named here."""
    one, other = make(), make()
    fast = ag.compile(lambda x: x * read(one, other))
    for changed in (None, None, None, one, one, other, other):
        if changed is not None:
            changed.losses.append(1)
        assert fast(ag.ones(())).item() == read(one, other)


def test_all_fields_that_dataclasses_reads():
    """Its functions find the names of fields where nobody looks."""
    state = State()
    for read in (
        lambda: len(dataclasses.asdict(state)["losses"]),
        lambda: len(dataclasses.astuple(state)[1]),
        lambda: len(dataclasses.replace(state, by=2.0).losses),
        lambda: sum(len(str(getattr(state, one.name))) for one in dataclasses.fields(state)),
        lambda: sum(len(str(getattr(state, one))) for one in state.__dataclass_fields__),
    ):
        fast = ag.compile(lambda x, read=read: x * read())
        for _ in range(5):
            assert fast(ag.ones(())).item() == read()
            state.losses.append(1)


class Opening:
    """Its constructor does what no replay can, but code that only asks for a class makes none."""

    by = 2.0

    def __init__(self):
        with open(os.devnull) as empty:
            self.text = empty.read()


class Derived(Opening):
    """What makes it is inherited."""


OPENING = Derived()


@pytest.mark.parametrize(
    "ask",
    [
        lambda: isinstance(OPENING, Opening),
        lambda: isinstance(OPENING, (int, Opening)) + issubclass(Derived, Opening),
        lambda: sum(isinstance(one, Derived) for one in [OPENING, 2]),
        lambda: type(OPENING) is Derived,
        lambda: len(type(OPENING).__name__),
        lambda: type(OPENING).by,
        lambda: OPENING.__class__.by,
    ],
)
def test_what_asks_for_a_class_makes_no_instance(ask, monkeypatch):
    fast = ag.compile(lambda x: x * ask(), fullgraph=True)
    for number in range(4):
        monkeypatch.setattr(Derived, "by", 2.0 + number // 2)
        assert fast(ag.ones(())).item() == ask()
    assert counts(fast)[1] >= 2


@pytest.mark.parametrize(
    ("make", "way"),
    [
        (lambda: Opening(), ""),
        (lambda: [isinstance(OPENING, Opening), Opening], ""),
        (lambda: [kind for kind in (Opening, int) if isinstance(OPENING, kind)], ""),
        (lambda: str([type(OPENING), Opening is Derived]), ", by way of type"),
        (lambda: type(OPENING)(), ", by way of type"),
        (lambda: type(OPENING).__mro__[1](), ", by way of type"),
        (lambda: type(OPENING).mro()[1](), ", by way of type"),
        (lambda: OPENING.__class__(), ", by way of __class__"),
    ],
)
def test_where_something_can_not_be_followed(make, way):
    """The user sees in which function, and why the code may lead to a constructor."""
    fast = ag.compile(lambda x: (make(), x)[1])
    fast(ag.ones(()))
    assert f"its code uses open() (in Opening.__init__{way})" in fast.explain()


def isinstance_of_its_own(value, kind):
    return kind()


def test_a_function_of_the_program_may_have_the_name_of_one_that_asks(monkeypatch):
    fast = ag.compile(lambda x: (isinstance(OPENING, Opening), x)[1])
    monkeypatch.setitem(globals(), "isinstance", isinstance_of_its_own)
    fast(ag.ones(()))
    assert "(in Opening.__init__)" in fast.explain()


def reading_names(x):
    return x * len(os.listdir())


def test_where_a_function_of_another_module_is_used():
    fast = ag.compile(lambda x: reading_names(x))
    fast(ag.ones(()))
    assert "not known to depend on its arguments alone (in reading_names)" in fast.explain()
