"""Python frames: where a pass was started, and those that the error of a pass must not keep.

The traceback of an error holds the frames that the error has passed, with all their variables. So
these would live as long as the error: the graph and its arrays, or a pass and its future. A frame
that holds the error itself makes a cycle. Therefore functions drop such variables before the error
goes on, and `clear_frames` clears the frames of functions that have not.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import suppress
from types import FrameType
from typing import Any, Self

#: The path prefix of the package's own frames.
PACKAGE = (
    os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), ""),
    "<asyncgrad ",
    "<forward of ",
)
#: The least number of package frames between the user's call and `CallSite.remember`.
DEPTH = 4


class CallSite:
    """The line of user code that is being run."""

    __slots__ = ("_code", "_instruction")

    # Not `__init__`, which Python calls more slowly: every pass makes one.
    def remember(self, depth: int = DEPTH) -> Self:
        """Store the code object and instruction, but not the frame, which would hold its variables.

        The first `depth` frames, which are skipped, have to be the package's.
        """
        try:
            frame = sys._getframe(depth)
        except ValueError:
            # The stack is shorter: a new thread runs the package's function directly.
            frame = sys._getframe()
        code = frame.f_code
        while code.co_filename.startswith(PACKAGE):
            back = frame.f_back
            if back is None:
                break
            frame = back
            code = frame.f_code
        self._code = code
        self._instruction = frame.f_lasti
        return self

    def __str__(self) -> str:
        lines = self._code.co_lines()
        line = next((n for start, end, n in lines if start <= self._instruction < end), None)
        return f"{self._code.co_filename}:{line}"


def value_of(result: Any, error: BaseException | None) -> Any:
    """What other code has returned; raises what it has raised instead."""
    try:
        if error is not None:
            raise error
        return result
    finally:
        del error  # See above.


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn of the user's call, whose line the warning shows."""
    frame, level = sys._getframe(1), 2
    while frame.f_code.co_filename.startswith(PACKAGE) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


#: Modules whose functions run nodes: none of them is still running when the pass has ended.
_OURS = (
    "asyncgrad.core.", "asyncgrad.ops.", "asyncgrad.autograd.function_node",
    "asyncgrad.autograd.awaited_hooks",
)  # fmt: skip
#: Modules whose functions raise the error of a pass in its caller.
_EXITS = {"asyncgrad.scheduler.future", "asyncgrad.scheduler.inline"}


def clear_frames(error: BaseException) -> None:
    """Clear the engine's frames that an error leads to.

    Otherwise whatever keeps the error, such as its future, keeps the graph and its arrays alive.
    """
    following: list[BaseException | None] = [error]
    seen: set[int] = set()
    while following:
        one = following.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        following += (one.__cause__, one.__context__)
        traceback = one.__traceback__
        if traceback is not None:
            # The callers of the frame that caught the error.
            caller = traceback.tb_frame.f_back
            while caller is not None and _clear(caller):
                caller = caller.f_back
        # If a nested pass has raised the error, it has cleared the frames from there on. To clear
        # them again at each level would take a minute for passes nested 4,000 deep.
        while traceback is not None and _module(traceback.tb_frame) not in _EXITS:
            _clear(traceback.tb_frame)
            traceback = traceback.tb_next


def _module(frame: FrameType) -> str:
    """The module of a frame's code."""
    name: str = frame.f_globals.get("__name__", "")
    return name


def _clear(frame: FrameType) -> bool:
    """Clear one of the engine's frames; False if it belongs to other code or still runs."""
    if _module(frame).startswith(_OURS):
        with suppress(RuntimeError):
            frame.clear()
            return True
    return False
