"""The optimisers Adam, and AdamW, which decouples weight decay from the gradient."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.optim.elementwise import ElementwiseOptimizer, Kernel, State
from asyncgrad.optim.updates import Array, Betas, Group, Params, Rate, check_options, follow

if TYPE_CHECKING:
    from asyncgrad.tensor import Tensor


class Adam(ElementwiseOptimizer):
    """Adapts the step to the mean and the mean square of each element's gradients.

    Args:
        params: parameters or groups of them.
        lr: the learning rate; roughly the greatest change of an element in a step.
        betas: decay rates of the means of the gradient and of its square.
        eps: added to the root of the mean square, against division by zero.
        weight_decay: this multiple of the parameter is added to the gradient.
        amsgrad: divide by the root of the greatest mean square so far.
        foreach: accepted for PyTorch's programs, without effect.
        maximize: step along the gradient instead of against it.
        capturable: accepted for PyTorch's programs, without effect.
        differentiable: not supported.
        fused: accepted for PyTorch's programs; updates are always fused.
        decoupled_weight_decay: shrink the parameter instead of changing the gradient, as AdamW.

    Raises:
        ValueError: if an option is out of its range.
    """

    _entries = ("exp_avg", "exp_avg_sq")

    def __init__(
        self, params: Params, lr: Rate = 1e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None,
        maximize: bool = False, capturable: bool = False, differentiable: bool = False,
        fused: bool | None = None, decoupled_weight_decay: bool = False,
    ) -> None:  # fmt: skip
        check_options(locals(), "lr", "eps")
        _check_kinds(betas)
        check_options(locals(), "betas", "weight_decay")
        if foreach and not capturable:
            _refuse_tensors(lr, betas)
        self._declare(locals())

    def _wanted(self, group: Group) -> tuple[str, ...]:
        return (*self._entries, "max_exp_avg_sq") if group["amsgrad"] else self._entries

    def _update(self, group: Group, parameter: Tensor, gradient: Array) -> None:
        state, step, arrays = self._operands(group, parameter, gradient)
        compiled = parameter._metadata.device.compiled.get("adapt")
        if compiled is not None and not group["amsgrad"]:
            lr = float(group["lr"])
            beta1, beta2 = map(float, group["betas"])
            done = compiled(
                *arrays, lr, beta1, beta2, group["eps"], group["weight_decay"],
                group["decoupled_weight_decay"], group["maximize"],
                lr / (1 - beta1**step), math.sqrt(1 - beta2**step),
            )  # fmt: skip
            if done is not NotImplemented:
                return
        self._join(group, state, step, arrays)

    def _kernel(self, group: Group, state: State, step: int) -> Kernel:
        eps = group["eps"]
        beta1, beta2 = map(float, group["betas"])
        length = float(group["lr"]) / (1 - beta1**step)
        correction = math.sqrt(1 - beta2**step)

        def adapt(
            p: Array, g: Array, mean: Array, square: Array, greatest: Array | None = None
        ) -> None:
            t = follow(g, mean, square, beta1, beta2)
            if greatest is not None:
                np.maximum(greatest, square, out=greatest)
            np.sqrt(square if greatest is None else greatest, out=t)
            t /= correction
            t += eps
            np.divide(mean, t, out=t)
            t *= length
            p -= t

        return adapt


def _check_kinds(betas: Betas) -> None:
    """Raise PyTorch's ValueError unless both betas are floats, or both tensors."""
    _, _ = betas
    if not any(all(isinstance(beta, kind) for beta in betas) for kind in (float, Variable)):
        raise ValueError("betas must be either both floats or both Tensors")


def _refuse_tensors(lr: Rate, betas: Betas) -> None:
    """Raise PyTorch's ValueError for a tensor among the numbers."""
    for name, value in (("lr", lr), ("betas[0]", betas[0]), ("betas[1]", betas[1])):
        if isinstance(value, Variable):
            raise ValueError(
                f"{name} as a Tensor is not supported for capturable=False and foreach=True"
            )


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameters directly, without going through the means.

    The arguments are Adam's.
    """

    def __init__(
        self, params: Params, lr: Rate = 1e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False,
        foreach: bool | None = None, capturable: bool = False, differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, foreach=foreach,
            capturable=capturable, differentiable=differentiable, fused=fused,
            decoupled_weight_decay=True,
        )  # fmt: skip
