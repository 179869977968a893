"""Fifty steps beside PyTorch's optimisers, from the same parameters and gradients."""

from __future__ import annotations

import re

import numpy as np
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

STEPS = 50
CASES = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
    ("SGD", {"lr": 0.01, "maximize": True, "momentum": 0.5, "weight_decay": 0.1}),
    ("Adam", {}),
    ("Adam", {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.05, "amsgrad": True, "maximize": True, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("AdamW", {}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.5, "amsgrad": True}),
    ("RMSprop", {}),
    ("RMSprop", {"lr": 0.02, "alpha": 0.9, "eps": 1e-4, "weight_decay": 0.1, "momentum": 0.9}),
    ("RMSprop", {"lr": 0.02, "centered": True, "maximize": True}),
    ("RMSprop", {"lr": 0.02, "centered": True, "momentum": 0.5}),
    ("Adagrad", {}),
    ("Adagrad", {"lr": 0.5, "lr_decay": 0.1, "weight_decay": 0.1, "eps": 1e-3}),
    ("Adagrad", {"lr": 0.5, "initial_accumulator_value": 0.5, "maximize": True}),
    ("Adadelta", {}),
    ("Adadelta", {"lr": 0.5, "rho": 0.7, "eps": 1e-3, "weight_decay": 0.1, "maximize": True}),
    ("Adamax", {}),
    ("Adamax", {"lr": 0.05, "betas": (0.8, 0.9), "weight_decay": 0.1, "maximize": True}),
    ("NAdam", {}),
    ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "momentum_decay": 0.1, "maximize": True}),
    ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {}),
    ("RAdam", {"lr": 0.05, "betas": (0.8, 0.9), "weight_decay": 0.1, "maximize": True}),
    ("RAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Rprop", {}),
    ("Rprop", {"lr": 0.1, "etas": (0.4, 1.5), "step_sizes": (1e-2, 0.3), "maximize": True}),
    ("ASGD", {}),
    ("ASGD", {"lr": 0.1, "lambd": 0.1, "t0": 10.0, "weight_decay": 0.1}),
    ("ASGD", {"lr": 0.01, "alpha": 0.5, "t0": 3.0, "maximize": True}),
]
IDS = [f"{name}-{'-'.join(options) or 'defaults'}" for name, options in CASES]


def start(dtype="float64", shapes=((3, 4), (5,), ())):
    """Equal parameters of both libraries."""
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype(dtype) for shape in shapes]
    if dtype.startswith("complex"):
        arrays = [a + 1j * random.standard_normal(a.shape).astype(a.real.dtype) for a in arrays]
    ours = [ag.tensor(array, requires_grad=True) for array in arrays]
    theirs = [torch.tensor(array, requires_grad=True) for array in arrays]
    return ours, theirs


def objective(parameters, step):
    """Something whose gradient depends on parameters and step, and is no multiple of either."""
    total = 0.0
    for p in parameters:
        total = total + ((p * p).sum() - (p * (1.0 + step % 3)).sum()) * (step % 5 - 1.5)
    return total


def train(optimizer, parameters, steps, start=0):
    for step in range(start, start + steps):
        optimizer.zero_grad()
        objective(parameters, step).backward()
        optimizer.step()


def assert_same(ours, theirs, tolerance=1e-12):
    for mine, other in zip(ours, theirs, strict=True):
        other = other.detach().numpy()
        scale = max(1.0, float(np.abs(other).max(initial=0.0)))
        np.testing.assert_allclose(mine.detach().numpy(), other, rtol=0, atol=tolerance * scale)


def to_ours(value):
    """A state dict of PyTorch's with our tensors."""
    if isinstance(value, torch.Tensor):
        return ag.tensor(value.detach().numpy())
    if isinstance(value, dict):
        return {key: to_ours(item) for key, item in value.items()}
    return [to_ours(item) for item in value] if isinstance(value, list) else value


