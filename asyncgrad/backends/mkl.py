"""MKL: NumPy chooses its own library for matrices."""

from __future__ import annotations


def is_available() -> bool:
    """False."""
    return False
