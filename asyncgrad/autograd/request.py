"""Priorities and deadlines: what they may be, and those of all passes started in a block."""

from __future__ import annotations

from math import inf, isnan
from numbers import Real
from operator import index
from typing import Any

from asyncgrad.core.modes import Mode


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


class request(Mode):
    """Urgency for all passes started within, in child tasks, too.

    Works as a decorator, too. Of requests within one another the innermost counts for each of the
    two that it sets.

    Args:
        priority: larger is more urgent; the default is that of the surroundings, or 0.
        deadline: the loop's time at which they give up; the default is that of the surroundings,
            and infinity takes that back.

    Raises:
        TypeError: if the priority is no int, or the deadline no number.
        ValueError: if the deadline is NaN.

    Example:
        >>> import asyncio, asyncgrad as ag
        >>> async def main():
        ...     x = ag.tensor([3.0], requires_grad=True)
        ...     with ag.request(priority=1, deadline=asyncio.get_running_loop().time() + 30):
        ...         await (x * x).sum().backward()
        ...     return x.grad.item()
        >>> asyncio.run(main())
        6.0
    """

    def __init__(self, *, priority: int | None = None, deadline: float | None = None) -> None:
        """Note the urgency; it holds from `__enter__` on."""
        given: dict[str, Any] = {}
        if priority is not None:
            given["priority"] = checked_priority(priority)
        if deadline is not None:
            given["deadline"] = checked_deadline(deadline)
        super().__init__(**given)
