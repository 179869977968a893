"""Hooks of optimisers: before and after a step, `state_dict` and `load_state_dict`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from asyncgrad.core.hooks import Hooks, RemovableHandle
from asyncgrad.core.modes import current
from asyncgrad.core.recording import unrepeatable
from asyncgrad.nn.hooks import Hook, register
from asyncgrad.scheduler import waits

#: Hooks of all optimisers.
_BEFORE_ALL: Hooks = {}
_AFTER_ALL: Hooks = {}


def register_optimizer_step_pre_hook(hook: Hook) -> RemovableHandle:
    """Call a function before each step of any optimiser: see `register_step_pre_hook`."""
    return RemovableHandle(_BEFORE_ALL, hook)


def register_optimizer_step_post_hook(hook: Hook) -> RemovableHandle:
    """Call a function after each step of any optimiser: see `register_step_post_hook`."""
    return RemovableHandle(_AFTER_ALL, hook)


class Hooked:
    """The hooks of an optimiser; a base class of `Optimizer` only."""

    _pre_hooks: Hooks
    _post_hooks: Hooks
    _state_pre_hooks: Hooks
    _state_post_hooks: Hooks
    _load_pre_hooks: Hooks
    _load_post_hooks: Hooks
    #: The number of steps taken; schedules use it to warn about a wrong order of calls.
    steps_taken = 0
    #: Whether the `step` of a subclass, which calls hooks, awaits its parent's `step_async`.
    _hooks_called_by_step = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Have a `step` that a subclass or its mixin defines be counted, call hooks, be awaited."""
        super().__init_subclass__(**kwargs)
        owner = next((base for base in cls.__mro__ if "step" in vars(base)), Hooked)
        if owner is cls or not issubclass(owner, Hooked):
            step = _between_hooks(vars(owner)["step"])
            cls.step = step  # type: ignore[attr-defined]
            own = "step_async" in vars(owner)
            cls._hooks_called_by_step = not own or inspect.iscoroutinefunction(step)
            if not own:
                cls.step_async = _awaiting(step)  # type: ignore[attr-defined]

    def register_step_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call a function before each step.

        Args:
            hook: takes the optimiser, the step's positional arguments (the optimiser first) and its
                keyword arguments; it may return a pair of new arguments.
        """
        return RemovableHandle(self._pre_hooks, hook)

    def register_step_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call a function after each step, with what `register_step_pre_hook` says."""
        return RemovableHandle(self._post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call a function with the optimiser before each `state_dict`."""
        return register(self._state_pre_hooks, hook, prepend=prepend)

    def register_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call a function with the optimiser and its state dict; it may return another one."""
        return register(self._state_post_hooks, hook, prepend=prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Hook, prepend: bool = False
    ) -> RemovableHandle:
        """Call a function with the optimiser and the state dict to load; it may return another."""
        return register(self._load_pre_hooks, hook, prepend=prepend)

    def register_load_state_dict_post_hook(
        self, hook: Hook, prepend: bool = False
    ) -> RemovableHandle:
        """Call a function with the optimiser after each `load_state_dict`."""
        return register(self._load_post_hooks, hook, prepend=prepend)

    def _steps_have_hooks(self) -> bool:
        """Whether a step calls hooks."""
        own = vars(self)
        return bool(own.get("_pre_hooks") or own.get("_post_hooks") or _BEFORE_ALL or _AFTER_ALL)

    def _before(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Call the pre-hooks; returns the step's arguments, which hooks may have replaced."""
        for hook in (*_BEFORE_ALL.values(), *getattr(self, "_pre_hooks", {}).values()):
            result = hook(self, args, kwargs)
            if result is None:
                continue
            if not (isinstance(result, tuple) and len(result) == 2):
                raise RuntimeError(
                    f"{type(self).__name__}.step: a hook before the step must return None or a "
                    f"tuple of (new_args, new_kwargs), but got {result}."
                )
            args, kwargs = result
        return args, kwargs

    def _through(self, hooks: Hooks, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Call hooks with a state dict; returns the one that they have put in its place."""
        for hook in tuple(hooks.values()):
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        return state_dict

    def _after(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.steps_taken += 1
        for hook in (*getattr(self, "_post_hooks", {}).values(), *_AFTER_ALL.values()):
            hook(self, args, kwargs)


#: The attributes of an optimiser that hold hooks.
HOOKS = tuple(Hooked.__annotations__)


def _between_hooks(step: Any) -> Any:
    """Add hooks to a `step`; they run only once if a subclass's `step` calls its parent's."""

    @functools.wraps(step)
    def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = current().recorder
        if recorder is not None:
            return recorder.again(hooked, (self, *args), kwargs, True)
        if type(self).step is not hooked:
            return step(self, *args, **kwargs)
        args, kwargs = self._before((self, *args), kwargs)
        result = step(*args, **kwargs)
        self._after(args, kwargs)
        return result

    @functools.wraps(step)
    async def hooked_async(self: Any, *args: Any, **kwargs: Any) -> Any:
        unrepeatable("awaits a step of an optimizer")
        if type(self).step is not hooked_async:
            return await step(self, *args, **kwargs)
        args, kwargs = self._before((self, *args), kwargs)
        result = await step(*args, **kwargs)
        self._after(args, kwargs)
        return result

    return hooked_async if inspect.iscoroutinefunction(step) else hooked


def _awaiting(step: Any) -> Any:
    """The `step_async` of a class that defines `step`."""

    async def step_async(self: Any, closure: Callable[[], Any] | None = None) -> Any:
        """Call `step` on the event loop, and await it if it is a coroutine function.

        A closure that is a coroutine function is awaited before the step, which gets no closure.
        """
        self._check_awaited("step_async")
        unrepeatable("calls step_async()")
        if closure is None or not waits(closure):
            result = step(self) if closure is None else step(self, closure)
            return await result if inspect.isawaitable(result) else result
        loss = await self._evaluate_async(closure)
        result = step(self)
        if inspect.isawaitable(result):
            await result
        return loss

    return step_async
