"""Registration of a module's hooks: forward, backward and state-dict hooks."""

from __future__ import annotations

from asyncgrad.core.hooks import Hooks, RemovableHandle
from asyncgrad.nn.hooks import Hook, HookOnNode, forward_hook, register
from asyncgrad.nn.module_tree import Members

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
