"""Special functions: `asyncgrad.special`. Those that NumPy lacks are faster with SciPy."""

from __future__ import annotations

from asyncgrad.ops.api.activation import log_softmax, softmax
from asyncgrad.ops.api.elementwise import (
    erf,
    exp2,
    expm1,
    log1p,
    of_one,
    of_two,
    round,
    sigmoid,
)
from asyncgrad.ops.api.reduction import logsumexp
from asyncgrad.ops.api.transcendental import (
    digamma,
    erfc,
    erfinv,
    i0,
    igamma,
    igammac,
    lgamma,
    logit,
    mvlgamma,
    polygamma,
    sinc,
    xlogy,
)

__all__ = [
    "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "digamma", "entr", "erf", "erfc", "erfcx",
    "erfinv", "exp2", "expit", "expm1", "gammainc", "gammaincc", "gammaln", "i0", "i0e", "i1",
    "i1e", "log1p", "log_ndtr", "log_softmax", "logit", "logsumexp", "modified_bessel_i0",
    "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "multigammaln", "ndtr",
    "ndtri", "polygamma", "psi", "round", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1",
    "sinc", "softmax", "xlog1py", "xlogy", "zeta",
]  # fmt: skip

entr = of_one("entr", "`-x log(x)`: 0 at 0, and minus infinity below.")
erfcx = of_one("erfcx", "The complementary error function times `exp(x ** 2)`.")
i0e = of_one("i0e", "`i0`, times `exp(-|x|)`.")
i1 = of_one("i1", "The modified Bessel function of the first kind, of order 1.")
i1e = of_one("i1e", "`i1`, times `exp(-|x|)`.")
log_ndtr = of_one("log_ndtr", "The logarithm of `ndtr`, exact far below 0, too.")
ndtr = of_one("ndtr", "The share of the standard normal distribution that lies below.")
ndtri = of_one("ndtri", "The inverse of `ndtr`: infinite at 0 and 1, NaN beyond.")
xlog1py = of_two("xlog1py", "`input * log1p(other)`, and 0 where `input` is, broadcast.")
bessel_j0 = of_one("bessel_j0", "The Bessel function of the first kind, of order 0.")
bessel_j1 = of_one("bessel_j1", "The Bessel function of the first kind, of order 1.")
bessel_y0 = of_one("bessel_y0", "The Bessel function of the second kind, of order 0.")
bessel_y1 = of_one("bessel_y1", "The Bessel function of the second kind, of order 1.")
modified_bessel_i0 = i0
modified_bessel_i1 = i1
modified_bessel_k0 = of_one(
    "modified_bessel_k0", "The modified Bessel function of the second kind, of order 0."
)
modified_bessel_k1 = of_one(
    "modified_bessel_k1", "The modified Bessel function of the second kind, of order 1."
)
scaled_modified_bessel_k0 = of_one(
    "scaled_modified_bessel_k0", "`modified_bessel_k0`, times `exp(x)`."
)
scaled_modified_bessel_k1 = of_one(
    "scaled_modified_bessel_k1", "`modified_bessel_k1`, times `exp(x)`."
)
zeta = of_two(
    "zeta",
    "The Hurwitz zeta function: `input` is the exponent, by which there is no derivative, `other` "
    "the offset.",
)
expit = sigmoid
gammainc = igamma
gammaincc = igammac
gammaln = lgamma
psi = digamma
multigammaln = mvlgamma
