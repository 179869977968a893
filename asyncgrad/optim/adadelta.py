"""The Adadelta optimiser."""

from __future__ import annotations

import numpy as np

from asyncgrad.optim.elementwise import ElementwiseOptimizer, Kernel, State
from asyncgrad.optim.updates import Array, Group, Params, Rate, check_options, follow_square


class Adadelta(ElementwiseOptimizer):
    """Scales gradients by the ratio of two root mean squares: of past steps and of gradients.

    Args:
        lr: the factor of each step.
        rho: the decay rate of the mean squares.
        eps: added to the mean squares before their roots are taken.

    The other arguments are those of `Adam`.
    """

    _entries = ("square_avg", "acc_delta")

    def __init__(
        self, params: Params, lr: Rate = 1.0, rho: float = 0.9, eps: float = 1e-6,
        weight_decay: float = 0, foreach: bool | None = None, *, capturable: bool = False,
        maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_options(locals(), "lr", "rho")
        if rho > 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check_options(locals(), "eps", "weight_decay")
        self._declare(locals())

    def _kernel(self, group: Group, state: State, step: int) -> Kernel:
        lr, rho, eps = float(group["lr"]), group["rho"], group["eps"]

        def advance(p: Array, g: Array, square: Array, steps: Array) -> None:
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

        return advance
