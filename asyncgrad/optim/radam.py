"""The RAdam optimiser: rectified Adam."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.optim.elementwise import ElementwiseOptimizer
from asyncgrad.optim.updates import check_options, follow

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.optim.updates import Array, Params
    from asyncgrad.tensor import Tensor


class RAdam(ElementwiseOptimizer):
    """Adam whose first steps do not adapt, because few gradients give no reliable mean square.

    Args:
        params: parameters or groups of them.
        lr: the learning rate; roughly the greatest change of an element in a step.
        betas: decay rates of the means of the gradient and of its square.
        eps: added to the root of the mean square, against division by zero.
        weight_decay: this multiple of the parameter is added to the gradient.
        decoupled_weight_decay: shrink the parameter instead of changing the gradient, as AdamW.
        foreach: accepted for PyTorch's programs, without effect.
        maximize: step along the gradient instead of against it.
        capturable: accepted for PyTorch's programs, without effect.
        differentiable: not supported.

    Raises:
        ValueError: if an option is out of its range.
    """

    _entries = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_options(locals(), "lr", "eps", "betas", "weight_decay")
        self._declare(locals())

    def _kernel(
        self, group: dict[str, Any], state: dict[str, Any], step: int
    ) -> Callable[..., None]:
        beta1, beta2 = group["betas"]
        eps, length = group["eps"], float(group["lr"]) / (1 - beta1**step)
        rectification = _rectification(step, beta2)

        def adapt(p: Array, g: Array, mean: Array, square: Array) -> None:
            t = follow(g, mean, square, beta1, beta2)
            if rectification:
                np.sqrt(square, out=t)
                t += eps
                np.divide(mean, t, out=t)
                t *= length * rectification
            else:
                np.multiply(mean, length, out=t)
            p -= t

        return adapt


def _rectification(step: int, beta2: float) -> float:
    """The factor of the adaptive step; 0 while there are too few gradients for one."""
    known = 1 - beta2**step
    most = 2 / (1 - beta2) - 1
    length = most - 2 * step * beta2**step / known
    if length <= 5.0:
        return 0.0
    ratio = (length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)
    return math.sqrt(ratio * known)
