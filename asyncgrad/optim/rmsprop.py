"""The RMSprop optimiser."""

from __future__ import annotations

import numpy as np

from asyncgrad.optim.elementwise import ElementwiseOptimizer, Kernel, State
from asyncgrad.optim.updates import Array, Group, Params, Rate, check_options, follow_square


class RMSprop(ElementwiseOptimizer):
    """Divides each element's gradient by its root mean square.

    Args:
        lr: the learning rate.
        alpha: the decay rate of the mean square.
        eps: added to the root, against division by zero.
        momentum: the decay rate of the momentum.
        centered: subtract the squared mean: divide by the standard deviation.

    The other arguments are those of `Adam`.
    """

    def __init__(
        self, params: Params, lr: Rate = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
        weight_decay: float = 0, momentum: float = 0, centered: bool = False,
        capturable: bool = False, foreach: bool | None = None, maximize: bool = False,
        differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_options(locals(), "lr", "eps", "momentum", "weight_decay", "alpha")
        self._declare(locals())

    def _wanted(self, group: Group) -> tuple[str, ...]:
        wanted = ["square_avg"]
        if group["momentum"] > 0:
            wanted.append("momentum_buffer")
        if group["centered"]:
            wanted.append("grad_avg")
        return tuple(wanted)

    def _kernel(self, group: Group, state: State, step: int) -> Kernel:
        lr, alpha, eps = float(group["lr"]), group["alpha"], group["eps"]
        momentum, centered = group["momentum"], group["centered"]

        def scale(p: Array, g: Array, square: Array, *more: Array) -> None:
            t = follow_square(g, square, alpha)
            if centered:
                mean = more[-1]
                np.subtract(g, mean, out=t)
                t *= 1 - alpha
                mean += t
                np.multiply(mean, mean, out=t)
                np.subtract(square, t, out=t)
                np.sqrt(t, out=t)
            else:
                np.sqrt(square, out=t)
            t += eps
            np.divide(g, t, out=t)
            if momentum > 0:
                buffer = more[0]
                buffer *= momentum
                buffer += t
                np.multiply(buffer, lr, out=t)
            else:
                t *= lr
            p -= t

        return scale
