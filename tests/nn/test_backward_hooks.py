"""Hooks on the gradients of modules, beside PyTorch's."""

import asyncio

import numpy as np
import pytest
from module_parity import X

import asyncgrad as ag
from asyncgrad import nn


def two(library):
    """A module of two inputs and two outputs, one of each without a gradient."""

    class Two(library.nn.Module):
        def forward(self, x, y):
            return x * y, (x * 0.0).detach(), x + y

    return Two()


def run(library, register):
    """Gradients of the inputs, and what the hooks were given."""
    seen = []

    def note(name, change=None):
        def hook(module, *gradients):
            assert isinstance(module, library.nn.Module)
            seen.append(
                (
                    name,
                    [[None if g is None else g.numpy().copy() for g in part] for part in gradients],
                )
            )
            return None if change is None else change(gradients[0])

        return hook

    module = two(library)
    register(module, note)
    random = np.random.default_rng(0)
    x, y = (library.from_numpy(random.standard_normal(3)) for _ in range(2))
    x.requires_grad_()
    first, _, second = module(x, y)
    (first.sum() * 2.0 + (second * second).sum()).backward()
    return x.grad.numpy(), seen


def doubled(gradients):
    return tuple(None if g is None else g * 2.0 for g in gradients)


REGISTER = {
    "after": lambda m, note: m.register_full_backward_hook(note("after")),
    "before": lambda m, note: m.register_full_backward_pre_hook(note("before")),
    "lists": lambda m, note: (
        m.register_full_backward_hook(note("a", lambda gradients: list(doubled(gradients)))),
        m.register_full_backward_pre_hook(note("b", lambda gradients: list(doubled(gradients)))),
    ),
    "both": lambda m, note: (
        m.register_full_backward_hook(note("a", doubled)),
        m.register_full_backward_hook(note("b"), prepend=True),
        m.register_full_backward_pre_hook(note("c", doubled)),
        m.register_full_backward_pre_hook(note("d")),
    ),
}


@pytest.mark.torch
@pytest.mark.parametrize("register", REGISTER.values(), ids=REGISTER)
def test_hooks_see_and_replace_what_pytorchs_do(register):
    import torch

    mine, seen = run(ag, register)
    other, expected = run(torch, register)
    np.testing.assert_allclose(mine, other)
    assert [name for name, _ in seen] == [name for name, _ in expected]
    for (_, a), (_, b) in zip(seen, expected, strict=True):
        for part, known in zip(a, b, strict=True):
            assert len(part) == len(known)
            for g, h in zip(part, known, strict=True):
                if g is None:
                    # PyTorch shows zeros for arguments that need no gradient.
                    assert h is None or not h.any()
                else:
                    np.testing.assert_allclose(g, h)


def test_parameters_get_their_gradients_as_without_hooks():
    layer = nn.Linear(3, 2).double()
    x = ag.from_numpy(X((4, 3)))
    layer(x).sum().backward()
    expected = layer.weight.grad.numpy().copy()
    layer.zero_grad()
    calls = []
    handle = layer.register_full_backward_hook(lambda m, gi, go: calls.append(gi))
    with pytest.warns(UserWarning, match="since no inputs require gradients"):
        layer(x).sum().backward()
    np.testing.assert_array_equal(layer.weight.grad.numpy(), expected)
    assert calls == [(None,)]
    handle.remove()
    layer(x).sum().backward()
    assert len(calls) == 1


def test_replacements_that_do_not_fit_are_refused():
    layer = nn.Identity()
    x = ag.ones(2, requires_grad=True)
    too_many = layer.register_full_backward_hook(lambda m, gi, go: (gi[0], gi[0]))
    with too_many, pytest.raises(RuntimeError, match="invalid number of grads"):
        layer(x).sum().backward()
    no_arguments = pytest.warns(UserWarning, match="since no inputs require gradients")
    with layer.register_full_backward_hook(lambda m, gi, go: go):
        weighted = layer(ag.ones(2)) * x
        weighted.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]
    bias = nn.Linear(2, 2)
    replacing = bias.register_full_backward_hook(lambda m, gi, go: go)
    with replacing, no_arguments, pytest.raises(RuntimeError, match="should always return None"):
        bias(ag.ones(1, 2)).sum().backward()


