"""Anomaly mode as users switch it: nodes know where they were made, and NaN is an error."""

from __future__ import annotations

import warnings

from asyncgrad.autograd.modes import AtOnce
from asyncgrad.core.modes import Mode, current, install
from asyncgrad.ops.arguments import check_bool

__all__ = [
    "detect_anomaly", "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "set_anomaly_enabled",
    "set_detect_anomaly",
]  # fmt: skip


class detect_anomaly(Mode):
    """Nodes remember where they were made, and gradients that are NaN are an error.

    An error of a pass started here names the forward call that made the node, as a warning and in
    the notes of the error. A context manager and decorator; it makes everything slower.

    Args:
        check_nan: look for NaN in what nodes return.

    Example:
        >>> import asyncgrad as ag
        >>> x = ag.zeros(1, requires_grad=True)
        >>> with ag.autograd.set_detect_anomaly(True):
        ...     y = (ag.sqrt(x) * 0).sum()
        >>> "traceback_" in y.grad_fn.metadata
        True
    """

    def __init__(self, check_nan: bool = True) -> None:
        """Warn of the cost; the mode holds from `__enter__` on."""
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should "
            "only be enabled for debugging.",
            UserWarning,
            stacklevel=2,
        )
        super().__init__(**_checked(True, check_nan))


class set_detect_anomaly(AtOnce):
    """Switch anomaly mode on or off, from the call on; as a context manager, until its end.

    Args:
        mode: whether nodes remember where they are made.
        check_nan: look for NaN in what nodes return.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        """Set the mode at once.

        Raises:
            TypeError: if one is no bool.
        """
        super().__init__(**_checked(mode, check_nan))


def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
    """Switch anomaly mode on or off in this task or thread, until it is switched again.

    Raises:
        TypeError: if one is no bool.
    """
    install(current().replace(**_checked(mode, check_nan)))


def _checked(mode: bool, check_nan: bool) -> dict[str, bool]:
    """What is to be changed of the modes."""
    check_bool("set_anomaly_enabled", "enabled", mode)
    check_bool("set_anomaly_enabled", "check_nan", check_nan)
    return {"anomaly": mode, "check_nan": check_nan}


def is_anomaly_enabled() -> bool:
    """Whether nodes remember where they are made."""
    return current().anomaly


def is_anomaly_check_nan_enabled() -> bool:
    """Whether passes in anomaly mode look for NaN."""
    return current().check_nan
