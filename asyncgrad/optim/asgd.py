"""The ASGD optimiser: averaged stochastic gradient descent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.optim.updates import (
    check_manner,
    check_option,
    count_step,
    descending,
    host_number,
    in_tiles,
    new_step,
    zeros_like,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


class ASGD(Optimizer):
    """Gradient descent that also averages the parameters; the average is `ax` in the state.

    Args:
        params: parameters or groups of them.
        lr: the learning rate of the first step.
        lambd: the decay of the parameters, and of the learning rate.
        alpha: the exponent of the learning rate's decay.
        t0: the step at which averaging starts.
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
        lr: Any = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_option("learning rate", lr)
        check_option("weight_decay value", weight_decay)
        check_manner("ASGD", differentiable, foreach)
        defaults = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _update(self, group: dict[str, Any], parameter: Any, gradient: Any) -> None:
        state = self.state[parameter]
        lr, lambd = float(group["lr"]), group["lambd"]
        if "ax" not in state:
            state["step"] = new_step()
            state["eta"] = host_number(lr)
            state["mu"] = host_number(1.0)
            state["ax"] = zeros_like(parameter)
        step = count_step(state)
        length, weight = state["eta"]._array, state["mu"]._array
        in_tiles(
            _descend,
            (self._values(parameter), gradient, state["ax"]._array),
            float(length),
            float(weight),
            lambd,
            group["weight_decay"],
            group["maximize"],
        )
        # Kept in single precision, as in PyTorch.
        length[...] = np.float32(lr / (1 + lambd * lr * step) ** group["alpha"])
        weight[...] = np.float32(1 / max(1, step - group["t0"]))


def _descend(
    p: Any,
    g: Any,
    average: Any,
    length: float,
    weight: float,
    lambd: float,
    weight_decay: float,
    maximize: bool,
) -> None:
    g = descending(g, p, weight_decay, maximize)
    p *= 1 - lambd * length
    p -= length * g
    if weight == 1:
        average[...] = p
    else:
        average += weight * (p - average)
