"""Pooling of volumes, and peaks put back to where they were."""

import numpy as np
import oracle
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch

NAMES = [
    "max_pool3d", "avg_pool3d", "adaptive_avg_pool3d", "adaptive_max_pool3d", "max_unpool1d",
    "max_unpool2d", "max_unpool3d",
]  # fmt: skip


test_samples = oracle.as_in_pytorch(
    [f"nn.functional.{name}" for name in NAMES], tangents=4, dtypes=("float64", "int64"), limit=8
)


def _windows(T, x, name):
    F = T.nn.functional
    return {
        "max": lambda: F.max_pool3d(x, 2, 1, 1, return_indices=True),
        "max, dilated": lambda: F.max_pool3d(x, (2, 1, 2), 2, 0, 2, True, return_indices=True),
        "avg": lambda: (F.avg_pool3d(x, 3, 2, 1, True, False),),
        "avg, by 5": lambda: (F.avg_pool3d(x, 2, divisor_override=5),),
        "adaptive max": lambda: F.adaptive_max_pool3d(x, (2, 3, None), return_indices=True),
        "adaptive avg": lambda: (F.adaptive_avg_pool3d(x, (2, None, 3)),),
        "one": lambda: (F.adaptive_avg_pool3d(x, 1),),
    }[name]()


