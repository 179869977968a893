"""Modes that users set: context managers and decorators over the record in `core.modes`."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from asyncgrad.core.modes import Mode, current, install
from asyncgrad.ops.arguments import check_bool

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.core.modes import Modes
    from asyncgrad.tensor import Tensor

_F = TypeVar("_F", bound="Callable[..., Any]")

__all__ = [
    "enable_grad", "inference_mode", "is_grad_enabled", "is_inference", "is_inference_mode_enabled",
    "is_multithreading_enabled", "no_grad", "set_grad_enabled", "set_multithreading_enabled",
    "set_nesting_limit",
]  # fmt: skip


_OFF, _ON = {"grad": False}, {"grad": True}


class no_grad(Mode):
    """Operations are not recorded.

    A context manager, and a decorator of functions, coroutine functions, generators and async
    generators. It holds for the asyncio task or thread that enters it and for no other.

    Example:
        >>> import asyncgrad as ag
        >>> x = ag.ones(1, requires_grad=True)
        >>> with ag.no_grad():
        ...     y = x * 2
        >>> y.requires_grad
        False
    """

    def __new__(cls, function: Any = None) -> Any:
        """Also a decorator without parentheses."""
        return super().__new__(cls) if function is None else Mode(grad=False)(function)

    def __init__(self) -> None:
        """Switch recording off."""
        # Not through `Mode`: a tenth of what entering and leaving costs.
        self._changes = _OFF


class enable_grad(Mode):
    """Operations are recorded, also within `no_grad`."""

    def __new__(cls, function: Any = None) -> Any:
        """Also a decorator without parentheses."""
        return super().__new__(cls) if function is None else Mode(grad=True)(function)

    def __init__(self) -> None:
        """Switch recording on."""
        self._changes = _ON


class AtOnce(Mode):
    """A mode that holds from the call on; as a context manager, until the end of its block."""

    def __init__(self, **changes: Any) -> None:
        """Set the mode at once."""
        super().__init__(**changes)
        before = current()
        changed = before.replace(**changes)
        install(changed)
        _calls.set({**_calls.get(), type(self): (self, before, changed)})

    def _call(self) -> tuple[Modes, Modes] | None:
        """What was in force before the call and what it has set, once, if it is the last here."""
        calls = _calls.get()
        mode, *records = calls.get(type(self), (None,))
        if mode is not self:
            return None
        _calls.set({kind: call for kind, call in calls.items() if kind is not type(self)})
        before, changed = records
        return before, changed

    def __enter__(self) -> Any:
        """Set the mode again; if this context's last call made it, its end undoes the call, too."""
        call = self._call()
        if call is None:
            return super().__enter__()
        before, changed = call
        if current() is not changed:
            install(current().replace(**self._changes))
        self._note(self._changes, before, changed)
        return self

    def __call__(self, function: _F) -> _F:
        """As a decorator the mode holds in the function alone."""
        call = self._call()
        if call is not None:
            before, _ = call
            install(current().replace(**{name: getattr(before, name) for name in self._changes}))
        return super().__call__(function)


#: By kind, the last such mode that was called in this context and has not been entered since, what
#: was in force before, and what it has set.
_calls: ContextVar[dict[type[AtOnce], tuple[AtOnce, Modes, Modes]]] = ContextVar(
    "asyncgrad_calls",
    default={},  # noqa: B039  it is replaced and never changed
)


class set_grad_enabled(AtOnce):
    """Operations are recorded or not, from the call on; as a context manager, until its end."""

    def __init__(self, mode: bool) -> None:
        """Set the mode at once.

        Raises:
            TypeError: if it is no bool.
        """
        check_bool("set_grad_enabled", "enabled", mode)
        super().__init__(grad=mode)


class inference_mode(Mode):
    """Nothing is recorded, and what is made here can never take part in a graph.

    Views of tensors from outside are no such tensors, but can't be changed in place while
    recording.

    Args:
        mode: False switches the mode off, within another.
    """

    def __new__(cls, mode: Any = True) -> Any:
        """Also a decorator without parentheses."""
        if isinstance(mode, bool):
            return super().__new__(cls)
        return Mode(grad=False, inference=True)(mode)

    def __init__(self, mode: bool = True) -> None:
        """Switch the mode on or off."""
        super().__init__(grad=not mode, inference=bool(mode))


class set_multithreading_enabled(AtOnce):
    """Kept for PyTorch's programs: a pass needs no threads, and its order is the same with them."""

    def __init__(self, mode: bool) -> None:
        """Note the mode at once."""
        super().__init__(multithreading=bool(mode))


class set_nesting_limit(AtOnce):
    """How many passes may be nested in one another, by nodes and hooks that start passes.

    It holds from the call on; as a context manager, until the end of its block. One more raises a
    `NestingError`. Awaited passes cost no stack; blocking ones go on in fresh threads.

    Args:
        limit: the greatest depth; 20,000 if nobody has set it.

    Raises:
        ValueError: if it is less than 1.
    """

    def __init__(self, limit: int) -> None:
        """Set the limit at once."""
        if limit < 1:
            raise ValueError(f"set_nesting_limit: the limit has to be at least 1, but got {limit}")
        super().__init__(nesting_limit=limit)


class _unsafe_preserve_version_counter:
    """Changes of some tensors in place, within this context, are not counted."""

    def __init__(self, tensors: Tensor | tuple[Tensor, ...]) -> None:
        """Keep the tensors."""
        self._tensors = tensors if isinstance(tensors, tuple) else (tensors,)

    def __enter__(self) -> None:
        """Remember their versions."""
        self._versions = [tensor._version for tensor in self._tensors]

    def __exit__(self, *error: object) -> None:
        """Restore their versions."""
        for tensor, version in zip(self._tensors, self._versions, strict=True):
            if tensor._counter is not None:
                tensor._counter.value += version - tensor._version


def is_grad_enabled() -> bool:
    """Whether operations are recorded here."""
    return current().grad


def is_inference_mode_enabled() -> bool:
    """Whether what is made here can never take part in a graph."""
    return current().inference


def is_inference(input: Tensor) -> bool:
    """Whether a tensor was made in inference mode."""
    return input.is_inference()


def is_multithreading_enabled() -> bool:
    """What `set_multithreading_enabled` has noted; True unless it was called."""
    return current().multithreading
