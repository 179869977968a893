"""PyTorch's process-wide settings, as far as they apply to asyncgrad."""

from __future__ import annotations

from typing import Any

from asyncgrad.choices import DebugMode, Precision, words
from asyncgrad.core.frames import warn
from asyncgrad.scheduler import blas

__all__ = [
    "are_deterministic_algorithms_enabled", "get_deterministic_debug_mode",
    "get_float32_matmul_precision", "get_num_interop_threads", "get_num_threads",
    "is_deterministic_algorithms_warn_only_enabled", "set_deterministic_debug_mode",
    "set_float32_matmul_precision", "set_flush_denormal", "set_num_threads",
    "use_deterministic_algorithms",
]  # fmt: skip

#: Requested properties of computations; they are stored and have no effect.
_asked: dict[str, Any] = {"deterministic": False, "warn_only": False, "precision": "highest"}
_MODES = words(DebugMode)


def get_num_threads() -> int:
    """The number of threads that a matrix product may use on the host."""
    return blas.get_threads()


def set_num_threads(number: int) -> None:
    """Set the number of threads that a matrix product may use on the host.

    While an engine runs, its own threads compute products, at most so many of them.
    """
    if not isinstance(number, int) or isinstance(number, bool):
        raise RuntimeError(f"set_num_threads expects an int, but got {type(number).__name__}")
    if number < 1:
        raise RuntimeError("expected positive number of threads")
    blas.set_threads(number)


def get_num_interop_threads() -> int:
    """The number of worker threads of an engine: one for each core of the process."""
    return blas.CORES


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Store the request for the same results each time, which has no effect.

    On the host results are deterministic anyway: the order of sums does not depend on what else
    runs. On a GPU the request changes nothing.
    """
    _asked.update(deterministic=bool(mode), warn_only=bool(warn_only))


def are_deterministic_algorithms_enabled() -> bool:
    """The last `mode` of `use_deterministic_algorithms`."""
    return bool(_asked["deterministic"])


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """The last `warn_only` of `use_deterministic_algorithms`."""
    return bool(_asked["warn_only"])


def set_deterministic_debug_mode(debug_mode: int | DebugMode) -> None:
    """Call `use_deterministic_algorithms` with a level instead of flags.

    Args:
        debug_mode: 0 or "default", 1 or "warn", 2 or "error".
    """
    if not isinstance(debug_mode, (int, str)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode).__name__}")
    known: Any = _MODES if isinstance(debug_mode, str) else range(3)
    if debug_mode not in known:
        raise RuntimeError(
            f"invalid value of debug_mode, expected one of {', '.join(_MODES)}, or 0, 1, 2, but "
            f"got {debug_mode}"
        )
    level = known.index(debug_mode)
    use_deterministic_algorithms(level > 0, warn_only=level == 1)


def get_deterministic_debug_mode() -> int:
    """The level set by `set_deterministic_debug_mode`, as a number."""
    return (1 if _asked["warn_only"] else 2) if _asked["deterministic"] else 0


def set_float32_matmul_precision(precision: Precision) -> None:
    """Store the wanted precision of products, which has no effect: it is always the highest.

    Args:
        precision: "highest", "high" or "medium"; another value only gives a warning.
    """
    if precision not in words(Precision):
        warn(
            f"{precision} is not one of 'highest', 'high', or 'medium'; the current call has no "
            f"effect."
        )
        return
    _asked["precision"] = precision


def get_float32_matmul_precision() -> str:
    """The value set by `set_float32_matmul_precision`."""
    return str(_asked["precision"])


def set_flush_denormal(mode: bool) -> bool:
    """Return False: flushing denormal numbers is not supported."""
    return False
