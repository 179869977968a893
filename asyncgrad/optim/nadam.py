"""The NAdam optimiser: Adam with Nesterov's momentum."""

from __future__ import annotations

import numpy as np

from asyncgrad.optim.elementwise import ElementwiseOptimizer, Kernel, State
from asyncgrad.optim.updates import (
    Array,
    Betas,
    Group,
    Params,
    Rate,
    check_options,
    follow,
    host_number,
)


class NAdam(ElementwiseOptimizer):
    """Adam with Nesterov's momentum, which looks ahead along the momentum.

    Args:
        momentum_decay: how fast the momentum approaches its final value.

    The other arguments are those of `Adam`.
    """

    _entries = ("exp_avg", "exp_avg_sq")
    _alike = False

    def __init__(
        self, params: Params, lr: Rate = 2e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False, *, foreach: bool | None = None,
        maximize: bool = False, capturable: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_options(locals(), "lr", "eps", "betas", "weight_decay", "momentum_decay")
        self._declare(locals())

    def _kernel(self, group: Group, state: State, step: int) -> Kernel:
        lr, eps = float(group["lr"]), group["eps"]
        beta1, beta2 = group["betas"]
        now, ahead = (
            beta1 * (1.0 - 0.5 * 0.96 ** (number * group["momentum_decay"]))
            for number in (step, step + 1)
        )
        if "mu_product" not in state:
            state["mu_product"] = host_number(1.0)
        product = state["mu_product"]._array
        product *= now
        length = lr * (1.0 - now) / (1.0 - float(product))
        length_ahead = lr * ahead / (1.0 - float(product) * ahead)
        correction = 1 - beta2**step

        def adapt(p: Array, g: Array, mean: Array, square: Array) -> None:
            t = follow(g, mean, square, beta1, beta2)
            np.divide(square, correction, out=t)
            np.sqrt(t, out=t)
            t += eps
            change = length * g
            change += length_ahead * mean
            change /= t
            p -= change

        return adapt
