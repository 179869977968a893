"""Functions for kernels that Numba compiles: `_f` of float32, `_d` of float64.

Those of numbers have no branches, so that a loop over them is computed several elements at a time.
NaN, infinities and numbers below the normal ones give what NumPy gives.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from asyncgrad.devices.host_kernels.compiling import IN_ORDER, compiled
from asyncgrad.devices.pointwise import NORMAL_CDF

F = np.float32
_inner: Any = compiled(fastmath=IN_ORDER)

_LOG2_E = 1.4426950408889634
#: ln(2) as a sum: the first part has few bits, so that its products with whole numbers are exact.
_LN2_F = (F(0.693359375), F(-2.12194440e-4))
_LN2_D = (0.693145751953125, 1.42860682030941723212e-6)
_C0, _C1, _C2, _C3, _C4, _C5, _C6 = map(F, NORMAL_CDF)


@_inner
def _rest_f(r: Any) -> Any:
    """exp(r) - 1 for a small number: the polynomial of Cephes' `expf`."""
    p = F(1.9875691500e-4)
    p = p * r + F(1.3981999507e-3)
    p = p * r + F(8.3334519073e-3)
    p = p * r + F(4.1665795894e-2)
    p = p * r + F(1.6666665459e-1)
    p = p * r + F(5.0000001201e-1)
    return p * r * r + r


@_inner
def _rest_d(r: Any) -> Any:
    """exp(r) - 1 for a small number: the Taylor series."""
    p = 1.0 / 6227020800.0
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    return p * r * r + r


@_inner
def exp_f(x: Any) -> Any:
    """exp(x): 2**n times the exponential of the rest."""
    x = F(-105) if x < F(-105) else x
    x = F(89) if x > F(89) else x
    n = np.floor(x * F(_LOG2_E) + F(0.5))
    r = x - n * _LN2_F[0] - n * _LN2_F[1]
    p = _rest_f(r) + F(1)
    # In two factors, because 2**n alone may be too small or too large.
    whole = np.int32(n)
    half = whole >> np.int32(1)
    one = np.int32((half + np.int32(127)) << np.int32(23))
    other = np.int32((whole - half + np.int32(127)) << np.int32(23))
    return p * one.view(np.float32) * other.view(np.float32)


@_inner
def exp_d(x: Any) -> Any:
    """exp(x): 2**n times the exponential of the rest."""
    x = -746.0 if x < -746.0 else x
    x = 710.0 if x > 710.0 else x
    n = np.floor(x * _LOG2_E + 0.5)
    r = x - n * _LN2_D[0] - n * _LN2_D[1]
    p = _rest_d(r) + 1.0
    whole = np.int64(n)
    half = whole >> 1
    one = np.int64((half + 1023) << 52)
    other = np.int64((whole - half + 1023) << 52)
    return p * one.view(np.float64) * other.view(np.float64)


@_inner
def expm1_f(x: Any) -> Any:
    """exp(x) - 1 for numbers up to 0: 2**n - 1, and 2**n times what the rest adds to 1."""
    x = F(-80) if x < F(-80) else (F(80) if x > F(80) else x)
    n = np.floor(x * F(_LOG2_E) + F(0.5))
    r = x - n * _LN2_F[0] - n * _LN2_F[1]
    p = _rest_f(r)
    power = np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
    return p * power + (power - F(1))


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
def expm1_d(x: Any) -> Any:
    """exp(x) - 1 for numbers up to 0: 2**n - 1, and 2**n times what the rest adds to 1."""
    x = -700.0 if x < -700.0 else (700.0 if x > 700.0 else x)
    n = np.floor(x * _LOG2_E + 0.5)
    r = x - n * _LN2_D[0] - n * _LN2_D[1]
    p = _rest_d(r)
    power = np.int64((np.int64(n) + 1023) << 52).view(np.float64)
    return p * power + (power - 1.0)


@_inner
def log1p_f(x: Any) -> Any:
    """log(1 + x) for numbers from 0 to 1: the series of 2 * artanh(x / (2 + x))."""
    s = x / (x + F(2))
    z = s * s
    p = F(2 / 17)
    p = p * z + F(2 / 15)
    p = p * z + F(2 / 13)
    p = p * z + F(2 / 11)
    p = p * z + F(2 / 9)
    p = p * z + F(2 / 7)
    p = p * z + F(2 / 5)
    p = p * z + F(2 / 3)
    return p * z * s + (s + s)


@_inner
def log1p_d(x: Any) -> Any:
    """log(1 + x) for numbers from 0 to 1: the series of 2 * artanh(x / (2 + x))."""
    s = x / (x + 2.0)
    z = s * s
    p = 2.0 / 35.0
    p = p * z + 2.0 / 33.0
    p = p * z + 2.0 / 31.0
    p = p * z + 2.0 / 29.0
    p = p * z + 2.0 / 27.0
    p = p * z + 2.0 / 25.0
    p = p * z + 2.0 / 23.0
    p = p * z + 2.0 / 21.0
    p = p * z + 2.0 / 19.0
    p = p * z + 2.0 / 17.0
    p = p * z + 2.0 / 15.0
    p = p * z + 2.0 / 13.0
    p = p * z + 2.0 / 11.0
    p = p * z + 2.0 / 9.0
    p = p * z + 2.0 / 7.0
    p = p * z + 2.0 / 5.0
    p = p * z + 2.0 / 3.0
    return p * z * s + (s + s)


@_inner
def cdf_f(x: Any) -> Any:
    """The normal distribution, see `NORMAL_CDF`."""
    s = x * x
    p = ((((((_C0 * s + _C1) * s + _C2) * s + _C3) * s) + _C4) * s + _C5) * s + _C6
    return F(1) / (F(1) + exp_f(p * x))


@_inner
def cdf_d(x: Any) -> Any:
    """The normal distribution."""
    return 0.5 * math.erfc(x * -0.7071067811865476)


@_inner
def order_f(x: Any) -> Any:
    """A number as an integer: comparing two gives what comparing the numbers gives."""
    bits = F(x).view(np.int32)
    # Numba makes 64 bits of 32 unless it is told not to, and half as many are compared at a time.
    return np.int32(bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@_inner
def order_d(x: Any) -> Any:
    """A number as an integer: comparing two gives what comparing the numbers gives."""
    bits = np.float64(x).view(np.int64)
    return bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)


@_inner
def value_f(order: Any) -> Any:
    """The number that `order_f` has made an integer of."""
    return np.int32(order ^ ((order >> np.int32(31)) & np.int32(0x7FFFFFFF))).view(np.float32)


@_inner
def value_d(order: Any) -> Any:
    """The number that `order_d` has made an integer of."""
    return np.int64(order ^ ((order >> 63) & 0x7FFFFFFFFFFFFFFF)).view(np.float64)


@_inner
def larger(x: Any, y: Any) -> Any:
    """The larger number; NaN if one is."""
    return x if x > y or x != x else y


@_inner
def smaller(x: Any, y: Any) -> Any:
    """The smaller number; NaN if one is."""
    return x if x < y or x != x else y


@_inner
def sign_f(x: Any) -> Any:
    """1, -1, or the number itself if it is 0 or NaN."""
    return F(1) if x > F(0) else (F(-1) if x < F(0) else x)


@_inner
def sign_d(x: Any) -> Any:
    """1, -1, or the number itself if it is 0 or NaN."""
    return 1.0 if x > 0.0 else (-1.0 if x < 0.0 else x)


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