@pytest.mark.parametrize(
    "name", ["max", "max, dilated", "avg", "avg, by 5", "adaptive max", "adaptive avg", "one"]
)
def test_ties_indices_and_sides_are_pytorchs(name):
    """The first of several greatest elements has the gradient."""
    array = np.random.default_rng(0).integers(0, 3, (2, 2, 5, 4, 4)).astype("float64")
    results = []
    for T in (torch, ag):
        x = T.tensor(array, requires_grad=True)
        out = _windows(T, x, name)
        (g,) = T.autograd.grad((out[0] * out[0]).sum(), x)
        results.append([t.detach().numpy() for t in (*out, g)])
        results[-1].append(out[0].grad_fn.name())
    assert results[0].pop() == results[1].pop()
    for found, expected in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("side", [8, 100, 1000])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_means_of_whole_images_have_all_digits(side, dtype):
    """Sums one by one would lose three digits of a large image."""
    x = ag.full((3, 16_000 // side**2 + 1, side, side), 0.1, dtype=getattr(ag, dtype))
    means = ag.nn.functional.adaptive_avg_pool2d(x, 1).numpy()
    np.testing.assert_allclose(means, x[0, 0, 0, 0].item(), rtol=3e-7, atol=0)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int64"])
@pytest.mark.parametrize("device", ["cpu", "sim:0"])
def test_whole_images_of_an_empty_batch_have_no_means(dtype, device):
    x = ag.zeros(0, 3, 4, 5, dtype=getattr(ag, dtype), device=device)
    assert ag.nn.functional.avg_pool2d(x, (4, 5)).shape == (0, 3, 1, 1)


def test_pooled_volumes_may_change_in_place():
    x = ag.tensor(np.arange(16.0).reshape(1, 2, 2, 2, 2) - 8, requires_grad=True)
    y = ag.nn.functional.max_pool3d(x * 2, 2)
    ag.nn.functional.relu_(y.sub_(1)).sum().backward()
    assert x.grad.numpy().ravel().nonzero()[0].tolist() == [15]


def test_changed_indices_are_noticed():
    x = ag.ones(1, 1, 4, requires_grad=True)
    peaks, indices = ag.nn.functional.max_pool1d(x, 2, return_indices=True)
    y = ag.nn.functional.max_unpool1d(peaks, indices, 2)
    indices.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def _unpool(T, index, x=(1, 1, 2, 2), **more):
    return T.nn.functional.max_unpool2d(T.ones(x), T.tensor(index), 2, **more)


BAD = {
    "beyond": lambda T: _unpool(T, [[[[0, 0], [20, 1]]]]),
    "before": lambda T: _unpool(T, [[[[0, 0], [-1, 1]]]]),
    "shapes": lambda T: _unpool(T, [[[[0, 0]]]]),
    "floats": lambda T: _unpool(T, [[[[0.0, 0], [0, 1]]]]),
    "far too large": lambda T: _unpool(T, [[[[0, 0], [0, 1]]]], output_size=(7, 7)),
    "one length": lambda T: _unpool(T, [[[[0, 0], [0, 1]]]], output_size=(5,)),
    "no channels": lambda T: _unpool(T, [[[[0, 0], [0, 1]]]], x=(2, 2)),
}


@pytest.mark.parametrize("name", BAD)
def test_what_pytorch_refuses_is_refused(name):
    oracle.check_refused(BAD[name])


# -- windows at random places, and norms ----------------------------------------------------------

PEAKS = np.random.default_rng(0).standard_normal((2, 3, 7, 6, 5))
DRAWN = np.random.default_rng(1).random((2, 3, 3))


@pytest.mark.parametrize(
    ("ndim", "kernel", "size"),
    [
        (2, 2, {"output_ratio": (0.5, 0.7)}),
        (2, (3, 1), {"output_size": (4, 6)}),
        (2, 2, {"output_size": 1}),
        (2, 2, {"output_size": (0, 3)}),
        (3, 2, {"output_size": (5, 3, 2)}),
        (3, (1, 2, 3), {"output_ratio": (0.3, 0.5, 0.4)}),
    ],
)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_windows_at_given_places_are_pytorchs(ndim, kernel, size, dtype):
    for array in (
        PEAKS[..., 0] if ndim == 2 else PEAKS,
        PEAKS[0, ..., 0] if ndim == 2 else PEAKS[0],
    ):
        results = []
        for T in (torch, ag):
            x = T.tensor(array.astype(dtype), requires_grad=True)
            drawn = T.tensor(DRAWN[..., :ndim].astype(dtype))
            pool = getattr(T.nn.functional, f"fractional_max_pool{ndim}d")
            out, places = pool(x, kernel, **size, return_indices=True, _random_samples=drawn)
            (g,) = T.autograd.grad((out * out).sum(), x)
            results.append([t.detach().numpy() for t in (out, places, g)])
            results[-1].append(np.array(out.grad_fn.name()))
        for known, found in zip(*results, strict=True):
            np.testing.assert_array_equal(known, found)


@pytest.mark.parametrize("ndim", [2, 3])
def test_windows_at_random_places_are_drawn_anew(ndim):
    x = ag.tensor(PEAKS[..., 0] if ndim == 2 else PEAKS)
    pool = getattr(ag.nn.functional, f"fractional_max_pool{ndim}d")
    drawn = [pool(x, 2, 3).tolist() for _ in range(4)]
    assert any(out != drawn[0] for out in drawn)
    for randomness, differ in (("different", True), ("same", False)):
        double = ag.stack([x] * 8)
        one, *others = ag.func.vmap(lambda x: pool(x, 2, 3), randomness=randomness)(double).tolist()
        assert any(other != one for other in others) == differ


@pytest.mark.parametrize(
    "call",
    [
        lambda T, x: T.nn.functional.fractional_max_pool2d(x, 2),
        lambda T, x: T.nn.functional.fractional_max_pool2d(x, 2, output_ratio=(0.5,) * 3),
        lambda T, x: T.nn.functional.fractional_max_pool2d(x, 2, (3, 3, 3)),
        lambda T, x: T.nn.functional.fractional_max_pool2d(x, (2, 2, 2), 3),
        lambda T, x: T.nn.functional.fractional_max_pool2d(x, 8, 3),
        lambda T, x: T.nn.functional.fractional_max_pool2d(x, 2, -1),
        lambda T, x: T.nn.functional.fractional_max_pool2d(x[None], 2, 3),
        lambda T, x: T.nn.functional.fractional_max_pool2d(x[:, :0], 2, 3),
        lambda T, x: T.nn.functional.fractional_max_pool2d(x.to(T.int64), 2, 3),
        lambda T, x: T.nn.functional.fractional_max_pool2d(x.to(T.complex128), 2, 3),
        *[
            lambda T, x, more=more: T.nn.functional.fractional_max_pool2d(
                x, 2, 3, _random_samples=T.tensor(more)
            )
            for more in (
                DRAWN,
                DRAWN[:1, :, :2],
                DRAWN[:, :2, :2],
                DRAWN[..., :2].astype("float32"),
            )
        ],
        lambda T, x: T.nn.FractionalMaxPool2d(2),
        lambda T, x: T.nn.FractionalMaxPool2d(2, 3, 0.5),
        lambda T, x: T.nn.FractionalMaxPool3d(0, 3),
        lambda T, x: T.nn.FractionalMaxPool3d(2, output_ratio=(0.5, 0.5, 1.0)),
    ],
)
def test_windows_that_can_not_be_drawn_are_refused(call):
    with pytest.raises((RuntimeError, ValueError)) as caught:
        call(torch, torch.tensor(PEAKS[..., 0]))
    with pytest.raises(caught.type):
        call(ag, ag.tensor(PEAKS[..., 0]))


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("power", [1.5, 2, 3.0, float("inf"), float("-inf")])
def test_norms_of_windows_are_pytorchs(ndim, power):
    array = (
        abs(PEAKS[(..., *(0,) * (3 - ndim))]) if power == 1.5 else PEAKS[(..., *(0,) * (3 - ndim))]
    )
    for options in ({}, {"stride": 3, "ceil_mode": True}):
        results = []
        for T in (torch, ag):
            x = T.tensor(array, requires_grad=True)
            out = getattr(T.nn.functional, f"lp_pool{ndim}d")(x, power, 2, **options)
            (g,) = T.autograd.grad((out * out).sum(), x)
            results.append([t.detach().numpy() for t in (out, g)])
        for known, found in zip(*results, strict=True):
            np.testing.assert_allclose(known, found, rtol=1e-12)


def test_windows_of_different_sizes_take_one_node_for_each_axis():
    """Each window with a node of its own would make a gradient of the whole image."""
    x = ag.ones(2, 3, 40, 99, requires_grad=True)
    nodes, found = [ag.nn.functional.adaptive_avg_pool2d(x, (7, 20)).grad_fn], set()
    while nodes:
        node = nodes.pop()
        found.add(node)
        nodes += [child for child, _ in node.next_functions if child is not None]
    assert len(found) == 3  # one more for the leaf
