"""The base class of schedules, and helper functions."""

from __future__ import annotations

import types
from typing import Any

from asyncgrad.core.frames import warn
from asyncgrad.core.recording import called_anew
from asyncgrad.core.variable import Variable
from asyncgrad.errors import class_of
from asyncgrad.optim.optimizer import Optimizer


class LRScheduler:
    """A schedule of the learning rate; subclasses define `get_lr`.

    Args:
        last_epoch: in all schedules, the last epoch done when resuming, -1 to start. To resume, a
            group has to have an `initial_lr`.

    Raises:
        KeyError: to resume, if a group has no `initial_lr`.
    """

    optimizer: Any
    _last_lr: list[float]
    #: Attributes that hold functions or schedules, of which a state has their own states.
    _parts: tuple[str, ...] = ()
    #: Whether it starts from the initial rates, not the last ones, when it takes over from another.
    _restarts = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = checked(optimizer)
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", apart(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{number}] when resuming "
                    f"scheduler with last_epoch >= 0. Load the optimizer's state first."
                )
        #: The initial rates of the groups.
        self.base_lrs = [apart(group["initial_lr"]) for group in optimizer.param_groups]
        self._start_epoch = last_epoch
        self._begin()

    def _begin(self) -> None:
        """Set the initial rates with a first step."""
        self.last_epoch = self._start_epoch
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let recorders know of a `step` that a subclass defines."""
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = called_anew(cls.__dict__["step"])  # type: ignore[method-assign]

    def get_last_lr(self) -> list[float]:
        """The rates set by the last step."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimiser; of callable objects their attributes are saved."""
        return {
            key: _state_of(value) if key in self._parts else value
            for key, value in vars(self).items()
            if key != "optimizer"
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state returned by `state_dict()`."""
        for key, value in state_dict.items():
            if key in self._parts:
                _restore(getattr(self, key), value)
            else:
                vars(self)[key] = value

    def _note_rates(self) -> None:
        """Remember the present rates as those that the last step has set."""
        self._last_lr = [apart(group["lr"]) for group in self.optimizer.param_groups]

    def get_lr(self) -> list[float]:
        """The rate of each group at `last_epoch`."""
        raise NotImplementedError("a schedule defines get_lr()")

    @called_anew
    def step(self) -> None:
        """Advance by one epoch; call this after the optimiser's step."""
        optimizer = self.optimizer
        if self._step_count == 1 and optimizer.steps_taken == 0:
            warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. Call them in "
                "the opposite order: otherwise the first value of the schedule is skipped."
            )
        self._step_count += 1
        self.last_epoch += 1
        self._set(self.get_lr())

    def _restart(self) -> None:
        """Go to epoch 0, when this schedule takes over from another."""
        self.last_epoch = 0
        self._set(self.get_lr())

    def _set(self, rates: list[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            set_rate(group, rate)
        self._note_rates()

    def _rates(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]


def _state_of(part: Any) -> Any:
    """The state of a schedule or callable object, or of a list; None for a function."""
    if isinstance(part, list):
        return [*map(_state_of, part)]
    if isinstance(part, LRScheduler):
        return part.state_dict()
    return None if part is None or isinstance(part, types.FunctionType) else dict(vars(part))


def _restore(part: Any, state: Any) -> None:
    """Restore what `_state_of` returned."""
    if isinstance(part, list):
        for one, its in zip(part, state, strict=True):
            _restore(one, its)
    elif isinstance(part, LRScheduler):
        part.load_state_dict(state)
    elif state is not None:
        vars(part).update(state)


def apart(rate: Any) -> Any:
    """A copy of a rate that is a tensor, because tensor rates of groups change in place."""
    return rate.clone() if isinstance(rate, Variable) else rate  # type: ignore[attr-defined]


def set_rate(group: dict[str, Any], rate: Any) -> None:
    """Set a group's rate; a tensor rate is changed in place."""
    if isinstance(group["lr"], Variable):
        group["lr"].fill_(rate)  # type: ignore[attr-defined]
    else:
        group["lr"] = rate


def checked(optimizer: Any) -> Any:
    """The optimiser; raises if it is something else."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(
            f"{class_of(optimizer)} is not an Optimizer: of an optimizer on several machines, each "
            f"worker's is given to the function in `await optimizer.apply(function)`, and a rank's "
            f"is `optimizer.optim`"
        )
    return optimizer


def for_groups(optimizer: Optimizer, value: Any, name: str) -> list[Any]:
    """A value for each group, from one value for all or a sequence."""
    groups = len(checked(optimizer).param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * groups
    if len(value) != groups:
        raise ValueError(
            f"Expected {groups} {name}, but got {len(value)}: {name} must have the same length as "
            f"optimizer.param_groups"
        )
    return list(value)
