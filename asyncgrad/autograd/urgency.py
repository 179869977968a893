"""What priorities and deadlines may be."""

from __future__ import annotations

from math import inf, isnan
from numbers import Real
from operator import index
from typing import Any


def checked_priority(priority: Any) -> int:
    """A priority as an int.

    Raises:
        TypeError: if it is something else.
    """
    try:
        return index(priority)
    except TypeError:
        raise TypeError(
            f"priority has to be an int, not {priority!r}. Larger ones are more urgent; 0 is usual."
        ) from None


def checked_deadline(deadline: Any) -> float | None:
    """A deadline as a time of the loop's clock; None where there is none.

    Raises:
        TypeError: if it is not a number.
        ValueError: if it is NaN.
    """
    if not isinstance(deadline, Real):
        raise TypeError(
            f"deadline has to be a time of the loop's clock, not {deadline!r}: loop.time() + 0.5, "
            f"for example."
        )
    if isnan(deadline):
        raise ValueError("deadline is NaN, which never comes: leave it out, or give a time.")
    return None if deadline == inf else float(deadline)
