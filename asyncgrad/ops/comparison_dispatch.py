"""How elementwise functions are called without a derivative: comparisons and tests.

Like those of `elementwise_doors` they handle what nearly every call is, and hand anything else over
to slower ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.core.modes import current
from asyncgrad.core.variable import Variable
from asyncgrad.ops.namespace import metadata_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.ops.op import Op

#: Makes the tensor of a result, empty as yet; bound by `bind_face`.
_Tensor: Callable[[], Any] = Variable

#: Records that a dispatch function remembers.
_CACHE_LIMIT = 1024


def bind_face(face: Callable[[], Any]) -> None:
    """Say what makes a tensor of the class that users see."""
    global _Tensor
    _Tensor = face


def _seen(array: Any, metadata: Any, kernel: Any, trusting: str | None) -> tuple[Any, Any, Any]:
    """The record of a result, the kernel that has made it, and one that no longer looks at dtypes.

    Args:
        array: the result, of the operands' shape.
        metadata: the operands' record.
        kernel: the kernel.
        trusting: the library's name of what the kernel calls, None if that is itself.
    """
    made = metadata_of(array, metadata.device)
    if trusting is None or metadata.device.streamed:
        return made, kernel, kernel
    return made, kernel, getattr(metadata.F.xp, trusting)


def comparison_dispatch(
    op: Op, meet: Callable[[Any, Any], Any], *, numbers: bool
) -> Callable[[Any, Any], Any]:
    """The function of an elementwise entry of two tensors that has no derivative.

    Args:
        entry: the entry.
        meet: what to do with operands that are not floating tensors of one shape and dtype.
        numbers: the second operand may be a number.
    """
    name = op.name
    trusting = getattr(op.forward, "trusting", None)
    #: By the operands' record what `_seen` says.
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
    """The function of an elementwise entry of one tensor that has no derivative.

    Args:
        entry: the entry.
        general: its function for any tensor.
    """
    name = op.name
    trusting = getattr(op.forward, "trusting", None)
    #: By the operand's record what `_seen` says.
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
