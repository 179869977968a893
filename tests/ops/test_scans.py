"""Scans that go on from what was before."""

import numpy as np
import oracle
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch


def test_logcumsumexp_is_pytorchs():
    oracle.check("logcumsumexp", dtypes=("float64", "complex128"))
    # PyTorch's gradients in single precision have three digits where numbers are some thousands.
    oracle.check("logcumsumexp", dtypes=("float32", "complex64"), order=0)
    assert oracle.check_forward("logcumsumexp", dtypes=("float64",), tolerance=1e-5) > 0
    oracle.check_errors("logcumsumexp")


def test_running_sums_of_many_exponentials_keep_their_digits():
    """In float32 the last of 300,000 was wrong in the fourth digit."""
    array = np.random.default_rng(0).uniform(9, 11, 300_000).astype(np.float32)
    expected = np.logaddexp.accumulate(array.astype(np.float64))
    found = ag.logcumsumexp(ag.from_numpy(array), 0).numpy()
    np.testing.assert_allclose(found, expected, rtol=2e-7)


@pytest.mark.parametrize("shape", [(300_000,), (300, 2000), (2, 300_000)])
def test_running_sums_keep_their_digits(shape):
    """Along lines, and of long slices that are added to one another."""
    array = np.random.default_rng(0).uniform(9, 11, shape).astype(np.float32)
    for dim in range(len(shape)):
        x = ag.from_numpy(array).requires_grad_()
        sums = ag.cumsum(x, dim)
        weights = ag.from_numpy(array[::-1].copy())
        (sums * weights).sum().backward()
        exact = array.astype(np.float64)
        np.testing.assert_allclose(sums.detach().numpy(), exact.cumsum(dim), rtol=1e-7)
        back = np.flip(np.flip(weights.numpy().astype(np.float64), dim).cumsum(dim), dim)
        np.testing.assert_allclose(x.grad.numpy(), back, rtol=1e-7)


@pytest.mark.parametrize("dtype", ["int64", "bool"])
def test_numbers_without_exponentials_are_refused(dtype):
    for T in (torch, ag):
        with pytest.raises(NotImplementedError):
            T.logcumsumexp(T.ones(3, dtype=getattr(T, dtype)), 0)


def test_sums_far_apart_neither_overflow_nor_vanish():
    """Differences of 2000 can't be taken apart into factors."""
    results = []
    for T in (torch, ag):
        x = T.tensor([[-1e3, 1e3, 999.0, -1e3, 1e3]], dtype=T.float64, requires_grad=True)
        y = T.logcumsumexp(x, 1)
        weights = T.tensor([[0.0, -1.0, 2.0, 0.0, 0.5]], dtype=T.float64)
        results.append((y.tolist(), T.autograd.grad((y * weights).sum(), x)[0].tolist()))
    for expected, found in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_gradients_of_nothing_have_derivatives():
    """PyTorch takes logarithms of gradients, and so nothing for those that are 0."""
    x = ag.tensor([[0.5, -1.0, 2.0], [3.0, 0.0, -2.0]], dtype=ag.float64, requires_grad=True)
    weights = ag.tensor([0.0, 1.0, 0.0], dtype=ag.float64, requires_grad=True)
    assert ag.autograd.gradgradcheck(
        lambda x, w: ag.logcumsumexp(x, 1) * w, (x, weights), check_fwd_over_rev=True
    )


def test_examples_are_scanned_alone():
    x = ag.tensor(np.random.default_rng(0).standard_normal((3, 4, 5)))
    found = ag.func.vmap(ag.func.grad(lambda x: (ag.logcumsumexp(x, 1) ** 2).sum()))(x)
    for one, alone in zip(found, x, strict=True):
        expected = ag.func.grad(lambda x: (ag.logcumsumexp(x, 1) ** 2).sum())(alone)
        np.testing.assert_allclose(one.numpy(), expected.numpy(), rtol=1e-12)


@pytest.mark.parametrize("dim", [0, 1])
def test_running_products_keep_their_digits(dim):
    array = np.random.default_rng(0).uniform(0.98, 1.02, (1000, 1000)).astype(np.float32)
    exact = array.astype(np.float64).cumprod(dim)
    np.testing.assert_allclose(ag.tensor(array).cumprod(dim).numpy(), exact, rtol=6e-8)


def test_running_products_leave_the_range_of_single_precision_and_return():
    x = [1e30, 1e30, 1e-30, 0.0]
    results = [T.tensor(x, dtype=T.float32).cumprod(0).tolist() for T in (torch, ag)]
    assert results[1] == results[0]


def test_gradients_of_long_products_take_no_more_memory_than_their_operand():
    """A matrix of factors for each pair of elements would take 80 GB."""
    results = []
    for T in (torch, ag):
        x = T.linspace(0.999, 1.001, 100_000, dtype=T.float64).requires_grad_()
        results.append(T.autograd.grad(x.cumprod(0).sum(), x)[0].numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-9)


@pytest.mark.parametrize("zeros", [0, 1, 2, 4])
@pytest.mark.parametrize("dim", [0, 1])
def test_derivatives_of_running_products_are_exact_at_zeros(zeros, dim):
    array = np.random.default_rng(zeros).standard_normal((4, 5))
    array.reshape(-1)[[3, 8, 7, 13][:zeros]] = 0
    x = ag.tensor(array, requires_grad=True)
    assert ag.autograd.gradcheck(lambda x: x.cumprod(dim), x, check_forward_ad=True)
    assert ag.autograd.gradgradcheck(lambda x: x.cumprod(dim), x)


def test_logcumsumexp_has_numpy_convert_nothing(monkeypatch):
    """Where NumPy converts, it keeps the GIL: an event loop would wait for all elements."""
    given = []

    class Noting:
        @staticmethod
        def accumulate(x, *more):
            given.append((x.dtype, more))
            return own(x, *more)

    own = np.logaddexp.accumulate
    monkeypatch.setattr(np, "logaddexp", Noting)
    ag.zeros(4).logcumsumexp(0)
    assert given == [(np.float64, (0,))]
