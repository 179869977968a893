"""What the traceback of a node's error may hold: the user's frames as they are, and no pass."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

#: Whose frames compute nodes: they have ended when their pass has.
_OURS = ("asyncgrad.core.", "asyncgrad.ops.", "asyncgrad.autograd.function_node")


def clear_frames(error: BaseException) -> None:
    """Have the engine's frames that an error leads to let go of their variables.

    Else whoever keeps the error, its future for one, keeps the graph and its arrays.
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
            # Those that had called the one that has caught it.
            caller = traceback.tb_frame.f_back
            while caller is not None and _clear(caller):
                caller = caller.f_back
        while traceback is not None:
            _clear(traceback.tb_frame)
            traceback = traceback.tb_next


def _clear(frame: FrameType) -> bool:
    """Have a frame of ours let go of its variables; False if it is another's, or still runs."""
    if frame.f_globals.get("__name__", "").startswith(_OURS):
        with suppress(RuntimeError):
            frame.clear()
            return True
    return False
