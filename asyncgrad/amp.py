"""Mixed precision: loss scaling, and an `autocast` that casts nothing.

Scaling up the loss makes gradients of float16 models underflow less. Unlike PyTorch's, `autocast`
does not choose a dtype for each operation, because NumPy computes half precision more slowly than
single. Convert a whole model with `.to(asyncgrad.bfloat16)` instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np

from asyncgrad.autograd.modes import no_grad
from asyncgrad.core.frames import warn
from asyncgrad.core.modes import current
from asyncgrad.core.recording import called_anew, made_anew, unrepeatable
from asyncgrad.core.variable import Variable, wrap
from asyncgrad.devices.discovery import available
from asyncgrad.errors import class_of
from asyncgrad.ops.bfloat16 import needs_bfloat16
from asyncgrad.ops.dtype import DType
from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.scheduler import check_awaited
from asyncgrad.types import DTypeLike, Library

__all__ = [
    "GradScaler", "autocast", "custom_bwd", "custom_fwd", "get_autocast_dtype",
    "is_autocast_available", "is_autocast_enabled",
]  # fmt: skip


def _is_there(device_type: str) -> bool:
    return any(device.type == device_type for device in available())


class autocast:
    """A context manager and decorator that casts nothing, for programs that can disable it.

    Args:
        device_type: the kind of device, "cuda" or "cpu".
        dtype: the dtype that PyTorch would cast to.
        enabled: has to be False; for a device kind that is missing here, True is only a warning, as
            in PyTorch.
        cache_enabled: accepted for PyTorch's programs, without effect.

    Raises:
        RuntimeError: if `enabled` is True and the device kind is available.
    """

    def __init__(
        self, device_type: str, dtype: DTypeLike | None = None, enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(device_type, str):
            raise ValueError(
                f"Expected `device_type` of type `str`, got: `{type(device_type).__name__}`"
            )
        if enabled and device_type != "cpu" and not _is_there(device_type):
            warn(
                f"User provided device_type of '{device_type}', but it is not available. Disabling"
            )
        elif enabled:
            raise RuntimeError(
                f"autocast: asyncgrad does not choose dtypes for operations on {device_type!r}. "
                f"Pass enabled=False, or convert the model and its input with .to()."
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Change nothing."""

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function unchanged."""
        return function


def is_autocast_available(device_type: str) -> bool:
    """Always False: `autocast` casts nothing."""
    return False


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Always False: `autocast` casts nothing."""
    return False


def get_autocast_dtype(device_type: str) -> DType:
    """The dtype that PyTorch would cast to: float16 on GPUs, bfloat16 elsewhere."""
    return DType("float16" if device_type == "cuda" else needs_bfloat16("get_autocast_dtype()"))


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str,
    cast_inputs: np.dtype[Any] | None = None,
) -> Any:  # fmt: skip
    """Decorate the `forward` of a Function; returns it unchanged, because nothing is cast."""
    return (lambda function: function) if fwd is None else fwd


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Any:
    """Decorate the `backward` of a Function; returns it unchanged, because nothing is cast."""
    return (lambda function: function) if bwd is None else bwd


#: By the names in a state dict, the attributes of a scaler.
_STATE = {
    "scale": "_scale", "growth_factor": "_growth_factor", "backoff_factor": "_backoff_factor",
    "growth_interval": "_growth_interval", "_growth_tracker": "_growth_tracker",
}  # fmt: skip


