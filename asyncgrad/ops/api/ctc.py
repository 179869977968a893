"""The CTC loss, of labels that are not aligned with a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncgrad.choices import Reduction
from asyncgrad.core.recording import again
from asyncgrad.devices import CPU
from asyncgrad.ops.api.elementwise import where
from asyncgrad.ops.api.index import gather
from asyncgrad.ops.api.reduction import logsumexp
from asyncgrad.ops.api.shape import cat, stack
from asyncgrad.ops.dtype import check_dtype
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.promotion import as_tensor_operand
from asyncgrad.ops.requirements import unmet
from asyncgrad.ops.tensors.new_tensors import leaf, new_beside
from asyncgrad.types import Array, ByExample, Tensor

__all__ = ["ctc_loss"]

#: The log-probability of impossible states; with minus infinity, gradients would be NaN.
_NEVER = -1e30


def _constant(like: Tensor, array: Array) -> Any:
    return leaf("sequences", like._metadata.F.xp.asarray(array), like._metadata.device)


def _host(name: str, value: Tensor | Sequence[int], place: int) -> Any:
    """Integers as a NumPy array."""
    x = as_tensor_operand(value, name, place)
    array = x._array if x._metadata.device is CPU else x.detach().cpu().numpy()
    if array.dtype.kind not in "iu":
        what = ("targets", "input_lengths", "target_lengths")[place - 2]
        raise unmet(name, f"{what} must be integral", **{what: array.dtype})
    return array


def ctc_loss(
    log_probs: Tensor, targets: ByExample, input_lengths: ByExample | Sequence[int],
    target_lengths: ByExample | Sequence[int], blank: int = 0, reduction: Reduction = "mean",
    zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """The connectionist temporal classification loss, of labels not aligned with the outputs.

    As in PyTorch, the gradient is with respect to the inputs of the log-softmax.

    Args:
        log_probs: of shape (steps, batch, classes), or (steps, classes).
        targets: the labels, without blanks, of shape (batch, length), or concatenated.
        input_lengths: the number of steps of each example, a tensor or a sequence.
        target_lengths: the number of labels of each example.
        blank: the class that stands for no label.
        reduction: "mean" (of losses divided by the targets' lengths), "sum" or "none".
        zero_infinity: replace infinite losses (examples with too few steps) by 0.
    """
    name = "ctc_loss"
    alone = len(log_probs._metadata.shape) == 2
    if alone:
        log_probs = R.unsqueeze(log_probs, 1)
    shape = log_probs._metadata.shape
    if len(shape) != 3:
        raise unmet(name, "Expected 3-dimensional tensor", log_probs=log_probs)
    if not 0 <= blank < shape[2]:
        raise RuntimeError(f"{name}(): blank must be in label range, got {blank} of {shape[2]}")
    counts = [
        part if isinstance(part, (tuple, list)) else _host(name, part, place)
        for place, part in ((3, input_lengths), (4, target_lengths))
    ]
    labels, dtype = _host(name, targets, 2), log_probs._metadata.dtype
    check_dtype(name, dtype, "f")
    *tables, shares = again(_tables, labels, *counts, shape, blank, alone, dtype)
    losses, mass = _alignments(log_probs, *tables)
    if zero_infinity:
        losses = where(R.isinf(losses), 0.0, losses)
    else:
        # An infinite loss has no gradient: that of log(0 * mass) is NaN in each step.
        losses = R.sub(losses, R.log(where(R.isinf(losses), R.mul(mass, 0.0), 1.0)))
    if reduction == "mean":
        losses = R.div(losses, _constant(log_probs, shares))
        return R.mean(losses, (0,), False)
    if reduction == "sum":
        return R.sum(losses, (0,), False)
    return R.squeeze(losses, (0,)) if alone else losses


def _tables(
    targets: Array, ends: Array | Sequence[int], lengths: Array | Sequence[int],
    shape: tuple[int, ...], blank: int, alone: bool, dtype: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """What the labels and lengths say, checked.

    Returns:
        The number of states of each example: its labels, with a blank before and behind each. Which
        class each state stands for; which states are the first, and which may follow the one before
        the last; for each step, which examples go on; the same for all steps at once; the last two
        states of each example, and which of these don't count; which examples are empty; and the
        shares of the losses in their mean.
    """
    name = "ctc_loss"
    steps, batch, classes = shape
    ends, lengths = np.reshape(ends, -1), np.reshape(lengths, -1)
    for what, given in (("input_lengths", ends), ("target_lengths", lengths)):
        if len(given) != batch:
            raise unmet(name, f"{what} must be of size batch_size {batch}", **{what: given})
        if batch and given.min() < 0:
            raise unmet(name, f"Expected {what} to have value at least 0", **{what: given})
    if batch and ends.max() > steps:
        raise unmet(
            name, f"Expected input_lengths to have value at most {steps}", input_lengths=ends
        )
    labels = _labels(name, targets, lengths, alone)
    states = 2 * labels.shape[1] + 1
    extended = np.full((batch, states), blank, np.int64)
    extended[:, 1::2] = labels
    used = np.arange(states) < 2 * lengths[:, None] + 1
    extended[~used] = blank
    if extended.size and (extended.min() < 0 or extended.max() >= classes):
        raise RuntimeError(f"{name}(): targets must be labels from 0 to {classes - 1}")
    # The blank between two different labels may be skipped.
    skips = np.zeros((batch, states), bool)
    skips[:, 2:] = (extended[:, 2:] != blank) & (extended[:, 2:] != extended[:, :-2])
    going = np.arange(steps)[:, None] < ends
    turns = tuple(going[:, :, None])
    last = np.stack([2 * lengths, np.maximum(2 * lengths - 1, 0)], 1).astype(np.int64)
    # An empty target has one final state, not two; without steps only it has a probability.
    single = np.zeros((batch, 2), bool)
    single[:, 1] = lengths == 0
    empty = (ends == 0) & (lengths == 0)
    first = (np.arange(states) < 2) & used
    shares = np.maximum(lengths, 1).astype(dtype)
    return states, extended, first, skips, turns, going, last, single, empty, shares


def _labels(name: str, targets: Array, lengths: Array, alone: bool) -> Any:
    """The labels with one row for each example."""
    longest = int(lengths.max(initial=0))
    if targets.ndim == 2 and not alone:
        if targets.shape[0] != len(lengths) or targets.shape[1] < longest:
            raise unmet(name, f"Expected tensor to have size at least {longest} at dimension 1",
                        **{"targets.shape": targets.shape})  # fmt: skip
        return targets[:, :longest]
    flat = targets.reshape(-1)
    if flat.size < lengths.sum() or targets.ndim > 2:
        raise unmet(
            name,
            f"Expected tensor to have size {int(lengths.sum())}",
            **{"targets.shape": targets.shape},
        )
    out = np.zeros((len(lengths), longest), np.int64)
    for row, (start, count) in enumerate(zip(np.cumsum(lengths) - lengths, lengths, strict=True)):
        out[row, :count] = flat[start : start + count]
    return out


def _alignments(x: Tensor, states: int, *tables: Any) -> Any:
    """The negative log-likelihood of each example, summed over all alignments, and its `mass`."""
    steps, batch, _ = x._metadata.shape
    extended, first, skips, turns, *others = tables
    first, skips = _constant(x, first), _constant(x, skips)
    never: Any = new_beside("sequences", x, "full", (batch, states), _NEVER)
    wide = R.expand(R.unsqueeze(_constant(x, extended), 0), (steps, batch, states))
    emitted = gather(x, 2, wide)
    state: Any = never
    for step in range(steps):
        now = R.squeeze(R.narrow(emitted, 0, step, 1), (0,))
        if step == 0:
            reached = where(first, now, never)
        else:
            ways: Any = [state, *(_shifted(state, never, count) for count in (1, 2))]
            ways[2] = where(skips, ways[2], never)
            reached = R.add(logsumexp(stack(ways), 0), now)
        state = where(_constant(x, turns[step]), reached, state)
    going, last, single, empty = [_constant(x, table) for table in others]
    ways = where(single, _NEVER, gather(state, 1, last))
    losses = R.neg(logsumexp(ways, 1))
    losses = where(empty, 0.0, losses)
    losses = where(R.gt(losses, -_NEVER / 2), float("inf"), losses)
    # PyTorch's gradient also contains exp(x), as if x were normalised; this adds it, with value 0.
    mass = where(going, R.sum(R.exp(x), (2,), False), 0.0)
    mass = R.sum(mass, (0,), False)
    return R.add(losses, R.sub(mass, mass.detach())), mass


def _shifted(state: Tensor, never: Tensor, count: int) -> Any:
    states = state._metadata.shape[1]
    count = min(count, states)
    return cat((R.narrow(never, 1, 0, count), R.narrow(state, 1, 0, states - count)), 1)
