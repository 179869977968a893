"""Cyclic schedules: `CyclicLR`, `OneCycleLR` and `CosineAnnealingWarmRestarts`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from asyncgrad.choices import Annealing, CyclicMode, CyclicScale, words
from asyncgrad.optim.lr_scheduler import base
from asyncgrad.optim.optimizer import Optimizer


class _MomentumScheduler(base.LRScheduler):
    """A schedule that may also change the momentum, or the first beta."""

    def _check_momentum(self, optimizer: Optimizer, cycle_momentum: bool) -> None:
        """Note whether and how momenta change; raises if the optimiser has none to change."""
        self.cycle_momentum = cycle_momentum
        self.use_beta1 = "betas" in optimizer.defaults
        if cycle_momentum and not (self.use_beta1 or "momentum" in optimizer.defaults):
            raise ValueError(
                "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
            )

    def _set_momentum(self, group: dict[str, Any], momentum: float) -> None:
        if self.use_beta1:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum


#: For each mode: the height of a cycle relative to the first, and what the height depends on.
_HEIGHTS: dict[CyclicMode, tuple[Callable[[float, float], float], str]] = {
    "triangular": (lambda gamma, number: 1.0, "cycle"),
    "triangular2": (lambda gamma, number: 1 / 2.0 ** (number - 1), "cycle"),
    "exp_range": (lambda gamma, number: gamma**number, "iterations"),
}


class CyclicLR(_MomentumScheduler):
    """Moves the rate up and down between two bounds, and momentum the other way.

    Args:
        base_lr: the lower bound, or one for each group.
        max_lr: the upper bound, or one for each group.
        step_size_up: the number of steps from the lower to the upper bound.
        step_size_down: the number of steps back; the same number if None.
        mode: "triangular", "triangular2" (half the height with each cycle) or "exp_range" (the
            height is multiplied by `gamma` at each step).
        gamma: the factor of "exp_range".
        scale_fn: replaces `mode`: a function that gives the factor of the height.
        scale_mode: the argument of `scale_fn`: the number of the "cycle" or of the "iterations".
        base_momentum: the lower bound of the momentum, or one for each group.
        max_momentum: the upper bound of the momentum, or one for each group.

    Raises:
        ValueError: for an unknown mode, if the number of bounds is not that of groups, or if
            `cycle_momentum` and the optimiser has no momentum.
    """

    _parts = ("_scale_fn_custom",)

    def __init__(
        self, optimizer: Optimizer, base_lr: float | list[float], max_lr: float | list[float],
        step_size_up: int = 2000, step_size_down: int | None = None,
        mode: CyclicMode = "triangular", gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None, scale_mode: CyclicScale = "cycle",
        cycle_momentum: bool = True, base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9, last_epoch: int = -1,
    ) -> None:  # fmt: skip
        if mode not in words(CyclicMode) and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        lowest = base.for_groups(optimizer, base_lr, "base_lr")
        self.max_lrs = base.for_groups(optimizer, max_lr, "max_lr")
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else _HEIGHTS[mode][1]
        self._check_momentum(optimizer, cycle_momentum)
        if cycle_momentum:
            self.base_momentums = base.for_groups(optimizer, base_momentum, "base_momentum")
            self.max_momentums = base.for_groups(optimizer, max_momentum, "max_momentum")
            for group, low, high in zip(
                optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
            ):
                self._set_momentum(group, high)
                group["max_momentum"], group["base_momentum"] = high, low
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, lowest, strict=True):
                base.set_rate(group, rate)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = lowest

    def scale_fn(self, x: float) -> float:
        """The factor of the height in cycle, or at step, number `x`."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        return _HEIGHTS[self.mode][0](self.gamma, x)

    def get_lr(self) -> list[float]:
        """The rate of each group at `last_epoch`; also sets the momenta."""
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        part = 1.0 + self.last_epoch / self.total_size - cycle
        if part <= self.step_ratio:
            height = part / self.step_ratio
        else:
            height = (part - 1) / (self.step_ratio - 1)
        height *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group, low, high in zip(
                self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
            ):
                self._set_momentum(group, high - (high - low) * height)
        return [
            low + (high - low) * height
            for low, high in zip(self.base_lrs, self.max_lrs, strict=True)
        ]


