"""What to use instead of what PyTorch's modules of these names have, and this package does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn


def remedies(module: str, known: Mapping[str, str]) -> Callable[[str], NoReturn]:
    """The `__getattr__` of a module, which says what does the work of what PyTorch has there.

    Args:
        module: its name.
        known: by remedy, the names of what it replaces, with spaces in between.
    """
    instead = {name: remedy for remedy, names in known.items() for name in names.split()}

    def __getattr__(name: str) -> NoReturn:
        remedy = f", as PyTorch has: {instead[name]}" if name in instead else ""
        raise AttributeError(f"{module} has no {name!r}{remedy}")

    return __getattr__
