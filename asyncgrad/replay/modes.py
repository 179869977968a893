"""Which modes tell the programs of a function apart, and in which only eager calls work."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncgrad.core.modes import DEFAULT, Modes
from asyncgrad.devices.fp_errors import fp_error_state

#: Modes that a program does not depend on: they concern passes as a whole, or change nothing.
#: Streams: a program puts its work into those that are current at its replay.
_FREE = frozenset(
    {"streams", "priority", "deadline", "nesting_limit", "multithreading", "checkpoints", "starts"}
)
_NEUTRAL = tuple(
    (name, getattr(DEFAULT, name))
    for name in Modes.__dataclass_fields__
    if name not in _FREE | {"grad", "inference", "plain", "variants", "blocking"}
)


#: Gradients are recorded, outside of inference mode.
PLAIN = (True, False)
_quiet_states: list[Any] = [None]


def mode_of(modes: Modes) -> tuple[bool, bool] | None:
    """The modes that tell programs apart; None if a mode is on in which only eager calls work."""
    if modes is DEFAULT:
        return PLAIN
    for name, value in _NEUTRAL:
        if getattr(modes, name) is not value:
            return None
    return modes.grad, modes.inference


def is_quiet() -> bool:
    """Whether NumPy's floating-point errors are no more than warnings here."""
    state = fp_error_state(None)
    if state is _quiet_states[0] or state is None:
        return True
    if "raise" in (found := np.geterr().values()) or "call" in found:
        return False
    _quiet_states[0] = state
    return True
