"""The RMSprop optimiser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.optim.elementwise import ElementwiseOptimizer
from asyncgrad.optim.updates import check_options, follow_square

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.optim.updates import Array, Params
    from asyncgrad.tensor import Tensor


class RMSprop(ElementwiseOptimizer):
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
        params: Params,
        lr: float | Tensor = 1e-2,
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
        check_options(locals(), "lr", "eps", "momentum", "weight_decay", "alpha")
        self._declare(locals())

    def _wanted(self, group: dict[str, Any]) -> tuple[str, ...]:
        wanted = ["square_avg"]
        if group["momentum"] > 0:
            wanted.append("momentum_buffer")
        if group["centered"]:
            wanted.append("grad_avg")
        return tuple(wanted)

    def _kernel(
        self, group: dict[str, Any], state: dict[str, Any], step: int
    ) -> Callable[..., None]:
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
