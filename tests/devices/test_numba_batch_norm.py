"""Batch norms compiled by Numba: NumPy's numbers for small images and large ones."""

import os
import subprocess
import sys

import numpy as np
import pytest
from test_numba_kernels import compiled as enabled

import asyncgrad as ag
from asyncgrad.devices import pieces
from asyncgrad.devices.plain_numpy import COMPILED

pytest.importorskip("numba")
#: Numba compiles for most of a minute, unless it has kept what it compiled.
pytestmark = pytest.mark.slow
#: Up to 512 elements beside one another are copied to those of other images.
SHAPES = ((5, 3, 8), (6, 17, 3, 7), (128, 16, 8, 8), (3, 4, 23, 40), (1, 5, 2000), (2, 3, 4, 5, 6))


def _results(shape, dtype, factor=1.0):
    made = np.random.default_rng(0)
    x = made.standard_normal(shape).astype(dtype) * factor
    norm = {3: ag.nn.BatchNorm1d, 4: ag.nn.BatchNorm2d, 5: ag.nn.BatchNorm3d}[len(shape)]
    model = norm(shape[1], dtype=getattr(ag, x.dtype.name))
    model.weight.data.copy_(ag.from_numpy(made.standard_normal(shape[1]).astype(dtype)))
    given = ag.from_numpy(x).requires_grad_()
    out = model(given)
    out.backward(ag.from_numpy(np.cos(np.arange(x.size)).astype(dtype).reshape(shape)))
    found = out, given.grad, model.weight.grad, model.bias.grad, model.running_mean
    return [t.detach().numpy() for t in (*found, model.running_var)]


@pytest.fixture
def compiled():
    """Whether kernels were on before or not, they are now."""
    with enabled():
        yield


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_same_numbers_as_with_numpy(shape, dtype, compiled, monkeypatch):
    called = []
    for name in ("batch_norm", "batch_norm_gradient"):
        kernel = COMPILED[name]

        def spied(*arguments, kernel=kernel):
            made = kernel(*arguments)
            called.append(made is not NotImplemented)
            return made

        monkeypatch.setitem(COMPILED, name, spied)
    found = _results(shape, dtype)
    assert called == [True, True]
    for name in ("batch_norm", "batch_norm_gradient"):
        monkeypatch.delitem(COMPILED, name)
    eps = np.finfo(dtype).eps
    for one, other in zip(found, _results(shape, dtype), strict=True):
        assert one.shape == other.shape
        assert np.abs(one - other).max() <= 60 * eps * max(1, np.abs(other).max())


@pytest.mark.parametrize("shape", [(128, 16, 8, 8), (16, 6, 40, 40)], ids=str)
def test_pieces_have_the_same_bits(shape, compiled, monkeypatch):
    from asyncgrad.devices.host_kernels import calls

    class Lender:
        def lend(self, job, most):
            job()
            return 1

        def most_urgent(self):
            return None

    alone = _results(shape, "f")
    cuts = []
    share = calls.in_pieces
    monkeypatch.setattr(
        calls, "in_pieces", lambda call, cut: cuts.append(len(cut)) or share(call, cut)
    )
    monkeypatch.setattr(calls, "PIECE", 1 << 13)
    monkeypatch.setattr(calls, "FEW", 1 << 13)
    monkeypatch.setattr(pieces.here, "lender", Lender())
    monkeypatch.setattr(pieces, "threads", 2)
    shared = _results(shape, "f")
    assert min(cuts) > 1
    for one, other in zip(alone, shared, strict=True):
        np.testing.assert_array_equal(one, other)


def test_nan_stays_in_its_channel(compiled):
    x = ag.randn(4, 3, 5, 5)
    x[1, 2, 3, 4] = float("nan")
    out = ag.nn.BatchNorm2d(3)(x).detach().numpy()
    assert np.isnan(out[:, 2]).all()
    assert np.isfinite(out[:, :2]).all()


def test_large_means_keep_the_variance(compiled):
    """The squares are those of differences from the mean."""
    x = ag.randn(16, 2, 6, 6) + 1000
    _, variance = COMPILED["batch_norm"](x.numpy(), np.ones(2, "f"), np.zeros(2, "f"), 1e-5)[1:]
    wanted = x.numpy().astype("d").var(axis=(0, 2, 3))
    np.testing.assert_allclose(variance, wanted, rtol=1e-4)


def test_gradients(compiled):
    for image in ((3, 3), (25, 24)):
        x = ag.randn(2, 2, *image, dtype=ag.float64, requires_grad=True)
        weight, bias = (ag.randn(2, dtype=ag.float64, requires_grad=True) for _ in range(2))
        call = lambda x, w, b: ag.nn.functional.batch_norm(  # noqa: E731
            x, None, None, w, b, training=True
        )
        assert ag.autograd.gradcheck(call, (x, weight, bias))


PROGRAM = """
import hashlib
import numpy as np
from asyncgrad.devices.host_kernels import declared
from asyncgrad.devices.host_kernels.calls import LinesKernel
declared._OWN = {name: declared.SOURCES[name] for name in ("batch_norm", "batch_norm_gradient")}
modules = {np.dtype("f"): declared._compiled("f")}
norm, gradient = [LinesKernel(name, it, modules) for name, it in declared._OWN.items()]
x = np.random.default_rng(0).standard_normal((16, 24, 40, 40)).astype("f")
ones = np.ones(24, "f")
y, mean, variance = norm(1, x, ones, ones, 1e-5)
found = gradient(1, y * y, x, ones, mean, variance, 1e-5)
arrays = (y, mean, variance, *found)
print(hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest())
"""


def test_the_process_that_compiles_has_the_bits_of_later_ones(tmp_path):
    """Functions that several kernels call were one copy: that of the kernel loaded first."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM]
    first, second = [subprocess.check_output(command, env=environment) for _ in range(2)]
    assert first == second
