"""Modes that users set: context managers and decorators over the record in `core.modes`."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from math import inf, isnan
from numbers import Real
from operator import index
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from asyncgrad.aliases import Value
from asyncgrad.core.modes import Mode, Modes, current, install
from asyncgrad.ops.arguments import check_bool
from asyncgrad.ops.promotion import as_tensor_operand
from asyncgrad.types import Tensor

_F = TypeVar("_F", bound="Callable[..., Any]")

__all__ = [
    "enable_grad", "inference_mode", "is_grad_enabled", "is_inference", "is_inference_mode_enabled",
    "is_multithreading_enabled", "no_grad", "set_grad_enabled", "set_multithreading_enabled",
    "set_nesting_limit",
]  # fmt: skip


class _GradMode(Mode):
    """A grad mode, which works as a decorator with and without parentheses."""

    _changes: dict[str, Any]

    @overload
    def __new__(cls, function: None = None) -> Self: ...
    @overload
    def __new__(cls, function: _F) -> _F: ...  # type: ignore[misc]
    def __new__(cls, function: Any = None) -> Any:
        """Let the class be used as a decorator without parentheses."""
        return super().__new__(cls) if function is None else Mode(**cls._changes)(function)

    if not TYPE_CHECKING:  # mypy would prefer this signature to that of `__new__`

        def __init__(self) -> None:
            # `Mode.__init__` is not called: it would add a tenth to the cost of entering and
            # leaving.
            pass


class no_grad(_GradMode):
    """Do not record operations.

    Works as a context manager and as a decorator of functions, coroutine functions, generators and
    async generators. It holds only for the asyncio task or thread that enters it.

    Example:
        >>> x = ag.ones(1, requires_grad=True)
        >>> with ag.no_grad():
        ...     y = x * 2
        >>> y.requires_grad
        False
    """

    _changes = {"grad": False}  # noqa: RUF012  it is never changed


class enable_grad(_GradMode):
    """Record operations, also within `no_grad`."""

    _changes = {"grad": True}  # noqa: RUF012  it is never changed


class AtOnce(Mode):
    """A mode in force from its call on; as a context manager, until the end of its block."""

    #: The last mode of a class that was called in this context and not entered since, with the
    #: records before and after the call.
    _called: ContextVar[tuple[AtOnce, Modes, Modes] | None]

    def __init_subclass__(cls) -> None:
        cls._called = ContextVar("asyncgrad_called", default=None)

    def __init__(self, **changes: Value) -> None:
        self._changes = changes
        before = current()
        changed = before.replace(**changes)
        install(changed)
        self._called.set((self, before, changed))

    def _undo(self) -> None:
        """Undo the call, once, if it was this context's last."""
        call = self._called.get()
        if call is None or call[0] is not self:
            return
        self._called.set(None)
        _, before, changed = call
        now = current()
        # If nothing else was set, the record itself: by it a recording sees that the mode is as it
        # was.
        if now is not changed:
            before = now.replace(**{name: getattr(before, name) for name in self._changes})
        install(before)

    def __enter__(self) -> Self:
        """Undo the call, and set the mode again until `__exit__`."""
        self._undo()
        return super().__enter__()

    def __call__(self, function: _F) -> _F:
        """Undo the call: as a decorator, the mode holds in the function only."""
        self._undo()
        return super().__call__(function)


class set_grad_enabled(AtOnce):
    """Switch recording on or off at once; as a context manager, until the end of its block."""

    def __init__(self, mode: bool) -> None:
        check_bool("set_grad_enabled", "enabled", mode)
        super().__init__(grad=mode)


