"""Conditions on arguments, as text: checked before a function runs, and said by its errors.

    @requires("num_groups > 0", "weight.shape == input.shape[1:2]")
    def group_norm(input: Tensor, num_groups: int, weight: Tensor | None = None) -> Tensor:

`ops/converted.py` writes the conditions into the function that users call. One of an argument that
may be None holds if it is None, unless the condition itself names None. Where a condition is on
values that a function computes, the function raises what `unmet` returns.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.ops.dtype import FLOATING

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
_ATTRIBUTE = re.compile(rf"\b(\w+)\.({'|'.join(map(re.escape, _READ))})")


def requires(*conditions: str, error: type[Exception] = RuntimeError) -> Callable[[_F], _F]:
    """Decorate a function whose arguments have to meet conditions, which raise an error else."""

    def decorate(function: _F) -> _F:
        one: Any = function
        one.requirements = [(c, error) for c in conditions] + getattr(one, "requirements", [])
        return function

    return decorate


def unmet(
    name: str, condition: str, values: Mapping[str, Any], error: type[Exception] = RuntimeError
) -> Exception:
    """The error for a condition that does not hold.

    Args:
        name: the operation.
        condition: what it expects, in words or in Python.
        values: by name, what the condition may name: usually `locals()`.
    """
    found = dict.fromkeys(re.findall(r"(?<![\w.'\"])[a-zA-Z_]\w*", condition))
    facts = ", ".join([_fact(x, values[x], condition) for x in found if x in values])
    remedy = ". Convert it with .to()" if ".dtype = " in facts else ""
    return error(f"{name}(): expected {condition}" + (facts and f", but got {facts}{remedy}."))


def _fact(x: str, value: Any, condition: str) -> str:
    if isinstance(value, (tuple, list)) and any(isinstance(one, Variable) for one in value):
        return f"{x} of shapes {[tuple(getattr(one, 'shape', ())) for one in value]}"
    known = value._metadata if isinstance(value, Variable) else value
    about = ["shape"] if re.search(rf"\b{x}\.(shape|ndim|numel|size)|len\({x}\)", condition) else []
    if re.search(rf"\b{x}\.(dtype|is_)", condition) or (not about and "dtype" in condition):
        about.append("dtype")
    is_array = hasattr(known, "shape") and hasattr(known, "dtype")
    if is_array and (about or known is not value):
        return ", ".join([f"{x}.{one} = {getattr(known, one)}" for one in about or ["shape"]])
    return f"{x} = {reprlib.repr(value.tolist() if isinstance(value, np.ndarray) else value)}"


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
    known = {**function.__globals__, **_NAMES, "unmet": unmet}
    lines = []
    for condition, error in conditions:
        words = set(re.findall(r"\w+", condition))
        optional = [x for x in kinds if x in words and _may_be_none(x, kinds[x], condition)]
        given = "".join([f"{x} is not None and " for x in optional])
        names |= {x: known[x] for x in words & known.keys() if x not in kinds}
        names |= {"unmet": unmet, error.__name__: error}
        text = _ATTRIBUTE.sub(lambda found: _read(found, kinds), condition)
        lines.append(
            f"    if {given}not ({text}):\n"
            f"        raise unmet({title!r}, {condition!r}, locals(), {error.__name__})\n"
        )
    return "".join(lines)


def _may_be_none(x: str, kind: str, condition: str) -> bool:
    return kind.endswith("| None") and not re.search(rf"\b{x} is ", condition)


def _read(found: re.Match[str], kinds: Mapping[str, str]) -> str:
    """An attribute of a tensor; others as they are."""
    x, attribute = found.groups()
    of_tensor = kinds.get(x, "").removesuffix(" | None") == "Tensor"
    return _READ[attribute].format(x=x) if of_tensor else found[0]
