"""Values and derivatives where numbers are not finite, at kinks and at the edges of domains."""

import itertools
import math
import sys
import warnings
from contextlib import suppress
from functools import partial

import numpy as np
import oracle
import pytest

import asyncgrad as ag
from asyncgrad.ops.fused import masked
from asyncgrad.ops.op import Refused
from asyncgrad.ops.table import activation, elementwise, transcendental

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch

INF, NAN = math.inf, math.nan
#: What is no number, infinities, zeros, kinks, and both sides of the edges of domains.
POINTS = [
    NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 6.0, -6.0, -0.1, 1.1,
    0.25, 0.75, 4.0, 21.0,
]  # fmt: skip
FEW = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0]
PAIRS = [*itertools.product(FEW, FEW)]
TRIPLES = [*itertools.product(FEW[:7], FEW[:6], FEW[:6])]
LINES = [*itertools.product([NAN, INF, -INF, 0.0, -0.0, 1.0, -2.0], repeat=3)]
ROWS = [*itertools.product([NAN, INF, -INF, 0.0, 1.0], repeat=2)][:24]


def N(T):
    return T.nn.functional


def _named(name):
    """The public function of an entry of the table."""
    for path in (name, f"special.{name}", f"nn.functional.{name}"):
        target = torch
        for part in path.split("."):
            target = getattr(target, part, None)
        if callable(target):
            return lambda T, *xs: getattr({0: T, 1: T.special}.get(path.count("."), N(T)), name)(
                *xs
            )
    return None


