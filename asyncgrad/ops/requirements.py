"""Conditions on arguments, as text: checked before a function runs, and said by its errors.

    @requires("p > 0", "weight.shape == input.shape[:1]  # weight should be one number per row")
    def scaled(input: Tensor, p: int, weight: Tensor | None = None) -> Tensor:

`ops/converted.py` writes the conditions into the function that users call. One of an argument that
may be None holds if it is None, unless the condition itself names None. Errors say the words after
`#`, which are PyTorch's wherever it has a message for the mistake, else the condition itself. What
stands in braces among the words is computed, as in an f-string, from the same names. Where
a condition is on values that a function computes, the function raises what `unmet` returns.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.ops.dtype import FLOATING, DType

_F = TypeVar("_F", bound="Callable[..., Any]")
#: What conditions may name besides arguments and what their function's module has.
_NAMES = {name: np.dtype(name) for name in ("bool", "int32", "int64", "float32", "float64")}
#: How an attribute of a tensor is read without a call.
_READ = {
    "shape": "{x}._metadata.shape",
    "dtype": "{x}._metadata.dtype",
    "ndim": "len({x}._metadata.shape)",
    "numel()": "{x}._metadata.size",
    "is_complex()": "{x}._metadata.is_complex",
    "is_floating_point()": f"({{x}}._metadata.dtype.kind in {FLOATING!r})",
}
_OF_DTYPE = r"\b{x}\.(?:dtype|is_)"
_ATTRIBUTE = re.compile(rf"\b(\w+)\.({'|'.join(map(re.escape, _READ))})")


def requires(*conditions: str, error: type[Exception] = RuntimeError) -> Callable[[_F], _F]:
    """Decorate a function whose arguments have to meet conditions, which raise an error else."""

    def decorate(function: _F) -> _F:
        one: Any = function
        one.requirements = [(c, error) for c in conditions] + getattr(one, "requirements", [])
        return function

    return decorate


def broadcast_shape(name: str, tensors: Sequence[Any]) -> tuple[int, ...]:
    """The shape that tensors are broadcast to; RuntimeError if they can't be."""
    shapes = [x._metadata.shape for x in tensors]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise RuntimeError(
            f"{name}: shapes {', '.join(map(str, shapes))} can't be broadcast: sizes must match at "
            f"non-singleton dimensions. Reshape or unsqueeze one of them."
        ) from None


def unmet(
    name: str, words: str, error: type[Exception] = RuntimeError, /, **found: object
) -> Exception:
    """The error for arguments that do not meet a condition.

    Args:
        name: the operation.
        words: what is wrong, and what helps as a second sentence.
        found: by the argument's name, a tensor, of which the shape is shown, a dtype or a value.
    """
    said, _, remedy = words.partition(". ")
    if not re.match(rf"{name.rpartition('.')[2]}\b", said):
        said = f"{name}(): {said}"
    if found:
        said += ", but got " + ", ".join([_fact(x, value) for x, value in found.items()])
    if any(isinstance(value, (np.dtype, DType)) for value in found.values()):
        remedy = remedy or "Convert it with .to()"
    text = f"{said}. {remedy}" if remedy else said
    return error(text if text.endswith("?") else f"{text}.")


def _fact(x: str, value: Any) -> str:
    if isinstance(value, Variable):
        return f"{x}.shape = {value._metadata.shape}"
    if isinstance(value, (np.dtype, DType)):
        return f"{x.removesuffix('dtype').rstrip('.')}.dtype = {value.name}".lstrip(".")
    if isinstance(value, (tuple, list)) and any(isinstance(one, Variable) for one in value):
        return f"{x} of shapes {[tuple(getattr(one, 'shape', ())) for one in value]}"
    plain = tuple(value) if isinstance(value, tuple) else value
    return f"{x} = {reprlib.repr(value.tolist() if isinstance(value, np.ndarray) else plain)}"


def checks(
    conditions: Sequence[tuple[str, type[Exception]]], function: Any, kinds: Mapping[str, str],
    title: str, names: dict[str, Any],
) -> str:  # fmt: skip
    """The lines that check conditions on the arguments of a function.

    Args:
        conditions: each with its error.
        kinds: the types of its arguments, as users see them.
        title: what errors call it.
        names: the global names of the text, to which those of the conditions are added.
    """
    known = {**function.__globals__, **_NAMES}
    lines = []
    for text, error in conditions:
        condition, _, words = text.partition("  # ")
        said = f"f{words!r}" if words else repr(f"expected {condition}")
        used = set(re.findall(r"\w+", " ".join([condition, *re.findall(r"{.*?}", words)])))
        optional = [
            x for x, kind in kinds.items()
            if x in used and kind.endswith("| None") and not re.search(rf"\b{x} is ", condition)
        ]  # fmt: skip
        given = "".join([f"{x} is not None and " for x in optional])
        names |= {x: known[x] for x in used & known.keys() if x not in kinds}
        names |= {"unmet": unmet, error.__name__: error}
        test = _ATTRIBUTE.sub(lambda found: _read(found, kinds), condition)
        found = "".join([
            f", {x}={x}{'._metadata.dtype' * bool(re.search(_OF_DTYPE.format(x=x), condition))}"
            for x in dict.fromkeys(re.findall(r"(?<![\w.'\"])[a-zA-Z_]\w*", condition))
            if x in kinds
        ])  # fmt: skip
        lines.append(
            f"    if {given}not ({test}):\n"
            f"        raise unmet({title!r}, {said}, {error.__name__}{found})\n"
        )
    return "".join(lines)


def _read(found: re.Match[str], kinds: Mapping[str, str]) -> str:
    """An attribute of a tensor; others as they are."""
    x, attribute = found.groups()
    of_tensor = kinds.get(x, "").removesuffix(" | None") == "Tensor"
    return _READ[attribute].format(x=x) if of_tensor else found[0]
