"""Stands for functions of higher layers that lower ones call."""

from __future__ import annotations

from typing import Any


def unbound(*arguments: object) -> Any:
    """Raise: `asyncgrad/_wiring.py`, which replaces this, has not been imported."""
    raise RuntimeError("asyncgrad is not imported as a whole: import asyncgrad first")
