"""`ReduceLROnPlateau`: the schedule that depends on a metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from asyncgrad.choices import PlateauMode, ThresholdMode, words
from asyncgrad.optim.lr_scheduler.base import LRScheduler, checked, for_groups, set_rate
from asyncgrad.optim.optimizer import Optimizer


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the rate by a factor when a metric stops improving.

    Args:
        mode: "min" if a lower metric is better, "max" if a higher one is.
        patience: the number of epochs without improvement to tolerate.
        threshold: the least improvement that counts.
        threshold_mode: whether `threshold` is relative ("rel") or absolute ("abs").
        cooldown: the number of epochs after a reduction in which bad epochs do not count.
        min_lr: the lowest rate, or one for each group.
        eps: a smaller reduction is not made.
    """

    def __init__(
        self, optimizer: Optimizer, mode: PlateauMode = "min", factor: float = 0.1,
        patience: int = 10, threshold: float = 1e-4, threshold_mode: ThresholdMode = "rel",
        cooldown: int = 0, min_lr: float | Sequence[float] = 0, eps: float = 1e-8,
    ) -> None:  # fmt: skip
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if mode not in words(PlateauMode):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in words(ThresholdMode):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        self.optimizer = checked(optimizer)
        self.factor = factor
        self.min_lrs = for_groups(optimizer, min_lr, "min_lrs")
        #: The lowest rate of groups that are added later.
        self.default_min_lr = None if isinstance(min_lr, (list, tuple)) else min_lr
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
        self._note_rates()

    @property
    def in_cooldown(self) -> bool:
        """Whether bad epochs do not count, because the last reduction is recent."""
        return self.cooldown_counter > 0

    def step(self, metrics: Any) -> None:  # type: ignore[override]
        """Advance by one epoch, with a metric that is a number or a tensor of one element.

        Raises:
            RuntimeError: if groups have been added whose lowest rates are not known.
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
            groups = self.optimizer.param_groups
            if len(self.min_lrs) != len(groups):
                if self.default_min_lr is None:
                    raise RuntimeError(
                        f"The number of param groups in the `optimizer` ({len(groups)}) differs "
                        f"from when `ReduceLROnPlateau` was initialized ({len(self.min_lrs)}), "
                        f"usually due to a new param group being added to the optimizer. Set "
                        f"`min_lrs` to one rate for each group."
                    )
                self.min_lrs = [self.default_min_lr] * len(groups)
            for group, least in zip(groups, self.min_lrs, strict=True):
                rate = max(float(group["lr"]) * self.factor, least)
                if float(group["lr"]) - rate > self.eps:
                    set_rate(group, rate)
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._note_rates()

    def _is_better(self, current: float) -> bool:
        """Whether a metric beats the best so far by more than the threshold."""
        sign = 1.0 if self.mode == "max" else -1.0
        if self.threshold_mode == "rel":
            return sign * current > sign * self.best * (1.0 + sign * self.threshold)
        return sign * current > sign * self.best + self.threshold
