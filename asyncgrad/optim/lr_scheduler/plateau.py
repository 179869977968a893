"""The schedule that watches a metric."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from asyncgrad.optim.lr_scheduler.base import apart, checked, for_groups, set_rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncgrad.optim.optimizer import Optimizer


class ReduceLROnPlateau:
    """The rate falls by a factor when a metric has stopped getting better.

    Args:
        optimizer: whose learning rates are changed.
        mode: "min" if less is better, "max" if more is.
        factor: what the rate is multiplied by.
        patience: how many epochs without getting better are endured.
        threshold: how much counts as getting better.
        threshold_mode: "rel" or "abs".
        cooldown: how many epochs after a fall do not count.
        min_lr: the least rate, or one for each group.
        eps: smaller changes are left out.

    Raises:
        ValueError: if an option is out of its range.
        TypeError: if it is no optimiser.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if mode not in {"min", "max"}:
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in {"rel", "abs"}:
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        self.optimizer = checked(optimizer)
        self.factor = factor
        self.min_lrs = for_groups(optimizer, min_lr, "min_lrs")
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.mode = mode
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.last_epoch = 0
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = 0
        self.cooldown_counter = 0
        self._last_lr = [apart(group["lr"]) for group in optimizer.param_groups]

    @property
    def in_cooldown(self) -> bool:
        """Whether a fall is so recent that bad epochs do not count."""
        return self.cooldown_counter > 0

    def step(self, metrics: Any) -> None:
        """Go on by one epoch.

        Args:
            metrics: the metric, a number or a tensor of one element.
        """
        current = float(metrics)
        self.last_epoch += 1
        if self._is_better(current):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                rate = max(float(group["lr"]) * self.factor, least)
                if float(group["lr"]) - rate > self.eps:
                    set_rate(group, rate)
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = [apart(group["lr"]) for group in self.optimizer.param_groups]

    def _is_better(self, current: float) -> bool:
        """Whether a metric beats the best so far by more than the threshold."""
        sign = 1.0 if self.mode == "max" else -1.0
        if self.threshold_mode == "rel":
            return sign * current > sign * self.best * (1.0 + sign * self.threshold)
        return sign * current > sign * self.best + self.threshold

    def get_last_lr(self) -> list[float]:
        """The rates that are in force since the last step."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimiser."""
        return {key: value for key, value in vars(self).items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict()` gave."""
        vars(self).update(state_dict)
