"""Fourier transforms."""

import numpy as np
import oracle
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

NAMES = [f"fft.{name}" for name in ag.fft.__all__ if not name.endswith("freq")]


test_samples = oracle.as_in_pytorch(
    NAMES,
    small={"dtypes": ("int64",), "limit": 1, "awkward": False},
    tangents=2,
    dtypes=("float64", "complex128"),
    limit=3,
    tolerance=1e-8,
)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_precision_is_kept(dtype):
    x = np.ones((2, 5), dtype)
    for name in ("fft", "ifft", "fft2", "hfft", *(["rfft"] if dtype == "float32" else ["irfft"])):
        function = getattr(ag.fft, name)
        expected = getattr(torch.fft, name)(torch.tensor(x))
        oracle.compare(expected, function(ag.tensor(x)))


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_frequencies_are_pytorchs(n):
    for name in ("fftfreq", "rfftfreq"):
        expected = getattr(torch.fft, name)(n, 0.1, dtype=torch.float64)
        oracle.compare(expected, getattr(ag.fft, name)(n, 0.1, dtype=ag.float64))


def test_a_transform_and_its_inverse_cancel():
    x = ag.tensor(np.random.default_rng(0).standard_normal((3, 7)), requires_grad=True)
    for back in (ag.fft.irfft(ag.fft.rfft(x), 7), ag.fft.ifft2(ag.fft.fft2(x)).real,
                 ag.fft.hfft(ag.fft.ihfft(x), 7)):  # fmt: skip
        np.testing.assert_allclose(back.detach().numpy(), x.detach().numpy(), atol=1e-12)
        (g,) = ag.grad(back.sum(), x)
        np.testing.assert_allclose(g.numpy(), np.ones((3, 7)), atol=1e-12)


def test_the_examples_of_a_batch_are_transformed_at_once():
    x = ag.tensor(np.random.default_rng(0).standard_normal((3, 4, 5)), requires_grad=True)
    for name in ("rfft2", "fft", "irfft", "ihfft", "hfftn"):
        function = getattr(ag.fft, name)
        dims = (1, 2) if name == "hfftn" else (-2, -1) if name == "rfft2" else -1
        expected, found = function(x, dim=dims), ag.func.vmap(function)(x)
        np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), atol=1e-12)
        assert found.grad_fn.name() == expected.grad_fn.name()


@pytest.mark.parametrize(
    "call",
    [
        lambda T: T.fft.fft(T.ones(3), 0),
        lambda T: T.fft.fft(T.ones(3), norm="none"),
        lambda T: T.fft.fft(T.ones(3), dim=1),
        lambda T: T.fft.rfft(T.ones(3, dtype=T.complex64)),
        lambda T: T.fft.fftn(T.ones(3, 3), dim=(0, 0)),
        lambda T: T.fft.fftn(T.ones(3, 3), s=(2,), dim=(0, 1)),
        lambda T: T.fft.fftn(T.ones(3), s=(2, 2)),
        lambda T: T.fft.fft(3.0),
        lambda T: T.fft.fft(T.ones(3), "3"),
    ],
)
def test_what_pytorch_refuses_beside_its_samples(call):
    oracle.check_refused(call)


@pytest.mark.parametrize("name", ["irfft", "hfft", "irfft2", "hfftn"])
def test_real_results_are_not_written_into_complex_tensors(name):
    oracle.check_refused(
        lambda T: getattr(T.fft, name)(
            T.ones(2, 3, dtype=T.complex64), out=T.empty(0, dtype=T.complex64)
        )
    )
