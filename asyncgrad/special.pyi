"""Special functions: PyTorch's `torch.special`."""

# Written by tools/make_stubs.py from the running package.

from asyncgrad import digamma as digamma, digamma as psi, erf as erf, erfc as erfc, erfinv as erfinv, exp2 as exp2, expm1 as expm1, i0 as i0, i0 as modified_bessel_i0, igamma as gammainc, igammac as gammaincc, lgamma as gammaln, log1p as log1p, log_softmax as log_softmax, logit as logit, logsumexp as logsumexp, mvlgamma as multigammaln, polygamma as polygamma, round as round, sigmoid as expit, sinc as sinc, softmax as softmax, xlogy as xlogy
from asyncgrad.tensor import Tensor
from asyncgrad.types import Number

__all__ = ['bessel_j0', 'bessel_j1', 'bessel_y0', 'bessel_y1', 'digamma', 'entr', 'erf', 'erfc', 'erfcx', 'erfinv', 'exp2', 'expit', 'expm1', 'gammainc', 'gammaincc', 'gammaln', 'i0', 'i0e', 'i1', 'i1e', 'log1p', 'log_ndtr', 'log_softmax', 'logit', 'logsumexp', 'modified_bessel_i0', 'modified_bessel_i1', 'modified_bessel_k0', 'modified_bessel_k1', 'multigammaln', 'ndtr', 'ndtri', 'polygamma', 'psi', 'round', 'scaled_modified_bessel_k0', 'scaled_modified_bessel_k1', 'sinc', 'softmax', 'xlog1py', 'xlogy', 'zeta']

def bessel_j0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The Bessel function of the first kind, of order 0."""
def bessel_j1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The Bessel function of the first kind, of order 1."""
def bessel_y0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The Bessel function of the second kind, of order 0."""
def bessel_y1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The Bessel function of the second kind, of order 1."""
def entr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`-x log(x)`: 0 at 0, and minus infinity below."""
def erfcx(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The complementary error function times `exp(x ** 2)`."""
def i0e(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`i0`, times `exp(-|x|)`."""
def i1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function of the first kind, of order 1."""
def i1e(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`i1`, times `exp(-|x|)`."""
def log_ndtr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of `ndtr`, exact far below 0, too."""
def modified_bessel_i1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function of the first kind, of order 1."""
def modified_bessel_k0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function of the second kind, of order 0."""
def modified_bessel_k1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function of the second kind, of order 1."""
def ndtr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The share of the standard normal distribution that lies below."""
def ndtri(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse of `ndtr`: infinite at 0 and 1, NaN beyond."""
def scaled_modified_bessel_k0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`modified_bessel_k0`, times `exp(x)`."""
def scaled_modified_bessel_k1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`modified_bessel_k1`, times `exp(x)`."""
def xlog1py(input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """`input * log1p(other)`, and 0 where `input` is, broadcast."""
def zeta(input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """The Hurwitz zeta function: `input` is the exponent, by which there is no derivative, `other` the offset."""