class inference_mode(Mode):
    """Record nothing; tensors made here can never take part in a graph.

    Views of tensors from outside can take part, but can't be changed in place while
    recording.

    Args:
        mode: False switches an outer inference mode off.
    """

    @overload
    def __new__(cls, mode: bool = True) -> Self: ...
    @overload
    def __new__(cls, mode: _F) -> _F: ...  # type: ignore[misc]
    def __new__(cls, mode: Any = True) -> Any:
        """Let the class be used as a decorator without parentheses."""
        if isinstance(mode, bool):
            return super().__new__(cls)
        return Mode(grad=False, inference=True)(mode)

    def __init__(self, mode: bool = True) -> None:
        super().__init__(grad=not mode, inference=bool(mode))


class set_multithreading_enabled(AtOnce):
    """Accepted for PyTorch's programs and only stored: a pass needs no threads."""

    def __init__(self, mode: bool) -> None:
        super().__init__(multithreading=bool(mode))


class set_nesting_limit(AtOnce):
    """Limit how deep passes may be nested: nodes and hooks can start passes of their own.

    It holds from the call on; as a context manager, until the end of its block. A deeper pass
    raises a `NestingError`. Awaited passes cost no stack; blocking ones run in new threads.

    Args:
        limit: the greatest depth; 20,000 by default.
    """

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"set_nesting_limit: the limit has to be at least 1, but got {limit}")
        super().__init__(nesting_limit=limit)


class _unsafe_preserve_version_counter:
    """Do not count in-place changes of some tensors in this block."""

    def __init__(self, tensors: Tensor | tuple[Tensor, ...]) -> None:
        self._tensors = tensors if isinstance(tensors, tuple) else (tensors,)

    def __enter__(self) -> None:
        self._versions = [tensor._version for tensor in self._tensors]

    def __exit__(self, *error: object) -> None:
        for tensor, version in zip(self._tensors, self._versions, strict=True):
            if tensor._counter is not None:
                tensor._counter.value += version - tensor._version


def is_grad_enabled() -> bool:
    """Whether operations are recorded."""
    return current().grad


def is_inference_mode_enabled() -> bool:
    """Whether inference mode is on."""
    return current().inference


def is_inference(input: Tensor) -> bool:
    """Whether a tensor was made in inference mode."""
    as_tensor_operand(input, "is_inference", 1)
    return input.is_inference()


def is_multithreading_enabled() -> bool:
    """The value set by `set_multithreading_enabled`; True by default."""
    return current().multithreading


def checked_priority(priority: Any) -> int:
    """Check a priority and make it an int."""
    try:
        return index(priority)
    except TypeError:
        raise TypeError(
            f"priority must be an int, not {type(priority).__name__}: larger ones are more urgent, "
            f"0 is usual."
        ) from None


def checked_deadline(deadline: Any) -> float | None:
    """Check a deadline: a time of the loop's clock; None stands for infinity."""
    if not isinstance(deadline, Real):
        raise TypeError(
            f"deadline must be a number, not {type(deadline).__name__}: a time of the loop's "
            f"clock, loop.time() + 0.5 for example."
        )
    if isnan(deadline):
        raise ValueError("deadline must be a time of the loop's clock, not NaN, which never comes.")
    return None if deadline == inf else float(deadline)


class request(Mode):
    """Set the priority and deadline of all passes started in a block, also by child tasks.

    Works as a decorator, too. When requests are nested, the innermost that sets a priority or a
    deadline counts for it.

    Args:
        priority: larger is more urgent; the default is that of the surroundings, or 0.
        deadline: the loop time at which passes are given up; the default is the outer request's,
            and infinity removes that.

    Example:
        >>> import asyncio, asyncgrad as ag
        >>> async def main():
        ...     x = ag.tensor([3.0], requires_grad=True)
        ...     with ag.request(priority=1, deadline=asyncio.get_running_loop().time() + 30):
        ...         await (x * x).sum().backward()
        ...     return x.grad.item()
        >>> asyncio.run(main())
        6.0
    """

    def __init__(self, *, priority: int | None = None, deadline: float | None = None) -> None:
        given: dict[str, Any] = {}
        if priority is not None:
            given["priority"] = checked_priority(priority)
        if deadline is not None:
            given["deadline"] = checked_deadline(deadline)
        super().__init__(**given)