#: Every elementwise function of the table that takes nothing but tensors.
OPS = {
    entry.name: (function, arity)
    for chapter in (activation, elementwise, transcendental)
    for entry in chapter.OPS
    if entry.pulls and not entry.attributes and (arity := len(entry.inputs)) < 3
    if (function := _named(entry.name))
    and entry.name not in {"complex", "masked_fill", "imag", "zeta"}
    and not any(isinstance(pull.function, Refused) for pull in entry.pulls.values())
}
OF_ONE = {
    **{name: function for name, (function, arity) in OPS.items() if arity == 1},
    "relu6": lambda T, x: N(T).relu6(x),
    "hardtanh": lambda T, x: N(T).hardtanh(x, -2, 0.5),
    "hardsigmoid": lambda T, x: N(T).hardsigmoid(x),
    "hardshrink": lambda T, x: N(T).hardshrink(x),
    "softshrink": lambda T, x: N(T).softshrink(x),
    "softsign": lambda T, x: N(T).softsign(x),
    "tanhshrink": lambda T, x: N(T).tanhshrink(x),
    "threshold": lambda T, x: N(T).threshold(x, 0.5, 7.0),
    "leaky_relu": lambda T, x: N(T).leaky_relu(x),
    "leaky_relu, 2": lambda T, x: N(T).leaky_relu(x, 2.0),
    "leaky_relu, -0.5": lambda T, x: N(T).leaky_relu(x, -0.5),
    "elu": lambda T, x: N(T).elu(x),
    "elu, 2": lambda T, x: N(T).elu(x, 2.0),
    "celu": lambda T, x: N(T).celu(x, 2.0),
    "selu": lambda T, x: N(T).selu(x),
    "mish": lambda T, x: N(T).mish(x),
    "softplus": lambda T, x: N(T).softplus(x),
    "sinc": lambda T, x: T.sinc(x),
    "logit, 0.25": lambda T, x: T.logit(x, 0.25),
    "clamp": lambda T, x: T.clamp(x, -1, 0.5),
    "clamp reversed": lambda T, x: T.clamp(x, 2, 1),
    "clamp from below": lambda T, x: T.clamp(x, 0.5),
    "polygamma": lambda T, x: T.polygamma(1, x),
    "nan_to_num": lambda T, x: T.nan_to_num(x),
    "angle": lambda T, x: T.angle(x),
    "fmod": lambda T, x: T.fmod(x, 2),
    "remainder": lambda T, x: T.remainder(x, 2),
    "sqrt of relu": lambda T, x: T.sqrt(T.relu(x)),
    "log of relu": lambda T, x: T.log(T.relu(x)),
    "sqrt of relu_": lambda T, x: T.sqrt((x * 1).relu_()),
    "where": lambda T, x: T.where(x > 0.5, x, T.sqrt(x)),
    **{f"pow {e}": lambda T, x, e=e: T.pow(x, e) for e in (0, 1, 2, 3, 0.5, -1, 1.5, INF)},
    **{f"{b} to the power": lambda T, x, b=b: T.pow(b, x) for b in (0, 1, -2, 0.5, INF)},
}
OF_TWO = {
    **{name: function for name, (function, arity) in OPS.items() if arity == 2},
    "clamp from below": lambda T, x, y: T.clamp(x, y),
    "clamp from above": lambda T, x, y: T.clamp(x, max=y),
    "prelu": lambda T, x, y: N(T).prelu(x, T.tensor([0.25], dtype=x.dtype)) * y.detach(),
    "huber_loss": lambda T, x, y: N(T).huber_loss(x, y, reduction="none"),
    "smooth_l1_loss": lambda T, x, y: N(T).smooth_l1_loss(x, y, reduction="none"),
    "l1_loss": lambda T, x, y: N(T).l1_loss(x, y, reduction="none"),
    "mse_loss": lambda T, x, y: N(T).mse_loss(x, y, reduction="none"),
    "kl_div": lambda T, x, y: N(T).kl_div(x, y.detach(), reduction="none"),
    "binary_cross_entropy_with_logits": lambda T, x, y: N(T).binary_cross_entropy_with_logits(
        x, y.detach(), reduction="none"
    ),
    "binary_cross_entropy": lambda T, x, y: N(T).binary_cross_entropy(
        x.nan_to_num(0.5).clamp(0, 1), y.detach().nan_to_num(0.5).clamp(0, 1), reduction="none"
    ),
    "poisson_nll_loss": lambda T, x, y: N(T).poisson_nll_loss(x, y, reduction="none"),
    "gaussian_nll_loss": lambda T, x, y: N(T).gaussian_nll_loss(
        x, T.zeros_like(x), T.abs(y), reduction="none"
    ),
}  # fmt: skip
OF_THREE = {
    "clamp": lambda T, x, low, high: T.clamp(x, low, high),
    "where": lambda T, x, y, z: T.where(x > 0, y, z),
    "addcmul": lambda T, x, y, z: T.addcmul(x, y, z),
}
#: Of lines with three elements, each by itself.
OF_LINES = {
    **{
        name: lambda T, x, name=name: getattr(T, name)(x, 1)
        for name in (
            "sum", "mean", "prod", "amax", "amin", "logsumexp", "var", "std", "cumsum", "softmax",
            "log_softmax", "nansum", "nanmean",
        )
    },
    **{
        f"{name} along": lambda T, x, name=name: getattr(T, name)(x, 1)[0]
        for name in ("max", "min", "median", "nanmedian", "sort", "cummax", "cummin")
    },
    **{
        name: lambda T, x, name=name: T.stack([getattr(T, name)(line) for line in x[::9]])
        for name in ("max", "min", "median", "nanmedian")
    },
    **{
        f"vector_norm {p}": lambda T, x, p=p: T.linalg.vector_norm(x, p, 1)
        for p in (0, 0.5, 1, 1.5, 2, 3, INF, -INF)
    },
    **{f"normalize {p}": lambda T, x, p=p: N(T).normalize(x, p) for p in (1, 2, 3)},
    **{f"cdist {p}": lambda T, x, p=p: T.cdist(x[::9], x[::9].detach(), p) for p in (0, 1, 2, INF)},
    "pairwise_distance": lambda T, x: N(T).pairwise_distance(x, x.detach() * 1, eps=0.0),
    "cosine_similarity": lambda T, x: N(T).cosine_similarity(x, T.zeros_like(x)),
    "lp_pool1d": lambda T, x: N(T).lp_pool1d(x[None], 2.0, 2),
    "max_pool1d": lambda T, x: N(T).max_pool1d(x[None], 2, 1, 1),
    "max_pool2d": lambda T, x: N(T).max_pool2d(x.reshape(1, 21, 49), 3, 2, 1, 2, True),
    "max_pool3d": lambda T, x: N(T).max_pool3d(x.reshape(1, 21, 7, 7), (2, 3, 3), 2, 1),
    "adaptive_max_pool2d": lambda T, x: N(T).adaptive_max_pool2d(x.reshape(1, 21, 49), (4, 9)),
    "max_pool2d of planes": lambda T, x: N(T).max_pool2d(x.repeat(6, 4)[None], 3, 2, 1),
}  # fmt: skip
#: Of rows of two classes, of which a third is ignored.
CLASSES = [place % 2 if place % 3 else -100 for place in range(len(ROWS))]


