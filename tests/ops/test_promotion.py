"""Dtypes of operations on operands that are not alike."""

from __future__ import annotations

import enum
import itertools
from functools import partial

import numpy as np
import oracle
import pytest

import asyncgrad as ag
from asyncgrad.ops.promotion import result_dtype

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
    "complex64", "complex128",
)  # fmt: skip
NUMBERS = (True, 2, 1.5, 1j)
FUNCTIONS = (
    "add", "sub", "mul", "div", "pow", "maximum", "fmod", "remainder", "floor_divide", "atan2",
    "eq", "lt", "logical_and", "bitwise_and",
)  # fmt: skip


def _pair(dtype: str, *, scalar: bool) -> tuple:
    """Ones of a dtype in both libraries."""
    array = np.ones((), dtype) if scalar else np.ones(2, dtype)
    return torch.tensor(array), ag.tensor(array)


def _operands() -> list[tuple]:
    tensors = [(f"{d}{'[]' if s else ''}", *_pair(d, scalar=s)) for d in DTYPES for s in (0, 1)]
    return tensors + [(repr(n), n, n) for n in NUMBERS]


def _outcome(function, *operands):
    try:
        result = function(*operands)
    except NotImplementedError:
        return RuntimeError  # the class above it, where one of the two looks before it computes
    except Exception as error:
        return oracle.error_class(error)
    return oracle.dtype_name(result.dtype), tuple(result.shape)


def _in_half_complex(x, y) -> bool:
    """NumPy has no complex numbers of half precision: the next wider ones take their place."""
    numbers = not isinstance(x, torch.Tensor) and not isinstance(y, torch.Tensor)
    return not numbers and torch.result_type(x, y) == torch.complex32


def test_result_dtype_is_pytorchs_for_all_pairs():
    for (_, theirs, ours), (_, theirs_2, ours_2) in itertools.product(_operands(), repeat=2):
        expected = str(torch.result_type(theirs, theirs_2)).removeprefix("torch.")
        if expected == "complex32":
            expected = "complex64"
        assert result_dtype(ours, ours_2) == expected


def test_result_dtype_of_three_is_pytorchs():
    """The rank of an operand counts, not its place."""
    chosen = [o for o in _operands()[:-4] if o[0].rstrip("[]") in {"bool", "int8", "int64"}]
    chosen += [o for o in _operands()[:-4] if o[0].startswith("float")]
    for a, b, c in itertools.product(chosen, repeat=3):
        theirs = torch.clamp(a[1], b[1], c[1]) if "bool" not in a[0] + b[0] + c[0] else None
        if theirs is not None:
            assert result_dtype(a[2], b[2], c[2]) == oracle.dtype_name(theirs.dtype)
            assert ag.clamp(a[2], b[2], c[2]).dtype == oracle.dtype_name(theirs.dtype)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_two_have_pytorchs_dtypes_or_errors(name):
    """Every pair of dtypes, with and without dimensions, and numbers in both places."""
    theirs, ours = getattr(torch, name), getattr(ag, name)
    for (a, x, y), (b, x_2, y_2) in itertools.product(_operands(), repeat=2):
        if _in_half_complex(x, x_2):
            continue
        expected = _outcome(theirs, x, x_2)
        found = _outcome(ours, y, y_2)
        assert found == expected, f"{name}({a}, {b})"


def test_pairs_of_halves_meet_in_single_precision():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    from asyncgrad.ops.promotion import promote_dtypes

    half, brain = np.dtype("float16"), np.dtype(ml_dtypes.bfloat16)
    assert promote_dtypes(half, brain) == np.float32
    assert promote_dtypes(brain, half) == np.float32
    assert promote_dtypes(brain, np.dtype("float32")) == np.float32
    assert promote_dtypes(brain, np.dtype("int64")) == brain


def test_wide_unsigned_integers_are_not_promoted():
    """PyTorch's rule: they meet nothing but themselves and floating dtypes."""
    x = ag.from_numpy(np.ones(2, np.uint16))
    with pytest.raises(RuntimeError, match="not supported"):
        x + ag.ones(2, dtype=ag.int32)
    assert (x + 1).dtype == np.uint16
    assert (x + ag.ones(2)).dtype == ag.float32


