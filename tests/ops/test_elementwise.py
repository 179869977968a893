"""Elementwise functions, comparisons and operators."""

from __future__ import annotations

import math
import operator
import sys
from typing import Any

import numpy as np
import oracle
import pytest
from promised import MUST

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

NAMES = [name for name in (*MUST["unary"], *MUST["binary"]) if name != "__rmatmul__"]


test_samples = oracle.as_in_pytorch(
    NAMES,
    small={"dtypes": ("float16", "uint8", "int8"), "limit": 8, "tolerance": 2e-3},
    errors=False,
)


# -- kinks ----------------------------------------------------------------------------------------

INF, NAN = math.inf, math.nan
KINKS = {
    "abs": (lambda m, x: m.abs(x), [0.0, NAN, -INF, -0.0]),
    "pow 0": (lambda m, x: m.pow(x, 0), [0.0, 2.0, NAN, INF]),
    "pow 1": (lambda m, x: m.pow(x, 1), [0.0, 2.0]),
    "pow 2": (lambda m, x: m.pow(x, 2), [0.0, 2.0]),
    "pow 3": (lambda m, x: m.pow(x, 3), [0.0, -2.0]),
    "pow 0.5": (lambda m, x: m.pow(x, 0.5), [0.0, 2.0, -1.0]),
    "pow -1": (lambda m, x: m.pow(x, -1), [0.0, 2.0]),
    "pow -0.5": (lambda m, x: m.pow(x, -0.5), [0.0, 2.0]),
    "pow": (m_pow := lambda m, x, y: m.pow(x, y), [0, 0, 0, 2, -2, INF], [0, 1, 2, 0, 2, 0]),
    "pow of less": (m_pow, [0.0, 0.0, -1.0], [-1.0, 0.5, 0.5]),
    "0 ** y": (lambda m, y: m.pow(0.0, y), [0.0, 1.0, -1.0]),
    "-2 ** y": (lambda m, y: m.pow(-2.0, y), [0.0, 1.0, -1.0]),
    "sqrt": (lambda m, x: m.sqrt(x), [0.0, -1.0]),
    "rsqrt": (lambda m, x: m.rsqrt(x), [0.0, 4.0]),
    "reciprocal": (lambda m, x: m.reciprocal(x), [0.0, 4.0]),
    "log": (lambda m, x: m.log(x), [0.0, 4.0, -1.0]),
    "sign": (lambda m, x: m.sign(x), [0.0, -3.0, NAN]),
    "round": (lambda m, x: m.round(x), [0.5, 1.5, 2.5, -0.5]),
    "clamp": (lambda m, x: m.clamp(x, 0, 1), [0.0, 1.0, 2.0, NAN, -1.0]),
    "clamp reversed": (lambda m, x: m.clamp(x, 2, 1), [0.0, 1.0, 2.0, 3.0]),
    "clamp nan": (lambda m, x: m.clamp(x, NAN, 1), [0.0, 1.0, 2.0]),
    "clamp by tensors": (
        lambda m, x, a, b: m.clamp(x, a, b),
        [0.0, 1.0, 2.0, 3.0, 0.5], [0.0, 1, 1, 1, 2], [1.0, 1, 2, 2, 1],
    ),
    "clamp from below": (lambda m, x, a: m.clamp(x, a), [0.0, 1.0, 2.0, 3.0], [0.0, 1, 1, 4]),
    "clamp from above": (
        lambda m, x, a: m.clamp(x, max=a), [0.0, 1.0, 2.0, 3.0], [0.0, 1, 1, 4],
    ),
    "maximum": (lambda m, x, y: m.maximum(x, y), [1.0, 2, NAN, 1], [1.0, 1, 1, NAN]),
    "minimum": (lambda m, x, y: m.minimum(x, y), [1.0, 2, NAN, 1], [1.0, 1, 1, NAN]),
    "fmod": (lambda m, x, y: m.fmod(x, y), [5.0, -5, 5, -5, 6], [3.0, 3, -3, -3, 3]),
    "remainder": (lambda m, x, y: m.remainder(x, y), [5.0, -5, 5, -5, 6], [3.0, 3, -3, -3, 3]),
    "remainder of 0": (lambda m, x, y: m.remainder(x, y), [5.0, INF, 5.0], [0.0, 2.0, INF]),
    "atan2": (lambda m, x, y: m.atan2(x, y), [0.0, 1.0, 0.0, -0.0], [0.0, 1.0, -1.0, -1.0]),
    "div": (lambda m, x, y: m.div(x, y), [1.0, 0.0], [0.0, 0.0]),
    "div floor": (
        lambda m, x, y: m.div(x, y, rounding_mode="floor"), [7.0, -7.0, 1.0], [2.0, 2.0, 0.0],
    ),
    "div trunc": (
        lambda m, x, y: m.div(x, y, rounding_mode="trunc"), [7.0, -7.0, 1.0], [2.0, 2.0, 0.0],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", KINKS)
def test_kinks_have_pytorchs_values(case):
    oracle.check_kink(*KINKS[case])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ag.log(x), lambda x: 1 / x, lambda x: x / 0, lambda x: x**-1, lambda x: x**-0.5,
        lambda x: ag.exp(x + 1000), lambda x: ag.rsqrt(x), lambda x: x % 0, lambda x: x // 0,
        lambda x: ag.sigmoid(x - 1000), lambda x: ag.fmod(x, 0), lambda x: ag.acos(x + 2),
        lambda x: ag.log1p(x - 1), lambda x: ag.sqrt(x - 1), lambda x: 0.0 ** (x - 1),
    ],
)  # fmt: skip
def test_infinities_and_nan_come_without_warnings(function):
    """Warnings are errors in these tests."""
    for zero in (ag.zeros(3), ag.tensor(0.0)):
        assert function(zero).shape == zero.shape


