"""SciPy's special functions by SciPy's names, for when SciPy is not installed.

Arrays are NumPy's; values are computed in double precision. Largest errors in units in the last
place: erf, erfc, entr 2; gammaln, erfcx, erfinv, ndtri 4; digamma, zeta, polygamma 9; i0, i0e, i1,
i1e 10. Near the zeros of gammaln (of negative numbers), digamma and polygamma the errors are
relative to their terms. For ndtr and log_ndtr they grow with the square of the argument.

Sources: Abramowitz and Stegun, "Handbook of Mathematical Functions" (A&S), by number of formula.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_ROOT_PI = math.sqrt(math.pi)
_ROOT_TWO = math.sqrt(2.0)
#: The Bernoulli numbers B2, B4, ...
_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
    -174611 / 330, 854513 / 138, -236364091 / 2730,
)  # fmt: skip


def _each(function: Any) -> Any:
    ufunc = np.frompyfunc(function, 1, 1)
    return lambda x: np.asarray(ufunc(x), np.float64)


# -- the normal distribution ----------------------------------------------------------------------

erf = _each(math.erf)
erfc = _each(math.erfc)


def erfcx(x: Any) -> Any:
    """`exp(x**2) erfc(x)`; the asymptotic series (A&S 7.1.23) from 25 on."""
    x = np.asarray(x, np.float64)
    near = np.clip(x, -28.0, 25.0)
    # Split the square in two parts: the first is exact, so both exponentials are accurate.
    first = np.round(near * 16) / 16
    product = np.exp(first * first) * (np.exp((near - first) * (near + first)) * erfc(near))
    far = np.where(x < 25, 25.0, x)
    step = -0.5 / far / far
    total = term = np.ones_like(far)
    for k in range(1, 8):
        term = term * step * (2 * k - 1)
        total = total + term
    return np.where(x < 25, product, np.where(x != x, x, total / (far * _ROOT_PI)))


def ndtr(x: Any, out: Any = None) -> Any:
    """The cumulative normal distribution (A&S 26.2.29)."""
    return np.multiply(erfc(np.asarray(x, np.float64) / -_ROOT_TWO), 0.5, out=out)


def log_ndtr(x: Any) -> Any:
    """The logarithm of `ndtr`, accurate in the lower tail."""
    x = np.asarray(x, np.float64)
    below = np.minimum(x, -1.0)
    tail = np.log(erfcx(below / -_ROOT_TWO) / 2) - below * below / 2
    return np.where(x < -1, tail, np.log1p(erfc(np.maximum(x, -1.0) / _ROOT_TWO) / -2))


def _tail(q: Any) -> Any:
    """Invert `erfc` for q from 0 to 1: start from A&S 26.2.23, refine with Halley's method."""
    log = np.log(q)
    t = np.sqrt(2 * (math.log(2) - log))
    over = 2.515517 + t * (0.802853 + t * 0.010328)
    y = (t - over / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)))) / _ROOT_TWO
    for _ in range(3):
        # The error divided by the slope; each by itself might underflow.
        ratio = (erfcx(y) - np.exp(y * y + log)) * (_ROOT_PI / 2)
        y = y + ratio / (1 + y * ratio)
    return y


def erfinv(x: Any) -> Any:
    """The inverse of `erf`; Newton's method near 0, where `erfc` loses accuracy."""
    x = np.asarray(x, np.float64)
    size = np.abs(x)
    outer = np.where(size > 0.5, size, 0.5)
    far = np.where(outer < 1, _tail(np.where(outer < 1, 1 - outer, 1.0)), np.inf)
    inner = np.where(size > 0.5, 0.0, size)
    near = inner * (_ROOT_PI / 2) * (1 + inner * inner * (math.pi / 12))
    for _ in range(4):
        near = near - (erf(near) - inner) * np.exp(near * near) * (_ROOT_PI / 2)
    return np.copysign(np.where(size <= 0.5, near, np.where(size <= 1, far, np.nan)), x)


def ndtri(x: Any) -> Any:
    """The inverse of `ndtr`."""
    x = np.asarray(x, np.float64)
    middle = np.abs(x - 0.5) <= 0.25
    below = np.where(x < 0.5, x, 1 - x)
    inside = np.where((below > 0) & ~middle, below, 0.25)
    out = np.where(below == 0, np.inf, np.where(below > 0, _tail(2 * inside), np.nan))
    out = np.where(middle, erfinv(np.where(middle, 2 * np.abs(x - 0.5), 0.0)), out)
    return np.copysign(out, x - 0.5) * _ROOT_TWO


def entr(x: Any) -> Any:
    """`-x log(x)`."""
    x = np.asarray(x, np.float64)
    inside = np.where(x > 0, x, 1.0)
    return np.where(x > 0, -x * np.log(inside), np.where(x < 0, -np.inf, x * 0.0))


# -- the gamma function ---------------------------------------------------------------------------


