"""Replays of what users' code has: data classes, constants, indices, elements that are set."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.errors import AutogradError
from asyncgrad.nn import functional as F


@dataclasses.dataclass
class Output:
    """A result with a method of its own."""

    loss: ag.Tensor
    values: ag.Tensor

    def total(self):
        return self.loss + self.values.sum()


class Pair(NamedTuple):
    """A result with names."""

    first: ag.Tensor
    second: ag.Tensor


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a function reads."""

    scale: float = 2.0


@dataclasses.dataclass
class Changing:
    """What a function reads, and others change."""

    scale: float = 2.0


SETTINGS = Settings()
PLACES = ag.tensor([0, 2])
LINE = ag.tensor([[2, 1, 0]])
NORM = nn.BatchNorm1d(3, track_running_stats=False)


def put_elements(x, w):
    y = x * w
    y[PLACES] = y[PLACES].detach() * 2
    return y * w


def put_into_constants(x, w):
    y = ag.zeros(3, 3)
    y[PLACES, PLACES] = x[0, :2]
    z = y * 3
    y[PLACES] += 1
    return y * w + z


def put_and_read_before(x, w):
    y = x + 1
    before = y * 3
    y[PLACES] = 0.5
    return before + y * w


def within(x, w):
    out = Output((x * w).sum(), x * 2)
    return Pair(out.total(), out.values)


CASES = {
    "data_class": lambda x, w: Output((x * w).sum(), x * 2),
    "within": within,
    "named_tuple": lambda x, w: Pair((x * w).sum(), x * 2),
    "nested": lambda x, w: {"a": [Output(x + 1, x * 2), Pair(x, x * w)]},
    "settings": lambda x, w: x * w * SETTINGS.scale,
    "tensor": lambda x, w: x * w * ag.tensor([1.0, 2.0, 3.0]) + ag.as_tensor(2.0),
    "tensor_of_a_tensor": lambda x, w: w * ag.tensor(x, dtype=ag.float64),
    "new_tensor": lambda x, w: w * x.new_tensor([1, 2, 3]),
    "topk": lambda x, w: (x * w).topk(2, sorted=True),
    "least": lambda x, w: (x * w).topk(1, 0, largest=False).values,
    "median": lambda x, w: (x * w).median(1),
    "kthvalue": lambda x, w: (x * w).kthvalue(2, 0, keepdim=True),
    "mode": lambda x, w: (x * w).mode(1).values,
    "take_along_dim": lambda x, w: ag.take_along_dim(x * w, LINE, 0),
    "index_select": lambda x, w: (x * w).index_select(0, PLACES),
    "one_hot": lambda x, w: F.one_hot((x * w).argmax(1), 3) * w,
    "scatter": lambda x, w: ag.zeros(3, 3).scatter(0, LINE, x * w),
    "scatter_add": lambda x, w: (x * w).scatter_add(1, (x * w).argsort(1), x),
    "index_put": lambda x, w: (x * w).index_put((PLACES,), x[0]),
    "put_elements": put_elements,
    "put_into_constants": put_into_constants,
    "put_and_read_before": put_and_read_before,
    "batch_norm": lambda x, w: NORM(x * w),
}


def bits(value):
    """Everything that a caller sees."""
    if isinstance(value, ag.Tensor):
        return value.detach().numpy().tobytes(), value.shape, value.dtype, value.requires_grad
    if dataclasses.is_dataclass(value):
        return type(value), [(name, bits(part)) for name, part in vars(value).items()]
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    return type(value), [(key, bits(part)) for key, part in parts]


def sum_of(value):
    """What a pass can start from."""
    if isinstance(value, ag.Tensor):
        return value.sum() if value.requires_grad else 0
    if dataclasses.is_dataclass(value):
        value = vars(value)
    return sum(map(sum_of, value.values() if isinstance(value, dict) else value))


@pytest.mark.parametrize("name", CASES)
def test_it_is_replayed(name):
    """With the results, and the gradients behind them, of eager calls."""
    function = CASES[name]
    fast = ag.compile(function)
    w = ag.randn(3, 3, requires_grad=True)
    for number in range(5):
        x = ag.randn(3, 3, generator=ag.Generator().manual_seed(number))
        wanted, found = function(x, w), fast(x, w)
        assert bits(found) == bits(wanted)
        slopes = [bits(ag.grad(sum_of(value), w)) for value in (wanted, found)]
        assert slopes[0] == slopes[1]
    assert fast.explain().splitlines()[0].endswith("1 recorded, 4 replayed"), fast.explain()


