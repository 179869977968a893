"""Kernels that each replace a chain of library calls, declared once for all compilers.

They have the names of the kernels in `ops.fused` and are used where they support the arguments.
`cuda_kernels` has them compiled for GPUs, and `host_kernels` for the host.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from asyncgrad.aliases import Array, Namespace, Value
from asyncgrad.devices.pointwise import LOSS_SLOPES, LOSSES, POINTWISE, Elementwise
from asyncgrad.devices.updates import FUNCTIONS as CALLED
from asyncgrad.devices.updates import UPDATES
from asyncgrad.records import NamedTuple

#: Kernels of channels take batches of at most so many elements: on GPUs they count with 32 bits.
_LARGEST_BATCH = (1 << 32) - 1


class Lines(NamedTuple):
    """A kernel that computes something for each line along an axis, such as a softmax.

    Its expressions are those that C++ and Python read alike; `length` is the length of a line.
    Names are separated by spaces, and differ from those in the compilers' texts, such as `part`.
    """

    #: Inputs with an element for each place of each line.
    arrays: str
    #: What is computed, in this order, as `kind name = expression`. "sum", "max" and "let" are
    #: values of a line. "each" is computed for each place, and kept by the host, but computed anew
    #: by GPUs. "out" is a result with an element for each place, and "column" a sum over lines for
    #: each place, which only the host computes.
    body: str
    #: Values of lines that are results.
    results: str = ""
    #: Inputs with one element for each line.
    lines: str = ""
    #: Inputs with one element for each place in a line, each with what stands for None.
    places: str = ""
    numbers: str = ""
    #: A line is a channel, the second axis, of all images of a batch.
    over_batch: bool = False

    def steps(self, *kinds: str) -> list[tuple[str, str, str]]:
        """The kind, the name and the expression of what is computed: of all or of some kinds."""
        found = [re.split(r" (?:= )?", part.strip(), maxsplit=2) for part in self.body.split(";")]
        return [(how, n, value) for how, n, value in found if not kinds or how in kinds]

    def names(self, *kinds: str) -> list[str]:
        """The names of what is computed, of some kinds."""
        return [name for _, name, _ in self.steps(*kinds)]

    def defaults(self) -> dict[str, str]:
        """The names of inputs for places, with what stands for None."""
        return dict(part.split("=") for part in self.places.split())


def _logistic(gate: str, *parts: str) -> str:
    """A statement: the logistic function of twice the sum of a gate and more parts."""
    total = " + ".join((gate, *(f"{part}_{gate}" for part in parts)))
    return f"{gate} = T(0.5) * tanh({total}) + T(0.5);"


SOURCES: dict[str, Elementwise | Lines] = {
    **POINTWISE,
    "softmax": Lines(
        "x",
        "max top = x; each share = exp(x - top); sum total = share; let inverse = 1 / total; "
        "out y = share * inverse",
    ),
    "softmax_gradient": Lines("g y", "sum total = g * y; out d = y * (g - total)"),
    # The maximum and the logarithm are subtracted one by one: their sum would lose the logarithm,
    # which is small, beside a large maximum.
    "log_softmax": Lines(
        "x",
        "max top = x; each less = x - top; sum total = exp(less); "
        "let log_total = log(total); out y = less - log_total",
    ),
    "log_softmax_gradient": Lines("g y", "sum total = g; out d = g - exp(y) * total"),
    "log_sums": Lines(
        "x",
        "max top = x; sum total = exp(x - top); let log_total = log(total)",
        results="log_total top",
    ),
    "shares": Elementwise("T x, T top, T factor", "T p", "p = exp(x - top) * factor"),
    # Where everything is masked, `lowest` is subtracted instead of the maximum, -inf, and the total
    # is 0. Elsewhere the total is at least 1, or NaN. To replace a total of 0 by 1, `max(total, 1)`
    # would not do: in C++ it drops NaN.
    "attention_shares": Lines(
        "x",
        "max peak = x; let top = max(peak, lowest); sum total = exp(x - top); "
        "let bounded = total + max(T(1) - total, T(0)); let log_total = log(bounded) + top; "
        "out weights = exp(x - top) / bounded",
        results="log_total",
        numbers="lowest",
    ),
    "attention_exponentials": Elementwise("T x, T sums", "T y", "y = exp(x - sums)"),
    "attention_slopes": Elementwise("T x, T total, T y", "T d", "d = (x - total) * y"),
    "row_products": Lines("x y", "sum total = x * y", results="total"),
    # `count` is 0 for ignored labels, and NaN for labels that are no class.
    "class_counts": Elementwise(
        "L label, int64 classes, int64 ignored, T unknown",
        "int64 place, T count",
        "bool known = (label >= 0) & (label < classes); place = known ? label : 0;"
        "T counted = known ? T(1) : unknown; count = label == ignored ? T(0) : counted",
    ),
    "class_shares": Elementwise(
        "T count, T total", "T share", "share = total != 0 ? count / total : T(0)"
    ),
    "class_losses": Elementwise(
        "raw T x, T top, T sums, int64 place, T share, T count, int64 classes, int64 beside",
        "T loss",
        "T picked = x[(i - i % beside) * classes + place * beside + i % beside];"
        "loss = count != 0 ? (sums - (picked - top)) * share : T(0)",
    ),
    "class_slopes": Elementwise(
        "T x, T top, T sums, int64 place, T share, T count, T g, int64 classes, int64 beside",
        "T d",
        "T full = count != 0 ? share * g : T(0);"
        "T taken = i % (classes * beside) - i % beside == place * beside ? full : T(0);"
        "d = exp(x - top - sums) * full - taken",
    ),
    "layer_norm": Lines(
        "x",
        "sum total = x; let mean = total / length; sum squares = (x - mean) * (x - mean); "
        "let inverse = 1 / sqrt(squares / length + eps); "
        "out y = (x - mean) * inverse * weight + bias",
        results="mean inverse",
        places="weight=1 bias=0",
        numbers="eps",
    ),
    "layer_norm_gradient": Lines(
        "g x",
        "each weighted = g * weight; sum total = weighted; "
        "sum aligned = weighted * (x - mean); let shift = total / length; "
        "let slope = aligned / length * inverse * inverse; "
        "out d = inverse * (weighted - shift - (x - mean) * slope); "
        "column by_weight = g * ((x - mean) * inverse); column by_bias = g",
        lines="mean inverse",
        places="weight=1",
    ),
    "rms_norm": Lines(
        "x",
        "sum squares = x * x; let inverse = 1 / sqrt(squares / length + eps); "
        "out y = x * inverse * weight",
        results="inverse",
        places="weight=1",
        numbers="eps",
    ),
    "rms_gradient": Lines(
        "g x",
        "each weighted = g * weight; sum aligned = weighted * x; "
        "let slope = aligned / length * inverse * inverse; "
        "out d = inverse * (weighted - x * slope); column by_weight = g * (x * inverse)",
        lines="inverse",
        places="weight=1",
    ),
    "batch_norm": Lines(
        "x",
        "sum total = x; let mean = total / length; sum squares = (x - mean) * (x - mean); "
        "let variance = squares / length; let scale = weight / sqrt(variance + eps); "
        "out y = (x - mean) * scale + bias",
        results="mean variance",
        lines="weight bias",
        numbers="eps",
        over_batch=True,
    ),
    "batch_norm_gradient": Lines(
        "g x",
        "let inverse = 1 / sqrt(variance + eps); sum plain = g; "
        "sum product = g * (x - mean); let by_weight = product * inverse; "
        "let scale = weight * inverse; let shift = plain / length; "
        "let slope = by_weight * inverse / length; "
        "out d = scale * (g - shift - (x - mean) * slope)",
        results="by_weight plain",
        lines="weight mean variance",
        numbers="eps",
        over_batch=True,
    ),
    # A step of a recurrent layer after its product, and before it in the backward pass.
    "rnn_tanh_step": Elementwise("T z", "T h", "h = tanh(h + z)"),
    "rnn_tanh_step_gradient": Elementwise(
        "T share, T g, T h", "T d", "d = (g + share) * (T(1) - h * h)"
    ),
    "rnn_relu_step": Elementwise("T z", "T h", "h = h + z; h = h < T(0) ? T(0) : h"),
    "rnn_relu_step_gradient": Elementwise(
        "T share, T g, T h", "T d", "T back = g + share; d = h != T(0) ? back : T(0)"
    ),
    "lstm_step": Elementwise(
        "T more_output, T more_input, T more_forget, T more_fresh, T before",
        "T output, T input, T forget, T fresh, T cell, T top, T h",
        f"{_logistic('output', 'more')} {_logistic('input', 'more')}"
        f"{_logistic('forget', 'more')} fresh = tanh(fresh + more_fresh);"
        "cell = forget * before + input * fresh; top = tanh(cell); h = output * top",
    ),
    "lstm_step_gradient": Elementwise(
        "T share, T g, T output, T input, T forget, T fresh, T top, T before",
        "T memory, T by_input, T by_forget, T by_fresh, T by_output",
        "T back = g + share; memory = memory + back * output * (T(1) - top * top);"
        "by_input = memory * fresh * input * (T(1) - input);"
        "by_forget = memory * before * forget * (T(1) - forget);"
        "by_fresh = memory * input * (T(1) - fresh * fresh);"
        "by_output = back * top * output * (T(1) - output); memory = memory * forget",
    ),
    "gru_step": Elementwise(
        "T more_reset, T more_update, T more_fresh, T bias_reset, T bias_update, T bias_fresh,"
        "T before",
        "T reset, T update, T fresh, T part, T h",
        f"{_logistic('reset', 'more', 'bias')} {_logistic('update', 'more', 'bias')}"
        "part = more_fresh + bias_fresh; fresh = tanh(fresh + reset * part);"
        "h = (before - fresh) * update + fresh",
    ),
    "gru_step_gradient": Elementwise(
        "T share, T g, T reset, T update, T fresh, T part, T before",
        "T by_fresh, T back, T by_reset, T by_update, T by_part",
        "back = back + share + g; by_fresh = back * (T(1) - update) * (T(1) - fresh * fresh);"
        "by_reset = by_fresh * part * reset * (T(1) - reset);"
        "by_update = back * (before - fresh) * update * (T(1) - update);"
        "by_part = by_fresh * reset; back = back * update",
    ),
    **{name: Elementwise(*update.kernel(), CALLED) for name, update in UPDATES.items()},
}


# -- what they are put together to: the kernels of `ops.fused`, by name ---------------------------
#
# These functions translate the arguments of `ops.fused` to those of a declared kernel. `K` has the
# compiled kernels by name: it is the `Kernels` of `cuda_kernels` or of `host_kernels.declared`.


def _along(name: str) -> Callable[..., Any]:
    """A kernel of lines along the axis that is the last argument."""
    return lambda K, *arguments: getattr(K, name)(arguments[-1], *arguments[:-1])


def _over_batch(name: str) -> Callable[..., Any]:
    """A kernel of channels, for arrays of which the first one has all elements."""

    def call(K: Namespace, x: Array, *arguments: Value) -> Any:
        return NotImplemented if x.size > _LARGEST_BATCH else getattr(K, name)(1, x, *arguments)

    return call


def _class_counts(K: Namespace, label: Array, classes: int, ignored: int, unknown: Value) -> Any:
    outs = [K.empty(label.shape, dtype) for dtype in ("int64", unknown.dtype)]
    K.class_counts(label, classes, ignored, unknown, *outs)
    return outs


def _of_classes(name: str) -> Callable[..., Any]:
    """A kernel for logits, which are the first argument, with classes along the last one's axis."""

    def call(K: Namespace, x: Array, *arguments: Value) -> Any:
        *arrays, dim = arguments
        return getattr(K, name)(x, *arrays, x.shape[dim], math.prod(x.shape[dim + 1 :]))

    return call


