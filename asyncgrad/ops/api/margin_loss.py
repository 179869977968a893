"""Composed losses: margins, rankings and likelihoods; all are in `nn.functional`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from asyncgrad.choices import Reduction
from asyncgrad.core.variable import Variable
from asyncgrad.ops.api.activation import logsigmoid, pairwise_distance
from asyncgrad.ops.api.elementwise import where
from asyncgrad.ops.api.index import gather
from asyncgrad.ops.api.loss import in_dtype, reduced, reduced_as
from asyncgrad.ops.api.shape import reshape, unsqueeze
from asyncgrad.ops.converted import one_node
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.promotion import cast, constant
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.types import Tensor, Truth

#: PyTorch adds this to squared norms.
_COSINE_EPS = 1e-12


@requires(
    "input1.ndim == input2.ndim == target.ndim  # All input tensors should have same dimension"
)
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0,
    size_average: Truth | None = None, reduce: Truth | None = None, reduction: Reduction = "mean",
) -> Tensor:  # fmt: skip
    """The ranking loss of two scores: `max(0, -y * (a - b) + margin)`.

    Args:
        input1: scores.
        input2: the scores to compare with, of the same number of axes.
        target: 1 where the first should be greater, -1 where the second.
        margin: the margin by which it should be greater.
        reduction: "mean", "sum" or "none"; `size_average` and `reduce` are deprecated.
    """
    return reduced((-target * (input1 - input2) + float(margin)).clamp_min(0), reduction)


def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, size_average: Truth | None = None,
    reduce: Truth | None = None, reduction: Reduction = "mean",
) -> Tensor:  # fmt: skip
    """The distance where the target is 1, and `max(0, margin - distance)` where it is -1.

    Args:
        input: distances.
        target: 1 or -1 for each, broadcast.
        reduction: "mean", "sum" or "none"; `size_average` and `reduce` are deprecated.
    """
    far = where(target != 1, (margin - input).clamp_min(0), 0.0)
    return reduced(far + where(target != -1, input, 0.0), reduction)


@requires(
    "target.ndim <= 1  # 0D or 1D target tensor expected, multi-target not supported",
    "input1.ndim == input2.ndim == target.ndim + 1  # found inputs with sizes unlike the target",
)
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0,
    size_average: Truth | None = None, reduce: Truth | None = None, reduction: Reduction = "mean",
) -> Tensor:  # fmt: skip
    """`1 - cosine` where the target is 1, and `max(0, cosine - margin)` where it is -1.

    Args:
        input1: vectors of shape (n, d), or one of shape (d,).
        input2: others.
        target: 1 or -1 for each, of shape (n,) or ().
        reduction: "mean", "sum" or "none"; `size_average` and `reduce` are deprecated.
    """
    a, b, y = input1, input2, target
    lengths = ((a * a).sum(y.ndim) + _COSINE_EPS) * ((b * b).sum(y.ndim) + _COSINE_EPS)
    cosine = (a * b).sum(y.ndim) / lengths.sqrt()
    near = where(y == 1, 1 - cosine, 0.0)
    return reduced(near + where(y == -1, (cosine - margin).clamp_min(0), 0.0), reduction)


@one_node("SoftMarginLossBackward0")
def soft_margin_loss(
    input: Tensor, target: Tensor, size_average: Truth | None = None, reduce: Truth | None = None,
    reduction: Reduction = "mean",
) -> Tensor:  # fmt: skip
    """The logistic loss `log(1 + exp(-y * x))`.

    Args:
        input: scores.
        target: 1 or -1 for each, broadcast.
        reduction: "mean", "sum" or "none"; `size_average` and `reduce` are deprecated.
    """
    name = "soft_margin_loss"
    losses = in_dtype(name, -logsigmoid(target * input), input)
    return reduced_as(name, losses, input, reduction)


def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2,
    eps: float = 1e-6, swap: bool = False, size_average: Truth | None = None,
    reduce: Truth | None = None, reduction: Reduction = "mean",
) -> Tensor:  # fmt: skip
    """`max(0, distance to the positive - distance to the negative + margin)`.

    Args:
        anchor: vectors of shape (n, d) or (d,).
        positive: vectors that should be near.
        negative: vectors that should be far.
        margin: the margin between the two distances.
        p: the order of the norm that is the distance.
        eps: added to each difference.
        swap: use the distance between positive and negative where it is smaller.
        reduction: "mean", "sum" or "none"; `size_average` and `reduce` are deprecated.
    """
    distance = partial(pairwise_distance, p=p, eps=eps)
    return _triplets(distance, anchor, positive, negative, margin, swap, reduction)


def triplet_margin_with_distance_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, *,
    distance_function: Callable[[Any, Any], Any] | None = None, margin: float = 1.0,
    swap: bool = False, reduction: Reduction = "mean",
) -> Tensor:  # fmt: skip
    """`triplet_margin_loss` with any distance.

    Args:
        distance_function: the distance of two tensors; `pairwise_distance` if None.
    """
    distance = pairwise_distance if distance_function is None else distance_function
    return _triplets(distance, anchor, positive, negative, margin, swap, reduction)


def _triplets(
    distance: Callable[[Any, Any], Any], anchor: Tensor, positive: Tensor, negative: Tensor,
    margin: float, swap: bool, reduction: Reduction,
) -> Any:  # fmt: skip
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise unmet("triplet_margin_loss", "The anchor, positive, and negative tensors are "
                    "expected to have the same number of dimensions",
                    anchor=anchor, positive=positive, negative=negative)  # fmt: skip
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = R.minimum(far, distance(positive, negative))
    return reduced((margin + near - far).clamp_min(0), reduction)


def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool = True, full: Truth = False,
    size_average: Truth | None = None, eps: float = 1e-8, reduce: Truth | None = None,
    reduction: Reduction = "mean",
) -> Tensor:  # fmt: skip
    """The negative log-likelihood of counts under Poisson distributions.

    Args:
        input: the expected counts, or their logarithms.
        target: the counts.
        log_input: the input holds logarithms.
        full: add Stirling's approximation of the terms that depend on the target alone.
        eps: added to expected counts before their logarithm is taken.
        reduction: "mean", "sum" or "none"; `size_average` and `reduce` are deprecated.
    """
    losses = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        losses = cast(losses + stirling.masked_fill(target <= 1, 0), losses._metadata.dtype)
    return reduced(losses, reduction)


def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor | float, full: Truth = False, eps: float = 1e-6,
    reduction: Reduction = "mean",
) -> Tensor:  # fmt: skip
    """The negative log-likelihood of values under normal distributions.

    Args:
        input: the means.
        target: the values.
        var: the variances: a number, or a tensor of the input's shape, without its last axis, or
            with axes of length 1.
        full: include the constant term.
        eps: the lower bound of variances; the gradient passes below it.
        reduction: "mean", "sum" or "none".
    """
    v: Any = var if isinstance(var, Variable) else constant(var, input).expand(input.shape)
    if v.shape != input.shape:
        if v.shape == input.shape[:-1]:
            v = unsqueeze(v, -1)
        elif v.ndim != input.ndim or any(
            m != n and n != 1 for m, n in zip(input.shape, v.shape, strict=True)
        ):
            raise ValueError(f"var is of incorrect size: {v.shape} beside input of {input.shape}")
    if not v._metadata.device.streamed and bool((v < 0).any()):
        raise ValueError("var has negative entry/entries")
    v = v + where(v < eps, eps - v.detach(), v.new_zeros(()))
    losses = 0.5 * (v.log() + (input - target).square() / v)
    return reduced(losses + 0.5 * math.log(2 * math.pi) if full else losses, reduction)


def _classes(name: str, scores: Tensor, *, fits: bool = True) -> int:
    """The number of classes that scores are for; raises unless they are of one or two axes."""
    shape = scores.shape
    if not fits or len(shape) > 2 or (shape and not shape[-1]):
        raise unmet(
            name, "Expected non-empty vector or matrix with optional 0-dim batch size", input=scores
        )
    return shape[-1] if shape else 1


@one_node("MultiMarginLossBackward0")
@requires("p in {1, 2}  # only p == 1 and p == 2 supported", error=ValueError)
@requires("weight.ndim == 1  # weight must be one-dimensional", error=ValueError)
def multi_margin_loss(
    input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None,
    size_average: Truth | None = None, reduce: Truth | None = None, reduction: Reduction = "mean",
) -> Tensor:  # fmt: skip
    """The sum of `max(0, margin - right + wrong)**p`, divided by the number of classes.

    Args:
        input: scores of shape (n, classes) or (classes,).
        target: the right classes, int64, of shape (n,) or ().
        p: the power, 1 or 2.
        margin: the margin by which it should be greater.
        weight: the weight of each class, of shape (classes,).
        reduction: "mean", "sum" or "none"; `size_average` and `reduce` are deprecated.
    """
    name = "multi_margin_loss"
    x, y = input, target
    classes = _classes(name, x, fits=y.ndim < 2)
    rows = reshape(x, (-1, classes)) if x.ndim < 2 else x
    if y.numel() != rows.shape[0]:
        raise RuntimeError(f"{name}: inconsistent target size, got: {y.shape} for input {x.shape}")
    if weight is not None and weight.shape != (classes,):
        raise RuntimeError(f"{name}: inconsistent weight size: {weight.shape}, not ({classes},)")
    picks = reshape(y, (-1, 1))
    gaps = margin - gather(rows, 1, picks) + rows
    # As in PyTorch, what is not greater than 0 has no loss, and so NaN has none.
    losses = where((gaps > 0) & (picks != constant(np.arange(classes), y)), gaps, 0.0)
    losses = losses if p == 1 else losses * losses
    if weight is not None:
        losses = losses * reshape(weight[reshape(y, (-1,))], (-1, 1))
    each = losses.sum(1) / classes
    return reduced(each if x.ndim == 2 and y.ndim else reshape(each, y.shape), reduction)


@one_node("MultilabelMarginLossBackward0")
def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: Truth | None = None, reduce: Truth | None = None,
    reduction: Reduction = "mean",
) -> Tensor:  # fmt: skip
    """The sum of `max(0, 1 - right + wrong)` over pairs of scores, by the number of classes.

    Args:
        input: scores of shape (n, classes) or (classes,).
        target: the right classes, int64, of the input's shape; -1 ends a list of them.
        reduction: "mean", "sum" or "none"; `size_average` and `reduce` are deprecated.
    """
    name = "multilabel_margin_loss"
    classes = _classes(name, input)
    if target.shape != input.shape:
        raise unmet(name, "inconsistent target size", target=target, input=input)
    rows, lists = reshape(input, (-1, classes)), reshape(target, (-1, classes))
    listed = (lists == -1).cumsum(1) == 0
    lists = lists.masked_fill(listed.logical_not(), 0)
    hits = (unsqueeze(lists, 2) == constant(np.arange(classes), target)) & unsqueeze(listed, 2)
    counted = unsqueeze(listed, 2) & unsqueeze(hits.any(1).logical_not(), 1)
    gaps = 1 - unsqueeze(gather(rows, 1, lists), 2) + unsqueeze(rows, 1)
    each = where((gaps > 0) & counted, gaps, 0.0).sum((1, 2)) / classes
    return reduced(each if input.ndim == 2 else reshape(each, ()), reduction)


def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Truth | None = None,
    reduce: Truth | None = None, reduction: Reduction = "mean",
) -> Tensor:  # fmt: skip
    """The cross entropy of each class by itself, averaged over the classes.

    Args:
        input: logits of shape (..., classes).
        target: 0 or 1 for each.
        weight: the weight of each class, broadcast.
        reduction: "mean", "sum" or "none"; `size_average` and `reduce` are deprecated.
    """
    losses = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        losses = losses * weight
    axis = input.ndim - 1
    return reduced(losses.sum(axis) / input.shape[axis], reduction)
