"""Functions for kernels that Numba compiles: `_f` of float32, `_d` of float64.

Those of numbers have no branches, so that a loop over them is computed several elements at a time.
NaN, infinities and numbers below the normal ones give what NumPy gives.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from asyncgrad.devices.host_kernels.compiling import IN_ORDER, compiled
from asyncgrad.devices.pointwise import NORMAL_CDF

F = np.float32
_inner: Any = compiled(fastmath=IN_ORDER)

_LOG2_E = 1.4426950408889634
_C = tuple(map(F, NORMAL_CDF))


@_inner
def _polynomial(p: Any, terms: Any, x: Any) -> Any:
    """Go on with a polynomial; a loop over more than a dozen terms would not be unrolled."""
    for term in terms:
        p = p * x + term
    return p


def _functions(
    T: Any, Whole: Any, bits: int, bounds: tuple[float, float], limit: float,
    ln2: tuple[float, float], rest: Iterable[float], terms: int,
) -> tuple[Any, ...]:  # fmt: skip
    """The functions of numbers of a kind, as integers of a kind with so many bits of a mantissa.

    Args:
        bounds: between them are the numbers whose exponentials are neither 0 nor infinite.
        limit: the largest number that `expm1` has to know.
        ln2: ln(2) as a sum: the first part has few bits, so that its products with whole numbers
            are exact.
        rest: the coefficients of a polynomial for exp(r) - 1, from the highest to the second power.
        terms: how many terms of the series of artanh are added.
    """
    low, high = bounds
    high_ln2, low_ln2 = map(T, ln2)
    first, *others = map(T, rest)
    of_rest = tuple(others)
    of_artanh = tuple(T(2 / k) for k in range(2 * terms + 1, 1, -2))
    half = terms // 2
    top, most = np.iinfo(Whole).bits - 1, np.iinfo(Whole).max
    bias = (1 << top - bits - 1) - 1

    @_inner
    def parts(x: Any) -> Any:
        """The whole number n and exp(r) - 1, for which x = n * ln(2) + r."""
        n = np.floor(x * T(_LOG2_E) + T(0.5))
        r = x - n * high_ln2 - n * low_ln2
        return Whole(n), _polynomial(first, of_rest, r) * r * r + r

    @_inner
    def power(n: Any) -> Any:
        """2**n."""
        return Whole((n + Whole(bias)) << Whole(bits)).view(T)

    @_inner
    def exp(x: Any) -> Any:
        """exp(x): 2**n times the exponential of the rest."""
        x = T(low) if x < T(low) else x
        x = T(high) if x > T(high) else x
        n, p = parts(x)
        # In two factors, because 2**n alone may be too small or too large.
        less = n >> Whole(1)
        return (p + T(1)) * power(less) * power(n - less)

    @_inner
    def expm1(x: Any) -> Any:
        """exp(x) - 1 for numbers up to 0: 2**n - 1, and 2**n times what the rest adds to 1."""
        x = T(-limit) if x < T(-limit) else (T(limit) if x > T(limit) else x)
        n, p = parts(x)
        return p * power(n) + (power(n) - T(1))

    @_inner
    def log1p(x: Any) -> Any:
        """log(1 + x) for numbers from 0 to 1: the series of 2 * artanh(x / (2 + x))."""
        s = x / (x + T(2))
        z = s * s
        p = _polynomial(of_artanh[0], of_artanh[1:half], z)
        return _polynomial(p, of_artanh[half:], z) * z * s + (s + s)

    @_inner
    def order(x: Any) -> Any:
        """A number as an integer: comparing two gives what comparing the numbers gives."""
        whole = T(x).view(Whole)
        # Numba makes 64 bits of 32 unless it is told not to, and half as many are compared at a
        # time.
        return Whole(whole ^ ((whole >> Whole(top)) & Whole(most)))

    @_inner
    def value(order: Any) -> Any:
        """The number that `order` has made an integer of."""
        return Whole(order ^ ((order >> Whole(top)) & Whole(most))).view(T)

    @_inner
    def sign(x: Any) -> Any:
        """1, -1, or the number itself if it is 0 or NaN."""
        return T(1) if x > T(0) else (T(-1) if x < T(0) else x)

    return exp, expm1, log1p, order, value, sign


# exp(r) - 1 by the polynomial of Cephes' `expf`.
exp_f, expm1_f, log1p_f, order_f, value_f, sign_f = _functions(
    F, np.int32, 23, (-105, 89), 80, (0.693359375, -2.12194440e-4),
    (
        1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
        5.0000001201e-1,
    ), 8,
)  # fmt: skip
# By the Taylor series.
exp_d, expm1_d, log1p_d, order_d, value_d, sign_d = _functions(
    np.float64, np.int64, 52, (-746, 710), 700, (0.693145751953125, 1.42860682030941723212e-6),
    (1 / math.factorial(k) for k in range(13, 1, -1)), 17,
)  # fmt: skip


@_inner
def tanh_f(x: Any) -> Any:
    """tanh(x) = d / (d + 2) with d = exp(2 * x) - 1, which is computed without a difference."""
    y = F(18.5) if x > F(9.25) else x + x
    y = F(-18.5) if x < F(-9.25) else y
    d = expm1_f(y)
    return np.copysign(d / (d + F(2)), x)


@_inner
def tanh_d(x: Any) -> Any:
    """tanh(x): a quotient of polynomials near 0, Cephes' `tanh`; elsewhere from an exponential."""
    z = x * x
    p = -9.64399179425052238628e-1
    p = p * z - 9.92877231001918586564e1
    p = p * z - 1.61468768441708447952e3
    q = z + 1.12811678491632931402e2
    q = q * z + 2.23548839060100448583e3
    q = q * z + 4.84406305325125486048e3
    near = x + x * z * (p / q)
    size = abs(x)
    far = 1.0 - 2.0 / (exp_d(size + size) + 1.0)
    return near if size < 0.625 else np.copysign(far, x)


@_inner
def cdf_f(x: Any) -> Any:
    """The normal distribution, see `NORMAL_CDF`."""
    return F(1) / (F(1) + exp_f(_polynomial(_C[0], _C[1:], x * x) * x))


@_inner
def cdf_d(x: Any) -> Any:
    """The normal distribution."""
    return 0.5 * math.erfc(x * -0.7071067811865476)


@_inner
def larger(x: Any, y: Any) -> Any:
    """The larger number; NaN if one is."""
    return x if x > y or x != x else y


@_inner
def smaller(x: Any, y: Any) -> Any:
    """The smaller number; NaN if one is."""
    return x if x < y or x != x else y


# -- of the dtype that they are called with -------------------------------------------------------


def _of_dtype(single: Any, double: Any, kind: Any) -> Any:
    """A function for kernels of both dtypes: `single` for arguments of that kind."""

    def function(x: Any) -> Any:
        raise NotImplementedError("it is called by compiled functions alone")

    # Not `strict`, which compares annotations, too.
    @overload(function, strict=False)
    def chosen(x: Any) -> Any:
        one = single if x == kind else double
        return lambda x: one(x)

    return function


exp = _of_dtype(exp_f, exp_d, types.float32)
order = _of_dtype(order_f, order_d, types.float32)
value = _of_dtype(value_f, value_d, types.int32)


# -- of rows --------------------------------------------------------------------------------------

#: How many elements are added up in the arrays' dtype; such sums are added in double precision.
ADDED = 512
