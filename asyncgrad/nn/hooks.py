"""Calls of modules that have hooks."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from asyncgrad.core.hooks import RemovableHandle
from asyncgrad.nn.backward_hooks import BackwardHooks
from asyncgrad.records import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.core.hooks import Hooks
    from asyncgrad.nn.module import Module


class ForwardHook(NamedTuple):
    """A hook, and how it wants to be called."""

    function: Callable[..., Any]
    with_kwargs: bool
    always_call: bool = False


def register(hooks: Hooks, hook: Any, *, prepend: bool = False) -> RemovableHandle:
    """Add a hook, last or first."""
    before = list(hooks)
    handle = RemovableHandle(hooks, hook)
    if prepend:
        for key in before:
            hooks[key] = hooks.pop(key)
    return handle


def registered_anew(hooks: Hooks) -> Hooks:
    """The hooks under keys that this process has given out."""
    renewed: Hooks = {}
    for hook in hooks.values():
        RemovableHandle(renewed, hook)
    return renewed


class HookedCall:
    """One call of a module that has hooks."""

    __slots__ = ("_args", "_backward", "_called", "_kwargs", "_module")

    def __init__(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Prepare the call."""
        self._module = module
        self._args = args
        self._kwargs = kwargs
        self._backward: BackwardHooks | None = None
        #: The keys of the hooks after `forward` that were called.
        self._called: set[int] = set()

    def run(self) -> Any:
        """Compute; where `forward` is a coroutine function, a coroutine that does."""
        try:
            for hook in tuple(self._module._forward_pre_hooks.values()):
                self._before(hook)
            if self._module._backward_hooks or self._module._backward_pre_hooks:
                self._backward = BackwardHooks(self._module)
                self._args = self._backward.around_inputs(self._args)
            output = self._module.forward(*self._args, **self._kwargs)
            return self._wait(output) if inspect.iscoroutine(output) else self._after(output)
        except BaseException:
            self._failed()
            raise

    async def _wait(self, output: Any) -> Any:
        try:
            return self._after(await output)
        except BaseException:
            self._failed()
            raise

    def _before(self, hook: ForwardHook) -> None:
        """Take the arguments as a hook leaves them."""
        if not hook.with_kwargs:
            result = hook.function(self._module, self._args)
            if result is not None:
                self._args = result if isinstance(result, tuple) else (result,)
            return
        result = hook.function(self._module, self._args, self._kwargs)
        if result is None:
            return
        if not (isinstance(result, tuple) and len(result) == 2):
            raise RuntimeError(
                f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got "
                f"{result}."
            )
        self._args, self._kwargs = result

    def _after(self, output: Any) -> Any:
        """The output as the hooks leave it."""
        for key, hook in tuple(self._module._forward_hooks.items()):
            self._called.add(key)
            result = self._call(hook, output)
            output = output if result is None else result
        return output if self._backward is None else self._backward.around_outputs(output)

    def _failed(self) -> None:
        """After an error: call the hooks that want to be called in any case."""
        for key, hook in tuple(self._module._forward_hooks.items()):
            if hook.always_call and key not in self._called:
                self._called.add(key)
                self._call(hook, None)

    def _call(self, hook: ForwardHook, output: Any) -> Any:
        if hook.with_kwargs:
            return hook.function(self._module, self._args, self._kwargs, output)
        return hook.function(self._module, self._args, output)
