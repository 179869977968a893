"""Copies of compiled functions and modules, and what they show of the function."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle

import pytest

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.errors import AutogradError


@ag.compile
def doubled(x: ag.Tensor, times: float = 2.0) -> ag.Tensor:
    """Twice as much."""
    return x * times


def tripled(x):
    return x * 3


def doubling(module, args, out):
    return out * 2


def looking(x):
    return x if x.sum() > 0 else -x


def pickled(value):
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickled])
def test_a_compiled_function_is_copied_as_a_function_is(duplicate):
    """By its name, if it has one; otherwise another one is made, which records anew."""
    assert duplicate(doubled) is doubled
    fast = ag.compile(tripled, fullgraph=True)
    for _ in range(3):
        fast(ag.ones(1))
    other = duplicate(fast)
    assert other is not fast
    assert "0 recorded" in other.explain()
    assert [other(ag.ones(1)).item() for _ in range(3)] == [3, 3, 3]
    assert "1 recorded, 2 replayed" in other.explain()
    with pytest.raises(AutogradError, match="fullgraph"):
        duplicate(ag.compile(looking, fullgraph=True))(ag.ones(1))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickled])
def test_a_compiled_module_is_copied_with_its_weights(duplicate):
    """The copy replays with its own, and is a module in the mode of the first."""
    fast = ag.compile(nn.Sequential(nn.Linear(2, 2), nn.Dropout())).eval()
    x = ag.ones(2)
    wanted = [fast(x).tolist() for _ in range(3)]
    other = duplicate(fast)
    assert not other.training
    with ag.no_grad():
        for weight in fast.parameters():
            weight.zero_()
    assert [other(x).tolist() for _ in range(3)] == wanted
    assert fast(x).tolist() == [0, 0]
    assert "1 recorded, 2 replayed" in other.explain()
    assert list(other.state_dict()) == list(fast.state_dict())


def test_it_shows_the_function():
    """As `functools.wraps` does."""
    plain = doubled.__wrapped__
    for name in (*functools.WRAPPER_ASSIGNMENTS, "__annotations__"):
        assert getattr(doubled, name) == getattr(plain, name)
    assert inspect.signature(doubled) == inspect.signature(plain)


def test_a_module_is_compiled_in_place():
    """Its hooks stay outside; copies and passes are as those of other modules."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    model.register_forward_hook(doubling)
    plain = copy.deepcopy(model)
    assert model.compile() is None
    model.compile(fullgraph=True)
    others = [copy.deepcopy(model), pickled(plain), model]
    others[1].compile()
    for module in others:
        for number in range(4):
            x = ag.ones(2, 3) * number
            results = []
            for one in (module, plain):
                one.zero_grad()
                loss = one(x).sum()
                loss.backward()
                results.append([t.tolist() for t in (loss, *(p.grad for p in one.parameters()))])
            assert results[0] == results[1]
        assert "1 recorded, 3 replayed" in module.forward.explain()
        assert list(module.state_dict()) == list(plain.state_dict())
    with ag.no_grad():
        model[0].weight.zero_()
        model[0].bias.zero_()
    assert model(x).tolist() == [[0, 0, 0]] * 2
    again = pickled(others[1])
    assert again(x).tolist() == plain(x).tolist()


def test_hooks_of_all_modules_are_called_once():
    """Not for the module that `compile` returns, too."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    fast, x = ag.compile(model), ag.ones(2, 3)
    for number in range(6):
        if number == 2:
            handle = nn.modules.module.register_module_forward_hook(doubling)
        if number == 4:
            handle.remove()
        assert fast(x).tolist() == model(x).tolist()
