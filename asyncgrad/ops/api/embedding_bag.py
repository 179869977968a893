"""Sums, means and maxima of bags of rows of a table; in `nn.functional`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from asyncgrad.choices import BagMode
from asyncgrad.core.frames import warn
from asyncgrad.core.variable import Variable, wrap
from asyncgrad.devices import CPU
from asyncgrad.ops.api.conversion import to
from asyncgrad.ops.api.creation import zeros
from asyncgrad.ops.api.index import check_range, embedding, gather, index_add
from asyncgrad.ops.api.reduction import max, mean, sum
from asyncgrad.ops.api.shape import reshape
from asyncgrad.ops.batching import by_parts
from asyncgrad.ops.dtype import FLOATING
from asyncgrad.ops.namespace import metadata_of
from asyncgrad.ops.promotion import category
from asyncgrad.ops.requirements import unmet
from asyncgrad.ops.tensors.transfer import on_host
from asyncgrad.types import Array, Tensor, Truth

_INT64 = np.dtype("int64")


def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None,
    norm_type: float = 2, scale_grad_by_freq: bool = False, mode: BagMode = "mean",
    sparse: bool = False, per_sample_weights: Tensor | None = None,
    include_last_offset: Truth = False, padding_idx: int | None = None,
) -> Tensor:  # fmt: skip
    """The sum, mean or maximum of each bag of rows, (bags, features); an empty bag gives zeros.

    Args:
        input: integers of shape (bags, length), or of shape (n,) with `offsets`.
        weight: the table, of shape (rows, features).
        offsets: where each bag starts in `input`, of shape (bags,).
        max_norm, norm_type, scale_grad_by_freq, sparse: as in `embedding`.
        mode: "sum", "mean" or "max", which is taken for each feature.
        per_sample_weights: the weight of each row in a sum, of the input's shape.
        include_last_offset: `offsets` also says where the last bag ends.
        padding_idx: a row that is ignored in all bags.
    """
    shares = per_sample_weights
    if weight._metadata.dtype == _INT64 and category(input._metadata.dtype) == 2:
        warn(
            "Argument order of nn.functional.embedding_bag was changed. Usage "
            "`embedding_bag(weight, input, ...)` is deprecated, and should now be "
            "`embedding_bag(input, weight, ...)`."
        )
        input, weight = weight, input
    if shares is not None and shares.shape != input.shape:
        raise unmet("embedding_bag", "If per_sample_weights is not None, then it must have the "
                    "same shape as the input",
                    ValueError, per_sample_weights=shares, input=input)  # fmt: skip
    if weight.ndim != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}")
    read = (input, offsets, weight if mode == "max" else None)
    if any(getattr(part, "_batched", False) for part in read):
        return by_parts(
            embedding_bag, input, weight, offsets, max_norm, norm_type, scale_grad_by_freq, mode,
            sparse, shares, include_last_offset, padding_idx,
        )  # fmt: skip
    numbers = on_host(input)
    starts = _starts(numbers, offsets)
    _check_mode(mode, scale_grad_by_freq, sparse, shares)
    _check_table(numbers, weight, shares)
    count, bags = _bags(starts, numbers.size, include_last_offset and offsets is not None)
    numbers = numbers.reshape(-1)
    rows = weight.shape[0]
    kept = bags >= 0
    if padding_idx is not None:
        if not -rows <= padding_idx < rows:
            raise unmet("embedding_bag", "padding_idx must be within the number of embeddings, "
                        f"{-rows} through {rows - 1}", padding_idx=padding_idx)  # fmt: skip
        kept &= numbers != padding_idx % rows
    bags = bags[kept]

    def there(array: Array) -> Any:
        """Move an array to the table's device."""
        place = weight._metadata.device
        return to(wrap(array, metadata_of(array, CPU)), place)

    found = embedding(
        there(numbers[kept]), weight, None, max_norm, norm_type, scale_grad_by_freq, sparse
    )
    if shares is not None:
        found = found * reshape(reshape(shares, (-1,))[there(np.flatnonzero(kept))], (-1, 1))
    if input.ndim == 2 and kept.all():
        # Bags of one length are an axis.
        found = reshape(found, (count, input.shape[1], weight.shape[1]))
        return max(found, 1).values if mode == "max" else {"sum": sum, "mean": mean}[mode](found, 1)
    empty = zeros(count, weight.shape[1], dtype=weight.dtype, device=weight.device)
    if mode == "max":
        return _greatest(found, bags, empty, there)
    total = index_add(empty, 0, there(bags), found)
    if mode == "sum":
        return total
    sizes = np.maximum(np.bincount(bags, minlength=count), 1)
    return total / there(sizes.astype(on_host(weight[:0]).dtype)[:, None])


