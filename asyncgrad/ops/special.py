"""Special functions that NumPy lacks: SciPy's, or those of `series` without SciPy.

SciPy is optional. This module imports it at load time, never within a call: an import reads files,
which would block an event loop. It imports the compiled functions alone, because the package around
them takes ten times as long and brings much of NumPy and SciPy with it.
"""

from __future__ import annotations

import sys
from functools import partial
from os.path import join
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from asyncgrad.ops.dtype import FLOATING, check_dtype


def _scipys() -> Any:
    if "scipy.special" not in sys.modules:
        import scipy

        # Empty packages in the place of those whose parts are imported: the functions, and the
        # routines of `scipy.linalg` that these link to since SciPy 1.18.
        made = [name for name in ("special", "linalg") if f"scipy.{name}" not in sys.modules]
        for name in made:
            package = ModuleType(f"scipy.{name}")
            package.__path__ = [join(scipy.__path__[0], name)]
            sys.modules[package.__name__] = package
        try:
            from scipy.special import _ufuncs as functions
        except ImportError:
            pass
        else:
            return _with_names_of_the_package(functions)
        finally:
            for name in made:
                del sys.modules[f"scipy.{name}"]
            # Imported again, it becomes an attribute of the true package.
            if "linalg" in made:
                sys.modules.pop("scipy.linalg.cython_lapack", None)
    from scipy import special

    return special


def _with_names_of_the_package(functions: Any) -> Any:
    def polygamma(n: int, x: Any) -> Any:
        order = np.asarray(n + 1)
        return (-1.0) ** order * functions.gamma(order * 1.0) * functions._zeta(order, x)

    names = {"digamma": functions.psi, "zeta": functions._zeta, "polygamma": polygamma}
    return SimpleNamespace(**{**vars(functions), **names})


try:
    special = _scipys()
except ImportError:
    from asyncgrad.ops import series as special


def special_function(name: str, function: str = "") -> Any:
    """A special function of arrays by SciPy's name.

    Args:
        name: what the caller computes, for the error.
        function: SciPy's name; the same as `name` if empty.
    """
    found = getattr(special, function or name, None)
    if found is None:
        raise _missing(name)
    plain = getattr(found, "__module__", "").startswith("asyncgrad.")
    return partial(_on_host, name, found) if plain else found


def _on_host(name: str, function: Any, *arguments: Any) -> Any:
    """Call a function of `series`, which are NumPy's; devices have SciPy's functions alone."""
    if any(hasattr(x, "dtype") and not isinstance(x, (np.ndarray, np.generic)) for x in arguments):
        raise _missing(f"{name} on a device")
    return function(*arguments)


def _missing(what: str) -> ImportError:
    return ImportError(
        f"{what} needs SciPy, which is not installed. Install it with "
        f"`pip install asyncgrad[scipy]`."
    )


def erf(xp: Any, x: Any) -> Any:
    """The error function of a real array."""
    check_dtype("erf", x.dtype, FLOATING)
    known = x.astype(xp.float32) if x.dtype.kind == "V" else x
    return special_function("erf")(known).astype(x.dtype, copy=False)
