"""What Python code can see and others can change: a call after a change is as an eager one."""

from __future__ import annotations

import builtins
import collections
import enum
import functools
import gc
import math
import operator
import types
import weakref
from typing import NamedTuple

import pytest
from replay_counts import counts
from tree_bits import bits

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.optim import SGD


def at(value):
    """A tensor of one number."""
    return ag.tensor([float(value)])


def plain(value):
    """A value that can be compared."""
    if isinstance(value, ag.Tensor):
        return value.detach().numpy().tobytes(), value.shape, value.requires_grad
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in value]
    return value


def compare(scenario):
    """A scenario gives the same with compiled functions as with eager ones.

    Args:
        scenario: a generator function of what compiles, which makes everything anew.
    """
    expected = [plain(value) for value in scenario(lambda function: function)]
    assert [plain(value) for value in scenario(ag.compile)] == expected


def around(make):
    """A scenario: calls before and after a change.

    Args:
        make: returns a function of a tensor, and changes.
    """

    def scenario(compiler):
        function, *changes = make()
        fast = compiler(function)
        for change in (lambda: None, *changes):
            change()
            for number in range(3):
                yield fast(at(number + 1))

    return scenario


# -- classes, instances and functions that change -------------------------------------------------


def attribute_of_a_subclass():
    class Base:
        scale = 2.0

    class Derived(Base):
        pass

    made = Derived()
    return (
        lambda x: x * made.scale,
        lambda: setattr(Derived, "scale", 3.0),
        lambda: setattr(Base, "scale", 4.0),
        lambda: delattr(Derived, "scale"),
    )


def method_of_a_subclass():
    class Base(nn.Module):
        def forward(self, x):
            return x * 2

    class Derived(Base):
        pass

    return Derived(), lambda: setattr(Derived, "forward", lambda self, x: x * 3)


def special_method_of_a_subclass():
    class Base:
        def __add__(self, other):
            return other * 2

    class Derived(Base):
        pass

    made = Derived()
    return (
        lambda x: made + x if made else x - 1,
        lambda: setattr(Derived, "__add__", lambda self, other: other * 3),
        lambda: setattr(Derived, "__len__", lambda self: 0),
    )


def class_of_an_instance():
    class First(nn.Module):
        def forward(self, x):
            return x * 2

    class Second(nn.Module):
        def forward(self, x):
            return x * 3

    made = First()
    return lambda x: made.forward(x), lambda: setattr(made, "__class__", Second)


def code_of_a_function():
    def inner(x, by=2.0, *, more=1.0):
        return x * by + more

    def other(x, by=2.0, *, more=1.0):
        return x - by * more

    return (
        lambda x: inner(x),
        lambda: setattr(inner, "__code__", other.__code__),
        lambda: setattr(inner, "__defaults__", (3.0,)),
        lambda: setattr(inner, "__kwdefaults__", {"more": 5.0}),
    )


def equal_default():
    def inner(x, by=1):
        return x - 1 if by is True else x * 2

    return lambda x: inner(x), lambda: setattr(inner, "__defaults__", (True,))


def function_by_class():
    knob = types.SimpleNamespace(scale=2.0)

    @functools.singledispatch
    def inner(x):
        return x * knob.scale

    return (
        lambda x: inner(x),
        lambda: setattr(knob, "scale", 3.0),
        lambda: inner.register(ag.Tensor)(lambda x: x - 1),
    )


def function_that_keeps_results():
    knob = types.SimpleNamespace(scale=2.0)

    @functools.lru_cache
    def inner(factor):
        return factor * knob.scale

    return lambda x: x * inner(3), lambda: setattr(knob, "scale", 3.0), inner.cache_clear


def members_of_a_set():
    held = {1}

    def function(x):
        for member in held:
            x = x - 1 if member is True else x * member
        return x

    return function, lambda: (held.clear(), held.add(True))


def order_of_a_set():
    held = {0, 8}

    def function(x):
        for member in held:
            x = x * 3 + member
        return x

    return function, lambda: (held.clear(), held.add(8), held.add(0))


def method_of_an_enumeration():
    knob = types.SimpleNamespace(scale=2.0)

    class Kind(enum.Enum):
        FIRST = (1,)
        SECOND = ([2.0],)

        def scale(self):
            return knob.scale

    kinds = [Kind.FIRST, Kind.SECOND]
    return (
        lambda x: x * kinds[0].scale() + kinds[1].value[0][0],
        lambda: setattr(knob, "scale", 3.0),
        lambda: Kind.SECOND.value[0].append(kinds[1].value[0].pop() + 1),
    )


