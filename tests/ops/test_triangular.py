"""Triangles by elimination, what is solved with them, and exponentials of matrices."""

import math

import numpy as np
import oracle
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch

NAMES = [
    "linalg.lu", "linalg.lu_factor", "linalg.lu_factor_ex", "linalg.lu_solve", "lu", "lu_solve",
    "lu_unpack", "matrix_exp",
]  # fmt: skip


# A pivot that is nearly as large as another is found in another row in single precision.
test_samples = oracle.as_in_pytorch(NAMES, tangents=4, dtypes=("float64", "complex128"), limit=8)


@pytest.mark.parametrize("size", [1e-9, 0.5, 5.3, 20.0])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_exponentials_are_exact_for_small_and_large_matrices(size, dtype):
    values = (
        np.random.default_rng(0).standard_normal((3, 5, 5)) * np.array([1, 0.1, 0])[:, None, None]
    )
    values = (values * size).astype(dtype)
    expected = torch.matrix_exp(torch.tensor(values)).numpy()
    found = ag.linalg.matrix_exp(ag.tensor(values)).numpy()
    near = 1e-4 if dtype == "float32" else 1e-11
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=near, atol=near * abs(other).max())


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3)])
def test_matrices_of_no_full_rank_have_triangles(shape):
    results = []
    for T in (torch, ag):
        x = T.arange(float(np.prod(shape))).reshape(shape)
        p, lower, upper = T.linalg.lu(x)
        np.testing.assert_allclose((p @ lower @ upper).numpy(), x.numpy(), atol=1e-5)
        results.append(p.tolist())
        assert T.linalg.lu_factor_ex(T.zeros(2, 3, 2)).info.tolist() == [1, 1]
    assert results[0] == results[1]


def _solve(T, lu=None, pivots=None, b=None, **more):
    found = T.linalg.lu_factor(T.eye(3))
    return T.linalg.lu_solve(
        found.LU if lu is None else lu,
        found.pivots if pivots is None else pivots,
        T.ones(3, 2) if b is None else b,
        **more,
    )


BAD = {
    "a vector": lambda T: T.linalg.lu(T.ones(2)),
    "integers": lambda T: T.linalg.lu(T.ones(2, 2, dtype=T.int64)),
    "no pivots": lambda T: T.linalg.lu(T.ones(2, 2), pivot=False),
    "singular": lambda T: T.linalg.lu_factor(T.zeros(2, 2)),
    "singular and checked": lambda T: T.linalg.lu_factor_ex(T.zeros(2, 2), check_errors=True),
    "pivots of int64": lambda T: _solve(T, pivots=T.ones(3, dtype=T.int64)),
    "two dtypes": lambda T: _solve(T, b=T.ones(3, 2).double()),
    "one right side": lambda T: _solve(T, b=T.ones(3)),
    "rows": lambda T: _solve(T, b=T.ones(2, 2)),
    "columns": lambda T: _solve(T, b=T.ones(3, 2), left=False),
    "no square": lambda T: _solve(T, lu=T.ones(2, 3)),
    "too few pivots": lambda T: _solve(T, pivots=T.ones(2, dtype=T.int32)),
    # PyTorch reads what follows the pivots in memory, and refuses that.
    "fewer pivots to unpack": lambda T: T.lu_unpack(T.eye(3), T.tensor([1, 2, 9]).int()[:2]),
    "no pivots to unpack": lambda T: T.lu_unpack(T.eye(3), T.tensor(1, dtype=T.int32)),
    "inverse by a singular factor": lambda T: T.cholesky_inverse(T.diag(T.tensor([1.0, 0, 2]))),
    "inverses by factors": lambda T: T.cholesky_inverse(
        T.stack([T.eye(2), T.zeros(2, 2)]), upper=True
    ),
    "exponential of a vector": lambda T: T.matrix_exp(T.ones(2)),
    "exponential of no square": lambda T: T.matrix_exp(T.ones(2, 3)),
    "exponential of integers": lambda T: T.matrix_exp(T.ones(2, 2, dtype=T.int64)),
}


@pytest.mark.parametrize("name", BAD)
def test_what_pytorch_refuses_is_refused(name):
    oracle.check_refused(BAD[name])


#: Solutions with triangles that have a 0 on the diagonal in the first of two examples.
SINGULAR = {
    "upper": lambda T, x, b: T.linalg.solve_triangular(x, b, upper=True),
    "lower": lambda T, x, b: T.linalg.solve_triangular(x.mT, b, upper=False),
    "from the right": lambda T, x, b: T.linalg.solve_triangular(x, b.mT, upper=True, left=False),
    "lower, right": lambda T, x, b: T.linalg.solve_triangular(x.mT, b.mT, upper=False, left=False),
    "cholesky": lambda T, x, b: T.cholesky_solve(b, x, upper=True),
    "lu": lambda T, x, b: T.linalg.lu_solve(*T.linalg.lu_factor_ex(x)[:2], b),
    "adjoint": lambda T, x, b: T.linalg.lu_solve(*T.linalg.lu_factor_ex(x)[:2], b, adjoint=True),
}


