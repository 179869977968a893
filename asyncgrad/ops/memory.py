"""How arrays lie in memory, and which of it may be written."""

from __future__ import annotations

from typing import Any

import numpy as np


def is_dense(array: Any) -> bool:
    """Whether an array's elements lie one beside the other, whatever the order of its axes."""
    expected = array.itemsize
    for stride, length in sorted(zip(array.strides, array.shape, strict=True)):
        if length != 1:
            if stride != expected:
                return False
            expected *= length
    return True


def repeats(array: Any) -> bool:
    """Whether an array shows elements several times, along an axis that takes no steps."""
    return any(
        length > 1 and not step for length, step in zip(array.shape, array.strides, strict=True)
    )


def unlocked(array: Any) -> Any:
    """What to write through in the place of a view that repeats elements; None if it is read-only.

    NumPy's views that repeat elements can't be written to. Of all others that is true of their
    base, too.
    """
    if array.__class__ is not np.ndarray or array.flags.writeable:
        return array
    if array.base is None:
        return None
    view = array.view()
    try:
        view.flags.writeable = True
    except ValueError:
        return None
    return view
