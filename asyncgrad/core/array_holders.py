"""Which graphs and snapshots hold the values of a leaf, so that they must not change in place.

A node that saves a tensor holds the tensor's version counter beside the array until it releases
the saved values; a snapshot does the same. The only other references to the counter are those of
tensors that share the leaf's memory, and these are registered with it. So the reference count of
the counter tells whether there are holders, at no cost to operations. An array taken with
`.numpy()` shares memory with the leaf but does not count as a holder.
"""

from __future__ import annotations

from collections.abc import Mapping
from sys import getrefcount
from typing import Any

from asyncgrad.aliases import Array
from asyncgrad.core.locks import lasting_lock
from asyncgrad.core.variable import Variable, view_of
from asyncgrad.core.versions import VersionCounter

#: Serializes new values for parameters with the taking of snapshots.
weights_lock = lasting_lock()


_tensor = Variable()
_tensor._counter = VersionCounter()
#: The references to a counter that only one tensor has.
UNHELD = getrefcount(_tensor._counter)


def holders(variable: Variable) -> int:
    """How often unfreed graphs and snapshots need the leaf's values unchanged.

    Always 0 for a leaf that is a view: its memory belongs to its base.
    """
    if variable._counter is None or getrefcount(variable._counter) <= UNHELD:
        return 0
    if view_of(variable) is not None:
        return 0
    others = len(variable._counter.sharers() - {variable})
    return max(0, getrefcount(variable._counter) - UNHELD - others)


def rebind(arrays: Mapping[Any, Array]) -> None:
    """Give leaves new arrays and counters; holders of the old arrays keep them unchanged."""
    with weights_lock:
        for variable, array in arrays.items():
            counter = VersionCounter()
            if variable._counter is not None:
                counter.value = variable._counter.version + 1
            # The counter is set before the array. Otherwise another thread could save the new array
            # with the old counter, and nothing would tell that it holds the new array.
            variable._counter = counter
            variable._array = array
