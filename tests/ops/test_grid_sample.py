"""Images looked at in between their elements."""

import itertools

import numpy as np
import oracle
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch

MODES = ("bilinear", "nearest", "bicubic")
PADDINGS = ("zeros", "border", "reflection")
#: On elements, between them, on the sides, beyond, twice beyond.
PLACES = [
    [[-1.0, -1.0], [1.0, 1.0], [0.0, 0.0], [-0.25, 0.75], [1.0, 3.0]],
    [[-1.75, 1.25], [5.0, -7.0], [-0.5, 0.5], [1 / 3, -1 / 3], [-2.6, 0.1]],
]


def test_values_and_derivatives_are_pytorchs():
    oracle.check("nn.functional.grid_sample", dtypes=("float64", "float32"), limit=12)


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", MODES)
def test_sides_and_kinks_are_pytorchs(mode, padding, aligned):
    image = np.random.default_rng(0).standard_normal((1, 2, 4, 3))
    results = []
    for T in (torch, ag):
        x = T.tensor(image, requires_grad=True)
        grid = T.tensor([PLACES], dtype=T.float64, requires_grad=True)
        out = T.nn.functional.grid_sample(x, grid, mode, padding, aligned)
        results.append([t.detach().numpy() for t in (out, *T.autograd.grad(out.sum(), (x, grid)))])
        name = out.grad_fn.name()
        assert name == "GridSampler2DBackward0"
    for found, expected in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_images_of_three_axes_are_pytorchs(mode, padding, aligned):
    rng = np.random.default_rng(0)
    image, places = rng.standard_normal((2, 2, 3, 4, 2)), rng.uniform(-1.5, 1.5, (2, 1, 3, 2, 3))
    results = []
    for T in (torch, ag):
        x, grid = T.tensor(image, requires_grad=True), T.tensor(places, requires_grad=True)
        out = T.nn.functional.grid_sample(x, grid, mode, padding, aligned)
        results.append([t.detach().numpy() for t in (out, *T.autograd.grad(out.sum(), (x, grid)))])
    for found, expected in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_gradcheck():
    """PyTorch has no tangents."""
    rng = np.random.default_rng(0)
    x = ag.tensor(rng.standard_normal((1, 1, 3, 3)), requires_grad=True)
    grid = ag.tensor(rng.uniform(-0.9, 0.9, (1, 2, 2, 2)), requires_grad=True)
    for mode in ("bilinear", "bicubic"):

        def sampled(x, grid, mode=mode):
            return ag.nn.functional.grid_sample(x, grid, mode, align_corners=True)

        assert ag.autograd.gradcheck(sampled, (x, grid), check_forward_ad=True)
        assert ag.autograd.gradgradcheck(sampled, (x, grid))


def test_devices_have_them_too():
    rng = np.random.default_rng(0)
    x, theta = rng.standard_normal((1, 2, 3, 3)), rng.standard_normal((1, 2, 3))
    results = []
    for place in ("cpu", "sim:0"):
        image, maps = (ag.tensor(t).to(place).requires_grad_() for t in (x, theta))
        grid = ag.nn.functional.affine_grid(maps, (1, 2, 4, 4), align_corners=True)
        out = ag.nn.functional.grid_sample(image, grid, "bicubic", "reflection", True)
        assert str(out.device) == place
        results.append(
            [t.detach().cpu().numpy() for t in (out, *ag.grad(out.sum(), (image, maps)))]
        )
    for found, expected in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:Since version 1.3.0")
