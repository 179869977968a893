"""The Rprop optimiser: resilient backpropagation."""

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
    zeros_like,
)

if TYPE_CHECKING:
    from asyncgrad.tensor import Tensor


class Rprop(ElementwiseOptimizer):
    """Uses only the gradients' signs: steps grow while a sign stays and shrink when it changes.

    Args:
        lr: the length of the first steps.
        etas: the factors of the length when the sign changes and when it stays.
        step_sizes: the smallest and the greatest length.

    The other arguments are those of `Adam`.
    """

    _entries = ("prev", "step_size")

    def __init__(
        self, params: Params, lr: Rate = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50), *, capturable: bool = False,
        foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_options(locals(), "lr")
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        self._declare(locals())

    def _initial(self, name: str, group: Group, parameter: Tensor) -> Tensor:
        if name == "prev":
            return zeros_like(parameter)
        return filled_like(parameter, float(group["lr"]))

    def _kernel(self, group: Group, state: State, step: int) -> Kernel:
        (shrink, grow), limits = group["etas"], group["step_sizes"]

        def turn(p: Array, g: Array, previous: Array, sizes: Array) -> None:
            previous *= g
            turned = previous < 0
            stayed = previous > 0
            sizes[turned] *= shrink
            sizes[stayed] *= grow
            np.clip(sizes, *limits, out=sizes)
            previous[...] = g
            previous[turned] = 0
            p -= np.sign(previous) * sizes

        return turn
