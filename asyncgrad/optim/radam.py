"""The RAdam optimiser: rectified Adam."""

from __future__ import annotations

import math

import numpy as np

from asyncgrad.optim.elementwise import ElementwiseOptimizer, Kernel, State
from asyncgrad.optim.updates import Array, Betas, Group, Params, Rate, check_options, follow


class RAdam(ElementwiseOptimizer):
    """Adam whose first steps do not adapt, because few gradients give no reliable mean square.

    The arguments are those of `Adam`.
    """

    _entries = ("exp_avg", "exp_avg_sq")

    def __init__(
        self, params: Params, lr: Rate = 1e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, decoupled_weight_decay: bool = False, *,
        foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
        differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_options(locals(), "lr", "eps", "betas", "weight_decay")
        self._declare(locals())

    def _kernel(self, group: Group, state: State, step: int) -> Kernel:
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
