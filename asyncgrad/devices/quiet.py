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


#: Silence NumPy in this context; returns what `unhush` wants back.
hush: Callable[[], Any] = partial(_set, _ignoring)
#: Put back what `hush` found.
unhush: Callable[[Any], None] = _reset
#: What hushes whenever it is asked for its next value, which is that of `hush`; without an end.
#: After the step of a `for` Python looks for no signals, as it does after a call: a `try` that
#: begins there is in time.
hushes: Iterator[Any] = map(_set, repeat(_ignoring))


def quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with NumPy silent while it runs."""

    def silent(*arguments: Any) -> Any:
        for token in hushes:
            try:
                result = function(*arguments)
            finally:
                _reset(token)
            break
        return result

    return silent


@quiet
def silently(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function with NumPy silent.

    Doors call their kernels as they are, for what overflows is rare and silence has its price. A
    kernel that warns is called again where warnings are errors; elsewhere the filter drops them.
    """
    return function(*arguments)


# A module of the package is where NumPy's warnings of its kernels seem to come from.
warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"asyncgrad\.ops\.")
