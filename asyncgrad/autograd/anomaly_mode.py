"""Anomaly mode: nodes record where they were made, and NaN gradients are errors."""

from __future__ import annotations

from asyncgrad.autograd.modes import AtOnce
from asyncgrad.core.frames import warn
from asyncgrad.core.modes import Mode, current, install
from asyncgrad.ops.arguments import check_bool

__all__ = [
    "detect_anomaly", "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "set_anomaly_enabled",
    "set_detect_anomaly",
]  # fmt: skip


class detect_anomaly(Mode):
    """Record where each node was made, and raise an error for gradients that are NaN.

    When a pass started here fails, a warning and the error's notes show the forward call that made
    the node. Works as a context manager and as a decorator; it makes everything slower.

    Args:
        check_nan: check what nodes return for NaN.

    Example:
        >>> x = ag.zeros(1, requires_grad=True)
        >>> with ag.autograd.set_detect_anomaly(True):
        ...     y = (ag.sqrt(x) * 0).sum()
        >>> "traceback_" in y.grad_fn.metadata
        True
    """

    def __init__(self, check_nan: bool = True) -> None:
        warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should "
            "only be enabled for debugging."
        )
        super().__init__(**_checked(True, check_nan))


class set_detect_anomaly(AtOnce):
    """Switch anomaly mode on or off at once; as a context manager, until the end of its block.

    Args:
        mode: whether nodes record where they are made.
        check_nan: check what nodes return for NaN.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        super().__init__(**_checked(mode, check_nan))


def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
    """Switch anomaly mode on or off in this task or thread, until the next call."""
    install(current().replace(**_checked(mode, check_nan)))


def _checked(mode: bool, check_nan: bool) -> dict[str, bool]:
    check_bool("set_anomaly_enabled", "enabled", mode)
    check_bool("set_anomaly_enabled", "check_nan", check_nan)
    return {"anomaly": mode, "check_nan": check_nan}


def is_anomaly_enabled() -> bool:
    """Whether nodes record where they are made."""
    return current().anomaly


def is_anomaly_check_nan_enabled() -> bool:
    """Whether passes in anomaly mode check for NaN."""
    return current().check_nan