@pytest.mark.parametrize("name", SINGULAR)
def test_a_singular_triangle_gives_infinite_solutions_in_its_own_example(name):
    """So `lu_factor_ex` lets a batch be solved, and says which of its solutions to use."""
    values = [[[2.0, 4, 1], [0, 0, 1], [0, 0, 3]], [[2.0, 4, 1], [0, 1, 1], [0, 0, 3]]]
    results = []
    for T in (torch, ag):
        x = T.tensor(values, dtype=T.float64, requires_grad=True)
        b = (T.tensor([[1.0, 2]], dtype=T.float64).expand(2, 3, 2) * 1).requires_grad_()
        out = SINGULAR[name](T, x, b)
        gradients = T.autograd.grad(out[1].sum(), [x, b])
        finite = out[0].isfinite().numpy()
        results.append([finite, out[1].detach().numpy(), *(g[1].numpy() for g in gradients)])
    assert not results[1][0].all()
    for ours, theirs in zip(*results[::-1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_rounding_errors_hide_no_0_on_a_diagonal():
    """As they may in an elimination that exchanges rows, which divides by what is left of the 0."""

    def solutions(T):
        x = T.tensor(np.random.default_rng(0).standard_normal((40, 5, 5)))
        x[:, 2, 2] = 0
        b = T.arange(10.0, dtype=T.float64).cos().reshape(5, 2)
        return T.stack([T.linalg.solve_triangular(each.tril(), b, upper=False) for each in x])

    found = solutions(torch).numpy(), solutions(ag).numpy()
    finite = [np.isfinite(part) for part in found]
    np.testing.assert_array_equal(*finite)
    np.testing.assert_allclose(*[part[finite[0]] for part in found])


def test_rounding_errors_make_no_0_that_is_refused():
    """As they may where an element of the diagonal is small."""
    x = ag.tensor(np.random.default_rng(0).standard_normal((40, 5, 5))).tril()
    x[:, 2, 2] = 1e-30
    out = ag.linalg.solve_triangular(x, ag.ones(5, 1, dtype=ag.float64), upper=False)
    assert out[:, :2].isfinite().all()


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_what_is_not_finite_in_a_triangle_reaches_only_the_solutions_behind_it(value, upper):
    """An elimination multiplies it by the zeros of the other triangle."""
    results = []
    for T in (torch, ag):
        x = T.arange(1.0, 17, dtype=T.float64).reshape(4, 4).sin()
        x[1, 2] = x[2, 1] = value
        x.requires_grad_()
        out = T.linalg.solve_triangular(x, T.ones(4, 1, dtype=T.float64), upper=upper)
        (gradient,) = T.autograd.grad(out[3 * upper].sum(), [x])
        results.append((out.detach().numpy(), gradient.numpy()))
    assert np.isfinite(results[0][0]).sum() == 2
    for ours, theirs in zip(*results[::-1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_pivots_of_other_batches_are_refused():
    """PyTorch reads beyond their memory."""
    for pivots, batch in (((3,), (2,)), ((1, 3), (2,)), ((2, 3), ())):
        data, order = ag.eye(3).expand(*batch, 3, 3), ag.ones(*pivots, dtype=ag.int32)
        with pytest.raises(RuntimeError, match="Number of pivots per batch"):
            ag.lu_unpack(data, order)


@pytest.mark.parametrize("upper", [False, True])
def test_the_other_triangle_of_a_cholesky_factor_is_not_read(upper):
    """LAPACK leaves anything there. Derivatives are those of all elements, as in PyTorch."""
    values = [[2.0, 0, 0], [0.5, 1, 0], [1, -1, 3]]
    results = []
    for T in (torch, ag):
        x = T.tensor(values, dtype=T.float64)
        b = T.arange(6.0, dtype=T.float64).reshape(3, 2)
        unread = T.full((3, 3), float("nan"), dtype=T.float64).triu(1)
        x, unread = (x.mT, unread.mT) if upper else (x, unread)
        solve, invert = (
            lambda x, f=f: f(x, upper=upper)
            for f in (lambda x, upper, T=T, b=b: T.cholesky_solve(b, x, upper), T.cholesky_inverse)
        )
        for f in (solve, invert):
            found = [f(x + unread), T.func.vmap(f)((x + unread)[None]), T.func.jacrev(f)(x)]
            # PyTorch's forward mode is wrong for inverses.
            tangent = T.func.jvp(f, (x,), (x,))[1] if T is ag else -2 * f(x)
            results.append([*found, tangent])
    oracle.compare(results[:2], results[2:])


def test_a_replay_reads_one_triangle_of_a_cholesky_factor():
    step = ag.compile(lambda x: ag.cholesky_inverse(x).sum())
    for value in (1.0, 2, 4):
        x = ag.tensor([[value, float("nan")], [0, 1]], requires_grad=True)
        step(x).backward()
        assert x.grad[0, 0].item() == -2 * value**-3


#: Solutions that are one node in PyTorch.
NODES = {
    "solve": lambda T, x: T.linalg.solve(x, x),
    "solve from the right": lambda T, x: T.linalg.solve(x, x, left=False),
    "triangular": lambda T, x: T.linalg.solve_triangular(x, x, upper=True),
    "triangular, right": lambda T, x: T.linalg.solve_triangular(x, x, upper=True, left=False),
    "cholesky": lambda T, x: T.cholesky_solve(x, x),
    "inverse by cholesky": lambda T, x: T.cholesky_inverse(x),
}


@pytest.mark.parametrize("name", NODES)
def test_a_solution_is_one_node_of_pytorchs_name(name):
    found = [NODES[name](T, T.eye(2, requires_grad=True)).grad_fn.name() for T in (torch, ag)]
    assert found[1] == found[0]
