"""The same calls, blocking: for scripts, threads, and libraries called from a running loop."""

from __future__ import annotations

from typing import Any

from asyncgrad import autograd
from asyncgrad.core.modes import Mode

__all__ = ["backward", "blocking", "grad"]


def blocking() -> Mode:
    """Within this context passes block, also on a running loop's thread.

    Works as a decorator, too. The loop is held meanwhile: it is for notebooks and for libraries
    that know nothing of asyncio.
    """
    return Mode(blocking=True)


def backward(*args: Any, **kwargs: Any) -> None:
    """`asyncgrad.autograd.backward`, ended when it returns."""
    with blocking():
        autograd.backward(*args, **kwargs)


def grad(*args: Any, **kwargs: Any) -> Any:
    """`asyncgrad.autograd.grad`, ended when it returns: a plain tuple or dictionary."""
    with blocking():
        result = autograd.grad(*args, **kwargs)
    return dict(result) if isinstance(result, dict) else tuple(result)