def method_of_a_named_tuple():
    knob = types.SimpleNamespace(scale=2.0)

    class Pair(NamedTuple):
        first: float

        def scale(self):
            return self.first * knob.scale

    pair = Pair(3.0)
    return lambda x: x * pair.scale(), lambda: setattr(knob, "scale", 3.0)


def attribute_by_a_string():
    class Knobs:
        first = second = third = fourth = 2.0

    names = ["first"]
    reads = operator.attrgetter("second")

    def inner(x, name="third"):
        text = "{0.fourth}".format(Knobs)  # noqa: UP030, UP032
        return x * getattr(Knobs, name) * reads(Knobs) + float(text)

    return (
        lambda x: inner(x) * getattr(Knobs, names[0]),
        *[
            functools.partial(setattr, Knobs, name, 3.0)
            for name in ("first", "second", "third", "fourth")
        ],
    )


def bases_of_a_class():
    class First:
        def method(self, x):
            return x * 2

    class Second:
        def method(self, x):
            return x * 3

    class Base(First):
        pass

    class Derived(Base):
        pass

    one = Derived()
    return lambda x: one.method(x), lambda: setattr(Base, "__bases__", (Second,))


def method_made_of_another():
    class Scaled:
        factor = 2

        def times(self, x, more):
            return x * self.factor * more

        twice = functools.partialmethod(times, more=2)

    one = Scaled()
    return lambda x: one.twice(x), lambda: setattr(one, "factor", 3)


def attribute_that_hides_one_of_a_base():
    class Base:
        scale = 2.0

    class Derived(Base):
        other = 1

    made = Derived()

    def change():
        # The class has as many attributes as before.
        del Derived.other
        Derived.scale = 3.0

    return lambda x: x * made.scale * Derived.scale, change


def attributes_of_a_pattern():
    class Knobs:
        __match_args__ = ("first",)

        def __init__(self):
            self.first = self.second = 2.0

    knobs = Knobs()

    def function(x):
        match knobs:
            case Knobs(2.0, second=2.0):
                return x * 5
            case _:
                return x

    return (
        function,
        lambda: setattr(knobs, "second", 3.0),
        lambda: setattr(knobs, "second", 2.0),
        lambda: setattr(Knobs, "__match_args__", ("third",)),
        lambda: setattr(knobs, "third", 2.0),
    )


def attributes_by_a_tuple_of_strings():
    class Knobs:
        first = second = 2.0

    module = types.ModuleType("knobs")
    module.first = module.second = 2.0

    def function(x):
        for name in ("first", "second"):
            x = x * getattr(Knobs, name) + getattr(module, name)
        return x

    return (
        function,
        lambda: setattr(Knobs, "second", 3.0),
        lambda: setattr(module, "first", 3.0),
    )


def method_by_class():
    class Knobs:
        @functools.singledispatchmethod
        def method(self, x):
            return x * 2

    made = Knobs()
    return (
        lambda x: made.method(x),
        lambda: Knobs.method.register(ag.Tensor, lambda self, x: x * 3),
    )


def attribute_of_an_error():
    class Failure(Exception):
        code = 2.0

    return lambda x: x * Failure.code, lambda: setattr(Failure, "code", 3.0)


def special_methods_that_are_no_functions():
    knob = types.SimpleNamespace(scale=2.0)

    class Scaling:
        def __call__(self, x):
            return x * knob.scale

    class Made:
        def __get__(self, instance, owner):
            return lambda x: x * knob.scale

    def scaled(self, x, more):
        return x * knob.scale * more

    class Knobs:
        __call__ = Scaling()
        __add__ = Made()
        __matmul__ = functools.partialmethod(scaled, more=2)

    made = Knobs()
    return lambda x: made(x) + (made + x) + made @ x, lambda: setattr(knob, "scale", 3.0)


def object_that_a_transform_calls():
    class Loss:
        scale = 2.0

        def __call__(self, x):
            return (x * x * self.scale).sum()

    loss = Loss()
    return (
        ag.func.grad(loss),
        lambda: setattr(loss, "scale", 3.0),
        lambda: setattr(Loss, "__call__", lambda self, x: x.sum()),
    )


