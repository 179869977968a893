"""Kernels of single elements: activations, their derivatives, and losses of pairs."""

from __future__ import annotations

import math

from asyncgrad.records import NamedTuple


class Elementwise(NamedTuple):
    """A kernel that computes each element, number `i`, by itself.

    The body is C++, which `host_kernels` translates to Python. An output that it reads before it
    writes there is changed in place.
    """

    inputs: str
    outputs: str
    body: str
    #: Functions of C++ that the body calls.
    functions: str = ""


#: log(1 / cdf(x) - 1) / x, with the normal distribution's cdf, as a polynomial in x * x for |x| <
#: 5.8. It is the minimax approximation: the largest error of the cdf is 3e-8. For larger |x| it
#: falls, so that the cdf is 0 or 1.
NORMAL_CDF = (
    -3.512325569644799e-09,
    2.6452609042889884e-07,
    -7.929481129530227e-06,
    0.00011061234335693268,
    6.519006033151346e-05,
    -0.07266616924249042,
    -1.595769882918655,
)
CDF = f"T(0.5) * (T(1) + erf(x * T({math.sqrt(0.5)!r})))"
_PDF = f"exp(x * x * T(-0.5)) * T({1 / math.sqrt(2 * math.pi)!r})"
_A, _B = math.sqrt(2 / math.pi), 0.044715 * math.sqrt(2 / math.pi)
_CUBIC = f"T t = tanh(x * (x * x * T({_B!r}) + T({_A!r})))"
_LOGISTIC = "T s = T(1) / (T(1) + exp(-x))"
_SOFTPLUS = "T top = z > T(0) ? z : T(0); T rest = log1p(exp(-abs(z)))"
#: tanh(softplus(x)) is `upper / lower`, and `rest / lower` its distance from 1. Both come from an
#: exponential that is at most 1, so that nothing overflows.
_TANH_OF_SOFTPLUS = (
    "T w = exp(-abs(x)); T upper = x > T(0) ? T(1) + T(2) * w : w * (w + T(2));"
    "T rest = x > T(0) ? T(2) * w * w : T(2); T lower = upper + rest"
)

#: The names of inputs that are numbers.
NUMBERS = frozenset({"alpha", "beta", "delta", "factor", "slope", "threshold"})

POINTWISE = {
    "gelu": Elementwise("T x", "T y", f"y = x * ({CDF})"),
    "gelu_gradient": Elementwise("T g, T x", "T d", f"d = g * ({CDF} + x * ({_PDF}))"),
    "gelu_tanh": Elementwise("T x", "T y", f"{_CUBIC}; y = T(0.5) * x * (T(1) + t)"),
    "gelu_tanh_gradient": Elementwise(
        "T g, T x",
        "T d",
        f"{_CUBIC}; T s = T(1) + t; T u = x * x * T({3 * _B!r}) + T({_A!r});"
        "d = g * T(0.5) * (s + (T(1) - t) * s * x * u)",
    ),
    "silu": Elementwise("T x", "T y", f"{_LOGISTIC}; y = x * s"),
    "silu_gradient": Elementwise(
        "T g, T x", "T d", f"{_LOGISTIC}; d = g * s * (T(1) + x * (T(1) - s))"
    ),
    "sigmoid": Elementwise("T x", "T y", f"{_LOGISTIC}; y = s"),
    "sigmoid_gradient": Elementwise("T g, T y", "T d", "d = g * (y - y * y)"),
    "tanh_gradient": Elementwise("T g, T y", "T d", "d = g * (T(1) - y * y)"),
    "leaky_relu": Elementwise("T x, T slope", "T y", "y = x > T(0) ? x : x * slope"),
    "leaky_gradient": Elementwise("T g, T y, T slope", "T d", "d = y > T(0) ? g : g * slope"),
    "elu": Elementwise("T x, T alpha", "T y", "T e = alpha * expm1(x); y = x > T(0) ? x : e"),
    "elu_slope": Elementwise(
        "T x, T alpha", "T d", "T e = alpha * exp(x); d = x <= T(0) ? e : T(1)"
    ),
    "softplus": Elementwise(
        "T x, T beta, T threshold",
        "T y",
        f"T z = x * beta; {_SOFTPLUS}; T s = (top + rest) / beta; y = z > threshold ? x : s",
    ),
    "softplus_slope": Elementwise(
        "T x, T beta, T threshold",
        "T d",
        "T z = x * beta; T s = T(1) / (T(1) + exp(-z)); d = z > threshold ? T(1) : s",
    ),
    "mish": Elementwise("T x", "T y", f"{_TANH_OF_SOFTPLUS}; y = x * (upper / lower)"),
    "mish_gradient": Elementwise(
        "T g, T x",
        "T d",
        f"{_TANH_OF_SOFTPLUS}; T t = upper / lower; T up = x > T(0) ? T(1) : w;"
        "d = g * (t + x * (up / (T(1) + w)) * (rest / lower) * (T(1) + t))",
    ),
    "logsigmoid": Elementwise("T x", "T y", f"T z = -x; {_SOFTPLUS}; y = -(top + rest)"),
    "logsigmoid_gradient": Elementwise("T g, T x", "T d", "d = g / (T(1) + exp(x))"),
    "hardswish": Elementwise(
        "T x",
        "T y",
        "T z = x + T(3); T up = z < T(0) ? T(0) : z; T s = up > T(6) ? T(6) : up;y = x * s / T(6)",
    ),
    "hardswish_gradient": Elementwise(
        "T g, T x",
        "T d",
        "T s = g * (x / T(3) + T(0.5)); T r = x < T(3) ? s : g; d = x <= T(-3) ? T(0) : r",
    ),
    # Losses of pairs, and their derivatives by the first of each times a factor.
    "squared_loss": Elementwise("T x, T y", "T d", "T e = x - y; d = e * e"),
    "squared_loss_by_x": Elementwise(
        "T x, T y, T factor", "T d", "T e = x - y; d = (e + e) * factor"
    ),
    "absolute_loss": Elementwise("T x, T y", "T d", "d = abs(x - y)"),
    "absolute_loss_by_x": Elementwise(
        "T x, T y, T factor",
        "T d",
        "T e = x - y; T up = e > T(0) ? factor : T(0); T down = e < T(0) ? factor : T(0);"
        "d = up - down",
    ),
    "huber_loss": Elementwise(
        "T x, T y, T delta",
        "T d",
        "T e = abs(x - y); T less = e > delta ? delta : e; d = less * (e - T(0.5) * less)",
    ),
    "huber_loss_by_x": Elementwise(
        "T x, T y, T factor, T delta",
        "T d",
        "T e = x - y; T less = e > delta ? delta : e; T s = less < -delta ? -delta : less;"
        "d = s * factor",
    ),
    "binary_cross_entropy_with_logits": Elementwise(
        "T x, T y", "T d", f"T z = -x; {_SOFTPLUS}; d = (T(1) - y) * x + top + rest"
    ),
    "binary_cross_entropy_with_logits_by_x": Elementwise(
        "T x, T y, T factor", "T d", f"{_LOGISTIC}; d = (s - y) * factor"
    ),
    "masked": Elementwise("T x, T keep", "T y", "y = keep != 0 ? x : T(0)"),
}

LOSSES = tuple(name for name in POINTWISE if f"{name}_by_x" in POINTWISE)
LOSS_SLOPES = tuple(f"{name}_by_x" for name in LOSSES)
