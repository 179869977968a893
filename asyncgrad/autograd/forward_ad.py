"""Forward mode: tensors with tangents, as in `torch.autograd.forward_ad`.

Everything computed from a dual tensor within a level carries a tangent: its derivative in the
given direction. This costs one more computation for each operation and keeps nothing; outside of
a level it costs nothing. A level belongs to the asyncio task or thread that opens it. Tangents can
be differentiated by passes, and passes started in a level give gradients with tangents.
"""

from __future__ import annotations

from typing import Any, Self

from asyncgrad.aliases import Value
from asyncgrad.autograd.modes import AtOnce
from asyncgrad.core.forward import Level
from asyncgrad.core.modes import Mode, current, install
from asyncgrad.core.variable import Variable
from asyncgrad.errors import AutogradError, class_of
from asyncgrad.ops.batching import bottom
from asyncgrad.ops.forward import check_tangent, tangent_of, without_tangents
from asyncgrad.ops.namespace import RECORDED
from asyncgrad.ops.promotion import category
from asyncgrad.records import NamedTuple
from asyncgrad.types import Tensor

__all__ = [
    "UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level",
    "is_fwd_grad_enabled", "make_dual", "set_fwd_grad_enabled", "unpack_dual",
]  # fmt: skip


class UnpackedDualTensor(NamedTuple):
    """The result of `unpack_dual`."""

    #: The values: a view of the dual tensor that has no tangent.
    primal: Tensor
    #: The tangent, or None.
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Open the level of forward mode, and return its number, 0.

    Raises:
        RuntimeError: if a level is open already; `asyncgrad.func.jvp` nests.
    """
    install(current().replace(dual_level=_first_level()))
    return 0


def _first_level() -> Level:
    """A new level; raises if one is open."""
    if current().dual_level is not None:
        raise AutogradError("Nested forward mode AD is not supported at the moment")
    return Level()


def exit_dual_level(*, level: int | None = None) -> None:
    """Close the level and drop its tangents.

    Args:
        level: its number; the default is the open one.

    Raises:
        RuntimeError: if no level is open, or `level` is another one.
    """
    modes = current()
    opened = modes.dual_level
    if opened is None and level is None:
        raise AutogradError("exit_dual_level: no dual level is open. Call enter_dual_level() first")
    if opened is None or (level is not None and level != opened.depth):
        raise AutogradError(
            "Trying to exit a forward AD level that was not the last one that was created. This "
            "is not supported."
        )
    install(modes.replace(dual_level=opened.outer))


class dual_level(Mode):
    """A level of forward mode for a block, or for each call of a decorated function.

    Raises:
        RuntimeError: on entry, if a level is open.

    Example:
        >>> import asyncgrad.autograd.forward_ad as fwAD
        >>> with fwAD.dual_level():
        ...     x = fwAD.make_dual(ag.tensor([1.0, 2.0]), ag.tensor([1.0, 0.0]))
        ...     print(fwAD.unpack_dual(x * x).tangent)
        tensor([2., 0.])
    """

    def __init__(self) -> None:
        super().__init__()

    def __enter__(self) -> Any:
        """Open the level and return its number."""
        self._put({"dual_level": _first_level()})
        return 0


class nested_level(Mode):
    """A level inside of the open levels: its tangents can have tangents, for higher derivatives.

    Args:
        recorded: record how tangents are computed, whatever the grad mode.
    """

    def __init__(self, *, recorded: bool = False) -> None:
        super().__init__()
        self._recorded = recorded

    def __enter__(self) -> Self:
        level = Level(current().dual_level, recorded=self._recorded)
        self._put({"forward": True, "dual_level": level})
        return self


class set_fwd_grad_enabled(AtOnce):
    """Switch the computation of tangents on or off at once; as a context manager, for a block."""

    def __init__(self, mode: bool) -> None:
        super().__init__(forward=bool(mode))


_set_fwd_grad_enabled = set_fwd_grad_enabled


def is_fwd_grad_enabled() -> bool:
    """Whether operations compute tangents here."""
    modes = current()
    return modes.forward and not modes.inference


_is_fwd_grad_enabled = is_fwd_grad_enabled


def _floating(what: str, tensor: Value) -> None:
    if not isinstance(tensor, Variable):
        raise TypeError(f"make_dual: {what} must be a Tensor, not {class_of(tensor)}")
    if category(tensor._metadata.dtype) < 2:
        raise ValueError(
            f"Expected {what} to be floating point or complex, but got: {tensor._metadata.dtype}"
        )


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A view of a tensor, with a tangent.

    Args:
        tensor: the values, floating or complex.
        tangent: the direction of the derivative, of the same shape. It is not copied: in-place
            changes of the dual tensor change it, too, unless its elements share memory.
        level: the number of the level; the default is the open one.

    Returns:
        The dual tensor, which shares the memory of `tensor` and leads to it in the graph.

    Raises:
        RuntimeError: if one of the two already has a tangent.

    Example:
        >>> import asyncgrad.autograd.forward_ad as fwAD
        >>> with fwAD.dual_level():
        ...     dual = fwAD.make_dual(ag.tensor(3.0), ag.tensor(1.0))
        ...     print(fwAD.unpack_dual(dual * dual).tangent)
        tensor(6.)
    """
    opened = current().dual_level
    if opened is None or (level is not None and level < 0):
        raise AutogradError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to "
            "enter_dual_level() first."
        )
    if level is not None and level != opened.depth:
        raise AutogradError(f"make_dual: level {level} is not open, but {opened.depth} is")
    _floating("primal", tensor)
    _floating("tangent", tangent)
    if tangent_of(tensor, opened) is not None:
        raise AutogradError(
            f"Making a dual Tensor based on a Tensor that already has a forward gradient at the "
            f"same level {opened.depth} is not supported."
        )
    if tangent_of(bottom(tangent), opened) is not None:
        raise AutogradError(
            f"Setting a forward grad that itself has a forward gradient at the same level "
            f"{opened.depth} is not supported."
        )
    shape = tangent._metadata.shape
    check_tangent(tensor._metadata.shape, shape)
    if any(n > 1 and not step for n, step in zip(shape, tangent.stride(), strict=True)):
        tangent = without_tangents(RECORDED.clone, tangent)
    dual: Tensor = _alias(tensor, opened)
    opened.set(dual._array, tangent)
    return dual


def _alias(tensor: Value, level: Level) -> Any:
    """A view of a tensor without its tangent at this level, but with those of outer levels."""
    with Mode(dual_level=level.outer):
        alias = RECORDED.reshape(tensor, tensor._metadata.shape)
    level.set(alias._array, None)
    return alias


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The values of a tensor and its tangent.

    Args:
        level: the number of the level; the default is the open one.

    Returns:
        A named tuple `(primal, tangent)`; the tangent is None if there is none or no level is open.

    Raises:
        RuntimeError: if `level` is not the open one.
    """
    if not isinstance(tensor, Variable):
        raise TypeError(f"unpack_dual(): argument 'tensor' must be Tensor, not {class_of(tensor)}")
    modes = current()
    opened = modes.dual_level
    if opened is None or (level is not None and level < 0):
        return UnpackedDualTensor(tensor, None)
    if level is not None and level != opened.depth:
        raise AutogradError(f"unpack_dual: level {level} is not open, but {opened.depth} is")
    tangent = without_tangents(tangent_of, tensor, opened) if is_fwd_grad_enabled() else None
    return UnpackedDualTensor(_alias(tensor, opened), tangent)
