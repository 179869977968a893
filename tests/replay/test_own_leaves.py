"""Leaves that a compiled call makes itself, and the gradients that they get there."""

from __future__ import annotations

from typing import Any

import pytest

import asyncgrad as ag
from asyncgrad import nn

F = nn.functional
SEEN: list[Any] = []
WEIGHT = nn.Parameter(ag.arange(12.0).reshape(3, 4) / 9)


def saliency(x: Any) -> Any:
    x = x.clone().requires_grad_()
    (x @ WEIGHT.detach()).tanh().sum().backward()
    return x.grad


def copied(x: Any) -> Any:
    """The gradient of a sum is a view, of which the leaf gets a copy."""
    x = x.detach().clone().requires_grad_()
    x.sum().backward()
    return x.grad.mul_(3), x.grad + 1


def attack(x: Any) -> Any:
    x = x.clone().requires_grad_()
    assert x.grad is None
    F.cross_entropy(x @ WEIGHT, ag.tensor([0, 3])).backward()
    return (x + 0.1 * x.grad.sign()).detach().clamp(-1, 1), WEIGHT.grad


def penalty(x: Any) -> Any:
    x = (x * 0.5).requires_grad_()
    (slope,) = ag.grad((x @ WEIGHT).sigmoid().sum(), x, create_graph=True)
    ((slope.norm(dim=1) - 1) ** 2).mean().backward()
    return x.grad, WEIGHT.grad


def changed(x: Any) -> Any:
    x = x.clone().requires_grad_()
    (x * x @ WEIGHT).sum().backward()
    before = x.grad * 1
    x.grad.clamp_(-1, 1)
    x.grad[0] = 7
    return before, x.grad, x.grad.T @ x.detach()


def turned(x: Any) -> Any:
    x = x.T.clone().T.requires_grad_()
    (x @ WEIGHT).exp().sum().backward()
    return x.grad.reshape(-1), x.grad.sum(0)


def two(x: Any) -> Any:
    x, y = x.clone().requires_grad_(), (x * 2).requires_grad_()
    (x * y @ WEIGHT).sum().backward()
    return x.grad - y.grad, x.grad


def iterated(x: Any) -> Any:
    """As in projected gradient descent; the old values are still there for others."""
    delta = ag.zeros_like(x).requires_grad_()
    first = delta.detach() + 1
    for _ in range(3):
        (slope,) = ag.grad(F.cross_entropy((x + delta) @ WEIGHT, ag.tensor([1, 2])), delta)
        delta.data = (delta.data + 0.1 * slope.sign()).clamp(-0.25, 0.25)
    moved = delta.data * 1
    delta.data.mul_(2)
    return delta.detach(), first, moved, (x + delta).detach()


def shared(x: Any) -> Any:
    """A leaf of the call has the memory of a weight."""
    y = x.clone()
    y.data = WEIGHT.data[:2, :3]
    return y * 2


def twice(x: Any) -> Any:
    x = x.clone().requires_grad_()
    for _ in range(2):
        (x @ WEIGHT).exp().sum().backward()
    return x.grad


def kept(x: Any) -> Any:
    y = x.clone().requires_grad_() * 2
    y.retain_grad()
    (y @ WEIGHT).exp().sum().backward()
    return y.grad


def hooked(x: Any) -> Any:
    x = x.clone().requires_grad_()

    def double(leaf: Any) -> None:
        leaf.grad.mul_(2)

    x.register_post_accumulate_grad_hook(double)
    (x @ WEIGHT).exp().sum().backward()
    return x.grad


REPLAYED = [saliency, copied, attack, penalty, changed, two, iterated]


def bits(result: Any) -> list[Any]:
    parts = result if isinstance(result, tuple) else (result,)
    return [(p.detach().numpy().tobytes(), tuple(p.shape), p._array.strides) for p in parts]


