"""Where a pass was started, for messages: the line number is computed only when it is needed."""

from __future__ import annotations

import os
import sys
from typing import Self

#: The path prefix of the package's own frames.
PACKAGE = (
    os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), ""),
    "<asyncgrad ",
)
#: The least number of package frames between the user's call and `CallSite.remember`.
DEPTH = 4


class CallSite:
    """The line of user code that is being run."""

    __slots__ = ("_code", "_instruction")

    # Not `__init__`, which Python calls more slowly: every pass makes one.
    def remember(self, depth: int = DEPTH) -> Self:
        """Store the code object and instruction, but not the frame, which would hold its variables.

        Args:
            depth: how many frames to skip first, all of them the package's.
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