@pytest.mark.parametrize(
    ("dtype", "operation"),
    [
        ("int8", lambda x: x + 300), ("uint8", lambda x: x + (-1)), ("uint8", lambda x: x * (-1)),
        ("uint8", lambda x: x - 2), ("int8", lambda x: x == 300), ("int8", lambda x: x < 300),
        ("int64", lambda x: x + 2**63), ("float32", lambda x: x * 1e300),
        ("float32", lambda x: x == 1e300), ("float16", lambda x: x * 1e30),
        ("float32", lambda x: x == 0.1), ("int64", lambda x: x == 1.5), ("bool", lambda x: x == 1),
        ("uint8", lambda x: x.clamp(-1)), ("uint8", lambda x: x.clamp_(-9, 5)),
        ("uint8", lambda x: x.clamp_max(-2)), ("uint8", lambda x: x.where(x > 1, -3)),
    ],
)  # fmt: skip
def test_numbers_that_do_not_fit_do_as_in_pytorch(dtype, operation):
    theirs, ours = _pair(dtype, scalar=False)
    with np.errstate(over="ignore"):
        oracle.compare(operation(theirs), operation(ours))


@pytest.mark.parametrize(
    "call",
    [
        lambda m, x: m.clamp(x, -256), lambda m, x: x.clamp_(max=300),
        lambda m, x: m.where(x > 1, x, 256), lambda m, x: m.nn.functional.hardtanh(x, -1, 6),
    ],
)  # fmt: skip
def test_numbers_that_an_integer_cannot_hold_are_refused_as_in_pytorch(call):
    for library, x in zip((torch, ag), _pair("uint8", scalar=False), strict=True):
        with pytest.raises(RuntimeError, match=r"without overflow|with negative limits"):
            call(library, x)


def test_numbers_beyond_64_bits_overflow():
    with pytest.raises(OverflowError):
        ag.ones(2, dtype=ag.int64) + 2**70


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_two_numbers_make_a_tensor(name):
    for a, b in itertools.product((True, 3, 2.5), repeat=2):
        expected = _outcome(getattr(torch, name), a, b)
        assert _outcome(getattr(ag, name), a, b) == expected


def test_the_default_dtype_is_what_integers_become():
    x = ag.ones(2, dtype=ag.int64)
    assert (x / 2).dtype == ag.exp(x).dtype == (x + 0.5).dtype == ag.float32
    ag.set_default_dtype(ag.float64)
    try:
        assert (x / 2).dtype == ag.exp(x).dtype == (x + 0.5).dtype == ag.float64
        assert (x * 1j).dtype == ag.complex128
    finally:
        ag.set_default_dtype(ag.float32)


def test_gradients_come_back_in_the_dtype_of_the_operand():
    x = ag.ones(2, requires_grad=True)
    y = ag.ones((), dtype=ag.float64, requires_grad=True)
    z = ag.ones(2, dtype=ag.complex128, requires_grad=True)
    (x * y * z).abs().sum().backward()
    assert (x.grad.dtype, y.grad.dtype, z.grad.dtype) == (ag.float32, ag.float64, ag.complex128)
    assert y.grad.shape == ()


@pytest.mark.parametrize("shapes", [((2, 3), (2,)), ((4, 1, 3), (2, 2)), ((5,), (0,))])
def test_shapes_that_do_not_fit_say_so(shapes):
    a, b = (ag.ones(*shape) for shape in shapes)
    for function in (ag.add, ag.maximum, ag.eq, ag.atan2, lambda x, y: x.where(x > 0, y)):
        with pytest.raises(RuntimeError, match="must match the size of tensor b"):
            function(a, b)


#: Scalars of NumPy, which are numbers here and in PyTorch.
SCALARS = [np.int8(1), np.int64(1), np.float16(0.5), np.float32(0.5), np.float64(0.5)]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
@pytest.mark.parametrize("scalar", SCALARS, ids=lambda scalar: type(scalar).__name__)
def test_scalars_of_numpy_are_numbers(scalar, dtype):
    def dtypes(T):
        x = T.ones(3, dtype=getattr(T, dtype))
        results = [
            x + scalar, scalar * x, x.clamp(scalar), x.clamp(max=scalar), x.clamp(scalar, 2),
            T.clamp_min(x, scalar), T.where(x > 0, x, scalar), x.masked_fill(x > 0, scalar),
        ]  # fmt: skip
        if dtype != "int32":
            results.append(T.nn.functional.leaky_relu(x, scalar))
        found = [*[result.dtype for result in results], T.result_type(x, scalar)]
        return [str(each).rpartition(".")[2] for each in found]

    assert dtypes(ag) == dtypes(torch)


