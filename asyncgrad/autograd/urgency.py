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
            f"priority must be an int, not {type(priority).__name__}: larger ones are more urgent, "
            f"0 is usual."
        ) from None


def checked_deadline(deadline: Any) -> float | None:
    """A deadline as a time of the loop's clock; None where there is none.

    Raises:
        TypeError: if it is not a number.
        ValueError: if it is NaN.
    """
    if not isinstance(deadline, Real):
        raise TypeError(
            f"deadline must be a number, not {type(deadline).__name__}: a time of the loop's "
            f"clock, loop.time() + 0.5 for example."
        )
    if isnan(deadline):
        raise ValueError("deadline must be a time of the loop's clock, not NaN, which never comes.")
    return None if deadline == inf else float(deadline)