# -- operators ------------------------------------------------------------------------------------

INFIX = (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.pow, operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift,
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
)  # fmt: skip
AUGMENTED = (
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv,
    operator.imod, operator.ipow, operator.iand, operator.ior, operator.ixor,
)  # fmt: skip
OPERANDS = (
    (True, [[True, False]]), (2, [[1, 3]]), (2.5, [[0.5, 3.0]]), (1j, [[1j, 2.0]]),
    ("a", [[1.0]]), (None, [[1]]), ([1], [[1]]), (object(), [[1.0]]),
)  # fmt: skip


def _outcome(function: Any, *operands: Any) -> Any:
    """The values of a result, or the class of the error."""
    try:
        result = function(*operands)
    except NotImplementedError:
        return RuntimeError  # the class above it, where the other one looks before it computes
    except Exception as error:
        return oracle.error_class(error)
    if isinstance(result, (torch.Tensor, ag.Tensor)):
        return oracle.array_of(result)
    return result


def _check_outcomes(found: Any, expected: Any) -> None:
    if not isinstance(expected, np.ndarray):
        assert found == expected
        return
    assert found.dtype == expected.dtype
    parts = [(found.real, expected.real), (found.imag, expected.imag)]
    for ours, theirs in parts:
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("infix", INFIX, ids=lambda f: f.__name__)
@pytest.mark.parametrize("place", range(len(OPERANDS)))
def test_operators_with_anything_do_as_pytorchs(infix, place):
    """Numbers of every kind, tensors of every kind, and what is neither, on both sides."""
    other = OPERANDS[place][0]
    tensors = [data for _, data in OPERANDS[:4]]
    for data in tensors:
        x, y = torch.tensor(data), ag.tensor(data)
        _check_outcomes(_outcome(infix, y, other), _outcome(infix, x, other))
        _check_outcomes(_outcome(infix, other, y), _outcome(infix, other, x))
        if place < 4:
            data = OPERANDS[place][1]
            expected = _outcome(infix, x, torch.tensor(data))
            _check_outcomes(_outcome(infix, y, ag.tensor(data)), expected)


@pytest.mark.parametrize("augmented", AUGMENTED, ids=lambda f: f.__name__)
@pytest.mark.parametrize("place", range(4))
def test_augmented_assignment_does_as_pytorchs(augmented, place):
    number, data = OPERANDS[place]
    for start in ([[True, True]], [[3, 4]], [[3.0, 4.0]]):
        for other in (number, data):
            x, y = torch.tensor(start), ag.tensor(start)
            theirs, ours = other, other
            if other is data:
                theirs, ours = torch.tensor(data), ag.tensor(data)
            expected = _outcome(augmented, x, theirs)
            _check_outcomes(_outcome(augmented, y, ours), expected)
            refused = isinstance(expected, type)
            _check_outcomes(y.numpy(), np.asarray(start, y.dtype) if refused else x.numpy())


@pytest.mark.parametrize("unary", [operator.neg, operator.pos, operator.invert, abs])
def test_prefix_operators_do_as_pytorchs(unary):
    for _, data in OPERANDS[:4]:
        _check_outcomes(_outcome(unary, ag.tensor(data)), _outcome(unary, torch.tensor(data)))


@pytest.mark.parametrize("dtype", ["int8", "int64", "bool"])
def test_integers_have_powers_down_to_zero(dtype):
    """Negative powers of integers would be fractions, so there is an error as in PyTorch."""
    x = np.array([0, 1, 1] if dtype == "bool" else [0, 1, -3]).astype(dtype)
    for exponent in (0, 1, 2, 3):
        found, expected = ag.tensor(x) ** exponent, torch.tensor(x) ** exponent
        np.testing.assert_array_equal(found.numpy(), expected.numpy())
    if dtype != "bool":
        for library in (torch, ag):
            with pytest.raises(RuntimeError, match="Integers to negative integer powers"):
                library.tensor(x) ** -1


def test_the_other_operand_may_answer_for_itself():
    class Other:
        def __radd__(self, other):
            return "added"

        def __eq__(self, other):
            return "equal"

        __hash__ = None

    assert ag.ones(2) + Other() == "added"
    x = ag.ones(2)
    assert operator.iadd(x, Other()) == "added"
    assert x.tolist() == [1.0, 1.0]
    with pytest.raises(TypeError, match="Tensor, not list"):
        operator.iadd(x, [1.0, 1.0])
    assert (ag.ones(2) == Other()) == "equal"


