"""Stochastic gradient descent, with momentum or with averaged parameters."""

from __future__ import annotations

import numpy as np

from asyncgrad.ops.tensors.sparse_rows import Rows
from asyncgrad.optim.elementwise import ElementwiseOptimizer
from asyncgrad.optim.updates import Group, Params, Rate, State, Step, check_options, host_number
from asyncgrad.types import Tensor


class SGD(ElementwiseOptimizer):
    """Stochastic gradient descent, optionally with momentum.

    Args:
        dampening: the fraction of the gradient that is kept out of the momentum.
        nesterov: look ahead along the momentum.

    The other arguments are those of `Adam`.
    """

    def __init__(
        self, params: Params, lr: Rate = 1e-3, momentum: float = 0, dampening: float = 0,
        weight_decay: float = 0, nesterov: bool = False, *, maximize: bool = False,
        foreach: bool | None = None, differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        check_options(locals(), "lr", "momentum", "weight_decay")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        self._declare(locals())

    _changing = frozenset({"lr", "momentum"})

    def _entries_of(self, group: Group) -> tuple[str, ...]:
        return ("momentum_buffer",) if group["momentum"] else ()

    @staticmethod
    def _next_number(state: State) -> int:
        # Steps are not counted, since only the first one differs: 2 stands for all others.
        return 1 if state.get("momentum_buffer") is None else 2

    def _count_step(self, group: Group, state: State, step: int) -> None:
        pass

    def _planned_step(self, group: Group, state: State, step: int) -> Step:
        lr, momentum, dampening = float(group["lr"]), group["momentum"], group["dampening"]
        if not momentum:
            return Step("sgd", (lr,))
        flags = step == 1, dampening != 0, bool(group["nesterov"])
        return Step("sgd_momentum", (lr, momentum, 1 - dampening), flags)

    def _check_rows(self, group: Group) -> None:
        if group["weight_decay"]:
            raise RuntimeError(
                "SGD: weight_decay is not compatible with sparse gradients: it changes every row. "
                "Set it to 0 or use sparse=False."
            )

    def _update_rows(self, group: Group, parameter: Tensor, gradient: Rows) -> None:
        if group["momentum"]:
            # The momentum also changes rows that this gradient lacks, so a dense update is needed.
            self._update(group, parameter, gradient.dense())
            return
        rows = gradient.coalesce()
        values, lr = self._values(parameter), float(group["lr"])
        values[rows.indices] += rows.values * values.dtype.type(lr if group["maximize"] else -lr)


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
    _same_for_all = False

    def __init__(
        self, params: Params, lr: Rate = 1e-2, lambd: float = 1e-4, alpha: float = 0.75,
        t0: float = 1e6, weight_decay: float = 0, foreach: bool | None = None,
        maximize: bool = False, differentiable: bool = False, capturable: bool = False,
    ) -> None:  # fmt: skip
        check_options(locals(), "lr", "weight_decay")
        self._declare(locals())

    def _planned_step(self, group: Group, state: State, step: int) -> Step:
        lr, lambd = float(group["lr"]), group["lambd"]
        if "eta" not in state:
            state["eta"] = host_number(lr)
            state["mu"] = host_number(1.0)
        length, weight = float(state["eta"]._array), float(state["mu"]._array)
        return Step("asgd", (length, 1 - lambd * length, weight), (weight != 1,))

    def _count_step(self, group: Group, state: State, step: int) -> None:
        lr, decay = float(group["lr"]), group["lambd"]
        # The next step uses these. As in PyTorch, they have single precision.
        state["eta"]._array[...] = np.float32(lr / (1 + decay * lr * step) ** group["alpha"])
        state["mu"]._array[...] = np.float32(1 / max(1, step - group["t0"]))
        super()._count_step(group, state, step)
