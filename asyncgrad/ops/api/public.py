"""The public functions that are made from rows: those whose row has a docstring."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from asyncgrad.ops.namespace import OPS, RECORDED
from asyncgrad.ops.op import Op
from asyncgrad.ops.tensors.out import put


def functions(namespace: str, ops: Iterable[Op] = OPS.values()) -> dict[str, Callable[..., Any]]:
    """The functions of some rows in a namespace below `asyncgrad`, by name; "" is the top."""
    return {name: function_of(op) for op in ops for name in names_of(op, namespace)}


def names_of(op: Op, namespace: str) -> list[str]:
    """The names of a row's function in a namespace."""
    paths = (op.public or op.name).split() if op.doc else []
    parted = [path.rpartition(".") for path in paths]
    return [name for space, _, name in parted if space == namespace]


def publish(chapter: dict[str, Any], ops: Iterable[Op]) -> None:
    """Add the functions of some rows to a chapter of `ops.api`, and to what it lists."""
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
    dispatch = getattr(RECORDED, name)
    dispatch.__doc__ = op.doc
    dispatch.__annotations__ = types = _types(op)
    function: Any
    if not op.out:
        return dispatch
    if len(op.inputs) == 1:

        def function(input, *, out=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            result = dispatch(input)
            # A result in another dtype than a complex input's, as that of `abs`, is converted.
            return (
                result
                if out is None
                else put(out, name, result, exact=exact and not input._metadata.is_complex)
            )

    else:

        def function(input, other, *, out=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            result = dispatch(input, other)
            return result if out is None else put(out, name, result, exact=exact)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = op.doc
    function.__annotations__ = {**types, "out": "Tensor | None"}
    function.dispatch = dispatch
    return function


def _types(op: Op) -> dict[str, str]:
    """The annotations of a row's dispatch function: which operands may be numbers says the row."""
    if len(op.inputs) == 1:
        return {"input": "Tensor", "return": "Tensor"}
    first, second = _OPERANDS[op.numbers]
    return {"input": first, "other": second, "return": "Tensor"}


_EITHER = "Tensor | Number"
_OPERANDS = {
    "none": ("Tensor", "Tensor"),
    "second": ("Tensor", _EITHER),
    "either": (_EITHER, _EITHER),
    "both": (_EITHER, _EITHER),
}
