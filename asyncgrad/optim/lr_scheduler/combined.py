"""Schedules that combine other schedules."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from asyncgrad.optim.lr_scheduler.base import LRScheduler, set_rate
from asyncgrad.optim.lr_scheduler.plateau import ReduceLROnPlateau
from asyncgrad.optim.optimizer import Optimizer


class _Combined(LRScheduler):
    """Combines several schedules of one optimiser."""

    _parts = ("_schedulers",)
    _restarts = True

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler]) -> None:
        name = type(self).__name__
        for place, scheduler in enumerate(schedulers):
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    f"{name} does not support `ReduceLROnPlateau` scheduler as it requires "
                    f"additional kwargs to be specified when calling `step`, but got one at index "
                    f"{place}"
                )
            if not isinstance(scheduler, LRScheduler):
                raise TypeError(
                    f"{name} takes schedules of optimizer steps, but at index {place} got "
                    f"{type(scheduler).__name__}"
                )
            if scheduler.optimizer is not optimizer:
                raise ValueError(
                    f"{name} expects all schedulers to belong to the same optimizer, but the one "
                    f"at index {place} has another"
                )
        self.optimizer = optimizer
        self._schedulers = list(schedulers)


class SequentialLR(_Combined):
    """Runs schedules one after another.

    Args:
        milestones: the epochs at which the second and later ones take over.
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:  # fmt: skip
        if not schedulers:
            raise ValueError("SequentialLR expects at least one scheduler, but got no scheduler.")
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"Sequential Schedulers expects number of schedulers provided to be one more than "
                f"the number of milestone points, but got number of schedulers {len(schedulers)} "
                f"and the number of milestones to be equal to {len(milestones)}"
            )
        super().__init__(optimizer, schedulers)
        self._milestones = list(milestones)
        self._start_epoch = last_epoch
        self._begin()

    def _begin(self) -> None:
        """Repeat the first step of the first schedule: making the others has changed the rates."""
        self._to_initial_rates()
        self.last_epoch = self._start_epoch + 1
        first = self._schedulers[bisect_right(self._milestones, 0)]
        first._begin()
        self._last_lr = first.get_last_lr()

    def _restart(self) -> None:
        """Go to epoch 0 with the first schedule."""
        self.last_epoch = 0
        first = self._schedulers[bisect_right(self._milestones, 0)]
        first._restart()
        self._last_lr = first.get_last_lr()

    def step(self) -> None:
        """Advance by one epoch; call this after the optimiser's step."""
        self.last_epoch += 1
        place = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[place]
        if place > 0 and self._milestones[place - 1] == self.last_epoch:
            if scheduler._restarts:
                self._to_initial_rates()
            scheduler._restart()
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def _to_initial_rates(self) -> None:
        for group in self.optimizer.param_groups:
            set_rate(group, group["initial_lr"])


class ChainedScheduler(_Combined):
    """Runs several schedules at once; their factors multiply.

    Args:
        schedulers: the schedules, all of one optimiser.
        optimizer: the optimiser; the first schedule's if None.
    """

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        if not schedulers:
            raise ValueError(
                "ChainedScheduler expects at least one scheduler to be chained, but got no "
                "scheduler."
            )
        super().__init__(optimizer or schedulers[0].optimizer, schedulers)
        self._note_rates()

    def _begin(self) -> None:
        """Take the first step of each schedule."""
        for scheduler in self._schedulers:
            scheduler._begin()
        self._note_rates()

    def _restart(self) -> None:
        """Go to epoch 0 with all schedules."""
        for scheduler in self._schedulers:
            scheduler._restart()
        self._note_rates()

    def step(self) -> None:
        """Advance each schedule by one step; call this after the optimiser's step."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._note_rates()