def test_without_recording_hooks_change_nothing():
    layer = nn.Identity()
    layer.register_full_backward_hook(lambda m, gi, go: None)
    x = ag.ones(2, requires_grad=True)
    with ag.no_grad():
        assert layer(x) is x
    with pytest.warns(UserWarning, match="should be a Tensor or a tuple of Tensors"):
        assert layer("text") == "text"


@pytest.mark.asyncio
async def test_hooks_may_be_coroutine_functions():
    layer = nn.Linear(2, 2)
    order = []

    async def slow(module, grad_input, grad_output):
        order.append("begun")
        await asyncio.sleep(0)
        order.append("ended")
        return doubled(grad_input)

    async def before(module, grad_output):
        await asyncio.sleep(0)
        order.append("before")

    layer.register_full_backward_pre_hook(before)
    layer.register_full_backward_hook(slow)
    layer.register_full_backward_hook(lambda m, gi, go: order.append("plain"))
    x = ag.ones(1, 2, requires_grad=True)
    await layer(x).sum().backward()
    assert order == ["before", "begun", "ended", "plain"]
    np.testing.assert_allclose(x.grad.numpy()[0], 2 * layer.weight.detach().numpy().sum(0))


@pytest.mark.asyncio
async def test_passes_through_one_call_keep_their_gradients_apart():
    layer = nn.Identity()
    seen = []

    async def hook(module, grad_input, grad_output):
        await asyncio.sleep(0)
        seen.append((grad_input[0].item(), grad_output[0].item()))

    layer.register_full_backward_hook(hook)
    x = ag.ones((), requires_grad=True)
    y = layer(x)
    await asyncio.gather(*((y * float(k)).backward(retain_graph=True) for k in (2, 3)))
    assert sorted(seen) == [(2.0, 2.0), (3.0, 3.0)]
    assert x.grad.item() == 5.0


def changed_inside(library, change):
    class Inside(library.nn.Module):
        def forward(self, x):
            if change == "inside":
                x.mul_(2)
            return x if change == "output" else x.clone()

    layer = Inside()
    layer.register_full_backward_hook(lambda *_: None)
    a = library.ones(2, requires_grad=True)
    x = a * 1
    y = layer(x)
    if change == "output":
        y.mul_(3)
    (x.sum() + y.sum()).backward()
    return a.grad


@pytest.mark.torch
@pytest.mark.parametrize("change", ["inside", "output"])
def test_changes_in_place_of_what_hooks_pass_on_are_refused_as_in_pytorch(change):
    """The change would be missing in the history of the tensor that shares the memory."""
    torch = pytest.importorskip("torch")
    match = "Output 0 of BackwardHookFunction is a view and is being modified inplace"
    for library in (torch, ag):
        with pytest.raises(RuntimeError, match=match):
            changed_inside(library, change)


def test_what_hooks_pass_on_is_stale_once_the_input_changes():
    class Keeping(nn.Module):
        def forward(self, x):
            self.kept = x
            return x * 1

    layer = Keeping()
    layer.register_full_backward_pre_hook(lambda *_: None)
    layer.register_full_backward_hook(lambda *_: None)
    x = ag.ones(2, requires_grad=True) * 1
    layer(x)
    x.mul_(2)
    with pytest.raises(RuntimeError, match="its base or another view of its base"):
        layer.kept * 1


def test_outputs_that_hooks_cannot_follow_warn():
    class Named(nn.Module):
        def forward(self, x):
            return {"y": x * 2}

    layer = Named()
    layer.register_full_backward_hook(lambda *_: None)
    with pytest.warns(UserWarning, match="should be a Tensor or a tuple of Tensors"):
        layer(ag.ones(2, requires_grad=True))