class Level(enum.IntEnum):
    HIGH = 2


class Ratio(float):
    """A number with a name."""


@pytest.mark.parametrize("number", [Level.HIGH, Ratio(0.5)], ids=["enumeration", "derived"])
def test_numbers_of_derived_classes_are_numbers(number):
    def results(T):
        x = T.ones(3)
        found = [x + number, number * x, x / number, x - number, T.where(x > 2, x, number)]
        return [(one.tolist(), str(one.numpy().dtype)) for one in found]

    assert results(ag) == results(torch)


def test_extended_precision_is_a_number_like_any_other():
    x = ag.ones(2)
    for result in (
        x * np.longdouble(2),
        x.clamp(np.longdouble(2)),
        ag.full_like(x, np.longdouble(2)),
    ):
        assert result.dtype == ag.float32
        assert result.numpy().dtype == np.float32
        assert result.tolist() == [2.0, 2.0]
    assert (x * np.clongdouble(2j)).numpy().dtype == np.complex64


@pytest.mark.parametrize("scalar", [np.datetime64("2020"), np.timedelta64(1, "s"), np.str_("1")])
def test_scalars_of_numpy_that_are_no_numbers_are_refused(scalar):
    x = ag.ones(2)
    for operation in (lambda: x + scalar, lambda: x < scalar, lambda: x.clamp(scalar)):
        with pytest.raises(TypeError):
            operation()


def test_a_tensor_without_dimensions_counts_in_kron():
    for T in (ag, torch):
        pair = T.ones(2), T.tensor(1.0, dtype=T.float64)
        assert T.kron(*pair).dtype == T.kron(*pair[::-1]).dtype == T.float64


def _ones(T, dtype, *shape):
    return T.ones(shape, dtype=getattr(T, dtype))


#: Functions whose result has the dtype of one operand, or one of integers, by two dtypes.
MIXED = {
    "bce_with_logits": lambda F, a, b: F.binary_cross_entropy_with_logits(a, b),
    "bce_with_logits, weighted": lambda F, a, b: F.binary_cross_entropy_with_logits(a, a, b),
    "bce_with_logits, positive": lambda F, a, b: F.binary_cross_entropy_with_logits(
        a, a, pos_weight=b[0]
    ),
    "bce, weighted": lambda F, a, b: F.binary_cross_entropy(a, a, b),
    "huber_loss": lambda F, a, b: F.huber_loss(a, b, "sum"),
    "huber_loss, weighted": lambda F, a, b: F.huber_loss(a, b, weight=b),
    "soft_margin_loss": lambda F, a, b: F.soft_margin_loss(a, b),
    "rms_norm": lambda F, a, b: F.rms_norm(a, (2,), b[0]),
}


@pytest.mark.filterwarnings("ignore:Mismatch dtype")
@pytest.mark.parametrize("name", MIXED)
def test_losses_and_norms_have_pytorchs_dtype(name):
    for dtypes in itertools.product(("float16", "float32", "float64", "int64"), repeat=2):
        if name.startswith("rms_norm") and "int64" in dtypes:
            continue
        found = []
        for T in (torch, ag):
            a, b = [_ones(T, dtype, 2, 2) for dtype in dtypes]
            found.append(_outcome(lambda a, b, T=T: MIXED[name](T.nn.functional, a, b), a, b))
        assert found[0] == found[1], dtypes


#: Functions of integers.
WHOLE = {
    "addbmm": lambda T, of: T.addbmm(of(2, 2), of(2, 2, 2), of(2, 2, 2)),
    "addmm": lambda T, of: T.addmm(of(2, 2), of(2, 2), of(2, 2), beta=1.5, alpha=2.5),
    "einsum of a sum": lambda T, of: T.einsum("ik,j->ij", of(2, 3), of(2)),
    "einsum of sums": lambda T, of: T.einsum("i,j->", of(2), of(3)),
    "einsum": lambda T, of: T.einsum("ij,jk->ik", of(2, 3), of(3, 2)),
    "vander": lambda T, of: T.linalg.vander(of(3)),
    "margin_ranking_loss": lambda T, of: T.nn.functional.margin_ranking_loss(of(3), of(3), of(3)),
    "logaddexp2": lambda T, of: T.logaddexp2(T.ones(2), of(2)),
    "index_add": lambda T, of: of(2).index_add(0, T.tensor([0]), of(1), alpha=True),
}