@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("image", [(3, 4), (1, 2), (2, 3, 4)])
def test_affine_grids_are_pytorchs(image, aligned):
    axes = len(image)
    maps = np.random.default_rng(0).standard_normal((2, axes, axes + 1))
    results = []
    for T in (torch, ag):
        theta = T.tensor(maps, requires_grad=True)
        out = T.nn.functional.affine_grid(theta, (2, 5, *image), aligned)
        (g,) = T.autograd.grad((out * out).sum(), theta)
        results.append((out.detach().numpy(), g.numpy(), out.grad_fn.name()))
    for found, expected in zip(results[1][:2], results[0][:2], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    assert results[1][2] == results[0][2]


def _sampled(T, *args, x=(1, 1, 4, 4), grid=(1, 2, 2, 2), dtypes=("float32", "float32"), **more):
    tensors = [T.ones(s, dtype=getattr(T, d)) for s, d in zip((x, grid), dtypes, strict=True)]
    return T.nn.functional.grid_sample(*tensors, *args, align_corners=True, **more)


def _grid(T, *size, shape=(1, 2, 3), dtype="float32"):
    return T.nn.functional.affine_grid(T.ones(shape, dtype=getattr(T, dtype)), size, True)


#: Sizes of images, what they are multiplied by, and whether corners stay.
RESIZED = [
    ((6, 7), (1.1, 1.05), False), ((6, 4), (2.2, 2.1), False), ((5, 6), (0.5, 1.1), False),
    ((5, 8), (0.45, 2.5), True), ((9, 8), (0.3, 0.6), False), ((9, 8), (0.6, 0.3), True),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_images_of_other_sizes_are_pytorchs(mode, antialias, dtype):
    """Bytes are computed with weights of few bits, and rounded after each axis."""
    if antialias and mode == "nearest":
        oracle.check_refused(
            lambda T: T.nn.functional.interpolate(T.ones(1, 1, 2, 2), (3, 3), antialias=True)
        )
        return
    rng = np.random.default_rng(0)
    for image, factors, corners in RESIZED:
        values = rng.integers(0, 256, (2, 3, *image)).astype(dtype)
        options = {"mode": mode, "antialias": antialias}
        if mode != "nearest":
            options["align_corners"] = corners
        leaves, results = [], []
        for T in (torch, ag):
            x = T.tensor(values).requires_grad_(dtype == "float64")
            leaves.append(x)
            results.append(T.nn.functional.interpolate(x, scale_factor=factors, **options))
        oracle.compare(*results, 1e-6)
        still = any(n == m for n, m in zip(image, results[0].shape[2:], strict=True))
        # There PyTorch's cubic gradient, and that of all with antialias, is another function's.
        if dtype == "float64" and not (still and mode != "nearest"):
            oracle.compare_derivatives(*results, [tuple(leaves)], 1, 1e-6)


@pytest.mark.parametrize(("mode", "axes"), [("linear", 1), ("bilinear", 2), ("trilinear", 3)])
def test_a_size_that_stays_moves_nothing(mode, axes):
    """Whatever the factor was."""
    shape = (1, 1, *(6, 5, 4)[:axes])
    for T in (torch, ag):
        x = T.arange(float(np.prod(shape))).reshape(shape)
        out = T.nn.functional.interpolate(x, scale_factor=1.1, mode=mode)
        assert out.tolist() == x.tolist()


def test_gradients_of_images_that_are_made_small():
    x = ag.tensor(np.random.default_rng(0).standard_normal((1, 1, 5, 4)), requires_grad=True)
    for mode in ("bilinear", "bicubic"):

        def made_small(x, mode=mode):
            return ag.nn.functional.interpolate(x, (2, 3), mode=mode, antialias=True)

        assert ag.autograd.gradcheck(made_small, x, check_forward_ad=True)


def test_grids_of_maps_take_a_second_pass():
    for T, size in itertools.product((torch, ag), ((1, 1, 2, 2), (1, 1, 2, 2, 2))):
        axes = len(size) - 2
        theta = T.ones(1, axes, axes + 1, requires_grad=True)
        grid = T.nn.functional.affine_grid(theta, size, True)
        for _ in range(2):
            grid.sum().backward()


BAD = {
    "mode": lambda T: _sampled(T, "a"),
    "padding": lambda T: _sampled(T, padding_mode="a"),
    "three axes": lambda T: _sampled(T, x=(1, 4, 4)),
    "a grid of three axes": lambda T: _sampled(T, grid=(2, 2, 2)),
    "two dtypes": lambda T: _sampled(T, dtypes=("float32", "float64")),
    "two batches": lambda T: _sampled(T, grid=(2, 2, 2, 2)),
    "places of three numbers": lambda T: _sampled(T, grid=(1, 2, 2, 3)),
    "a grid of five axes": lambda T: _sampled(T, grid=(1, 2, 2, 2, 2)),
    "integers": lambda T: _sampled(T, dtypes=("int64", "int64")),
    "an empty image": lambda T: _sampled(T, x=(1, 1, 0, 4)),
    "bicubic in three axes": lambda T: _sampled(
        T, "bicubic", x=(1, 1, 4, 4, 4), grid=(1, 2, 2, 2, 3)
    ),
    "a size of three": lambda T: _grid(T, 1, 4, 4),
    "a size of five": lambda T: _grid(T, 1, 1, 4, 4, 4),
    "maps of integers": lambda T: _grid(T, 1, 1, 4, 4, dtype="int64"),
    "an empty size": lambda T: _grid(T, 1, 1, 0, 4),
    "one map": lambda T: _grid(T, 1, 1, 4, 4, shape=(2, 3)),
    "too few maps": lambda T: _grid(T, 2, 1, 4, 4),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_pytorch_refuses_is_refused(name):
    oracle.check_refused(BAD[name])


def test_the_default_is_warned_of():
    for T in (torch, ag):
        with pytest.warns(UserWarning, match="align_corners"):
            T.nn.functional.grid_sample(T.ones(1, 1, 2, 2), T.zeros(1, 1, 1, 2))
        with pytest.warns(UserWarning, match="align_corners"):
            T.nn.functional.affine_grid(T.ones(1, 2, 3), (1, 1, 2, 2))
