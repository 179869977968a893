"""Signatures that are built on request, because most are never looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar

_F = TypeVar("_F", bound="Callable[..., Any]")


class Postponed(Signature):
    """A signature that `make(*given)` builds on each access."""

    __slots__ = ("_given", "_make")

    def __init__(self, make: Callable[..., Signature], *given: Any) -> None:
        self._make = make
        self._given = given

    @property
    def parameters(self) -> Mapping[str, Parameter]:  # type: ignore[override]
        """The parameters of the built signature, in order."""
        return self._make(*self._given).parameters

    @property
    def return_annotation(self) -> Any:
        """The return annotation of the built signature."""
        return self._make(*self._given).return_annotation

    def replace(self, **changes: Any) -> Any:
        """An ordinary signature with other parameters or return annotation."""
        return self._make(*self._given).replace(**changes)

    __replace__ = replace

    def __repr__(self) -> str:
        return repr(self._make(*self._given))

    def __reduce__(self) -> Any:
        """Copies and pickles are ordinary signatures."""
        return self._make(*self._given).__reduce__()


def named(function: _F, name: str, doc: str) -> _F:
    """Give a function that another function has made its name and docstring."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


#: The types of the arguments that decorators add to functions.
_TYPES = {"layout": "layout | None", "pin_memory": "bool"}


def extended(function: Callable[..., Any], more: Mapping[str, Any]) -> Signature:
    """A function's signature with more keyword-only parameters and their defaults."""
    known = signature(function)
    single = known.return_annotation in {"Tensor", "Any"}
    types = {**_TYPES, "out": "Tensor | None" if single else "Tensor | Sequence[Tensor] | None"}
    named = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=types[name])
        for name, default in more.items()
    ]
    # Sorted, because `**options` has to come last.
    parameters = sorted((*known.parameters.values(), *named), key=lambda one: one.kind)
    return known.replace(parameters=parameters)


def of_method(function: Callable[..., Any]) -> Signature:
    """The signature of the method that puts a function's result into its first argument."""
    known = signature(function)
    tensor, *others = [one for name, one in known.parameters.items() if name != "out"]
    tensor = tensor.replace(name="self", annotation=Parameter.empty)
    return known.replace(parameters=[tensor, *others], return_annotation="Tensor")
