"""`request`: priority and deadline for all passes started in a block."""

from __future__ import annotations

from math import inf, isnan
from numbers import Real
from operator import index
from typing import Any

from asyncgrad.core.modes import Mode


def checked_priority(priority: Any) -> int:
    """Check a priority and make it an int."""
    try:
        return index(priority)
    except TypeError:
        raise TypeError(
            f"priority must be an int, not {type(priority).__name__}: larger ones are more urgent, "
            f"0 is usual."
        ) from None


def checked_deadline(deadline: Any) -> float | None:
    """Check a deadline: a time of the loop's clock; None stands for infinity."""
    if not isinstance(deadline, Real):
        raise TypeError(
            f"deadline must be a number, not {type(deadline).__name__}: a time of the loop's "
            f"clock, loop.time() + 0.5 for example."
        )
    if isnan(deadline):
        raise ValueError("deadline must be a time of the loop's clock, not NaN, which never comes.")
    return None if deadline == inf else float(deadline)


class request(Mode):
    """Set the priority and deadline of all passes started in a block, also by child tasks.

    Works as a decorator, too. When requests are nested, the innermost that sets a priority or a
    deadline counts for it.

    Args:
        priority: larger is more urgent; the default is that of the surroundings, or 0.
        deadline: the loop time at which passes are given up; the default is the outer request's,
            and infinity removes that.

    Raises:
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
        given: dict[str, Any] = {}
        if priority is not None:
            given["priority"] = checked_priority(priority)
        if deadline is not None:
            given["deadline"] = checked_deadline(deadline)
        super().__init__(**given)
