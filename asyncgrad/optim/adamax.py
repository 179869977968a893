"""The Adamax optimiser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.optim.elementwise import ElementwiseOptimizer
from asyncgrad.optim.updates import check_options, follow_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.optim.updates import Array, Params
    from asyncgrad.tensor import Tensor


class Adamax(ElementwiseOptimizer):
    """Adam that divides by a decaying maximum of gradient magnitudes instead of a mean square.

    Args:
        params: parameters or groups of them.
        lr: the learning rate; roughly the greatest change of an element in a step.
        betas: decay rates of the mean gradient and of the maximum.
        eps: added to the gradient's magnitude, against division by zero.
        weight_decay: this multiple of the parameter is added to the gradient.
        foreach: accepted for PyTorch's programs, without effect.
        maximize: step along the gradient instead of against it.
        capturable: accepted for PyTorch's programs, without effect.
        differentiable: not supported.

    Raises:
        ValueError: if an option is out of its range.
    """

    _entries = ("exp_avg", "exp_inf")

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_options(locals(), "lr", "eps", "betas", "weight_decay")
        self._declare(locals())

    def _kernel(
        self, group: dict[str, Any], state: dict[str, Any], step: int
    ) -> Callable[..., None]:
        beta1, beta2 = group["betas"]
        eps, length = group["eps"], float(group["lr"]) / (1 - beta1**step)

        def adapt(p: Array, g: Array, mean: Array, greatest: Array) -> None:
            t = follow_mean(g, mean, beta1)
            np.abs(g, out=t)
            t += eps
            greatest *= beta2
            np.maximum(greatest, t, out=greatest)
            np.divide(mean, greatest, out=t)
            t *= length
            p -= t

        return adapt
