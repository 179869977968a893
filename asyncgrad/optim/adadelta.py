"""The Adadelta optimiser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.optim.elementwise import ElementwiseOptimizer
from asyncgrad.optim.updates import check_options, follow_square

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.optim.updates import Array, Params
    from asyncgrad.tensor import Tensor


class Adadelta(ElementwiseOptimizer):
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

    _entries = ("square_avg", "acc_delta")

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_options(locals(), "lr", "rho")
        if rho > 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check_options(locals(), "eps", "weight_decay")
        self._declare(locals())

    def _kernel(
        self, group: dict[str, Any], state: dict[str, Any], step: int
    ) -> Callable[..., None]:
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
