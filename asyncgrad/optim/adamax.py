"""The Adamax optimiser."""

from __future__ import annotations

import numpy as np

from asyncgrad.optim.elementwise import ElementwiseOptimizer, Kernel, State
from asyncgrad.optim.updates import Array, Betas, Group, Params, Rate, check_options, follow_mean


class Adamax(ElementwiseOptimizer):
    """Adam that divides by a decaying maximum of gradient magnitudes instead of a mean square.

    Args:
        betas: decay rates of the mean gradient and of the maximum.
        eps: added to the gradient's magnitude, against division by zero.

    The other arguments are those of `Adam`.
    """

    _entries = ("exp_avg", "exp_inf")

    def __init__(
        self, params: Params, lr: Rate = 2e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, foreach: bool | None = None, *, maximize: bool = False,
        differentiable: bool = False, capturable: bool = False,
    ) -> None:  # fmt: skip
        check_options(locals(), "lr", "eps", "betas", "weight_decay")
        self._declare(locals())

    def _kernel(self, group: Group, state: State, step: int) -> Kernel:
        beta1, beta2 = group["betas"]
        length = float(group["lr"]) / (1 - beta1**step)
        eps: float = group["eps"]

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
