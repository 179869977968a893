"""CUDA kernels that each replace a chain of library calls by one launch.

They have the names of the kernels in `ops.fused` and are used where they support the arguments. A
kernel is compiled once for each dtype. On an event loop a thread compiles it, and the chain is used
until it is ready, or for good if the compiler fails.
"""

from __future__ import annotations

import math
from asyncio.events import _get_running_loop
from functools import partial
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from asyncgrad.records import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.aliases import Array, Device, Namespace, Value


class Elementwise(NamedTuple):
    """A kernel with one thread for each element; an output array may be passed to it."""

    inputs: str
    outputs: str
    body: str


class Total(NamedTuple):
    """The sum of an expression along an axis, which stays with length 1."""

    inputs: str
    body: str


_CDF = f"T(0.5) * (T(1) + erf(x * T({math.sqrt(0.5)!r})))"
_PDF = f"exp(x * x * T(-0.5)) * T({1 / math.sqrt(2 * math.pi)!r})"
_A, _B = math.sqrt(2 / math.pi), 0.044715 * math.sqrt(2 / math.pi)
_CUBIC = f"T t = tanh(x * (x * x * T({_B!r}) + T({_A!r})))"
_LOGISTIC = "T s = T(1) / (T(1) + exp(-x))"

SOURCES: dict[str, Elementwise | Total] = {
    "gelu": Elementwise("T x", "T y", f"y = x * ({_CDF})"),
    "gelu_gradient": Elementwise("T g, T x", "T d", f"d = g * ({_CDF} + x * ({_PDF}))"),
    "gelu_tanh": Elementwise("T x", "T y", f"{_CUBIC}; y = T(0.5) * x * (T(1) + t)"),
    "gelu_tanh_gradient": Elementwise(
        "T g, T x",
        "T d",
        f"{_CUBIC}; T u = x * (x * x * T({3 * _B!r}) + T({_A!r}));"
        "d = g * T(0.5) * (T(1) + t) * (T(1) + (T(1) - t) * u)",
    ),
    "silu": Elementwise("T x", "T y", f"{_LOGISTIC}; y = x * s"),
    "silu_gradient": Elementwise(
        "T g, T x", "T d", f"{_LOGISTIC}; d = g * s * (T(1) + x * (T(1) - s))"
    ),
    "exp_total": Total("T x, T top", "exp(x - top)"),
    "product_total": Total("T x, T y", "x * y"),
    "share": Elementwise("T x, T top, T total", "T y", "y = exp(x - top) / total"),
    "log_share": Elementwise("T x, T top, T total", "T y", "y = x - top - log(total)"),
    "log_total": Elementwise("T top, T total", "T y", "y = log(total) + top"),
    "share_gradient": Elementwise("T g, T y, T total", "T d", "d = y * (g - total)"),
    "log_share_gradient": Elementwise("T g, T y, T total", "T d", "d = g - exp(y) * total"),
    "weighted_share": Elementwise("T x, T sums, T factor", "T p", "p = exp(x - sums) * factor"),
    "square_total": Total("T x, T mean", "(x - mean) * (x - mean)"),
    "deviation": Elementwise("T total, T n, T eps", "T y", "y = T(1) / sqrt(total / n + eps)"),
    "affine": Elementwise(
        "T x, T mean, T inverse, T weight, T bias",
        "T y",
        "y = (x - mean) * inverse * weight + bias",
    ),
    "gradient_total": Total("T g, T weight", "g * weight"),
    "aligned_total": Total(
        "T g, T weight, T x, T mean, T inverse", "g * weight * (x - mean) * inverse"
    ),
    "affine_gradient": Elementwise(
        "T g, T weight, T x, T mean, T inverse, T total, T aligned, T n",
        "T d",
        "d = inverse * (g * weight - total / n - (x - mean) * inverse * aligned / n)",
    ),
    "adam": Elementwise(
        "T gradient, T sign, T shrink, T decay, T keep_mean, T keep_square, T eps, T length,"
        "T correction",
        "T p, T mean, T square",
        "p = p * shrink; T g = sign * gradient + decay * p;"
        "mean = mean + (g - mean) * (T(1) - keep_mean);"
        "square = square * keep_square + g * g * (T(1) - keep_square);"
        "p = p - length * mean / (sqrt(square) / correction + eps)",
    ),
}


# -- what they are put together to: the kernels of `ops.fused`, by name ---------------------------


def _softmax(K: Namespace, x: Array, dim: int) -> Any:
    top = x.max(axis=dim, keepdims=True)
    return K.share(x, top, K.exp_total(x, top, dim))


def _softmax_gradient(K: Namespace, g: Array, y: Array, dim: int) -> Any:
    return K.share_gradient(g, y, K.product_total(g, y, dim))


def _log_softmax(K: Namespace, x: Array, dim: int) -> Any:
    top = x.max(axis=dim, keepdims=True)
    return K.log_share(x, top, K.exp_total(x, top, dim))


def _log_softmax_gradient(K: Namespace, g: Array, y: Array, dim: int) -> Any:
    return K.log_share_gradient(g, y, g.sum(axis=dim, keepdims=True))


def _log_sums(K: Namespace, x: Array, dim: int) -> Any:
    top = x.max(axis=dim, keepdims=True)
    return K.log_total(top, K.exp_total(x, top, dim))


def _one_factor(K: Namespace, x: Array, sums: Array, dim: int, factor: Value) -> Any:
    return K.weighted_share(x, sums, factor)


