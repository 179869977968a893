"""Functions that NumPy lacks and SciPy has.

SciPy is optional. It is imported with this module, never by a call: an import reads files, and a
call may come from an event loop.
"""

from __future__ import annotations

from typing import Any

try:
    from scipy import special
except ImportError:
    special = None


def needs_scipy(name: str) -> Any:
    """SciPy's special functions.

    Raises:
        ImportError: if SciPy is not installed.
    """
    if special is None:
        raise ImportError(
            f"{name} needs SciPy, which is not installed. Install it with "
            f"`pip install asyncgrad[scipy]`."
        )
    return special


def erf(xp: Any, x: Any) -> Any:
    """The error function of an array of real numbers."""
    if x.dtype.kind not in "fV":
        raise NotImplementedError(f'"erf" not implemented for {x.dtype}. Take its real part.')
    known = x.astype(xp.float32) if x.dtype.kind == "V" else x
    return needs_scipy("erf").erf(known).astype(x.dtype, copy=False)
