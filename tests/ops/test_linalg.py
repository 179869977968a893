"""Matrix products."""

import os
import subprocess
import sys
from operator import attrgetter

import numpy as np
import oracle
import pytest
from promised import MUST

import asyncgrad as ag
from asyncgrad.devices import CPU
from asyncgrad.ops.table import linalg

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

NAMES = [*MUST["matmul_conv_pool"][: MUST["matmul_conv_pool"].index("nn.functional.conv1d")]]


test_samples = oracle.as_in_pytorch([*NAMES, "__rmatmul__"], errors=False, limit=80)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
def test_einsum_of_one_integer_tensor_counts_in_int64(dtype):
    for equation in ("ij->", "ij->j", "ij->ji", "ii->i", "ii"):
        theirs, ours = (
            m.einsum(equation, m.ones((3, 3), dtype=getattr(m, dtype))) for m in (torch, ag)
        )
        oracle.compare(theirs, ours)


@pytest.mark.parametrize(
    "equation",
    [
        "a,b->ba", "ab,cd->acbd", "ab,cd->cdab", "ab,cd->dcba", "abc,abd->abdc", "ab,cb->cab",
        "a,b,c->cba", "ab,cd,ef->acebdf", "ab,bc->ca", "abc,acd->adb", "abc,acd->abd",
    ],
)  # fmt: skip
def test_products_have_the_strides_of_pytorch(equation):
    """`einsum("ab,cd->acbd", x, y).view(...)` is how programs write a Kronecker product."""
    terms = equation.partition("->")[0].split(",")
    made = [torch.randn([2 + ord(label) - ord("a") for label in term]) for term in terms]
    theirs, ours = (m.einsum(equation, [m.tensor(x.tolist()) for x in made]) for m in (torch, ag))
    oracle.compare(theirs, ours)
    assert ours.stride() == theirs.stride()


