"""Reductions and scans."""

from __future__ import annotations

import math
import pickle
import warnings
from typing import Any

import numpy as np
import oracle
import pytest
from adjoint import check_entry
from promised import MUST

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

NAMES = MUST["reduction"]
INF, NAN = math.inf, math.nan


test_samples = pytest.mark.filterwarnings("ignore:.*degrees of freedom")(
    oracle.as_in_pytorch(
        NAMES,
        small={"dtypes": ("float16", "uint8", "int8"), "limit": 12, "tolerance": 4e-3},
        errors=False,
    )
)


# -- the table ------------------------------------------------------------------------------------

RNG = np.random.default_rng(3)
X = RNG.standard_normal((3, 4))
INDICES = np.array([[1], [3], [0]])
#: Attributes of entries beyond those in samples.
ATTRIBUTES: dict[str, list[tuple[Any, ...]]] = {
    "along": [(INDICES, 1, True), (INDICES, 1, False)],
    "put_along": [(np.array([[0, 1, 2, 3]] * 3), 1, (3, 6))],
    "vector_norm": [
        (ord, dims, keepdim)
        for ord in (0, 0.5, 1, 1.5, 2, 3, 4.5, -1, -0.5, INF, -INF)
        for dims, keepdim in (((0, 1), False), ((1,), False), ((0,), True))
    ],
}


@pytest.mark.parametrize("x", [X, X + 1j * RNG.standard_normal((3, 4))], ids=["real", "complex"])
@pytest.mark.parametrize("name", ATTRIBUTES)
def test_entry_keeps_its_promises(name, x):
    for attributes in ATTRIBUTES[name]:
        check_entry(name, (x,), attributes)


# -- kinks ----------------------------------------------------------------------------------------

KINKS = {
    "amax": (lambda m, x: m.amax(x), [1.0, 2, 2]),
    "amax nan": (lambda m, x: m.amax(x, 0), [1.0, NAN, NAN]),
    "amin": (lambda m, x: m.amin(x, 0), [[1.0, 1, 2], [0, 5, 0]]),
    "max": (lambda m, x: m.max(x), [1.0, 2, 2]),
    "max nan": (lambda m, x: m.max(x), [1.0, NAN, NAN]),
    "max of an axis": (lambda m, x: m.max(x, 0).values, [1.0, 2, 2]),
    "max of an axis nan": (lambda m, x: m.max(x, 0).values, [1.0, NAN, NAN]),
    "min of an axis": (lambda m, x: m.min(x, 1).values, [[1.0, 0, 0], [NAN, 0, NAN]]),
    "logsumexp -inf": (lambda m, x: m.logsumexp(x, 0), [-INF, -INF]),
    "logsumexp inf": (lambda m, x: m.logsumexp(x, 0), [INF, 1.0]),
    "logsumexp infs": (lambda m, x: m.logsumexp(x, 0), [INF, INF]),
    "logsumexp": (lambda m, x: m.logsumexp(x, 1), [[-INF, 1.0], [800.0, 801.0], [-900, -901.0]]),
    "std": (lambda m, x: m.std(x), [2.0, 2.0, 2.0]),
    "std of one": (lambda m, x: m.std(x, correction=0), [2.0]),
    "std of lines": (lambda m, x: m.std(x, 1), [[2.0, 2.0], [1.0, 3.0]]),
    "prod 0": (lambda m, x: m.prod(x), [0.0, 2.0, 3.0]),
    "prod 0 0": (lambda m, x: m.prod(x), [0.0, 0.0, 3.0]),
    "prod": (lambda m, x: m.prod(x, 1), [[0.0, 2.0, 3], [1, 2, 3], [0, 0, 2]]),
    **{
        f"norm {p} of {x}": (lambda m, x, p=p: m.norm(x, p=p), x)
        for p in (1, 0.5, 1.5, 2, 3, -1, INF, -INF)
        for x in ([0.0, -2.0], [0.0, 0.0], [2.0, -2.0, 1.0], [NAN, 1.0])
    },
    "norms of lines": (lambda m, x: m.linalg.vector_norm(x, 2, 1), [[0.0, 0.0], [3.0, 4.0]]),
}


@pytest.mark.parametrize("case", KINKS)
def test_kinks_have_pytorchs_values(case):
    oracle.check_kink(*KINKS[case])