class GradScaler:
    """Scales losses up and gradients down again; skips steps with infinite or NaN gradients.

    The scale is multiplied by `backoff_factor` after such a gradient, and by `growth_factor` after
    `growth_interval` steps without one. The check for such gradients waits for the device.

    Args:
        device: the kind of device that the gradients are on; without one of this kind, the scaler
            is disabled, with a warning.
        init_scale: the first scale.
        growth_factor: the factor of growth, more than 1.
        backoff_factor: the factor after a non-finite gradient, less than 1.
        growth_interval: the number of steps in a row with finite gradients before the scale grows.
        enabled: False makes the scaler only call the optimizers' `step`.

    Example:
        >>> x = ag.ones(2, requires_grad=True)
        >>> optimizer = ag.optim.SGD([x], lr=1.0)
        >>> scaler = ag.amp.GradScaler("cpu")
        >>> _ = scaler.scale((x * x).sum()).backward()
        >>> scaler.step(optimizer)
        >>> scaler.update()
        >>> x
        tensor([-1., -1.], requires_grad=True)
    """

    def __init__(
        self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0,
        backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        self._enabled = enabled
        if enabled and device != "cpu" and not _is_there(device):
            warn(f"GradScaler is enabled, but {device} is not available. Disabling.")
            self._enabled = False
        if not growth_factor > 1:
            raise AssertionError("The growth factor must be > 1.0.")
        if not backoff_factor < 1:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._scale = float(init_scale)
        #: Whether a loss has been scaled.
        self._used = False
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        #: The number of steps in a row with finite gradients.
        self._growth_tracker = 0
        #: By optimizer whose gradients were unscaled since the last update: whether it has made its
        #: step, and whether a gradient was not finite.
        self._seen: WeakKeyDictionary[Optimizer, tuple[bool, bool | None]] = WeakKeyDictionary()

    def scale(self, outputs: object) -> Any:
        """Multiply a loss, or each loss of an iterable, by the scale."""
        if not self._enabled:
            return outputs
        self._used = True
        if isinstance(outputs, Variable):
            if not outputs.ndim and outputs.dtype.itemsize == 2:  # type: ignore[attr-defined]
                # PyTorch's scale is a float32 tensor: half precision could not hold the product.
                outputs = outputs.to(np.float32)  # type: ignore[attr-defined]
            return outputs * self._factor(outputs)
        if not isinstance(outputs, Iterable):
            raise ValueError("outputs must be a Tensor or an iterable of Tensors")
        scaled = map(self.scale, outputs)
        return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else scaled

    def _factor(self, outputs: Any) -> Any:
        """The scale; a tensor of it in a recorded call, whose replays read the scale anew."""
        recorder, metadata = current().recorder, outputs._metadata
        if recorder is None:
            return self._scale
        if metadata.dtype not in {np.dtype("float32"), np.dtype("float64")}:
            unrepeatable(f"scales a loss of {metadata.dtype}")
            return self._scale
        F = metadata.F
        array = made_anew(recorder, partial(self._as_array, F.xp, metadata.dtype))
        return wrap(array, F.metadata_of(array))

    def _as_array(self, xp: Library, dtype: np.dtype[Any]) -> Any:
        self._used = True
        return xp.asarray(self._scale, dtype)

    @called_anew
    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of an optimizer's parameters by the scale, to clip them afterwards.

        Raises:
            RuntimeError: if `unscale_` or `step` was called since the last update.
            AssertionError: if no loss was scaled.
            TypeError: for an optimizer of parts on workers.
            ValueError: for gradients of float16.
        """
        if not self._enabled:
            return
        self._check_used("unscale_")
        if optimizer in self._seen:
            stepped, _ = self._seen[optimizer]
            raise RuntimeError(
                "unscale_() is being called after step()."
                if stepped
                else "unscale_() has already been called on this optimizer since the last update()."
            )
        self._seen[optimizer] = False, self._unscale(optimizer)

    def _check_used(self, name: str) -> None:
        check_awaited(f"GradScaler.{name}")
        if not self._used:
            raise AssertionError(
                f"Attempted {name} but _scale is None. This may indicate your script did not use "
                f"scaler.scale(loss or outputs) earlier in the iteration."
            )

    def _unscale(self, optimizer: Optimizer) -> bool | None:
        """Divide the gradients by the scale; whether one was not finite, None without gradients."""
        if not hasattr(optimizer, "param_groups"):
            raise TypeError(
                f"GradScaler: {class_of(optimizer)} has no param_groups, as an Optimizer has. One "
                f"of parts on several machines takes no scaler, as workers would not agree to skip "
                f"a step: train in float32 or bfloat16 there"
            )
        leaves = [p for group in optimizer.param_groups for p in group["params"]]
        gradients = [p.grad for p in leaves if p.grad is not None]
        if any(gradient.dtype == np.float16 for gradient in gradients):
            raise ValueError("Attempting to unscale FP16 gradients.")
        infinite = None
        with no_grad():
            for gradient in gradients:
                values = gradient._array.values if gradient.is_sparse else gradient._array
                finite = bool(gradient._metadata.F.xp.isfinite(values).all())
                infinite = bool(infinite) or not finite
                gradient.mul_(1 / self._scale)
        return infinite

    @called_anew
    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """Call an optimizer's `step`, unless a gradient is infinite or NaN.

        Args:
            optimizer: its gradients are divided by the scale if `unscale_` has not done so.
            args, kwargs: arguments of its `step`.

        Raises:
            RuntimeError: if `step` was called since the last update, or for a closure (as PyTorch).
            AssertionError: if the optimizer has no gradients, or no loss was scaled.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._check_used("step")
        if optimizer not in self._seen:
            self.unscale_(optimizer)
        stepped, infinite = self._seen[optimizer]
        if stepped:
            raise RuntimeError("step() has already been called since the last update().")
        if infinite is None:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        found = None if infinite else optimizer.step(*args, **kwargs)
        self._seen[optimizer] = True, infinite
        return found

    @called_anew
    def update(self, new_scale: float | None = None) -> None:
        """Set the scale of the next pass.

        Args:
            new_scale: the scale; None lets the scaler choose.

        Raises:
            AssertionError: if no optimizer's gradients were checked since the last update.
        """
        if not self._enabled:
            return
        self._check_used("update")
        found = [infinite for _, infinite in self._seen.values() if infinite is not None]
        if new_scale is not None:
            self._scale = float(new_scale)
        elif not found:
            raise AssertionError("No inf checks were recorded prior to update.")
        elif any(found):
            self._scale *= self._backoff_factor
            self._growth_tracker = 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self._growth_interval:
                grown = self._scale * self._growth_factor
                if math.isfinite(grown) and grown <= np.finfo(np.float32).max:
                    self._scale = grown
                self._growth_tracker = 0
        self._seen.clear()

    def get_scale(self) -> float:
        """The scale; 1 if the scaler is disabled."""
        return self._scale if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        """The factor by which the scale grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set the factor by which the scale grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """The factor by which the scale is multiplied after a non-finite gradient."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set the factor by which the scale is multiplied after a non-finite gradient."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """The number of steps in a row with finite gradients before the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set the number of steps in a row with finite gradients before the scale grows."""
        self._growth_interval = new_interval

    def is_enabled(self) -> bool:
        """Whether the scaler is enabled."""
        return self._enabled

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is known of optimizers.

        Raises:
            AssertionError: between an optimizer's gradients and `update`.
        """
        if self._seen:
            raise AssertionError(
                "A GradScaler instance may only be pickled at the beginning of an iteration, or at "
                "the end after scaler.update()."
            )
        return {key: value for key, value in vars(self).items() if key != "_seen"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _seen=WeakKeyDictionary())

    def state_dict(self) -> dict[str, Any]:
        """Scale, factors and counts; empty if the scaler is disabled."""
        if not self._enabled:
            return {}
        return {name: getattr(self, attribute) for name, attribute in _STATE.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state; does nothing if the scaler is disabled.

        Raises:
            RuntimeError: if the state is empty.
        """
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled "
                "instance of GradScaler."
            )
        vars(self).update({_STATE[name]: state_dict[name] for name in _STATE})
