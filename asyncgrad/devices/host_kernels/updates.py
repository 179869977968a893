"""Optimisers' updates compiled by Numba: of one parameter, or of several small ones in one call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from asyncgrad.aliases import Array, Value
from asyncgrad.devices.host_kernels.addresses import COUNT, FINDERS
from asyncgrad.devices.host_kernels.calls import FEW, share
from asyncgrad.devices.updates import COMMON, Update


def update_text(
    name: str, declared: Update, statements: Callable[[str], list[tuple[str, str]]]
) -> str:
    """A kernel over the elements `low` to `high` of parameters, counted as if they lay in a row.

    It gets the numbers of elements of `count` parameters, and the addresses of all values, of all
    gradients, and of each of the entries. Numba compiles that in half the time that it needs for
    tuples of arrays. `statements` says what a body assigns, and the values, as Python.
    """
    changed = ["p", *declared.entries.split()]
    arrays = ["p", "gradient", *declared.entries.split()]
    numbers = [*declared.numbers.split(), *COMMON, *declared.flags.split()]
    kinds = ["integer", "places", "places", *["number"] * len(numbers), "integer", "integer"]
    loop = [
        *(
            f"{n}_part = row(T, addresses[{number} * count + place], length)[start:stop]"
            for number, n in enumerate(arrays)
        ),
        "for at in range(stop - start):",
        *(f"    {n} = {n}_part[at]" for n in arrays),
        *(f"    {target} = {value}" for target, value in statements(declared.kernel()[2])),
        *(f"    {n}_part[at] = {n}" for n in changed),
    ]
    return "\n".join([
        f"@kernel({', '.join(kinds)})",
        f"def {name}(count, lengths, addresses, {', '.join(numbers)}, low, high):",
        "    begin = 0",
        "    for place in range(count):",
        "        length = lengths[place]",
        "        start, stop = max(low - begin, 0), min(high - begin, length)",
        "        if start < stop:",
        *(f"            {line}" for line in loop),
        "        begin += length",
        "",
    ])  # fmt: skip


class UpdateKernel:
    """One update for all its dtypes."""

    def __init__(self, declared: Update, kernels: dict[Any, Any]) -> None:
        self._arrays = 2 + len(declared.entries.split())
        self._kernels = kernels

    def __call__(self, *arguments: Value) -> Any:
        """Take a step; NotImplemented, before anything is changed, if NumPy has to take it.

        The arguments are values, gradient, entries and numbers. For several parameters, lists stand
        in the places of arrays.
        """
        lists: Any = arguments[: self._arrays]
        if lists[0].__class__ is not list:
            lists = [[array] for array in lists]
        prepared = self.prepare(lists)
        return NotImplemented if prepared is None else prepared(arguments[self._arrays :])

    def prepare(self, lists: list[list[Array]]) -> Prepared | None:
        """The steps of some parameters; None if NumPy has to take them.

        Args:
            lists: their values, their gradients, and each of the entries.
        """
        values, gradients, *entries = lists
        dtype = values[0].dtype
        kernel = self._kernels.get(dtype)
        sizes = [array.size for array in values]
        if kernel is None or not all(
            array.dtype is dtype and array.size == size
            for arrays in lists
            for array, size in zip(arrays, sizes, strict=True)
        ):
            return None
        if not all(array.flags.carray for arrays in (values, *entries) for array in arrays):
            return None
        if not all(array.flags.aligned for array in gradients):
            return None
        return Prepared(kernel, lists, sizes)


class Prepared:
    """The steps of parameters whose values, gradients and entries stay where they are."""

    def __init__(self, kernel: Any, lists: list[list[Array]], sizes: list[int]) -> None:
        find, empty = FINDERS[lists[0][0].dtype]
        #: For as many parameters as fit into one call: how many elements, and the kernel with what
        #: it gets first.
        self._parts: list[tuple[int, Callable[..., None]]] = []
        #: Arrays have to live as long as their addresses are known. A gradient is copied if its
        #: memory isn't one row.
        self._rows = [[array.ravel() for array in arrays] for arrays in lists]
        most = COUNT // len(lists)
        for first in range(0, len(sizes), most):
            few = slice(first, first + most)
            rows = [row for some in self._rows for row in some[few]]
            addresses = np.empty(COUNT, np.int64)
            find((*rows, *empty[len(rows) :]), addresses)
            lengths = np.array(sizes[few], np.int64)
            call = partial(kernel, len(lengths), lengths, addresses)
            self._parts.append((sum(sizes[few]), call))

    def __call__(self, numbers: tuple[float, ...]) -> None:
        """Take a step."""
        for size, call in self._parts:
            if size < FEW:
                call(*numbers, 0, size)
            else:
                share(partial(call, *numbers), size, size)
