"""Optimisers' updates compiled by Numba: of one parameter, or of several small ones in one call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from asyncgrad.aliases import Array, Value
from asyncgrad.devices.host_kernels.addresses import FINDERS, READ, WRITTEN
from asyncgrad.devices.host_kernels.calls import FEW, share
from asyncgrad.devices.updates import COMMON, Update


def update_text(
    name: str, declared: Update, statements: Callable[[str], list[tuple[str, str]]]
) -> str:
    """A kernel over the elements `low` to `high` of parameters, counted as if they lay in a row.

    It gets the numbers of elements of `count` parameters, and the addresses of all gradients, of
    all values, and of each of the entries. Numba compiles that in half the time that it needs for
    tuples of arrays. `statements` says what a body assigns, and the values, as Python.
    """
    changed = ["p", *declared.entries.split()]
    arrays = ["gradient", *changed]
    numbers = [*declared.numbers.split(), *COMMON, *declared.flags.split()]
    kinds = ["integer", "places", "places", *["number"] * len(numbers), "integer", "integer"]
    firsts = ["0", *(f"READ + {number} * count" for number in range(len(changed)))]
    loop = [
        *(
            f"{n}_part = row(T, addresses[{first} + place], length)[start:stop]"
            for first, n in zip(firsts, arrays, strict=True)
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
        values, gradients, *entries = lists
        prepared = self.prepare([values, *entries])
        if prepared is None:
            return NotImplemented
        return prepared(gradients, arguments[self._arrays :])

    def prepare(self, changed: list[list[Array]]) -> Prepared | None:
        """The steps of some parameters; None if NumPy has to take them.

        Args:
            changed: their values, and each of the entries.
        """
        dtype = changed[0][0].dtype
        kernel = self._kernels.get(dtype)
        sizes = [array.size for array in changed[0]]
        if kernel is None or not all(
            array.dtype is dtype and array.size == size and array.flags.carray
            for arrays in changed
            for array, size in zip(arrays, sizes, strict=True)
        ):
            return None
        return Prepared(kernel, changed, sizes)


class Prepared:
    """The steps of parameters whose values and entries stay where they are."""

    def __init__(self, kernel: Any, changed: list[list[Array]], sizes: list[int]) -> None:
        self._dtype = changed[0][0].dtype
        self._sizes = sizes
        written, self._read, self._empty = FINDERS[self._dtype]
        #: The arrays have to live as long as their addresses are known.
        self._changed = changed
        #: For as many parameters as fit into one call: which, how many elements, the kernel with
        #: what it gets first, and the addresses.
        self._parts: list[tuple[slice, int, Callable[..., None], Array]] = []
        most = min(READ, WRITTEN // len(changed))
        for first in range(0, len(sizes), most):
            few = slice(first, first + most)
            rows = [array.reshape(-1) for arrays in changed for array in arrays[few]]
            addresses = np.empty(READ + WRITTEN, np.int64)
            written((*rows, *self._empty[len(rows) :]), addresses[READ:])
            lengths = np.array(sizes[few], np.int64)
            call = partial(kernel, len(lengths), lengths)
            self._parts.append((few, sum(sizes[few]), call, addresses))

    def __call__(self, gradients: list[Array], numbers: tuple[float, ...]) -> Any:
        """Take a step; NotImplemented, before anything is changed, if NumPy has to take it."""
        for gradient, size in zip(gradients, self._sizes, strict=True):
            if not (
                gradient.dtype is self._dtype and gradient.size == size and gradient.flags.aligned
            ):
                return NotImplemented
        for few, size, call, known in self._parts:
            # A gradient is copied if its memory isn't one row.
            rows = [gradient.ravel() for gradient in gradients[few]]
            # A copy, because another thread may begin a step before this one has ended.
            addresses = known.copy()
            self._read((*rows, *self._empty[len(rows) : READ]), addresses)
            if size < FEW:
                call(addresses, *numbers, 0, size)
            else:
                share(partial(call, addresses, *numbers), size, size)
        return None
