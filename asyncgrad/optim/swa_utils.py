"""Averages of a model's parameters during training: PyTorch's `torch.optim.swa_utils`."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from asyncgrad.autograd.modes import no_grad
from asyncgrad.choices import Annealing, words
from asyncgrad.core import modes, recording
from asyncgrad.core.array_holders import holders, rebind
from asyncgrad.core.variable import bump_version
from asyncgrad.creation import tensor
from asyncgrad.devices import CPU
from asyncgrad.nn.module import Module
from asyncgrad.nn.norm import _BatchNorm
from asyncgrad.ops.dtype import INEXACT
from asyncgrad.optim.lr_scheduler.base import LRScheduler, apart, for_groups
from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.optim.updates import put_values
from asyncgrad.scheduler import waits
from asyncgrad.types import DeviceLike, Tensor

__all__ = [
    "SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn",
    "get_swa_multi_avg_fn", "update_bn",
]  # fmt: skip


def get_swa_avg_fn() -> Callable[[Any, Any, Any], Any]:
    """The plain mean, as a function of the average, the new value and the number averaged."""
    return lambda averaged, current, number: averaged + (current - averaged) / (number + 1)


def get_ema_avg_fn(decay: float = 0.999) -> Callable[[Any, Any, Any], Any]:
    """An exponential moving average, as a function like that of `get_swa_avg_fn`."""
    _check_decay(decay)
    return lambda averaged, current, _: decay * averaged + (1 - decay) * current


def get_swa_multi_avg_fn() -> Callable[[Any, Any, Any], None]:
    """The plain mean, as a function that updates a list of averages in place."""
    return lambda averaged, current, number: _move(averaged, current, 1 / (int(number) + 1))


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[[Any, Any, Any], None]:
    """An exponential moving average, as a function that updates a list of averages in place."""
    _check_decay(decay)
    return lambda averaged, current, _: _move(averaged, current, 1 - decay)


def _move(averaged: Iterable[Tensor], current: Iterable[Tensor], share: float) -> None:
    """Move means by a share of their distance towards values, in place."""
    means, values = list(averaged), list(current)
    if _moved(means, values, share):
        return
    with no_grad():
        for mean, value in zip(means, values, strict=True):
            if mean._metadata.dtype.kind in INEXACT:
                mean.copy_(mean + (value - mean) * share)
            else:
                # The sum is rounded down: the other form gives 3.9999998 for 0.9 * 3 + 0.1 * 13.
                mean.copy_(mean * (1 - share) + value * share)


def _moved(means: list[Tensor], values: list[Tensor], share: float) -> bool:
    """Move means on the host towards values by a compiled kernel; whether there is one.

    The kernel is that of SGD. With the values as gradients to ascend and a weight decay of 1, its
    direction of descent is `mean - value`.
    """
    kernel = CPU.compiled.get("sgd")
    if kernel is None or not modes.current().plain:
        return False
    lists = [[tensor._array for tensor in tensors] for tensors in (means, values)]
    if any(array.__class__ is not np.ndarray for arrays in lists for array in arrays):
        return False
    shrink, decay, maximize = 1.0, 1.0, 1.0
    if not means or kernel(*lists, share, shrink, decay, maximize) is NotImplemented:
        return False
    for mean in means:
        bump_version(mean)
    return True


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(
            f"Invalid decay value {decay} provided. Please provide a value in [0,1] range."
        )


class AveragedModel(Module):
    """A copy of a model whose parameters are averages of the model's parameters.

    If a graph or a snapshot still needs an average's values, an update gives the average new
    memory. So other tasks can use the copy while it is updated.

    Args:
        device: the device of the copy; the model's if None.
        avg_fn: a function of the average, the new value and the number averaged that returns the
            new average; the plain mean if None.
        multi_avg_fn: a function that updates a list of averages in place from a list of new values.
        use_buffers: average buffers, too, instead of copying them.

    Example:
        >>> model = ag.nn.Linear(1, 1, bias=False)
        >>> mean = AveragedModel(model)
        >>> for value in (1.0, 3.0):
        ...     _ = ag.nn.init.constant_(model.weight, value)
        ...     mean.update_parameters(model)
        >>> mean.module.weight.item()
        2.0
    """

    n_averaged: Tensor

    def __init__(
        self, model: Module, device: DeviceLike | None = None,
        avg_fn: Callable[[Any, Any, Any], Any] | None = None,
        multi_avg_fn: Callable[[Any, Any, Any], None] | None = None, use_buffers: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the averaged model."""
        return self.module(*args, **kwargs)

    @recording.called_anew
    def update_parameters(self, model: Module) -> None:
        """Update the averages with the model's current values."""
        pairs = [
            (mean, value.detach().to(mean.device))
            for mean, value in zip(self._averaged(self.module), self._averaged(model), strict=False)
        ]
        with no_grad():
            if not int(self.n_averaged):
                for mean, value in pairs:
                    _put(mean, value)
            elif self.multi_avg_fn is None:
                average = self.avg_fn or get_swa_avg_fn()
                for mean, value in pairs:
                    _put(mean, average(mean.detach(), value, self.n_averaged.to(mean.device)))
            else:
                groups: dict[Any, list[Any]] = {}
                copies = {mean: mean.detach().clone() for mean, _ in pairs if holders(mean)}
                for mean, value in pairs:
                    changed = copies.get(mean, mean.detach())
                    groups.setdefault((mean.device, mean.dtype), []).append((changed, value))
                for (device, _), group in groups.items():
                    means, values = zip(*group, strict=True)
                    self.multi_avg_fn(means, values, self.n_averaged.to(device))
                rebind({mean: copy._array for mean, copy in copies.items()})
            if not self.use_buffers:
                for mean, value in zip(self.module.buffers(), model.buffers(), strict=True):
                    _put(mean, value.detach().to(mean.device))
            self.n_averaged += 1

    def _averaged(self, model: Module) -> Iterable[Any]:
        if self.use_buffers:
            return itertools.chain(model.parameters(), model.buffers())
        return model.parameters()