def test_numbers_of_numpy_are_compared_by_value():
    """Also as an attribute; another type or value is another program."""
    held = Changing(np.float64(2))
    fast = ag.compile(lambda x, s: x * s * held.scale)
    for number in range(12):
        scale = (np.float64, np.float32, np.int64)[number % 3](number // 6)
        held.scale = np.float64(2)
        assert bits(fast(ag.ones(2), scale)) == bits(ag.ones(2) * scale * 2)
    assert fast.explain().splitlines()[0].endswith("6 recorded, 6 replayed")


def test_a_changed_data_class_is_followed():
    """A field that the function reads."""
    held = Changing()
    fast = ag.compile(lambda x: x * held.scale)
    for number in range(6):
        held.scale = float(number // 3)
        assert fast(ag.ones(1)).item() == number // 3
    assert "2 recorded, 4 replayed" in fast.explain()


def test_what_follows_values_is_eager_or_checked():
    """Masks, classes that are out of range, negative numbers."""

    def masked(x):
        y = x * 1
        y[y > 0.5] = 0
        return y

    fast = ag.compile(masked)
    for number in range(4):
        x = ag.rand(5, generator=ag.Generator().manual_seed(number))
        assert bits(fast(x)) == bits(masked(x))
    hot = ag.compile(lambda i: F.one_hot(i, 3))
    for _ in range(3):
        assert hot(ag.tensor([1])).tolist() == [[0, 1, 0]]
        with pytest.raises(RuntimeError, match="smaller than num_classes"):
            hot(ag.tensor([3]))
    one = ag.compile(lambda x, i: ag.take_along_dim(x, i, 0))
    for place in (1, 1, -1, 2, -3):
        assert one(ag.arange(3.0), ag.tensor([place])).item() == place % 3


def test_elements_of_an_argument_are_set_eagerly():
    """Its memory is the caller's."""

    def function(x):
        x[PLACES] = 7
        return x * 2

    fast = ag.compile(function)
    for _ in range(3):
        x, y = ag.ones(3), ag.ones(3)
        assert bits(fast(x)) == bits(function(y))
        assert bits(x) == bits(y)


def test_a_saved_value_whose_elements_were_set_is_an_error():
    """In a pass outside of the call, as eagerly."""

    def function(x, w):
        y = ag.tanh(x * w)
        z = y * 2
        y[PLACES] = 1
        return z

    fast = ag.compile(function)
    for _ in range(3):
        with pytest.raises(AutogradError, match="modified by an inplace"):
            fast(ag.ones(3), ag.ones(3, requires_grad=True)).sum().backward()
    w = ag.ones(3, requires_grad=True)
    for _ in range(3):
        with pytest.raises(AutogradError, match="modified by an inplace"):
            fast(ag.ones(3), w).sum().backward()


def test_constants_stay_what_they_were():
    """A tensor that a call has made and its caller changes."""
    fast = ag.compile(lambda x: (ag.tensor([1.0, 2.0]), x * 2))
    for _ in range(4):
        made, _ = fast(ag.ones(2))
        assert made.tolist() == [1, 2]
        made.fill_(9)


class Doubled(nn.Tanh):
    """Another class of the same layout."""

    def forward(self, x):
        return super().forward(x) * 2


def _reordered(net):
    net._modules["0"] = net._modules.pop("0")


def _renamed(net):
    """The same values in the same order, under other names."""
    net[0]._parameters["bias"] = net[0]._parameters.pop("weight")
    net[0]._parameters["weight"] = net[0]._parameters.pop("bias")
    net[0]._parameters["bias"] = nn.Parameter(ag.ones(3))


MODULE_CHANGES = {
    "another layer": lambda net: setattr(net, "1", nn.Sigmoid()),
    "another order": _reordered,
    "another parameter": lambda net: setattr(net[0], "weight", nn.Parameter(ag.ones(3, 3))),
    "another class": lambda net: setattr(net[1], "__class__", Doubled),
    "one layer more": lambda net: net.append(nn.Sigmoid()),
    "one layer less": lambda net: net.__delitem__(1),
    "parameters in turn": _renamed,
    "evaluation": lambda net: net.eval(),
    "an attribute hides a method": lambda net: setattr(net[1], "forward", lambda x: x * 5),
    "a hook": lambda net: net[1].register_forward_hook(lambda module, given, result: result * 3),
    "frozen": lambda net: net.requires_grad_(False),
    "other data": lambda net: setattr(net[0].weight, "data", ag.ones(3, 3).T),
}


@pytest.mark.parametrize("change", MODULE_CHANGES)
@pytest.mark.parametrize("calls", [2, 12], ids=["new", "with written checks"])
def test_a_changed_module_is_followed(change, calls):
    """Also when the checks of a module have become code, after some replays."""
    ag.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Dropout(0.0), nn.Linear(3, 3))
    fast, x = ag.compile(lambda x: net(x).sum()), ag.randn(3)
    for _ in range(calls):
        fast(x)
    assert fast._entries[0].reached._code_of_checks is None or calls > 2
    assert calls == 2 or fast._entries[0].reached._code_of_checks is not None
    MODULE_CHANGES[change](net)
    for _ in range(6):
        assert bits(fast(x)) == bits(net(x).sum())
        assert fast(x).requires_grad == net(x).requires_grad


class Incomparable:
    def __init__(self, factor):
        self.factor = factor

    def __eq__(self, other):
        raise ValueError("more than one value")

    __hash__ = None

    def __call__(self, grad):
        return grad * self.factor


def test_hooks_are_told_apart_by_identity():
    """Their `==` may raise, as that of objects with arrays does."""
    w = ag.ones(3, requires_grad=True)

    @ag.compile
    def fast(x):
        w.grad = None
        (x * w).sum().backward()
        return w.grad

    for factor in (2.0, 5.0, 5.0):
        handle = w.register_hook(Incomparable(factor))
        for _ in range(6):
            assert fast(ag.ones(3)).tolist() == [factor] * 3
        handle.remove()


def test_a_gradient_that_is_read_and_dropped_is_not_lost():
    """Code of the user's that comes later can't end a replay: its call would be repeated."""
    w, sizes = ag.ones(3, requires_grad=True), [3]

    class Some(ag.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x[: sizes[0]].clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    def step(x):
        doubled = w.grad * 2
        w.grad = None
        return doubled, Some.apply(x)

    fast = ag.compile(step)
    for sizes[0] in (3, 3, 3, 2):
        w.grad = ag.ones(3)
        doubled, some = fast(ag.ones(3))
        assert doubled.tolist() == [2, 2, 2]
        assert len(some) == sizes[0]