def _classes(T, shape=(-1,)):
    return T.tensor(CLASSES).reshape(shape)


def _of_classes(name, weight, images, **more):
    def call(T, x):
        if images:
            x = x.reshape(2, 2, *[1] * (images - 2), 3, 4)
        target = _classes(T)[:12].repeat(2) if images else _classes(T)
        target = target.reshape((2, *x.shape[2:])) if images else target
        weights = None if weight is None else T.tensor(weight, dtype=x.dtype)
        return getattr(N(T), name)(x, target, weights, **more)

    return call


#: All that can be combined with one another, in a few axes and with smooth labels.
OF_CLASSES = {
    f"{name}, {reduction}, {weight}, {images}d, {smooth}": _of_classes(
        name, weight, images, reduction=reduction, **({"label_smoothing": 0.1} if smooth else {})
    )
    for name, reduction, weight, images, smooth in itertools.product(
        ("cross_entropy", "nll_loss"), ("mean", "sum", "none"), (None, [0.0, 0.7]), (0, 2, 3),
        (False, True),
    )
    if not (name == "nll_loss" and smooth) and not (images and (weight or reduction == "sum"))
}  # fmt: skip
CASES = [
    pytest.param(f"{key} of {kind}", function, inputs, dtype, id=f"{key} of {kind}, {dtype}")
    for kind, functions, inputs, dtypes in (
        ("one", OF_ONE, [POINTS], ("float64", "float32")),
        ("two", OF_TWO, [*zip(*PAIRS, strict=True)], ("float64",)),
        ("three", OF_THREE, [*zip(*TRIPLES, strict=True)], ("float64",)),
        ("lines", OF_LINES, [LINES], ("float64",)),
        ("classes", OF_CLASSES, [ROWS], ("float64",)),
    )
    for key, function in functions.items()
    for dtype in dtypes
]
#: Numbers near the least, and what they are divided by.
DENORMALS = [5e-324, -5e-324, 1e-310, -1e-310, sys.float_info.min, 0.0, 1.0]
OF_DENORMALS = [
    pytest.param(f"{key} of {kind}", function, [*zip(*inputs, strict=True)], id=f"{key} of {kind}")
    for kind, functions, inputs in (
        ("one", OF_ONE, [*itertools.product(DENORMALS)]),
        ("two", OF_TWO, [*itertools.product(DENORMALS, DENORMALS)]),
    )
    for key, function in functions.items()
]
_QUOTIENT = "PyTorch's vectors compute it from the quotient, which overflows"
NOT_AT_DENORMALS = {
    "fmod of two": ("value", _QUOTIENT),
    "remainder of two": ("value", _QUOTIENT),
    "ndtri of one": ("gradient", "the slope just overflows"),
    "hardsigmoid of one": ("gradient", "PyTorch's sixth is in float32"),
    "binary_cross_entropy of two": ("gradient", "PyTorch's least divisor is in float32"),
}
_ALL = "gradient infinite recorded second"
_POLES = "SciPy's are infinite at poles, where PyTorch's are large, or NaN at infinities"
_CHOSEN = "PyTorch multiplies by a mask, which spreads what is not finite; here it is chosen"
_BESSEL = "PyTorch's is half where NaN was"
_PARTS = "the gradient is a sum of parts, which infinities of both signs make NaN"
_DIVIDED = "PyTorch's second derivatives divide by what is 0 or infinite"
_NORMS = "PyTorch's second derivatives of norms are NaN at 0, and here 0 as the first"
_DISTANCES = "NaN has a sign of 0 here, as for norms"
#: What differs, by kinds, and why; by the case, or the case and the dtype.
EXCEPT = {
    "lgamma of one": ("second", _POLES),
    "digamma of one": (_ALL, _POLES),
    "polygamma of one": ("gradient recorded second value", _POLES),
    "log_ndtr of one": (_ALL, _POLES),
    "i0 of one": ("second", _BESSEL),
    **{
        f"bessel_{name} of one, float64": ("value", "PyTorch's have seven digits from 3 to 6")
        for name in ("j0", "j1", "y0", "y1")
    },
    "i1 of one": (_ALL, _BESSEL),
    "i1e of one": (_ALL, _BESSEL),
    "sinc of one": ("infinite second", _PARTS),
    "logit of one, float32": (
        "gradient infinite",
        "PyTorch loses the sign of -0 in vectors of AVX-512",
    ),
    "logit, 0.25 of one, float64": ("second", _DIVIDED),
    "logit, 0.25 of one, float32": (
        "gradient infinite second",
        "PyTorch loses NaN in vectors of AVX-512",
    ),
    "hardsigmoid of one, float64": ("gradient recorded", "PyTorch's sixth is in float32"),
    "nan_to_num of one": ("infinite", _CHOSEN),
    "prelu of two": ("second", "at 0 PyTorch's second derivative is not that of its first"),
    "binary_cross_entropy of two, float32": (_ALL, "PyTorch's least divisor is in float32"),
    "binary_cross_entropy of two, float64": (
        "gradient infinite recorded",
        "PyTorch's least divisor is in float32",
    ),
    "prod of lines": ("second", _DIVIDED),
    "nansum of lines": ("infinite", _CHOSEN),
    "nanmean of lines": ("gradient infinite recorded", _CHOSEN),
    "vector_norm 2 of lines": ("infinite second", _NORMS),
    "pairwise_distance of lines": ("infinite second", _NORMS),
    **{f"vector_norm {p} of lines": ("second", _NORMS) for p in (0.5, 1.5, 3)},
    "normalize 2 of lines": ("second", _NORMS),
    "cdist 1 of lines": ("gradient recorded", _DISTANCES),
    "cdist 2 of lines": ("second", _NORMS),
    "cdist inf of lines": ("gradient infinite recorded value", "PyTorch loses NaN in a maximum"),
    **{
        f"{name} of classes": ("second", "the softmax of what is ignored may be NaN")
        for name in OF_CLASSES
        if name.startswith("cross_entropy, none")
    },
}


