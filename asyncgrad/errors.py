"""Every exception of asyncgrad, each with the class that PyTorch raises there and its remedy."""

from __future__ import annotations

from contextlib import suppress


class AutogradError(RuntimeError):
    """What is wrong with a graph or a pass; PyTorch raises a plain RuntimeError here."""


class GraphFreedError(AutogradError):
    """A pass met a node whose saved tensors an earlier pass has released."""

    def __init__(self, node: str, origin: object) -> None:
        """Name the node, and the call that started the pass."""
        super().__init__(
            f"Trying to backward through the graph a second time (or directly access saved tensors "
            f"after they have already been freed): the saved values of {node} were released by an "
            f"earlier backward() or grad() at {origin}. Specify retain_graph=True in that earlier "
            f"call if you need a second pass, or run the forward again."
        )


class SavedTensorModifiedError(AutogradError):
    """A tensor was changed in place after an operation had saved it for backward."""


class LinAlgError(AutogradError):
    """A matrix is singular, or otherwise not what a function of linear algebra needs."""


class PendingBackwardError(AutogradError):
    """A pass that this task started has not been awaited before its results were used."""


class WrongLoopError(AutogradError):
    """A pass was awaited in another event loop than the one it runs on."""


class NestingError(RecursionError):
    """Reentrant passes are nested deeper than the limit."""

    def __init__(self, limit: int) -> None:
        """Name the limit."""
        super().__init__(
            f"passes started by nodes and hooks of other passes are nested more than {limit} deep: "
            f"some backward or hook may start passes without end. If it is meant, raise the limit "
            f"with asyncgrad.autograd.set_nesting_limit()."
        )


class AcceleratorError(RuntimeError):
    """Work on a device has failed; it shows when the host next looks, not where it was started."""


class DeviceLostError(AcceleratorError):
    """A device can't be used any more: nothing on it can be saved. Start a new process."""


class OutOfMemoryError(RuntimeError, MemoryError):
    """A device has no memory left for an array."""


class DeviceUnavailableError(RuntimeError, AssertionError):
    """A device was asked for that is not here; PyTorch raises either of these."""


class RaceError(RuntimeError):
    """Streams of a simulated device read and write the same memory in no certain order."""


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an error, unless it is of a class that takes none, a frozen one for example."""
    with suppress(Exception):
        error.add_note(note)


def described(error: BaseException) -> str:
    """The `repr` of an error, or the name of its class where that fails."""
    try:
        return repr(error)
    except Exception:
        return type(error).__name__


def note_failure(error: BaseException, node: object) -> None:
    """Add to an error which node it came from and what the node's forward output was."""
    try:
        where = f"raised by {node.name()}, whose forward output was {node.output_metadata!r}"  # type: ignore[attr-defined]
        error.add_note(where)
        made_at = node.extras and node.extras.metadata.get("traceback_")  # type: ignore[attr-defined]
        trace = "".join(made_at or ())
        # Anomaly mode has told it already, where it was on in the pass, too.
        if not any(trace in note for note in error.__notes__):
            error.add_note(f"made by this forward call:\n{trace}")
    except Exception:
        pass
