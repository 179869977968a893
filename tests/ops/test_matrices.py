"""Inverses, determinants, decompositions, norms and products of matrices."""

import weakref

import numpy as np
import oracle
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

NAMES = [
    "det", "inverse", "logdet", "slogdet", "pinverse", "matrix_power", "cholesky",
    "cholesky_inverse", "cholesky_solve", "qr", "svd", "cross", "kron", *(
        f"linalg.{name}" for name in ag.linalg.__all__
        if name not in {"LinAlgError", "vector_norm"}
    ),
]  # fmt: skip
#: PyTorch's op is another function for some, which have tests of their own.
_OTHERS = {"cholesky", "cholesky_inverse", "linalg.lstsq", "linalg.norm", "linalg.pinv"}
TESTED = [n for n in NAMES if n not in _OTHERS and any(op.name == n for op in oracle.op_db)]


OPTIONS = {"dtypes": ("float64", "complex128"), "limit": 6, "tolerance": 1e-8}
test_samples = oracle.as_in_pytorch(TESTED, tangents=3, **OPTIONS)
# PyTorch has no tangents for the older name, and takes another product for the inverse.
test_without_tangents = oracle.as_in_pytorch(["cholesky", "cholesky_inverse"], **OPTIONS)
# Of norms at 0 PyTorch's second derivative is NaN, of norms of nothing ours.
test_norms = oracle.as_in_pytorch(["linalg.norm"], tangents=3, order=1, **OPTIONS)


@pytest.mark.parametrize("name", ["linalg.pinv", "linalg.lstsq"])
def test_refuses_what_pytorch_refuses(name):
    oracle.check_errors(name)


@pytest.mark.parametrize("variant", ["", "hermitian"])
def test_pseudo_inverses_are_pytorchs(variant):
    oracle.check("linalg.pinv", variant=variant, **OPTIONS)


# -- against PyTorch, beyond its samples ----------------------------------------------------------


def _arrays(shape, complex_=False, count=1):
    rng = np.random.default_rng(0)
    found = []
    for _ in range(count):
        x = rng.standard_normal(shape)
        found.append(x + 1j * rng.standard_normal(shape) if complex_ else x)
    return found


def _compare(function, *arrays, order=2):
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
    ours = [ag.tensor(a, requires_grad=True) for a in arrays]
    expected, found = function(torch, *theirs), function(ag, *ours)
    oracle.compare(expected, found, 1e-8)
    leaves = list(zip(theirs, ours, strict=True))
    oracle.compare_derivatives(expected, found, leaves, order, 1e-8)


OLDER = {
    "inverse": lambda T, x: T.inverse(x),
    "slogdet": lambda T, x: tuple(T.slogdet(x)),
    "det of the method": lambda T, x: x.det(),
    "pinverse": lambda T, x: x.pinverse(),
    "qr": lambda T, x: tuple(x.qr()),
    "a negative power": lambda T, x: x.matrix_power(-2),
    "no power": lambda T, x: T.matrix_power(x, 0),
    "inverse of a triangle": lambda T, x: T.cholesky_inverse(T.tril(x, -1) + 3 * T.eye(3)),
    "inverse of an upper one": lambda T, x: T.cholesky_inverse(x.triu(1) + 3 * T.eye(3), True),
    "the nearest solution": lambda T, x: T.linalg.lstsq(x[..., :2], x, driver="gels")[0],
    "what is left of it": lambda T, x: T.linalg.lstsq(x[..., :2], x, driver="gels")[1],
    "singular values alone": lambda T, x: x.svd(compute_uv=False)[1],
}


@pytest.mark.filterwarnings("ignore:torch.qr is deprecated")
@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("name", OLDER)
def test_older_names_are_pytorchs(name, complex_):
    _compare(OLDER[name], *_arrays((2, 3, 3), complex_))


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 3, 3)])
def test_results_of_a_decomposition_have_their_parts_of_the_gradient(shape, complex_):
    """What is made of the factors does not depend on their phases."""
    (x,) = _arrays(shape, complex_)

    def function(T, y):
        u, s, vh = T.linalg.svd(y, full_matrices=False)
        q, r = T.linalg.qr(y)
        return u @ vh, u.abs(), vh.abs(), s, q.abs(), r.abs()

    _compare(function, x)


