"""Blocking calls: for scripts, threads, and libraries called from a running loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad import autograd
from asyncgrad.autograd import functional
from asyncgrad.core.modes import Mode
from asyncgrad.sync import func

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "backward", "blocking", "func", "grad", "hessian", "hvp", "jacobian", "jvp", "vhp", "vjp",
]  # fmt: skip


def blocking() -> Mode:
    """Make passes in a block blocking, also on a thread with a running loop.

    Works as a decorator, too. Passes block the loop meanwhile, so this is for notebooks and for
    libraries that do not know about asyncio.
    """
    return Mode(blocking=True)


def backward(*args: Any, **kwargs: Any) -> None:
    """`asyncgrad.autograd.backward`, blocking: the pass has ended when it returns."""
    with blocking():
        autograd.backward(*args, **kwargs)


def grad(*args: Any, **kwargs: Any) -> Any:
    """`asyncgrad.autograd.grad`, blocking: it returns a plain tuple or dictionary."""
    with blocking():
        result = autograd.grad(*args, **kwargs)
    return dict(result) if isinstance(result, dict) else tuple(result)


def _ended(function: Callable[..., Any]) -> Callable[..., Any]:
    blocked = func.ended(function)
    blocked.__doc__ = f"`asyncgrad.autograd.functional.{function.__name__}`, ended when it returns."
    return blocked


hessian = _ended(functional.hessian)
hvp = _ended(functional.hvp)
jacobian = _ended(functional.jacobian)
jvp = _ended(functional.jvp)
vhp = _ended(functional.vhp)
vjp = _ended(functional.vjp)