@pytest.mark.parametrize("name", WHOLE)
def test_integers_have_pytorchs_dtype(name):
    for dtype in ("uint8", "int32", "int64"):
        oracle.compare(*[
            WHOLE[name](T, partial(_ones, T, dtype)) for T in (torch, ag)
        ])  # fmt: skip


def test_a_mask_of_single_precision_fits_all_queries():
    for dtype, mask in itertools.product(("float16", "float32", "float64"), repeat=2):
        found = [
            _outcome(T.nn.functional.scaled_dot_product_attention, x, x, x, _ones(T, mask, 2, 2))
            for T in (torch, ag)
            for x in (_ones(T, dtype, 1, 2, 3),)
        ]
        assert found[0] == found[1]


#: What is computed in a wider dtype than its operands', or comes out in a narrower one.
TOGETHER = {
    "addcmul": lambda T: T.addcmul(
        T.ones(1, dtype=T.float64), T.tensor([1.1]), T.tensor([1.3], dtype=T.bfloat16)
    ),
    "addcdiv": lambda T: T.addcdiv(T.ones(1, dtype=T.float64), T.tensor([1.1]), T.tensor([1.3])),
    "addr of booleans": lambda T: T.addr(
        *[_ones(T, "bool", *shape) for shape in ((2, 2), (2,), (2,))], beta=3, alpha=2
    ),
    "addr to a number": lambda T: T.addr(T.tensor(1.1, dtype=T.float64), *[T.ones(2)] * 2),
    "embedding of integers": lambda T: T.nn.functional.embedding(
        T.tensor([1, 0, 1]), T.tensor([[1], [2]]), 0, scale_grad_by_freq=True
    ),
    "inner with a number": lambda T: T.inner(T.tensor(2.5), T.tensor([1, 2])),
    "a diagonal of blocks": lambda T: T.block_diag(T.ones(2, 1), T.tensor(2.5, dtype=T.float64)),
    "einsum without sums of products": lambda T: T.einsum(
        "ij,j,ik->ij", T.ones(2, 2, dtype=T.int64), T.ones(2), T.ones(2, 3, dtype=T.float64)
    ),
    "a scaled sum with a narrower dtype": lambda T: T.add(
        T.zeros(2, dtype=T.float64), T.tensor([1 / 3, 0.1]), alpha=3.1
    ),
    "a scaled difference of halves": lambda T: T.sub(
        T.zeros(2), T.tensor([1 / 3, 0.1], dtype=T.bfloat16), alpha=0.1
    ),
    "a sum of halves times a number that none holds": lambda T: T.zeros(2).add_(
        T.tensor([1 / 3, 0.1], dtype=T.float16), alpha=-1e6
    ),
    "a full loss of counts": lambda T: T.nn.functional.poisson_nll_loss(
        T.ones(2, dtype=T.bfloat16), T.tensor([1, 3]), full=True
    ),
    "lerp by a number": lambda T: T.ones(2).lerp(T.zeros(2), T.tensor(0.5, dtype=T.float64)),
    "a product into one number": lambda T: T.tensor(3.0).scatter(
        0, T.tensor(0), T.tensor(2.0), reduce="multiply"
    ),
    **{
        f"{name} {arguments}": lambda T, name=name, arguments=arguments: getattr(
            T.tensor([[1.0, 3.0, 2.0], [float("nan"), 1.0, 5.0]], dtype=T.bfloat16), name
        )(*arguments)
        for name, arguments in (
            ("median", ()), ("nanmedian", ()), ("median", (1,)), ("nanmedian", (1,)),
            ("kthvalue", (2,)),
        )
    },
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:The reduce argument")
@pytest.mark.parametrize("name", TOGETHER)
def test_what_operands_become_together_is_pytorchs(name):
    oracle.compare(TOGETHER[name](torch), TOGETHER[name](ag), 1e-12)
