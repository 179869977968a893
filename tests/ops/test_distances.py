"""Distances between rows."""

import numpy as np
import oracle
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch

ORDERS = [0, 0.5, 1, 1.5, 2, 3, float("inf")]
#: Rows that are the same, rows that differ in one place or as much in each.
ROWS = [[1.0, 2.0, 0.0], [1.0, 2.0, 0.0], [1.0, 5.0, 0.0], [2.0, 3.0, 1.0], [0.0, 2.0, 0.5]]


@pytest.mark.parametrize("name", ["cdist", "nn.functional.pdist"])
def test_values_and_derivatives_are_pytorchs(name):
    oracle.check(name, dtypes=("float64", "float32"))


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("name", ["cdist", "pdist"])
def test_gradients_at_kinks_are_pytorchs(name, p):
    results = []
    for T in (torch, ag):
        x = T.tensor(ROWS, dtype=T.float64, requires_grad=True)
        out = T.cdist(x, x.detach()[:4], p) if name == "cdist" else T.pdist(x, p)
        (g,) = T.autograd.grad((out * T.arange(1.0, 5.0).double()[0]).sum(), x)
        results.append((out.tolist(), g.tolist(), out.grad_fn.name()))
    for expected, found in zip(*results, strict=True):
        if isinstance(expected, str):
            assert found == expected
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_many_rows_take_a_product_of_matrices():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 30, 4)), rng.standard_normal((7, 4))
    results = []
    for T in (torch, ag):
        x, y = (T.tensor(values, requires_grad=True) for values in (a, b))
        out = T.cdist(x, y)
        first = T.autograd.grad(out.sin().sum(), (x, y), create_graph=True)
        second = T.autograd.grad((first[0] ** 2).sum() + first[1].sum(), (x, y))
        results.append([t.detach().numpy() for t in (out, *first, *second)])
        modes = [
            T.cdist(x, y, compute_mode=f"{mode}use_mm_for_euclid_dist") for mode in ("", "donot_")
        ]
        np.testing.assert_allclose(*[mode.detach().numpy() for mode in modes], rtol=1e-9)
    for expected, found in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    same = ag.ones(26, 2, requires_grad=True)
    assert not ag.grad(ag.cdist(same, same).sum(), same)[0].any()


@pytest.mark.parametrize("p", [1, 2, 3, float("inf")])
@pytest.mark.parametrize("rows", [3, 26])
def test_gradcheck(p, rows):
    """PyTorch has neither tangents nor second derivatives of most of these."""
    rng = np.random.default_rng(0)
    x, y = (ag.tensor(rng.standard_normal((n, 2)), requires_grad=True) for n in (rows, 2))
    assert ag.autograd.gradcheck(lambda x, y: ag.cdist(x, y, p), (x, y), check_forward_ad=True)
    assert ag.autograd.gradgradcheck(lambda x, y: ag.cdist(x, y, p), (x, y))
    z = y.detach().requires_grad_()
    assert ag.autograd.gradcheck(lambda z: ag.pdist(z, p), z, check_forward_ad=True)


def test_examples_have_distances_of_their_own():
    rng = np.random.default_rng(0)
    x, y = ag.tensor(rng.standard_normal((3, 27, 2))), ag.tensor(rng.standard_normal((4, 2)))
    for p in (1, 2):
        found = ag.func.vmap(lambda x, p=p: ag.cdist(x, y, p))(x)
        np.testing.assert_allclose(found.numpy(), ag.cdist(x, y, p).numpy(), rtol=1e-12)
    pairs = ag.func.vmap(ag.pdist)(x)
    np.testing.assert_allclose(pairs[1].numpy(), ag.pdist(x[1]).numpy(), rtol=1e-12)


def _ones(T, *shape, dtype="float32"):
    return T.ones(shape, dtype=getattr(T, dtype))


BAD = {
    "two dtypes": lambda T: T.cdist(_ones(T, 3, 2), _ones(T, 3, 2, dtype="float64")),
    "integers": lambda T: T.cdist(*[_ones(T, 3, 2, dtype="int64")] * 2),
    "halves": lambda T: T.cdist(*[_ones(T, 3, 2, dtype="float16")] * 2),
    "complex": lambda T: T.cdist(*[_ones(T, 3, 2, dtype="complex64")] * 2),
    "a vector": lambda T: T.cdist(_ones(T, 2), _ones(T, 3, 2)),
    "columns": lambda T: T.cdist(_ones(T, 3, 2), _ones(T, 3, 4)),
    "batches": lambda T: T.cdist(_ones(T, 2, 3, 2), _ones(T, 3, 3, 2)),
    "negative": lambda T: T.cdist(_ones(T, 3, 2), _ones(T, 3, 2), -1),
    "nan": lambda T: T.cdist(_ones(T, 3, 2), _ones(T, 3, 2), float("nan")),
    "a mode": lambda T: T.cdist(_ones(T, 3, 2), _ones(T, 3, 2), compute_mode="x"),
    "a number": lambda T: T.cdist(_ones(T, 3, 2), 2.0),
    "pairs in three axes": lambda T: T.pdist(_ones(T, 3, 2, 2)),
    "pairs of integers": lambda T: T.pdist(_ones(T, 3, 2, dtype="int64")),
    "pairs with a negative order": lambda T: T.pdist(_ones(T, 3, 2), -1),
}


@pytest.mark.parametrize("name", BAD)
def test_what_pytorch_refuses_is_refused(name):
    oracle.check_refused(BAD[name])


def test_nothing_has_no_distances():
    for T in (torch, ag):
        assert T.cdist(T.ones(3, 0), T.ones(2, 0)).tolist() == [[0, 0]] * 3
        assert tuple(T.cdist(T.ones(0, 3), T.ones(2, 3)).shape) == (0, 2)
        assert tuple(T.pdist(T.ones(1, 3)).shape) == (0,)
        assert T.pdist(T.ones(3, 0)).tolist() == [0, 0, 0]
