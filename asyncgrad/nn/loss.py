"""Losses as modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from asyncgrad.choices import DivergenceReduction, Reduction
from asyncgrad.nn import functional as F
from asyncgrad.nn.function_module import FunctionModule
from asyncgrad.nn.module import Module
from asyncgrad.ops.arguments import chosen_reduction
from asyncgrad.types import Ints, Tensor


class _Loss(FunctionModule, shown=()):
    """The base of losses, whose options have no place in their `repr`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # type: ignore[override,empty-body]
        """Call the function with the options."""

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None,
        reduction: Reduction = "mean",
    ) -> None:  # fmt: skip
        self._keep(locals())

    def _keep(self, given: Mapping[str, Any]) -> None:
        """Keep the options, among them the reduction that the deprecated ones ask for."""
        old = given.get("size_average"), given.get("reduce")
        if old != (None, None):
            reduction = chosen_reduction(given["reduction"], *old)
            given = {**given, "reduction": reduction}
        super()._keep(given)


class _WeightedLoss(_Loss, buffer_options=("weight",), shown=()):
    """The base of losses that take weights; others may have further options."""

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None,
        reduce: bool | None = None, reduction: Reduction = "mean",
    ) -> None:  # fmt: skip
        self._keep(locals())


class L1Loss(_Loss, function=F.l1_loss):
    """The absolute difference.

    Args:
        reduction: "mean", "sum" or "none"; `size_average` and `reduce` are deprecated.
    """


class MSELoss(_Loss, function=F.mse_loss):
    """The squared difference. The arguments are those of `L1Loss`."""


class SmoothL1Loss(_Loss, function=F.smooth_l1_loss):
    """The absolute difference, but a parabola below `beta`.

    The other arguments are those of `L1Loss`.
    """

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None,
        reduction: Reduction = "mean", beta: float = 1.0,
    ) -> None:  # fmt: skip
        self._keep(locals())


class HuberLoss(_Loss, function=F.huber_loss):
    """Half the squared difference up to `delta`, and linear growth above.

    The other arguments are those of `L1Loss`.
    """

    def __init__(self, reduction: Reduction = "mean", delta: float = 1.0) -> None:
        if not isinstance(delta, (int, float)):
            raise TypeError(f"delta must be a float or int, got: {type(delta)}")
        self._keep(locals())


class KLDivLoss(_Loss, function=F.kl_div):
    """The divergence of a distribution from a target; see `nn.functional.kl_div`."""

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None,
        reduction: DivergenceReduction = "mean", log_target: bool = False,
    ) -> None:  # fmt: skip
        self._keep(locals())


class NLLLoss(_WeightedLoss, function=F.nll_loss):
    """The negative logarithm of the right class's probability; see `nn.functional.nll_loss`."""

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None,
        ignore_index: int = -100, reduce: bool | None = None, reduction: Reduction = "mean",
    ) -> None:  # fmt: skip
        self._keep(locals())


class CrossEntropyLoss(_WeightedLoss, function=F.cross_entropy):
    """The cross entropy of logits and classes; see `nn.functional.cross_entropy`."""

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None,
        ignore_index: int = -100, reduce: bool | None = None, reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
    ) -> None:  # fmt: skip
        self._keep(locals())


class BCELoss(_WeightedLoss, function=F.binary_cross_entropy):
    """The binary cross entropy of probabilities; see `nn.functional.binary_cross_entropy`."""


class BCEWithLogitsLoss(
    _Loss, function=F.binary_cross_entropy_with_logits, buffer_options=("weight", "pos_weight")
):
    """The binary cross entropy of logits; see `nn.functional.binary_cross_entropy_with_logits`."""

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None,
        reduce: bool | None = None, reduction: Reduction = "mean", pos_weight: Tensor | None = None,
    ) -> None:  # fmt: skip
        self._keep(locals())


class CosineSimilarity(FunctionModule, function=F.cosine_similarity, shown=()):
    """The cosine of the angle between vectors.

    Args:
        dim: the axis of the vectors' elements.
        eps: the least norm that is divided by.
    """

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:  # type: ignore[override,empty-body]
        """Call the function with the options."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        self._keep(locals())


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

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The distances of vectors along the last axis."""
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class _MarginLoss(_Loss, shown=()):
    """The base of losses that compare two inputs with a margin."""

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:  # type: ignore[override,empty-body]
        """Call the function with the options."""

    def __init__(
        self, margin: float = 0.0, size_average: bool | None = None, reduce: bool | None = None,
        reduction: Reduction = "mean",
    ) -> None:  # fmt: skip
        self._keep(locals())


class MarginRankingLoss(_MarginLoss, function=F.margin_ranking_loss):
    """The amount by which two scores miss the required order and margin.

    The arguments are those of `nn.functional.margin_ranking_loss`.
    """


