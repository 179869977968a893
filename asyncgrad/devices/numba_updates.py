"""Optimisers' updates compiled by Numba: of one parameter, or of several small ones in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.devices.updates import COMMON

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncgrad.aliases import Array, Value
    from asyncgrad.devices.updates import Update

#: So many parameters are updated by one call of a compiled function.
_AT_ONCE = 8


def update_text(name: str, declared: Update, statements: Sequence[tuple[str, str]]) -> str:
    """A kernel over the elements `low` to `high` of parameters, counted as if they lay in a row.

    Values and gradients are tuples of `_AT_ONCE` arrays. The entries do lie in a row.

    Args:
        name: the function's name.
        declared: the update.
        statements: what is assigned, and the values, as Python.
    """
    entries = declared.entries.split()
    numbers = [*declared.numbers.split(), *COMMON, *declared.flags.split()]
    kinds = [f"types.UniTuple({kind}, {_AT_ONCE})" for kind in ("out", "array")]
    kinds += ["out"] * len(entries) + ["number"] * len(numbers)
    given = ["ps", "gradients", *(f"{n}_" for n in entries), *numbers]
    loop = [
        "p_part, gradient_part = p_[start:stop], gradients[place][start:stop]",
        *(f"{n}_part = {n}_[begin + start : begin + stop]" for n in entries),
        "for at in range(stop - start):",
        *(f"    {n} = {n}_part[at]" for n in ("p", "gradient", *entries)),
        *(f"    {target} = {value}" for target, value in statements),
        *(f"    {n}_part[at] = {n}" for n in ("p", *entries)),
    ]
    return "\n".join([
        f"@kernel(integer, integer, {', '.join(kinds)})",
        f"def {name}(low, high, {', '.join(given)}):",
        "    begin = 0",
        f"    for place in range({_AT_ONCE}):",
        "        p_ = ps[place]",
        "        start, stop = max(low - begin, 0), min(high - begin, p_.size)",
        "        if start < stop:",
        *(f"            {line}" for line in loop),
        "        begin += p_.size",
        "",
    ])  # fmt: skip


class UpdateKernel:
    """One update for all its dtypes.

    Args:
        declared: the update.
        kernels: the compiled functions by the characters of their dtypes.
        share: calls a function for ranges of so many lines, which have so many elements.
    """

    def __init__(
        self, declared: Update, kernels: dict[str, Any],
        share: Callable[[Callable[[int, int], object], int, int], None],
    ) -> None:  # fmt: skip
        self._entries = len(declared.entries.split())
        self._share = share
        self._kernels = {
            np.dtype(char): (kernel, (np.empty(0, char),) * _AT_ONCE)
            for char, kernel in kernels.items()
        }

    def __call__(self, p: Any, g: Any, *others: Value) -> Any:
        """Take a step; NotImplemented, before anything is changed, if NumPy has to take it.

        Args:
            p: the values of a parameter, or a list of those of several small ones.
            g: its gradient, or theirs.
            others: the entries, in which several parameters follow one another, and the numbers.
        """
        ps, gs = (p, g) if p.__class__ is list else ([p], [g])
        dtype = ps[0].dtype
        if dtype not in self._kernels:
            return NotImplemented
        size = 0
        for value, gradient in zip(ps, gs, strict=True):
            if not (
                value.dtype is dtype
                and gradient.dtype is dtype
                and value.size == gradient.size
                and value.flags.carray
                and gradient.flags.aligned
            ):
                return NotImplemented
            size += value.size
        entries = others[: self._entries]
        for entry in entries:
            if entry.dtype is not dtype or entry.size != size or not entry.flags.carray:
                return NotImplemented
        rows = [entry.reshape(-1) for entry in entries]
        numbers = others[self._entries :]
        begin = 0
        for first in range(0, len(ps), _AT_ONCE):
            few = slice(first, first + _AT_ONCE)
            values = [value.reshape(-1) for value in ps[few]]
            # A copy, if its memory isn't one row.
            gradients = [gradient.ravel() for gradient in gs[few]]
            end = begin + sum([value.size for value in values])
            self._take(end - begin, values, gradients, [row[begin:end] for row in rows], numbers)
            begin = end
        return None

    def _take(
        self, size: int, values: list[Array], gradients: list[Array], rows: list[Array],
        numbers: tuple[float, ...],
    ) -> None:  # fmt: skip
        """Take the step of as many parameters as a compiled function takes."""
        kernel, empty = self._kernels[values[0].dtype]
        rest = empty[len(values) :]
        arguments = (*values, *rest), (*gradients, *rest), *rows, *numbers
        self._share(lambda low, high: kernel(low, high, *arguments), size, size)
