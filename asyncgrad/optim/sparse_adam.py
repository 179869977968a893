"""The SparseAdam optimiser: Adam for tables of which a step uses few rows."""

from __future__ import annotations

import math

import numpy as np

from asyncgrad.ops.tensors.sparse_rows import Rows
from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.optim.updates import (
    Betas,
    Group,
    Params,
    Rate,
    check_option,
    check_options,
    zeros_like,
)
from asyncgrad.types import Array, Tensor


class SparseAdam(Optimizer):
    """Adam that updates only the rows of a row-sparse gradient, and their means.

    Args:
        params: parameters or groups of them, whose gradients are row-sparse.

    The other arguments are those of `Adam`.
    """

    def __init__(
        self, params: Params, lr: Rate = 1e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:  # fmt: skip
        _check_positive("learning rate", lr)
        _check_positive("epsilon value", eps)
        check_options(locals(), "betas")
        self._declare(locals())

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters as `Optimizer.add_param_group` does; they must not be complex."""
        super().add_param_group(param_group)
        members = self.param_groups[-1]["params"]
        places = [k for k, parameter in enumerate(members) if parameter._metadata.is_complex]
        if places:
            self.param_groups.pop()
            raise ValueError(
                f"Complex params at indices {places}: SparseAdam does not support complex "
                f"parameters"
            )

    def _update(self, group: Group, parameter: Tensor, gradient: Array) -> None:
        raise RuntimeError(
            "SparseAdam does not support dense gradients, please consider Adam instead"
        )

    def _update_rows(self, group: Group, parameter: Tensor, gradient: Rows) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["exp_avg"] = zeros_like(parameter)
            state["exp_avg_sq"] = zeros_like(parameter)
        state["step"] += 1
        rows = gradient.coalesce()
        places = rows.indices
        if not len(places):
            return
        values = -rows.values if group["maximize"] else rows.values
        beta1, beta2 = group["betas"]
        means, squares = state["exp_avg"]._array, state["exp_avg_sq"]._array
        mean = means[places] + (1 - beta1) * (values - means[places])
        square = squares[places] + (1 - beta2) * (values * values - squares[places])
        means[places], squares[places] = mean, square
        step = state["step"]
        length = float(group["lr"]) * math.sqrt(1 - beta2**step) / (1 - beta1**step)
        self._values(parameter)[places] -= length * mean / (np.sqrt(square) + group["eps"])


def _check_positive(name: str, value: float | Tensor) -> None:
    """Raise PyTorch's ValueError unless an option is greater than 0."""
    check_option(name, value)
    if not value > 0.0:
        raise ValueError(f"Invalid {name}: {value}")
