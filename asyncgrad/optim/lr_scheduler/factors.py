"""Schedules that multiply the rate by a function of the epoch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from asyncgrad.optim.lr_scheduler.base import LRScheduler, for_groups
from asyncgrad.optim.optimizer import Optimizer


class LambdaLR(LRScheduler):
    """Sets the rate to the initial rate times a function of the epoch.

    Args:
        lr_lambda: the function, or one for each group.
    """

    _parts = ("lr_lambdas",)

    def __init__(
        self, optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]], last_epoch: int = -1,
    ) -> None:  # fmt: skip
        self.lr_lambdas: list[Any] = for_groups(optimizer, lr_lambda, "lr_lambdas")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rate of each group at `last_epoch`."""
        return [
            base_lr * function(self.last_epoch)
            for function, base_lr in zip(self.lr_lambdas, self.base_lrs, strict=True)
        ]


class MultiplicativeLR(LambdaLR):
    """Multiplies the last epoch's rate by a function of the epoch; see `LambdaLR`."""

    def get_lr(self) -> list[float]:
        """The rate of each group at `last_epoch`."""
        rates = self._rates()
        if self._is_initial:
            return rates
        return [
            rate * function(self.last_epoch)
            for function, rate in zip(self.lr_lambdas, rates, strict=True)
        ]


class _Relative(LRScheduler):
    """A schedule that multiplies the current rate."""

    _restarts = True

    def _factor(self) -> float:
        raise NotImplementedError

    def get_lr(self) -> list[float]:
        factor = self._factor()
        return [rate * factor for rate in self._rates()]


class StepLR(_Relative):
    """Multiplies the rate by `gamma` every `step_size` epochs."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float:
        falls = self.last_epoch > 0 and self.last_epoch % self.step_size == 0
        return self.gamma if falls else 1.0


class MultiStepLR(_Relative):
    """Multiplies the rate by `gamma` at each milestone."""

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:  # fmt: skip
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float:
        return float(self.gamma ** self.milestones.get(self.last_epoch, 0))


class ConstantLR(_Relative):
    """Multiplies the rate by a factor during the first epochs."""

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:  # fmt: skip
        if not 0 <= factor <= 1.0:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float:
        if self.last_epoch == 0:
            return self.factor
        return 1.0 / self.factor if self.last_epoch == self.total_iters else 1.0


class LinearLR(_Relative):
    """Changes the rate linearly from one multiple to another."""

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0,
        total_iters: int = 5, last_epoch: int = -1,
    ) -> None:  # fmt: skip
        if not 0 < start_factor <= 1.0:
            raise ValueError(
                "Starting multiplicative factor expected to be greater than 0 and less or equal "
                "to 1."
            )
        if not 0 <= end_factor <= 1.0:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float:
        epoch = self.last_epoch
        if epoch == 0:
            return self.start_factor
        if self._is_initial or epoch > self.total_iters:
            return 1.0
        rise = self.end_factor - self.start_factor
        return 1.0 + rise / (self.total_iters * self.start_factor + (epoch - 1) * rise)


class ExponentialLR(_Relative):
    """Multiplies the rate by `gamma` at each epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float:
        return 1.0 if self._is_initial or self.last_epoch == 0 else self.gamma


class PolynomialLR(_Relative):
    """Lowers the rate to 0 as a power of the fraction of epochs left."""

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float:
        epoch, total = self.last_epoch, self.total_iters
        if self._is_initial or epoch == 0 or epoch > total:
            return 1.0
        ratio = (1.0 - epoch / total) / (1.0 - (epoch - 1) / total)
        return float(ratio**self.power)


class CosineAnnealingLR(LRScheduler):
    """Moves the rate along a cosine: down to `eta_min` in `T_max` epochs, and up again."""

    _restarts = True

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rate of each group at `last_epoch`."""
        epoch, half = self.last_epoch, self.T_max
        rates = self._rates()
        if self._is_initial or epoch == 0:
            return rates
        if (epoch - 1 - half) % (2 * half) == 0:
            # The last rate was `eta_min`; a multiple of its distance from `eta_min` would stay 0.
            rise = (1 - math.cos(math.pi / half)) / 2
            return [
                rate + (base_lr - self.eta_min) * rise
                for rate, base_lr in zip(rates, self.base_lrs, strict=True)
            ]
        ratio = (1 + math.cos(math.pi * epoch / half)) / (
            1 + math.cos(math.pi * (epoch - 1) / half)
        )
        return [ratio * (rate - self.eta_min) + self.eta_min for rate in rates]
