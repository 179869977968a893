"""Special functions: PyTorch's `torch.special`."""

# Written by tools/make_stubs.py from the running package.

from asyncgrad.tensor import Tensor
from asyncgrad.types import DTypeLike
from asyncgrad.types import Ints
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
def digamma(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The derivative of the logarithm of the gamma function."""
def entr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`-x log(x)`: 0 at 0, and minus infinity below."""
def erf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The error function of each element."""
def erfc(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """One minus the error function."""
def erfcx(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The complementary error function times `exp(x ** 2)`."""
def erfinv(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse of the error function, NaN beyond -1 and 1."""
def exp2(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """2 to the power of each element."""
def expit(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """1 / (1 + exp(-x)) of each element."""
def expm1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """exp(x) - 1 of each element, exact near 0."""
def gammainc(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The lower incomplete gamma function, over the whole; no derivative by `input`. Needs SciPy."""
def gammaincc(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The upper incomplete gamma function, over the whole; no derivative by `input`. Needs SciPy."""
def gammaln(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the absolute value of the gamma function."""
def i0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function of the first kind, of order 0."""
def i0e(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`i0`, times `exp(-|x|)`."""
def i1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function of the first kind, of order 1."""
def i1e(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`i1`, times `exp(-|x|)`."""
def log1p(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """log(1 + x) of each element, exact near 0."""
def log_ndtr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of `ndtr`, exact far below 0, too."""
def log_softmax(input: Tensor, dim: int, dtype: DTypeLike | None = None, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the softmax along `dim`.

    Args:
        input: a tensor of a floating dtype, or of any if `dtype` is given.
        dtype: the floating dtype to compute in.

    Raises:
        NotImplementedError: for a dtype that is not floating.
    """
def logit(input: Tensor, eps: float | None = None, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the odds, `log(x / (1 - x))`.

    Args:
        input: probabilities.
        eps: probabilities are clamped to [eps, 1 - eps]; outside there is no gradient.
    """
def logsumexp(input: Tensor, dim: Ints | None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the sum of the exponentials over some axes, without overflow.

    Args:
        input: any tensor; integers become floating.
        dim: an axis, or a sequence of them.
    """
def modified_bessel_i0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function of the first kind, of order 0."""
def modified_bessel_i1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function of the first kind, of order 1."""
def modified_bessel_k0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function of the second kind, of order 0."""
def modified_bessel_k1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function of the second kind, of order 1."""
def multigammaln(input: Tensor, p: int, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension `p`.

    Args:
        input: any real tensor, above `(p - 1) / 2`.
        p: the dimension.
    """
def ndtr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The share of the standard normal distribution that lies below."""
def ndtri(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse of `ndtr`: infinite at 0 and 1, NaN beyond."""
def polygamma(n: int, input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The derivative of `digamma` of order `n`."""
def psi(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The derivative of the logarithm of the gamma function."""
def round(input: Tensor, *, decimals: int = 0, out: Tensor | None = None) -> Tensor:
    """Each element rounded to the nearest, halves to even; the gradient is 0.

    Args:
        input: any real tensor.
        decimals: how many decimal places are kept; if negative, places before the point.

    Raises:
        NotImplementedError: for dtypes that are not rounded, or integers with `decimals`.
    """
def scaled_modified_bessel_k0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`modified_bessel_k0`, times `exp(x)`."""
def scaled_modified_bessel_k1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`modified_bessel_k1`, times `exp(x)`."""
def sinc(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`sin(pi x) / (pi x)`, and 1 at 0."""
def softmax(input: Tensor, dim: int, dtype: DTypeLike | None = None, *, out: Tensor | None = None) -> Tensor:
    """The exponentials, divided by their sum along `dim`.

    Args:
        input: a tensor of a floating dtype, or of any if `dtype` is given.
        dtype: the floating dtype to compute in.

    Raises:
        NotImplementedError: for a dtype that is not floating.
    """
def xlog1py(input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """`input * log1p(other)`, and 0 where `input` is, broadcast."""
def xlogy(input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """`input * log(other)`, and 0 where `input` is, broadcast."""
def zeta(input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """The Hurwitz zeta function: `input` is the exponent, by which there is no derivative, `other` the offset."""
