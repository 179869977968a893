"""Inverse hyperbolic functions, error and gamma functions, and functions of two numbers."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

from asyncgrad.devices.fp_errors import without_fp_errors
from asyncgrad.ops.dtype import FLOATING, INEXACT, check_dtype, refuse
from asyncgrad.ops.namespace import IgnoringFpErrors
from asyncgrad.ops.op import Op, Refused, binary, unary
from asyncgrad.ops.special import special_function
from asyncgrad.ops.table.elementwise import ufunc
from asyncgrad.types import Array, Library, Namespace, Value

_TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)
_ROOT_HALF = math.sqrt(0.5)
_LEAST_NORMAL = sys.float_info.min


def _special(
    name: str, d: Callable[..., Any], doc: str, function: str = "", *, public: str = "", **more: Any
) -> Op:
    """A function of SciPy's, by its name there, as an op; public in `special`, if it is not said.

    `d` is the local derivative, and `function` SciPy's name, if it is another.
    """

    if not public and not function:
        more["node"] = f"Special{name.title().replace('_', '')}Backward0"
    public = public or f"special.{name}"
    forward = without_fp_errors(lambda xp, x: _computed(name, function or name, x))
    return unary(name, d, forward, wide=True, doc=doc, public=public, **more)


def _computed(name: str, function: str, *arguments: Any) -> Any:
    """A special function by SciPy's name; the last argument is an array of the result's dtype."""
    dtype = arguments[-1].dtype
    check_dtype(name, dtype, FLOATING)
    return special_function(name, function)(*arguments).astype(dtype, copy=False)


@without_fp_errors
def _lgamma(xp: Library, x: Array) -> Any:
    """SciPy's `gammaln`, which is infinite at denormals, with PyTorch's value at minus infinity."""
    out = _computed("lgamma", "gammaln", x)
    size = abs(x)
    out = xp.where(size < _LEAST_NORMAL, -xp.log(size), out)
    return xp.where(x == -math.inf, x.dtype.type(math.inf), out)


def _acosh_slope(F: Namespace, x: Value) -> Any:
    if x.dtype.kind == "c":
        return F.rsqrt(x - 1) * F.rsqrt(x + 1)
    return F.rsqrt(x * x - 1)


def _times_logarithm(
    name: str, log: str, least: float, inside: Callable[[Any], Any], **more: Any
) -> Op:
    """`x` times the logarithm of `inside(y)`, which is 0 where x is.

    So it is at `least`, too, where the logarithm is infinite.
    """

    @without_fp_errors
    def compute(xp: Library, x: Array, y: Array) -> Any:
        product = x * getattr(xp, log)(y)
        return xp.where((x == 0) & ~xp.isnan(y), xp.zeros_like(product), product)

    def rule_x(F: Namespace, g: Value, x: Value, y: Value) -> Any:
        return F.mask(getattr(F, name)(g, y), ~((x == 0) & (y <= least)))

    rules = {"x": rule_x, "y": lambda F, g, x, y: F.div(F.mul(g, x), inside(y))}
    return binary(name, forward=compute, pulls=rules, linear=True, of_real=True, **more)


def _special_of_two(
    name: str, function: str, by_y: Callable[..., Any], node: str, **more: Any
) -> Any:
    """A special function of two numbers, without a derivative by the first one."""

    def rule(F: Namespace, g: Value, x: Value, y: Value) -> Any:
        return F.mul(g, by_y(F, x, y))

    pulls = {"x": Refused(name), "y": rule}
    forward = without_fp_errors(lambda xp, x, y: _computed(name, function, x, y))
    pushes = {"y": rule}
    return binary(name, forward=forward, pulls=pulls, pushes=pushes, wide=True, node=node, **more)


def _gamma_density(F: Namespace, x: Value, y: Value) -> Any:
    return F.exp((x - 1) * F.log(y) - y - F.lgamma(x))


def _bessel_over_itself(
    F: Namespace, x: Value, out: Value, sign: int = 1, scaled: bool = False
) -> Any:
    """`i1(x) / x`, or `j1(x) / x` with a negative sign: near 0 by its series.

    There the derivatives of a quotient would be differences of large numbers.
    """
    nothing = F.zero(x)
    near = (x > -0.1) & (x < 0.1)
    small = F.where(near, x, nothing)
    square = small * small * (sign / 4)
    series = square * 0
    for k in (4, 3, 2, 1):
        series = (series + 1) * square * (1 / (k * (k + 1)))
    series = (series + 1) * 0.5
    if scaled:
        series = series * F.exp(-F.abs(small))
    return F.where(near, series, F.div(out, F.where(near, nothing + 1, x)))


def _sinc_slope(F: Namespace, x: Value) -> Any:
    """`(cos(pi x) - sinc(x)) / x`; near 0 by its series, as `_bessel_over_itself`."""
    nothing = F.zero(x)
    near = F.abs(x) < 0.1
    small = F.where(near, x, nothing) * math.pi
    square = small * small
    series = nothing + 1
    for factor in (130, 88, 54, 28, 10):
        series = series * square * (-1 / factor) + 1
    far, cos = F.where(near, nothing + 1, x), F.cos(x * math.pi)
    return F.where(near, small * series * (-math.pi / 3), F.div(cos - F.sinc(x), far))


def _log_ndtr_slope(F: Namespace, x: Value, out: Value) -> Any:
    """The density over the share below: exact far below 0, and finite derivatives far above."""
    above, nothing = x > 0, F.zero(x)
    high, low = F.where(above, x, nothing), F.where(above, nothing, x)
    upper = F.exp(high * high * -0.5 - F.where(above, out, nothing)) * 0.5
    lower = F.reciprocal(F.erfcx(low * -_ROOT_HALF))
    return F.where(above, upper, lower) * (_TWO_OVER_ROOT_PI * _ROOT_HALF)


def _logit_pull(F: Namespace, g: Value, x: Value) -> Any:
    slope = F.div(g, x * (1 - x))
    return F.where((x < 0) | (x > 1), F.zero(slope) + math.nan, slope)


def _same_sign(F: Namespace, g: Value, x: Value, out: Value) -> Any:
    """The gradient, negated where the sign was changed; 0 where x is 0."""
    return F.mul(g, F.mask(F.div(out, x), x != 0))


def _not_of_integers(name: str) -> Callable[..., None]:
    def check(x: Any, y: Any) -> None:
        if not {x._metadata.dtype.kind, y._metadata.dtype.kind} & {*INEXACT}:
            refuse(name, x._metadata.dtype)

    return check


def _log_of_powers(name: str, power: str) -> Op:
    """The logarithm of the sum of two powers; each derivative is a share of that sum."""
    return binary(
        name,
        lambda F, x, y: F.reciprocal(getattr(F, power)(y - x) + 1),
        lambda F, x, y: F.reciprocal(getattr(F, power)(x - y) + 1),
        IgnoringFpErrors(name),
        of_real=True,
    )


OPS = (
    ufunc("asinh", lambda F, x: F.rsqrt(x * x + 1), "The inverse hyperbolic sine.", "arcsinh"),
    ufunc("acosh", _acosh_slope, "The inverse hyperbolic cosine, NaN below 1.", "arccosh"),
    ufunc(
        "atanh",
        lambda F, x: F.reciprocal(1 - x * x),
        "The inverse hyperbolic tangent, NaN beyond -1 and 1.",
        "arctanh",
    ),
    _special(
        "erfc",
        lambda F, x: F.exp(-(x * x)) * -_TWO_OVER_ROOT_PI,
        "One minus the error function.",
        public="erfc special.erfc",
    ),
    _special(
        "erfinv",
        lambda F, out: F.exp(out * out) / _TWO_OVER_ROOT_PI,
        "The inverse of the error function, NaN beyond -1 and 1.",
        public="erfinv special.erfinv",
    ),
    unary(
        "logit",
        forward=without_fp_errors(lambda xp, x: xp.log(x / (1 - x))),
        pulls={"x": _logit_pull},
        linear=True,
    ),
    unary(
        "lgamma",
        lambda F, x: F.digamma(x),
        _lgamma,
        wide=True,
        cost=501,
        doc="The logarithm of the absolute value of the gamma function.",
        public="lgamma special.gammaln",
    ),
    _special(
        "digamma",
        lambda F, x: F.polygamma(x, 1),
        "The derivative of the logarithm of the gamma function.",
        cost=201,
        public="digamma special.digamma special.psi",
    ),
    unary(
        "polygamma",
        forward=without_fp_errors(lambda xp, x, n: _computed("polygamma", "polygamma", n, x)),
        attributes="n",
        wide=True,
        cost=201,
        pulls={"x": lambda F, g, x, n: F.mul(g, F.polygamma(x, n + 1))},
        linear=True,
    ),
    _special("entr", lambda F, x: -1 - F.log(x), "`-x log(x)`: 0 at 0, and minus infinity below."),
    _special(
        "ndtr",
        lambda F, x: F.normal_pdf(x),
        "The share of the standard normal distribution that lies below.",
    ),
    _special(
        "ndtri",
        lambda F, out: F.exp(out * out * 0.5) * math.sqrt(2 * math.pi),
        "The inverse of `ndtr`: infinite at 0 and 1, NaN beyond.",
    ),
    _special(
        "log_ndtr",
        _log_ndtr_slope,
        "The logarithm of `ndtr`, exact far below 0, too.",
        cost=31,
    ),
    _special(
        "erfcx",
        lambda F, x, out: 2 * x * out - _TWO_OVER_ROOT_PI,
        "The complementary error function times `exp(x ** 2)`.",
    ),
    unary(
        "sinc",
        _sinc_slope,
        without_fp_errors(lambda xp, x: xp.sinc(x)),
        wide=True,
        cost=11,
        doc="`sin(pi x) / (pi x)`, and 1 at 0.",
        public="sinc special.sinc",
    ),
    _special(
        "i0",
        lambda F, x: F.i1(x),
        "The modified Bessel function of the first kind, of order 0.",
        cost=51,
        public="i0 special.i0 special.modified_bessel_i0",
    ),
    _special(
        "i0e",
        lambda F, x, out: F.i1e(x) - F.sgn(x) * out,
        "`i0`, times `exp(-|x|)`.",
        cost=51,
    ),
    _special(
        "i1",
        lambda F, x, out: F.i0(x) - _bessel_over_itself(F, x, out),
        "The modified Bessel function of the first kind, of order 1.",
        cost=51,
        node="SpecialI1Backward0",
        public="special.i1 special.modified_bessel_i1",
    ),
    _special(
        "i1e",
        lambda F, x, out: F.i0e(x) - F.sgn(x) * out - _bessel_over_itself(F, x, out, scaled=True),
        "`i1`, times `exp(-|x|)`.",
        cost=51,
    ),
    binary(
        "heaviside",
        forward=lambda xp, x, y: xp.where(x == 0, y, (x > 0).astype(x.dtype)),
        pulls={"x": Refused("heaviside"), "y": Refused("heaviside")},
        node="NotImplemented",
        batch=None,
        promotes="any",
        numbers="none",
    ),
    _special(
        "bessel_j0",
        lambda F, x: -F.bessel_j1(x),
        "The Bessel function of the first kind, of order 0.",
        "j0",
    ),
    _special(
        "bessel_j1",
        lambda F, x, out: F.bessel_j0(x) - _bessel_over_itself(F, x, out, -1),
        "The Bessel function of the first kind, of order 1.",
        "j1",
    ),
    _special(
        "bessel_y0",
        lambda F, x: -F.bessel_y1(x),
        "The Bessel function of the second kind, of order 0.",
        "y0",
    ),
    _special(
        "bessel_y1",
        lambda F, x, out: F.bessel_y0(x) - F.div(out, x),
        "The Bessel function of the second kind, of order 1.",
        "y1",
    ),
    _special(
        "modified_bessel_k0",
        lambda F, x: -F.modified_bessel_k1(x),
        "The modified Bessel function of the second kind, of order 0.",
        "k0",
    ),
    _special(
        "modified_bessel_k1",
        lambda F, x, out: -F.modified_bessel_k0(x) - F.div(out, x),
        "The modified Bessel function of the second kind, of order 1.",
        "k1",
    ),
    _special(
        "scaled_modified_bessel_k0",
        lambda F, x, out: out - F.scaled_modified_bessel_k1(x),
        "`modified_bessel_k0`, times `exp(x)`.",
        "k0e",
    ),
    _special(
        "scaled_modified_bessel_k1",
        lambda F, x, out: out - F.scaled_modified_bessel_k0(x) - F.div(out, x),
        "`modified_bessel_k1`, times `exp(x)`.",
        "k1e",
    ),
    _special_of_two(
        "zeta",
        "zeta",
        lambda F, x, y: -(x * F.zeta(x + 1, y)),
        "SpecialZetaBackward0",
        numbers="either",
        doc=(
            "The Hurwitz zeta function: `input` is the exponent, by which there is no "
            "derivative, `other` the offset."
        ),
        public="special.zeta",
    ),
    _special_of_two(
        "igamma",
        "gammainc",
        _gamma_density,
        "IgammaBackward0",
        cost=21,
        promotes="any",
        numbers="none",
        doc=(
            "The lower incomplete gamma function, over the whole; no derivative by `input`. "
            "Needs SciPy."
        ),
        public="igamma special.gammainc",
    ),
    _special_of_two(
        "igammac",
        "gammaincc",
        lambda F, x, y: -_gamma_density(F, x, y),
        "IgammacBackward0",
        cost=21,
        promotes="any",
        numbers="none",
        doc=(
            "The upper incomplete gamma function, over the whole; no derivative by `input`. "
            "Needs SciPy."
        ),
        public="igammac special.gammaincc",
    ),
    _times_logarithm(
        "xlog1py",
        "log1p",
        -1,
        lambda y: y + 1,
        node="SpecialXlog1PyBackward0",
        numbers="either",
        doc="`input * log1p(other)`, and 0 where `input` is, broadcast.",
        public="special.xlog1py",
    ),
    binary(
        "hypot",
        lambda F, x, out: F.div(x, out),
        lambda F, y, out: F.div(y, out),
        IgnoringFpErrors("hypot"),
        of_real=True,
        numbers="none",
        check=_not_of_integers("hypot"),
        doc="The length of the hypotenuse, `sqrt(input**2 + other**2)`, broadcast.",
    ),
    _log_of_powers("logaddexp", "exp"),
    _log_of_powers("logaddexp2", "exp2"),
    binary(
        "copysign",
        forward=IgnoringFpErrors("copysign"),
        of_real=True,
        pulls={"x": _same_sign, "y": lambda F, g: F.zero(g)},
        linear=True,
        doc="The absolute values of `input` with the signs of `other`.",
    ),
    _times_logarithm(
        "xlogy",
        "log",
        0,
        lambda y: y,
        numbers="either",
        doc="`input * log(other)`, and 0 where `input` is, broadcast.",
        public="xlogy special.xlogy",
    ),
    binary(
        "nextafter",
        forward=IgnoringFpErrors("nextafter"),
        of_real=True,
        pulls={"x": lambda F, g, x, y: F.mask(g, x != y), "y": lambda F, g: F.zero(g)},
        linear=True,
        numbers="none",
        check=_not_of_integers("nextafter"),
        doc="The next number after `input` in the direction of `other`.",
    ),
)
