"""NumPy's names of arguments, which PyTorch takes beside its own."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

_F = TypeVar("_F", bound="Callable[..., Any]")
_NAMES = {"axis": "dim", "keepdims": "keepdim"}


def spelled(function: _F) -> _F:
    """The function with `axis` and `keepdims` for `dim` and `keepdim`, too."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            for theirs, ours in _NAMES.items():
                if theirs in kwargs:
                    if ours in kwargs:
                        raise TypeError(
                            f"{function.__name__}(): {theirs}= is another name of {ours}=; pass "
                            f"one of them"
                        )
                    kwargs[ours] = kwargs.pop(theirs)
        return function(*args, **kwargs)

    return cast("_F", call)
