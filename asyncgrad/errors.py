"""All exceptions of asyncgrad; each derives from the class that PyTorch raises in its place."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

__all__ = [
    "AcceleratorError", "AutogradError", "DeviceLostError", "DeviceUnavailableError",
    "GraphFreedError", "LinAlgError", "NestingError", "OutOfMemoryError", "PendingBackwardError",
    "RaceError", "SavedTensorModifiedError", "WrongLoopError",
]  # fmt: skip


class AutogradError(RuntimeError):
    """A graph or a pass can't be used as asked; PyTorch raises a plain RuntimeError."""


def _remade(kind: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    """An error whose `__init__` made its message, with that message."""
    return kind.__new__(kind, *args)


def _reduced(error: BaseException) -> Any:
    """How such errors are pickled."""
    return _remade, (type(error), error.args), error.__dict__


class GraphFreedError(AutogradError):
    """A pass met a node whose saved tensors an earlier pass has released."""

    def __init__(self, node: str, origin: object) -> None:
        super().__init__(
            f"Trying to backward through the graph a second time (or directly access saved tensors "
            f"after they have already been freed): the saved values of {node} were released by an "
            f"earlier backward() or grad() at {origin}. Specify retain_graph=True in that earlier "
            f"call if you need a second pass, or run the forward again."
        )

    __reduce__ = _reduced


class SavedTensorModifiedError(AutogradError):
    """A tensor was changed in place after an operation had saved it for backward."""


class LinAlgError(AutogradError):
    """A matrix is singular, or does not meet another requirement of a `linalg` function."""


class PendingBackwardError(AutogradError):
    """Results of a pass were used before this task awaited it."""


class WrongLoopError(AutogradError):
    """A pass was awaited on another event loop than its own."""


class NestingError(RecursionError):
    """Reentrant passes are nested deeper than the nesting limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"passes started by nodes and hooks of other passes are nested more than {limit} deep: "
            f"some backward or hook may start passes without end. If it is meant, raise the limit "
            f"with asyncgrad.autograd.set_nesting_limit()."
        )

    __reduce__ = _reduced


class AcceleratorError(RuntimeError):
    """Work on a device failed; raised when the host next synchronises, not where work started."""


class DeviceLostError(AcceleratorError):
    """A device can't be used any more and its arrays are lost. Start a new process."""


class OutOfMemoryError(RuntimeError, MemoryError):
    """A device has not enough memory for an array."""


class DeviceUnavailableError(RuntimeError, AssertionError):
    """A requested device is not available; PyTorch raises either of the base classes."""


class RaceError(RuntimeError):
    """Streams of a simulated device access the same memory in an undefined order."""


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an error, if its class allows notes; frozen classes do not."""
    with suppress(Exception):
        error.add_note(note)


def is_stop(error: BaseException | None) -> bool:
    """Whether an error is meant to stop the program."""
    return isinstance(error, (KeyboardInterrupt, SystemExit))


def described(error: BaseException) -> str:
    """The `repr` of an error, or its class name if `repr` fails."""
    try:
        return repr(error)
    except Exception:
        return type(error).__name__


def class_of(value: object) -> str:
    """The name of a value's class, for an error; with a prefix if it is one of PyTorch's.

    Those have the same names as ours, so that "must be Tensor, not Tensor" would be no help.
    """
    kind = type(value)
    ours = kind.__module__.partition(".")[0] != "torch"
    return kind.__name__ if ours else f"torch.{kind.__name__}"


def note_failure(error: BaseException, node: object) -> None:
    """Add a note with the node that raised an error, and the node's forward output, if any."""
    try:
        # Not `node.name()`: a Function may have set an attribute `name` on ctx.
        where = f"raised by {type(node).name(node)}"  # type: ignore[attr-defined]
        if node.output_metadata != ():  # type: ignore[attr-defined]
            where += f", whose forward output was {node.output_metadata!r}"  # type: ignore[attr-defined]
        error.add_note(where)
        made_at = node.extras and node.extras.metadata.get("traceback_")  # type: ignore[attr-defined]
        trace = "".join(made_at or ())
        # In anomaly mode the pass has added this trace already.
        if not any(trace in note for note in error.__notes__):
            error.add_note(f"made by this forward call:\n{trace}")
    except Exception:
        pass
