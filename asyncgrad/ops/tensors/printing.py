"""Printing of tensors, with the same digits, columns and lines as PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from asyncgrad.choices import PrintProfile, words
from asyncgrad.ops.promotion import category, default_complex_dtype, default_dtype
from asyncgrad.records import NamedTuple


class Options(NamedTuple):
    """The settings of `set_printoptions`."""

    #: Digits after the decimal point.
    precision: int = 4
    #: A tensor with more elements is shown only by its edges.
    threshold: float = 1000
    #: How many elements of each axis are shown at each edge.
    edgeitems: int = 3
    #: Characters in a line.
    linewidth: int = 80
    #: Scientific notation always (True), never (False), or as the numbers need it (None).
    sci_mode: bool | None = None


_PROFILES: dict[PrintProfile, Options] = {
    "default": Options(),
    "short": Options(precision=2, edgeitems=2),
    "full": Options(threshold=math.inf),
}
#: The options in force, as the only element.
_options = [Options()]


def set_printoptions(
    precision: int | None = None, threshold: float | None = None, edgeitems: int | None = None,
    linewidth: int | None = None, profile: PrintProfile | None = None, sci_mode: bool | None = None,
) -> None:  # fmt: skip
    """Set how tensors are printed.

    Args:
        precision: digits after the decimal point.
        threshold: a tensor with more elements is shown only by its edges.
        edgeitems: how many elements of each axis are shown at each edge.
        linewidth: characters in a line.
        profile: "default", "short" or "full", applied before the other arguments.
        sci_mode: scientific notation always (True), never (False), or as needed (None).
    """
    if profile is not None and profile not in words(PrintProfile):
        raise ValueError(f"set_printoptions: the profile is one of {words(PrintProfile)}")
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems,
             "linewidth": linewidth}  # fmt: skip
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    start = _options[0] if profile is None else _PROFILES[profile]
    _options[0] = start._replace(sci_mode=sci_mode, **changes)


def text_of(values: np.ndarray[Any, Any], suffixes: list[str]) -> str:
    """The text of a tensor: its values on the host, and suffixes such as "requires_grad=True"."""
    options = _options[0]
    usual = {default_dtype()}
    if values.size:
        # An empty tensor shows no elements from which these could be seen.
        usual |= {default_complex_dtype(), np.dtype("int64"), np.dtype("bool")}
    if values.dtype not in usual:
        suffixes = [f"dtype=asyncgrad.{values.dtype.name}", *suffixes]
    if not values.size and values.ndim != 1:
        suffixes = [f"size={values.shape}", *suffixes]
    text = "tensor("
    indent = len(text)
    text += _body(values, indent, options) if values.size else "[]"
    room = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if room + len(suffix) + 2 > options.linewidth:
            text += f",\n{' ' * indent}{suffix}"
            room = indent + len(suffix)
        else:
            text += f", {suffix}"
            room += len(suffix) + 2
    return text + ")"


def _body(values: np.ndarray[Any, Any], indent: int, options: Options) -> str:
    short = values.size > options.threshold
    shown = _edges(values, options.edgeitems) if short else values
    complex_too = category(values.dtype) == 3
    write, width = (_complex_format_of if complex_too else _format_of)(shown, options)
    each = max(1, (options.linewidth - indent - values.ndim + 1) // (width + 2))
    return _nested(values, indent, write, each, short, options)


def _edges(values: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    """The elements at the edges; no other element is copied."""
    return values[np.ix_(*[_places(length, count) for length in values.shape])]


def _places(length: int, count: int) -> list[int]:
    cut = length > 2 * count
    return [*range(count), *range(length - count, length)] if cut else [*range(length)]


def _format_of(values: np.ndarray[Any, Any], options: Options) -> tuple[Callable[[Any], str], int]:
    """A function that writes one element, and the width that it gives to all of them."""
    if category(values.dtype) < 2:
        width = max(map(len, map(str, values.ravel().tolist())), default=1)
        return (lambda value: f"{value!s:>{width}}"), width
    precision = options.precision
    numbers = values.astype(np.float64).ravel()
    numbers = numbers[np.isfinite(numbers) & (numbers != 0)]
    whole, powers, width = True, False, 1
    if numbers.size:
        sizes = np.abs(numbers)
        least, greatest = float(sizes.min()), float(sizes.max())
        whole = bool(np.all(numbers == np.ceil(numbers)))
        powers = greatest / least > 1000 or greatest > 1e8 or (not whole and least < 1e-4)
        if options.sci_mode is not None:
            powers = options.sci_mode
    style = f".{precision}e" if powers else ".0f" if whole else f".{precision}f"
    point = "." if whole and not powers else ""
    width = max([1, *[len(format(value, style) + point) for value in numbers.tolist()]])

    def write(value: float) -> str:
        text = format(value, style)
        return f"{text + point if math.isfinite(value) else text:>{width}}"

    return write, width


def _complex_format_of(
    values: np.ndarray[Any, Any], options: Options
) -> tuple[Callable[[Any], str], int]:
    """`_format_of` for complex numbers; real and imaginary parts have separate widths."""
    wide = values.astype(np.complex128)
    real, width = _format_of(wide.real, options)
    imag, more = _format_of(wide.imag, options)

    def write(value: Any) -> str:
        second = (imag(value.imag) + "j").lstrip()
        return real(value.real) + (second if second[0] in "+-" else f"+{second}")

    return write, width + more + 1


def _nested(
    values: np.ndarray[Any, Any], indent: int, write: Callable[[Any], str], each: int, short: bool,
    options: Options,
) -> str:  # fmt: skip
    if not values.ndim:
        return write(_numbers(values))
    edge = options.edgeitems
    length = len(values)
    cut = short and length > 2 * edge
    places = _places(length, edge if short else length)
    if values.ndim > 1:
        parts = [_nested(values[i], indent + 1, write, each, short, options) for i in places]
        if cut:
            parts.insert(edge, "...")
        return f"[{(',' + chr(10) * (values.ndim - 1) + ' ' * (indent + 1)).join(parts)}]"
    parts = [write(value) for value in _numbers(values[places])]
    if cut:
        parts.insert(edge, " ...")
    lines = [", ".join(parts[i : i + each]) for i in range(0, len(parts), each)]
    return f"[{(',' + chr(10) + ' ' * (indent + 1)).join(lines)}]"


def _numbers(values: np.ndarray[Any, Any]) -> Any:
    """Elements as Python numbers; bfloat16 has to be converted first."""
    return (values.astype(np.float64) if category(values.dtype) == 2 else values).tolist()
