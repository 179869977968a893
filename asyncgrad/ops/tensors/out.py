"""The argument `out`: results written into existing tensors.

The function computes as usual; then its result is checked against `out` and copied. Therefore `out`
may share memory with an input, and a result that does not fit changes nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from asyncgrad.core.frames import warn
from asyncgrad.core.modes import current
from asyncgrad.core.variable import Variable, requires_grad, view_of
from asyncgrad.errors import AutogradError, OutOfMemoryError, class_of
from asyncgrad.ops.dtype_device import as_layout
from asyncgrad.ops.forward import tangent_of
from asyncgrad.ops.promotion import category
from asyncgrad.ops.signatures import Postponed, extended
from asyncgrad.ops.tensors import in_place
from asyncgrad.ops.tensors.transfer import made_pinned

_F = TypeVar("_F", bound="Callable[..., Any]")
#: The arguments that the decorators add, and their defaults.
_OUT = {"out": None}
_MADE = {"layout": None, "pin_memory": False}
#: Parts of NumPy's messages for a shape with more elements than there are addresses.
_TOO_LARGE = ("too big", "too large", "Maximum allowed")
#: Functions that refuse a tensor of a lesser kind as PyTorch's `cat` does, by TypeError.
_JOINING = {"cat", "stack", "hstack", "vstack", "dstack", "column_stack"}


#: The named tuples whose tensors are converted into the dtypes of `out`.
_CONVERTED = {"linalg_eig", "linalg_lstsq"}


def put(out: Any, name: str, result: Any, *, exact: bool = False) -> Any:
    """Write a function's result into the tensor, or tensors, that the caller gave.

    Args:
        out: a tensor, or a sequence of them if the function has several results. It takes the
            result's shape; if its own is another and it is not empty, a warning says so.
        name: the function, for errors.
        result: what the function returned.
        exact: `out` must have the result's dtype; otherwise it is converted within a category.

    Returns:
        `out`, or the function's named tuple with the tensors of `out`.

    Raises:
        RuntimeError: if a gradient would have to flow, or dtype or device do not fit.
    """
    if isinstance(result, tuple):
        exact = type(result).__name__ not in _CONVERTED
        return _put_all(out, name, result, exact=exact)
    _check(out, name, result, exact=exact)
    return _write(out, name, result)


def _put_all(out: Any, name: str, results: Any, *, exact: bool) -> Any:
    if not isinstance(out, (tuple, list)) or len(out) != len(results):
        raise TypeError(
            f"{name}(): argument 'out' must be tuple of {len(results)} Tensors, not {class_of(out)}"
        )
    for one, result in zip(out, results, strict=True):
        _check(one, name, result, exact=exact)
    return type(results)(*[_write(o, name, r) for o, r in zip(out, results, strict=True)])


def _check(out: Any, name: str, result: Any, *, exact: bool) -> None:
    if not isinstance(out, Variable):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {class_of(out)}")
    if current().grad and (requires_grad(out) or requires_grad(result)):
        raise AutogradError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, "
            f"but one of the arguments requires grad. Leave out= away, or put the call under "
            f"asyncgrad.no_grad()."
        )
    if current().dual_level is not None and any(
        tangent_of(x, current().dual_level) is not None for x in (out, result)
    ):
        raise NotImplementedError(
            f"Trying to use forward AD with {name}_out that does not support it because it is an "
            f"out= function. Leave out= away."
        )
    given, found = out._metadata, result._metadata
    if given.device is not found.device:
        raise AutogradError(
            f"{name}(): Expected out tensor to have device {found.device}, but got {given.device} "
            f"instead"
        )
    if given.dtype != found.dtype:
        if exact:
            raise AutogradError(
                f"{name}(): Expected out tensor to have dtype {found.dtype}, but got "
                f"{given.dtype} instead"
            )
        kinds = category(found.dtype), category(given.dtype)
        # As in PyTorch, Fourier transforms do not write real results into complex tensors, either.
        if kinds[0] > kinds[1] or (kinds[0] < kinds[1] and name.startswith("fft_")):
            error = TypeError if name in _JOINING else AutogradError
            raise error(
                f"{name}(): result type {found.dtype} can't be cast to the desired output type "
                f"{given.dtype}. Give a tensor of the result's dtype."
            )
    in_place.check_change(out, name, recorded=False)
    if given.shape != found.shape and view_of(out) is not None:
        raise AutogradError(
            f"{name}(): out has shape {list(given.shape)} and would take {list(found.shape)}, "
            f"but it is a view, whose memory is not its own. Give a tensor of that shape."
        )


def _write(out: Any, name: str, result: Any) -> Any:
    given, found = out._metadata, result._metadata
    if given.shape != found.shape:
        if given.size:
            warn(
                f"An output with one or more elements was resized since it had shape "
                f"{list(given.shape)}, which does not match the required output shape "
                f"{list(found.shape)}. Reuse it with {name}(..., out=x.new_empty(0))."
            )
        F = found.F
        out._array = F.xp.empty(found.shape, dtype=given.dtype)
        out._metadata = F.metadata_of(out._array)
    return in_place.assign(out, result, name)


#: Numbers in a row, which are written into any shape of as many elements.
_ROWS = {"arange", "linspace", "logspace"}


def makes(function: _F) -> _F:
    """Wrap a function that makes a tensor to accept `out`, `layout` and `pin_memory`."""
    name = function.__name__
    without_out = as_made(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            if not kwargs:
                return function(*args)
            out = kwargs.pop("out", None)
            if out is None:
                return without_out(*args, **kwargs)
        except (MemoryError, ValueError) as error:
            said = str(error)
            if isinstance(error, ValueError) and not any(part in said for part in _TOO_LARGE):
                raise
            raise OutOfMemoryError(f"{name}(): can't allocate memory: {error}") from None
        if not isinstance(out, Variable):
            raise TypeError(f"{name}(): argument 'out' must be Tensor, not {class_of(out)}")
        dtype = out._metadata.dtype
        if kwargs.setdefault("dtype", dtype) not in {None, dtype}:
            raise RuntimeError(
                f"{name}(): dtype {kwargs['dtype']} does not match dtype of out parameter ({dtype})"
            )
        kwargs["dtype"] = dtype
        kwargs.setdefault("device", out._metadata.device)
        made = without_out(*args, **kwargs)
        if name in _ROWS and made._metadata.size == out._metadata.size:
            made = made.reshape(out._metadata.shape)
        return put(out, name, made)

    call.__signature__ = Postponed(extended, without_out, _OUT)  # type: ignore[attr-defined]
    return cast("_F", call)


def as_made(function: _F) -> _F:
    """Wrap a function that makes a tensor to accept `layout` and `pin_memory`.

    Every layout but `strided` is refused.
    """
    name = function.__name__

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            as_layout(name, kwargs.pop("layout", None))
            if kwargs.pop("pin_memory", None):
                return made_pinned(function(*args, **kwargs))
        return function(*args, **kwargs)

    call.__signature__ = Postponed(extended, function, _MADE)  # type: ignore[attr-defined]
    return cast("_F", call)
