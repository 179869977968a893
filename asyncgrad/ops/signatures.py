"""Signatures that are put together when somebody asks for them: few ever are."""

from __future__ import annotations

from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Postponed(Signature):
    """The signature that a function makes.

    Args:
        make: the function, which may be called again and again.
        given: its arguments.
    """

    __slots__ = ("_given", "_make")

    def __init__(self, make: Callable[..., Signature], *given: Any) -> None:
        self._make = make
        self._given = given

    @property
    def parameters(self) -> Mapping[str, Parameter]:  # type: ignore[override]
        """The parameters, in their order."""
        return self._make(*self._given).parameters

    @property
    def return_annotation(self) -> Any:
        """What comes out."""
        return self._make(*self._given).return_annotation

    def replace(self, **changes: Any) -> Any:
        """A usual signature with other parameters or another result."""
        return self._make(*self._given).replace(**changes)

    __replace__ = replace

    def __repr__(self) -> str:
        return repr(self._make(*self._given))

    def __reduce__(self) -> Any:
        """Copies are usual signatures."""
        return self._make(*self._given).__reduce__()


def extended(function: Callable[..., Any], more: Mapping[str, Any]) -> Signature:
    """A function's signature with arguments that are passed by name, and their defaults."""
    known = signature(function)
    named = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation="Any")
        for name, default in more.items()
    ]
    # `**options` comes last.
    parameters = sorted((*known.parameters.values(), *named), key=lambda one: one.kind)
    return known.replace(parameters=parameters)
