"""The Adagrad optimiser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from asyncgrad.optim.elementwise import ElementwiseOptimizer, Kernel, State
from asyncgrad.optim.updates import (
    Array,
    Group,
    Params,
    Rate,
    check_options,
    filled_like,
    host_number,
)

if TYPE_CHECKING:
    from asyncgrad.ops.tensors.sparse_rows import Rows
    from asyncgrad.tensor import Tensor


class Adagrad(ElementwiseOptimizer):
    """Divides each element's gradient by the root of the sum of its past squares.

    Args:
        lr: the learning rate of the first step.
        lr_decay: how fast the learning rate falls with the number of steps.
        initial_accumulator_value: the initial value of the sums.
        eps: added to the root, against division by zero.

    The other arguments are those of `Adam`.
    """

    _entries = ("sum",)

    def __init__(
        self, params: Params, lr: Rate = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
        initial_accumulator_value: float = 0, eps: float = 1e-10, foreach: bool | None = None, *,
        maximize: bool = False, differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        check_options(
            locals(), "lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps"
        )
        self._declare(locals())
        # Make the state at once, as programs that load PyTorch's state dicts expect.
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter] = {
                    "step": host_number(0.0), "sum": self._initial("sum", group, parameter)
                }  # fmt: skip

    def _initial(self, name: str, group: Group, parameter: Tensor) -> Tensor:
        return filled_like(parameter, group["initial_accumulator_value"])

    def _kernel(self, group: Group, state: State, step: int) -> Kernel:
        length = float(group["lr"]) / (1 + (step - 1) * group["lr_decay"])
        eps = group["eps"]

        def divide(p: Array, g: Array, total: Array) -> None:
            t = g * g
            total += t
            np.sqrt(total, out=t)
            t += eps
            np.divide(g, t, out=t)
            t *= length
            p -= t

        return divide

    def _update_rows(self, group: Group, parameter: Tensor, gradient: Rows) -> None:
        if group["weight_decay"]:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        rows = gradient.coalesce()
        state, step, arrays = self._operands(group, parameter, None)
        values, _, total = arrays
        parts = [values[rows.indices], rows.values.copy(), total[rows.indices]]
        self._run_kernel(group, state, step, parts)
        values[rows.indices], _, total[rows.indices] = parts
