"""PyTorch's settings of a whole process, as far as they mean something here."""

from __future__ import annotations

import warnings
from typing import Any

from asyncgrad.scheduler import blas

__all__ = [
    "are_deterministic_algorithms_enabled",
    "compile",
    "get_deterministic_debug_mode",
    "get_float32_matmul_precision",
    "get_num_interop_threads",
    "get_num_threads",
    "is_deterministic_algorithms_warn_only_enabled",
    "set_deterministic_debug_mode",
    "set_float32_matmul_precision",
    "set_flush_denormal",
    "set_num_threads",
    "use_deterministic_algorithms",
]  # fmt: skip

#: What has been asked for of how numbers are computed, which changes nothing.
_asked: dict[str, Any] = {"deterministic": False, "warn_only": False, "precision": "highest"}
_MODES = ("default", "warn", "error")
_PRECISIONS = ("highest", "high", "medium")


def get_num_threads() -> int:
    """How many threads a product of matrices may use on the host."""
    return blas.get_threads()


def set_num_threads(number: int) -> None:
    """Set how many threads a product of matrices may use on the host.

    While an engine runs, a core is left to its loop, whatever is set.

    Raises:
        RuntimeError: if it is no positive integer.
    """
    if not isinstance(number, int) or isinstance(number, bool):
        raise RuntimeError(f"set_num_threads expects an int, but got {type(number).__name__}")
    if number < 1:
        raise RuntimeError("expected positive number of threads")
    blas.set_threads(number)


def get_num_interop_threads() -> int:
    """How many threads an engine computes with: one for each core of the process."""
    return blas.CORES


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Keep that a program wants the same results each time.

    On the host it gets them anyway: sums are made in the same order whatever else runs. On a GPU it
    changes nothing.
    """
    _asked.update(deterministic=bool(mode), warn_only=bool(warn_only))


def are_deterministic_algorithms_enabled() -> bool:
    """Whether `use_deterministic_algorithms` was called so."""
    return bool(_asked["deterministic"])


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether `use_deterministic_algorithms` was called with `warn_only`."""
    return bool(_asked["warn_only"])


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """`use_deterministic_algorithms` by another name.

    Args:
        debug_mode: 0 or "default", 1 or "warn", 2 or "error".

    Raises:
        RuntimeError: for another number or word.
        TypeError: for what is neither.
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
    """What `set_deterministic_debug_mode` was called with, as a number."""
    return (1 if _asked["warn_only"] else 2) if _asked["deterministic"] else 0


def set_float32_matmul_precision(precision: str) -> None:
    """Keep how exactly a program wants products: here they are always of the highest precision.

    Args:
        precision: "highest", "high" or "medium"; anything else is a warning.
    """
    if precision not in _PRECISIONS:
        warnings.warn(
            f"{precision} is not one of 'highest', 'high', or 'medium'; the current call has no "
            f"effect.",
            UserWarning,
            stacklevel=2,
        )
        return
    _asked["precision"] = precision


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` was called with."""
    return str(_asked["precision"])


def set_flush_denormal(mode: bool) -> bool:
    """False: denormal numbers stay what they are."""
    return False


def compile(model: Any = None, **options: Any) -> Any:
    """The function or module as it is: there is no compiler.

    Args:
        model: the function or module; a decorator is returned if it is None.
        options: PyTorch's, without effect.
    """
    return (lambda function: function) if model is None else model
