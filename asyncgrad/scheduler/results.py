"""What passes and programs give where no loop runs: results at once, which can be awaited, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Generator


class Finished:
    """What `backward()` returns: the pass has ended, awaiting it is free."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        """Nothing to wait for."""
        yield from ()

    def __repr__(self) -> str:
        """What it is."""
        return "<finished pass>"


_FINISHED = Finished()


class _AtOnce:
    """What can be awaited, and is itself what that gives."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, Self]:
        """Nothing to wait for."""
        yield from ()
        return self


class Results(_AtOnce, tuple[Any, ...]):
    """A tuple of them."""

    __slots__ = ()


class ResultList(_AtOnce, list[Any]):
    """A list of them."""

    __slots__ = ()


class ResultDict(_AtOnce, dict[Any, Any]):
    """A dictionary of them."""

    __slots__ = ()


def ended(result: Any) -> Any:
    """What a pass that has ended gives its caller: None stands for no result."""
    if result is None:
        return _FINISHED
    return ResultDict(result) if isinstance(result, dict) else Results(result)


def awaitable(value: Any) -> Any:
    """A program's result, so that it can be awaited; tensors can be as they are."""
    kind = type(value)
    if kind is tuple:
        return Results(value)
    if kind is list:
        return ResultList(value)
    return ResultDict(value) if kind is dict else value
