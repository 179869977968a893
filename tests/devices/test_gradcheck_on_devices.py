"""`gradcheck` takes tensors of any device, and functions that lead from one to another."""

import pytest
from functions import function_of

import asyncgrad as ag
from asyncgrad.autograd import gradcheck, gradgradcheck


def leaves(*devices):
    found = []
    for place, device in enumerate(devices):
        values = ag.arange(3.0, dtype=ag.float64) / 3 + place + 0.5
        found.append(values.to(device).requires_grad_())
    return tuple(found)


OPTIONS = [
    {},
    {"fast_mode": True},
    {"check_forward_ad": True},
    {"check_batched_grad": True},
    {"check_forward_ad": True, "check_batched_forward_grad": True},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_on_a_device(options, accelerator):
    assert gradcheck(lambda x, y: (x * y).sin(), leaves(accelerator, accelerator), **options)


def test_between_devices(accelerator):
    def function(x, y):
        return (x.to(accelerator) * y.to(accelerator)).exp(), (y * 2).cpu()

    assert gradcheck(function, leaves("cpu", accelerator))
    assert gradgradcheck(function, leaves("cpu", accelerator))


def test_complex_numbers(accelerator):
    z = ag.complex(*(x.detach() for x in leaves("cpu", "cpu"))).to(accelerator).requires_grad_()
    assert gradcheck(lambda z: (z * z).abs(), (z,))
    assert z.cpu().tolist() == [
        0.5 + 1.5j,
        pytest.approx(5 / 6 + 11j / 6),
        pytest.approx(7 / 6 + 13j / 6),
    ]


def test_a_wrong_gradient_is_found(accelerator):
    Wrong = function_of(ag, lambda ctx, x: x * 2, lambda ctx, gradient: gradient * 3)
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradcheck(Wrong.apply, leaves(accelerator))