def _with_lines(name: str) -> Callable[..., Any]:
    """A kernel that gives a result, and values of lines, a tuple added to the last argument."""

    def call(K: Namespace, x: Array, dim: int, *arguments: Value) -> Any:
        *given, kept = arguments
        y, *of_lines = getattr(K, name)(dim, x, *given)
        kept.append(tuple(of_lines))
        return y

    return call


def _norm_gradient(name: str) -> Callable[..., Any]:
    """A kernel whose last arguments are the axis, the weight, and a list for sums or None."""

    def call(K: Namespace, *arguments: Value) -> Any:
        *arrays, dim, weight, sums = arguments
        return getattr(K, name)(dim, *arrays, weight, sums=sums)

    return call


def _update(name: str, entries: int) -> Callable[..., Any]:
    """An optimiser's update: of the values, the gradient, so many entries, and numbers."""

    def call(K: Namespace, p: Array, g: Array, *others: Value) -> None:
        getattr(K, name)(g, *others[entries:], p, *others[:entries])

    return call


def _of_pairs(name: str) -> Callable[..., Any]:
    """A loss, whose third argument is a number or None."""

    def call(K: Namespace, x: Array, y: Array, *numbers: Value) -> Any:
        return getattr(K, name)(x, y, *(number for number in numbers if number is not None))

    return call


