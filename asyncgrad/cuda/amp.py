"""`asyncgrad.amp` with the arguments that it had when there were GPUs only."""

from __future__ import annotations

from functools import partial
from typing import Any

from asyncgrad import amp

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]

GradScaler = partial(amp.GradScaler, "cuda")
custom_bwd = partial(amp.custom_bwd, device_type="cuda")
custom_fwd = partial(amp.custom_fwd, device_type="cuda")


def autocast(enabled: bool = True, dtype: Any = None, cache_enabled: bool = True) -> amp.autocast:
    """See `asyncgrad.amp.autocast`."""
    return amp.autocast("cuda", dtype, enabled, cache_enabled)
