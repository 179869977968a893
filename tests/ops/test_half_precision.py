"""Halves: every promised function in bfloat16, as far as PyTorch has it, and manners of both.

Values in float16 are compared by the tests of the chapters.
"""

import numpy as np
import oracle
import pytest
from functions import function_of
from promised import MUST

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
pytestmark = pytest.mark.torch

#: Without values to compare, or not in PyTorch's list.
_OTHERS = {"random", "creation", "not_in_op_db"}
#: Which of several equal elements comes first is open, and in few bits many are equal.
TIES = {"topk", "sort", "argsort"}
#: PyTorch's sums of products in float16 differ more from ours.
COARSE = {"nn.functional.scaled_dot_product_attention"}
NAMES = [
    name
    for group, names in MUST.items()
    if group not in _OTHERS
    for name in names
    if name not in TIES | COARSE
    and all(torch.bfloat16 in op.supported_dtypes("cpu") for op in oracle.infos(name))
]


@pytest.mark.parametrize("name", NAMES)
def test_function_and_gradient_match_pytorch(name):
    oracle.check(
        name,
        dtypes=("bfloat16",),
        order=1,
        limit=2,
        tolerance=3e-2,
        awkward=False,
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_conversions_reach_the_dtype_and_back(dtype):
    x = ag.tensor([1.5, -2.25], requires_grad=True)
    for y in (x.to(getattr(ag, dtype)), getattr(x, {"float16": "half"}.get(dtype, dtype))()):
        assert y.dtype == getattr(ag, dtype)
        assert y.tolist() == [1.5, -2.25]
        y.float().sum().backward()
    assert x.grad.dtype == ag.float32
    assert x.grad.tolist() == [2, 2]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_halves_print_compare_and_promote_as_pytorchs(dtype):
    ours, theirs = (m.tensor([1.5, 2.0, -3.0], dtype=getattr(m, dtype)) for m in (ag, torch))
    assert "1.5" in repr(ours)
    for function in (
        lambda m, x: x > 1.5,
        lambda m, x: x == 2,
        lambda m, x: x + m.ones(3, dtype=m.int64),
        lambda m, x: x * m.ones(3),
        lambda m, x: x * m.tensor(2.0, dtype=m.float64),
        lambda m, x: x + m.ones(3, dtype=m.float16),
        lambda m, x: x + m.ones(3, dtype=m.bfloat16),
        lambda m, x: x / 2,
        lambda m, x: x + 1j,
        lambda m, x: x[0],
        lambda m, x: x.abs().sum(),
        lambda m, x: x.argmax(),
    ):
        with oracle._quiet():
            expected = function(torch, theirs)
        found = function(ag, ours)
        if expected.dtype != torch.complex32:
            oracle.compare(expected, found)


def test_a_layer_trains_in_bfloat16():
    layer = ag.nn.Linear(4, 3).to(ag.bfloat16)
    x = ag.ones(2, 4, dtype=ag.bfloat16)
    optimizer = ag.optim.SGD(layer.parameters(), lr=0.5)
    before = layer(x).float().square().sum().item()
    layer(x).square().sum().backward()
    assert layer.weight.grad.dtype == ag.bfloat16
    optimizer.step()
    assert layer.weight.dtype == ag.bfloat16
    assert np.isfinite(layer(x).float().square().sum().item())
    assert layer(x).float().square().sum().item() != before


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_numbers_leave_halves_what_they_are(dtype):
    """NumPy makes float32 of bfloat16 and a Python float."""
    functions = (
        lambda m, x: x * 2.3,
        lambda m, x: 1.3 - x,
        lambda m, x: 1.7 / x,
        lambda m, x: x**1.5,
        lambda m, x: x.clamp(0.3, 0.9),
        lambda m, x: m.add(x, x, alpha=0.3),
        lambda m, x: m.lerp(x, x, 0.3),
        lambda m, x: x.masked_fill(x > 1, 0.1),
        lambda m, x: m.where(x > 1, x, 0.1),
        lambda m, x: x.var(correction=1.3),
        lambda m, x: m.einsum("aij,ajk->aik", x[None, None], x[None, :, None]),
        lambda m, x: m.nn.functional.dropout(x, 1.0),
        lambda m, x: m.nn.functional.threshold(x, 0.1, 0.2),
        lambda m, x: x.nan_to_num(),
        lambda m, x: x.norm(),
        lambda m, x: x.clone().mul_(0.3),
    )
    for function in functions:
        found = []
        for m in (torch, ag):
            x = m.tensor([0.5, 1.25, 2.0], dtype=getattr(m, dtype), requires_grad=True)
            y = function(m, x)
            (g,) = m.autograd.grad((y * y).sum(), x)
            found.append((y, g))
        for theirs, ours in zip(*found, strict=True):
            oracle.compare(theirs, ours, tolerance=2e-2)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: m.erf(x),
        lambda m, x: m.exp2(x),
        lambda m, x: x.rsqrt(),
        lambda m, x: x.norm(),
        lambda m, x: m.nn.functional.layer_norm(x, (3,), x * 1, x * 2),
    ],
)
def test_gradients_have_the_dtype_of_the_half_wherever_they_are_seen(dtype, function):
    """Rules that compute in float32 show nobody what they computed in."""
    found = []
    for m in (torch, ag):
        seen = []

        def backward(ctx, g, seen=seen):
            seen.append(g)
            return g

        Function = function_of(m, backward=backward)
        leaf = m.tensor([0.5, 1.25, 2.0], dtype=getattr(m, dtype), requires_grad=True)
        leaf.register_hook(seen.append)
        x = Function.apply(leaf)
        y = x * 1
        y.retain_grad()
        y.register_hook(seen.append)
        y.grad_fn.register_prehook(lambda gradients, seen=seen: seen.extend(gradients))
        z = function(m, y).float().sum() + function(m, x).float().sum()
        seen.extend(m.autograd.grad(z, [y, x, leaf], retain_graph=True))
        z.backward()
        found.append([*seen, y.grad, leaf.grad])
    for theirs, ours in zip(*found, strict=True):
        assert str(ours.dtype) == f"asyncgrad.{dtype}"
        oracle.compare(theirs, ours, tolerance=5e-2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("decimals", [-2, -1, 0, 1, 3])
def test_halves_are_rounded_to_decimals_in_single_precision(dtype, decimals):
    values = np.random.default_rng(0).normal(0, 100, 500).tolist()
    ours, theirs = (
        T.tensor(values, dtype=getattr(T, dtype)).round(decimals=decimals) for T in (ag, torch)
    )
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("number", [0.3, -1.1, 257])
def test_numbers_are_rounded_to_halves_first_where_pytorch_does_so(dtype, number):
    """Else 0.3 in bfloat16 is not equal to 0.3. What multiplies and divides keeps the number."""
    values = np.append(np.linspace(-3, 3, 401), [0.3, -0.3, -1.1, 1.1, 256]).astype(np.float32)
    functions = (
        lambda x: x == number,
        lambda x: x != number,
        lambda x: x < number,
        lambda x: x <= number,
        lambda x: x > number,
        lambda x: x >= number,
        lambda x: x + number,
        lambda x: x - number,
        lambda x: number - x,
        lambda x: x % number,
        lambda x: x.fmod(number),
        lambda x: x.abs() ** abs(number),
        lambda x: x.hardshrink(abs(number)),
    )
    ours, theirs = (m.tensor(values).to(getattr(m, dtype)) for m in (ag, torch))
    for function in functions:
        expected = function(theirs).float().numpy()
        np.testing.assert_array_equal(function(ours).float().numpy(), expected)


@pytest.mark.parametrize("number", [70_000, 1e10, 1e-5, 3e-8, 1 / 70_000, -3.7])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, number: x * number,
        lambda x, number: x / number,
        lambda x, number: number / x,
        lambda x, number: x.clone().mul_(number),
        lambda x, number: x.clone().div_(number),
        lambda x, number: x + number if abs(number) < 1e4 else x,
    ],
    ids=["times", "by", "of", "times in place", "by in place", "plus"],
)
def test_numbers_beyond_float16_are_factors_and_divisors_as_pytorchs(function, number):
    results = [
        function(m.tensor([1e-3, 2.0, 300.0], dtype=m.float16), number).tolist()
        for m in (ag, torch)
    ]
    assert results[0] == results[1]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("factors", [{}, {"alpha": 0.25}, {"beta": 0.75, "alpha": 3}])