def _alone(name: str) -> Callable[..., Any]:
    return lambda K, *arrays: getattr(K, name)(*arrays)


#: Kernels that are called for each step of a sequence. Their functions compute nothing: they give
#: the kernel for arrays such as the given ones, which is then called without being looked up.
STEPS = frozenset({
    f"{cell}_step{which}"
    for cell in ("rnn_tanh", "rnn_relu", "lstm", "gru")
    for which in ("", "_gradient")
})  # fmt: skip


def _for_steps(name: str) -> Callable[..., Any]:
    return lambda K, *arrays: K.for_steps(name, *arrays)


#: Kernels that take the arguments of the kernel in `ops.fused` as they are.
ALONE = (
    *(name for name in POINTWISE if name not in {*LOSSES, *LOSS_SLOPES}),
    "attention_exponentials", "attention_slopes", "class_shares",
)  # fmt: skip

#: The functions by the name of the kernel in `ops.fused`.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _alone(name) for name in ALONE},
    **{
        name: _along(name)
        for name in ("softmax", "softmax_gradient", "log_softmax", "log_softmax_gradient")
    },
    **{name: _for_steps(name) for name in STEPS},
    "attention_shares": lambda K, x, lowest: K.attention_shares(x.ndim - 1, x, lowest),
    "row_products": lambda K, x, y: K.row_products(x.ndim - 1, x, y),
    "batch_norm": _over_batch("batch_norm"),
    "batch_norm_gradient": _over_batch("batch_norm_gradient"),
    "class_counts": _class_counts,
    "class_losses": _of_classes("class_losses"),
    "class_slopes": _of_classes("class_slopes"),
    "shares": lambda K, x, top, factors, dim: K.shares(x, top, factors),
    "layer_norm": _with_lines("layer_norm"),
    "log_sums": lambda K, x, dim: K.log_sums(dim, x),
    "layer_norm_gradient": _norm_gradient("layer_norm_gradient"),
    **{name: _update(name, len(update.entries.split())) for name, update in UPDATES.items()},
    "rms_norm": _with_lines("rms_norm"),
    "rms_gradient": _norm_gradient("rms_gradient"),
    **{name: _of_pairs(name) for name in (*LOSSES, *LOSS_SLOPES)},
}  # fmt: skip


#: Functions some of whose arrays hold integers.
OF_INTEGERS = frozenset({"class_counts", "class_losses", "class_slopes"})
