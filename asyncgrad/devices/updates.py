"""How optimisers change an element of a parameter, declared once for NumPy and all compilers.

`kernels` makes one kernel of each declaration, and `optim.array_updates` a function that calls
functions of arrays.
"""

from __future__ import annotations

from asyncgrad.records import NamedTuple

#: What precedes each body: of a gradient `g` and the values, it makes the direction `g`.
_DIRECTION = "g = maximize ? -g : g; g = decay ? g + decay * p : g;"
#: Numbers of all kernels, which shrink the values first.
COMMON = ("shrink", "decay", "maximize")


class Update(NamedTuple):
    """An optimiser's update of one element.

    Args:
        entries: the names of the state's tensors, which the body changes.
        numbers: the names of numbers, which may differ from step to step.
        body: assignments, one of them to `change`, which is subtracted from the value `p`. `g` is
            the direction to descend along. `T` declares a name that is new, for C++. They call
            `sqrt`, `abs` and `FUNCTIONS`. A choice (`a ? b : c`) is a whole right side. If its
            condition is a flag, NumPy computes only what is chosen.
        flags: the names of numbers that say what is computed: 0 or 1.
    """

    entries: str
    numbers: str
    body: str
    flags: str = ""

    def kernel(self) -> tuple[str, str, str]:
        """The whole update as a kernel: its inputs, its outputs and its statements."""
        numbers = " ".join([self.numbers, *COMMON, self.flags]).split()
        inputs = [f"T {name}" for name in ("gradient", *numbers)]
        outputs = [f"T {name}" for name in ("p", *self.entries.split())]
        body = f"p = p * shrink; T g = gradient; {_DIRECTION}{self.body}; p = p - change"
        return ", ".join(inputs), ", ".join(outputs), body

    def of_gradient(self) -> Update:
        """The update whose `g` is a gradient, which finds the direction itself."""
        numbers, flags = f"{self.numbers} decay", f"maximize decay {self.flags}"
        return Update(self.entries, numbers, f"{_DIRECTION}{self.body}", flags)


#: What bodies call, in C++. NaN is both the larger and the smaller number, and the sign of itself.
FUNCTIONS = """
template<typename T> __device__ T larger(T x, T y) { return x > y || x != x ? x : y; }
template<typename T> __device__ T smaller(T x, T y) { return x < y || x != x ? x : y; }
template<typename T> __device__ T sign(T x) { return x > T(0) ? T(1) : x < T(0) ? T(-1) : x; }
"""

_MEAN = "mean = mean + (g - mean) * share"
# In this order, the square of a large gradient does not overflow before it is made small.
_SQUARE = "square = square * keep + g * taken * g"
_RATES = "lr share keep taken eps"


def _rmsprop(buffer: str = "", mean: str = "") -> Update:
    """The update with momentum if it has a buffer, and by the variance if it has a mean."""
    centered = f"{_MEAN}; T variance = square - mean * mean; " if mean else ""
    step = f"T step = g / (sqrt({'variance' if mean else 'square'}) + eps)"
    change = "T change = step * lr"
    if buffer:
        change = "buffer = buffer * momentum + step; T change = buffer * lr"
    numbers = f"{_RATES} momentum" if buffer else _RATES
    return Update(f"square {buffer} {mean}", numbers, f"{_SQUARE}; {centered}{step}; {change}")


UPDATES = {
    "sgd": Update("", "lr", "T change = g * lr"),
    "sgd_momentum": Update(
        "buffer",
        "lr momentum share",
        "T part = dampened ? g * share : g; buffer = first ? g : buffer * momentum + part;"
        "T ahead = nesterov ? g + buffer * momentum : buffer; T change = ahead * lr",
        "first dampened nesterov",
    ),
    "asgd": Update(
        "average",
        "lr kept weight",
        "p = p * kept; T change = g * lr; T new_p = p - change;"
        "average = averages ? average + (new_p - average) * weight : new_p",
        "averages",
    ),
    "adam": Update(
        "mean square",
        _RATES,
        f"{_MEAN}; {_SQUARE}; T change = mean / (sqrt(square) + eps) * lr",
    ),
    "adam_amsgrad": Update(
        "mean square greatest",
        _RATES,
        f"{_MEAN}; {_SQUARE}; greatest = larger(greatest, square);"
        "T change = mean / (sqrt(greatest) + eps) * lr",
    ),
    "adamax": Update(
        "mean greatest",
        "lr share keep eps",
        f"{_MEAN}; T size = abs(g) + eps; greatest = larger(greatest * keep, size);"
        "T change = mean / greatest * lr",
    ),
    "nadam": Update(
        "mean square",
        "lr lr_ahead correction share keep taken eps",
        f"{_MEAN}; {_SQUARE}; T root = sqrt(square / correction) + eps;"
        "T change = (g * lr + mean * lr_ahead) / root",
    ),
    "radam": Update(
        "mean square",
        _RATES,
        f"{_MEAN}; {_SQUARE}; T step = rectified ? mean / (sqrt(square) + eps) : mean;"
        "T change = step * lr",
        "rectified",
    ),
    "adadelta": Update(
        "square steps",
        "lr keep taken eps",
        f"{_SQUARE}; T step = sqrt(steps + eps) / sqrt(square + eps) * g;"
        "steps = steps * keep + step * taken * step; T change = step * lr",
    ),
    "adagrad": Update(
        "total", "lr eps", "total = total + g * g; T change = g / (sqrt(total) + eps) * lr"
    ),
    "rmsprop": _rmsprop(),
    "rmsprop_centered": _rmsprop(mean="mean"),
    "rmsprop_momentum": _rmsprop("buffer"),
    "rmsprop_momentum_centered": _rmsprop("buffer", "mean"),
    "rprop": Update(
        "previous sizes",
        "shrinking growing least most",
        "previous = previous * g;"
        "sizes = previous < T(0) ? sizes * shrinking : sizes;"
        "sizes = previous > T(0) ? sizes * growing : sizes;"
        "sizes = smaller(larger(sizes, least), most);"
        "previous = previous < T(0) ? T(0) : g; T change = sign(previous) * sizes",
    ),
}
