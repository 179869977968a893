"""The transforms of `asyncgrad.func`, blocking: their functions return results at once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from asyncgrad import func
from asyncgrad.core.modes import Mode

_F = TypeVar("_F", bound="Callable[..., Any]")

__all__ = [
    "debug_unwrap", "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev",
    "jvp", "linearize", "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap",
]  # fmt: skip

debug_unwrap = func.debug_unwrap
replace_all_batch_norm_modules_ = func.replace_all_batch_norm_modules_
stack_module_state = func.stack_module_state


def ended(function: _F) -> _F:
    """Make a function blocking. Its results have the same types: they need not be awaited."""

    @functools.wraps(function)
    def blocked(*args: object, **kwargs: object) -> Any:
        with Mode(blocking=True):
            return function(*args, **kwargs)

    return cast("_F", blocked)


def _making(transform: _F) -> _F:
    """Make the functions that a transform returns blocking."""

    @functools.wraps(transform)
    def made(*args: object, **kwargs: object) -> Any:
        return ended(transform(*args, **kwargs))

    made.__doc__ = f"`asyncgrad.func.{transform.__name__}`, for a function that blocks."
    return cast("_F", made)


def _giving(transform: _F) -> _F:
    """Make a transform that returns a value and a function blocking, and that function as well."""
    blocked = ended(transform)

    @functools.wraps(transform)
    def given(*args: object, **kwargs: object) -> Any:
        value, function, *aux = blocked(*args, **kwargs)
        return (value, ended(function), *aux)

    given.__doc__ = f"`asyncgrad.func.{transform.__name__}`, blocking: it returns plain results."
    return cast("_F", given)


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