@pytest.mark.parametrize("number", [ag.tensor(2), ag.tensor([2], dtype=ag.uint8)])
def test_one_integer_repeats_a_sequence(number):
    """As it does in PyTorch, while other tensors are not meant to."""
    assert [1, 3] * number == number * [1, 3] == [1, 3, 1, 3]
    assert (1,) * number == (1, 1)
    assert [0] * ag.tensor(True) == [0]
    for other in (ag.tensor(2.0), ag.tensor([2, 2])):
        for refused in (lambda x: [1] * x, lambda x: x * (1,)):
            with pytest.raises(TypeError, match=r"Tensor, not (list|tuple)"):
                refused(other)


def test_functions_name_their_arguments_as_pytorch_does():
    x = ag.tensor([4.0])
    assert ag.sqrt(input=x).item() == 2
    assert ag.mul(input=x, other=2).item() == 8
    assert ag.maximum(input=x, other=x).item() == 4
    assert ag.pow(input=x, exponent=0.5).item() == 2
    assert ag.clamp(input=x, min=5, max=6).item() == 5


def test_numpys_numbers_are_numbers():
    x = ag.tensor([1.0, 2.0])
    for scalar in (np.float64(2), np.float32(2), np.int64(2)):
        for result in (x * scalar, scalar * x):
            assert result.dtype == ag.float32
            assert result.tolist() == [2.0, 4.0]


def test_an_operator_with_a_number_saves_the_number_alone():
    """The operand itself may be freed."""
    x = ag.ones(3, requires_grad=True)
    y = x * 2.0
    assert y.grad_fn.saved == 2.0
    z = (y + 1.0) / 4
    z.sum().backward()
    assert x.grad.tolist() == [0.5] * 3


# -- special functions -----------------------------------------------------------------------------


def test_scipy_is_imported_with_the_package():
    """Never by a call, which may come from an event loop."""
    assert "scipy.special" in sys.modules


@pytest.mark.parametrize("order", [0, 1, 2, 5])
def test_derivatives_of_the_gamma_function_are_pytorchs(order):
    found = []
    for m in (ag, torch):
        x = m.tensor([0.3, 1.0, 2.5], dtype=m.float64, requires_grad=True)
        y = m.polygamma(order, x)
        assert x.polygamma(order).tolist() == x.clone().polygamma_(order).tolist() == y.tolist()
        (g,) = m.autograd.grad((y * y).sum(), x, create_graph=True)
        (gg,) = m.autograd.grad(g.sum(), x)
        found.append([t.detach().numpy() for t in (y, g, gg)])
        with pytest.raises(RuntimeError, match="does not support negative n"):
            m.polygamma(-1, x)
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_logarithms_near_one_keep_small_real_parts(dtype):
    z = [1e-10j, 1e-20 + 1e-10j, 1e-19, 1e-9 + 1e-4j, -2 + 1e-9j, 2 + 3j, -0.5j, 1e30j, -1, 0, -3]
    theirs, ours = [T.log1p(T.tensor(z, dtype=getattr(T, dtype))) for T in (torch, ag)]
    rtol = 1e-6 if dtype == "complex64" else 1e-13
    for part in ("real", "imag"):
        expected, found = [getattr(x.numpy(), part) for x in (theirs, ours)]
        np.testing.assert_allclose(found, expected, rtol=rtol)


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor", "logical_not"])
def test_logical_functions_of_many_numbers(name: str) -> None:
    """NaN is no zero, -0.0 is one."""
    values = np.resize(np.array([0.0, -0.0, 1.0, np.nan, -np.inf, 5e-324]), 4000)
    for x in (values, values.astype(np.float32), values != 0, values + 1j, np.arange(4000) % 3):
        arrays = [x, x[::-1].copy()][: 1 + (name != "logical_not")]
        out = getattr(ag, name)(*map(ag.tensor, arrays))
        assert out.tolist() == getattr(np, name)(*arrays).tolist()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "int8"])
def test_the_sign_of_0_is_seen(dtype):
    values = [-0.0, 0.0, -1.0, 1.0] if dtype == "int8" else [-0.0, 0.0, -1.0, float("-inf")]
    found = [T.signbit(T.tensor(values, dtype=getattr(T, dtype))) for T in (torch, ag)]
    oracle.compare(*found)


def test_gradients_of_logaddexp2_keep_their_digits_far_from_0():
    """Operands in another base were rounded, which their difference, a share's exponent, shows."""
    x = ag.tensor([1e6, 123456.0, -9e5], requires_grad=True)
    y = ag.tensor([1e6 + 1, 123454.0, -9e5], requires_grad=True)
    found = ag.autograd.grad(ag.logaddexp2(x, y).sum(), (x, y))
    np.testing.assert_allclose(found[0].numpy(), [1 / 3, 0.8, 0.5], rtol=1e-6)
    np.testing.assert_allclose(found[1].numpy(), [2 / 3, 0.2, 0.5], rtol=1e-6)