def _starts(numbers: Array, offsets: Tensor | None) -> Any:
    """Where each bag starts in the flat input."""
    if numbers.ndim == 2:
        if offsets is not None:
            raise unmet("embedding_bag", "if input is 2D, then offsets has to be None, as input is "
                        "treated is a mini-batch of fixed length sequences",
                        ValueError, offsets=offsets)  # fmt: skip
        count, length = numbers.shape
        if not length:
            raise RuntimeError("embedding_bag: the bags of a 2D input must not be empty")
        return np.arange(0, count * length, length)
    if numbers.ndim != 1:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension "
                         f"{numbers.ndim}")  # fmt: skip
    if not isinstance(offsets, Variable) or len(offsets._metadata.shape) != 1:
        raise unmet("embedding_bag", "offsets has to be a 1D Tensor", ValueError, offsets=offsets)
    starts = on_host(offsets)
    if starts.dtype.name not in {"int64", "int32"}:
        raise unmet(
            "embedding_bag", "expected offsets of dtype int64 or int32", offsets=starts.dtype
        )
    if starts.size and starts[0]:
        raise unmet("embedding_bag", "offsets[0] has to be 0, i.e., the first sequence in the "
                    "mini-batch has to start from position 0", offsets=starts)  # fmt: skip
    if starts.size and starts[-1] > numbers.size:
        raise unmet("embedding_bag", "offsets[-1] can not be greater than input's length "
                    f"{numbers.size}", offsets=starts)  # fmt: skip
    if (np.diff(starts) < 0).any():
        raise RuntimeError(f"embedding_bag: offsets have to rise, got {starts.tolist()}")
    return starts


def _check_mode(mode: BagMode, by_frequency: bool, sparse: bool, shares: Tensor | None) -> None:
    if mode == "max" and by_frequency:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if mode == "max" and sparse:
        raise ValueError("max mode does not support sparse weights")
    if shares is not None and mode != "sum":
        raise unmet("embedding_bag", "per_sample_weights is only supported for mode='sum' (got "
                    f"mode={mode!r})", NotImplementedError)  # fmt: skip


def _check_table(numbers: Array, table: Tensor, shares: Tensor | None) -> None:
    if numbers.dtype.name not in {"int64", "int32"}:
        raise unmet("embedding_bag", "Expected 'indices' to have one of the following scalar "
                    "types: int64, int32", input=numbers.dtype)  # fmt: skip
    if table.dtype.kind not in FLOATING:
        raise RuntimeError(f"embedding_bag: expected a floating table, got {table.dtype}")
    if shares is not None and shares.dtype != table.dtype:
        raise unmet("embedding_bag", "Expected 'weight' to have the same type as "
                    "'per_sample_weights'",
                    weight=table.dtype, per_sample_weights=shares.dtype)  # fmt: skip
    check_range("embedding_bag", numbers, table.shape[0], RuntimeError)


def _bags(starts: Array, size: int, ends: bool) -> tuple[int, Any]:
    """The number of bags, and the bag of each element; -1 for elements in no bag."""
    if ends:
        if not starts.size:
            raise RuntimeError("include_last_offset: number of offset should be at least 1")
        starts, last = starts[:-1], int(starts[-1])
    else:
        last = size
    bags = np.full(size, -1)
    if starts.size:
        lengths = np.diff(starts, append=last)
        bags[:last] = np.repeat(np.arange(starts.size), lengths)
    return starts.size, bags


def _greatest(found: Tensor, bags: Array, empty: Tensor, there: Callable[..., Any]) -> Any:
    """The greatest element of each bag and feature; the first of equal ones."""
    values = on_host(found)
    count, features = empty.shape
    if not values.size:
        return empty + found.sum()
    places = np.zeros((count, features), np.int64)
    ends = np.searchsorted(bags, np.arange(count + 1))
    some = np.flatnonzero(np.diff(ends))
    for bag in some:
        places[bag] = ends[bag] + values[ends[bag] : ends[bag + 1]].argmax(0)
    picked = gather(found, 0, there(places))
    return index_add(empty, 0, there(some), picked[there(some)])
