"""Losses with margins and of distributions as modules; see the functions of `nn.functional`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.nn import functional as F
from asyncgrad.nn.loss import _Loss
from asyncgrad.ops.api.loss import chosen_reduction

if TYPE_CHECKING:
    from collections.abc import Callable


class _MarginLoss(_Loss):
    """The base of losses that compare two inputs with a margin."""

    def __init__(
        self,
        margin: float = 0.0,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin


class MarginRankingLoss(_MarginLoss):
    """The amount by which two scores miss the required order and margin.

    Args:
        margin: the margin.
        size_average: deprecated.
        reduce: deprecated.
        reduction: "mean", "sum" or "none".
    """

    def forward(self, input1: Any, input2: Any, target: Any) -> Any:
        """Compute the loss."""
        return F.margin_ranking_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )


class HingeEmbeddingLoss(_Loss):
    """The distance where the target is 1, and `max(0, margin - distance)` where it is -1.

    Args:
        margin: the margin.
        size_average: deprecated.
        reduce: deprecated.
        reduction: "mean", "sum" or "none".
    """

    def __init__(
        self,
        margin: float = 1.0,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input: Any, target: Any) -> Any:
        """Compute the loss."""
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class CosineEmbeddingLoss(_MarginLoss):
    """`1 - cosine` where the target is 1, and `max(0, cosine - margin)` where it is -1.

    Args:
        margin: the margin.
        size_average: deprecated.
        reduce: deprecated.
        reduction: "mean", "sum" or "none".
    """

    def forward(self, input1: Any, input2: Any, target: Any) -> Any:
        """Compute the loss."""
        return F.cosine_embedding_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )


class SoftMarginLoss(_Loss):
    """The logistic loss `log(1 + exp(-y * x))`.

    Args:
        size_average: deprecated.
        reduce: deprecated.
        reduction: "mean", "sum" or "none".
    """

    def forward(self, input: Any, target: Any) -> Any:
        """Compute the loss."""
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class TripletMarginLoss(_Loss):
    """`max(0, distance to the positive - distance to the negative + margin)`.

    Args:
        margin: the margin.
        p: the order of the norm that is the distance.
        eps: added to each difference.
        swap: use the distance between positive and negative where it is smaller.
        size_average: deprecated.
        reduce: deprecated.
        reduction: "mean", "sum" or "none".
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        if margin <= 0:
            raise ValueError(f"margin must be greater than 0, got {margin}")
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: Any, positive: Any, negative: Any) -> Any:
        """Compute the loss."""
        return F.triplet_margin_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
        )


class TripletMarginWithDistanceLoss(_Loss):
    """`TripletMarginLoss` with any distance.

    Args:
        distance_function: the distance of two tensors.
        margin: the margin.
        swap: use the distance between positive and negative where it is smaller.
        reduction: "mean", "sum" or "none".
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[Any, Any], Any] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=chosen_reduction(reduction))
        if margin <= 0:
            raise ValueError(f"margin must be greater than 0, got {margin}")
        self.distance_function = distance_function
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: Any, positive: Any, negative: Any) -> Any:
        """Compute the loss."""
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


class PoissonNLLLoss(_Loss):
    """The negative log-likelihood of counts under Poisson distributions.

    Args:
        log_input: the input holds logarithms of the expected counts.
        full: include the terms that depend on the target alone.
        size_average: deprecated.
        eps: added to expected counts before their logarithm is taken.
        reduce: deprecated.
        reduction: "mean", "sum" or "none".
    """

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: Any = None,
        eps: float = 1e-8,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Any, target: Any) -> Any:
        """Compute the loss."""
        return F.poisson_nll_loss(
            log_input,
            target,
            log_input=self.log_input,
            full=self.full,
            eps=self.eps,
            reduction=self.reduction,
        )


class GaussianNLLLoss(_Loss):
    """The negative log-likelihood of values under normal distributions.

    Args:
        full: include the constant term.
        eps: the lower bound of variances.
        reduction: "mean", "sum" or "none".
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=chosen_reduction(reduction))
        self.full = full
        self.eps = eps

    def forward(self, input: Any, target: Any, var: Any) -> Any:
        """Compute the loss."""
        return F.gaussian_nll_loss(
            input, target, var, full=self.full, eps=self.eps, reduction=self.reduction
        )


class CTCLoss(_Loss):
    """The negative log-likelihood of label sequences, over all alignments with the outputs.

    Args:
        blank: the class that stands for no label.
        reduction: "mean", "sum" or "none".
        zero_infinity: replace infinite losses (sequences with too few steps) by 0.
    """

    def __init__(
        self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False
    ) -> None:
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(self, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any) -> Any:
        """Compute the loss."""
        return F.ctc_loss(
            log_probs, targets, input_lengths, target_lengths,
            self.blank, self.reduction, self.zero_infinity,
        )  # fmt: skip


class MultiLabelMarginLoss(_Loss):
    """The sum of `max(0, 1 - right + wrong)` over pairs of scores, by the number of classes.

    Args:
        size_average: deprecated.
        reduce: deprecated.
        reduction: "mean", "sum" or "none".
    """

    def forward(self, input: Any, target: Any) -> Any:
        """Compute the loss."""
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiMarginLoss(_Loss):
    """The sum of `max(0, margin - right + wrong)**p`, divided by the number of classes.

    Args:
        p: the power, 1 or 2.
        margin: the margin.
        weight: the weight of each class.
        size_average: deprecated.
        reduce: deprecated.
        reduction: "mean", "sum" or "none".

    Raises:
        ValueError: for another power.
    """

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Any = None,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        if p not in {1, 2}:
            raise ValueError(f"only p == 1 and p == 2 supported, got {p}")
        self.p = p
        self.margin = margin
        self.register_buffer("weight", weight)

    def forward(self, input: Any, target: Any) -> Any:
        """Compute the loss."""
        return F.multi_margin_loss(
            input,
            target,
            p=self.p,
            margin=self.margin,
            weight=self.weight,
            reduction=self.reduction,
        )


class MultiLabelSoftMarginLoss(_Loss):
    """The cross entropy of each class by itself, averaged over the classes.

    Args:
        weight: the weight of each class.
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
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)

    def forward(self, input: Any, target: Any) -> Any:
        """Compute the loss."""
        return F.multilabel_soft_margin_loss(
            input, target, weight=self.weight, reduction=self.reduction
        )
