"""Sorting: the values are elements of the input, found at indices that have no derivative."""

from __future__ import annotations

from asyncgrad.ops.derivatives.reduction import selection

ENTRIES = (selection("sort", "SortBackward0"), selection("topk", "TopkBackward0"))
