"""Losses as modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asyncgrad.choices import DivergenceReduction, Reduction
from asyncgrad.nn import functional as F
from asyncgrad.nn.function_module import FunctionModule
from asyncgrad.nn.module import Module
from asyncgrad.ops.arguments import chosen_reduction
from asyncgrad.types import Tensor


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
    """The absolute difference, smooth near 0.

    Args:
        beta: below it the loss is a parabola.

    The other arguments are those of `L1Loss`.
    """

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None,
        reduction: Reduction = "mean", beta: float = 1.0,
    ) -> None:  # fmt: skip
        self._keep(locals())


class HuberLoss(_Loss, function=F.huber_loss):
    """Half the squared difference up to `delta`, and linear growth above.

    Args:
        delta: the difference at which the loss becomes linear.

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