@pytest.mark.parametrize("function", [*REPLAYED, shared, turned, twice, kept, hooked])
def test_gradients_of_own_leaves(function: Any) -> None:
    """As in an eager call, of other values each time; results of earlier calls stay as they are."""
    fast = ag.compile(function)
    results = []
    for number in range(4):
        x = ag.arange(6.0).reshape(2, 3) / (number + 1) - 0.5
        found = []
        for call in (function, fast):
            WEIGHT.grad = None
            found.append(call(x))
        assert bits(found[0]) == bits(found[1])
        results.append((found[1], bits(found[1])))
    assert all(bits(result) == known for result, known in results)
    if function in REPLAYED:
        assert "1 recorded, 3 replayed" in fast.explain(), fast.explain()


def hook_on_leaf(leaf: Any, y: Any) -> Any:
    leaf.register_hook(lambda g: SEEN.append(g.tolist()))
    return y


def gradient_of_leaf(leaf: Any, y: Any) -> Any:
    y.sum().backward(retain_graph=True)
    return y, leaf.grad


@pytest.mark.parametrize(
    "use", [lambda leaf, y: y, lambda leaf, y: leaf * 2, hook_on_leaf, gradient_of_leaf]
)
def test_a_pass_outside_to_own_leaves(use: Any) -> None:
    """What it does there is seen by a hook, and in the leaf's gradient if that was returned."""

    def function(x: Any) -> Any:
        leaf = x.detach().requires_grad_()
        return use(leaf, (leaf @ WEIGHT).tanh())

    fast = ag.compile(function)
    for number in range(4):
        found = []
        for call in (function, fast):
            SEEN.clear()
            WEIGHT.grad = None
            result = call(ag.arange(6.0).reshape(2, 3) / (number + 1))
            first = result[0] if isinstance(result, tuple) else result
            first.sum().backward()
            grad = () if WEIGHT.grad is None else (WEIGHT.grad,)
            found.append((bits(result), bits(grad), SEEN[:]))
        assert found[0] == found[1]


def test_gradients_of_gradients_lead_to_own_leaves() -> None:
    """A gradient with a graph requires grad because a leaf of the call's own does."""

    def function(x: Any) -> Any:
        leaf = x.detach().requires_grad_()
        return (leaf @ WEIGHT).sum()

    fast = ag.compile(function)
    for number in range(4):
        found = []
        for call in (function, fast):
            result = call(ag.arange(6.0).reshape(2, 3) / (number + 1))
            (slope,) = ag.grad(result, WEIGHT, create_graph=True)
            end = slope.grad_fn
            while end.next_functions:
                end = end.next_functions[0][0]
            (slope * slope).sum().backward()
            found.append((slope.tolist(), end.variable.tolist(), end.variable.grad.tolist()))
        assert found[0] == found[1]
    assert "1 recorded, 3 replayed" in fast.explain()


def test_own_leaves_on_a_device_with_streams() -> None:
    """A pass that commits nothing still ends as passes over such a device do."""

    def function(x: Any) -> Any:
        leaf = x.clone().requires_grad_()
        (leaf * leaf).tanh().sum().backward()
        leaf.data = leaf.data + 0.1 * leaf.grad.sign()
        return leaf.detach(), leaf.grad.mul_(2)

    fast = ag.compile(function)
    for number in range(4):
        x = (ag.arange(6.0) / (number + 1)).to("sim:0")
        found, expected = fast(x), function(x)
        assert [p.tolist() for p in found] == [p.tolist() for p in expected]
    assert "1 recorded, 3 replayed" in fast.explain()


@pytest.mark.asyncio
async def test_an_awaited_pass_to_own_leaves_alone() -> None:
    """Nothing is committed, so the program is divided by no pass."""

    async def slow(x: Any) -> Any:
        x = x.clone().requires_grad_()
        await (x @ WEIGHT.detach()).tanh().sum().backward()
        return x.grad

    fast = ag.compile(slow)
    for number in range(4):
        x = ag.arange(6.0).reshape(2, 3) / (number + 1)
        assert (await fast(x)).tolist() == (await slow(x)).tolist()
    assert "1 recorded, 3 replayed" in fast.explain()
