"""Sorting: values are picked at indices, which have no derivative."""

from __future__ import annotations

from asyncgrad.ops.op import Refused, operation
from asyncgrad.ops.table.reduction import selection

OPS = (
    selection("sort", "SortBackward0"),
    selection("topk", "TopkBackward0"),
    *[
        operation(
            name,
            lambda xp, x, values: values,
            pulls={"x": Refused(name)},
            node=node,
            repeats=False,
        )
        for name, node in (
            ("unique", "Unique2Backward0"),
            ("unique_consecutive", "UniqueConsecutiveBackward0"),
        )
    ],
)
