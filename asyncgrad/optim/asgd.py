"""The ASGD optimiser: averaged stochastic gradient descent."""

from __future__ import annotations

import numpy as np

from asyncgrad.optim.elementwise import ElementwiseOptimizer, Kernel, State
from asyncgrad.optim.updates import Array, Group, Params, Rate, check_options, host_number


class ASGD(ElementwiseOptimizer):
    """Gradient descent that also averages the parameters; the average is `ax` in the state.

    Args:
        lr: the learning rate of the first step.
        lambd: the decay of the parameters, and of the learning rate.
        alpha: the exponent of the learning rate's decay.
        t0: the step at which averaging starts.

    The other arguments are those of `Adam`.
    """

    _entries = ("ax",)
    _alike = False

    def __init__(
        self, params: Params, lr: Rate = 1e-2, lambd: float = 1e-4, alpha: float = 0.75,
        t0: float = 1e6, weight_decay: float = 0, foreach: bool | None = None,
        maximize: bool = False, differentiable: bool = False, capturable: bool = False,
    ) -> None:  # fmt: skip
        check_options(locals(), "lr", "weight_decay")
        self._declare(locals())

    def _kernel(self, group: Group, state: State, step: int) -> Kernel:
        lr, lambd = float(group["lr"]), group["lambd"]
        if "eta" not in state:
            state["eta"] = host_number(lr)
            state["mu"] = host_number(1.0)
        eta, mu = state["eta"]._array, state["mu"]._array
        length, weight = float(eta), float(mu)
        # The next step uses these. As in PyTorch, they have single precision.
        eta[...] = np.float32(lr / (1 + lambd * lr * step) ** group["alpha"])
        mu[...] = np.float32(1 / max(1, step - group["t0"]))

        def descend(p: Array, g: Array, average: Array) -> None:
            p *= 1 - lambd * length
            p -= length * g
            if weight == 1:
                average[...] = p
            else:
                average += weight * (p - average)

        return descend
