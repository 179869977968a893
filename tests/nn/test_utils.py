"""Bounds for gradients, and parameters as one vector."""

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.errors import PendingBackwardError

GRADIENTS = (
    np.array([[1.0, -2.0], [3.0, 4.0]]),
    np.array([0.5, 7.0, -6.0]),
    None,
    np.array(2.0),
)


def with_gradients(library, scale=1.0):
    parameters = []
    for gradient in GRADIENTS:
        shape = () if gradient is None else gradient.shape
        parameter = library.zeros(shape, dtype=library.float64, requires_grad=True)
        if gradient is not None:
            parameter.grad = library.as_tensor(np.asarray(gradient * scale))
        parameters.append(parameter)
    return parameters


def assert_same_gradients(mine, other):
    for p, q in zip(mine, other, strict=True):
        if p.grad is None:
            assert q.grad is None
        else:
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-12)


@pytest.mark.torch
@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, float("inf"), 0.0])
@pytest.mark.parametrize("max_norm", [0.5, 5.0, 1e6])
def test_norms_are_clipped_as_by_pytorch(norm_type, max_norm):
    import torch

    mine, other = with_gradients(ag), with_gradients(torch)
    total = nn.utils.clip_grad_norm_(mine, max_norm, norm_type)
    expected = torch.nn.utils.clip_grad_norm_(other, max_norm, norm_type)
    np.testing.assert_allclose(total.numpy(), expected.numpy(), rtol=1e-12)
    assert total.shape == ()
    assert_same_gradients(mine, other)


@pytest.mark.torch
def test_the_two_halves_of_clipping_are_pytorchs():
    import torch

    mine, other = with_gradients(ag), with_gradients(torch)
    found = nn.utils.get_total_norm([p.grad for p in mine if p.grad is not None])
    expected = torch.nn.utils.get_total_norm([p.grad for p in other if p.grad is not None])
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12)
    nn.utils.clip_grads_with_norm_(mine, 1.0, found)
    torch.nn.utils.clip_grads_with_norm_(other, 1.0, expected)
    assert_same_gradients(mine, other)


@pytest.mark.torch
def test_values_are_clipped_as_by_pytorch():
    import torch

    mine, other = with_gradients(ag), with_gradients(torch)
    nn.utils.clip_grad_value_(mine, 2.5)
    torch.nn.utils.clip_grad_value_(other, 2.5)
    assert_same_gradients(mine, other)
    assert mine[0].grad._version == 1


@pytest.mark.torch
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_norms_that_are_not_finite(bad):
    import torch

    mine, other = with_gradients(ag), with_gradients(torch)
    for parameters in (mine, other):
        parameters[0].grad.numpy()[0, 0] = bad
    before = [None if p.grad is None else p.grad.numpy().copy() for p in mine]
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_(mine, 1.0, error_if_nonfinite=True)
    for p, array in zip(mine, before, strict=True):
        if array is not None:
            np.testing.assert_array_equal(p.grad.numpy(), array)
    nn.utils.clip_grad_norm_(mine, 1.0)
    torch.nn.utils.clip_grad_norm_(other, 1.0)
    assert_same_gradients(mine, other)


def test_float32_gradients_stay_so():
    parameter = ag.ones(3, requires_grad=True)
    parameter.grad = ag.ones(3)
    total = nn.utils.clip_grad_norm_(parameter, 1.0)
    assert total.dtype == parameter.grad.dtype == np.float32
    np.testing.assert_allclose(parameter.grad.numpy(), 1 / np.sqrt(3), rtol=1e-6)


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, float("inf")])
def test_norms_of_half_precision_do_not_overflow(dtype, norm_type):
    """The squares of these gradients are more than float16 can hold."""
    import torch

    seen = []
    for library in (ag, torch):
        parameter = library.ones(4, dtype=getattr(library, dtype), requires_grad=True)
        parameter.grad = library.full((4,), 1000.0, dtype=getattr(library, dtype))
        total = library.nn.utils.clip_grad_norm_(parameter, 1.0, norm_type)
        assert total.dtype == parameter.dtype
        seen.append((float(total), *parameter.grad.tolist()))
    assert seen[0] == pytest.approx(seen[1], rel=0.01)


def test_complex_gradients_have_no_values_to_clip():
    """Their imaginary parts were lost; what comes before is not clipped, either."""
    parameters = [ag.ones(1, dtype=dtype, requires_grad=True) for dtype in (ag.float32, ag.cfloat)]
    for parameter in parameters:
        parameter.grad = parameter.detach() * 3
    with pytest.raises(NotImplementedError, match="complex"):
        nn.utils.clip_grad_value_(parameters, 1.0)
    assert [parameter.grad.item() for parameter in parameters] == [3, 3]


def test_nothing_to_clip():
    assert nn.utils.clip_grad_norm_([ag.ones(1, requires_grad=True)], 1.0).item() == 0.0
    empty = ag.ones(0, requires_grad=True)
    empty.grad = ag.ones(0)
    assert nn.utils.clip_grad_norm_(empty, 1.0, float("inf")).item() == 0.0


@pytest.mark.asyncio
async def test_a_forgotten_await_is_found():
    parameter = ag.ones(1, requires_grad=True)
    future = (parameter * 2.0).sum().backward()
    with pytest.raises(PendingBackwardError):
        nn.utils.clip_grad_norm_(parameter, 1.0)
    with pytest.raises(PendingBackwardError):
        nn.utils.clip_grad_value_(parameter, 1.0)
    await future
    nn.utils.clip_grad_norm_(parameter, 1.0)


def test_parameters_as_one_vector_and_back():
    layer = nn.Linear(2, 3)
    vector = nn.utils.parameters_to_vector(layer.parameters())
    assert vector.shape == (9,)
    assert vector.requires_grad
    values = ag.arange(9).to(ag.float32)
    nn.utils.vector_to_parameters(values, layer.parameters())
    assert layer.weight.detach().numpy().tolist() == [[0, 1], [2, 3], [4, 5]]
    assert layer.bias.detach().numpy().tolist() == [6, 7, 8]
    with pytest.raises(TypeError):
        nn.utils.vector_to_parameters([1.0], layer.parameters())
