"""Special functions that NumPy lacks: SciPy's, or those of `series` without SciPy.

SciPy is optional. This module imports it at load time, never within a call: an import reads files,
which would block an event loop.
"""

from __future__ import annotations

from typing import Any

try:
    from scipy import special
except ImportError:
    from asyncgrad.ops import series as special


def special_function(name: str, function: str = "") -> Any:
    """A special function of arrays by SciPy's name.

    Args:
        name: what the caller computes, for the error.
        function: SciPy's name; the same as `name` if empty.

    Raises:
        ImportError: if the function needs SciPy, which is not installed.
    """
    found = getattr(special, function or name, None)
    if found is None:
        raise ImportError(
            f"{name} needs SciPy, which is not installed. Install it with "
            f"`pip install asyncgrad[scipy]`."
        )
    return found


def erf(xp: Any, x: Any) -> Any:
    """The error function of a real array."""
    if x.dtype.kind not in "fV":
        raise NotImplementedError(f'"erf" not implemented for {x.dtype}. Take its real part.')
    known = x.astype(xp.float32) if x.dtype.kind == "V" else x
    return special_function("erf")(known).astype(x.dtype, copy=False)