class CosineAnnealingWarmRestarts(base.LRScheduler):
    """Lowers the rate along half a cosine to `eta_min`, then restarts from the initial rate.

    Args:
        T_0: the number of epochs until the first restart.
        T_mult: the factor by which the period grows after each restart.
        eta_min: the lowest rate.
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:  # fmt: skip
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (int, float)):
            raise ValueError(
                f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}"
            )
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        #: The number of epochs since the last restart.
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rate of each group at `last_epoch`."""
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base_lr - self.eta_min) * height for base_lr in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Advance by one epoch, or to a given epoch, which may be fractional.

        As in PyTorch, there is no warning if the optimiser has not taken a step before.
        """
        if epoch is None:
            if self.last_epoch < 0:
                self.T_cur = -1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
            epoch = self.last_epoch + 1
        elif epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        elif epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            restarts = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            ended = self.T_0 * (self.T_mult**restarts - 1) / (self.T_mult - 1)
            self.T_cur, self.T_i = epoch - ended, self.T_0 * self.T_mult**restarts
        self.last_epoch = math.floor(epoch)
        self._set(self.get_lr())


class OneCycleLR(_MomentumScheduler):
    """Raises the rate to `max_lr`, then lowers it far below its start; momentum does the opposite.

    Args:
        max_lr: the highest rate, or one for each group.
        total_steps: the number of steps; by default `epochs` times `steps_per_epoch`.
        pct_start: the fraction of steps in which the rate rises.
        anneal_strategy: "cos" or "linear".
        base_momentum: the lowest momentum, or one for each group.
        max_momentum: the highest momentum, or one for each group.
        div_factor: the ratio of the highest rate to the first.
        final_div_factor: the ratio of the first rate to the last.
        three_phase: first fall to the first rate in as many steps as it rose, then to the last.

    Raises:
        ValueError: if an option is out of its range, or the optimiser has no momentum.
    """

    def __init__(
        self, optimizer: Optimizer, max_lr: float | Sequence[float], total_steps: int | None = None,
        epochs: int | None = None, steps_per_epoch: int | None = None, pct_start: float = 0.3,
        anneal_strategy: Annealing = "cos", cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.85, max_momentum: float | Sequence[float] = 0.95,
        div_factor: float = 25.0, final_div_factor: float = 1e4, three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:  # fmt: skip
        base.checked(optimizer)
        self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
        if not (isinstance(pct_start, float) and 0 <= pct_start <= 1):
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in words(Annealing):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self.anneal_strategy = anneal_strategy
        up = pct_start * self.total_steps - 1
        #: For each phase: its end, and the names of its first and last rates and momenta.
        self._phases = [(up, "initial_lr", "max_lr", "max_momentum", "base_momentum")]
        if three_phase:
            self._phases += [
                (2 * up, "max_lr", "initial_lr", "base_momentum", "max_momentum"),
                (self.total_steps - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum"),
            ]
        else:
            self._phases += [
                (self.total_steps - 1, "max_lr", "min_lr", "base_momentum", "max_momentum")
            ]
        self._check_momentum(optimizer, cycle_momentum)
        greatest = base.for_groups(optimizer, max_lr, "max_lr")
        momenta = [
            base.for_groups(optimizer, max_momentum, "max_momentum"),
            base.for_groups(optimizer, base_momentum, "base_momentum"),
        ]
        if last_epoch == -1:
            for group, lr, high, low in zip(
                optimizer.param_groups, greatest, *momenta, strict=True
            ):
                group["max_lr"] = lr
                group["initial_lr"] = lr / div_factor
                group["min_lr"] = group["initial_lr"] / final_div_factor
                if cycle_momentum:
                    group["max_momentum"], group["base_momentum"] = high, low
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rate of each group at `last_epoch`; also sets the momenta."""
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(
                f"Tried to step {step} times. The specified number of total steps is "
                f"{self.total_steps}"
            )
        start = 0.0
        *earlier, phase = self._phases
        for candidate in earlier:
            if step <= candidate[0]:
                phase = candidate
                break
            start = candidate[0]
        end, *names = phase
        part = (step - start) / (end - start)
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._between(group[names[0]], group[names[1]], part))
            if self.cycle_momentum:
                self._set_momentum(group, self._between(group[names[2]], group[names[3]], part))
        return rates

    def _between(self, start: float, end: float, part: float) -> float:
        """The value at a fraction of the way from start to end."""
        if self.anneal_strategy == "linear":
            return (end - start) * part + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)


def _total_steps(total: Any, epochs: Any, steps_per_epoch: Any) -> int:
    if total is None and (epochs is None or steps_per_epoch is None):
        raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
    factors = (
        {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
        if total is None
        else {"total_steps": total}
    )
    for name, value in factors.items():
        if not isinstance(value, int) or value <= 0:
            raise ValueError(f"Expected positive integer {name}, but got {value}")
    return math.prod(factors.values())