def _leaf(T, values, dtype, spread):
    x = T.tensor(values, dtype=getattr(T, dtype))
    if spread:
        # PyTorch's loops over what has gaps do without its vectors, which see NaN otherwise.
        x = x.repeat_interleave(2, -1)[..., ::2]
    return x.requires_grad_()


def _derivatives(T, function, inputs, dtype, *, spread=False):
    """What is compared, by kind."""
    grad = torch.autograd.grad if T is torch else ag.sync.grad
    xs = [_leaf(T, values, dtype, spread) for values in inputs]
    y = function(T, *xs)
    found = {"value": [y]}
    if not y.requires_grad:
        return {kind: [oracle.array_of(x) for x in values] for kind, values in found.items()}
    options = {"allow_unused": True, "retain_graph": True}
    for kind, upstream in (("gradient", (1.0, 0.0)), ("infinite", (INF, NAN))):
        found[kind] = [
            g
            for value in upstream
            for g in grad(y, xs, T.full(tuple(y.shape), value, dtype=y.dtype), **options)
        ]
    ones = T.ones_like(y).requires_grad_()
    try:
        first = grad(y, xs, ones, create_graph=True, allow_unused=True)
        live = [g for g in first if g is not None and g.requires_grad]
        found["recorded"] = list(first)
        found["second"] = (
            list(grad(live, [*xs, ones], [T.ones_like(g) for g in live], allow_unused=True))
            if live
            else [None] * (len(xs) + 1)
        )
    except RuntimeError:
        pass  # There is none in PyTorch.
    shapes = [*xs, ones] * 2
    return {
        kind: [
            np.zeros(tuple(like.shape)) if value is None else oracle.array_of(value)
            for value, like in zip(
                values,
                values if kind == "value" else (xs * 2 if kind != "second" else shapes),
                strict=False,
            )
        ]
        for kind, values in found.items()
    }


