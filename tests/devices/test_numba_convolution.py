"""Convolutions compiled by Numba: BLAS' and PyTorch's numbers, however the kernel moves."""

import random

import numpy as np
import pytest
from test_numba_kernels import compiled as enabled
from test_numba_kernels import plain

import asyncgrad as ag
from asyncgrad.devices import pieces
from asyncgrad.devices.plain_numpy import COMPILED

pytest.importorskip("numba")
#: Numba compiles for most of a minute, unless it has kept what it compiled.
pytestmark = pytest.mark.slow
F = ag.nn.functional
FUNCTIONS = (F.conv1d, F.conv2d, F.conv3d)
#: Images, channels, channels of the output, lengths, kernel, stride, padding, dilation.
CASES = (
    (3, 1, 16, (8, 8), (3, 3), 1, 1, 1),
    (4, 16, 16, (8, 8), (3, 3), 1, 1, 1),
    (4, 16, 32, (8, 8), (3, 3), 2, 1, 1),
    (4, 16, 32, (8, 8), (1, 1), 2, 0, 1),
    (6, 5, 7, (9, 4), (3, 2), (2, 3), (0, 2), (1, 2)),
    (5, 3, 50, (7, 6), (4, 3), (3, 1), (3, 0), (1, 2)),
    (2, 40, 3, (11, 13), (1, 5), 1, 2, 2),
    (1, 8, 33, (30, 31), (3, 3), 1, 0, 1),
    (7, 6, 24, (2, 2), (2, 2), 1, 1, 1),
    (8, 20, 20, (1, 1), (1, 1), 1, 0, 1),
    (3, 4, 18, (3, 3), (2, 2), 4, 0, 1),
    (4, 6, 17, (50,), (5,), 2, 3, 2),
    (2, 3, 17, (5, 6, 7), (2, 3, 2), (1, 2, 2), (1, 0, 1), (2, 1, 1)),
)


def _arrays(case, dtype):
    batch, channels, outs, image, kernel, *_ = case
    made = np.random.default_rng(0)
    x = made.standard_normal((batch, channels, *image)).astype(dtype)
    weight = made.standard_normal((outs, channels, *kernel)).astype(dtype)
    return x, weight, made.standard_normal(outs).astype(dtype)


def _results(library, functional, case, dtype):
    """The output and the three gradients in one of both libraries."""
    *_, stride, padding, dilation = case
    given = [library.from_numpy(array.copy()).requires_grad_() for array in _arrays(case, dtype)]
    convolve = getattr(functional, f"conv{len(case[3])}d")
    out = convolve(*given, stride, padding, dilation)
    slopes = np.cos(np.arange(out.numel())).astype(dtype).reshape(out.shape)
    out.backward(library.from_numpy(slopes))
    return [t.detach().numpy() for t in (out, *(g.grad for g in given))]


def _close(found, wanted, dtype):
    eps = np.finfo(dtype).eps
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        assert np.abs(one - other).max() <= 50 * eps * max(1, np.abs(other).max())


@pytest.fixture
def compiled():
    """Whether kernels were on before or not, they are now."""
    with enabled():
        yield


def _plain(call, *arguments):
    """What NumPy computes."""
    with plain():
        return call(*arguments)


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_same_numbers_as_with_blas(case, dtype, compiled):
    found = _results(ag, F, case, dtype)
    _close(found, _plain(_results, ag, F, case, dtype), dtype)


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_same_numbers_as_in_pytorch(case, dtype, compiled):
    torch = pytest.importorskip("torch")
    _close(_results(ag, F, case, dtype), _results(torch, torch.nn.functional, case, dtype), dtype)


def test_kernels_that_move_in_any_way(compiled):
    """Tables of offsets are made for each way, and may read what belongs to other images."""
    chosen = random.Random(0)
    for _ in range(150):
        axes = chosen.choice((1, 2, 2, 3))
        kernel, stride, dilation, padding = (
            tuple(chosen.randint(low, high) for _ in range(axes))
            for low, high in ((1, 4), (1, 3), (1, 3), (0, 3))
        )
        image = tuple(
            chosen.randint(d * (k - 1) + 1, 13) for k, d in zip(kernel, dilation, strict=True)
        )
        batch, channels = chosen.randint(1, 9), chosen.randint(1, 20)
        outs = chosen.choice((2, 3, 8, 16, 17, 24, 32, 33, 50))
        case = (batch, channels, outs, image, kernel, stride, padding, dilation)
        dtype = chosen.choice("fd")
        found = _results(ag, F, case, dtype)
        _close(found, _plain(_results, ag, F, case, dtype), dtype)


def test_the_kernels_are_used(compiled, monkeypatch):
    """The tests above would pass, too, if BLAS computed everything."""
    called = []
    for name in ("convolution", "convolution_input", "convolution_weight"):
        kernel = COMPILED[name]

        def spied(*arguments, name=name, kernel=kernel):
            made = kernel(*arguments)
            called.append((name, made is not NotImplemented))
            return made

        monkeypatch.setitem(COMPILED, name, spied)
    _results(ag, F, CASES[1], "f")
    assert sorted(called) == [
        ("convolution", True), ("convolution_input", True), ("convolution_weight", True)
    ]  # fmt: skip


