"""The L-BFGS optimiser, a quasi-Newton method."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any

import numpy as np

from asyncgrad.choices import LineSearch
from asyncgrad.core.variable import Variable, wrap
from asyncgrad.ops.namespace import metadata_of
from asyncgrad.ops.tensors.sparse_rows import Rows
from asyncgrad.ops.widening import widened
from asyncgrad.optim.line_search import Point, strong_wolfe
from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.optim.updates import Params, Rate, check_option, put_values
from asyncgrad.scheduler import offload
from asyncgrad.types import Array, Tensor

#: `step_async` uses a thread if it expects more nanoseconds than this between two losses.
_WORTH_A_THREAD = 250_000
#: Marks the end of the iterations.
_OVER = object()


class LBFGS(Optimizer):
    """A quasi-Newton method that estimates the curvature from the last gradients.

    A step calls its closure several times. Before each call, the parameters are set to the values
    at which the loss is needed; with `step_async`, other tasks see these values. If a step fails or
    is cancelled, parameters and state are again what they were before it.

    Args:
        params: parameters on a single device; there can be only one group.
        lr: the factor of each quasi-Newton step.
        max_iter: the greatest number of iterations in a step.
        max_eval: the greatest number of closure calls in a step; 5/4 of `max_iter` if None.
        tolerance_grad: a step ends when no element of the gradient is greater.
        tolerance_change: a step ends when neither the loss nor a parameter changes by more.
        history_size: the number of gradients kept to estimate the curvature.
        line_search_fn: "strong_wolfe" to search along each direction, or None.

    Raises:
        ValueError: if `lr` is negative or there are several groups.
        RuntimeError: in a step, for another `line_search_fn`.

    Example:
        >>> x = ag.tensor([3.0, 4.0], requires_grad=True)
        >>> optimizer = ag.optim.LBFGS([x], line_search_fn="strong_wolfe")
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = ((x - 1.0) ** 2).sum()
        ...     loss.backward()
        ...     return loss
        >>> loss = optimizer.step(closure)
        >>> x
        tensor([1.0000, 1.0000], requires_grad=True)
    """

    def __init__(
        self, params: Params, lr: Rate = 1, max_iter: int = 20, max_eval: int | None = None,
        tolerance_grad: float = 1e-7, tolerance_change: float = 1e-9, history_size: int = 100,
        line_search_fn: LineSearch | None = None,
    ) -> None:  # fmt: skip
        check_option("learning rate", lr)
        self._declare({**locals(), "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval})
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore state and options, except while a task awaits `step_async`.

        Raises:
            RuntimeError: while another task awaits `step_async`, which goes on with the old state.
        """
        self._refuse_to_meet("load_state_dict", "Load before or after the step.")
        super().load_state_dict(state_dict)

    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Iterate until the step converges or reaches its limits; return the first loss.

        It takes what `Optimizer.step` takes, and raises what that raises.

        Raises:
            PendingBackwardError: if this task has not awaited a pass that it started.
            RuntimeError: while another task's `step_async` is not complete.
        """
        self._check_awaited("step")
        if self._stepping is not None:
            self._refuse_to_meet("step", "Write `await optimizer.step_async()`.")
        first = loss = None
        with closing(self._iterations()) as iterations:
            next(iterations)
            while loss is not _OVER:
                loss = self._evaluate(closure)
                first = loss if first is None else first
                loss = _advance(iterations, float(loss))
            next(iterations, None)
        return first

    async def step_async(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Iterate as `step` does, without blocking the event loop: see `Optimizer.step_async`.

        Raises:
            PendingBackwardError: if this task has not awaited a pass that it started.
        """
        self._check_awaited("step_async")
        hooks = not self._hooks_called_by_step
        async with self._alone():
            if hooks:
                self._before((self, closure), {})
            first = await self._iterate(closure)
        if hooks:
            self._after((self, closure), {})
        return first

    async def _iterate(self, closure: Callable[[], Any]) -> Any:
        first = loss = None
        size = sum(p._metadata.size for p in self.param_groups[0]["params"])
        with closing(self._iterations()) as iterations:
            next(iterations)
            while loss is not _OVER:
                loss = await self._evaluate_async(closure)
                first = loss if first is None else first
                remembered = len(self._state().get("old_dirs", ()))
                if size * (4 * remembered + 8) < _WORTH_A_THREAD:
                    loss = _advance(iterations, float(loss))
                    continue
                self._in_thread = True
                try:
                    loss = await offload(_advance, iterations, float(loss))
                finally:
                    self._in_thread = False
            next(iterations, None)
        return first

    def _state(self) -> dict[str, Any]:
        """The state shared by all parameters, kept under the first one."""
        return self.state[self.param_groups[0]["params"][0]]

    def _iterations(self) -> Generator[Any, float, None]:
        """The iterations of a step, which undo it if they do not come to their end.

        After the last one, `_OVER` is yielded: the step can still be cancelled.
        """
        parameters, state = self.param_groups[0]["params"], self._state()
        old_values, old_state = [p._array.copy() for p in parameters], state.copy()
        try:
            yield from self._minimise()
            yield _OVER
        except BaseException:
            for parameter, values in zip(parameters, old_values, strict=True):
                put_values(parameter, values)
            state.clear()
            state.update(old_state)
            raise

    def _minimise(self) -> Generator[None, float, None]:
        """Iterate; each `yield` waits for the loss and gradients at the current values."""
        group = self.param_groups[0]
        parameters = group["params"]
        tolerance = group["tolerance_change"]
        state = self._state()
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        loss = yield
        gradient = _flat_gradient(parameters)
        calls = 1
        state["func_evals"] += 1
        memory = _Memory(state, parameters)
        for iteration in range(1, group["max_iter"] + 1):
            if _largest(gradient) <= group["tolerance_grad"]:
                break
            if iteration > 1 and (
                calls >= group["max_eval"]
                or _largest(memory.direction) * abs(memory.length) <= tolerance
                or abs(loss - memory.loss) < tolerance
            ):
                break
            state["n_iter"] += 1
            length = float(group["lr"])
            if state["n_iter"] == 1:
                memory.start(gradient)
                length *= min(1.0, 1.0 / float(abs(gradient).sum()))
            else:
                memory.turn(gradient, group["history_size"])
            memory.gradient, memory.loss, memory.length = gradient.copy(), loss, length
            direction = memory.direction
            slope = float(gradient @ direction)
            if slope > -tolerance:
                break
            start = [parameter._array.copy() for parameter in parameters]
            if group["line_search_fn"] is None:
                _move(parameters, start, length, direction)
                if iteration == group["max_iter"]:
                    break
                loss = yield
                gradient = _flat_gradient(parameters)
                tried = 1
            elif group["line_search_fn"] == "strong_wolfe":
                best, tried = yield from strong_wolfe(
                    lambda at, start=start, direction=direction: _evaluate(  # type: ignore[misc]
                        parameters, start, at, direction
                    ),
                    Point(0.0, loss, gradient, slope),
                    length,
                    _largest(direction),
                    group["max_eval"] - calls,
                )
                loss, gradient, memory.length = best.loss, best.gradient, best.at
                _move(parameters, start, best.at, direction)
            else:
                raise RuntimeError(
                    f"LBFGS: only 'strong_wolfe' is supported as line_search_fn, not "
                    f"{group['line_search_fn']!r}"
                )
            calls += tried
            state["func_evals"] += tried
        memory.save(state)


