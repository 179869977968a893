"""`OneCycleLR`: the one-cycle schedule."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from asyncgrad.choices import Annealing, words
from asyncgrad.optim.lr_scheduler.base import MomentumScheduler, checked, for_groups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncgrad.optim.optimizer import Optimizer


class OneCycleLR(MomentumScheduler):
    """Raises the rate to `max_lr`, then lowers it far below its start; momentum does the opposite.

    Args:
        optimizer: the optimiser whose learning rates, and momenta or first betas, are changed.
        max_lr: the highest rate, or one for each group.
        total_steps: the number of steps; by default `epochs` times `steps_per_epoch`.
        epochs: the number of epochs.
        steps_per_epoch: the number of steps in each epoch.
        pct_start: the fraction of steps in which the rate rises.
        anneal_strategy: "cos" or "linear".
        cycle_momentum: change the momentum, too.
        base_momentum: the lowest momentum, or one for each group.
        max_momentum: the highest momentum, or one for each group.
        div_factor: the ratio of the highest rate to the first.
        final_div_factor: the ratio of the first rate to the last.
        three_phase: first fall to the first rate in as many steps as it rose, then to the last.
        last_epoch: the last step done when resuming, -1 to start.

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
        checked(optimizer)
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
        greatest = for_groups(optimizer, max_lr, "max_lr")
        momenta = [
            for_groups(optimizer, max_momentum, "max_momentum"),
            for_groups(optimizer, base_momentum, "base_momentum"),
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
