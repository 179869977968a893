"""Adadelta, Adagrad, RMSprop and Rprop: steps scaled by each element's past gradients."""

from __future__ import annotations

from asyncgrad.optim.elementwise import ElementwiseOptimizer
from asyncgrad.optim.updates import (
    Group,
    Params,
    Rate,
    State,
    Step,
    check_options,
    filled_like,
    host_number,
    zeros_like,
)
from asyncgrad.types import Tensor


class Adadelta(ElementwiseOptimizer):
    """Scales gradients by the ratio of two root mean squares: of past steps and of gradients.

    Args:
        lr: the factor of each step.
        rho: the decay rate of the mean squares.
        eps: added to the mean squares before their roots are taken.

    The other arguments are those of `Adam`.
    """

    _entries = ("square_avg", "acc_delta")

    def __init__(
        self, params: Params, lr: Rate = 1.0, rho: float = 0.9, eps: float = 1e-6,
        weight_decay: float = 0, foreach: bool | None = None, *, capturable: bool = False,
        maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_options(locals(), "lr", "rho")
        if rho > 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check_options(locals(), "eps", "weight_decay")
        self._declare(locals())

    def _planned_step(self, group: Group, state: State, step: int) -> Step:
        rho = group["rho"]
        return Step("adadelta", (float(group["lr"]), rho, 1 - rho, group["eps"]))


class Adagrad(ElementwiseOptimizer):
    """Divides each element's gradient by the root of the sum of its past squares.

    Args:
        lr: the learning rate of the first step.
        lr_decay: how fast the learning rate falls with the number of steps.
        initial_accumulator_value: the initial value of the sums; unlike PyTorch's, a group may have
            its own.

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

    def _planned_step(self, group: Group, state: State, step: int) -> Step:
        length = float(group["lr"]) / (1 + (step - 1) * group["lr_decay"])
        return Step("adagrad", (length, group["eps"]))

    def _check_rows(self, group: Group) -> None:
        if group["weight_decay"]:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")


class RMSprop(ElementwiseOptimizer):
    """Divides each element's gradient by its root mean square.

    Args:
        alpha: the decay rate of the mean square.
        centered: subtract the squared mean: divide by the standard deviation.

    The other arguments are those of `Adam`.
    """

    def __init__(
        self, params: Params, lr: Rate = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
        weight_decay: float = 0, momentum: float = 0, centered: bool = False,
        capturable: bool = False, foreach: bool | None = None, maximize: bool = False,
        differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_options(locals(), "lr", "eps", "momentum", "weight_decay", "alpha")
        self._declare(locals())

    def _entries_of(self, group: Group) -> tuple[str, ...]:
        wanted = ["square_avg"]
        if group["momentum"] > 0:
            wanted.append("momentum_buffer")
        if group["centered"]:
            wanted.append("grad_avg")
        return tuple(wanted)

    def _planned_step(self, group: Group, state: State, step: int) -> Step:
        alpha, momentum = group["alpha"], group["momentum"]
        momenta = (momentum,) if momentum > 0 else ()
        name = "rmsprop_momentum" if momenta else "rmsprop"
        numbers = float(group["lr"]), 1 - alpha, alpha, 1 - alpha, group["eps"], *momenta
        return Step(f"{name}_centered" if group["centered"] else name, numbers)


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

    def _planned_step(self, group: Group, state: State, step: int) -> Step:
        return Step("rprop", (*group["etas"], *group["step_sizes"]))
