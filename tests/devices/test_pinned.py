"""Tensors in pinned memory: gradients go through, and factories make them there."""

import numpy as np
import pytest

import asyncgrad as ag


def test_a_gradient_goes_through_pinned_memory():
    ag.device("sim:0")
    x = ag.ones(3, requires_grad=True)
    pinned = (x * 2).pin_memory()
    assert pinned.is_pinned()
    assert pinned.grad_fn.name() == "PinMemoryBackward0"
    (pinned.to("sim:0", non_blocking=True) * 3).sum().backward()
    assert x.grad.tolist() == [6.0, 6.0, 6.0]
    assert (pinned + 1).is_pinned() is False


def test_a_leaf_that_is_pinned_already_stays_what_it_is():
    ag.device("sim:0")
    x = ag.ones(3, pin_memory=True, requires_grad=True)
    assert x.is_leaf
    assert x.pin_memory() is x


@pytest.mark.parametrize(
    "make",
    [
        lambda **more: ag.ones(2, 3, **more),
        lambda **more: ag.zeros((2, 3), dtype=ag.int32, **more),
        lambda **more: ag.full((2, 3), 7.0, **more),
        lambda **more: ag.empty(2, 3, **more),
        lambda **more: ag.arange(4, **more),
        lambda **more: ag.rand(2, generator=ag.Generator().manual_seed(3), **more),
        lambda **more: ag.tensor([[1.0, 2.0]], **more),
        lambda **more: ag.tensor([1.0]).new_zeros(2, **more),
        lambda **more: ag.zeros_like(ag.tensor([1.0, 2.0]), **more),
    ],
)
def test_factories_pin(make):
    ag.device("sim:0")
    pinned, plain = make(pin_memory=True, requires_grad=False), make()
    assert pinned.is_pinned()
    assert not plain.is_pinned()
    assert not make(pin_memory=False).is_pinned()
    assert (pinned.shape, pinned.dtype) == (plain.shape, plain.dtype)
    if make.__code__.co_names[1] != "empty":
        np.testing.assert_array_equal(pinned.numpy(), plain.numpy())


def test_only_the_hosts_memory_is_pinned():
    with pytest.raises(RuntimeError, match="Only dense CPU tensors can be pinned"):
        ag.ones(2, device="sim:0", pin_memory=True)


def test_without_an_accelerator_nothing_can_be_pinned(monkeypatch):
    monkeypatch.setattr("asyncgrad.ops.tensors.transfer.accelerators", lambda: ())
    with pytest.raises(RuntimeError, match="pin_memory=True requires an accelerator"):
        ag.ones(2, pin_memory=True)
