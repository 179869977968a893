"""The Adam optimiser and its variants: AdamW, Adamax, NAdam, RAdam and SparseAdam."""

from __future__ import annotations

import math

from asyncgrad.core.variable import Variable
from asyncgrad.optim.elementwise import ElementwiseOptimizer
from asyncgrad.optim.updates import (
    Betas,
    Gradients,
    Group,
    Params,
    Rate,
    State,
    Step,
    check_option,
    check_options,
    host_number,
)
from asyncgrad.types import Tensor


class Adam(ElementwiseOptimizer):
    """Adapts the step to the mean and the mean square of each element's gradients.

    Args:
        lr: the learning rate; roughly the greatest change of an element in a step.
        betas: decay rates of the means of the gradient and of its square.
        eps: added to the root of the mean square, against division by zero.
        weight_decay: this multiple of the parameter is added to the gradient.
        amsgrad: divide by the root of the greatest mean square so far.
        foreach, capturable, fused: accepted for PyTorch's programs; updates are always fused.
        maximize: step along the gradient instead of against it.
        differentiable: record the step, whose parameters then are no leaves: it has derivatives by
            their old values, their gradients and the state, but not by options.
        decoupled_weight_decay: shrink the parameter instead of changing the gradient, as AdamW.
    """

    _entries = ("exp_avg", "exp_avg_sq")
    _changing = frozenset({"lr", "betas"})

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

    def _entries_of(self, group: Group) -> tuple[str, ...]:
        return (*self._entries, "max_exp_avg_sq") if group["amsgrad"] else self._entries

    def _planned_step(self, group: Group, state: State, step: int) -> Step:
        beta1, beta2 = map(float, group["betas"])
        # What corrects the mean square is multiplied into numbers instead of its elements.
        correction = math.sqrt(1 - beta2**step)
        length = float(group["lr"]) / (1 - beta1**step) * correction
        numbers = length, 1 - beta1, beta2, 1 - beta2, group["eps"] * correction
        return Step("adam_amsgrad" if group["amsgrad"] else "adam", numbers)


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


class Adamax(ElementwiseOptimizer):
    """Adam that divides by a decaying maximum of gradient magnitudes instead of a mean square.

    Args:
        betas: decay rates of the mean gradient and of the maximum.

    The other arguments are those of `Adam`.
    """

    _entries = ("exp_avg", "exp_inf")

    def __init__(
        self, params: Params, lr: Rate = 2e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, foreach: bool | None = None, *, maximize: bool = False,
        differentiable: bool = False, capturable: bool = False,
    ) -> None:  # fmt: skip
        check_options(locals(), "lr", "eps", "betas", "weight_decay")
        self._declare(locals())

    def _planned_step(self, group: Group, state: State, step: int) -> Step:
        beta1, beta2 = group["betas"]
        length = float(group["lr"]) / (1 - beta1**step)
        return Step("adamax", (length, 1 - beta1, beta2, group["eps"]))


class NAdam(ElementwiseOptimizer):
    """Adam with Nesterov's momentum, which looks ahead along the momentum.

    Args:
        momentum_decay: how fast the momentum approaches its final value.

    The other arguments are those of `Adam`.
    """

    _entries = ("exp_avg", "exp_avg_sq")
    _same_for_all = False

    def __init__(
        self, params: Params, lr: Rate = 2e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False, *, foreach: bool | None = None,
        maximize: bool = False, capturable: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_options(locals(), "lr", "eps", "betas", "weight_decay", "momentum_decay")
        self._declare(locals())

    def _planned_step(self, group: Group, state: State, step: int) -> Step:
        lr = float(group["lr"])
        beta1, beta2 = group["betas"]
        now, ahead = (_momentum(group, number) for number in (step, step + 1))
        if "mu_product" not in state:
            state["mu_product"] = host_number(1.0)
        product = state["mu_product"]._array.copy()
        product *= now
        length = lr * (1.0 - now) / (1.0 - float(product))
        length_ahead = lr * ahead / (1.0 - float(product) * ahead)
        correction = 1 - beta2**step
        numbers = length, length_ahead, correction, 1 - beta1, beta2, 1 - beta2, group["eps"]
        return Step("nadam", numbers)

    def _count_step(self, group: Group, state: State, step: int) -> None:
        product = state["mu_product"]._array
        product *= _momentum(group, step)
        super()._count_step(group, state, step)


def _momentum(group: Group, step: int) -> float:
    """The momentum of one of NAdam's steps."""
    momentum: float = group["betas"][0] * (1.0 - 0.5 * 0.96 ** (step * group["momentum_decay"]))
    return momentum


class RAdam(ElementwiseOptimizer):
    """Adam whose first steps do not adapt, because few gradients give no reliable mean square.

    The arguments are those of `Adam`.
    """

    _entries = ("exp_avg", "exp_avg_sq")

    def __init__(
        self, params: Params, lr: Rate = 1e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, decoupled_weight_decay: bool = False, *,
        foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
        differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_options(locals(), "lr", "eps", "betas", "weight_decay")
        self._declare(locals())

    def _planned_step(self, group: Group, state: State, step: int) -> Step:
        beta1, beta2 = group["betas"]
        rectification = _rectification(step, beta2)
        length = float(group["lr"]) / (1 - beta1**step)
        numbers = length * (rectification or 1.0), 1 - beta1, beta2, 1 - beta2, group["eps"]
        return Step("radam", numbers, (rectification > 0,))


def _rectification(step: int, beta2: float) -> float:
    """The factor of the adaptive step; 0 while there are too few gradients for one."""
    known = 1 - beta2**step
    most = 2 / (1 - beta2) - 1
    length = most - 2 * step * beta2**step / known
    if length <= 5.0:
        return 0.0
    ratio = (length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)
    return math.sqrt(ratio * known)


class SparseAdam(ElementwiseOptimizer):
    """Adam for row-sparse gradients: a step updates only their rows, and the means of these.

    The arguments are those of `Adam`.
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

    def _check_parameters(self, parameters: list[Tensor]) -> None:
        places = [k for k, parameter in enumerate(parameters) if parameter._metadata.is_complex]
        if places:
            raise ValueError(
                f"Complex params at indices {places}: SparseAdam does not support complex "
                f"parameters. Give them to another optimizer, as Adam."
            )

    def _gradients(self, group: Group) -> Gradients:
        found = super()._gradients(group)
        if not all(gradient.is_sparse for _, gradient in found):
            raise RuntimeError(
                "SparseAdam does not support dense gradients, please consider Adam instead"
            )
        return found

    def _check_rows(self, group: Group) -> None:
        """Let them pass."""

    @staticmethod
    def _next_number(state: State) -> int:
        # As in PyTorch, the state has a plain number.
        return int(state.setdefault("step", 0)) + 1

    def _count_step(self, group: Group, state: State, step: int) -> None:
        state["step"] = step

    def _planned_step(self, group: Group, state: State, step: int) -> Step:
        beta1, beta2 = group["betas"]
        length = float(group["lr"]) * math.sqrt(1 - beta2**step) / (1 - beta1**step)
        return Step("adam", (length, 1 - beta1, beta2, 1 - beta2, group["eps"]))


def _check_positive(name: str, value: float | Tensor) -> None:
    """Raise PyTorch's ValueError unless an option is greater than 0."""
    check_option(name, value)
    if not value > 0.0:
        raise ValueError(f"Invalid {name}: {value}")
