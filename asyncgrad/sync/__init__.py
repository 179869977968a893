"""Blocking calls: for scripts, threads, and libraries called from a running loop."""

from __future__ import annotations

from collections.abc import Callable
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
    doc = "`asyncgrad.autograd.backward`, blocking: the pass has ended when it returns."
    return cast("Callable[_P, None]", func.ended(function, doc, lambda _: None))


def _plain(result: Any) -> dict[Any, Any] | tuple[Any, ...]:
    return dict(result) if isinstance(result, dict) else tuple(result)


def _ended(function: _F) -> _F:
    name = f"asyncgrad.autograd.functional.{function.__name__}"
    return func.ended(function, f"`{name}`, blocking: it returns plain results.")


backward = _without_result(autograd.backward)
grad = func.ended(
    autograd.grad,
    "`asyncgrad.autograd.grad`, blocking: it returns a plain tuple or dictionary.",
    _plain,
)
hessian = _ended(functional.hessian)
hvp = _ended(functional.hvp)
jacobian = _ended(functional.jacobian)
jvp = _ended(functional.jvp)
vhp = _ended(functional.vhp)
vjp = _ended(functional.vjp)
