"""Who holds the values of a leaf: may they be changed in place?

A node that saves a tensor takes the tensor's version counter with the array, and lets go of both
when it gives the values up; a snapshot does the same. Only tensors have the counter besides, and
those that share a leaf's memory are registered with it. So the counter is the register of holders,
and costs an operation nothing that it does not do anyway. Who takes only the array, like a user
with `.numpy()`, shares memory with the leaf and is no holder.
"""

from __future__ import annotations

import sys
from typing import Any

from asyncgrad.core.locks import lasting_lock
from asyncgrad.core.variable import Variable, view_of
from asyncgrad.core.versions import VersionCounter

#: Parameters get new values, and snapshots are taken, one at a time.
weights_lock = lasting_lock()


def _references(variable: Variable) -> int:
    return sys.getrefcount(variable._counter)


def _alone() -> int:
    """The references to a counter that just one tensor has."""
    variable = Variable()
    variable._counter = VersionCounter()
    return _references(variable)


_ALONE = _alone()


def is_held(variable: Variable) -> bool:
    """Whether a graph that has not been freed, or a snapshot, needs the leaf's values as they are.

    A leaf that is a view of another tensor belongs to that: it is never said to be held.
    """
    counter = variable._counter
    if counter is None or view_of(variable) is not None:
        return False
    others = len(counter.sharers() - {variable})
    del counter
    return _references(variable) > _ALONE + others


def rebind(variable: Variable, array: Any) -> None:
    """Give a leaf other values; who holds the old ones keeps them, unchanged."""
    counter = VersionCounter()
    if variable._counter is not None:
        counter.value = variable._counter.version + 1
    # In this order: another thread that finds the new array and saves it holds it by this counter.
    variable._counter = counter
    variable._array = array
