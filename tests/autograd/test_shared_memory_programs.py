"""Programs that write to tensors whose elements share memory, the same in PyTorch and here."""

import numpy as np
import pytest
from plain_parity import attempted, numbers, plainly

import asyncgrad as ag

SHARED = "single memory location"


@plainly
def test_one_number_can_be_put_into_what_is_expanded(T, log):
    for change in (
        lambda t: t.fill_(2.0),
        lambda t: t.zero_(),
        lambda t: t[...].fill_(3.0),
        lambda t: t.t().zero_(),
        lambda t: t[:2].zero_(),
    ):
        base = numbers(T, 2)
        expanded = base.expand(3, 2)
        change(expanded)
        log(base, expanded, base._version, expanded._version)


@plainly
def test_nothing_else_can(T, log):
    for change in (
        lambda t: t.add_(1),
        lambda t: t.exp_(),
        lambda t: t.copy_(T.ones(3, 2)),
        lambda t: t.fill_(T.tensor(2.0)),
        lambda t: t.clamp_(0),
        lambda t: t.uniform_(),
        lambda t: t.__setitem__(slice(None), 1.0),
        lambda t: t.__setitem__(Ellipsis, T.ones(2)),
    ):
        base = T.ones(2)
        attempted(log, SHARED, change, base.expand(3, 2))
        log(base, base._version)


@plainly
def test_parts_of_it_that_lie_apart_can_be_changed(T, log):
    for change in (
        lambda t: t.__setitem__(0, 5.0),
        lambda t: t[1].mul_(3),
        lambda t: t[0].copy_(t[1] * 2),
        lambda t: t[2, :1].add_(1),
        lambda t: t[0].masked_fill_(T.tensor([True, False]), 7.0),
        lambda t: t[0].__setitem__(T.tensor([1]), 7.0),
    ):
        leaf = numbers(T, 2, leaf=True)
        base = leaf * 1
        expanded = base.expand(3, 2)
        change(expanded)
        log(base, expanded, T.autograd.grad((base * base).sum(), leaf))


@plainly
def test_what_was_expanded_to_its_own_size_is_like_any_view(T, log):
    for shape, wanted in (
        ((1,), (1, 1)),
        ((3,), (3,)),
        ((2, 1), (2, 1)),
        ((), (1, 1)),
        ((1,), (0,)),
    ):
        for change in (lambda t: t.add_(1), lambda t: t.mul_(3), lambda t: t.fill_(4.0)):
            leaf = T.ones(shape, dtype=T.float64, requires_grad=True)
            base = leaf * 2
            view = base.expand(wanted)
            change(view)
            log(base, view, T.autograd.grad((base * base).sum(), leaf))
    same = T.zeros(3).expand_as(T.ones(3))
    same[T.tensor([0, 2])] = 1.0
    log(same)


def test_gradients_of_what_was_filled_are_zero():
    """PyTorch fails in the pass: it would copy into the expanded gradient."""
    leaf = ag.ones(2, requires_grad=True)
    base = leaf * 3
    base.expand(3, 2).fill_(2.0)
    assert ag.grad((base * base).sum(), leaf)[0].tolist() == [0.0, 0.0]


def test_read_only_memory_stays_read_only():
    """A view of memory that NumPy was told to protect is not made writeable."""
    array = np.ones(3, np.float32)
    array.flags.writeable = False
    held = ag.from_numpy(array.view())
    for change in (lambda t: t.fill_(0.0), lambda t: t.add_(1)):
        with pytest.raises(RuntimeError, match="read-only"):
            change(held)
    assert array.tolist() == [1.0, 1.0, 1.0]
