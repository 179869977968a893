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


def ended(function: _F, doc: str | None = None, then: Callable[[Any], Any] | None = None) -> _F:
    """Make a function blocking. Its result, which `then` may convert, need not be awaited."""

    @functools.wraps(function)
    def blocked(*args: object, **kwargs: object) -> Any:
        with Mode(blocking=True):
            result = function(*args, **kwargs)
        return result if then is None else then(result)

    blocked.__doc__ = doc or function.__doc__
    return cast("_F", blocked)


def _making(transform: _F) -> _F:
    """Make the functions that a transform returns blocking."""
    doc = f"`asyncgrad.func.{transform.__name__}`, for a function that blocks."
    return ended(transform, doc, ended)


def _giving(transform: _F) -> _F:
    """Make a transform that returns a value and a function blocking, and that function as well."""
    doc = f"`asyncgrad.func.{transform.__name__}`, blocking: it returns plain results."
    return ended(transform, doc, lambda found: (found[0], ended(found[1]), *found[2:]))


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
