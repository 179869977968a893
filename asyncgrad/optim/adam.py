"""The optimisers Adam, and AdamW, which decouples weight decay from the gradient."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.optim.updates import (
    check_betas,
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


class Adam(Optimizer):
    """Adapts the step to the mean and the mean square of each element's gradients.

    Args:
        params: parameters or groups of them.
        lr: the learning rate; roughly the greatest change of an element in a step.
        betas: decay rates of the means of the gradient and of its square.
        eps: added to the root of the mean square, against division by zero.
        weight_decay: this multiple of the parameter is added to the gradient.
        amsgrad: divide by the root of the greatest mean square so far.
        foreach: accepted for PyTorch's programs, without effect.
        maximize: step along the gradient instead of against it.
        capturable: accepted for PyTorch's programs, without effect.
        differentiable: not supported.
        fused: accepted for PyTorch's programs; updates are always fused.
        decoupled_weight_decay: shrink the parameter instead of changing the gradient, as AdamW.

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
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        check_option("learning rate", lr)
        check_option("epsilon value", eps)
        check_betas(betas)
        check_option("weight_decay value", weight_decay)
        if foreach and not capturable:
            for name, value in (("lr", lr), ("betas[0]", betas[0]), ("betas[1]", betas[1])):
                if isinstance(value, Variable):
                    raise ValueError(
                        f"{name} as a Tensor is not supported for capturable=False and foreach=True"
                    )
        check_manner(type(self).__name__, differentiable, foreach, fused)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    def _update(self, group: dict[str, Any], parameter: Any, gradient: Any) -> None:
        state = self.state[parameter]
        if "exp_avg" not in state:
            state["step"] = new_step()
            state["exp_avg"] = zeros_like(parameter)
            state["exp_avg_sq"] = zeros_like(parameter)
            if group["amsgrad"]:
                state["max_exp_avg_sq"] = zeros_like(parameter)
        step = count_step(state)
        lr = float(group["lr"])
        beta1, beta2 = map(float, group["betas"])
        greatest = state["max_exp_avg_sq"]._array if group["amsgrad"] else None
        arrays = (
            self._values(parameter),
            gradient,
            state["exp_avg"]._array,
            state["exp_avg_sq"]._array,
            greatest,
        )
        options = (
            lr,
            beta1,
            beta2,
            group["eps"],
            group["weight_decay"],
            group["decoupled_weight_decay"],
            group["maximize"],
            lr / (1 - beta1**step),
            math.sqrt(1 - beta2**step),
        )
        compiled = parameter._metadata.device.compiled.get("adapt")
        if compiled is None or compiled(*arrays, *options) is NotImplemented:
            in_tiles(_adapt, arrays, *options)


def _adapt(
    p: Any,
    g: Any,
    mean: Any,
    square: Any,
    greatest: Any,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
    maximize: bool,
    length: float,
    correction: float,
) -> None:
    shrink = lr if decoupled else None
    g = descending(g, p, weight_decay, maximize, shrink=shrink)
    t = follow(g, mean, square, beta1, beta2)
    if greatest is not None:
        np.maximum(greatest, square, out=greatest)
    np.sqrt(square if greatest is None else greatest, out=t)
    t /= correction
    t += eps
    np.divide(mean, t, out=t)
    t *= length
    p -= t


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameters directly, without going through the means.

    The arguments are Adam's.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            maximize=maximize,
            foreach=foreach,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )
