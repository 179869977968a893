"""What is called before and after what a module does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.nn.hooks import ForwardHook, on_node, register
from asyncgrad.nn.module_tree import Members

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.core.hooks import Hooks, RemovableHandle

#: The tables of hooks that every module has.
HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks",
    "_state_dict_pre_hooks", "_state_dict_hooks", "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)  # fmt: skip


class Hooked(Members):
    """The hooks of a module. `Module` alone inherits it."""

    _forward_hooks: Hooks
    _forward_pre_hooks: Hooks
    _backward_hooks: Hooks
    _backward_pre_hooks: Hooks
    _state_dict_pre_hooks: Hooks
    _state_dict_hooks: Hooks
    _load_state_dict_pre_hooks: Hooks
    _load_state_dict_post_hooks: Hooks

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call a function before `forward`; what it returns takes the place of the arguments.

        Args:
            hook: of the module and the positional arguments (and the keyword arguments).
            prepend: before the hooks that are there already.
            with_kwargs: the hook is also given the keyword arguments, and returns a pair.
        """
        return register(self._forward_pre_hooks, ForwardHook(hook, with_kwargs), prepend=prepend)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Call a function after `forward`; what it returns takes the place of the output.

        Args:
            hook: of the module, the positional arguments (the keyword arguments) and the output.
            prepend: before the hooks that are there already.
            with_kwargs: the hook is also given the keyword arguments.
            always_call: the hook is called with None if `forward` or a hook before it fails.
        """
        entry = ForwardHook(hook, with_kwargs, always_call)
        return register(self._forward_hooks, entry, prepend=prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call a function with the gradients of the module's last node, which PyTorch discourages.

        See `register_full_backward_hook`, which knows the module's arguments.

        Args:
            hook: of the module, the gradients of the node's inputs and those of its outputs; what
                it returns takes the place of the inputs' gradients.

        Raises:
            RuntimeError: if the module has full backward hooks.
        """
        return register(self._forward_hooks, on_node(self, hook))  # type: ignore[arg-type]

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call a function when the gradients of the module's outputs have arrived in a pass.

        Args:
            hook: a function or coroutine function of the module and a tuple of gradients, None
                for outputs without one; what it returns takes the place of the gradients.
            prepend: before the hooks that are there already.
        """
        return register(self._backward_pre_hooks, hook, prepend=prepend)

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call a function when the gradients of the module's positional arguments are there.

        Args:
            hook: a function or coroutine function of the module, the gradients of the arguments
                and those of the outputs, as tuples with None for what has none; what it returns
                takes the place of the arguments' gradients.
            prepend: before the hooks that are there already.
        """
        return register(self._backward_hooks, hook, prepend=prepend)

    def register_state_dict_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Call a function of the module, the prefix and `keep_vars` before its state is saved."""
        return register(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Call a function when the state of the module and of all below it has been saved.

        Args:
            hook: of the module, the state dict, which it may change, the prefix and the module's
                own metadata; it returns nothing.
        """
        return register(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Call a function before the module takes its state out of a state dict.

        Args:
            hook: of the module, the state dict of this module and all below it, which it may
                change, the prefix, the module's saved metadata, `strict`, and the lists of missing
                keys, unexpected keys and errors.
        """
        return register(self._load_state_dict_pre_hooks, hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Call a function when the module and all below it have taken their state.

        Args:
            hook: of the module and what `load_state_dict` will return, whose lists it may change.
        """
        return register(self._load_state_dict_post_hooks, hook)
