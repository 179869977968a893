"""Passes add gradients in place where they can, and replays give the same bits and layouts."""

import pytest
from replay_counts import replays

import asyncgrad as ag


def of_two_layouts(x, w, v):
    return ag.grad((w @ x + w.T @ x + x @ w).sum(), [w])


def of_a_product_with_itself(x, w, v):
    return ag.grad((w * w * w + w.T * x + w).sum(), [w])


def of_inner_tensors(x, w, v):
    y = x @ w
    z = y * y + y
    return ag.grad((z * z + z).sum(), [y, w, z])


def of_the_parts_of_a_tensor(x, w, v):
    first, second = (x @ w).chunk(2)
    left, right = ag.split(x @ v, [1, 3], dim=1)
    total = (first * second).sum() + (left * right).sum() + second.sum()
    total.backward()
    return total.detach()


def of_numbers(x, w, v):
    number = w.sum()
    return ag.grad(number * number + number + x.sum() * number, [w])


def of_wider_copies(x, w, v):
    return ag.grad((w.double() * w.double()).sum() + (w * 2).sum(), [w])


def of_two_passes(x, w, v):
    total = ((x @ w).tanh() * (v + w)).sum()
    total.backward(retain_graph=True)
    total.backward()
    return total.detach()


def of_a_hooked_tensor(x, w, v):
    y = x @ w
    y.register_hook(lambda gradient: gradient * 2)
    total = (y * y + y + y.T).sum()
    total.backward()
    return total.detach()


def of_a_pass_outside(x, w, v):
    return ((x @ w).T * (x @ w) + w * w + w + v.T * w).sum()


def calls(function, call):
    """The results and gradients of four calls."""
    ag.manual_seed(0)
    leaves = [ag.randn(4, 4).requires_grad_() for _ in range(2)]
    found = []
    for _ in range(4):
        result = call(ag.randn(4, 4), *leaves)
        if function is of_a_pass_outside:
            result.backward()
        results = result if isinstance(result, tuple) else (result,)
        seen = (*results, *[leaf.grad for leaf in leaves if leaf.grad is not None])
        found += [(tensor.detach().numpy().tobytes(), tensor.stride()) for tensor in seen]
        for leaf in leaves:
            leaf.grad = None
    return found


@pytest.mark.parametrize(
    "function",
    [
        of_two_layouts, of_a_product_with_itself, of_inner_tensors, of_the_parts_of_a_tensor,
        of_numbers, of_wider_copies, of_two_passes, of_a_hooked_tensor, of_a_pass_outside,
    ],
)  # fmt: skip
def test_sums_are_those_of_eager_passes(function):
    """Where a pass adds in the memory of a gradient, the sum has the layout of that gradient."""
    compiled = ag.compile(function)
    assert calls(function, compiled) == calls(function, function)
    assert replays(compiled) == 3
