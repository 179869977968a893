"""Derivatives of what is singular, empty or too little, and those that PyTorch refuses."""

import numpy as np
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

SINGULAR = [[[1.0, 2, 3], [2, 4, 6], [1, 0, 1]], [[4.0, 2, 1], [2, 1, 0], [0, 0, 0]]]


def _twice(T, function, values, dtype="float64"):
    """The value, its gradient, and that of a sum of the gradient's elements."""
    grad = torch.autograd.grad if T is torch else ag.sync.grad
    x = T.tensor(values, dtype=getattr(T, dtype)).requires_grad_()
    value = function(T, x)
    first = grad(value.sum(), [x], create_graph=True)[0]
    weights = T.arange(first.numel(), dtype=x.dtype).reshape(first.shape)
    second = grad((first * weights).sum(), [x], allow_unused=True)[0]
    return [value.detach().numpy(), first.detach().numpy(), second.numpy()]


@pytest.mark.parametrize(
    ("function", "values"),
    [
        pytest.param(lambda T, x: T.linalg.det(x), SINGULAR, id="det of singular matrices"),
        *[
            pytest.param(
                lambda T, x, name=name, n=n: getattr(T, name)(x, 1, correction=n),
                [[1.0, 2.0, 4.0], [3.0, 3.0, 3.0]],
                id=f"{name} with a correction of {n}",
            )
            for name in ("var", "std")
            for n in (2, 3, 4, 10)
        ],
        *[
            pytest.param(
                lambda T, x, r=r: T.nn.functional.cross_entropy(
                    x, T.zeros(0, dtype=T.int64), reduction=r
                ),
                np.zeros((0, 0)),
                id=f"cross_entropy of nothing, {r}",
            )
            for r in ("mean", "sum", "none")
        ],
    ],
)
def test_second_derivatives_are_pytorchs(function, values):
    for found, expected in zip(
        _twice(ag, function, values), _twice(torch, function, values), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_determinants_of_any_rank_have_second_derivatives():
    """PyTorch's are NaN where more than one singular value is 0."""
    first, second = _twice(ag, lambda T, x: T.linalg.det(x), [[0.0, 0.0], [0.0, 0.0]])[1:]
    np.testing.assert_array_equal(first, 0)
    np.testing.assert_allclose(second, [[3.0, -2.0], [-1.0, 0.0]], atol=1e-12)


@pytest.mark.parametrize("kind", ["avg", "max"])
@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("lead", [(0,), (0, 2)])
def test_adaptive_pooling_takes_no_channels_without_a_batch(kind, ndim, lead):
    def shapes(T):
        x = T.zeros(*lead, *(4,) * ndim, requires_grad=True)
        out = getattr(T.nn.functional, f"adaptive_{kind}_pool{ndim}d")(x, 2)
        out.sum().backward()
        return tuple(out.shape), tuple(x.grad.shape)

    assert shapes(ag) == shapes(torch)


@pytest.mark.parametrize(
    "function",
    [
        lambda T, x, y, i: x // y,
        lambda T, x, y, i: x // 2,
        lambda T, x, y, i: 2 // x,
        lambda T, x, y, i: T.floor_divide(x, y),
        lambda T, x, y, i: (x * 1).floor_divide_(y),
        lambda T, x, y, i: x.scatter(0, i, y, reduce="add"),
        lambda T, x, y, i: x.detach().scatter(0, i, y, reduce="multiply"),
        lambda T, x, y, i: (x * 1).scatter_(0, i, 2.0, reduce="multiply"),
        lambda T, x, y, i: x.sum().scatter(0, i[0], 2.0, reduce="add"),
    ],
)
@pytest.mark.parametrize("T", [ag, torch], ids=["asyncgrad", "PyTorch"])
def test_what_has_no_derivative_raises_when_it_is_needed(function, T):
    """A gradient of 0, or one that PyTorch does not give, would hide that."""
    x, y = (T.tensor([3.0, 5.0], requires_grad=True) for _ in range(2))
    out = function(T, x, y, T.tensor([0, 1]))
    assert out.requires_grad
    with pytest.raises(RuntimeError, match=r"derivative for .* is not implemented"):
        out.sum().backward()


NEAR = [5e-324, 1e-310, 1e-160, 1e-40, 1e-20, 1e-9, 0.03, 0.0999, 0.1001, 1.5, -1e-40, -0.05]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["sinc", "i0e", "i1", "i1e", "bessel_j1"])
def test_what_is_divided_by_itself_has_exact_derivatives_near_zero(name, dtype):
    """Quotients lose all digits there, or are NaN."""
    mpmath = pytest.importorskip("mpmath")
    exact = {
        "sinc": lambda x: mpmath.sinc(mpmath.pi * x),
        "i0e": lambda x: mpmath.besseli(0, x) * mpmath.exp(-abs(x)),
        "i1": lambda x: mpmath.besseli(1, x),
        "i1e": lambda x: mpmath.besseli(1, x) * mpmath.exp(-abs(x)),
        "bessel_j1": lambda x: mpmath.besselj(1, x),
    }[name]
    x = ag.tensor(NEAR, dtype=getattr(ag, dtype)).requires_grad_()
    x = x.detach()[x != 0].requires_grad_()
    first = ag.sync.grad(getattr(ag.special, name)(x).sum(), x, create_graph=True)[0]
    second = ag.sync.grad(first.sum(), x)[0]
    with mpmath.workdps(60):
        for order, found in ((1, first), (2, second)):
            # The functions are smooth on either side of 0: no closer point changes these digits.
            places = [max(abs(value), 1e-12) * (-1 if value < 0 else 1) for value in x.tolist()]
            wanted = [float(mpmath.diff(exact, place, order, h=1e-20)) for place in places]
            tolerance = 1e-11 if dtype == "float64" else 1e-5
            np.testing.assert_allclose(found.tolist(), wanted, rtol=tolerance, atol=tolerance)


