"""Forward mode: tensors with a tangent, as in `torch.autograd.forward_ad`.

Everything that is computed from a dual tensor within a level carries a tangent: the derivative in
the direction that was given. It costs one further computation for each operation, keeps nothing,
and nothing at all outside of a level. A level belongs to the asyncio task or thread that opens it.
Tangents can be differentiated by passes, and passes started in a level give gradients with
tangents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from asyncgrad.autograd.modes import AtOnce
from asyncgrad.core.forward import Level
from asyncgrad.core.modes import Mode, current, install
from asyncgrad.core.variable import Variable
from asyncgrad.errors import AutogradError
from asyncgrad.ops.batching import bottom
from asyncgrad.ops.forward import closed, tangent_of
from asyncgrad.ops.namespace import RECORDED
from asyncgrad.ops.promotion import category
from asyncgrad.records import NamedTuple

if TYPE_CHECKING:
    from asyncgrad.tensor import Tensor

__all__ = [
    "UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level",
    "is_fwd_grad_enabled", "make_dual", "set_fwd_grad_enabled", "unpack_dual",
]  # fmt: skip


class UnpackedDualTensor(NamedTuple):
    """What `unpack_dual` returns."""

    #: The values, a view of the dual tensor without a tangent.
    primal: Tensor
    #: The tangent, None if there is none.
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Open the level of forward mode.

    Returns:
        Its number, 0.

    Raises:
        RuntimeError: if one is open; `asyncgrad.func.jvp` nests.
    """
    install(current().replace(dual_level=_first_level()))
    return 0


def _first_level() -> Level:
    """A level, where none is open."""
    if current().dual_level is not None:
        raise AutogradError("Nested forward mode AD is not supported at the moment")
    return Level()


def exit_dual_level(*, level: int | None = None) -> None:
    """Close the level: its tangents are gone.

    Args:
        level: its number; the default is the open one.

    Raises:
        RuntimeError: if it is not the open one, or none is.
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
        >>> import asyncgrad as ag
        >>> import asyncgrad.autograd.forward_ad as fwAD
        >>> with fwAD.dual_level():
        ...     x = fwAD.make_dual(ag.tensor([1.0, 2.0]), ag.tensor([1.0, 0.0]))
        ...     print(fwAD.unpack_dual(x * x).tangent)
        tensor([2., 0.])
    """

    def __init__(self) -> None:
        """Open nothing before `__enter__`."""
        super().__init__()

    def __enter__(self) -> Any:
        """Open the level; returns its number."""
        self._put({"dual_level": _first_level()})
        return 0

    def _again(self) -> Mode:
        """A level for each call."""
        return dual_level()


class nested_level(Mode):
    """A level within whatever levels are open: tangents have tangents, for derivatives of them.

    Args:
        recorded: how tangents are computed is recorded in any grad mode.
    """

    def __init__(self, *, recorded: bool = False) -> None:
        """Open nothing before `__enter__`."""
        super().__init__()
        self._recorded = recorded

    def __enter__(self) -> Self:
        """Open the level."""
        level = Level(current().dual_level, recorded=self._recorded)
        self._put({"forward": True, "dual_level": level})
        return self


class set_fwd_grad_enabled(AtOnce):
    """Whether operations push tangents, from the call on; as a context manager, until its end."""

    def __init__(self, mode: bool) -> None:
        """Set the mode at once."""
        super().__init__(forward=bool(mode))


_set_fwd_grad_enabled = set_fwd_grad_enabled


def is_fwd_grad_enabled() -> bool:
    """Whether operations push tangents here."""
    modes = current()
    return modes.forward and not modes.inference


_is_fwd_grad_enabled = is_fwd_grad_enabled


def _floating(what: str, tensor: Any) -> None:
    if not isinstance(tensor, Variable):
        raise TypeError(f"make_dual: {what} must be a Tensor, not {type(tensor).__name__}")
    if category(tensor._metadata.dtype) < 2:
        raise ValueError(
            f"Expected {what} to be floating point or complex, but got: {tensor._metadata.dtype}"
        )


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A view of a tensor that has a tangent.

    Args:
        tensor: the values, floating or complex.
        tangent: the direction of the derivative, of the same shape. It is used as it is: what
            changes the dual tensor in place changes it, too, unless its elements share memory.
        level: the number of the level; the default is the open one.

    Returns:
        The dual tensor, which shares the memory of `tensor` and leads to it in the graph.

    Raises:
        RuntimeError: if no level is open, the shapes differ, or one of the two has a tangent
            already.
        ValueError: if a dtype has no derivatives.

    Example:
        >>> import asyncgrad as ag
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
    shape, given = tensor._metadata.shape, tangent._metadata.shape
    if shape != given:
        raise AutogradError(
            f"Trying to set a forward gradient that has a different size than that of the "
            f"original Tensor, this is not supported. Tensor is of size {list(shape)} while the "
            f"given forward gradient is of size {list(given)}."
        )
    if any(n > 1 and not step for n, step in zip(given, tangent.stride(), strict=True)):
        tangent = closed(RECORDED.clone, tangent)
    dual: Tensor = _alias(tensor, opened)
    opened.set(dual._array, tangent)
    return dual


def _alias(tensor: Any, level: Level) -> Any:
    """A view of all of a tensor without a tangent at a level, but with those around it."""
    modes = current()
    install(modes.replace(dual_level=level.outer))
    try:
        alias = RECORDED.reshape(tensor, tensor._metadata.shape)
    finally:
        install(modes)
    level.set(alias._array, None)
    return alias


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The values of a tensor and its tangent.

    Args:
        tensor: any tensor.
        level: the number of the level; the default is the open one.

    Returns:
        A named tuple `(primal, tangent)`; the tangent is None where there is none, and outside of
        a level.

    Raises:
        RuntimeError: if the level is not the open one.
        TypeError: if `tensor` is none.
    """
    if not isinstance(tensor, Variable):
        raise TypeError(
            f"unpack_dual(): argument 'tensor' must be Tensor, not {type(tensor).__name__}"
        )
    modes = current()
    opened = modes.dual_level
    if opened is None or (level is not None and level < 0):
        return UnpackedDualTensor(tensor, None)
    if level is not None and level != opened.depth:
        raise AutogradError(f"unpack_dual: level {level} is not open, but {opened.depth} is")
    tangent = closed(tangent_of, tensor, opened) if is_fwd_grad_enabled() else None
    return UnpackedDualTensor(_alias(tensor, opened), tangent)