class _Memory:
    """The estimate of the curvature, and the last step."""

    def __init__(self, state: dict[str, Any], parameters: list[Tensor]) -> None:
        self._device = parameters[0]._metadata.device
        self.direction = _raw(state.get("d"))
        self.length = float(state.get("t") or 0.0)
        self.gradient = _raw(state.get("prev_flat_grad"))
        self.loss = float(state.get("prev_loss") or 0.0)
        #: The changes of the gradient, and the steps that caused them, oldest first.
        self._changes = [_raw(change) for change in state.get("old_dirs") or ()]
        self._steps = [_raw(step) for step in state.get("old_stps") or ()]
        self._factors = [float(factor) for factor in state.get("ro") or ()]
        self._scale = float(state.get("H_diag") or 1.0)

    def start(self, gradient: Array) -> None:
        """Forget the curvature and choose steepest descent."""
        self.direction = -gradient
        self._changes, self._steps, self._factors = [], [], []
        self._scale = 1.0

    def turn(self, gradient: Array, most: int) -> None:
        """Update the curvature from the last step, and choose the next direction."""
        change = gradient - self.gradient
        step = self.direction * self.length
        product = float(change @ step)
        if product > 1e-10:
            if len(self._changes) == most:
                for table in (self._changes, self._steps, self._factors):
                    table.pop(0)
            self._changes.append(change)
            self._steps.append(step)
            self._factors.append(1.0 / product)
            self._scale = product / float(change @ change)
        weights = []
        direction = -gradient
        known = list(zip(self._changes, self._steps, self._factors, strict=True))
        for change, step, factor in reversed(known):
            weight = float(step @ direction) * factor
            weights.append(weight)
            direction -= weight * change
        direction *= self._scale
        for (change, step, factor), weight in zip(known, reversed(weights), strict=True):
            direction += (weight - float(change @ direction) * factor) * step
        self.direction = direction

    def save(self, state: dict[str, Any]) -> None:
        """Write to a state dict, with PyTorch's names."""
        if self.direction is None:
            return

        def kept(array: Array) -> Any:
            return wrap(array, metadata_of(array, self._device))

        state["d"] = kept(self.direction)
        state["t"] = self.length
        state["old_dirs"] = [kept(change) for change in self._changes]
        state["old_stps"] = [kept(step) for step in self._steps]
        state["ro"] = list(self._factors)
        state["H_diag"] = self._scale
        state["prev_flat_grad"] = kept(self.gradient)
        state["prev_loss"] = self.loss


