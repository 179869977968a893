"""Sorting: the values are elements of the input, found at indices that have no derivative."""

from __future__ import annotations

from asyncgrad.ops.derivatives.reduction import selection
from asyncgrad.ops.entry import Refused, operation

ENTRIES = (
    selection("sort", "SortBackward0"),
    selection("topk", "TopkBackward0"),
    *[
        operation(
            name,
            lambda xp, x, values: values,
            "x",
            "values",
            pulls={"x": Refused(name)},
            node=node,
        )
        for name, node in (
            ("unique", "Unique2Backward0"),
            ("unique_consecutive", "UniqueConsecutiveBackward0"),
        )
    ],
)
