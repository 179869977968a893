"""Hooks of modules: their registration, and calls of modules that have some."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from asyncgrad.core.frames import warn
from asyncgrad.core.hooks import Hooks, RemovableHandle
from asyncgrad.core.variable import Variable
from asyncgrad.nn.backward_hooks import BackwardHooks
from asyncgrad.nn.module_tree import Members
from asyncgrad.records import NamedTuple

#: The functions that PyTorch has in `torch.nn.modules.module`.
__all__ = [
    "register_module_backward_hook", "register_module_forward_hook",
    "register_module_forward_pre_hook", "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
]  # fmt: skip


#: A hook of a module or an optimiser; what it is called with, its registration says.
Hook: TypeAlias = Callable[..., Any]


class ForwardHook(NamedTuple):
    """A forward hook or pre-hook with options; one without is held as it is, as in PyTorch."""

    function: Hook
    with_kwargs: bool
    always_call: bool


def forward_hook(hook: Hook, with_kwargs: bool, always_call: bool = False) -> Hook | ForwardHook:
    """The hook, with its options if it has any."""
    return ForwardHook(hook, with_kwargs, always_call) if with_kwargs or always_call else hook


def register(hooks: Hooks, hook: object, *, prepend: bool = False) -> RemovableHandle:
    """Add a hook after all others or, with `prepend`, before them."""
    before = list(hooks)
    handle = RemovableHandle(hooks, hook)
    if prepend:
        for key in before:
            hooks[key] = hooks.pop(key)
    return handle


def registered_anew(hooks: Hooks) -> Hooks:
    """The same hooks under new keys, which are unique in this process."""
    renewed: Hooks = {}
    for hook in hooks.values():
        RemovableHandle(renewed, hook)
    return renewed


class HookOnNode:
    """A forward hook that registers another on the output's `grad_fn`: PyTorch's older hooks."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook

    def __call__(self, module: Members, args: Any, output: Any) -> None:
        """Register the hook on the node of the first tensor in the output."""
        while not isinstance(output, Variable):
            output = next(iter(output.values())) if isinstance(output, dict) else output[0]
        node = output.grad_fn  # type: ignore[attr-defined]
        if node is not None:
            node.register_hook(partial(self._hook, module))


_BOTH = (
    "Cannot use both regular backward hooks and full backward hooks on a single Module. Please use "
    "only one of them."
)