def _alike(found, expected, dtype):
    near = oracle.TOLERANCES[dtype]
    with np.errstate(all="ignore"):
        return np.isclose(found, expected, rtol=near, atol=near, equal_nan=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "function", "inputs", "dtype"), CASES)
def test_what_is_not_finite_is_as_in_pytorch(name, function, inputs, dtype):
    """Values, gradients of ordinary and of infinite gradients, second derivatives.

    Where PyTorch's own loops differ either will do. What differs has to be declared.
    """
    found = _derivatives(ag, function, inputs, dtype)
    both = [_derivatives(torch, function, inputs, dtype, spread=s) for s in (False, True)]
    differ = {
        kind
        for kind, arrays in both[0].items()
        for place, expected in enumerate(arrays)
        if not np.all(
            _alike(found[kind][place], expected, dtype)
            | _alike(found[kind][place], both[1][kind][place], dtype)
        )
    }
    none = ("", "nothing is declared")
    kinds, reason = EXCEPT.get(name) or EXCEPT.get(f"{name}, {dtype}", none)
    declared = set(kinds.split())
    if reason.endswith("of AVX-512"):
        # PyTorch's other vectors may lose less.
        declared &= differ
    assert differ == declared, f"{sorted(differ)}: {reason}"


@pytest.mark.parametrize(("name", "function", "inputs"), OF_DENORMALS)
def test_denormals_are_as_in_pytorch(name, function, inputs):
    """Reciprocals of most are infinite: a gradient of 0 must not be multiplied by them."""
    expected, found = (_derivatives(T, function, inputs, "float64") for T in (torch, ag))
    differ = {
        kind
        for kind in expected.keys() & {"value", "gradient"}
        for theirs, ours in zip(expected[kind], found[kind], strict=True)
        if not np.all(_alike(ours, theirs, "float64"))
    }
    declared, reason = NOT_AT_DENORMALS.get(name, ("", "nothing is declared"))
    assert differ == {*declared.split()}, f"{sorted(differ)}: {reason}"


@pytest.mark.parametrize("pool", ["max_pool1d", "max_pool2d", "max_pool3d"])
@pytest.mark.parametrize("size", [2, 40])
def test_the_sides_of_an_image_are_no_peaks(pool, size):
    """Not even where all is minus infinity, which is also what windows reach beyond the sides."""
    shape = (1, 1, *[size] * int(pool[-2]))
    found = []
    for T in (torch, ag):
        x = T.full(shape, -INF, requires_grad=True)
        y, indices = getattr(N(T), pool)(x, 2, 2, 1, return_indices=True)
        y.sum().backward()
        found.append((indices.tolist(), x.grad.tolist()))
    assert found[0] == found[1]


