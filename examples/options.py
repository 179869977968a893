"""Numbers that the examples' commands take as options."""

from __future__ import annotations

import argparse
import contextlib
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def whole(least: int, most: int) -> Callable[[str], int]:
    """A type of options for `argparse`: whole numbers from `least` to `most`."""

    def number(text: str) -> int:
        if text.isdecimal() and least <= int(text) <= most:
            return int(text)
        raise argparse.ArgumentTypeError(f"expected a number from {least} to {most}, got {text}")

    return number


def seconds(text: str) -> float:
    """A type of options for `argparse`: a duration."""
    with contextlib.suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"expected a number of seconds above 0, got {text}")