@pytest.mark.parametrize("ord", [1, -1, 2, -2, float("inf"), -float("inf"), "nuc", "fro"])
@pytest.mark.parametrize("shape", [(0, 0), (5, 0), (0, 5), (2, 5, 0), (2, 0, 5), (0, 2, 3)])
def test_norms_of_matrices_without_elements_are_pytorchs(shape, ord):
    """The greatest of no sums is 0, the smallest an error."""
    found = []
    for T in (torch, ag):
        try:
            y = T.linalg.matrix_norm(T.ones(shape), ord, keepdim=True)
        except Exception as error:
            found.append(oracle.error_class(error))
        else:
            found.append((tuple(y.shape), y.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("p", [None, 1, -1, 2, float("inf"), "nuc", "fro", "no norm"])
@pytest.mark.parametrize("shape", [(0, 0), (5, 0), (0, 5), (2, 0, 5), (0, 2, 3), (0, 2, 2)])
def test_condition_numbers_of_matrices_without_elements_are_pytorchs(shape, p):
    """They are constants. Only norms with names ask whether such matrices are square."""
    found = []
    for T in (torch, ag):
        try:
            y = T.linalg.cond(T.ones(shape, requires_grad=True), p)
        except Exception as error:
            found.append(oracle.error_class(error))
        else:
            found.append((tuple(y.shape), y.tolist(), y.requires_grad))
    assert found[0] == found[1]


SINGULAR = [[[1.0, 1.0], [1.0, 1.0]], [[1.0, 2.0], [3.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]]


@pytest.mark.parametrize("p", [1, -1, float("inf"), "nuc", "fro"])
def test_singular_matrices_have_infinite_condition_numbers(p):
    """The other matrices of the batch have theirs, and its gradient."""
    x = ag.tensor(SINGULAR, requires_grad=True)
    y = ag.linalg.cond(x, p)
    assert y[::2].tolist() == [float("inf")] * 2
    alone = x[1].detach().requires_grad_()
    one = ag.linalg.cond(alone, p)
    np.testing.assert_allclose(y[1].item(), one.item())
    np.testing.assert_allclose(ag.grad(y[1], x)[0][1].numpy(), ag.grad(one, alone)[0].numpy())


@pytest.mark.parametrize(
    "function",
    [
        ag.linalg.inv_ex,
        lambda x: ag.linalg.cholesky_ex(x @ x.mT),
        lambda x: ag.linalg.solve_ex(x, ag.ones_like(x[0]))[:2],
        lambda x: (ag.linalg.cond(x, 1), x),
    ],
    ids=["inv_ex", "cholesky_ex", "solve_ex", "cond"],
)
def test_each_example_has_its_own_info(function):
    """A singular matrix does not make those of other examples singular."""
    x = ag.tensor(SINGULAR, dtype=ag.float64)
    expected = [[part.numpy() for part in function(one)] for one in x]
    found = ag.func.vmap(function)(x), ag.func.vmap(ag.func.vmap(function))(x[:, None])
    for place, values in enumerate(zip(*expected, strict=True)):
        for batch in (found[0][place], found[1][place][:, 0]):
            np.testing.assert_allclose(batch.numpy(), np.stack(values))


@pytest.mark.parametrize("driver", [None, "gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 5, 3)])
def test_the_driver_says_which_parts_a_nearest_solution_has(shape, driver):
    (x,) = _arrays(shape, False)
    parts = [T.linalg.lstsq(T.tensor(x), T.tensor(x), driver=driver) for T in (torch, ag)]
    for theirs, ours in zip(*parts, strict=True):
        assert ours.shape == tuple(theirs.shape)
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=1e-9)


HERMITIAN = {
    "eigenvalues": lambda x: ag.linalg.eigvalsh(x),
    "eigenvectors": lambda x: ag.linalg.eigh(x)[1].abs(),
    "the other triangle": lambda x: ag.linalg.eigh(x, UPLO="U")[0],
    "triangles": lambda x: ag.linalg.cholesky(x @ x + ag.eye(3, dtype=x.dtype)),
    "upper triangles": lambda x: ag.linalg.cholesky(x @ x + ag.eye(3, dtype=x.dtype), upper=True),
    "pseudo-inverses": lambda x: ag.linalg.pinv(x, hermitian=True),
}


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("name", HERMITIAN)
def test_functions_of_hermitian_matrices_are_differentiated(name, complex_):
    x = ag.tensor(_arrays((3, 3), complex_)[0], requires_grad=True)

    def function(x):
        return HERMITIAN[name](x + x.mH)

    assert ag.autograd.gradcheck(function, (x,), check_forward_ad=True)
    assert ag.autograd.gradgradcheck(function, (x,))


def test_rank_counts_singular_values():
    for rank in range(4):
        x = np.random.default_rng(rank).standard_normal((2, 5, rank)) @ np.ones((rank, 4))
        x = x + np.random.default_rng(rank).standard_normal((2, 5, rank)) @ _arrays((rank, 4))[0]
        for more in ({}, {"atol": 0.5}, {"rtol": 0.3}, {"tol": 1.0}):
            oracle.compare(
                torch.linalg.matrix_rank(torch.tensor(x), **more),
                ag.linalg.matrix_rank(ag.tensor(x), **more),
            )


DEFICIENT = np.stack([np.eye(3), np.eye(3)[[1, 0, 2]], [[0.0, 1, 0], [2, 0, 1], [0, 1, 0]]])
INDEFINITE = np.stack([np.eye(3), np.diag([1.0, 2.0, -1.0]), np.diag([1.0, np.nan, 1.0])])
FAILING = {
    "inv": (DEFICIENT, lambda T, x: T.linalg.inv(x)),
    "inv_ex": (DEFICIENT, lambda T, x: T.linalg.inv_ex(x, check_errors=True)),
    "solve": (DEFICIENT, lambda T, x: T.linalg.solve(x, x)),
    "solve_ex": (DEFICIENT, lambda T, x: T.linalg.solve_ex(x, x, check_errors=True)),
    "lu_factor": (DEFICIENT, lambda T, x: T.linalg.lu_factor(x)),
    "cholesky": (INDEFINITE, lambda T, x: T.linalg.cholesky(x)),
    "cholesky_ex": (
        INDEFINITE,
        lambda T, x: T.linalg.cholesky_ex(x, upper=True, check_errors=True),
    ),
    "svd": (INDEFINITE, lambda T, x: T.linalg.svd(x)),
    "eig": (INDEFINITE, lambda T, x: T.linalg.eig(x)),
}


@pytest.mark.parametrize("name", FAILING)
@pytest.mark.parametrize("of", [slice(None), 1, 2], ids=["batch", "second", "third"])
def test_a_matrix_on_which_a_function_fails_is_named_in_pytorchs_words(name, of):
    """The first of a batch, and where it fails: elimination exchanges rows."""
    array, call = FAILING[name]
    try:
        call(torch, torch.tensor(array[of]))
    except RuntimeError as error:
        words = str(error).removeprefix("torch.").split(": ", 1)[1]
        with pytest.raises(ag.linalg.LinAlgError) as found:
            call(ag, ag.tensor(array[of]))
        assert words in str(found.value)
    else:
        call(ag, ag.tensor(array[of]))


@pytest.mark.parametrize("name", ["inv_ex", "solve_ex", "cholesky_ex"])
def test_where_a_function_fails_is_counted_as_in_pytorch(name):
    array = INDEFINITE if name == "cholesky_ex" else DEFICIENT
    theirs, ours = [
        getattr(T.linalg, name)(*[T.tensor(array)] * (2 if name == "solve_ex" else 1)).info
        for T in (torch, ag)
    ]
    oracle.compare(theirs, ours)
    inverse, _ = ag.linalg.inv_ex(ag.tensor(DEFICIENT))
    np.testing.assert_array_equal(inverse[:2].numpy(), DEFICIENT[:2])


@pytest.mark.parametrize("loss", ["sum", "a column", "sizes", "products"])
@pytest.mark.parametrize("name", ["eigh", "eig"])
def test_losses_that_depend_on_phases_of_eigenvectors_are_refused(name, loss):
    """They have no gradient, because the phases are any."""
    calls = {
        "sum": lambda v: v.sum().real,
        "a column": lambda v: v[:, 0].imag.sum(),
        "sizes": lambda v: (v.abs() ** 3).sum(),
        "products": lambda v: (v[:, :1] @ v[:, :1].mH).imag.triu().sum(),
    }
    array = _arrays((3, 3), True)[0]
    array = array + array.conj().T if name == "eigh" else array
    found = []
    for T in (torch, ag):
        x = T.tensor(array, requires_grad=True)
        value = calls[loss](getattr(T.linalg, name)(x)[1])
        try:
            value.backward()
            found.append(x.grad.numpy())
        except RuntimeError as error:
            found.append(str(error).split(" so it is ill-defined")[0])
    if loss in {"sum", "a column"}:
        assert found[1] == found[0]
        return
    np.testing.assert_allclose(found[1], found[0], atol=1e-9)


def test_the_determinant_of_a_singular_matrix_has_its_gradient():
    """The cofactors; inverses would be infinite."""
    x = ag.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=ag.float64, requires_grad=True)
    (g,) = ag.grad(ag.linalg.det(x), x)
    np.testing.assert_allclose(g.numpy(), [[4.0, -2.0], [-2.0, 1.0]], atol=1e-12)


def test_factors_may_be_changed_in_place_by_themselves():
    """Each result has memory of its own, which gradients of the others do not read."""
    a = _arrays((3, 3))[0]
    x = ag.tensor(a + a.T, requires_grad=True)
    w, v = ag.linalg.eigh(x)
    (expected,) = ag.grad(w.sum(), x, retain_graph=True)
    with ag.no_grad():
        v.mul_(0)
    (found,) = ag.grad(w.sum(), x)
    np.testing.assert_allclose(found.numpy(), expected.numpy())


@pytest.mark.usefixtures("no_collector")
def test_factors_are_released_with_their_graph():
    x = ag.tensor(_arrays((3, 3))[0], requires_grad=True)
    u, s, vh = ag.linalg.svd(x)
    reference = weakref.ref(u._array)
    loss = s.sum()
    del u, s, vh
    ag.grad(loss, x)
    assert reference() is None


def test_examples_are_decomposed_one_by_one():
    x = ag.tensor(_arrays((4, 3, 3))[0])
    found = ag.func.vmap(ag.linalg.svdvals)(x)
    np.testing.assert_allclose(found.numpy(), ag.linalg.svdvals(x).numpy(), rtol=1e-12)
    jacobians = ag.func.vmap(ag.func.jacrev(ag.linalg.det))(x)
    expected = ag.linalg.det(x)[:, None, None] * ag.linalg.inv(x).mT
    np.testing.assert_allclose(jacobians.numpy(), expected.numpy(), rtol=1e-9)


def test_results_are_written_where_they_are_asked_for():
    x = ag.tensor(_arrays((3, 3))[0])
    out = ag.empty(0, dtype=ag.float64)
    assert ag.linalg.inv(x, out=out) is out
    np.testing.assert_allclose((out @ x).numpy(), np.eye(3), atol=1e-12)
    q, r = ag.empty(3, 3, dtype=ag.float64), ag.empty(3, 3, dtype=ag.float64)
    found = ag.linalg.qr(x, out=(q, r))
    assert found.Q is q
    assert found.R is r


@pytest.mark.parametrize(
    "call",
    [
        lambda T: T.linalg.inv(T.ones(2, 3)),
        lambda T: T.linalg.inv(T.ones(3)),
        lambda T: T.linalg.inv(T.ones(2, 2, dtype=T.int64)),
        lambda T: T.linalg.inv(T.ones(2, 2, dtype=T.float16)),
        lambda T: T.linalg.solve(T.eye(2), T.ones(3, 1)),
        lambda T: T.linalg.solve(T.eye(2), T.ones(2, 1, dtype=T.float64)),
        lambda T: T.linalg.qr(T.eye(2), "some"),
        lambda T: T.linalg.eigh(T.eye(2), "M"),
        lambda T: T.linalg.svd(T.eye(2), driver="gesvd"),
        lambda T: T.linalg.matrix_norm(T.eye(2), 3),
        lambda T: T.linalg.matrix_norm(T.eye(2), "fro", (0, 0)),
        lambda T: T.linalg.norm(T.eye(2), "nuc", 1),
        lambda T: T.linalg.matrix_power(T.eye(2), 1.5),
        lambda T: T.linalg.multi_dot([T.eye(2)]),
        lambda T: T.linalg.vander(T.ones(2), N=1),
        lambda T: T.linalg.cross(T.ones(2), T.ones(2)),
        lambda T: T.cross(T.ones(2), T.ones(2)),
        lambda T: T.linalg.tensorinv(T.ones(2, 3), ind=1),
        lambda T: T.linalg.lstsq(T.eye(2), T.eye(3)),
        lambda T: T.linalg.inv([[1.0]]),
        lambda T: T.cholesky_solve(T.eye(2), T.eye(3)),
        lambda T: T.linalg.lu_solve(T.eye(2), T.tensor([0, 1], dtype=T.int32), T.eye(2)),
        lambda T: T.linalg.lu_solve(T.eye(2), T.tensor([1, 3], dtype=T.int32), T.eye(2)),
        lambda T: T.lu_unpack(T.eye(2), T.tensor([-1, 2], dtype=T.int32)),
        lambda T: T.linalg.pinv(T.eye(2), rtol=T.ones((), dtype=T.complex64)),
        lambda T: T.linalg.matrix_rank(T.eye(2), atol=T.ones((), dtype=T.complex64)),
        lambda T: T.chain_matmul(),
        lambda T: T.chain_matmul(T.ones(2)),
        lambda T: T.chain_matmul(T.ones(2), T.eye(2)),
        lambda T: T.linalg.cross(T.ones(3) > 0, T.ones(3) > 0),
    ],
)
def test_what_pytorch_refuses_beside_its_samples(call):
    oracle.check_refused(call)


def test_multi_dot_names_the_tensors_that_do_not_fit():
    given = (2, 3), (3, 4), (5, 5), (5, 2)
    for T in (torch, ag):
        with pytest.raises(RuntimeError, match="tensors 1 and 2"):
            T.linalg.multi_dot([T.ones(*shape) for shape in given])


@pytest.mark.parametrize("name", ["cholesky", "det", "eig", "eigh", "lu", "qr", "svd", "svdvals"])
def test_half_precision_has_no_decompositions(name):
    for T in (torch, ag):
        with pytest.raises(NotImplementedError):
            getattr(T.linalg, name)(T.eye(2, dtype=T.float16))


@pytest.mark.parametrize("call", [
    *[
        lambda T, m, name=name: getattr(T.linalg, name)(input=m)
        for name in (
            "cholesky", "cholesky_ex", "cond", "eig", "eigh", "eigvals", "eigvalsh", "matrix_exp",
            "matrix_norm", "matrix_rank", "norm", "pinv", "vector_norm",
        )
    ],
    lambda T, m: T.linalg.matrix_power(input=m, n=2),
    lambda T, m: T.linalg.tensorinv(input=m, ind=1),
    lambda T, m: T.linalg.tensorsolve(input=m, other=m[0]),
    lambda T, m: T.linalg.lstsq(input=m, b=m)[0],
    lambda T, m: T.linalg.solve_triangular(input=m, B=m, upper=True),
])  # fmt: skip
def test_matrices_have_the_name_that_pytorch_takes(call):
    """Its documentation calls them A, which it refuses for these functions."""
    found = [call(T, T.tensor([[2.0, 0.0], [0.0, 3.0]])) for T in (torch, ag)]
    oracle.compare(*found)


@pytest.mark.parametrize("q", [2, 3, None])
@pytest.mark.parametrize("name", ["svd_lowrank", "pca_lowrank"])
def test_few_singular_vectors_are_pytorchs(name, q):
    """Up to the phases; of a matrix of rank two both find all."""
    rng = np.random.default_rng(0)
    array = rng.standard_normal((2, 6, 2)) @ rng.standard_normal((2, 2, 4))
    x = ag.tensor(array, requires_grad=True)
    torch.manual_seed(0)
    found = [getattr(T, name)(y, q) for T, y in ((torch, torch.tensor(array)), (ag, x.detach()))]
    for theirs, ours in zip(*found, strict=True):
        assert tuple(theirs.shape) == tuple(ours.shape)
    np.testing.assert_allclose(found[1][1].numpy(), found[0][1].numpy(), atol=1e-9)
    products = [(u[..., :2] * s[..., None, :2] @ v[..., :2].mT).numpy() for u, s, v in found]
    np.testing.assert_allclose(products[1], products[0], atol=1e-9)
    u, s, v = getattr(ag, name)(x, 2)
    (g,) = ag.grad((u * s.unsqueeze(-2) @ v.mT).sum(), x)
    assert g.isfinite().all()
    oracle.check_refused(lambda T: getattr(T, name)(T.ones(3, 3), -1))
    oracle.check_refused(lambda T: T.pca_lowrank(T.ones(4, 3), 4))


@pytest.mark.parametrize("mode", ["r", "complete"])
def test_decompositions_without_a_gradient_are_computed_and_refused_in_the_pass(mode):
    """As in PyTorch, only a pass that reaches the further columns fails. R has its gradient."""
    array = _arrays((5, 3))[0]
    x = ag.tensor(array, requires_grad=True)
    q, r = ag.linalg.qr(x, mode)
    oracle.compare(torch.linalg.qr(torch.tensor(array), mode).R.abs(), r.detach().abs())
    expected = ag.grad(ag.linalg.qr(x).R.abs().sum(), x)
    np.testing.assert_allclose(ag.grad(r.abs().sum(), x)[0].numpy(), expected[0].numpy())
    if mode == "complete":
        with pytest.raises(RuntimeError, match="the derivative for 'qr_rest' is not implemented"):
            q.sum().backward()


def test_the_driver_of_full_rank_drops_no_singular_values():
    a, b = _arrays((5, 3))[0], _arrays((5, 2))[0]
    theirs, ours = [
        T.linalg.lstsq(T.tensor(a), T.tensor(b), rcond=0.9, driver="gels").solution
        for T in (torch, ag)
    ]
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=1e-9)


def test_nuclear_norms_of_permuted_tensors_are_contiguous():
    x = ag.tensor(_arrays((2, 3, 4, 5))[0]).permute(3, 2, 1, 0)
    assert all(ag.norm(x, "nuc", dim=dim).is_contiguous() for dim in ((0, 1), (1, 2), (0, 3)))


@pytest.mark.parametrize("name", ["pinv", "svd", "svdvals"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_singular_values_of_what_is_not_finite_are_refused_before_lapack_sees_it(name, bad):
    """It may compute them for ever, which nothing can interrupt."""
    matrices = np.random.default_rng(0).random((2, 5, 5))
    matrices[0, 3, 0] = bad
    with pytest.raises(ag.linalg.LinAlgError, match="non-finite"):
        getattr(ag.linalg, name)(ag.tensor(matrices))


def test_orthogonal_factors_of_what_is_not_finite_are_undefined_as_in_pytorch():
    for T in (torch, ag):
        q, r = T.linalg.qr(T.tensor([[[1.0, 2], [3, 4]], [[float("nan"), 1], [2, 3]]]))
        assert T.isnan(q[1]).any()
        assert T.isnan(r[1]).any()
        assert T.isfinite(q[0]).all()
        assert T.isfinite(r[0]).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_the_sign_of_a_determinant_that_is_nan_is_pytorchs(dtype):
    """It is 0 for real numbers."""
    found = []
    for T in (torch, ag):
        x = T.eye(3, dtype=getattr(T, dtype)).expand(2, 3, 3) * -1
        x[1, 1, 1] = float("nan")
        found.append(T.linalg.slogdet(x).sign)
    oracle.compare(*found)
