"""cuDNN, which asyncgrad does not use: what is set here is kept, and changes nothing."""

from __future__ import annotations

enabled: bool = True
benchmark: bool = False
benchmark_limit: int | None = 10
deterministic: bool = False
allow_tf32: bool = True


def is_available() -> bool:
    """False: convolutions on GPUs are asyncgrad's own."""
    return False


def version() -> int | None:
    """None: there is none."""
    return None


def is_acceptable(tensor: object) -> bool:
    """False for all tensors."""
    return False
