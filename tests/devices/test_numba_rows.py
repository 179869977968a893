"""Kernels of rows: the same numbers as NumPy's, and as exact as those."""

import asyncio
from functools import partial

import numpy as np
import pytest
from test_numba_kernels import compiled, plain

import asyncgrad as ag
from asyncgrad.backends import numba as switch

#: Numba compiles for most of a minute, unless it has kept what it compiled.
pytestmark = pytest.mark.slow

F = ag.nn.functional
DTYPES = [ag.float32, ag.float64]


def results(function, *arrays, dtype):
    """A function's result, and its gradients by all arrays."""
    leaves = [ag.tensor(array, dtype=dtype, requires_grad=True) for array in arrays]
    y = function(*leaves)
    y.backward(ag.cos(ag.arange(y.numel(), dtype=dtype)).reshape(y.shape))
    return [y.detach().numpy(), *(leaf.grad.numpy() for leaf in leaves)]


def compare(function, *arrays, dtype, ulps=50, most=None):
    """With Numba the errors are no larger than some ulps, or some times as large as NumPy's."""
    with plain():
        true = results(function, *arrays, dtype=ag.float64)
        expected = results(function, *arrays, dtype=dtype)
    with compiled():
        found = results(function, *arrays, dtype=dtype)
    for one, other, exact in zip(found, expected, true, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        np.testing.assert_array_equal(np.isnan(one), np.isnan(other))
        size = np.nanmax(np.abs(exact), initial=1)
        error = np.nanmax(np.abs(one - exact), initial=0)
        usual = np.nanmax(np.abs(other - exact), initial=0)
        assert error <= max(ulps * np.finfo(one.dtype).eps * size, (most or 0) * usual)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


MASKS = {
    "none": lambda q, k: None,
    "alike": lambda q, k: np.arange(q * k).reshape(q, k) % 3 > 0,
    "added": lambda q, k: normal(q, k),
    "of keys": lambda q, k: np.arange(k)[None] % 4 > 0,
    "of queries": lambda q, k: np.arange(q)[:, None] % 4 > 0,
    "of matrices": lambda q, k: np.arange(3 * q * k).reshape(3, 1, q, k) % 5 > 0,
    "of matrices and keys": lambda q, k: np.arange(3 * k).reshape(3, 1, 1, k) % 5 > 0,
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", [*MASKS, "causal"])
@pytest.mark.parametrize(("queries", "keys"), [(5, 7), (70, 70), (300, 260)])
def test_attention(queries, keys, kind, dtype):
    causal = kind == "causal"
    kind = "none" if causal else kind
    mask = MASKS[kind](queries, keys)
    if mask is not None:
        mask = ag.tensor(mask, dtype=ag.bool if mask.dtype == bool else dtype)
    arrays = [normal(3, 2, n, 8, seed=i) for i, n in enumerate((queries, keys, keys))]

    def attention(q, k, v):
        given = mask if mask is None or mask.dtype == ag.bool else mask.to(q.dtype)
        return F.scaled_dot_product_attention(q, k, v, given, is_causal=causal)

    compare(attention, *arrays, dtype=dtype, most=2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("batch", "length"), [(2, 5), (9, 70), (1, 300)])
def test_attention_of_heads_within_rows(batch, length, causal):
    """They are neither copied before nor after."""

    def attention(x):
        q, k, v = x.reshape(batch, length, 3, 4, 8).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)
        assert y.is_contiguous() or length == 300 or not switch.is_enabled()
        return y.reshape(batch, length, 32)

    compare(attention, normal(batch, length, 96), dtype=ag.float32, most=2)


def test_attention_of_matrices_in_another_order():
    def attention(x):
        q, k, v = x.reshape(3, 4, 5, 6, 8).transpose(1, 2)
        return F.scaled_dot_product_attention(q, k, v)

    compare(attention, normal(3, 4, 5, 48), dtype=ag.float32, most=2)


def test_attention_of_large_scores():
    """Where one share is nearly 1 the rest is not lost in the rounding of the scores."""
    q, k, v = (normal(20, 8, 8, seed=i) * 7 for i in range(3))
    v += 100
    compare(F.scaled_dot_product_attention, q, k, v, dtype=ag.float32, ulps=0, most=3)


def test_attention_to_keys_that_are_not_finite():
    """Masked keys don't matter, whatever they hold."""
    q, k, v = (normal(1, 4, 3, seed=i) for i in range(3))
    k[0, 3], k[0, 2, 0] = np.nan, np.inf
    compare(
        lambda *x: F.scaled_dot_product_attention(*x, is_causal=True), q, k, v, dtype=ag.float32
    )


ROWS = [(1, 1), (5, 3), (33, 64), (3, 2000), (60000, 16)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", ROWS, ids=str)
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_norms(name, shape, dtype):
    """With weights, without and without a bias; also the gradients by weight and bias."""
    x, weight, bias = normal(*shape) * 2 + 3, normal(shape[1], seed=1), normal(shape[1], seed=2)
    given = shape[1:]
    norm = getattr(F, name)
    # Sums of many rows nearly cancel.
    limits = {"dtype": dtype, "ulps": 50 if shape[0] < 1000 else 2000, "most": 4}
    compare(lambda x: norm(x, given), x, **limits)
    compare(lambda x, w: norm(x, given, w), x, weight, **limits)
    if name == "layer_norm":
        compare(lambda *both: norm(both[0], given, *both[1:]), x, weight, bias, **limits)


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_norms_of_several_axes_and_of_some_gradients(name):
    x, weight = normal(3, 4, 5, 6), normal(5, 6, seed=1)
    norm = getattr(F, name)
    compare(lambda x, w: norm(x, (5, 6), w), x, weight, dtype=ag.float32)
    compare(lambda x: norm(x, (5, 6), ag.tensor(weight, dtype=x.dtype)), x, dtype=ag.float32)
    compare(lambda w: norm(ag.tensor(x, dtype=w.dtype), (5, 6), w), weight, dtype=ag.float32)


def test_norms_of_rows_that_are_not_finite():
    """A row that holds an infinity or NaN leaves the others as they are."""
    x = normal(4, 6)
    x[0, 1], x[1, 2], x[2, 3] = np.inf, np.nan, 1e30
    for name in "layer_norm", "rms_norm":
        norm = partial(getattr(F, name), normalized_shape=(6,))
        found = []
        for library in plain, compiled:
            with library():
                found.append(results(norm, x, dtype=ag.float64))
        for one, other in zip(*found, strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-12)


SOFTMAXES = {"softmax": F.softmax, "log_softmax": F.log_softmax}
AXES = [((7,), 0), ((5, 9), 0), ((5, 3), 0), ((4, 21, 500), 1), ((2, 3, 4, 5), 1), ((2, 700), 1)]
AXES += [((300000, 3), 1), ((1000, 900), 0)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "dim"), AXES, ids=str)
@pytest.mark.parametrize("name", SOFTMAXES)
def test_softmax_along_all_axes(name, shape, dim, dtype):
    compare(lambda x: SOFTMAXES[name](x, dim), normal(*shape) * 3, dtype=dtype, most=4)


@pytest.mark.parametrize("dim", [0, 1])
def test_log_softmax_of_large_numbers(dim):
    """They are not rounded with the logarithm of the sum."""
    x = np.round(normal(40, 30) * 8) / 8 + 1e5
    compare(partial(F.log_softmax, dim=dim), x, dtype=ag.float32, ulps=8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", SOFTMAXES)
def test_softmax_of_edges_side_by_side(name, dtype):
    big = np.finfo(dtype).max
    values = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, big, -big, 1e-40, 88.7, -104, 5.0]
    lines = np.array([[a, b, c] for a in values for b in values for c in values], dtype)
    found = []
    for library in plain, compiled:
        for given, dim in (lines, 1), (lines.T.copy(), 0):
            with library():
                function = partial(SOFTMAXES[name], dim=dim)
                y, g = results(function, given, dtype=ag.tensor(given).dtype)
            found.append((y, g) if dim else (y.T, g))
    for y, _ in found:
        np.testing.assert_allclose(y, found[0][0], rtol=1e-6, atol=1e-37)
    for first, second in (0, 2), (1, 3):
        np.testing.assert_allclose(found[second][1], found[first][1], rtol=1e-5, atol=1e-6)


LOSSES = {
    "mean": {},
    "sum": {"reduction": "sum"},
    "of each": {"reduction": "none"},
    "ignored": {"ignore_index": 1},
    "smoothed": {"label_smoothing": 0.1},
    "weighted": {"weight": True},
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize(
    "shape", [(3,), (1, 5), (70, 5), (4, 5, 6, 7), (3, 5, 400), (60000, 16)], ids=str
)
def test_cross_entropy(shape, kind, dtype):
    classes = shape[0] if len(shape) == 1 else shape[1]
    target = np.arange(np.prod(shape) // classes).reshape(
        (*shape[:1], *shape[2:]) if shape[1:] else ()
    )
    labels = ag.tensor(target % classes)
    options = dict(LOSSES[kind])
    if "weight" in options:
        options["weight"] = np.arange(classes) + 0.5

    def loss(x):
        given = {k: ag.tensor(v, dtype=x.dtype) if k == "weight" else v for k, v in options.items()}
        return F.cross_entropy(x, labels, **given)

    compare(loss, normal(*shape) * 4, dtype=dtype, most=4)


LARGE = {
    "layer_norm": lambda x, w: F.layer_norm(x, x.shape[1:], w, w),
    "rms_norm": lambda x, w: F.rms_norm(x, x.shape[1:], w),
    "softmax": lambda x, w: F.softmax(x * w, 1),
    "softmax of another axis": lambda x, w: F.softmax((x * w).reshape(5, -1, 256), 1),
    "loss": lambda x, w: F.mse_loss(x * w, x.detach()),
    "cross_entropy": lambda x, w: F.cross_entropy(x * w, ag.arange(len(x)) % x.shape[1]),
    "attention": lambda x, w: F.scaled_dot_product_attention(
        *[(x * w).reshape(4, -1, 256, 64)] * 3
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_the_same_bits_in_threads(name):
    """Pieces are cut by shape alone, whoever computes them."""
    x, weight = normal(5120, 256), normal(256, seed=1)

    def leaves():
        return [ag.tensor(v, dtype=ag.float32, requires_grad=True) for v in (x, weight)]

    def bits(y, given):
        return [part.detach().numpy().tobytes() for part in (y, *(leaf.grad for leaf in given))]

    async def main():
        # An engine is running then, and BLAS computes with one thread.
        await ag.offload(int)
        with ag.blocking():
            given = leaves()
            y = LARGE[name](*given)
            (y * y).sum().backward()
            expected = bits(y, given)
        given = leaves()
        y = await ag.offload(LARGE[name], *given)
        await (y * y).sum().backward()
        assert bits(y, given) == expected

    with compiled():
        asyncio.run(main())