def class_of_an_optimizer():
    class Own(SGD):
        def step(self, closure=None):
            return super().step(closure)

    weight = nn.Parameter(at(1))
    optimizer = Own([weight], lr=0.1)

    def function(x):
        optimizer.zero_grad()
        (weight * x).sum().backward()
        optimizer.step()
        return weight.detach().clone()

    return function, lambda: setattr(Own, "step", lambda self, closure=None: None)


def table_of_an_instance():
    made = nn.Identity()
    made.scale = 2.0
    return (
        lambda x: x * made.scale,
        lambda: setattr(made, "__dict__", {**vars(made), "scale": 3.0}),
    )


def attribute_that_a_module_gets():
    module = types.ModuleType("knobs")
    return (
        lambda x: x * (module.scale if hasattr(module, "scale") else 2.0),
        lambda: setattr(module, "scale", 3.0),
    )


def attributes_that_classes_of_the_package_get():
    class Own(nn.Linear):
        pass

    layers = nn.Linear(1, 1), Own(1, 1)

    def function(x):
        return x * sum(getattr(layer, "rank", 1.0) for layer in layers) + hasattr(x, "rank")

    return (
        function,
        lambda: setattr(ag.Tensor, "rank", 1),
        lambda: delattr(ag.Tensor, "rank"),
        lambda: setattr(nn.Linear, "rank", 2.0),
        lambda: setattr(Own, "rank", 3.0),
        lambda: delattr(nn.Linear, "rank"),
    )


def function_whose_gradient_the_code_asks_for():
    class Scaled(ag.autograd.Function):
        scale = 2.0

        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * Scaled.scale

    return lambda x: Scaled.backward(None, x), lambda: setattr(Scaled, "scale", 3.0)


def options_of_an_optimizer():
    optimizer = SGD([nn.Parameter(at(1))], lr=0.5)
    return lambda x: x * len(str(optimizer)), lambda: optimizer.param_groups[0].update(lr=0.125)


def gradients_that_are_other_tensors():
    first, second = nn.Parameter(at(1)), nn.Parameter(at(2))
    other = at(5)

    def function(x):
        return x * 1, first.grad is second.grad, first.grad is other

    return (
        function,
        lambda: setattr(first, "grad", at(3)),
        lambda: setattr(second, "grad", at(4)),
        lambda: setattr(second, "grad", first.grad),
        lambda: setattr(first, "grad", other),
        lambda: setattr(first, "grad", None),
        lambda: setattr(second, "grad", None),
    )


def attributes_of_a_parameter():
    weight, bare = nn.Parameter(at(1)), nn.Parameter(at(1))
    weight.scale = 2.0

    def function(x):
        return x * weight.scale * getattr(bare, "scale", 5.0)

    return (
        function,
        lambda: setattr(weight, "scale", 3.0),
        lambda: setattr(bare, "scale", 4.0),
        lambda: delattr(bare, "scale"),
    )


def method_of_an_optimizer():
    class Counting(SGD):
        steps = 0

        def step(self, closure=None):
            Counting.steps += 1
            return super().step(closure)

    weight = nn.Parameter(at(1))
    optimizer = SGD([weight], lr=0.1)
    calls = []

    def function(x):
        optimizer.zero_grad()
        (weight * x).sum().backward()
        optimizer.step()
        return weight * len(calls) * (1 + Counting.steps)

    return (
        function,
        lambda: setattr(optimizer, "step", lambda: None),
        lambda: setattr(optimizer, "step", weight.detach().zero_),
        lambda: delattr(optimizer, "step"),
        lambda: setattr(optimizer, "__class__", Counting),
        lambda: setattr(optimizer, "__class__", SGD),
    )