def _log_gamma(x: float) -> float:
    if 0.5 < x < 5:
        # A&S 6.1.33 around 2: `math.lgamma` has few correct digits near its zeros.
        shift = total = 0.0
        while x > 2.5:
            x -= 1
            shift += math.log(x)
        z = x - 2 if x > 1.5 else x - 1
        for coefficient in _ABOUT_TWO:
            total = (total + coefficient) * z
        return total + shift if x > 1.5 else total - math.log1p(z)
    try:
        return math.lgamma(x)
    except (OverflowError, ValueError):
        return math.inf


gammaln = _each(_log_gamma)


def digamma(x: Any) -> Any:
    """The derivative of `gammaln`: reflection (A&S 6.3.7), recurrence (6.3.5), series (6.3.18)."""
    x = np.asarray(x, np.float64)
    z = np.where(x < 0, 1 - x, x)
    total = np.zeros_like(z)
    for _ in range(10):
        small = z < 10
        total = np.where(small, total - 1 / z, total)
        z = np.where(small, z + 1, z)
    square, power = z * z, 1.0
    tail = np.zeros_like(z)
    for k, number in enumerate(_BERNOULLI[:9], 1):
        power = power * square
        tail = tail + number / (2 * k * power)
    found = total + (np.log(z) - 0.5 / z - tail)
    # Undefined at negative integers; at 0 the sign of zero decides.
    rest = x - np.round(x)
    slope = math.pi / np.tan(math.pi * np.where(rest == 0, np.nan, rest))
    return np.where(x == 0, np.copysign(np.inf, -x), np.where(x < 0, found - slope, found))


def zeta(s: Any, a: Any) -> Any:
    """The Hurwitz zeta function, by the Euler-Maclaurin formula (A&S 23.1.30)."""
    s, a = np.broadcast_arrays(np.asarray(s, np.float64), np.asarray(a, np.float64))
    below = (a < 0) & (a != np.round(a)) & (s == np.round(s))
    found = _zeta_above(s, np.where(a > 0, a, 1.0))
    # Terms with negative numbers equal those with positive ones up to the sign.
    up, down = np.where(below, a - np.floor(a), 1.0), np.where(below, np.ceil(a) - a, 1.0)
    odd = np.where(s % 2 == 1, -1.0, 1.0)
    rest = _zeta_above(s, down) - _zeta_above(s, np.where(below, 1 - a, 1.0))
    found = np.where(below, _zeta_above(s, up) + odd * rest, found)
    undefined = (s < 1) | (a != a) | (s != s) | ((a < 0) & ~below & (a != np.round(a)))
    pole = (s == 1) | ((a <= 0) & ~below)
    return np.where(undefined, np.nan, np.where(pole, np.inf, found))


def _zeta_above(s: Any, a: Any) -> Any:
    s = np.where(s > 1, np.minimum(s, 1e9), 2.0)
    total = np.zeros_like(a)
    for k in range(12):
        total = total + (a + k) ** -s
    z = a + 12
    power = z**-s
    total = total + z ** (1 - s) / (s - 1) + power / 2
    factor = s * power / z
    for k, number in enumerate(_BERNOULLI, 1):
        total = total + factor * (number / math.factorial(2 * k))
        factor = factor * ((s + 2 * k - 1) / z) * ((s + 2 * k) / z)
    return total


def polygamma(n: int, x: Any) -> Any:
    """The n-th derivative of `digamma` (A&S 6.4.10)."""
    factorial = float(math.factorial(n)) if n < 171 else math.inf
    return (factorial if n % 2 else -factorial) * zeta(n + 1, x)


_POWERS = np.arange(40, 1, -1)
#: The coefficients of the powers of x - 2, highest power first.
_ABOUT_TWO = [*((-1.0) ** _POWERS * zeta(_POWERS, 2.0) / _POWERS).tolist(), 1 - 0.57721566490153286]


# -- Bessel functions -----------------------------------------------------------------------------


def _bessel(order: int, *, scaled: bool) -> Any:
    """A modified Bessel function of the first kind: A&S 9.6.10, and 9.7.1 from 20 on.

    If it is `scaled`, it is multiplied by `exp(-|x|)`.
    """

    def compute(x: Any) -> Any:
        size = np.abs(np.asarray(x, np.float64))
        near = np.where(size < 20, size, 0.0)
        quarter = near * near / 4
        total = term = near / 2 if order else np.ones_like(near)
        for k in range(1, 56):
            term = term * quarter / (k * (k + order))
            total = total + term
        far = np.where(size < 20, 20.0, size)
        tail = part = np.ones_like(far)
        for k in range(1, 38):
            part = part * ((2 * k - 1) ** 2 - 4 * order) / (8 * k) / far
            tail = tail + part
        tail = tail / (np.sqrt(far) * math.sqrt(2 * math.pi))
        if scaled:
            total = total * np.exp(-near)
        else:
            tail = np.exp(far) * tail
        found = np.where(size < 20, total, np.where(size != size, size, tail))
        return np.copysign(found, x) if order else found

    return compute


i0, i1 = _bessel(0, scaled=False), _bessel(1, scaled=False)
i0e, i1e = _bessel(0, scaled=True), _bessel(1, scaled=True)
