"""The RAdam optimiser: rectified Adam."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.optim.updates import (
    check_manner,
    check_option,
    count_step,
    descending,
    follow,
    in_tiles,
    new_step,
    zeros_like,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


class RAdam(Optimizer):
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

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
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
        check_option("learning rate", lr)
        check_option("epsilon value", eps)
        check_option("beta parameter at index 0", betas[0], below=1.0)
        check_option("beta parameter at index 1", betas[1], below=1.0)
        check_option("weight_decay value", weight_decay)
        check_manner("RAdam", differentiable, foreach)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _update(self, group: dict[str, Any], parameter: Any, gradient: Any) -> None:
        state = self.state[parameter]
        if "exp_avg" not in state:
            state["step"] = new_step()
            state["exp_avg"] = zeros_like(parameter)
            state["exp_avg_sq"] = zeros_like(parameter)
        step = count_step(state)
        lr = float(group["lr"])
        beta1, beta2 = group["betas"]
        in_tiles(
            _adapt,
            (
                self._values(parameter),
                gradient,
                state["exp_avg"]._array,
                state["exp_avg_sq"]._array,
            ),
            lr,
            beta1,
            beta2,
            group["eps"],
            group["weight_decay"],
            group["decoupled_weight_decay"],
            group["maximize"],
            lr / (1 - beta1**step),
            _rectification(step, beta2),
        )


def _rectification(step: int, beta2: float) -> float:
    """The factor of the adaptive step; 0 while there are too few gradients for one."""
    known = 1 - beta2**step
    most = 2 / (1 - beta2) - 1
    length = most - 2 * step * beta2**step / known
    if length <= 5.0:
        return 0.0
    ratio = (length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)
    return math.sqrt(ratio * known)


def _adapt(
    p: Any,
    g: Any,
    mean: Any,
    square: Any,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
    maximize: bool,
    length: float,
    rectification: float,
) -> None:
    shrink = lr if decoupled else None
    g = descending(g, p, weight_decay, maximize, shrink=shrink)
    t = follow(g, mean, square, beta1, beta2)
    if rectification:
        np.sqrt(square, out=t)
        t += eps
        np.divide(mean, t, out=t)
        t *= length * rectification
    else:
        np.multiply(mean, length, out=t)
    p -= t
