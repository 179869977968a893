"""Results of passes and programs where no loop runs: available at once, and awaitable, too."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from asyncgrad.aliases import Value
from asyncgrad.core.hook_calls import Settled

_T_co = TypeVar("_T_co", covariant=True)
_K = TypeVar("_K")
_V = TypeVar("_V")


class Finished(Settled):
    """What `backward()` returns for a pass that has ended; awaiting it does not suspend."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:  # type: ignore[override]
        # As a `BackwardFuture` does, it gives None.
        yield from ()

    def __repr__(self) -> str:
        return "<finished pass>"


_FINISHED = Finished()


class Results(Settled, tuple[_T_co, ...]):
    """A tuple of results, which can be awaited."""

    __slots__ = ()


class ResultList(Settled, list[Any]):
    """A list of results, which can be awaited."""

    __slots__ = ()


class ResultDict(Settled, dict[_K, _V]):
    """A dictionary of results, which can be awaited."""

    __slots__ = ()


def as_result(result: Value) -> Any:
    """The value for the caller of a pass that has ended; None means that it has no result."""
    return _FINISHED if result is None else awaitable(result)


def awaitable(value: Value) -> Any:
    """Make a program's result awaitable; tensors already are."""
    kind = type(value)
    if kind is tuple:
        return Results(value)
    if kind is list:
        return ResultList(value)
    return ResultDict(value) if kind is dict else value
