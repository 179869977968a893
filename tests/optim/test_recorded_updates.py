"""Steps that are recorded: the values of ordinary steps, and their derivatives."""

import inspect

import numpy as np
import pytest

import asyncgrad as ag

SHAPE = (3, 2)
#: Options that choose other updates than an optimiser's defaults.
OPTIONS = {
    "SGD": [{"momentum": 0.9, "dampening": 0.1}, {"momentum": 0.9, "nesterov": True}],
    "Adam": [{"amsgrad": True, "maximize": True}],
    "AdamW": [{"weight_decay": 0.1}],
    "RMSprop": [{"momentum": 0.9}, {"centered": True}, {"centered": True, "momentum": 0.5}],
    "ASGD": [{"t0": 0, "lambd": 0.1}],
    "Rprop": [{"step_sizes": (0.01, 0.1)}],
}
TAKEN = {
    name: {*inspect.signature(kind).parameters}
    for name, kind in vars(ag.optim).items()
    if isinstance(kind, type)
}
RECORDED = [
    (name, options)
    for name, taken in TAKEN.items()
    if "differentiable" in taken
    for options in ({}, {"weight_decay": 0.1}, *OPTIONS.get(name, ()))
    if {*options} <= taken
]


def arrays(dtype):
    random = np.random.default_rng(3)
    made = [random.standard_normal((*SHAPE, 2)) for _ in range(4)]
    return [x.view(dtype).reshape(SHAPE) if dtype == "complex128" else x[..., 0] for x in made]


def stepped(name, options, w, *gradients, differentiable=True):
    """A copy of a tensor after steps with these gradients."""
    kind = getattr(ag.optim, name)
    p = w.clone() if differentiable else w.detach().clone()
    optimizer = kind([p], lr=0.1, differentiable=differentiable, **options)
    for p.grad in gradients:
        optimizer.step()
    return p


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(("name", "options"), RECORDED)
def test_values_are_those_of_steps_that_are_not_recorded(name, options, dtype):
    w, *gradients = map(ag.from_numpy, arrays(dtype))
    found = stepped(name, options, w.requires_grad_(), *gradients)
    expected = stepped(name, options, w, *gradients, differentiable=False)
    assert found.requires_grad
    np.testing.assert_allclose(found.detach().numpy(), expected.numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("name", "options"), RECORDED)
def test_steps_have_derivatives_by_values_and_gradients(name, options):
    leaves = [ag.from_numpy(array.copy()).requires_grad_() for array in arrays("float64")]
    assert ag.autograd.gradcheck(lambda *given: stepped(name, options, *given), leaves)


def test_a_step_of_a_step_is_learnt_from():
    """The derivative by the start of descent on x ** 4, in closed form."""
    w = ag.tensor([0.5, -1.0], dtype=ag.float64, requires_grad=True)
    p = w.clone()
    optimizer = ag.optim.SGD([p], lr=0.1, differentiable=True)
    # The graph keeps the values of the clone, because the step changes those of p.
    (p.grad,) = ag.grad((p.clone() ** 4).sum(), p, create_graph=True)
    optimizer.step()
    (slope,) = ag.grad(p.sum(), w)
    assert np.allclose(slope.numpy(), 1 - 1.2 * w.detach().numpy() ** 2)


def test_a_recorded_step_without_momentum_has_no_state():
    p = ag.ones(2, requires_grad=True).clone()
    p.grad = ag.ones(2)
    optimizer = ag.optim.SGD([p], lr=0.1, differentiable=True)
    optimizer.step()
    assert optimizer.state_dict()["state"] == {}


def test_what_a_recorded_step_refuses():
    leaf = ag.ones(2, requires_grad=True)
    leaf.grad = ag.ones(2)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        ag.optim.SGD([leaf], lr=0.1, differentiable=True).step()
    with pytest.raises(ValueError, match="non-leaf"):
        ag.optim.SGD([leaf * 1], lr=0.1)
    rate = ag.tensor(0.1, requires_grad=True)
    p = leaf.clone()
    p.grad = ag.ones(2)
    with pytest.raises(NotImplementedError, match="no gradient of lr"):
        ag.optim.SGD([p], lr=rate, differentiable=True).step()
