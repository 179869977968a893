"""oneDNN: asyncgrad does not use it."""

from __future__ import annotations


def is_available() -> bool:
    """False."""
    return False