def test_addr_rounds_after_the_steps_that_pytorchs_has(dtype, factors):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape) for shape in ((30, 20), 30, 20)]
    results = [
        m.addr(*(m.from_numpy(x).to(getattr(m, dtype)) for x in arrays), **factors).tolist()
        for m in (ag, torch)
    ]
    assert results[0] == results[1]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, y, z: ag.addcmul(x, y, z, value=0.3),
        lambda x, y, z: ag.addcdiv(x, y, z, value=0.3),
        lambda x, y, z: ag.lerp(x, y, 0.3),
        lambda x, y, z: ag.lerp(x, y, z),
        lambda x, y, z: ag.addmm(x, y, z),
        lambda x, y, z: ag.nn.functional.linear(x, y, z[0]),
        lambda x, y, z: ag.nn.functional.group_norm(x, 2, y[0], z[0]),
        lambda x, y, z: ag.nn.functional.adaptive_avg_pool2d(ag.cat([x, y])[None], (3, 5)),
        lambda x, y, z: ag.nn.functional.interpolate(
            ag.cat([x, y])[None, None], (5, 6), mode="bilinear"
        ),
        lambda x, y, z: ag.sinc(y),
        lambda x, y, z: ag.logcumsumexp(ag.cat([y] * 16), 0),
        lambda x, y, z: ag.func.grad(lambda x: ag.nn.functional.mish(x).sum())(x),
        lambda x, y, z: ag.func.grad(lambda x: ag.nn.functional.hardswish(x).sum())(x * 2),
        lambda x, y, z: ag.func.grad(lambda x: ag.var(x))(y),
        lambda x, y, z: ag.func.grad(lambda x: ag.std(x, 0).sum())(y),
    ],
)
def test_functions_of_several_steps_round_once(dtype, function):
    """As PyTorch's do: a sum near 0 would otherwise have few bits that are right."""
    rng = np.random.default_rng(0)
    wide = [ag.tensor(rng.uniform(0.5, 2, (8, 8))).to(dtype).double() for _ in range(3)]
    wide[0] = -wide[0]
    expected = function(*wide).to(dtype)
    found = function(*(x.to(dtype) for x in wide))
    assert found.dtype == expected.dtype
    # Sums in float32 may lie on the other side of the middle between two numbers.
    step = 2.0 ** (-7 if dtype == "bfloat16" else -10)
    np.testing.assert_allclose(found.double().numpy(), expected.double().numpy(), rtol=step)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("function", [lambda x: x**3, lambda x: x**-0.5, lambda x: x.rsqrt()])
