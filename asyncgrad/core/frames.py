"""Clears frames in the traceback of a node's error, so that it does not keep the pass alive.

Frames of the user's code stay as they are.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

#: Modules whose functions run nodes: none of them is still running when the pass has ended.
_OURS = ("asyncgrad.core.", "asyncgrad.ops.", "asyncgrad.autograd.function_node")
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