def _factors(K: Namespace, x: Array, sums: Array, factors: Array, dim: int) -> Any:
    return K.weighted_share(x, sums, factors)


def _layer_norm(
    K: Namespace, x: Array, dim: int, weight: Array, bias: Array, eps: float, kept: list[Any]
) -> Any:
    n = x.shape[1]
    mean = x.mean(axis=1, keepdims=True)
    inverse = K.deviation(K.square_total(x, mean, 1), n, eps)
    kept.append((mean, inverse))
    return K.affine(x, mean, inverse, 1 if weight is None else weight, 0 if bias is None else bias)


def _layer_norm_gradient(
    K: Namespace, g: Array, x: Array, mean: Array, inverse: Array, dim: int, weight: Array,
    sums: None,
) -> Any:  # fmt: skip
    weight = 1 if weight is None else weight
    total = K.gradient_total(g, weight, 1)
    aligned = K.aligned_total(g, weight, x, mean, inverse, 1)
    return K.affine_gradient(g, weight, x, mean, inverse, total, aligned, x.shape[1])


def _adapt(
    K: Namespace, p: Array, g: Array, mean: Array, square: Array, lr: float, beta1: float,
    beta2: float, eps: float, weight_decay: float, decoupled: bool, maximize: bool, length: float,
    correction: float,
) -> None:  # fmt: skip
    shrink = 1 - lr * weight_decay if decoupled else 1.0
    decay = 0.0 if decoupled else weight_decay
    K.adam(
        g, -1.0 if maximize else 1.0, shrink, decay, beta1, beta2, eps, length, correction,
        p, mean, square,
    )  # fmt: skip


def _alone(name: str) -> Callable[..., Any]:
    return lambda K, *arrays: getattr(K, name)(*arrays)


#: The functions by the name of the kernel in `ops.fused`.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{
        name: _alone(name)
        for name in (
            "gelu", "gelu_gradient", "gelu_tanh", "gelu_tanh_gradient", "silu", "silu_gradient",
        )
    },
    "softmax": _softmax,
    "softmax_gradient": _softmax_gradient,
    "log_softmax": _log_softmax,
    "log_softmax_gradient": _log_softmax_gradient,
    "log_sums": _log_sums,
    "one_factor": _one_factor,
    "factors": _factors,
    "layer_norm": _layer_norm,
    "layer_norm_gradient": _layer_norm_gradient,
    "adapt": _adapt,
}  # fmt: skip


class Kernels:
    """The kernels of one device, compiled on first use.

    Args:
        device: its device, which the compiling thread enters.
    """

    def __init__(self, cupy: Any, device: Device) -> None:
        """Remember library and device; nothing is compiled yet."""
        self._cupy = cupy
        self._device = device
        self._lock = Lock()
        #: Arguments whose kernels are ready, were started to compile, or failed to compile.
        self._ready: set[Any] = set()
        self._started: set[Any] = set()
        self._refused: set[Any] = set()
        #: The functions by the names of `ops.fused`.
        self.functions = {name: partial(self._run, name) for name in FUNCTIONS}

    def __getattr__(self, name: str) -> Any:
        source = SOURCES[name]
        full = f"asyncgrad_{name}"
        if isinstance(source, Elementwise):
            kernel = self._cupy.ElementwiseKernel(*source, full)
        else:
            total = self._cupy.ReductionKernel(
                source.inputs, "T y", source.body, "a + b", "y = a", "0", full
            )
            kernel = partial(_along, total)
        setattr(self, name, kernel)
        return kernel

    def _run(self, name: str, *arguments: Value) -> Any:
        """Call a function of `FUNCTIONS`; NotImplemented if the chain has to be used."""
        dtype = None
        sample: list[Any] = []
        for value in arguments:
            if not isinstance(value, self._cupy.ndarray):
                sample.append(None if value is None else type(value))
                continue
            known = value.dtype.char in "fd" and dtype in {None, value.dtype}
            if not known or not value.flags.c_contiguous:
                return NotImplemented
            dtype = value.dtype
            # CuPy compiles for each number of axes and for which of them are broadcast.
            sample.append(tuple([min(n, 2) or 2 for n in value.shape]))
        key = name, dtype, tuple(sample)
        if key not in self._ready and not self._prepare(key, arguments):
            return NotImplemented
        return FUNCTIONS[name](self, *arguments)

    def _prepare(self, key: Value, arguments: tuple[Any, ...]) -> bool:
        """Compile kernels, in another thread if this one runs a loop; True once they are ready."""
        with self._lock:
            if key in self._started:
                return key in self._ready
            self._started.add(key)
        numbers = [None if isinstance(v, self._cupy.ndarray) else v for v in arguments]
        if _get_running_loop() is None:
            self._compile(key, numbers)
        else:
            Thread(target=self._compile, args=(key, numbers), daemon=True).start()
        return key in self._ready

    def _compile(self, key: Value, numbers: list[Any]) -> None:
        """Compile by running a function once on small arrays."""
        name, dtype, sample = key
        try:
            with self._device:
                FUNCTIONS[name](
                    self,
                    *(
                        self._cupy.ones(shape, dtype)
                        if isinstance(shape, tuple)
                        else []
                        if shape is list
                        else number
                        for shape, number in zip(sample, numbers, strict=True)
                    ),
                )
        except Exception:
            # After any error the chain is used, which computes the same.
            self._refused.add(key)
        else:
            self._ready.add(key)


def _along(total: Array, *arguments: Value) -> Any:
    """Apply a reduction along the axis that is the last argument."""
    return total(*arguments[:-1], axis=arguments[-1], keepdims=True)
