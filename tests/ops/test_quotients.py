"""Remainders and rounded quotients of large float32 arrays have NumPy's bits."""

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.ops.quotients import exact

#: More than a few blocks, and not a multiple of one.
_MANY = 70_001
FUNCTIONS = {
    "fmod": exact("fmod", np.trunc, signed_as=0),
    "remainder": exact("remainder", np.floor, signed_as=1),
    "floor_divide": exact("floor_divide", np.floor),
}


@pytest.fixture
def random():
    return np.random.default_rng(0)


def _same_bits(name, x, y):
    with np.errstate(all="ignore"):
        ours, theirs = FUNCTIONS[name](np, x, y), getattr(np, name)(x, y)
    assert ours.dtype == theirs.dtype
    same = ours.view(np.uint32) == theirs.view(np.uint32)
    differs = np.flatnonzero(~(same | (np.isnan(ours) & np.isnan(theirs))))
    assert differs.size == 0, (name, x[differs[0]], ours[differs[0]], theirs[differs[0]])


def _next_to_multiples(random, most, least_exponent=-60):
    """Pairs whose quotient is an integer, or a float32 next to one."""
    size = random.uniform(1, 2, _MANY) * 2.0 ** random.integers(least_exponent, 40, _MANY)
    divisor = (size * random.choice([-1, 1], _MANY)).astype(np.float32)
    near = (random.integers(-most, most, _MANY) * divisor.astype(np.float64)).astype(np.float32)
    towards = random.choice(np.array([-np.inf, np.inf, 0], np.float32), _MANY)
    return np.nextafter(near, towards), divisor


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("most", [1 << 8, 1 << 21, 1 << 27, 1 << 29])
def test_next_to_integers(name, most, random):
    _same_bits(name, *_next_to_multiples(random, most))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_denormal_numbers(name, random):
    _same_bits(name, *_next_to_multiples(random, 1 << 20, least_exponent=-148))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_all_kinds_of_numbers(name, random):
    x, y = (
        random.integers(0, 1 << 32, _MANY, dtype=np.uint64).astype(np.uint32).view(np.float32)
        for _ in range(2)
    )
    _same_bits(name, x, y)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("special", [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3e38])
def test_one_number_that_is_not_ordinary(name, special, random):
    x, y = _next_to_multiples(random, 1 << 8)
    x[70_000] = special
    _same_bits(name, x, y)
    _same_bits(name, y, x)
    _same_bits(name, x, np.float32(special))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_small_integers_and_their_zeros(name, random):
    x, y = (random.integers(1, 9, _MANY) * random.choice([-1, 1], _MANY) for _ in range(2))
    _same_bits(name, x.astype(np.float32), y.astype(np.float32))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("divisor", [0.1, 3, -2.5, 1e-9])
def test_of_tensors_by_a_number(name, divisor, random):
    values = random.standard_normal((3, _MANY)).astype(np.float32)
    x = ag.tensor(values)
    expected = getattr(np, name)(values, np.float32(divisor))
    ours = getattr(ag, name)(x, divisor)
    assert ag.equal(ours, ag.tensor(expected))
    assert ag.equal(getattr(ag, name)(x.mT, divisor), ours.mT)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_of_broadcast_tensors(name, random):
    x, y = (random.standard_normal(shape).astype(np.float32) for shape in ((3, _MANY), (_MANY,)))
    expected = getattr(np, name)(x, y)
    assert ag.equal(getattr(ag, name)(ag.tensor(x), ag.tensor(y)), ag.tensor(expected))