def test_what_has_no_kernel_is_computed_by_blas(compiled):
    x, weight = ag.randn(4, 6, 8, 8), ag.randn(6, 3, 3, 3)
    for call in (
        lambda: F.conv2d(x, weight, groups=2),
        lambda: F.conv2d(x.half(), ag.ones(4, 6, 3, 3).half()),
        lambda: F.conv2d(x, ag.ones(1, 6, 3, 3)),
        lambda: F.conv2d(x[:0], ag.ones(4, 6, 3, 3)),
        lambda: F.conv2d(x[:, :0], ag.ones(4, 0, 3, 3)),
        lambda: F.conv2d(x.to(ag.complex64), ag.ones(4, 6, 3, 3, dtype=ag.complex64)),
    ):
        np.testing.assert_array_equal(call().numpy(), _plain(call).numpy())


def test_arrays_in_any_order(compiled):
    x, weight = ag.randn(8, 8, 6, 4), ag.randn(3, 3, 6, 17)
    call = lambda: F.conv2d(x.permute(3, 2, 0, 1), weight.permute(3, 2, 0, 1))  # noqa: E731
    _close([call().numpy()], [_plain(call).numpy()], "f")


def test_gradients_are_in_order(compiled):
    """Other kernels take only contiguous arrays; the sums are laid out otherwise."""
    for outs in 16, 20, 40:
        weight = ag.randn(outs, 4, 3, 3, requires_grad=True)
        x = ag.randn(3, 4, 8, 8, requires_grad=True)
        F.conv2d(x, weight).sum().backward()
        assert weight.grad.is_contiguous()
        assert x.grad.is_contiguous()


@pytest.mark.parametrize("batch", [64, 127, 2003])
def test_groups_of_small_images_are_small(batch, compiled):
    """A batch whose size is a prime number is not one group: its tables would be large."""
    from asyncgrad.devices.host_kernels.convolution import _grouped

    for area in 1, 4, 16, 49, 64, 2000:
        group = _grouped(batch, area)
        assert batch % group == 0
        assert group == 1 or group * area <= 1024
    assert _grouped(64, 16) == 4


def test_nan_stays_where_it_is(compiled):
    """Places that are computed besides, for whole vectors, reach no result."""
    x, weight = np.zeros((2, 3, 6, 6), "f"), np.ones((18, 3, 3, 3), "f")
    x[1, 2, 5, 5] = np.nan
    weight[17] = np.inf
    out = F.conv2d(ag.from_numpy(x), ag.from_numpy(weight), padding=1).numpy()
    assert np.isnan(out[:, 17]).all()
    wanted = np.zeros((2, 17, 6, 6), bool)
    wanted[1, :, 4:, 4:] = True
    np.testing.assert_array_equal(np.isnan(out[:, :17]), wanted)


@pytest.mark.parametrize("case", [CASES[4], CASES[5], CASES[8]], ids=str)
def test_first_and_second_derivatives(case, compiled):
    *_, stride, padding, dilation = case
    given = [ag.from_numpy(array[:2]).requires_grad_() for array in _arrays(case, "d")[:2]]
    call = lambda x, w: F.conv2d(x[:, :2], w[:, :2], None, stride, padding, dilation)  # noqa: E731
    assert ag.autograd.gradcheck(call, given)
    assert ag.autograd.gradgradcheck(call, given)


class Lender:
    """Lends its only thread at once."""

    def lend(self, job, most):
        job()
        return 1

    def most_urgent(self):
        return None


@pytest.mark.parametrize(
    "case",
    [
        (64, 16, 16, (8, 8), (3, 3), 1, 1, 1),
        (1, 48, 80, (28, 28), (3, 3), 1, 1, 1),
        (6, 32, 72, (14, 14), (3, 3), 2, 1, 1),
    ],
    ids=str,
)
def test_pieces_have_the_same_bits(case, compiled, monkeypatch):
    """Several threads share images, or channels where images are few."""
    from asyncgrad.devices.host_kernels import convolution

    monkeypatch.setattr(convolution, "_PIECE", 1 << 18)
    convolution._pieces.cache_clear()
    given = []
    share = convolution.in_pieces
    monkeypatch.setattr(
        convolution, "in_pieces", lambda call, cut: given.append(len(cut)) or share(call, cut)
    )
    monkeypatch.setattr(pieces.here, "lender", None)
    alone = _results(ag, F, case, "f")
    assert not given
    monkeypatch.setattr(pieces.here, "lender", Lender())
    monkeypatch.setattr(pieces, "threads", 2)
    shared = _results(ag, F, case, "f")
    convolution._pieces.cache_clear()
    assert len(given) == 3
    assert min(given) > 1
    for one, other in zip(alone, shared, strict=True):
        np.testing.assert_array_equal(one, other)


def test_networks_replay_the_same_bits(compiled):
    ag.manual_seed(0)
    model = ag.nn.Sequential(
        ag.nn.Conv2d(3, 16, 3, padding=1), ag.nn.ReLU(), ag.nn.Conv2d(16, 32, 3, 2, padding=1)
    )
    x = ag.randn(8, 3, 9, 9)

    def step(x):
        model.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        return loss

    def grads():
        return [p.grad.numpy().copy() for p in model.parameters()]

    loss, wanted = step(x).item(), grads()
    replayed = ag.compile(step)
    for _ in range(4):
        assert replayed(x).item() == loss
        for one, other in zip(grads(), wanted, strict=True):
            np.testing.assert_array_equal(one, other)