def test_an_ignored_row_does_not_reach_the_loss():
    x = ag.tensor([[1.0, 2.0], [-INF, 0.5]], requires_grad=True)
    loss = N(ag).cross_entropy(x, ag.tensor([0, -100]))
    assert loss.item() == pytest.approx(math.log(1 + math.e))
    loss.backward()
    assert x.grad[1].tolist() == [0.0, 0.0]


def test_a_slope_has_a_gradient_beside_infinities():
    for T in (torch, ag):
        weight = T.tensor([0.25], requires_grad=True)
        N(T).prelu(T.tensor([INF, -1.0]), weight).sum().backward()
        assert weight.grad.tolist() == [-1.0]


def test_what_is_no_number_is_true():
    values = [complex(NAN, 0), complex(0, NAN), 1j, 0j]
    assert ag.tensor(values).bool().tolist() == torch.tensor(values).bool().tolist()


def test_the_sign_of_what_is_no_number_is_none():
    """Also where one part is infinite: its absolute value is infinity."""
    numbers = [complex(*parts) for parts in itertools.product([NAN, INF, -INF, 0.0, 1.0], repeat=2)]
    unknown = [z for z in numbers if z != z]
    for dtype in (ag.complex64, ag.complex128):
        x = ag.tensor(unknown, dtype=dtype, requires_grad=True)
        signs = ag.sgn(x)
        assert ag.isnan(ag.view_as_real(signs.detach())).all()
        x.abs().sum().backward()
        assert ag.isnan(ag.view_as_real(x.grad)).all()
        assert ag.sgn(ag.tensor([0j, 3j], dtype=dtype)).tolist() == [0j, 1j]


@pytest.mark.parametrize("name", ["multi_margin_loss", "multilabel_margin_loss"])
def test_a_margin_that_is_just_kept_has_no_gradient(name):
    for T in (torch, ag):
        x = T.tensor([[1.0, 0.0, -1.0]], requires_grad=True)
        target = T.tensor([0] if name == "multi_margin_loss" else [[0, -1, -1]])
        getattr(N(T), name)(x, target).backward()
        assert x.grad.tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize("scores", [[NAN, 1.0, 2.0], [1.0, NAN, 2.0], [NAN, NAN, NAN]])
def test_margins_of_nan_have_no_loss(scores):
    """PyTorch adds up what is greater than 0."""
    found = {torch: [], ag: []}
    for T, results in found.items():
        losses = [partial(N(T).multi_margin_loss, target=T.tensor([0]), p=p) for p in (1, 2)]
        losses.append(partial(N(T).multilabel_margin_loss, target=T.tensor([[0, -1, 0]])))
        for loss in losses:
            x = T.tensor([scores], requires_grad=True)
            out = loss(x)
            out.backward()
            results += [out.item(), *x.grad[0].tolist()]
    np.testing.assert_allclose(found[ag], found[torch], rtol=1e-6)


@pytest.mark.parametrize("alpha", [NAN, INF])
@pytest.mark.parametrize("beta", [0, 2])
@pytest.mark.parametrize("name", ["addmm", "addmv", "baddbmm", "addbmm"])
def test_a_product_of_no_terms_is_zero_whatever_its_factor_is(name, beta, alpha):
    shapes = {
        "addmm": ((2, 3), (2, 0), (0, 3)), "addmv": ((2,), (2, 0), (0,)),
        "baddbmm": ((1, 2, 3), (1, 2, 0), (1, 0, 3)), "addbmm": ((2, 3), (0, 2, 4), (0, 4, 3)),
    }[name]  # fmt: skip
    for dtype in ("float32", "float16", "complex64"):
        found = []
        for T in (torch, ag):
            parts = [T.ones(*shape, dtype=getattr(T, dtype)) for shape in shapes]
            found.append(getattr(T, name)(*parts, beta=beta, alpha=alpha))
        oracle.compare(*found)
    leaf, *parts = (ag.ones(*shape) for shape in shapes)
    out = getattr(ag, name)(leaf.requires_grad_(), *parts, beta=beta, alpha=alpha)
    out.sum().backward()
    assert set(leaf.grad.flatten().tolist()) == {beta}


