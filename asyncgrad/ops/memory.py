"""How arrays lie in memory, and whether they can be written to."""

from __future__ import annotations

from typing import Any

import numpy as np


def is_dense(array: Any) -> bool:
    """Whether an array's elements fill its memory without gaps, in any order of axes."""
    expected = array.itemsize
    for stride, length in sorted(zip(array.strides, array.shape, strict=True)):
        if length != 1:
            if stride != expected:
                return False
            expected *= length
    return True


def repeats(array: Any) -> bool:
    """Whether an array shows elements several times, along an axis with stride 0."""
    return any(
        length > 1 and not step for length, step in zip(array.shape, array.strides, strict=True)
    )


def unlocked(array: Any) -> Any:
    """A writeable view of an array; None if its memory is read-only.

    NumPy makes views with repeated elements read-only although their base is writeable. Any other
    read-only view has a read-only base.
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
