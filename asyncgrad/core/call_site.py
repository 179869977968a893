"""Where a pass was started, for messages: the line number is found only if it is needed."""

from __future__ import annotations

import os
import sys
from typing import Self

#: Where the package's own frames come from.
PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
#: At least so many of them lie between a user's call and an origin made for its pass.
DEPTH = 4


class CallSite:
    """The user's line that is being run."""

    __slots__ = ("_code", "_instruction")

    # In place of `__init__`, which Python calls more slowly: every pass comes by.
    def remember(self, depth: int = DEPTH) -> Self:
        """Remember it, without what its frame holds.

        Args:
            depth: at least so many frames of the package lie above that of the user.
        """
        try:
            frame = sys._getframe(depth)
        except ValueError:
            # A new thread was told to run the package's function, and nothing else.
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
        """The file and the line."""
        lines = self._code.co_lines()
        line = next((n for start, end, n in lines if start <= self._instruction < end), None)
        return f"{self._code.co_filename}:{line}"
