"""`assert_close`: compares results with PyTorch's tolerances for each dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np

from asyncgrad.ops.api.data import from_numpy
from asyncgrad.ops.promotion import promote_dtypes
from asyncgrad.ops.tensors.transfer import on_host
from asyncgrad.records import NamedTuple
from asyncgrad.tensor import Tensor
from asyncgrad.types import Array

#: The relative and absolute tolerance by dtype; other dtypes are compared exactly.
_TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}


class _Options(NamedTuple):
    """The options of one comparison."""

    tolerances: tuple[float, float] | None
    equal_nan: bool
    check_device: bool
    check_dtype: bool
    check_layout: bool
    check_stride: bool


def assert_close(
    actual: object, expected: object, *, allow_subclasses: bool = True, rtol: float | None = None,
    atol: float | None = None, equal_nan: bool = False, check_device: bool = True,
    check_dtype: bool = True, check_layout: bool = True, check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:  # fmt: skip
    """Raise unless two results are close: `|actual - expected| <= atol + rtol * |expected|`.

    Args:
        actual: a tensor, NumPy array or number, or a sequence or mapping of these.
        expected: the expected value.
        allow_subclasses: allow tensors of different classes.
        rtol: the relative tolerance; None means the dtype's.
        atol: the absolute tolerance; None means the dtype's.
        equal_nan: treat NaN as equal to NaN.
        check_device, check_dtype, check_layout, check_stride: require equal ones.
        msg: the error's message, or a function that makes it from the default message.

    Raises:
        ValueError: if one tolerance is given without the other.
        RuntimeError: if a tolerance is negative or NaN.

    Example:
        >>> ag.testing.assert_close(ag.tensor([1.0]) / 3 * 3, ag.tensor([1.0]))
    """
    if (rtol is None) != (atol is None):
        missing = "rtol" if rtol is None else "atol"
        raise ValueError(
            f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}."
        )
    rtol, atol = (x.item() if isinstance(x, Tensor) else x for x in (rtol, atol))
    if rtol is not None and atol is not None and not (rtol >= 0 and atol >= 0):
        raise RuntimeError(
            f"assert_close: rtol and atol must be greater than or equal to zero, but got {rtol} "
            f"and {atol}"
        )
    options = _Options(
        None if rtol is None or atol is None else (rtol, atol),
        equal_nan, check_device, check_dtype, check_layout, check_stride,
    )  # fmt: skip
    try:
        for one, other, where in [*_pairs(actual, expected, "", allow_subclasses)]:
            found = _difference(one, other, options)
            if found:
                raise AssertionError(found + _place(where))
    except AssertionError as error:
        if msg is None:
            raise
        raise AssertionError(msg(str(error)) if callable(msg) else msg) from None


def _place(where: str) -> str:
    return f"\n\nThe failure occurred for item {where}" if where else ""


def _pairs(actual: Any, expected: Any, where: str, loose: bool) -> Iterator[tuple[Any, Any, str]]:
    """The pairs of values to compare, with the place of each."""
    if _both(actual, expected, Mapping):
        missing = [key for key in expected if key not in actual]
        more = [key for key in actual if key not in expected]
        if missing or more:
            raise AssertionError(
                f"The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {missing}\n"
                f"Additional keys in the actual mapping: {more}{_place(where)}"
            )
        for key in actual:
            yield from _pairs(actual[key], expected[key], f"{where}[{key!r}]", loose)
    elif _both(actual, expected, Sequence) and not any(
        isinstance(x, (str, bytes)) for x in (actual, expected)
    ):
        if len(actual) != len(expected):
            raise AssertionError(
                f"The length of the sequences mismatch: {len(actual)} != {len(expected)}"
                f"{_place(where)}"
            )
        for number, (one, other) in enumerate(zip(actual, expected, strict=True)):
            yield from _pairs(one, other, f"{where}[{number}]", loose)
    else:
        tensors = _both(actual, expected, Tensor) and (loose or type(actual) is type(expected))
        numbers = _both(actual, expected, (Number, np.bool_))
        known = tensors or numbers or _both(actual, expected, np.ndarray)
        if not known and actual is not None and expected is not None:
            raise TypeError(
                f"No comparison pair was able to handle inputs of type {type(actual)} and "
                f"{type(expected)}.{_place(where)}"
            )
        yield actual, expected, where


def _both(actual: object, expected: object, kind: type | tuple[type, ...]) -> bool:
    return isinstance(actual, kind) and isinstance(expected, kind)


def _difference(actual: Any, expected: Any, options: _Options) -> str | None:
    """How two leaves differ, None if they are close."""
    if actual is None or expected is None:
        same = actual is expected
        return None if same else f"None mismatch: {actual} is not {expected}"
    if _both(actual, expected, (bool, np.bool_)):
        same = bool(actual) is bool(expected)
        return None if same else f"Booleans mismatch: {actual} is not {expected}"
    if _both(actual, expected, (Number, np.bool_)):
        actual, expected = (
            x.item() if isinstance(x, np.generic) else x for x in (actual, expected)
        )
        if options.check_dtype and type(actual) is not type(expected):
            return f"The (d)types do not match: {type(actual)} != {type(expected)}."
        return _values(np.asarray(actual), np.asarray(expected), options)
    if isinstance(actual, np.ndarray):
        actual, expected = from_numpy(actual), from_numpy(expected)
    facts = {
        "shape": (True, actual.shape, expected.shape),
        "layout": (options.check_layout, actual.is_sparse, expected.is_sparse),
        "device": (options.check_device, actual.device, expected.device),
        "dtype": (options.check_dtype, actual.dtype, expected.dtype),
        "stride()": (options.check_stride, actual.stride, expected.stride),
    }
    for name, (checked, one, other) in facts.items():
        if checked:
            one, other = (x() if callable(x) else x for x in (one, other))
            if one != other:
                return f"The values for attribute '{name}' do not match: {one} != {other}."
    dense = [x.to_dense() if x.is_sparse else x for x in (actual.detach(), expected.detach())]
    return _values(on_host(dense[0]), on_host(dense[1]), options)


def _values(actual: Array, expected: Array, options: _Options) -> str | None:
    """How two arrays of one shape differ, None if they are close."""
    allowed = options.tolerances
    if allowed is None:
        each = [_TOLERANCES.get(x.dtype.name, (0.0, 0.0)) for x in (actual, expected)]
        allowed = max(rtol for rtol, _ in each), max(atol for _, atol in each)
    rtol, atol = allowed
    dtype = promote_dtypes(actual.dtype, expected.dtype)
    if dtype.kind in "bui" and dtype != np.uint64:
        dtype = np.dtype(np.int64)
    x, y = actual.astype(dtype), expected.astype(dtype)
    with np.errstate(all="ignore"):
        off = abs(x - y) if dtype.kind == "c" else np.where(x > y, x - y, y - x)
        size = abs(y)
        if dtype.kind == "i":
            # Both are below 2**64, and may be too large for int64.
            off, size = off.astype(np.uint64), size.astype(np.uint64)
        close = (x == y) | ((off < np.inf) & (off <= atol + rtol * size))
        if options.equal_nan:
            close |= (x != x) & (y != y)
        if close.all():
            return None
        exact = not (rtol or atol)
        relative = off / size
    # The message reports the greatest difference among elements that are not close.
    off, relative = np.where(close, 0, off), np.where(close, 0, relative)
    limits = ("", "") if exact else (f" (up to {atol} allowed)", f" (up to {rtol} allowed)")
    kind = "equal" if exact else "close"
    if not actual.shape:
        return (
            f"Scalars are not {kind}!\n\n"
            f"Expected {expected.item()} but got {actual.item()}.\n"
            f"Absolute difference: {off.item()}{limits[0]}\n"
            f"Relative difference: {relative.item()}{limits[1]}"
        )
    wrong, count = int(np.sum(~close)), close.size
    lines = [f"Mismatched elements: {wrong} / {count} ({wrong / count:.1%})"]
    for name, values, limit in (("absolute", off, limits[0]), ("relative", relative, limits[1])):
        place = np.unravel_index(int(np.argmax(values)), values.shape)
        at = tuple(map(int, place))
        lines.append(f"Greatest {name} difference: {values[at].item()} at index {at}{limit}")
    return f"Tensor-likes are not {kind}!\n\n" + "\n".join(lines)