def _advance(iterations: Generator[Any, float, None], loss: float) -> Any:
    """Send a loss to the iterations; returns `_OVER` after the last one."""
    with np.errstate(all="ignore"):
        return iterations.send(loss)


def _raw(value: Tensor | Array | None) -> Any:
    return widened(value._array if isinstance(value, Variable) else value)


def _largest(vector: Array) -> float:
    return float(abs(vector).max()) if vector.size else 0.0


def _flat_gradient(parameters: list[Tensor]) -> Any:
    """All gradients as one new vector; complex elements become pairs of numbers.

    Half precision becomes float32, since its sums would overflow or stand still.
    """
    pieces = []
    for parameter in parameters:
        xp = parameter._metadata.F.xp
        meta = parameter._autograd
        # Read it once: another task may drop the gradient meanwhile.
        grad = None if meta is None else meta.grad
        if grad is None:
            array = xp.zeros_like(parameter._array)
        else:
            array = grad._array
            array = array.dense() if array.__class__ is Rows else array
        array = widened(xp.ascontiguousarray(array).reshape(-1))
        pieces.append(array.view(array.real.dtype) if array.dtype.kind == "c" else array)
    return xp.concatenate(pieces)


def _evaluate(
    parameters: list[Tensor], start: list[Array], at: float, direction: Array
) -> Generator[None, float, Point]:
    """Move the parameters along a direction, and return the point there."""
    _move(parameters, start, at, direction)
    loss = yield
    gradient = _flat_gradient(parameters)
    return Point(at, loss, gradient, float(gradient @ direction))


def _move(parameters: list[Tensor], start: list[Array], length: float, direction: Array) -> None:
    """Set the parameters to `start + length * direction`; held parameters get new memory."""
    place = 0
    for parameter, origin in zip(parameters, start, strict=True):
        many = origin.size * (2 if origin.dtype.kind == "c" else 1)
        step = (length * direction[place : place + many]).astype(origin.real.dtype, copy=False)
        values = origin + step.view(origin.dtype).reshape(origin.shape)
        place += many
        put_values(parameter, values)
