"""Losses as modules."""

from __future__ import annotations

from typing import Any

from asyncgrad.nn import functional as F
from asyncgrad.nn.module import Module
from asyncgrad.ops.api.loss import chosen_reduction


class _Loss(Module):
    """The base of losses, with their `reduction`."""

    def __init__(
        self, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
    ) -> None:
        super().__init__()
        if size_average is not None or reduce is not None:
            reduction = chosen_reduction(reduction, size_average, reduce)
        self.reduction = reduction


class L1Loss(_Loss):
    """The absolute difference.

    Args:
        size_average: deprecated.
        reduce: deprecated.
        reduction: "mean", "sum" or "none".
    """

    def forward(self, input: Any, target: Any) -> Any:
        """The loss of two tensors of one shape."""
        return F.l1_loss(input, target, reduction=self.reduction)


class MSELoss(_Loss):
    """The squared difference.

    Args:
        size_average: deprecated.
        reduce: deprecated.
        reduction: "mean", "sum" or "none".
    """

    def forward(self, input: Any, target: Any) -> Any:
        """The loss of two tensors of one shape."""
        return F.mse_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """The absolute difference, smooth near 0.

    Args:
        size_average: deprecated.
        reduce: deprecated.
        reduction: "mean", "sum" or "none".
        beta: below it the loss is a parabola.
    """

    def __init__(
        self,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
        beta: float = 1.0,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Any, target: Any) -> Any:
        """The loss of two tensors of one shape."""
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """Half the squared difference up to `delta`, and linear growth above.

    Args:
        reduction: "mean", "sum" or "none".
        delta: the difference at which the loss becomes linear.

    Raises:
        TypeError: if `delta` is not a number.
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        if not isinstance(delta, (int, float)):
            raise TypeError(f"delta must be a float or int, got: {type(delta)}")
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Any, target: Any) -> Any:
        """The loss of two tensors of one shape."""
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class KLDivLoss(_Loss):
    """The divergence of a distribution from a target.

    Args:
        size_average: deprecated.
        reduce: deprecated.
        reduction: "batchmean", "mean", "sum" or "none".
        log_target: the target holds log-probabilities, as the input always does.
    """

    def __init__(
        self,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: Any, target: Any) -> Any:
        """The loss of logarithms of probabilities."""
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class _WeightedLoss(_Loss):
    """A loss with a weight for each class or element, which is a buffer."""

    def __init__(
        self, weight: Any, reduction: str, size_average: Any = None, reduce: Any = None
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class NLLLoss(_WeightedLoss):
    """The negative logarithm of the probability of the right class.

    Args:
        weight: a weight for each class.
        ignore_index: a class that does not count.
        size_average: deprecated.
        reduce: deprecated.
        reduction: "mean", "sum" or "none".
    """

    def __init__(
        self,
        weight: Any = None,
        size_average: Any = None,
        ignore_index: int = -100,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, reduction, size_average, reduce)
        self.ignore_index = ignore_index

    def forward(self, input: Any, target: Any) -> Any:
        """The loss of logarithms of probabilities."""
        return F.nll_loss(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )


class CrossEntropyLoss(_WeightedLoss):
    """The cross entropy of logits and classes.

    Args:
        weight: a weight for each class.
        ignore_index: a class that does not count.
        size_average: deprecated.
        reduce: deprecated.
        reduction: "mean", "sum" or "none".
        label_smoothing: the share of the target that is spread over all classes, in [0, 1].
    """

    def __init__(
        self,
        weight: Any = None,
        size_average: Any = None,
        ignore_index: int = -100,
        reduce: Any = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, reduction, size_average, reduce)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Any, target: Any) -> Any:
        """The loss of logits and classes, or probabilities of classes."""
        return F.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class BCELoss(_WeightedLoss):
    """The binary cross entropy of probabilities.

    Args:
        weight: a weight for each element.
        size_average: deprecated.
        reduce: deprecated.
        reduction: "mean", "sum" or "none".
    """

    def __init__(
        self,
        weight: Any = None,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, reduction, size_average, reduce)

    def forward(self, input: Any, target: Any) -> Any:
        """The loss of probabilities."""
        return F.binary_cross_entropy(input, target, self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_WeightedLoss):
    """The binary cross entropy of logits.

    Args:
        weight: a weight for each element.
        size_average: deprecated.
        reduce: deprecated.
        reduction: "mean", "sum" or "none".
        pos_weight: a weight for positive targets.
    """

    def __init__(
        self,
        weight: Any = None,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
        pos_weight: Any = None,
    ) -> None:
        super().__init__(weight, reduction, size_average, reduce)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Any, target: Any) -> Any:
        """The loss of logits."""
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, reduction=self.reduction, pos_weight=self.pos_weight
        )


class CosineSimilarity(Module):
    """The cosine of the angle between vectors.

    Args:
        dim: the axis of the vectors' elements.
        eps: the least norm that is divided by.
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Any, x2: Any) -> Any:
        """The cosines of vectors along `dim`."""
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of the difference of vectors.

    Args:
        p: the order of the norm.
        eps: added to the differences.
        keepdim: keep an axis of length 1.
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Any, x2: Any) -> Any:
        """The distances of vectors along the last axis."""
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
