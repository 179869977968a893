"""Views of what kernels make, changed in place, with gradients of gradients, beside eager calls."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replay_counts import counts, replays

import asyncgrad as ag
from asyncgrad import nn

F = nn.functional
ATTENTION = nn.MultiheadAttention(4, 2, batch_first=True)
SQUARE, KERNEL = ag.arange(16.0).reshape(4, 4) / 8 - 1, ag.arange(27.0).reshape(3, 3, 3) / 9 - 1
#: Functions of a tensor of shape (2, 3, 4); the arrays of most of them are views of others.
KERNELS = {
    "conv": lambda x: F.conv1d(x, KERNEL, padding=1),
    "conv2d": lambda x: F.conv2d(x, KERNEL.reshape(-1)[:18].reshape(1, 2, 3, 3), padding=1),
    "conv_transpose": lambda x: F.conv_transpose1d(x, KERNEL),
    "avg_pool": lambda x: F.avg_pool1d(x, 2),
    "max_pool": lambda x: F.max_pool1d(x, 2),
    "max_pool2d": lambda x: F.max_pool2d(x, (1, 2)),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "group_norm": lambda x: F.group_norm(x, 3),
    "instance_norm": F.instance_norm,
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "linear": lambda x: F.linear(x, SQUARE),
    "einsum": lambda x: ag.einsum("bij,kj->bik", x, SQUARE),
    "einsum_turned": lambda x: ag.einsum("bij,kj->kib", x, SQUARE),
    "attention": lambda x: ATTENTION(x, x, x, need_weights=False)[0],
    "repeat": lambda x: x.repeat(1, 2, 1),
    "product": lambda x: x @ x.transpose(1, 2),
    "cumprod": lambda x: x.cumprod(1),
    "sums": lambda x: x.sum(1),
    "once": lambda x: x * 1,
    "pad": lambda x: F.pad(x, (1, 0)),
}
#: Views, some of them without all elements.
VIEWS = {
    "flatten": lambda t: t.view(-1),
    "reshape": lambda t: t.reshape(2, -1),
    "turned": lambda t: t.transpose(0, -1),
    "first": lambda t: t[0],
    "rest": lambda t: t[1:],
    "last": lambda t: t[..., -1],
    "even": lambda t: t[..., ::2],
    "back": lambda t: t[None, ..., :2],
    "diagonal": lambda t: t.diagonal(),
    "expand": lambda t: t[..., :1].expand_as(t),
    "strided": lambda t: t.as_strided((2, 2), (1, 2)),
    "detach": lambda t: t.detach(),
    "unbind": lambda t: t.unbind(0)[-1],
}
CHANGES = {
    "relu": lambda t, s: t.relu_(),
    "leaky": lambda t, s: F.leaky_relu(t, 0.2, inplace=True),
    "mul": lambda t, s: t.mul_(1.5),
    "mul_by": lambda t, s: t.mul_(s.sum()),
    "add": lambda t, s: t.add_(s.clone().reshape(-1)[0]),
    "copy": lambda t, s: t.copy_(s.reshape(-1)[-1] * 2),
    "set": lambda t, s: t.__setitem__(0, s.mean()),
    "fill": lambda t, s: t[..., 0].fill_(0.5),
    "zero": lambda t, s: t.zero_(),
    "tanh": lambda t, s: t.tanh_(),
    "put": lambda t, s: t.__setitem__(ag.tensor([0]), s.sum()),
    "sub_same": lambda t, s: t.sub_(s) if s.shape == t.shape else None,
}
#: How the second argument lies beside the first.
SECONDS = {
    "apart": lambda x: (x.detach() * 2).requires_grad_(x.requires_grad),
    "same": lambda x: x,
    "detached": lambda x: x.detach(),
    "turned": lambda x: x.detach().transpose(0, 1),
    "part": lambda x: x.detach()[0],
}  # fmt: skip


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_a_view_of_a_kernels_result_is_changed(name: str, grad: bool) -> None:
    """As by an activation in place behind a layer; also of a view of a view."""

    def function(x: Any) -> Any:
        y = KERNELS[name](x)
        y.transpose(0, -1)[1:].mul_(2)
        z = y.flatten(1)
        z.relu_()
        return (y * z.sum(), *(ag.grad((z * z).sum(), x) if grad else ()))

    fast = ag.compile(function, fullgraph=True)
    for seed in range(3):
        x = values(seed).requires_grad_(grad)
        assert bits(fast(x)) == bits(function(x))
    assert replays(fast) == 2


@pytest.mark.parametrize("name", KERNELS)
def test_gradients_of_gradients_of_changed_views(name: str) -> None:
    """The gradient penalty of a critic with activations in place."""

    def function(x: Any) -> Any:
        y = KERNELS[name](x)
        y.transpose(0, -1)[1:].mul_(2)
        y[..., 0] = x.sum()
        y[0].relu_()
        (found,) = ag.grad((y**3).sum(), x, create_graph=True)
        return ag.grad((found**2).sum() + y.mean(), x)

    fast = ag.compile(function, fullgraph=True)
    for seed in range(3):
        x = values(seed).requires_grad_()
        assert bits(fast(x)) == bits(function(x))
    assert replays(fast) == 2


@pytest.mark.parametrize("view", [lambda g: g, lambda g: g[0], lambda g: g.transpose(0, 1)[1]])
def test_a_gradient_that_is_a_view_and_a_sum_is_changed(view: Any) -> None:
    """The pass has added in place, so what the gradient was a view of has the sum, too."""

    def function(x: Any) -> Any:
        y = x.view(-1)[:24].exp()
        (found,) = ag.grad(y.sum() * x.sum(), x)
        view(found).mul_(2)
        return found * 1

    fast = ag.compile(function, fullgraph=True)
    for seed in range(3):
        x = values(seed).requires_grad_()
        assert bits(fast(x)) == bits(function(x))
    assert replays(fast) == 2


def values(seed: int) -> Any:
    """An argument."""
    return ag.from_numpy(np.random.default_rng(seed).normal(size=(2, 3, 4)).astype("f4"))


def bits(value: Any) -> Any:
    """What can be compared of tensors."""
    if isinstance(value, ag.Tensor):
        array = value.detach().numpy()
        return array.tobytes(), array.shape, value.requires_grad, value._version
    return [bits(part) for part in value] if isinstance(value, (list, tuple)) else value


def run(steps: list[Any], x: Any, z: Any) -> Any:
    """Do steps with a list of tensors, and return them."""
    known = [x, z]
    for kind, name, which, other in steps:
        tensor, second = known[which % len(known)], known[other % len(known)]
        if kind == "kernel":
            known.append(KERNELS[name](tensor.reshape(-1)[:24].reshape(2, 3, 4)))
        elif kind == "view":
            known.append(VIEWS[name](tensor))
        elif kind == "change":
            CHANGES[name](tensor, second)
        elif kind == "read":
            known.append(tensor * 2 + second.sum())
        elif kind == "twice":
            (found,) = ag.grad((tensor**3).sum(), x, create_graph=True)
            known.append(found)
        else:
            known += ag.grad((tensor * second.sum()).sum(), x, retain_graph=True)
    return known[2:]


def draw(chance: random.Random, begin: Any) -> list[Any]:
    """Steps of which none raises an error."""
    steps: list[Any] = []
    for _ in range(chance.randint(3, 14)):
        kind = chance.choice(("kernel", "view", "view", "change", "change", "change", "read",
                              "twice", "gradient"))  # fmt: skip
        names = {"kernel": KERNELS, "view": VIEWS, "change": CHANGES}.get(kind, ("",))
        step = kind, chance.choice([*names]), chance.randint(0, 30), chance.randint(0, 30)
        try:
            run([*steps, step], *begin(0))
        except (RuntimeError, IndexError):
            continue
        steps.append(step)
    return steps


def test_random_programs() -> None:
    """Also with arguments that share memory, and results that are kept and changed."""
    found = [0, 0]
    compare(found)
    assert found[1] > found[0]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**9))
def compare(found: list[int], seed: int) -> None:
    chance = random.Random(seed)
    beside, grad = chance.choice([*SECONDS]), chance.random() < 0.7
    picked, copied = chance.random(), chance.random() < 0.5

    def begin(number: int) -> Any:
        x = values(number).requires_grad_(grad)
        return x, SECONDS[beside](x)

    steps = draw(chance, begin)

    def function(x: Any, z: Any) -> Any:
        made = run(steps, x, z)
        rest = made[int(picked * len(made)) :]
        return [part.detach() * 1 for part in made] if copied else [*rest, *made[:1]]

    fast = ag.compile(function)
    held: list[list[Any]] = [[], []]
    for number in range(5):
        outcomes = []
        for call, kept in zip((fast, function), held, strict=True):
            given = begin(number)
            result = call(*given)
            outcomes.append(bits([given, result]))
            kept.append(result)
            if number == 2 and result:
                with ag.no_grad():
                    result[0].data.fill_(3)
        assert outcomes[0] == outcomes[1], (seed, beside, steps)
        assert bits(held[0]) == bits(held[1]), (seed, beside, steps)
    for place, count in enumerate(counts(fast)):
        found[place] += count
