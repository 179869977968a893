"""Calls with an interrupt at any place where Python looks for signals."""

from __future__ import annotations

import dis
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

#: After these Python looks for signals; `for` and `with` call without it.
LOOKS = ("CALL", "JUMP_BACKWARD", "RESUME")
#: After these it may have called `__del__`: an object was dropped, or 3.11 has collected garbage.
DROPS = ("BUILD", "LIST", "STORE_ATTR", "STORE_SUBSCR")


@lru_cache
def tries(code: CodeType) -> list[Any]:
    """The ranges of a function's code in which errors are handled."""
    return list(dis.Bytecode(code).exception_entries)


def handlers(frame: FrameType, offset: int) -> list[int]:
    """Where a frame goes on if something is raised there."""
    return [entry.target for entry in tries(frame.f_code) if entry.start <= offset < entry.end]


def stop() -> None:
    """What Python's own handler of SIGINT does."""
    raise KeyboardInterrupt


def interrupt(
    at: int, call: Callable[[], Any], within: CodeType, files: set[Any],
    handler: Callable[[], Any] = stop, looks: tuple[str, ...] = LOOKS,
) -> bool:  # fmt: skip
    """Call a function, with an interrupt where Python looks for signals.

    Args:
        at: the how manieth time that it does.
        call: makes a pass.
        within: the code in whose first run it comes.
        files: where the code is that is interrupted there.
        handler: is called then.
        looks: the first letters of bytecodes after which Python looks for signals.

    Returns:
        False if that code has ended before.
    """
    looked, happened = -1, False
    before: dict[FrameType, int] = {}

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal looked, happened
        if frame.f_code is within:
            looked = max(looked, 0)
        if frame.f_code.co_filename not in files or looked < 0:
            return trace
        frame.f_trace_opcodes = True
        if sys.version_info[:2] == (3, 12):
            # Which sees it only then.
            sys.settrace(trace)
        if event == "opcode":
            last = before.get(frame)
            before[frame] = frame.f_lasti
            # What comes from a signal is raised where Python has looked for it, and this is after.
            if last is not None and (
                dis.opname[frame.f_code.co_code[last]].startswith(looks)
                and handlers(frame, last) == handlers(frame, frame.f_lasti)
            ):
                looked += 1
                if looked == at:
                    happened = True
                    handler()
        elif event == "return" and frame.f_code is within:
            looked = -(10**9)
        return trace

    found = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(found)
        before.clear()
    return happened
