"""The C++ of kernels that go along lines does what its expressions say, on the CPU's threads."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from cuda_threads import COMPILER, RawKernel
from cupy_stand_in import CALLED

from asyncgrad.devices import cuda_lines
from asyncgrad.devices.cuda_lines import LinesKernel
from asyncgrad.devices.kernels import SOURCES, Lines

pytestmark = [
    pytest.mark.slow, pytest.mark.skipif(COMPILER is None, reason="there is no g++"),
]  # fmt: skip

SHAPES = [
    ((3, 5), 1), ((1, 700), 1), ((2, 130), 1), ((3, 7, 5), 1), ((1, 40, 35), 1), ((4, 1), 1),
    ((6, 2, 1), 1), ((5, 40), 0),
]  # fmt: skip
BATCHES = [(shape, 1) for shape in ((3, 5), (2, 1, 700), (40, 3, 35), (1, 2, 3, 5), (6, 2, 1))]
NUMBERS = {"eps": 1e-5, "lowest": -1e30}


def expected(declared, axis, first, lines, places):
    """What the declaration says, in float64."""
    known = {**CALLED, **NUMBERS, "length": first[0].shape[axis]}
    axes = range(first[0].ndim)
    along = [-1 if i == axis else 1 for i in axes]
    summed = axis
    if declared.over_batch:
        summed = tuple(i for i in axes if i != axis)
        known["length"] = first[0].size // first[0].shape[axis]
    names = [*declared.arrays.split(), *declared.lines.split()]
    known |= {name: x.astype(float) for name, x in zip(names, first + lines, strict=True)}
    for part, x in zip(declared.places.split(), places, strict=True):
        name, default = part.split("=")
        known[name] = int(default) if x is None else x.astype(float).reshape(along)
    for how, name, expression in declared.steps("sum", "max", "let", "each"):
        found = eval(expression, known)
        if how in {"sum", "max"}:
            found = getattr(found, how)(axis=summed, keepdims=True)
        known[name] = found
    results = [known[name] for name in declared.results.split()]
    if declared.over_batch:
        results = [value.reshape(-1) for value in results]
    return [*(eval(value, known) for *_, value in declared.steps("out")), *results]


def compiled(name, folder):
    cupy = SimpleNamespace(RawKernel=partial(RawKernel, folder), empty=np.empty)
    return LinesKernel(cupy, f"asyncgrad_{name}", SOURCES[name])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", [name for name, it in SOURCES.items() if isinstance(it, Lines)])
def test_kernels(name, dtype, tmp_path):
    declared, random = SOURCES[name], np.random.default_rng(0)
    kernel = compiled(name, tmp_path)
    rtol = 1e-3 if dtype is np.float32 else 1e-9
    for shape, axis in BATCHES if declared.over_batch else SHAPES:
        kept = [axis] if declared.over_batch else [i for i in range(len(shape)) if i != axis]
        of_lines = [n if i in kept else 1 for i, n in enumerate(shape)]
        first = [random.standard_normal(shape).astype(dtype) for _ in declared.arrays.split()]
        lines = [random.uniform(0.5, 1, of_lines).astype(dtype) for _ in declared.lines.split()]
        for left_out in (False, True):
            places = [
                None if left_out else random.standard_normal(shape[axis]).astype(dtype)
                for _ in declared.places.split()
            ]
            numbers = [NUMBERS[number] for number in declared.numbers.split()]
            found = kernel(axis, *first, *lines, *places, *numbers)
            found = found if isinstance(found, list) else [found]
            for one, other in zip(
                found, expected(declared, axis, first, lines, places), strict=True
            ):
                np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)


def test_nan_among_the_scores(tmp_path):
    """All shares of a row are NaN, and so is its logarithm."""
    scores = np.array([[0.0, np.nan, 1.0], [np.nan, 0.0, 1.0], [0.0, 1.0, np.nan]])
    weights, sums = compiled("attention_shares", tmp_path)(1, scores, -1e308)
    assert np.isnan(weights).all()
    assert np.isnan(sums).all()


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 40)])
def test_more_lines_than_blocks_on_an_axis(shape, tmp_path, monkeypatch):
    """Three blocks stand for the 2**31 - 1 that CUDA allows."""
    monkeypatch.setattr(cuda_lines, "_BLOCKS", 3)
    x = np.random.default_rng(0).standard_normal(shape)
    expected = np.log(np.exp(x).sum(axis=1, keepdims=True))
    log_total, top = compiled("log_sums", tmp_path)(1, x)
    np.testing.assert_allclose(log_total + top, expected)
