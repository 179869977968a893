"""Functions that make a batch from a list of samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from copy import copy
from typing import Any

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.creation import as_tensor, tensor
from asyncgrad.ops.api.shape import stack


def default_convert(data: Any) -> Any:
    """Make tensors of the NumPy arrays in a sample; leave the rest unchanged."""
    if isinstance(data, (np.ndarray, np.generic)) and data.dtype.kind in "biufc":
        return as_tensor(data)
    if isinstance(data, Mapping):
        return _mapping(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _sequence(data, list(map(default_convert, data)))
    return data


def default_collate(batch: Sequence[Any]) -> Any:
    """Make a batch of similar samples.

    Args:
        batch: tensors or arrays of one shape, which are stacked along a new first axis; numbers,
            which become a tensor (float64 or int64); strings, which stay a list; or containers of
            these, which are batched element by element.

    Example:
        >>> from asyncgrad.utils.data import default_collate
        >>> default_collate([{"x": ag.zeros(2), "y": 1}, {"x": ag.ones(2), "y": 2}])["y"]
        tensor([1, 2])
    """
    first = batch[0]
    if isinstance(first, Variable):
        return stack(list(batch), 0)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, (np.ndarray, np.generic)):
        if first.dtype.kind not in "biufc":
            raise TypeError(_unknown(first.dtype))
        return stack([as_tensor(sample) for sample in batch], 0)
    if isinstance(first, float):
        return tensor(batch, dtype="float64")
    if isinstance(first, int):
        return tensor(batch)
    if isinstance(first, Mapping):
        return _mapping(first, {key: default_collate([one[key] for one in batch]) for key in first})
    if isinstance(first, Sequence):
        if len({len(sample) for sample in batch}) > 1:
            raise RuntimeError("each element in list of batch should be of equal size")
        return _sequence(first, list(map(default_collate, zip(*batch, strict=True))))
    raise TypeError(_unknown(type(first)))


def _sequence(like: Any, values: list[Any]) -> Any:
    if type(like) is tuple:
        # As in PyTorch: of all tuples, only named tuples keep their type.
        return values
    if hasattr(like, "_fields"):
        return type(like)(*values)
    return _made(type(like), values)


def _mapping(like: Any, values: dict[Any, Any]) -> Any:
    """A mapping of the same type, with what it has beside its items: a `defaultdict`'s default."""
    if not isinstance(like, MutableMapping):
        return _made(type(like), values)
    made = copy(like)
    made.update(values)
    return made


def _made(kind: Callable[[Any], Any], values: Any) -> Any:
    """A container of the given type, or the values as they are if it can't be made of them."""
    try:
        return kind(values)
    except TypeError:
        return values


def _unknown(kind: Any) -> str:
    return (
        f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {kind}. Give the loader a collate_fn of your own."
    )