@pytest.mark.parametrize("values", [[0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [0.0, 0.0, 0.0], [2.0, 3, 4]])
def test_prod_has_exact_second_derivatives_at_zeros(values):
    theirs = torch.tensor(values, dtype=torch.float64)
    wanted = torch.autograd.functional.hessian(torch.prod, theirs)
    ours = ag.tensor(values, dtype=ag.float64, requires_grad=True)
    (gradient,) = ag.grad(ag.prod(ours), ours, create_graph=True)
    rows = [ag.grad(gradient[i], ours, retain_graph=True)[0].tolist() for i in range(len(values))]
    assert rows == wanted.tolist()


def test_norm_of_order_0_has_no_gradient():
    """As PyTorch's: it counts."""
    x = ag.tensor([0.0, 3.0], requires_grad=True)
    ag.norm(x, p=0).backward()
    assert x.grad is None


# -- arguments ------------------------------------------------------------------------------------

CALLS = {
    "sum of nothing": lambda m, t: m.sum(t([[1.0, 2.0]]), ()),
    "sum of a number": lambda m, t: m.sum(t(2.0), 0),
    "sum, twice": lambda m, t: m.sum(t([[1.0]]), (0, -2)),
    "sum, too far": lambda m, t: m.sum(t([1.0]), 1),
    "sum, keepdim=1": lambda m, t: m.sum(t([1.0]), 0, 1),
    "sum of a list": lambda m, t: m.sum([1.0]),
    "sum by a word": lambda m, t: m.sum(t([1.0]), "a"),
    "mean of integers": lambda m, t: m.mean(t([1])),
    "mean as floats": lambda m, t: m.mean(t([1, 2]), dtype=m.float64),
    "mean as integers": lambda m, t: m.mean(t([1.0]), dtype=m.int64),
    "mean of nothing": lambda m, t: m.mean(m.zeros(0)),
    "var, biased": lambda m, t: m.var(t([1.0, 3.0]), False),
    "var, biased, axis": lambda m, t: m.var(t([[1.0, 3.0]]), 1, False, True),
    "var, correction": lambda m, t: m.var(t([[1.0, 3.0]]), dim=1, correction=0.5),
    "var, both": lambda m, t: m.var(t([1.0]), 0, unbiased=True, correction=1),
    "var of nothing, beyond it": lambda m, t: m.var(m.zeros(0, 2), 0, correction=-1),
    "var of integers": lambda m, t: m.var(t([1, 2])),
    "std of complex": lambda m, t: m.std(t([1j, 2.0])),
    "prod of booleans": lambda m, t: m.prod(t([True, False])),
    "prod by two": lambda m, t: m.prod(t([[1.0]]), (0, 1)),
    "prod of nothing": lambda m, t: m.prod(m.zeros(0)),
    "amax of nothing": lambda m, t: m.amax(m.zeros(0)),
    "amax of no axis": lambda m, t: m.amax(t([[1, 2]]), ()),
    "amax of empty": lambda m, t: m.amax(m.zeros(0, 3), 0),
    "amax beside empty": lambda m, t: m.amax(m.zeros(0, 3), 1),
    "amax of complex": lambda m, t: m.amax(t([1j])),
    "max of nothing": lambda m, t: m.max(m.zeros(0)),
    "max of an empty axis": lambda m, t: m.max(m.zeros(0, 3), 0),
    "max beside an empty axis": lambda m, t: m.max(m.zeros(0, 3), 1),
    "max by two": lambda m, t: m.max(t([[1.0]]), (0,)),
    "max of a number": lambda m, t: m.max(t(3.0), 0),
    "max of booleans": lambda m, t: m.max(t([True, False]), 0),
    "max of complex": lambda m, t: m.max(t([1j]), 0),
    "max of pairs": lambda m, t: m.max(t([1.0, 2.0]), t([2, 1])),
    "max of pairs, named": lambda m, t: m.min(t([1.0, 2.0]), other=t([2, 1])),
    "max, keepdim": lambda m, t: m.max(t([[1.0, 2.0]]), dim=0, keepdim=True),
    "argmax of nothing": lambda m, t: m.argmax(m.zeros(0)),
    "argmax of an empty axis": lambda m, t: m.argmax(m.zeros(0, 3), 0),
    "argmax beside an empty axis": lambda m, t: m.argmax(m.zeros(0, 3), 1),
    "argmax of booleans": lambda m, t: m.argmax(t([True])),
    "argmax of complex": lambda m, t: m.argmax(t([1j])),
    "argmax, keepdim": lambda m, t: m.argmax(t([[1, 2], [4, 3]]), keepdim=True),
    "argmax of a number": lambda m, t: m.argmax(t(3.0), 0),
    "argmin of nan": lambda m, t: m.argmin(t([1.0, NAN])),
    "all of bytes": lambda m, t: m.all(m.zeros(2, dtype=m.uint8)),
    "all of no axis": lambda m, t: m.all(t([[1.0, 2.0]]), ()),
    "all, twice": lambda m, t: m.all(t([[1.0, 2.0]]), (0, 0)),
    "any, keepdim": lambda m, t: m.any(t([[0.0, 2.0]]), 1, True),
    "any of nothing": lambda m, t: m.any(m.zeros(0)),
    "all of nothing": lambda m, t: m.all(m.zeros(0)),
    "logsumexp of integers": lambda m, t: m.logsumexp(t([1, 2]), 0),
    "logsumexp, no axis": lambda m, t: m.logsumexp(t([1.0]), None),
    "logsumexp of nothing": lambda m, t: m.logsumexp(m.zeros(0, 3), 0),
    "norm of integers": lambda m, t: m.norm(t([3, 4])),
    "norm nuc of a vector": lambda m, t: m.norm(t([3.0, 4.0]), p="nuc"),
    "norm nuc": lambda m, t: m.norm(t([[3.0, 4.0]]), p="nuc", dim=(0, 1), keepdim=True),
    "norm foo": lambda m, t: m.norm(t([3.0, 4.0]), p="foo"),
    "norm None": lambda m, t: m.norm(t([3.0, 4.0]), p=None),
    "norm, keepdim": lambda m, t: m.norm(t([3.0, 4.0]), p=3, keepdim=True),
    "norm as double": lambda m, t: m.norm(t([3.0, 4.0]), dtype=m.float64),
    "norm inf of nothing": lambda m, t: m.norm(m.zeros(0), p=INF),
    "vector_norm fro": lambda m, t: m.linalg.vector_norm(t([3.0]), "fro"),
    "vector_norm, no axis": lambda m, t: m.linalg.vector_norm(t([3.0, 4.0]), 2, ()),
    "vector_norm -1 of nothing": lambda m, t: m.linalg.vector_norm(m.zeros(0), -1),
    "vector_norm inf of empty": lambda m, t: m.linalg.vector_norm(m.zeros(0, 3), INF, 0),
    "vector_norm inf beside": lambda m, t: m.linalg.vector_norm(m.zeros(0, 3), INF, 1),
    "vector_norm as complex": lambda m, t: m.linalg.vector_norm(t([3.0]), dtype=m.complex64),
    "vector_norm narrowed": (
        lambda m, t: m.linalg.vector_norm(m.ones(2, dtype=m.float64), dtype=m.float32)
    ),
    "vector_norm of complex order": lambda m, t: m.linalg.vector_norm(t([3.0]), 1j),
    "cumsum of booleans": lambda m, t: m.cumsum(t([True, True]), 0),
    "cumsum as double": lambda m, t: m.cumsum(t([1, 2]), 0, dtype=m.float64),
    "cumsum of a number": lambda m, t: m.cumsum(t(1), 0),
    "cumsum, too far": lambda m, t: m.cumsum(t([1]), 1),
    "cumsum, no axis": lambda m, t: m.cumsum(t([1]), None),
}


@pytest.mark.parametrize("call", CALLS)
def test_arguments_mean_what_they_mean_to_pytorch(call):
    oracle.check_call(CALLS[call])


@pytest.mark.parametrize(
    "name", ["sum", "mean", "var", "std", "amax", "max", "argmin", "all", "logsumexp", "norm"]
)
def test_numpys_names_of_axes_are_taken_too(name):
    """PyTorch takes them, and so do code and habits from NumPy."""
    x = ag.tensor([[1.0, 2.0], [4.0, 3.0]])
    function = getattr(ag, name)
    expected, found = function(x, dim=0, keepdim=True), function(x, axis=0, keepdims=True)
    assert str(found) == str(expected)
    assert str(getattr(x, name)(axis=0)) == str(function(x, dim=0))
    with pytest.raises(TypeError, match="another name"):
        function(x, axis=0, dim=0)


@pytest.mark.parametrize("name", ["var", "std"])
@pytest.mark.parametrize("values", [[2.0], [2.0, 3.0], []])
def test_too_few_elements_warn_and_give_pytorchs_values(name, values):
    theirs = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    ours = ag.tensor(values, dtype=ag.float64, requires_grad=True)
    with pytest.warns(UserWarning, match="degrees of freedom"):
        expected = getattr(torch, name)(theirs, correction=3)
    with pytest.warns(UserWarning, match="degrees of freedom"):
        found = getattr(ag, name)(ours, correction=3)
    np.testing.assert_array_equal(found.detach().numpy(), expected.detach().numpy())
    expected.backward()
    with np.errstate(all="ignore"):
        found.backward()
    np.testing.assert_array_equal(ours.grad.numpy(), theirs.grad.numpy())


@pytest.mark.parametrize("name", ["max", "min", "sort", "topk"])
def test_named_tuples_are_pytorchs_and_can_be_pickled(name):
    x = ag.tensor([3.0, 1.0, 2.0])
    result = getattr(ag, name)(x, 2 if name == "topk" else 0)
    assert type(result) is getattr(ag.return_types, name)
    values, indices = result
    assert values is result.values
    assert indices is result.indices
    assert indices.dtype == ag.int64
    assert pickle.loads(pickle.dumps(type(result))) is type(result)


@pytest.mark.parametrize("shape", [(70_000, 5), (300_001,)])
def test_large_reductions_are_as_exact_as_pytorchs(shape):
    """Blocks for BLAS, and the edges between them."""
    array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    exact = array.astype(np.float64)
    x = ag.from_numpy(array)
    for found, expected in (
        (x.sum(), exact.sum()),
        (x.var(), exact.var(ddof=1)),
        (x.norm(), np.sqrt((exact**2).sum())),
        (x.mean(), exact.mean()),
    ):
        np.testing.assert_allclose(found.item(), expected, rtol=2e-6, atol=2e-4)


@pytest.mark.parametrize("device", ["cpu", "sim:0"])
@pytest.mark.parametrize("keepdim", [True, False])
@pytest.mark.parametrize("dim", [None, 0, 1, (0, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_variances_of_values_far_from_0_keep_their_digits(dtype, dim, keepdim, device):
    """The rounded mean of values near a million is off by some hundredths."""
    rng = np.random.default_rng(0)
    array = (rng.standard_normal((6, 33, 5)) * 0.1 + 1e6).astype(dtype)
    if dtype is np.complex64:
        array += 1j * rng.standard_normal(array.shape).astype(np.float32)
    expected = array.astype(np.result_type(dtype, np.float64)).var(dim, ddof=1, keepdims=keepdim)
    found = ag.tensor(array, device=device).var(dim, keepdim=keepdim).cpu().numpy()
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=2e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("keepdim", [True, False])
@pytest.mark.parametrize(
    ("shape", "dim"), [((500_000, 2), 0), ((1023, 9), 0), ((1500, 3), 0), ((90, 80, 4), (0, 1))]
)
def test_sums_of_many_rows_keep_their_digits(shape, dim, keepdim, dtype):
    """One row after the other, a sum of half a million would have four digits."""
    array = np.random.default_rng(0).uniform(0, 1, shape).astype(dtype)
    x = ag.from_numpy(array)
    tolerance = 20 * np.finfo(dtype).eps
    for name in ("sum", "mean", "var"):
        exact = getattr(array.astype(np.longdouble), name)
        expected = exact(dim, keepdims=keepdim, **({"ddof": 1} if name == "var" else {}))
        found = getattr(x, name)(dim, keepdim=keepdim).numpy()
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected.astype(dtype), rtol=tolerance)


@pytest.mark.parametrize("dim", [0, 1, (0, 1)])
def test_tangents_of_logarithms_of_large_sums_keep_their_digits(dim):
    """The logarithm of a sum beside 10,000 has three digits behind the point."""
    rng = np.random.default_rng(0)
    x = (1e4 + rng.standard_normal((6, 33))).astype(np.float32)
    t = rng.uniform(0.5, 1.5, x.shape).astype(np.float32)
    one, exact = [
        ag.func.jvp(
            lambda x: x.logsumexp(dim), (ag.tensor(x).to(dtype),), (ag.tensor(t).to(dtype),)
        )[1].numpy()
        for dtype in (ag.float32, ag.float64)
    ]
    np.testing.assert_allclose(one, exact, rtol=2e-6)


@pytest.mark.parametrize("name", ["var", "std"])
@pytest.mark.parametrize("dim", [None, 0])
def test_the_spread_of_nothing_has_pytorchs_tangent(name, dim):
    """That of a root is NaN."""
    found = []
    for T in (torch, ag):
        function, x = getattr(T, name), T.ones(0, 2, dtype=T.float64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(T.func.jvp(lambda x, f=function: f(x, dim), (x,), (x,)))
    for expected, ours in zip(*found, strict=True):
        np.testing.assert_array_equal(ours.numpy(), expected.numpy(force=True))
