"""Metal Performance Shaders: asyncgrad has no device for them."""

from __future__ import annotations


def is_available() -> bool:
    """False."""
    return False


def is_built() -> bool:
    """False."""
    return False
