"""NumPy without warnings: PyTorch says nothing where a logarithm meets a zero.

NumPy keeps its error state in a context variable. `np.errstate` costs a microsecond, which is four
times a function of few elements; setting the variable itself costs a tenth of that.
"""

from __future__ import annotations

import warnings
from contextvars import Context
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def _state() -> tuple[Any, Any]:
    """The context variable of NumPy's error state, and its value for "ignore everything"."""
    context = Context()
    context.run(np.seterr, all="ignore")
    ((variable, value),) = context.items()
    return variable, value


_variable, _ignoring = _state()
_set, _reset = _variable.set, _variable.reset


#: Have NumPy ignore floating-point errors in this context; returns what `restore_fp_errors` takes.
ignore_fp_errors: Callable[[], Any] = partial(_set, _ignoring)
#: Put back what `ignore_fp_errors` found.
restore_fp_errors: Callable[[Any], None] = _reset
#: An endless iterator: each step calls `ignore_fp_errors` and gives its result.
#: After the step of a `for` Python looks for no signals, as it does after a call: a `try` that
#: begins there is in time.
fp_errors_ignored: Iterator[Any] = map(_set, repeat(_ignoring))


def without_fp_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with NumPy silent while it runs."""

    def silent(*arguments: Any) -> Any:
        for token in fp_errors_ignored:
            try:
                result = function(*arguments)
            finally:
                _reset(token)
            break
        return result

    return silent


@without_fp_errors
def call_without_fp_errors(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function with NumPy silent.

    Dispatch functions call their kernels as they are: overflow is rare, and each call here has its
    price. A kernel that warns is called again where warnings are errors; elsewhere the filter drops
    the warning.
    """
    return function(*arguments)


# A module of the package is where NumPy's warnings of its kernels seem to come from.
warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"asyncgrad\.ops\.")