def _put(mean: Tensor, value: Tensor) -> None:
    put_values(mean, value._array.astype(mean._metadata.dtype).reshape(mean._metadata.shape))


def update_bn(loader: Iterable[Any], model: Module, device: DeviceLike | None = None) -> None:
    """Recompute the running statistics of a model's batch norms.

    Args:
        loader: inputs, or lists and tuples whose first element is an input.
        device: the device to move the inputs to.

    Raises:
        TypeError: if a module's `forward` is a coroutine function; nothing has changed then.
    """
    for module in model.modules():
        if waits(module):
            raise TypeError(
                f"update_bn: forward of {type(module).__name__} is a coroutine function, and "
                f"update_bn can't await it. Call reset_running_stats() of the batch norms, set "
                f"their momentum to None, and await the model in training mode."
            )
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    was_training = model.training
    model.train()
    try:
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None
        with no_grad():
            for item in loader:
                given = item[0] if isinstance(item, (list, tuple)) else item
                model(given if device is None else given.to(device))
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        model.train(was_training)


class SWALR(LRScheduler):
    """Moves the rate to a constant rate, at which parameters are averaged.

    Args:
        swa_lr: the constant rate, or one for each group.
        anneal_epochs: the number of epochs until the constant rate is reached.
        anneal_strategy: "cos" or "linear".
    """

    def __init__(
        self, optimizer: Optimizer, swa_lr: float | Sequence[float], anneal_epochs: int = 10,
        anneal_strategy: Annealing = "cos", last_epoch: int = -1,
    ) -> None:  # fmt: skip
        rates = for_groups(optimizer, swa_lr, "swa_lr")
        if anneal_strategy not in words(Annealing):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["swa_lr"] = apart(rate)
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rate of each group at `last_epoch`."""
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._way(step - 1), self._way(step)
        rates = []
        for group in self.optimizer.param_groups:
            last = group["swa_lr"]
            # The initial rate, from the last one: `lr = before * last + (1 - before) * first`.
            first = last if before == 1 else (group["lr"] - before * last) / (1 - before)
            rates.append(last * now + first * (1 - now))
        return rates

    def _way(self, step: int) -> float:
        """The fraction of the way to the constant rate that is done at a step."""
        part = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return part if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * part)) / 2
