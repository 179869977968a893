"""The public functions that are made from rows: those whose row has a docstring."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from asyncgrad.ops.namespace import OPS, RECORDED
from asyncgrad.ops.tensors.out import put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from asyncgrad.ops.op import Op
    from asyncgrad.tensor import Tensor
    from asyncgrad.types import Number


def functions(namespace: str, ops: Iterable[Op] = OPS.values()) -> dict[str, Callable[..., Any]]:
    """The functions of some rows in a namespace below `asyncgrad`, by name; "" is the top."""
    return {name: function_of(op) for op in ops for name in names_of(op, namespace)}


def names_of(op: Op, namespace: str) -> list[str]:
    """The names of a row's function in a namespace."""
    paths = (op.public or op.name).split() if op.doc else []
    parted = [path.rpartition(".") for path in paths]
    return [name for space, _, name in parted if space == namespace]


def publish(chapter: dict[str, Any], ops: Iterable[Op]) -> None:
    """Add the functions of some rows to a chapter of `ops.api`.

    Args:
        chapter: the names in the chapter; `__all__`, `METHODS` and `IN_PLACE` are extended.
        ops: the rows.
    """
    chapter |= functions("", ops)
    for op in ops:
        names = names_of(op, "")
        chapter["__all__"] += names
        chapter["METHODS"] += tuple(names)
        chapter["IN_PLACE"] += tuple(names) if op.in_place else ()


@functools.cache
def function_of(op: Op) -> Callable[..., Any]:
    """The public function of a row: its dispatch function, which has an argument `out` here."""
    name, exact = op.name, op.exact_out
    dispatch: Callable[..., Tensor] = getattr(RECORDED, name)
    dispatch.__doc__ = op.doc
    function: Any
    if not op.out:
        return dispatch
    if len(op.inputs) == 1:

        def function(input: Tensor, *, out: Tensor | None = None) -> Tensor:
            result = dispatch(input)
            return result if out is None else put(out, name, result, exact=exact)

    else:

        def function(
            input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None
        ) -> Tensor:
            result = dispatch(input, other)
            return result if out is None else put(out, name, result, exact=exact)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = op.doc
    function.dispatch = dispatch
    return function
