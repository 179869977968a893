"""Special functions: `asyncgrad.special`. Those that NumPy lacks need SciPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.ops.functions.activation import log_softmax, softmax
from asyncgrad.ops.functions.elementwise import (
    erf,
    exp2,
    expm1,
    log1p,
    of_one,
    of_two,
    round,
    sigmoid,
)
from asyncgrad.ops.functions.reduction import logsumexp
from asyncgrad.ops.functions.transcendental import (
    digamma,
    erfc,
    erfinv,
    i0,
    lgamma,
    logit,
    mvlgamma,
    polygamma,
    sinc,
    xlogy,
)
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.out import writes

if TYPE_CHECKING:
    from asyncgrad.tensor import Tensor

__all__ = [
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gammaln",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "log1p",
    "log_ndtr",
    "log_softmax",
    "logit",
    "logsumexp",
    "multigammaln",
    "ndtr",
    "ndtri",
    "polygamma",
    "psi",
    "round",
    "sinc",
    "softmax",
    "xlog1py",
    "xlogy",
    "zeta",
]

entr = of_one("entr", "`-x log(x)`: 0 at 0, and minus infinity below.")
erfcx = of_one("erfcx", "The complementary error function times `exp(x ** 2)`.")
i0e = of_one("i0e", "`i0`, times `exp(-|x|)`.")
i1 = of_one("i1", "The modified Bessel function of the first kind, of order 1.")
i1e = of_one("i1e", "`i1`, times `exp(-|x|)`.")
log_ndtr = of_one("log_ndtr", "The logarithm of `ndtr`, exact far below 0, too.")
ndtr = of_one("ndtr", "The share of the standard normal distribution that lies below.")
ndtri = of_one("ndtri", "The inverse of `ndtr`: infinite at 0 and 1, NaN beyond.")
xlog1py = of_two("xlog1py", "`input * log1p(other)`, and 0 where `input` is, broadcast.")


@writes
def zeta(input: Any, other: Any) -> Tensor:
    """The Hurwitz zeta function, broadcast.

    Args:
        input: the exponent, a real tensor or a number.
        other: the offset.

    Raises:
        NotImplementedError: in the backward pass, if a derivative by `input` is needed.
    """
    return R.zeta(input, other)


expit = sigmoid
gammaln = lgamma
psi = digamma
multigammaln = mvlgamma
