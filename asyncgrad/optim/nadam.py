"""The NAdam optimiser: Adam with Nesterov's momentum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.optim.elementwise import ElementwiseOptimizer
from asyncgrad.optim.updates import check_options, follow, host_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.optim.updates import Array, Params
    from asyncgrad.tensor import Tensor


class NAdam(ElementwiseOptimizer):
    """Adam with Nesterov's momentum, which looks ahead along the momentum.

    Args:
        params: parameters or groups of them.
        lr: the learning rate; roughly the greatest change of an element in a step.
        betas: decay rates of the means of the gradient and of its square.
        eps: added to the root of the mean square, against division by zero.
        weight_decay: this multiple of the parameter is added to the gradient.
        momentum_decay: how fast the momentum approaches its final value.
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
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_options(locals(), "lr", "eps", "betas", "weight_decay", "momentum_decay")
        self._declare(locals())

    def _kernel(
        self, group: dict[str, Any], state: dict[str, Any], step: int
    ) -> Callable[..., None]:
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