@pytest.mark.parametrize("shape", [(1, 512), (2, 512), (32, 512), (33, 512), (2, 3, 512)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_linear_of_few_rows_and_a_large_weight_is_pytorchs(dtype, shape):
    """It may be computed as the transposed product, but lies in memory like any other result."""
    given = [torch.randn(size, dtype=getattr(torch, dtype)) for size in (shape, (640, 512), 640)]
    x, weight, bias = [ag.tensor(each.numpy()) for each in given]
    theirs = torch.nn.functional.linear(*given)
    for own in (weight, weight.T.contiguous().T):
        ours = ag.nn.functional.linear(x, own, bias)
        oracle.compare(theirs, ours, 1e-4 if dtype == "float32" else 1e-10)
        assert ours.stride() == theirs.stride()
    flat = ag.nn.functional.linear(x.reshape(-1, 512), weight, bias)
    assert flat.tolist() == ag.nn.functional.linear(x, weight, bias).reshape(-1, 640).tolist()


@pytest.mark.parametrize(
    ("rows", "shape", "first"),
    [
        (1, (1024, 512), False),
        (2, (1024, 512), True),
        (32, (1024, 512), True),
        (33, (1024, 512), False),
        (2, (2048, 256), True),
        (2, (256, 2048), True),
        (2, (255, 2048), False),
        (2, (2048, 255), False),
        (32, (8192, 256), True),
        (32, (8193, 256), False),
        (5, (50_000, 256), True),
        (6, (50_000, 256), False),
    ],
)
def test_a_large_weight_goes_first_for_few_rows_and_a_small_result(rows, shape, first):
    weight = np.empty(shape, np.float32)
    assert linalg._weight_goes_first(CPU.xp, np.empty((rows, shape[1])), weight) == first


@pytest.mark.parametrize("vectors", [True, False], ids=["AVX-512", "AVX2"])
@pytest.mark.parametrize(
    ("rows", "shape", "order"),
    [
        (15, (128, 64), "second"),
        (16, (128, 64), "turned"),
        (32, (128, 64), "turned"),
        (33, (128, 64), "second"),
        (32, (125, 250), "turned"),
        (32, (126, 250), "first"),
        (32, (95, 64), "second"),
        (32, (513, 64), "second"),
        (32, (128, 31), "second"),
        (32, (128, 501), "second"),
        (2, (512, 512), "first"),
    ],
)
def test_a_smaller_weight_goes_first_with_avx_512(rows, shape, order, vectors, monkeypatch):
    """The order shows in the product's operands; of small products both are transposed."""
    monkeypatch.setattr(linalg, "_SMALL", 1 << 12 if vectors else linalg._LARGE)
    rng = np.random.default_rng(0)
    x, weight = (rng.standard_normal(s).astype("f") for s in ((rows, shape[1]), shape))
    orders = []

    class Library:
        on_host = True
        ascontiguousarray = staticmethod(np.ascontiguousarray)

        @staticmethod
        def dot(a, b):
            order = "first" if a is weight else "second" if a is x else "turned"
            orders.append(order)
            return np.dot(a, b)

    found = linalg._linear(Library, x, weight)
    assert orders == [order if vectors or weight.size >= linalg._LARGE else "second"]
    assert found.flags.c_contiguous
    np.testing.assert_allclose(found, x @ weight.T, rtol=1e-4, atol=1e-4)


def test_a_smaller_weight_goes_second_where_openblas_may_not_use_avx_512():
    """Its other kernels take up to half as long again if it goes first."""
    program = (
        "from asyncgrad.ops.table import activation\n"
        "activation.VECTORS = True\n"
        "from asyncgrad.ops.table import linalg\n"
        "assert linalg._SMALL == linalg._LARGE"
    )
    asked = {**os.environ, "OPENBLAS_CORETYPE": "Haswell"}
    subprocess.run([sys.executable, "-c", program], env=asked, check=True)


@pytest.mark.parametrize("rows", [15, 16, 17, 24, 31, 32])
def test_a_product_has_the_same_bits_in_a_replay(rows):
    """Whichever operand goes first."""
    ag.manual_seed(0)
    layer, x = ag.nn.Linear(64, 128), ag.randn(rows, 64)
    replayed = ag.compile(layer)
    expected = layer(x).detach().numpy().tobytes()
    assert [replayed(x).detach().numpy().tobytes() for _ in range(3)] == [expected] * 3


@pytest.mark.parametrize("shape", [(8,), (3, 8), (2, 3, 8)])
def test_a_bias_adds_no_columns_to_what_is_linear(shape):
    oracle.check_refused(
        lambda T: T.nn.functional.linear(T.ones(shape), T.ones(1, 8), T.ones(4, requires_grad=True))
    )


@pytest.mark.parametrize("name", ["dot", "vdot", "inner", "matmul", "nn.functional.linear"])
def test_vectors_of_booleans_are_refused_if_they_are_empty_too(name):
    oracle.check_refused(
        lambda T: attrgetter(name)(T)(T.zeros(0, dtype=T.bool), T.zeros(0, dtype=T.bool))
    )


def _outcomes(call):
    """What a call gives in PyTorch and here: values, or the class and words of its error."""
    found = []
    for T in (torch, ag):
        try:
            found.append(call(T))
        except RuntimeError as error:
            found.append((oracle.error_class(error), str(error)))
    return found


@pytest.mark.parametrize("factors", [(1.5, 1), (1, 2.5), (0, 1), (True, 1), (1, True), (1j, 1)])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64"])
@pytest.mark.parametrize("name", ["addr", "addmm", "addmv", "addbmm", "baddbmm"])
def test_factors_of_a_sum_do_not_change_its_dtype(name, dtype, factors):
    """Else the imaginary part of a factor, or what is behind its point, would get lost."""
    shapes = {"addr": (2, 3), "addmv": ((2, 3), 3), "addmm": ((2, 3), (3, 2))}
    shapes = shapes.get(name, ((1, 2, 3), (1, 3, 2)))

    def call(T):
        made = [T.ones(shape, dtype=getattr(T, dtype)) for shape in ((2,), *shapes)]
        return getattr(T, name)(T.ones_like(made[0]).expand(wide), *made[1:], **options)

    wide = {"addr": (2, 3), "addmv": (2,), "baddbmm": (1, 2, 2)}.get(name, (2, 2))
    options = dict(zip(("beta", "alpha"), factors, strict=True))
    theirs, ours = _outcomes(call)
    if isinstance(theirs, tuple):
        # PyTorch has no products of booleans, except for outer ones.
        assert (dtype == "bool" and name != "addr") or ours[0] is theirs[0]
    else:
        oracle.compare(theirs, ours)


@pytest.mark.parametrize("name", ["addr", "addmm", "addmv", "addbmm", "baddbmm"])
def test_a_summand_times_0_is_ignored_but_has_a_gradient(name):
    """Or a pass would complain of an input that its caller has used."""
    factors = {"addr": (2, 2), "addmv": ((2, 2), 2), "addmm": ((2, 2), (2, 2))}
    factors = factors.get(name, ((1, 2, 2), (1, 2, 2)))
    shape = {"addmv": 2, "baddbmm": (1, 2, 2)}.get(name, (2, 2))

    def call(T):
        x = T.full_like(T.ones(shape), float("nan"), requires_grad=True)
        out = getattr(T, name)(x, *map(T.ones, factors), beta=0)
        return out.detach(), *T.autograd.grad(out.sum(), x)

    oracle.compare(*_outcomes(call))


@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
@pytest.mark.parametrize("value", [1j, 1.5])
def test_a_factor_of_products_and_quotients_is_of_their_kind(name, value):
    theirs, ours = _outcomes(lambda T: getattr(T, name)(*[T.ones(2)] * 3, value=value))
    if value == 1j:
        assert ours[0] is theirs[0]
    else:
        oracle.compare(theirs, ours)


@pytest.mark.parametrize("name", ["addmm", "addmv", "addbmm", "baddbmm"])
@pytest.mark.parametrize("dtype", ["int32", "float64", "complex64"])
def test_a_sum_with_a_product_is_of_one_dtype(name, dtype):
    shapes = {"addmv": ((2, 2), 2), "addmm": ((2, 2), (2, 2))}.get(name, ((1, 2, 2), (1, 2, 2)))

    def call(T):
        return getattr(T, name)(T.ones(2, dtype=getattr(T, dtype)), *map(T.ones, shapes))

    theirs, ours = _outcomes(call)
    assert ours[0] is theirs[0]


@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 3), (2, 3)), ((2, 3), (2,)), ((2,), (3, 2)), ((2,), (3,)), ((4, 2, 3), (2, 3)),
        ((4, 2, 3), (4, 2, 3)), ((4, 2, 3), (2,)), ((0, 2), (1, 0)),
    ],
    ids=str,
)  # fmt: skip
def test_factors_that_do_not_align_are_refused_in_pytorchs_words(shapes):
    names = {(2, 2): ["mm", "matmul"], (2, 1): ["mv", "matmul"], (1, 1): ["dot", "matmul"]}
    names[3, 3] = ["bmm", "matmul"]
    for name in names.get(tuple(map(len, shapes)), ["matmul"]):
        theirs, ours = _outcomes(lambda T, name=name: getattr(T, name)(*map(T.ones, shapes)))
        assert theirs[1].rstrip(".") in ours[1]
    if len(shapes[1]) == 2:
        theirs, ours = _outcomes(
            lambda T: T.nn.functional.linear(T.ones(shapes[0]), T.ones(shapes[1]).T)
        )
        assert theirs[1] in ours[1]
        assert f"input, whose shape is {shapes[0]}, has to be {shapes[1][0]} long" in ours[1]
