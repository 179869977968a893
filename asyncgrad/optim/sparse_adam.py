"""The SparseAdam optimiser: Adam for tables of which a step uses few rows."""

from __future__ import annotations

import math

from asyncgrad.optim.elementwise import ElementwiseOptimizer, Step
from asyncgrad.optim.updates import Betas, Group, Params, Rate, State, check_option, check_options
from asyncgrad.types import Array, Tensor


class SparseAdam(ElementwiseOptimizer):
    """Adam that updates only the rows of a row-sparse gradient, and their means.

    Args:
        params: parameters or groups of them, whose gradients are row-sparse.

    The other arguments are those of `Adam`.
    """

    _entries = ("exp_avg", "exp_avg_sq")

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

    def _count_step(self, state: State) -> int:
        # As in PyTorch, a plain number.
        state["step"] = state.get("step", 0) + 1
        return int(state["step"])

    def _planned_step(self, group: Group, state: State, step: int) -> Step:
        beta1, beta2 = group["betas"]
        length = float(group["lr"]) * math.sqrt(1 - beta2**step) / (1 - beta1**step)
        return Step("adam", (length, 1 - beta1, beta2, 1 - beta2, group["eps"]))

    _update_rows = ElementwiseOptimizer._apply_to_rows


def _check_positive(name: str, value: float | Tensor) -> None:
    """Raise PyTorch's ValueError unless an option is greater than 0."""
    check_option(name, value)
    if not value > 0.0:
        raise ValueError(f"Invalid {name}: {value}")
