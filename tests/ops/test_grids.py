"""Slopes, areas, histograms and covariances over grids, and what is made of their points."""

import numpy as np
import oracle
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:cov.*degrees of freedom")]

NAMES = (
    "trapezoid", "cumulative_trapezoid", "corrcoef", "cartesian_prod", "combinations", "renorm",
    "ldexp", "frexp", "histc", "histogram", "gcd", "lcm", "unravel_index",
)  # fmt: skip


OPTIONS = {
    "dtypes": ("float64", "complex128", "float32", "int64"), "limit": 6, "tangents": 3,
    "in_place": False,
}  # fmt: skip
test_samples = oracle.as_in_pytorch(NAMES, **OPTIONS)
# Weights in single precision have gradients in single precision.
test_covariances = oracle.as_in_pytorch(["cov"], tolerance=3e-6, **OPTIONS)
test_slopes = oracle.as_in_pytorch(["gradient"], errors=False, **OPTIONS)


X = [1.0, 4.0, 9.0, 11.0]
CALLS = {
    "edges with three points": lambda T: T.gradient(T.tensor(X), edge_order=2),
    "places of points": lambda T: T.gradient(
        T.tensor(X).double(), spacing=[T.tensor([0.0, 1.0, 3.0, 3.5]).double()], edge_order=2
    ),
    "no axes": lambda T: T.gradient(T.ones(2, 2), dim=[]),
    "integers": lambda T: T.gradient(T.tensor([1, 4, 9]), spacing=T.tensor(2.0)),
    "too few points": lambda T: T.gradient(T.ones(2), edge_order=2),
    "third order": lambda T: T.gradient(T.ones(2), edge_order=3),
    "too many spacings": lambda T: T.gradient(T.ones(3), spacing=[2.0, 2.0]),
    "an axis twice": lambda T: T.gradient(T.ones(3, 3), dim=[0, 0]),
    "no slope of truths": lambda T: T.gradient(T.tensor([True, False])),
    "distance as text": lambda T: T.gradient(T.ones(3), spacing="a"),
    "area of nothing": lambda T: (T.trapezoid(T.ones(2, 0)), T.trapezoid(T.ones(0, 2))),
    "area over no places": lambda T: T.trapezoid(T.ones(2, 0), T.ones(2, 0)),
    "areas over no places": lambda T: T.cumulative_trapezoid(T.ones(0, 2).int(), T.ones(0), dim=0),
    "area under numbers whose sum is no byte": lambda T: T.trapezoid(
        T.tensor([100, 200, 90], dtype=T.uint8)
    ),
    "area under large integers of both signs": lambda T: [
        T.trapezoid(T.tensor([2**24 + 1, -(2**24)], dtype=dtype), *places)
        for dtype in (T.int32, T.int64)
        for places in ((), (T.tensor([0, 1]),))
    ],
    "area of a tensor without axes": lambda T: T.trapz(T.tensor(1.0)),
    "both of places and distance": lambda T: T.trapezoid(T.ones(3), T.ones(3), dx=3),
    "distance as a tensor": lambda T: T.trapz(T.ones(3), dx=T.tensor(2.0)),
    "another number of places": lambda T: T.trapezoid(T.ones(3), T.ones(2)),
    "area of truths": lambda T: T.cumulative_trapezoid(T.tensor([True])),
    "no differences along no axis": lambda T: T.diff(T.arange(3.0), 0, 99),
    "differences along no axis": lambda T: T.diff(T.arange(3.0), 1, 99),
    "bins beyond float32": lambda T: T.histc(T.ones(1), 4, 0, 1e39),
    "edges beyond float32": lambda T: T.histogram(T.ones(1), 4, range=(-1e39, 0)),
    "variance of one": lambda T: T.cov(T.tensor([1, 2, 4])),
    "covariance of truths": lambda T: T.cov(T.tensor([True])),
    "correlation of integers": lambda T: T.corrcoef(T.tensor([[1, 2, 4], [3, 5, 1]])),
    "powers": lambda T: (T.vander(T.tensor([1, 2, 3])), T.vander(T.tensor([2.0, 3.0]), 3, True)),
    "few powers": lambda T: (T.vander(T.tensor([1, 2]), 0), T.vander(T.tensor([1, 2]), 1)),
    "negative powers": lambda T: T.vander(T.ones(2), -1),
    "powers of a matrix": lambda T: T.vander(T.ones(2, 2)),
    "histogram of none": lambda T: (*T.histogram(T.ones(0), 3), T.histc(T.ones(0), 3)),
    "histogram of halves": lambda T: T.histc(T.linspace(-5, 9, 200).to(T.float16), 7),
    "histogram of one": lambda T: (*T.histogram(T.ones(3), 3), T.histc(T.ones(3), 3)),
    "histogram within edges": lambda T: tuple(
        T.histogram(T.tensor(X), T.tensor([1.0, 4.0, 10.0]), weight=T.tensor(X), density=True)
    ),
    "histogram with NaN": lambda T: T.histc(T.tensor([1.0, float("nan")]), 3, 0, 2),
    "range of NaN": lambda T: T.histc(T.tensor([1.0, float("nan")]), 3),
    "one edge": lambda T: T.histogram(T.ones(2), T.ones(1)),
    "no bins": lambda T: T.histogram(T.ones(2), 0),
    "integers in bins": lambda T: T.histc(T.tensor([1]), 3),
    "range backwards": lambda T: T.histogram(T.ones(2), 2, range=(4, 0)),
    "combinations of none": lambda T: (T.combinations(T.ones(2), 3), T.combinations(T.ones(2), 0)),
    "combinations of a negative number": lambda T: T.combinations(T.ones(2), -1),
    "combinations of a matrix": lambda T: T.combinations(T.ones(2, 2)),
    "product with a matrix": lambda T: T.cartesian_prod(T.ones(2), T.ones(2, 2)),
    "product of a list": lambda T: T.cartesian_prod([T.ones(2)]),
    "places beyond": lambda T: T.unravel_index(T.tensor([7, -1, 30]).int(), (3, 4)),
    "places as fractions": lambda T: T.unravel_index(T.tensor(7.0), (3, 4)),
    "a negative shape": lambda T: T.unravel_index(T.tensor([7]), (-3, 4)),
    "extreme numbers in parts": lambda T: tuple(
        T.frexp(T.tensor([-0.0, float("inf"), 5e-324, -1e-310, 1.7e308]).double())
    ),
    "extreme doubles in parts": lambda T: tuple(
        T.frexp(T.tensor([5e-324, -1e-310, 1.7e308, 0.0], dtype=T.float64))
    ),
    "integers in parts": lambda T: T.frexp(T.tensor([1])),
    "a number as exponent": lambda T: T.ldexp(T.ones(1), 2),
    "large exponents": lambda T: T.ldexp(T.ones(3).double(), T.tensor([200, 1000, -1074])),
    "exponents of halves": lambda T: T.ldexp(T.ones(3).half(), T.tensor([3, -9, 16])),
    "an exponent beyond a half": lambda T: T.ldexp(T.tensor([2.0**-20]).half(), T.tensor(20)),
    "a norm of 0": lambda T: T.renorm(T.ones(2, 2), 0, 0, 1),
    "the greatest norm": lambda T: T.renorm(T.ones(2, 2), float("inf"), 0, 0.5),
    "the norm of a vector's parts": lambda T: T.renorm(T.ones(2), 1, 0, 1),
    "a negative bound": lambda T: T.renorm(T.ones(2, 2), 1, 0, -1),
    "divisors with a number": lambda T: T.gcd(T.tensor([4]), 2),
    "divisors of fractions": lambda T: T.gcd(T.ones(1), T.ones(1)),
    "the integral over no points": lambda T: T.trapezoid(T.zeros((0, 3), dtype=T.int32), dim=0),
    "integrals of no lines": lambda T: T.trapezoid(T.zeros((0, 3), dtype=T.int32), dim=1),
    "integrals up to no points": lambda T: T.cumulative_trapezoid(T.zeros((3, 0)), dim=1),
    "no integers by 0": lambda T: T.remainder(T.zeros(0, dtype=T.int32), 0),
    "no integers by zeros": lambda T: T.fmod(T.zeros(0, 2).int(), T.zeros(2).int()),
    "a quotient of no integers": lambda T: T.floor_divide(T.zeros(0, dtype=T.int32), 0),
    "a rounded quotient of none": lambda T: T.div(T.zeros(0).int(), 0, rounding_mode="trunc"),
    "a buffer": lambda T: T.frombuffer(bytearray(b"12345678"), dtype=T.int16, count=2, offset=2),
    "a buffer of nothing": lambda T: T.frombuffer(bytearray(), dtype=T.float32),
    "a part of a number": lambda T: T.frombuffer(bytearray(b"12345"), dtype=T.float32),
    "beyond a buffer": lambda T: T.frombuffer(bytearray(b"1234"), dtype=T.float32, count=2),
    "behind a buffer": lambda T: T.frombuffer(bytearray(b"1234"), dtype=T.float32, offset=4),
    "no buffer": lambda T: T.frombuffer(3, dtype=T.float32),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_samples_leave_out_is_as_in_pytorch(name):
    oracle.check_call(lambda T, tensor: CALLS[name](T))


def test_a_buffers_memory_is_shared():
    memory = bytearray(8)
    x = ag.frombuffer(memory, dtype=ag.int32)
    x[1] = 258
    assert memory[4:6] == b"\x02\x01"
    with pytest.warns(UserWarning, match="not writable"):
        ag.frombuffer(b"1234", dtype=ag.int32)


def test_equal_ends_of_a_histogram_are_moved_apart():
    """Given ends are not those of the elements."""
    for T in (torch, ag):
        found = T.histogram(T.tensor([-6.0, -1.5]), 1, range=(-1.5, -1.5))
        assert (found.hist.tolist(), found.bin_edges.tolist()) == ([1.0], [-2.0, -1.0])


@pytest.mark.parametrize("dtype", [ag.float32, ag.float64])
def test_bins_may_be_as_wide_as_the_numbers_of_a_dtype(dtype):
    """The distance between the ends is too great a number; PyTorch counts no elements then."""
    greatest = ag.finfo(dtype).max
    x = ag.tensor([-greatest, -greatest / 4, 1.0, greatest / 4, greatest], dtype=dtype)
    assert ag.histc(x, 4).tolist() == [1, 1, 2, 1]


@pytest.mark.parametrize("options", [{}, {"spacing": 2.0}, {"edge_order": 2}], ids=str)
def test_infinite_values_have_no_part_in_slopes_beside_their_neighbours(options):
    inf, nan = float("inf"), float("nan")
    x = [2, -2, inf, inf, -inf, -inf, inf, 3, -inf, 2, nan, nan, 3, inf, nan, 1, 2, inf]
    theirs, ours = [T.gradient(T.tensor(x), **options)[0] for T in (torch, ag)]
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
