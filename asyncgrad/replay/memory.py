"""Plans the memory of a program: which results are written into buffers that replays share."""

from __future__ import annotations

from typing import Any


class Plan:
    """Which step writes into which buffer."""

    def __init__(self, steps: list[Any], outputs: Any, constants: set[Any]) -> None:
        #: Places whose arrays nothing else refers to: `commit` may keep them.
        self.owned: set[Any] = set()

    def lines(self) -> list[str]:
        """The first lines of the program, which name its buffers."""
        return []

    def target(self, step: Any) -> tuple[Any, str] | None:
        """The function with which a step writes into a buffer, and the buffer's name; or None."""
        return None
