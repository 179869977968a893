"""The Rprop optimiser: resilient backpropagation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.core.variable import wrap
from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.optim.updates import (
    check_manner,
    check_option,
    count_step,
    in_tiles,
    new_step,
    zeros_like,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


class Rprop(Optimizer):
    """Uses only the gradients' signs: steps grow while a sign stays and shrink when it changes.

    Args:
        params: parameters or groups of them.
        lr: the length of the first steps.
        etas: the factors of the length when the sign changes and when it stays.
        step_sizes: the smallest and the greatest length.
        foreach: accepted for PyTorch's programs, without effect.
        maximize: step along the gradient instead of against it.
        capturable: accepted for PyTorch's programs, without effect.
        differentiable: not supported.

    Raises:
        ValueError: if an option is out of its range.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_option("learning rate", lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        check_manner("Rprop", differentiable, foreach)
        defaults = {
            "lr": lr,
            "etas": etas,
            "step_sizes": step_sizes,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _update(self, group: dict[str, Any], parameter: Any, gradient: Any) -> None:
        state = self.state[parameter]
        if "prev" not in state:
            metadata = parameter._metadata
            lr = float(group["lr"])
            sizes = metadata.F.xp.full_like(
                parameter._array, complex(lr, lr) if metadata.is_complex else lr
            )
            state["step"] = new_step()
            state["prev"] = zeros_like(parameter)
            state["step_size"] = wrap(sizes, metadata)
        count_step(state)
        in_tiles(
            _turn,
            (
                self._values(parameter),
                gradient,
                state["prev"]._array,
                state["step_size"]._array,
            ),
            group["etas"],
            group["step_sizes"],
            group["maximize"],
        )


def _turn(
    p: Any,
    g: Any,
    previous: Any,
    sizes: Any,
    etas: tuple[float, float],
    limits: tuple[float, float],
    maximize: bool,
) -> None:
    previous *= -g if maximize else g
    turned = previous < 0
    stayed = previous > 0
    sizes[turned] *= etas[0]
    sizes[stayed] *= etas[1]
    np.clip(sizes, *limits, out=sizes)
    previous[...] = -g if maximize else g
    previous[turned] = 0
    p -= np.sign(previous) * sizes
