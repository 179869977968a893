"""Alternative argument names, mostly NumPy's, that PyTorch accepts beside its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

_F = TypeVar("_F", bound="Callable[..., Any]")
_NAMES = {"axis": "dim", "keepdims": "keepdim"}


def respell(name: str, kwargs: dict[str, Any], names: Mapping[str, str] = _NAMES) -> None:
    """Rename alternative keyword arguments to PyTorch's names."""
    for theirs, ours in names.items():
        if theirs in kwargs:
            if ours in kwargs:
                raise TypeError(f"{name}(): {theirs}= is another name of {ours}=; pass one of them")
            kwargs[ours] = kwargs.pop(theirs)


def spelled(function: _F, **more: str) -> _F:
    """Wrap a function to accept alternative argument names: `axis` for `dim`, and `more`."""
    names = {**_NAMES, **more}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            respell(function.__name__, kwargs, names)
        return function(*args, **kwargs)

    return cast("_F", call)
