"""How functions and kernels of the host are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit, types

#: Products may be fused with sums, and sums regrouped; NaN and infinities stay what they are.
FASTMATH = frozenset({"contract", "reassoc", "nsz"})
#: The same, but sums stay in their order.
IN_ORDER = frozenset({"contract"})


def compiled(
    signatures: list[Any] | None = None, fastmath: frozenset[str] = FASTMATH
) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function, which then runs without the interpreter's lock.

    It is kept for the next process, if there is a folder that can be written to. Without signatures
    it is one that compiled functions call, and a part of what is kept of them. `fastmath` says, in
    LLVM's words, what may be done to floating-point numbers.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        options: dict[str, Any] = {"nogil": True, "fastmath": set(fastmath), "error_model": "numpy"}
        if signatures is None:
            # Otherwise those that call it would share one copy, which is optimised anew with each
            # of them: that of whichever is loaded first.
            return njit(forceinline=True, **options)(function)
        try:
            return njit(signatures, cache=True, **options)(function)
        except RuntimeError:
            # Numba has found no such folder.
            return njit(signatures, **options)(function)

    return decorate


def array(number: Any, readonly: bool = False) -> Any:
    """The type of arrays of one axis whose elements lie side by side."""
    return types.Array(number, 1, "C", readonly=readonly)


def kernel(kinds: str, fastmath: frozenset[str] = FASTMATH) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for float32 and for float64.

    The kinds of its parameters are "i" for an integer, "n" for a number, "x" for an array and "y"
    for one that is written to, "p" for an array of integers, and "s" for sums in double precision,
    which are added to.
    """

    def signature(number: Any) -> Any:
        known = {
            "i": types.int64, "n": number, "x": array(number, True), "y": array(number),
            "p": array(types.int64, True), "s": array(types.float64),
        }  # fmt: skip
        return types.void(*(known[kind] for kind in kinds.replace(" ", "")))

    return compiled([signature(number) for number in (types.float32, types.float64)], fastmath)
