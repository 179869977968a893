"""The Adamax optimiser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.optim.updates import (
    check_manner,
    check_option,
    count_step,
    descending,
    follow_mean,
    in_tiles,
    new_step,
    zeros_like,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


class Adamax(Optimizer):
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

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_option("learning rate", lr)
        check_option("epsilon value", eps)
        check_option("beta parameter at index 0", betas[0], below=1.0)
        check_option("beta parameter at index 1", betas[1], below=1.0)
        check_option("weight_decay value", weight_decay)
        check_manner("Adamax", differentiable, foreach)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _update(self, group: dict[str, Any], parameter: Any, gradient: Any) -> None:
        state = self.state[parameter]
        if "exp_avg" not in state:
            state["step"] = new_step()
            state["exp_avg"] = zeros_like(parameter)
            state["exp_inf"] = zeros_like(parameter)
        step = count_step(state)
        beta1, beta2 = group["betas"]
        in_tiles(
            _adapt,
            (
                self._values(parameter),
                gradient,
                state["exp_avg"]._array,
                state["exp_inf"]._array,
            ),
            float(group["lr"]) / (1 - beta1**step),
            beta1,
            beta2,
            group["eps"],
            group["weight_decay"],
            group["maximize"],
        )


def _adapt(
    p: Any,
    g: Any,
    mean: Any,
    greatest: Any,
    length: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    maximize: bool,
) -> None:
    g = descending(g, p, weight_decay, maximize)
    t = follow_mean(g, mean, beta1)
    np.abs(g, out=t)
    t += eps
    greatest *= beta2
    np.maximum(greatest, t, out=greatest)
    np.divide(mean, greatest, out=t)
    t *= length
    p -= t
