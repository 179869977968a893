"""Blocking calls: for scripts, threads, and libraries called from a running loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, cast

from asyncgrad import autograd
from asyncgrad.autograd import functional
from asyncgrad.core.modes import Mode
from asyncgrad.sync import func
from asyncgrad.sync.func import _F

_P = ParamSpec("_P")

__all__ = [
    "backward", "blocking", "func", "grad", "hessian", "hvp", "jacobian", "jvp", "vhp", "vjp",
]  # fmt: skip


def blocking() -> Mode:
    """Make passes in a block blocking, also on a thread with a running loop.

    Works as a decorator, too. Passes block the loop meanwhile, so this is for notebooks and for
    libraries that do not know about asyncio.
    """
    return Mode(blocking=True)


def _without_result(function: Callable[_P, object]) -> Callable[_P, None]:
    @wraps(function)
    def blocked(*args: _P.args, **kwargs: _P.kwargs) -> None:
        with blocking():
            function(*args, **kwargs)

    blocked.__doc__ = "`asyncgrad.autograd.backward`, blocking: the pass has ended when it returns."
    return blocked


def _plain(function: _F) -> _F:
    @wraps(function)
    def blocked(*args: object, **kwargs: object) -> Any:
        with blocking():
            result = function(*args, **kwargs)
        return dict(result) if isinstance(result, dict) else tuple(result)

    blocked.__doc__ = "`asyncgrad.autograd.grad`, blocking: it returns a plain tuple or dictionary."
    return cast("_F", blocked)


def _ended(function: _F) -> _F:
    blocked = func.ended(function)
    name = f"asyncgrad.autograd.functional.{function.__name__}"
    blocked.__doc__ = f"`{name}`, blocking: it returns plain results."
    return blocked


backward = _without_result(autograd.backward)
grad = _plain(autograd.grad)
hessian = _ended(functional.hessian)
hvp = _ended(functional.hvp)
jacobian = _ended(functional.jacobian)
jvp = _ended(functional.jvp)
vhp = _ended(functional.vhp)
vjp = _ended(functional.vjp)
