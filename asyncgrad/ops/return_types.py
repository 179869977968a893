"""The named tuples that functions of several results return, as `torch.return_types`."""

from __future__ import annotations

from typing import Any, NamedTuple


class max(NamedTuple):
    """What `max` along an axis returns."""

    values: Any
    indices: Any


class min(NamedTuple):
    """What `min` along an axis returns."""

    values: Any
    indices: Any


class sort(NamedTuple):
    """What `sort` returns."""

    values: Any
    indices: Any


class topk(NamedTuple):
    """What `topk` returns."""

    values: Any
    indices: Any


class aminmax(NamedTuple):
    """What `aminmax` returns."""

    min: Any
    max: Any