def test_second_derivative_of_sinc_at_zero():
    x = ag.zeros(1, dtype=ag.float64, requires_grad=True)
    (first,) = ag.sync.grad(ag.sinc(x), x, create_graph=True)
    assert first.tolist() == [0.0]
    np.testing.assert_allclose(ag.sync.grad(first, x)[0].tolist(), [-(np.pi**2) / 3])


@pytest.mark.parametrize(
    ("function", "values"),
    [
        pytest.param(lambda T, x: T.special.log_ndtr(x), [10.0, 30, 38, 100, 1e30], id="log_ndtr"),
        *[
            pytest.param(
                lambda T, x, name=name, at=at: getattr(T.nn.functional, name)(
                    x, T.zeros(6, dtype=T.float64), reduction="sum", **at
                ),
                [1.0, -1.0, 0.5, -0.5, 0.0, 3.0],
                id=f"{name} where its pieces meet, {at}",
            )
            for name, at in (
                ("huber_loss", {}),
                ("huber_loss", {"delta": 0.5}),
                ("smooth_l1_loss", {}),
                ("smooth_l1_loss", {"beta": 0.5}),
            )
        ],
        pytest.param(lambda T, x: T.logdet(x), [[np.inf, 2.0], [2.0, 4.0]], id="logdet, infinite"),
    ],
)
def test_derivatives_at_kinks_and_far_away_are_pytorchs(function, values):
    for found, expected in zip(
        _twice(ag, function, values), _twice(torch, function, values), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-300)


def test_logarithms_of_singular_and_negative_determinants_have_gradients():
    """Infinite for the singular one, as in PyTorch, and 0 where the result is NaN."""
    values = [[[1.0, 2.0], [2.0, 4.0]], [[1.0, 2.0], [2.0, 1.0]]]
    for T in (torch, ag):
        grad = torch.autograd.grad if T is torch else ag.sync.grad
        x = T.tensor(values, requires_grad=True)
        (found,) = grad(T.linalg.slogdet(x)[1].sum(), [x])
        assert found[0].abs().tolist() == [[np.inf] * 2] * 2
        np.testing.assert_allclose(found[1].tolist(), [[-1 / 3, 2 / 3], [2 / 3, -1 / 3]], rtol=1e-6)
        y = T.tensor(values[1], requires_grad=True)
        assert grad(T.logdet(y), [y])[0].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    tangent = ag.func.jvp(lambda x: ag.linalg.slogdet(x)[1], (x.detach(),), (ag.ones(2, 2, 2),))[1]
    assert np.isinf(tangent[0].item()) or np.isnan(tangent[0].item())


def test_the_gradient_of_copysign_is_0_at_0_alone():
    for T in (ag, torch):
        x = T.tensor([0.0, 1.0, -2.0], requires_grad=True)
        T.copysign(x, -T.ones(3)).sum().backward()
        assert x.grad.tolist() == [0.0, -1.0, 1.0]


@pytest.mark.parametrize(
    ("function", "values"),
    [
        pytest.param(
            lambda T, x: T.nn.functional.gelu(x, approximate="tanh"),
            [1e13, 7.5e12, -7.5e12, -1e6, 1e6],
            id="gelu, tanh",
        ),
        *[
            pytest.param(
                lambda T, x, y=y: T.nn.functional.binary_cross_entropy(
                    x, y + 0 * x.detach(), reduction="none"
                ),
                [0.0, 1.0, 0.0, 1.0, 1e-13, 1e-7, 0.3, 1 - 1e-6],
                id=f"binary_cross_entropy of certain probabilities, {y}",
            )
            for y in (0.0, 1.0, 0.25)
        ],
    ],
)
def test_what_leaves_the_range_of_float32_is_pytorchs(function, values):
    """Intermediate results do; the values and derivatives, with and without a graph, do not."""
    expected = _twice(torch, function, values, "float32")
    found = _twice(ag, function, values, "float32")
    x = ag.tensor(values, dtype=ag.float32, requires_grad=True)
    plain = ag.sync.grad(function(ag, x).sum(), [x])[0].numpy()
    for one, other in zip((*found, plain), (*expected, expected[1]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-37)


def test_mixed_derivatives_of_binary_cross_entropy_are_pytorchs():
    values = [0.0, 1.0, 1e-13, 0.3, 1 - 1e-6]

    def mixed(T):
        grad = torch.autograd.grad if T is torch else ag.sync.grad
        x = T.tensor(values, dtype=T.float64, requires_grad=True)
        y = T.full_like(x.detach(), 0.25).requires_grad_()
        loss = T.nn.functional.binary_cross_entropy(x, y, reduction="sum")
        by_x, by_y = grad(loss, [x, y], create_graph=True)
        return [
            grad(by_x.sum(), [y], retain_graph=True)[0].numpy(),
            grad(by_y.sum(), [x])[0].numpy(),
        ]

    np.testing.assert_allclose(mixed(ag), mixed(torch), rtol=1e-12)