@pytest.mark.parametrize("size", [3, 500])
def test_a_mask_chooses_whatever_is_masked(size):
    """Few elements are chosen, the bits of many are multiplied."""
    x = np.tile([NAN, INF, -0.0, 2.0], size)
    keep = np.tile([False, False, True, True], size)
    for dtype in (np.float16, np.float32, np.float64):
        found = masked(np, x.astype(dtype), keep)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, np.tile([0.0, 0.0, -0.0, 2.0], size))
        assert np.signbit(found).tolist() == np.tile([False, False, True, False], size).tolist()


@pytest.mark.parametrize("as_number", [True, False])
@pytest.mark.parametrize("weight", [0.0, 0.25, 0.5, 0.7, 1.0, 1.5, -2.0, 0.3 + 0.9j])
def test_lerp_computes_from_the_nearer_end(weight, as_number):
    """With weight 1 the result is `end`, also where `end - start` has rounded it away."""
    pairs = [(1e20, 1.0), (1.0, 1e20), (1.0, 3.0), (INF, 1.0), (1.0, INF), (0.1, 0.1)]
    dtype = "complex128" if isinstance(weight, complex) else "float64"
    if dtype == "complex128":
        pairs = [pair for pair in pairs if INF not in pair]
    results = []
    for T in (torch, ag):
        grad = torch.autograd.grad if T is torch else ag.sync.grad
        x, y = (
            T.tensor([pair[k] for pair in pairs], dtype=getattr(T, dtype), requires_grad=True)
            for k in (0, 1)
        )
        w = weight if as_number else T.full_like(x, weight).detach().requires_grad_()
        out = T.lerp(x, y, w)
        inputs = [x, y] if as_number else [x, y, w]
        results.append([z.detach().numpy() for z in (out, *grad(out, inputs, T.ones_like(out)))])
    for expected, found in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["det", "slogdet", "inv", "pinv", "cond", "fft", "rfft2", "hfft"])
@pytest.mark.parametrize("value", [NAN, INF])
def test_numpys_own_functions_do_not_warn(name, value):
    """They would be said to come from NumPy, which no filter of ours drops."""
    x = ag.full((3, 3), value, dtype=ag.float64, requires_grad=True)
    function = getattr(ag.linalg, name, None) or getattr(ag.fft, name)
    with warnings.catch_warnings(record=True) as found:
        warnings.filterwarnings("always", module="numpy")
        with suppress(ag.linalg.LinAlgError):
            made = function(x)
            made = made[-1] if isinstance(made, tuple) else made
            made.abs().sum().backward()
    assert not found


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("value", [NAN, INF])
def test_gradient_of_a_determinant_that_is_not_finite(value, dtype):
    """That matrix's gradient is NaN, and the pass goes on."""
    found = []
    for T in (ag, torch):
        x = T.eye(3, dtype=getattr(T, dtype)).repeat(2, 1, 1)
        x[1, 0, 1] = value
        x.requires_grad_()
        T.linalg.det(x).abs().sum().backward()
        found.append(x.grad.numpy())
    np.testing.assert_array_equal(found[0][0], np.eye(3))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(np.isnan(one), np.isnan(other))


@pytest.mark.parametrize("call", [
    lambda T: N(T).hardtanh(T.full((2,), 2.0), NAN, 1.0),
    lambda T: N(T).hardtanh(T.full((2,), -2.0), -1.0, NAN),
    lambda T: N(T).batch_norm(T.eye(2), None, None, training=True, eps=NAN),
    lambda T: N(T).batch_norm(T.eye(2), T.zeros(2), T.ones(2), eps=NAN),
])  # fmt: skip
def test_options_that_are_no_numbers_pass_where_pytorch_takes_them(call):
    assert call(ag).tolist() == pytest.approx(call(torch).numpy(), nan_ok=True)
