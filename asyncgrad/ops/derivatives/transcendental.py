"""More curves: inverse hyperbolic functions, error and gamma functions, and pairs of numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from asyncgrad.devices.quiet import quiet
from asyncgrad.ops.derivatives.elementwise import refuse
from asyncgrad.ops.entry import binary, operation, part, unary
from asyncgrad.ops.namespace import Quiet
from asyncgrad.ops.special import needs_scipy

if TYPE_CHECKING:
    from collections.abc import Callable

_TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)


def _of_scipy(name: str, function: str = "") -> Callable[..., Any]:
    """A special function of real numbers; halves are computed in single precision."""

    def compute(xp: Any, x: Any) -> Any:
        return _computed(xp, name, function or name, x)

    return quiet(compute)


def _computed(xp: Any, name: str, function: str, x: Any, *before: Any) -> Any:
    if x.dtype.kind not in "fV":
        refuse(name, x.dtype)
    known = x if x.dtype.itemsize > 2 else x.astype(xp.float32)
    return getattr(needs_scipy(name), function)(*before, known).astype(x.dtype, copy=False)


@quiet
def _polygamma(xp: Any, x: Any, n: int) -> Any:
    return _computed(xp, "polygamma", "polygamma", x, n)


def _real(name: str, function: str) -> Callable[..., Any]:
    """A library's function that refuses complex numbers."""

    def compute(xp: Any, x: Any, y: Any) -> Any:
        if x.dtype.kind == "c":
            refuse(name, x.dtype)
        return getattr(xp, function)(x, y)

    return quiet(compute)


def _acosh_slope(F: Any, x: Any) -> Any:
    if x.dtype.kind == "c":
        return F.rsqrt(x - 1) * F.rsqrt(x + 1)
    return F.rsqrt(x * x - 1)


@quiet
def _xlogy(xp: Any, x: Any, y: Any) -> Any:
    if x.dtype.kind == "c":
        refuse("xlogy", x.dtype)
    product = x * xp.log(y)
    return xp.where((x == 0) & ~xp.isnan(y), xp.zeros_like(product), product)


def _xlogy_by_x(F: Any, g: Any, x: Any, y: Any) -> Any:
    return F.mask(F.mul(g, F.log(y)), ~((x == 0) & (y <= 0)))


def _xlogy_by_y(F: Any, g: Any, x: Any, y: Any) -> Any:
    return F.mul(g, F.div(x, y))


def _same_sign(F: Any, g: Any, x: Any, out: Any) -> Any:
    """Forwards or backwards, depending on whether the sign was changed."""
    return F.mul(g, F.mul(F.sgn(x), F.sgn(out)))


ENTRIES = (
    unary("asinh", lambda F, x: F.rsqrt(x * x + 1), Quiet("arcsinh")),
    unary("acosh", _acosh_slope, Quiet("arccosh")),
    unary("atanh", lambda F, x: F.reciprocal(1 - x * x), Quiet("arctanh")),
    unary("erfc", lambda F, x: F.exp(-(x * x)) * -_TWO_OVER_ROOT_PI, _of_scipy("erfc")),
    unary("erfinv", lambda F, out: F.exp(out * out) / _TWO_OVER_ROOT_PI, _of_scipy("erfinv")),
    unary("lgamma", lambda F, x: F.digamma(x), _of_scipy("lgamma", "gammaln")),
    unary("digamma", lambda F, x: F.polygamma(x, 1), _of_scipy("digamma")),
    operation(
        "polygamma",
        _polygamma,
        "x",
        "n",
        pulls={"x": lambda F, g, x, n: F.mul(g, F.polygamma(x, n + 1))},
        pushes={"x": lambda F, t, x, n: F.mul(t, F.polygamma(x, n + 1))},
    ),
    binary(
        "hypot",
        lambda F, x, out: F.div(x, out),
        lambda F, y, out: F.div(y, out),
        _real("hypot", "hypot"),
    ),
    binary(
        "copysign",
        forward=_real("copysign", "copysign"),
        pulls={"x": part(_same_sign), "y": part(lambda F, g: F.zeros_of(g))},
        pushes={"x": part(_same_sign), "y": part(lambda F, t: F.zeros_of(t))},
    ),
    binary(
        "xlogy",
        forward=_xlogy,
        pulls={"x": part(_xlogy_by_x), "y": part(_xlogy_by_y)},
        pushes={"x": part(_xlogy_by_x), "y": part(_xlogy_by_y)},
    ),
    binary(
        "nextafter",
        forward=_real("nextafter", "nextafter"),
        pulls={"x": part(lambda F, g: g), "y": part(lambda F, g: F.zeros_of(g))},
        pushes={"x": part(lambda F, t: t), "y": part(lambda F, t: F.zeros_of(t))},
        fresh=False,
        frees=("x", "y"),
    ),
)
