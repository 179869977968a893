"""Turn off NumPy's floating-point warnings, because PyTorch has none, as for log(0).

`without_fp_errors` is the way to do so. What it does is written out, with `fp_errors_ignored`,
where the call of one function more would cost over 1 %: in small kernels and where passes start.
Kernels of gradients run within passes, where the warnings are off.

NumPy keeps its error state in a context variable. `np.errstate` costs a microsecond, four times as
much as a function of few elements; setting the variable itself costs a tenth of that.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextvars import Context
from functools import partial
from itertools import repeat
from typing import Any, TypeVar

import numpy as np

from asyncgrad.aliases import Value

_F = TypeVar("_F", bound="Callable[..., Any]")


#: Elements that NumPy copies at a time where it copies operands at all. With its 8192 it copies a
#: row or column that is broadcast against rows of 1000 to 8000 elements: twice the time. Before
#: NumPy 2.3 the bits of all sums depend on this number, so there it has to stay. Now those over
#: several axes, and of other dtypes, do.
BUFFER = 2048 if np.lib.NumpyVersion(np.__version__) >= "2.3.0" else np.getbufsize()


def _state() -> tuple[Any, Any]:
    """NumPy's context variable of the error state, and its value for "ignore everything".

    The size of NumPy's buffers is part of that value.
    """
    context = Context()
    context.run(np.seterr, all="ignore")
    context.run(np.setbufsize, BUFFER)
    ((variable, value),) = context.items()
    return variable, value


_variable, _ignoring = _state()
_set, _reset = _variable.set, _variable.reset


#: NumPy's error state here, or the given default if none was set.
fp_error_state: Callable[[Any], Any] = _variable.get
#: Make NumPy ignore floating-point errors here; returns a token for `restore_fp_errors`.
ignore_fp_errors: Callable[[], Any] = partial(_set, _ignoring)
#: Restore the error state from before `ignore_fp_errors`.
restore_fp_errors: Callable[[Any], None] = _reset
#: An endless iterator: each step calls `ignore_fp_errors` and returns its token. Python may handle
#: a signal after a call, but not after a `for` step: so a `try` that starts the loop body is always
#: entered in time to restore the state.
fp_errors_ignored: Iterator[Any] = map(_set, repeat(_ignoring))


def without_fp_errors(function: _F) -> _F:
    """Wrap a function, of positional arguments alone, to run without NumPy's warnings."""

    def silent(*arguments: Value) -> Any:
        for token in fp_errors_ignored:
            try:
                result = function(*arguments)
            finally:
                _reset(token)
            break
        return result

    return silent  # type: ignore[return-value]


@without_fp_errors
def call_without_fp_errors(function: Callable[..., Any], *arguments: Value) -> Any:
    """Call a function without NumPy's warnings.

    Dispatch functions call kernels directly, because overflow is rare and each call costs time.
    Where warnings are errors, a kernel that warned is called again with this; elsewhere the filter
    below drops the warning.
    """
    return function(*arguments)


# NumPy's warnings are attributed to the module that calls the kernel, one of `asyncgrad.ops`.
warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"asyncgrad\.ops\.")
