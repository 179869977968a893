"""The transforms of `asyncgrad.func`, blocking: their functions return results at once."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from asyncgrad import func
from asyncgrad.core.modes import Mode

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "debug_unwrap", "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev",
    "jvp", "linearize", "stack_module_state", "vjp", "vmap",
]  # fmt: skip

debug_unwrap = func.debug_unwrap
stack_module_state = func.stack_module_state


def ended(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function blocking."""

    @functools.wraps(function)
    def blocked(*args: object, **kwargs: object) -> Any:
        with Mode(blocking=True):
            return function(*args, **kwargs)

    return blocked


def _making(transform: Callable[..., Any]) -> Callable[..., Any]:
    """Make the functions that a transform returns blocking."""

    @functools.wraps(transform)
    def made(*args: object, **kwargs: object) -> Callable[..., Any]:
        return ended(transform(*args, **kwargs))

    made.__doc__ = f"`asyncgrad.func.{transform.__name__}`, for a function that blocks."
    return made


def _giving(transform: Callable[..., Any]) -> Callable[..., Any]:
    """Make a transform that returns a value and a function blocking, and that function as well."""
    blocked = ended(transform)

    @functools.wraps(transform)
    def given(*args: object, **kwargs: object) -> Any:
        value, function, *aux = blocked(*args, **kwargs)
        return (value, ended(function), *aux)

    given.__doc__ = f"`asyncgrad.func.{transform.__name__}`, ended when it returns."
    return given


functional_call = ended(func.functional_call)
grad = _making(func.grad)
grad_and_value = _making(func.grad_and_value)
hessian = _making(func.hessian)
jacfwd = _making(func.jacfwd)
jacrev = _making(func.jacrev)
jvp = ended(func.jvp)
linearize = _giving(func.linearize)
vjp = _giving(func.vjp)
vmap = _making(func.vmap)