class Hooked(Members):
    """The hooks of a module. Only `Module` inherits from it."""

    _forward_hooks: Hooks
    _forward_pre_hooks: Hooks
    _backward_hooks: Hooks
    _backward_pre_hooks: Hooks
    _state_dict_pre_hooks: Hooks
    _state_dict_hooks: Hooks
    _load_state_dict_pre_hooks: Hooks
    _load_state_dict_post_hooks: Hooks

    def register_forward_pre_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call a function before `forward`; its result, unless None, replaces the arguments.

        Args:
            hook: gets the module and the positional arguments (and the keyword arguments).
            prepend: before the hooks that are there already.
            with_kwargs: the hook also gets the keyword arguments, and returns a pair.
        """
        return register(self._forward_pre_hooks, forward_hook(hook, with_kwargs), prepend=prepend)

    def register_forward_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:  # fmt: skip
        """Call a function after `forward`; its result, unless None, replaces the output.

        Args:
            hook: gets the module, positional arguments (keyword arguments) and output.
            with_kwargs: the hook is also given the keyword arguments.
            always_call: call the hook even if `forward` raises, with None, or an earlier hook, with
                the output so far. If the hook raises, too, that is a warning.
        """
        entry = forward_hook(hook, with_kwargs, always_call)
        return register(self._forward_hooks, entry, prepend=prepend)

    def register_backward_hook(self, hook: Hook) -> RemovableHandle:
        """Call a function with the gradients of the output's node, which PyTorch discourages.

        See `register_full_backward_hook`, which knows the module's arguments; a module can't have
        hooks of both kinds.

        Args:
            hook: gets the module, the gradients of the node's inputs and those of its outputs;
                its result, unless None, replaces the inputs' gradients.

        Raises:
            RuntimeError: if the module has full backward hooks.
        """
        if self._backward_hooks:
            raise RuntimeError(_BOTH)
        return register(self._forward_hooks, HookOnNode(hook))

    def register_full_backward_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call a function once a pass has computed the gradients of the module's outputs.

        Args:
            hook: a function or coroutine function of the module and a tuple of gradients, None
                for outputs without one; its result, unless None, replaces the gradients.
        """
        return register(self._backward_pre_hooks, hook, prepend=prepend)

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call a function once a pass has computed the gradients of the positional arguments.

        Args:
            hook: a function or coroutine function of the module, the gradients of the arguments
                and those of the outputs, as tuples with None where there is no gradient; its
                result, unless None, replaces the arguments' gradients.

        Raises:
            RuntimeError: if the module has hooks of `register_backward_hook`.
        """
        if any(isinstance(hook, HookOnNode) for hook in self._forward_hooks.values()):
            raise RuntimeError(_BOTH)
        return register(self._backward_hooks, hook, prepend=prepend)

    def register_state_dict_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call a function of the module, the prefix and `keep_vars` before its state is saved."""
        return register(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call a function after the state of the module and all submodules has been saved.

        Args:
            hook: gets the module, the state dict, which it may change, the prefix and the module's
                own metadata; it returns nothing.
        """
        return register(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call a function before the module loads its state from a state dict.

        Args:
            hook: gets the module, the state dict of this module and its submodules, which it may
                change, the prefix, the module's saved metadata, `strict`, and the lists of missing
                keys, unexpected keys and errors.
        """
        return register(self._load_state_dict_pre_hooks, hook)

    def register_load_state_dict_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call a function after the module and all submodules have loaded their state.

        Args:
            hook: gets the module and the result of `load_state_dict`, whose lists it may change.
        """
        return register(self._load_state_dict_post_hooks, hook)


#: The tables of hooks that every module has.
HOOKS = tuple(Hooked.__annotations__)


# -- hooks of all modules -------------------------------------------------------------------------

#: Hooks of all modules, by key: the table whose hooks it precedes, and the hook.
EVERYWHERE: Hooks = {}


def hooks_of(module: Members, table: str) -> dict[Any, Any]:
    """By key, the hooks of all modules and then those of `module`."""
    own: dict[Any, Any] = getattr(module, table)
    if not EVERYWHERE or module._stands_for_another:
        return dict(own)
    return {key: hook for key, (where, hook) in EVERYWHERE.items() if where == table} | own


def register_module_forward_pre_hook(hook: Hook) -> RemovableHandle:
    """Call a function before each module's `forward`: see `Module.register_forward_pre_hook`."""
    return RemovableHandle(EVERYWHERE, ("_forward_pre_hooks", hook))


def register_module_forward_hook(
    hook: Hook, *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call a function after each module's `forward`: see `Module.register_forward_hook`."""
    entry = forward_hook(hook, with_kwargs, always_call)
    return RemovableHandle(EVERYWHERE, ("_forward_hooks", entry))


def register_module_full_backward_pre_hook(hook: Hook) -> RemovableHandle:
    """Hook each module's output gradients: see `Module.register_full_backward_pre_hook`."""
    return RemovableHandle(EVERYWHERE, ("_backward_pre_hooks", hook))


def register_module_full_backward_hook(hook: Hook) -> RemovableHandle:
    """Hook each module's input gradients: see `Module.register_full_backward_hook`."""
    return RemovableHandle(EVERYWHERE, ("_backward_hooks", hook))


def register_module_backward_hook(hook: Hook) -> RemovableHandle:
    """Hook each module's last node: see `Module.register_backward_hook`."""
    return RemovableHandle(EVERYWHERE, ("_forward_hooks", HookOnNode(hook)))


class HookedCall:
    """One call of a module that has hooks."""

    __slots__ = ("_args", "_backward", "_called", "_kwargs", "_module", "_output")

    def __init__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._module = module
        self._args = args
        self._kwargs = kwargs
        self._backward: BackwardHooks | None = None
        #: What the forward hooks called so far have left; None before `forward` has returned.
        self._output: Any = None
        #: The keys of the forward hooks that have been called.
        self._called: set[int] = set()

    def run(self) -> Any:
        """Call `forward` and the hooks; return a coroutine if `forward` does."""
        try:
            for hook in hooks_of(self._module, "_forward_pre_hooks").values():
                self._before(hook)
            before, after = (
                tuple(hooks_of(self._module, table).values())
                for table in ("_backward_pre_hooks", "_backward_hooks")
            )
            if before or after:
                self._backward = BackwardHooks(self._module, before, after)
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

    def _before(self, hook: Hook | ForwardHook) -> None:
        """Call a pre-hook, which may replace the arguments."""
        if not isinstance(hook, ForwardHook):
            result = hook(self._module, self._args)
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
        """The output after the forward hooks, each of which may replace it."""
        self._output = output
        for key, hook in hooks_of(self._module, "_forward_hooks").items():
            self._call(key, hook)
        output = self._output
        return output if self._backward is None else self._backward.around_outputs(output)

    def _failed(self) -> None:
        """After an error, call the remaining hooks that have `always_call`; theirs are warnings."""
        for key, hook in hooks_of(self._module, "_forward_hooks").items():
            if isinstance(hook, ForwardHook) and hook.always_call and key not in self._called:
                try:
                    self._call(key, hook)
                except Exception as error:
                    warn(
                        f"module forward hook with ``always_call=True`` raised an exception that "
                        f"was silenced as another error was raised in forward: {error}"
                    )

    def _call(self, key: int, hook: Hook | ForwardHook) -> None:
        """Call a forward hook, which may replace the output."""
        self._called.add(key)
        kwargs: tuple[Any, ...] = ()
        if isinstance(hook, ForwardHook):
            kwargs = (self._kwargs,) if hook.with_kwargs else ()
            hook = hook.function
        result = hook(self._module, self._args, *kwargs, self._output)
        if result is not None:
            self._output = result
