"""The RMSprop optimiser."""

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
    zeros_like,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


class RMSprop(Optimizer):
    """Divides each element's gradient by its root mean square.

    Args:
        params: parameters or groups of them.
        lr: the learning rate.
        alpha: the decay rate of the mean square.
        eps: added to the root, against division by zero.
        weight_decay: this multiple of the parameter is added to the gradient.
        momentum: the decay rate of the momentum.
        centered: subtract the squared mean: divide by the standard deviation.
        capturable: accepted for PyTorch's programs, without effect.
        foreach: accepted for PyTorch's programs, without effect.
        maximize: step along the gradient instead of against it.
        differentiable: not supported.

    Raises:
        ValueError: if an option is out of its range.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_option("learning rate", lr)
        check_option("epsilon value", eps)
        check_option("momentum value", momentum)
        check_option("weight_decay value", weight_decay)
        check_option("alpha value", alpha)
        check_manner("RMSprop", differentiable, foreach)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "capturable": capturable,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _update(self, group: dict[str, Any], parameter: Any, gradient: Any) -> None:
        state = self.state[parameter]
        wanted = ["square_avg"]
        if group["momentum"] > 0:
            wanted.append("momentum_buffer")
        if group["centered"]:
            wanted.append("grad_avg")
        count_step(state)
        for name in wanted:
            if name not in state:
                state[name] = zeros_like(parameter)
        square, buffer, mean = (
            state[name]._array if name in wanted else None
            for name in ("square_avg", "momentum_buffer", "grad_avg")
        )
        in_tiles(
            _scale,
            (self._values(parameter), gradient, square, buffer, mean),
            float(group["lr"]),
            group["alpha"],
            group["eps"],
            group["weight_decay"],
            group["momentum"],
            group["maximize"],
        )


def _scale(
    p: Any,
    g: Any,
    square: Any,
    buffer: Any,
    mean: Any,
    lr: float,
    alpha: float,
    eps: float,
    weight_decay: float,
    momentum: float,
    maximize: bool,
) -> None:
    g = descending(g, p, weight_decay, maximize)
    t = follow_square(g, square, alpha)
    if mean is None:
        np.sqrt(square, out=t)
    else:
        np.subtract(g, mean, out=t)
        t *= 1 - alpha
        mean += t
        np.multiply(mean, mean, out=t)
        np.subtract(square, t, out=t)
        np.sqrt(t, out=t)
    t += eps
    np.divide(g, t, out=t)
    if buffer is not None:
        buffer *= momentum
        buffer += t
        np.multiply(buffer, lr, out=t)
    else:
        t *= lr
    p -= t