def to_theirs(value):
    """A state dict of ours with PyTorch's tensors."""
    if isinstance(value, ag.Tensor):
        return torch.tensor(value.detach().numpy())
    if isinstance(value, dict):
        return {key: to_theirs(item) for key, item in value.items()}
    return [to_theirs(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_parameters_stay_equal(name, options):
    ours, theirs = start()
    train(getattr(ag.optim, name)(ours, **options), ours, STEPS)
    train(getattr(torch.optim, name)(theirs, **options), theirs, STEPS)
    assert_same(ours, theirs)


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_state_dicts_move_both_ways(name, options):
    """After twenty steps each library goes on with the other's state."""
    ours, theirs = start()
    mine, other = (
        getattr(ag.optim, name)(ours, **options),
        getattr(torch.optim, name)(theirs, **options),
    )
    train(mine, ours, 20)
    train(other, theirs, 20)
    state, their_state = mine.state_dict(), other.state_dict()
    assert state["state"].keys() == their_state["state"].keys()
    for number, values in their_state["state"].items():
        assert state["state"][number].keys() == values.keys()
    for group, their_group in zip(state["param_groups"], their_state["param_groups"], strict=True):
        assert group.keys() <= their_group.keys()
        assert all(group[key] == their_group[key] for key in group)
    new_mine = getattr(ag.optim, name)(ours, lr=1.0)
    new_mine.load_state_dict(to_ours(their_state))
    new_other = getattr(torch.optim, name)(theirs, lr=1.0)
    new_other.load_state_dict(to_theirs(state))
    train(new_mine, ours, 20, start=20)
    train(new_other, theirs, 20, start=20)
    assert_same(ours, theirs)


@pytest.mark.parametrize("name", sorted({name for name, _ in CASES}))
def test_large_parameters_are_updated_in_tiles(name):
    """More elements than a tile, and not a multiple of it; also laid out in another order."""
    options = {"lr": 0.1} | ({"momentum": 0.9} if name == "SGD" else {})
    if name != "Rprop":
        options["weight_decay"] = 0.1
    random = np.random.default_rng(0)
    flat = random.standard_normal((300, 471))
    ours = [ag.tensor(flat, requires_grad=True), ag.from_numpy(flat.T.copy().T)]
    ours[1].requires_grad_()
    assert not ours[1]._array.flags.c_contiguous
    theirs = [torch.tensor(flat, requires_grad=True) for _ in range(2)]
    train(getattr(ag.optim, name)(ours, **options), ours, 3)
    train(getattr(torch.optim, name)(theirs, **options), theirs, 3)
    assert_same(ours, theirs)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("complex128", 1e-12)])
@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_other_dtypes(name, options, dtype, tolerance):
    ours, theirs = start(dtype)
    for parameters, library in ((ours, ag), (theirs, torch)):
        optimizer = getattr(library.optim, name)(parameters, **options)
        for step in range(10):
            for p in parameters:
                p.grad = (p * (1.0 + step % 3) - 1.0).detach()
            optimizer.step()
    assert ours[0].dtype == dtype
    assert_same(ours, theirs, tolerance)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {"lr": -1.0}),
        ("SGD", {"momentum": -1.0}),
        ("SGD", {"weight_decay": -1.0}),
        ("SGD", {"nesterov": True}),
        ("SGD", {"nesterov": True, "momentum": 0.9, "dampening": 0.1}),
        ("Adam", {"lr": -1.0}),
        ("Adam", {"eps": -1.0}),
        ("Adam", {"betas": (1.0, 0.9)}),
        ("Adam", {"betas": (0.9, -0.1)}),
        ("AdamW", {"weight_decay": -1.0}),
        ("RMSprop", {"lr": -1.0}),
        ("RMSprop", {"eps": -1.0}),
        ("RMSprop", {"momentum": -1.0}),
        ("RMSprop", {"weight_decay": -1.0}),
        ("RMSprop", {"alpha": -1.0}),
        ("Adagrad", {"lr": -1.0}),
        ("Adagrad", {"lr_decay": -1.0}),
        ("Adagrad", {"weight_decay": -1.0}),
        ("Adagrad", {"initial_accumulator_value": -1.0}),
        ("Adagrad", {"eps": -1.0}),
        ("Adadelta", {"rho": 1.5}),
        ("Adadelta", {"eps": -1.0}),
        ("Adamax", {"betas": (0.9, 1.0)}),
        ("NAdam", {"momentum_decay": -1.0}),
        ("RAdam", {"betas": (-0.1, 0.9)}),
        ("Rprop", {"etas": (1.5, 1.2)}),
        ("ASGD", {"weight_decay": -1.0}),
    ],
)
def test_options_out_of_range(name, options):
    ours, theirs = start()
    with pytest.raises(ValueError, match=r"Invalid|Nesterov") as caught:
        getattr(torch.optim, name)(theirs, **options)
    with pytest.raises(ValueError, match=re.escape(str(caught.value))):
        getattr(ag.optim, name)(ours, **options)


@pytest.mark.parametrize(
    "params",
    [
        lambda lib, p: p[0],
        lambda lib, p: [],
        lambda lib, p: [1.0],
        lambda lib, p: [p[0] * 2.0],
        lambda lib, p: [{"params": {p[0], p[1]}}],
        lambda lib, p: [{"params": [p[0]]}, {"params": [p[0]]}],
        lambda lib, p: [{"params": [p[0]]}, 3],
    ],
)
def test_parameters_that_can_not_be_optimised(params):
    ours, theirs = start()
    with pytest.raises((TypeError, ValueError)) as caught:
        torch.optim.SGD(params(torch, theirs), lr=0.1)
    with pytest.raises(type(caught.value)):
        ag.optim.SGD(params(ag, ours), lr=0.1)