def test_powers_round_where_pytorchs_do(dtype, function):
    # Of so many elements that PyTorch computes them by vectors: else it rounds a root, too.
    found = [function(T.arange(1, 129).to(getattr(T, dtype)).div(7)) for T in (torch, ag)]
    oracle.compare(*found)


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["tanh", "hardsigmoid", "glu"])
def test_values_and_gradients_of_activations_round_once(name, dtype, recorded):
    """PyTorch's gradient of `glu` rounds the logistic function first."""
    found = []
    for T in (torch, ag):
        x, g = (
            T.tensor(np.random.default_rng(seed).standard_normal(1000)).to(getattr(T, dtype)) * 3
            for seed in (0, 1)
        )
        out = getattr(T.nn.functional, name)(x.requires_grad_())
        (gradient,) = T.autograd.grad(out, x, g[: len(out)], create_graph=recorded)
        gradients = [] if name == "glu" else [gradient]
        found.append([y.detach().float().numpy() for y in (out, *gradients)])
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_errors_of_long_scans_do_not_add_up(dtype):
    """The gradient is computed step by step, with the quotient of two results in each."""
    values = np.random.default_rng(0).uniform(0.3, 2, 500)
    gradients = []
    for T, kind in ((torch, "float64"), (torch, dtype), (ag, dtype)):
        x = T.tensor(values).to(getattr(T, dtype)).to(getattr(T, kind)).requires_grad_()
        (found,) = T.autograd.grad(T.logcumsumexp(x, 0).sum(), x)
        gradients.append(found.double().numpy())
    exact, theirs, ours = gradients
    assert abs(ours / exact - 1).max() <= 1.1 * abs(theirs / exact - 1).max()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("factors", [(1, 1), (0.7, 0.3), (0, 1), (1, 0.3)])
@pytest.mark.parametrize(("name", "shapes"), [
    ("addmv", ((8,), (8, 4), (4,))),
    ("addmm", ((8, 8), (8, 4), (4, 8))),
    ("addbmm", ((8, 8), (4, 8, 4), (4, 4, 8))),
    ("baddbmm", ((4, 8, 8), (4, 8, 4), (4, 4, 8))),
])  # fmt: skip
def test_sums_of_products_round_where_pytorchs_do(dtype, factors, name, shapes):
    """The products are of few bits, so that the order in which they are added does not matter."""
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-16, 17, shape) / 8 for shape in shapes]
    found, expected = (
        getattr(T, name)(
            *[T.tensor(a.tolist()).to(getattr(T, dtype)) for a in arrays],
            beta=factors[0], alpha=factors[1],
        )
        for T in (ag, torch)
    )  # fmt: skip
    assert found.tolist() == expected.tolist()


def test_a_threshold_is_not_rounded_before_it_is_compared():
    x = [1.0, 0.1, 0.3]
    for name in ("float16", "bfloat16"):
        found, expected = (
            T.nn.functional.threshold(T.tensor(x).to(getattr(T, name)), 0.1, 0.3).tolist()
            for T in (ag, torch)
        )
        assert found == expected
