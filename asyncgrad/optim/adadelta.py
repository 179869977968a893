"""The Adadelta optimiser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.optim.updates import (
    check_manner,
    check_option,
    count_step,
    descending,
    follow_square,
    in_tiles,
    new_step,
    zeros_like,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


class Adadelta(Optimizer):
    """Scales gradients by the ratio of two root mean squares: of past steps and of gradients.

    Args:
        params: parameters or groups of them.
        lr: the factor of each step.
        rho: the decay rate of the mean squares.
        eps: added to the mean squares before their roots are taken.
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
        lr: Any = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_option("learning rate", lr)
        check_option("rho value", rho)
        if rho > 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check_option("epsilon value", eps)
        check_option("weight_decay value", weight_decay)
        check_manner("Adadelta", differentiable, foreach)
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": capturable,
            "foreach": foreach,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _update(self, group: dict[str, Any], parameter: Any, gradient: Any) -> None:
        state = self.state[parameter]
        if "square_avg" not in state:
            state["step"] = new_step()
            state["square_avg"] = zeros_like(parameter)
            state["acc_delta"] = zeros_like(parameter)
        count_step(state)
        arrays = (
            self._values(parameter),
            gradient,
            state["square_avg"]._array,
            state["acc_delta"]._array,
        )
        in_tiles(
            _advance,
            arrays,
            float(group["lr"]),
            group["rho"],
            group["eps"],
            group["weight_decay"],
            group["maximize"],
        )


def _advance(
    p: Any,
    g: Any,
    square: Any,
    steps: Any,
    lr: float,
    rho: float,
    eps: float,
    weight_decay: float,
    maximize: bool,
) -> None:
    g = descending(g, p, weight_decay, maximize)
    t = follow_square(g, square, rho)
    delta = steps + eps
    np.add(square, eps, out=t)
    delta /= t
    np.sqrt(delta, out=delta)
    delta *= g
    np.multiply(delta, delta, out=t)
    t *= 1 - rho
    steps *= rho
    steps += t
    delta *= lr
    p -= delta
