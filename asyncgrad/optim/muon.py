"""The Muon optimiser: momentum with nearly orthogonal steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from asyncgrad.choices import MuonLength, words
from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.optim.updates import (
    Group,
    Params,
    Rate,
    check_bound,
    zeros_like,
)
from asyncgrad.types import Array, Tensor

#: By `adjust_lr_fn`: the factor of the learning rate for a matrix of a given shape.
_LENGTHS: dict[MuonLength, Callable[[int, int], float]] = {
    "original": lambda rows, columns: math.sqrt(max(1, rows / columns)),
    "match_rms_adamw": lambda rows, columns: 0.2 * math.sqrt(max(rows, columns)),
}
#: The assumed speed of a matrix product, as in the costs of operations.
_FLOPS_PER_NS = 60


class Muon(Optimizer):
    """Momentum whose steps are nearly orthogonal matrices, for the weights of hidden layers.

    Steps are computed in the parameter's dtype, in float32 for half precision. PyTorch computes
    them in bfloat16; the results differ by a few hundredths of a step's length.

    Args:
        params: matrices, or groups of them.
        lr: the length of a step in each direction.
        weight_decay: the parameter shrinks by this fraction times `lr`.
        momentum: the decay rate of the mean gradient.
        nesterov: look ahead along the momentum.
        ns_coefficients: the coefficients of x, x**3 and x**5 in the polynomial that brings singular
            values close to 1.
        eps: a lower bound of the gradient's norm, against division by zero.
        ns_steps: how often to apply the polynomial.
        adjust_lr_fn: "original" lengthens the steps of tall matrices; "match_rms_adamw" makes all
            steps about as long as those of AdamW.

    Raises:
        ValueError: if an option is out of its range, or a parameter is no matrix.
        RuntimeError: in a step, if a parameter is complex.
    """

    _takes_complex = False

    def __init__(
        self, params: Params, lr: Rate = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315), eps: float = 1e-7,
        ns_steps: int = 5, adjust_lr_fn: MuonLength | None = None,
    ) -> None:  # fmt: skip
        check_bound("Learning rate", lr)
        check_bound("momentum", momentum)
        check_bound("weight decay", weight_decay)
        if adjust_lr_fn is not None and adjust_lr_fn not in words(MuonLength):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        self._declare(locals())

    def _check_parameters(self, parameters: list[Tensor]) -> None:
        for parameter in parameters:
            if parameter.ndim != 2:
                raise ValueError(
                    f"Muon only supports 2D parameters whereas we found a parameter with size: "
                    f"{parameter.shape}. Give others to another optimizer, as AdamW."
                )

    def _cost(self, group: Group, parameter: Tensor) -> float:
        small, large = sorted(parameter.shape)
        multiplications: int = group["ns_steps"] * small * small * (2 * large + small)
        return super()._cost(group, parameter) + 2 * multiplications / _FLOPS_PER_NS

    def _update(self, group: Group, parameter: Tensor, gradient: Array) -> None:
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = zeros_like(parameter)
        momentum, mean = group["momentum"], state["momentum_buffer"]._array
        mean += (1 - momentum) * (gradient - mean)
        step = gradient + momentum * (mean - gradient) if group["nesterov"] else mean
        lr = float(group["lr"])
        p = self._values(parameter)
        step = _orthogonal(step, group["ns_coefficients"], group["ns_steps"], group["eps"])
        p *= 1 - lr * group["weight_decay"]
        p -= lr * _LENGTHS[group["adjust_lr_fn"] or "original"](*p.shape) * step


def _orthogonal(
    matrix: Array, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Any:
    """Approximate the nearest orthogonal matrix with a polynomial (Newton-Schulz iteration)."""
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if len(coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = coefficients
    tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.T if tall else matrix).astype(np.result_type(matrix.dtype, np.float32))
    x /= np.maximum(np.sqrt((x * x).sum()), eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x.T if tall else x
