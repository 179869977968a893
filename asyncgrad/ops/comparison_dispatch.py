"""Dispatch functions of elementwise ops without a derivative: comparisons and predicates.

Like those of `elementwise_dispatch` they inline the common case, and pass any other call on to
slower functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.core.modes import current
from asyncgrad.core.variable import Variable
from asyncgrad.ops.namespace import metadata_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.ops.op import Op

#: Makes the empty tensor for a result; set by `bind_face`.
_Tensor: Callable[[], Any] = Variable

#: How many metadata records a dispatch function caches.
_CACHE_LIMIT = 1024


def bind_face(face: Callable[[], Any]) -> None:
    """Set the function that makes an empty tensor of the users' class."""
    global _Tensor
    _Tensor = face


def _seen(array: Any, metadata: Any, kernel: Any, trusting: str | None) -> tuple[Any, Any, Any]:
    """The result's metadata, the kernel that made it, and a kernel that skips dtype checks.

    Args:
        array: the result, of the operands' shape.
        metadata: the operands' metadata.
        kernel: the kernel that checks dtypes.
        trusting: the library's name of the function that the kernel wraps; None if it wraps none.
    """
    made = metadata_of(array, metadata.device)
    if trusting is None or metadata.device.streamed:
        return made, kernel, kernel
    return made, kernel, getattr(metadata.F.xp, trusting)


def comparison_dispatch(
    op: Op, meet: Callable[[Any, Any], Any], *, numbers: bool
) -> Callable[[Any, Any], Any]:
    """The dispatch function of a binary elementwise op without a derivative.

    Args:
        op: the op.
        meet: handles operands that are not floating tensors of one shape and dtype.
        numbers: whether the second operand may be a number.
    """
    name = op.name
    trusting = getattr(op.forward, "trusting", None)
    #: What `_seen` returned, by the operands' metadata.
    known: dict[Any, tuple[Any, Any, Any]] = {}

    def dispatch(input: Any, other: Any) -> Any:
        kind = other.__class__
        try:
            metadata = input._metadata
            seen = known.get(metadata)
            if not current().plain:
                return meet(input, other)
            kernel = metadata.kernels[name]
            if seen is not None and kernel is seen[1]:
                kernel = seen[2]
            if numbers and (kind is float or kind is int) and not metadata.special:
                array = kernel(input._array, other)
            elif other._metadata is metadata and not metadata.scalar:
                array = kernel(input._array, other._array)
            else:
                return meet(input, other)
        except (AttributeError, RuntimeWarning):
            return meet(input, other)
        if seen is None:
            if len(known) >= _CACHE_LIMIT:
                known.clear()
            seen = known[metadata] = _seen(array, metadata, kernel, trusting)
        out = _Tensor()
        out._array = array
        out._metadata = seen[0]
        out._edge = None
        out._counter = None
        out._autograd = None
        return out

    dispatch.__name__ = dispatch.__qualname__ = name
    return dispatch


def predicate_dispatch(op: Op, general: Callable[..., Any]) -> Callable[[Any], Any]:
    """The dispatch function of a unary elementwise op without a derivative.

    Args:
        op: the op.
        general: its dispatch function for any tensor.
    """
    name = op.name
    trusting = getattr(op.forward, "trusting", None)
    #: What `_seen` returned, by the operand's metadata.
    known: dict[Any, tuple[Any, Any, Any]] = {}

    def dispatch(input: Any) -> Any:
        metadata = input._metadata
        if metadata.scalar or not current().plain:
            return general(input)
        seen = known.get(metadata)
        kernel = metadata.kernels[name]
        if seen is not None and kernel is seen[1]:
            kernel = seen[2]
        try:
            array = kernel(input._array)
        except RuntimeWarning:
            return general(input)
        if seen is None:
            if len(known) >= _CACHE_LIMIT:
                known.clear()
            seen = known[metadata] = _seen(array, metadata, kernel, trusting)
        out = _Tensor()
        out._array = array
        out._metadata = seen[0]
        out._edge = None
        out._counter = None
        out._autograd = None
        return out

    dispatch.__name__ = dispatch.__qualname__ = name
    return dispatch
