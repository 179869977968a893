"""The Adagrad optimiser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.core.variable import wrap
from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.optim.updates import (
    check_manner,
    check_option,
    count_step,
    descending,
    in_tiles,
    new_step,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncgrad.ops.tensors.sparse_rows import Rows


class Adagrad(Optimizer):
    """Divides each element's gradient by the root of the sum of its past squares.

    Args:
        params: parameters or groups of them.
        lr: the learning rate of the first step.
        lr_decay: how fast the learning rate falls with the number of steps.
        weight_decay: this multiple of the parameter is added to the gradient.
        initial_accumulator_value: the initial value of the sums.
        eps: added to the root, against division by zero.
        foreach: accepted for PyTorch's programs, without effect.
        maximize: step along the gradient instead of against it.
        differentiable: not supported.
        fused: accepted for PyTorch's programs; updates are always fused.

    Raises:
        ValueError: if an option is out of its range.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_option("learning rate", lr)
        check_option("lr_decay value", lr_decay)
        check_option("weight_decay value", weight_decay)
        check_option("initial_accumulator_value value", initial_accumulator_value)
        check_option("epsilon value", eps)
        check_manner("Adagrad", differentiable, foreach, fused)
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)
        # Make the state at once, as programs that load PyTorch's state dicts expect.
        for group in self.param_groups:
            for parameter in group["params"]:
                self._start(group, parameter)

    def _start(self, group: dict[str, Any], parameter: Any) -> dict[str, Any]:
        """Make a parameter's initial state."""
        value = group["initial_accumulator_value"]
        metadata = parameter._metadata
        if metadata.is_complex:
            value = complex(value, value)
        array = metadata.F.xp.full_like(parameter._array, value)
        state = self.state[parameter]
        state["step"] = new_step()
        state["sum"] = wrap(array, metadata)
        return state

    def _update(self, group: dict[str, Any], parameter: Any, gradient: Any) -> None:
        state = self.state[parameter] or self._start(group, parameter)
        step = count_step(state)
        in_tiles(
            _divide,
            (self._values(parameter), gradient, state["sum"]._array),
            float(group["lr"]) / (1 + (step - 1) * group["lr_decay"]),
            group["eps"],
            group["weight_decay"],
            group["maximize"],
        )

    def _update_rows(self, group: dict[str, Any], parameter: Any, gradient: Rows) -> None:
        if group["weight_decay"]:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        state = self.state[parameter] or self._start(group, parameter)
        step = count_step(state)
        rows = gradient.coalesce()
        piece, total = self._values(parameter)[rows.indices], state["sum"]._array[rows.indices]
        in_tiles(
            _divide,
            (piece, rows.values.copy(), total),
            float(group["lr"]) / (1 + (step - 1) * group["lr_decay"]),
            group["eps"],
            0,
            group["maximize"],
        )
        self._values(parameter)[rows.indices] = piece
        state["sum"]._array[rows.indices] = total


def _divide(
    p: Any, g: Any, total: Any, lr: float, eps: float, weight_decay: float, maximize: bool
) -> None:
    g = descending(g, p, weight_decay, maximize)
    t = g * g
    total += t
    np.sqrt(total, out=t)
    t += eps
    np.divide(g, t, out=t)
    t *= lr
    p -= t