CHANGED = {
    make.__name__: make
    for make in (
        attribute_of_a_subclass, method_of_a_subclass, special_method_of_a_subclass,
        class_of_an_instance, code_of_a_function, equal_default, function_by_class,
        function_that_keeps_results,
        attribute_by_a_string, members_of_a_set, order_of_a_set, method_of_an_enumeration,
        method_of_a_named_tuple, bases_of_a_class, method_made_of_another,
        attribute_that_hides_one_of_a_base, table_of_an_instance, attribute_that_a_module_gets,
    attributes_that_classes_of_the_package_get, gradients_that_are_other_tensors,
    options_of_an_optimizer, function_whose_gradient_the_code_asks_for,
        attributes_of_a_parameter, method_of_an_optimizer, attributes_of_a_pattern,
        attributes_by_a_tuple_of_strings, method_by_class, attribute_of_an_error,
        special_methods_that_are_no_functions, object_that_a_transform_calls,
        class_of_an_optimizer,
    )
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
def test_what_changes_is_noticed(name):
    """A class, an instance, a function or a set that is another than when a call was recorded."""
    compare(around(CHANGED[name]))


def test_replaced_functions_of_modules_are_noticed(monkeypatch):
    """A test that replaces `asyncgrad.tanh`, or a function of Python's, gets what it put there."""
    pythons = ag.compile(lambda x: x * math.floor(2.5))
    direct = ag.compile(lambda x: ag.tanh(x))
    layered = ag.compile(lambda x: nn.functional.relu(x))
    built_in = ag.compile(lambda x: abs(x))
    for _ in range(2):
        direct(at(1)), layered(at(1)), pythons(at(1)), built_in(at(1))
    monkeypatch.setattr(math, "floor", lambda x: 7)
    monkeypatch.setattr(ag, "tanh", lambda x: x * 9)
    monkeypatch.setattr(nn.functional, "relu", lambda x: x * 8)
    monkeypatch.setattr(builtins, "abs", lambda x: x * 6)
    for _ in range(2):
        results = [call(at(1)).item() for call in (pythons, direct, layered, built_in)]
        assert results == [7, 9, 8, 6]


@pytest.mark.parametrize("name", ["forward", "__call__"])
def test_what_a_programs_method_of_a_layer_reads_is_followed(name, monkeypatch):
    """Programs put methods of their own into classes of this package."""
    kind = nn.Linear if name == "forward" else nn.Module
    method, knob = getattr(kind, name), types.SimpleNamespace(scale=2.0)
    monkeypatch.setattr(kind, name, lambda self, x: method(self, x) * knob.scale)
    model = nn.Linear(1, 1)
    fast = ag.compile(lambda x: model(x))
    for scale in (2.0, 2.0, 2.0, 3.0, 3.0):
        knob.scale = scale
        assert fast(at(1)).item() == model(at(1)).item()
    assert "2 recorded, 3 replayed" in fast.explain()


# -- arguments ------------------------------------------------------------------------------------


def appends(held, x):
    held.append(x * 2)
    return x * 3


def replaces(held, x):
    held[0] = x * 2
    return x * 3


def removes(held, x):
    return held.pop() * x


def reverses(held, x):
    held.reverse()
    return held[0] * x


@pytest.mark.parametrize("change", [appends, replaces, removes, reverses])
def test_lists_that_the_call_changes(change):
    """They are changed at each call."""

    def scenario(compiler):
        fast = compiler(change)
        for number in range(4):
            held = [at(5), at(6)]
            yield fast(held, at(number)), held

    compare(scenario)


def test_dictionaries_that_the_call_changes():
    """They are changed at each call, whether the key is new or not."""

    def sets(held, x):
        held["key"] = x * 2
        return x * 3

    def scenario(compiler):
        fast = compiler(sets)
        for number in range(6):
            held = {} if number < 3 else {"key": at(1)}
            yield fast(held, at(number)), held

    compare(scenario)


def test_an_argument_that_the_call_keeps():
    """The last argument is kept, also if the same has been given twice."""

    class Keeping(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = None

        def forward(self, x):
            self.last = x
            return x * 2

    def scenario(compiler):
        module = Keeping()
        fast = compiler(module)
        x, y = at(1), at(2)
        for argument in (x, x, x, y, x):
            yield fast(argument), module.last is argument

    compare(scenario)


def test_an_argument_that_the_function_reaches_too():
    """It is told from others, in the code and by gradients, whichever comes first."""

    def scenario(compiler):
        weight, other = at(2).requires_grad_(), at(3).requires_grad_()
        fast = compiler(lambda x: ag.grad((x * weight).sum(), (x, weight)))
        by_identity = compiler(lambda x: x * 2 if x is weight else x * 3)
        for first, second in ((weight, other), (other, weight)):
            for argument in (first, first, second, second, first):
                yield fast(argument), by_identity(argument)
            fast, by_identity = compiler(lambda x: x * weight), compiler(lambda x: x is weight)

    compare(scenario)


@pytest.mark.parametrize(
    "fact",
    [
        lambda x: x.storage_offset(),
        lambda x: x._base is None,
        lambda x: x._is_view(),
        lambda x: x.output_nr,
        lambda x: x.retains_grad,
        lambda x: x.grad_fn is not None and "Mul" in x.grad_fn.name(),
    ],
)
def test_facts_that_differ_between_like_tensors(fact):
    """Arguments of one shape and dtype may be views, or have other nodes."""

    def scenario(compiler):
        fast = compiler(lambda x: x * (2 + fact(x)))
        weight = ag.tensor([1.0, 2.0]).requires_grad_()
        retaining = weight[:1] * 2
        retaining.retain_grad()
        both = weight.split(1)
        many = ag.tensor([1.0, 2.0])
        for x in (
            at(1), at(2), many[:1], many[1:], weight[:1] * 2, weight[:1] + 2, *both, *both,
            retaining, weight[:1] * 2,
        ):  # fmt: skip
            yield fast(x)

    compare(scenario)


def test_views_are_not_detached_in_place():
    """Other arguments are, which changes nothing for those without a graph."""
    fast = ag.compile(lambda x: x.detach_() * 2)
    for x in (at(1), at(2)):
        assert fast(x).tolist() == [2 * x.item()]
    with pytest.raises(RuntimeError, match="detach views"):
        fast(ag.tensor([1.0, 2.0])[:1])


def test_a_tensor_that_is_another_ones_memory():
    """As a view of all of it is."""

    def scenario(compiler):
        fast = compiler(lambda x, y: x * 2 if x.is_set_to(y) else x * 3)
        for x in (at(1), at(2), at(3)):
            yield fast(x, at(1)), fast(x, x.view(1))

    compare(scenario)


def test_equal_keys_of_different_types():
    """They are one key of a dictionary, but other factors."""

    def scenario(compiler):
        held = {}
        given = compiler(lambda d: [key * x for key, x in d.items()])
        reached = compiler(lambda x: [key * x for key in held])
        for key in (1, 1.0, True, 1, 0.0, -0.0, 0.0):
            held.clear()
            held[key] = None
            for _ in range(2):
                x = ag.tensor([1, 2])
                yield given({key: x}), reached(x)

    compare(scenario)


def test_tensors_as_keys():
    """Those of this call, and of no earlier one."""
    weight = at(3)
    given = ag.compile(lambda d: {weight: sum(x * key for key, x in d.items())})
    got, made = ag.compile(lambda x: {x: x * 2}), ag.compile(lambda x: {(1, x * 2): 1})
    for number in range(3):
        x = at(number)
        assert given({x: x + 1}) == {weight: at(number * (number + 1))}
        assert [*got(x)] == [x]
        ((_, key),) = made(x)
        assert key.item() == 2 * number
    assert "2 replayed" in given.explain()
    assert "a key that it has made" in got.explain()


@pytest.mark.usefixtures("no_collector")
def test_arguments_are_not_kept():
    """Neither a recording nor a replay keeps an argument, which may have a large graph."""
    weight = at(2).requires_grad_()
    fast = ag.compile(lambda x, scale: (x * scale).tanh())
    gc.collect()
    for _ in range(3):
        x = weight * 3
        known = weakref.ref(x), weakref.ref(x.grad_fn), weakref.ref(x._array)
        fast(x, 2.0)
        del x
        assert [one() for one in known] == [None] * 3
    assert "float32[1]" in fast.explain()


def test_attributes_of_an_argument():
    """Users set them on parameters, and on tensors of classes of their own."""

    class Scaled(nn.Parameter):
        scale = 2.0

    def scenario(compiles):
        step = compiles(lambda x: x * x.scale)
        Scaled.scale = 2.0
        for kind in (nn.Parameter, Scaled):
            for number in range(6):
                value = kind(at(1))
                if number % 2 or kind is nn.Parameter:
                    value.scale = number // 2
                if number == 3:
                    Scaled.scale = 5.0
                yield step(value)

    compare(scenario)


def test_an_argument_that_names_an_attribute():
    """What it names is compared."""

    class Knobs:
        scale = 2.0

    fast = ag.compile(lambda x, name: x * getattr(Knobs, name))
    for value in (2.0, 3.0):
        Knobs.scale = value
        assert [fast(at(1), "scale").item() for _ in range(2)] == [value] * 2


@pytest.mark.parametrize("name", ["t_", "squeeze_", "unsqueeze_"])
def test_axes_that_the_call_changes(name):
    """Also before a change that can be replayed."""

    def scenario(compiles):
        w, x = ag.ones(1), at(2)
        turn = {
            "t_": lambda: w.t_(),
            "squeeze_": lambda: w.squeeze_(),
            "unsqueeze_": lambda: w.unsqueeze_(0),
        }[name]

        def step(y):
            turn()
            x.add_(y)
            return x * 2

        fast = compiles(step)
        for k in range(4):
            yield fast(at(k)), w, w._version, x._version

    compare(scenario)


class Whole(int):
    """A number that may have attributes."""


def counting(make):
    """A scenario: the function counts its calls in an attribute of an object."""

    def scenario(compiles):
        counter = make()

        def step(x):
            counter.calls = getattr(counter, "calls", 0) + 1
            return x * counter.calls

        yield from map(compiles(step), map(at, range(4)))

    return scenario


@pytest.mark.parametrize(
    "make",
    [
        lambda: lambda: None,
        lambda: functools.partial(at, 1),
        lambda: Whole(3),
        lambda: ag.optim.SGD([at(1).requires_grad_()]),
        lambda: ag.optim.lr_scheduler.StepLR(ag.optim.SGD([at(1).requires_grad_()]), 1),
        lambda: types.SimpleNamespace(),
    ],
)
def test_attributes_that_the_call_adds(make):
    """Objects of all kinds may count calls."""
    compare(counting(make))


def test_a_function_that_counts_its_calls():
    """Its name in the code is that of the compiled function."""

    def scenario(compiles):
        @compiles
        def step(x):
            step.calls += 1
            return x * step.calls

        step.calls = 0
        yield from map(step, map(at, range(4)))

    compare(scenario)


@pytest.mark.parametrize(
    "make",
    [
        lambda: collections.UserDict({0: 1}),
        lambda: collections.UserList([1]),
        lambda: collections.ChainMap({0: 1}),
    ],
)
def test_containers_that_python_defines_as_classes(make):
    """Their contents are in attributes that only Python's own code names."""

    def scenario(compiles):
        held = make()

        def step(x):
            held[0] += 1
            return x * held[0]

        yield from map(compiles(step), map(at, range(4)))

    compare(scenario)


scale_of_module = 2.0
#: What functions below read, and what changes it.
SMALL = {
    "global": lambda f: globals().__setitem__("scale_of_module", 3.0),
    "item of a list": lambda f: f.held.__setitem__(0, 5.0),
    "length of a list": lambda f: f.held.append(2.0),
    "outer variable": lambda f: f.set_outer(7.0),
    "requires grad": lambda f: f.held[1].requires_grad_(),
    "strides": lambda f: setattr(f.held[1], "data", ag.tensor([[7.0, 3.0], [2.0, 4.0]]).T),
    "code": lambda f: setattr(f.inner, "__code__", (lambda x: x - 1).__code__),
    "defaults": lambda f: setattr(f.inner, "__defaults__", (9.0,)),
    "function of a module": lambda f: setattr(math, "floor", lambda x: 4),
    "hook": lambda f: f.held[2].register_hook(lambda g: g * 2),
}


def small_function():
    """A function that reads few things, and a name of each for `SMALL`."""
    outer = 1.5
    held = [2.0, ag.tensor([[1.0, 2.0], [3.0, 4.0]]), ag.ones(2, requires_grad=True)]

    def inner(x, more=1.0):
        return x * more

    def function(x):
        y = inner(x) * scale_of_module * outer + math.floor(2.5)
        for value in held:
            y = y * value
        return ag.grad(y.sum(), held[2])[0] if held[1].requires_grad is False else y.detach()

    def set_outer(value):
        nonlocal outer
        outer = value

    function.held, function.inner, function.set_outer = held, inner, set_outer
    return function


@pytest.mark.parametrize("kind", SMALL)
def test_changes_after_many_replays_are_noticed(kind, monkeypatch):
    """By then the checks are code made for them."""
    monkeypatch.setattr(math, "floor", math.floor)
    monkeypatch.setitem(globals(), "scale_of_module", 2.0)
    function = small_function()
    # The compiled function would have these attributes, too, as an instance's table.
    parts = types.SimpleNamespace(**vars(function))
    vars(function).clear()
    fast = ag.compile(function)
    x = ag.tensor([[1.0, 2.0], [3.0, 5.0]])
    for _ in range(8):
        assert fast(x).tolist() == function(x).tolist()
    assert fast._entries[0].reached._code_of_checks is not None
    before = function(x).tolist()
    SMALL[kind](parts)
    for _ in range(3):
        assert fast(x).tolist() == function(x).tolist()
    assert function(x).tolist() != before


def test_equal_numbers_that_are_other_objects():
    """They are compared by value, as before; the code that compares by identity is dropped."""
    held = [1000.5]
    fast = ag.compile(lambda x: x * held[0])
    for number in range(12):
        held[0] = float("1000.5") + (number == 11)
        assert fast(at(2)).item() == 2 * held[0]
    assert "2 recorded, 10 replayed" in fast.explain()


def test_the_checks_of_many_layers():
    """A dictionary's values are compared at once where they are many."""
    model = nn.Sequential(*[nn.Linear(2, 2) if n % 2 == 0 else nn.Tanh() for n in range(16)])
    fast = ag.compile(lambda x: model(x).detach())
    x = ag.ones(1, 2)
    for change in (
        lambda: None,
        lambda: setattr(model[2], "weight", nn.Parameter(ag.ones(2, 2))),
        lambda: model[4].register_forward_hook(lambda module, args, out: out + 1),
        lambda: setattr(model[5], "_forward_hooks", {**model[4]._forward_hooks}),
        lambda: model[5]._forward_hooks.clear(),
        lambda: setattr(model[7], "forward", lambda x: x * 3),
        lambda: setattr(model[0], "training", False),
    ):
        change()
        for number in range(6):
            assert fast(x * number).tolist() == model(x * number).tolist()
    checks = [entry.reached._code_of_checks for entry in fast._entries if entry.replays]
    assert len(checks) == 7
    assert checks[-1] is not None


def test_what_the_function_reads_is_followed_once_for_all_shapes():
    """A recording of another shape starts from what is known, unless that has changed since."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    fast = ag.compile(lambda x, call, times: call(x) * times)
    for width in (1, 2, 3, 4):
        if width == 3:
            model.eval()
        x = ag.ones(width, 2)
        assert plain(fast(x, model, 2)) == plain(model(x) * 2)
    first, second, third, fourth = (entry.reached for entry in reversed(fast._entries))
    assert first is second
    assert third is fourth
    assert first is not third


def test_what_is_followed_depends_on_the_place_of_arguments():
    """Attributes are those of an argument by its place, as `self.scale` of a method."""

    class Scaled:
        def __init__(self, scale):
            self.scale = scale
            self.other = 1.0

    def scenario(compiler):
        one, two = Scaled(2.0), Scaled(3.0)
        fast = compiler(lambda a, b, x: x * a.scale + b.other)
        for width, pair in ((1, (one, two)), (2, (one, two)), (3, (two, one)), (4, (two, one))):
            yield fast(*pair, ag.ones(width))
            yield fast(*pair, ag.ones(width))
            pair[0].scale += 1
            yield fast(*pair, ag.ones(width))
            pair[1].other -= 1
            yield fast(*pair, ag.ones(width))

    compare(scenario)


def test_a_part_of_the_package_that_is_imported_on_use(monkeypatch):
    """The first call imports it, and that is no change of what the function reads."""
    monkeypatch.delitem(vars(ag), "distributions", raising=False)
    fast = ag.compile(lambda x: ag.distributions.Normal(0.0, 1.0).log_prob(x), fullgraph=True)
    x = ag.ones(2)
    assert bits(fast(x)) == bits(fast(x))
    assert counts(fast) == (1, 1)


def test_modules_of_the_package_as_outer_variables():
    """Any of them may have what the code names, and what gives names on use has no effects."""

    def made(package, nn):
        def function(x):
            vector = nn.utils.parameters_to_vector([x, package.tanh(x)])
            return vector, package.testing is None

        return function

    fast = ag.compile(made(ag, ag.nn), fullgraph=True)
    x = ag.ones(2)
    assert bits(fast(x)) == bits(fast(x))
    assert counts(fast) == (1, 1)


@pytest.mark.parametrize("names", [["factor"], {"factor": 1}, None])
def test_what_others_call_as_the_package_calls_its_table_of_parts(names):
    """Only the package's own names are imported."""

    class Holder:
        _ON_USE = names
        offset = 1.0

    fast = ag.compile(lambda x: x * getattr(Holder, "factor", 2.0) + Holder.offset, fullgraph=True)
    assert [fast(at(1)).tolist() for _ in range(2)] == [[3.0]] * 2
    assert counts(fast) == (1, 1)