class HingeEmbeddingLoss(_Loss, function=F.hinge_embedding_loss):
    """The distance where the target is 1, and `max(0, margin - distance)` where it is -1.

    The arguments are those of `nn.functional.hinge_embedding_loss`.
    """

    def __init__(
        self, margin: float = 1.0, size_average: bool | None = None, reduce: bool | None = None,
        reduction: Reduction = "mean",
    ) -> None:  # fmt: skip
        self._keep(locals())


class CosineEmbeddingLoss(_MarginLoss, function=F.cosine_embedding_loss):
    """`1 - cosine` where the target is 1, and `max(0, cosine - margin)` where it is -1.

    The arguments are those of `nn.functional.cosine_embedding_loss`.
    """


class SoftMarginLoss(_Loss, function=F.soft_margin_loss):
    """The logistic loss `log(1 + exp(-y * x))`. The arguments are those of `L1Loss`."""


class _TripletLoss(_Loss, shown=()):
    """The base of losses of three tensors."""

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:  # type: ignore[override,empty-body]
        """Call the function with the options."""


class TripletMarginLoss(_TripletLoss, function=F.triplet_margin_loss):
    """`max(0, distance to the positive - distance to the negative + margin)`.

    The arguments are those of `nn.functional.triplet_margin_loss`.
    """

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False,
        size_average: bool | None = None, reduce: bool | None = None, reduction: Reduction = "mean",
    ) -> None:  # fmt: skip
        if margin <= 0:
            raise ValueError(f"margin must be greater than 0, got {margin}")
        self._keep(locals())


class TripletMarginWithDistanceLoss(_TripletLoss, function=F.triplet_margin_with_distance_loss):
    """`TripletMarginLoss` with any distance.

    The arguments are those of `nn.functional.triplet_margin_with_distance_loss`.
    """

    def __init__(
        self, *, distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0, swap: bool = False, reduction: Reduction = "mean",
    ) -> None:  # fmt: skip
        if margin <= 0:
            raise ValueError(f"margin must be greater than 0, got {margin}")
        if distance_function is None:
            distance_function = PairwiseDistance()
        self._keep(locals())


class PoissonNLLLoss(_Loss, function=F.poisson_nll_loss):
    """The negative log-likelihood of counts under Poisson distributions.

    The arguments are those of `nn.functional.poisson_nll_loss`.
    """

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:  # type: ignore[override,empty-body]
        """Call the function with the options."""

    def __init__(
        self, log_input: bool = True, full: bool = False, size_average: bool | None = None,
        eps: float = 1e-8, reduce: bool | None = None, reduction: Reduction = "mean",
    ) -> None:  # fmt: skip
        self._keep(locals())


class GaussianNLLLoss(_Loss, function=F.gaussian_nll_loss):
    """The negative log-likelihood of values under normal distributions.

    The arguments are those of `nn.functional.gaussian_nll_loss`.
    """

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:  # type: ignore[override,empty-body]
        """Call the function with the options."""

    def __init__(
        self, *, full: bool = False, eps: float = 1e-6, reduction: Reduction = "mean"
    ) -> None:
        self._keep(locals())


class CTCLoss(_Loss, function=F.ctc_loss):
    """The negative log-likelihood of label sequences, over all alignments with the outputs.

    The arguments are those of `nn.functional.ctc_loss`.
    """

    def forward(  # type: ignore[override,empty-body]
        self, log_probs: Tensor, targets: Tensor, input_lengths: Tensor | Ints,
        target_lengths: Tensor | Ints
    ) -> Tensor:  # fmt: skip
        """Call the function with the options."""

    def __init__(
        self, blank: int = 0, reduction: Reduction = "mean", zero_infinity: bool = False
    ) -> None:
        self._keep(locals())


class MultiLabelMarginLoss(_Loss, function=F.multilabel_margin_loss):
    """The sum of `max(0, 1 - right + wrong)` over pairs of scores, by the number of classes.

    The arguments are those of `L1Loss`.
    """


class MultiMarginLoss(_WeightedLoss, function=F.multi_margin_loss):
    """The sum of `max(0, margin - right + wrong)**p`, divided by the number of classes.

    The arguments are those of `nn.functional.multi_margin_loss`.
    """

    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None,
        size_average: bool | None = None, reduce: bool | None = None, reduction: Reduction = "mean",
    ) -> None:  # fmt: skip
        if p not in {1, 2}:
            raise ValueError(f"only p == 1 and p == 2 supported, got {p}")
        self._keep(locals())
        if weight is not None and weight.ndim != 1:
            raise ValueError(f"weight must be one-dimensional, got shape {weight.shape}")


class MultiLabelSoftMarginLoss(_WeightedLoss, function=F.multilabel_soft_margin_loss):
    """The cross entropy of each class by itself, averaged over the classes with their weights.

    The other arguments are those of `L1Loss`.
    """
