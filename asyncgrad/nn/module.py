"""The base class of all modules: a tree of parameters, buffers and other modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from asyncgrad.autograd.modes import no_grad
from asyncgrad.core.variable import Variable
from asyncgrad.nn.hooks import ForwardHook, HookedCall, register, registered_anew
from asyncgrad.nn.members import Members
from asyncgrad.nn.snapshot import Snapshot
from asyncgrad.nn.state import LoadResult, StateDict, load, load_own, own_state
from asyncgrad.nn.state import unexpected_keys as find_unexpected
from asyncgrad.ops.functions.transfer import cuda_device
from asyncgrad.ops.promotion import category

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from asyncgrad.core.hooks import Hooks, RemovableHandle
    from asyncgrad.tensor import Tensor


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Module(Members):
    """A function with parameters.

    Subclasses call `super().__init__()`, assign parameters and other modules as attributes and
    define `forward`, which may be a coroutine function: then calling the module gives a coroutine.

    Example:
        >>> class Double(Module):
        ...     def forward(self, x):
        ...         return 2 * x
        >>> Double()(21)
        42
    """

    #: Is written into state dicts; a subclass that changes its state's layout raises it.
    _version: int = 1

    training: bool
    _forward_hooks: Hooks
    _forward_pre_hooks: Hooks
    _backward_hooks: Hooks
    _backward_pre_hooks: Hooks

    def __init__(self) -> None:
        """Start without parameters, in training mode."""
        vars(self).update(
            training=True,
            _parameters={},
            _buffers={},
            _non_persistent_buffers_set=set(),
            _modules={},
            _forward_hooks={},
            _forward_pre_hooks={},
            _backward_hooks={},
            _backward_pre_hooks={},
        )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes; subclasses define it."""
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute, between the hooks."""
        own = self.__dict__
        if (
            own["_forward_hooks"]
            or own["_forward_pre_hooks"]
            or own["_backward_hooks"]
            or own["_backward_pre_hooks"]
        ):
            return HookedCall(self, args, kwargs).run()
        return self.forward(*args, **kwargs)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over a pickled or copied state; hooks get new keys, which this process knows."""
        self.__dict__.update(state)
        for table in _HOOKS:
            self.__dict__[table] = registered_anew(state.get(table, {}))

    # -- changes to all ---------------------------------------------------------------------------

    def apply(self, fn: Callable[[Module], object]) -> Self:
        """Call a function with every module below this one, and with this one last."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> Self:
        """Set training mode: dropout drops, batch norms measure.

        Raises:
            ValueError: if `mode` is no bool.
        """
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Self:
        """Set evaluation mode."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Ask for gradients of all parameters, or no longer."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def snapshot(self) -> Snapshot:
        """A context manager in which this task sees the parameters with their present values.

        What other tasks' optimisers do meanwhile does not show: a forward pass that awaits
        something mixes no old weights with new ones, and its gradients are those at the weights it
        has seen. They are accumulated into the parameters' `.grad`, as ever.

        Example:
            >>> async def answer(model, question):
            ...     with model.snapshot():
            ...         return model.head(await fetch(model.body(question)))
        """
        return Snapshot(self)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or fill them with zeros."""
        for parameter in self.parameters():
            clear_gradient(parameter, set_to_none)

    def _apply(self, fn: Callable[[Tensor], Tensor]) -> Self:
        """Replace the values of all parameters, gradients and buffers by a function of them."""
        for module in self.modules():
            for parameter in module._parameters.values():
                if parameter is None:
                    continue
                with no_grad():
                    grad = parameter.grad
                    parameter.data = fn(parameter.data)
                    if grad is not None:
                        grad.data = fn(grad.data)
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = fn(buffer)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Convert in place: floating and complex tensors to a dtype, all to a device.

        Args:
            args: a dtype, a device, a device and a dtype, or a tensor that has both.
            kwargs: `device=` and `dtype=`.

        Raises:
            TypeError: if the dtype is no floating or complex one.
        """
        device, dtype = _target(*args, **kwargs)

        def convert(tensor: Tensor) -> Tensor:
            if device is not None:
                tensor = tensor.to(device)
            return tensor if dtype is None or category(tensor.dtype) < 2 else tensor.to(dtype)

        return self._apply(convert)

    def cpu(self) -> Self:
        """Move every parameter and buffer to host memory, in place."""
        return self._apply(lambda tensor: tensor.cpu())

    def cuda(self, device: Any = None) -> Self:
        """Move every parameter and buffer to a CUDA device, in place.

        Args:
            device: which one; `cuda:0` if None.

        Raises:
            RuntimeError: if there is none; nothing has been moved then.
        """
        place = cuda_device(device)
        return self._apply(lambda tensor: tensor.to(place))

    def type(self, dst_type: Any) -> Self:
        """Convert every parameter and buffer to a dtype, in place."""
        return self._apply(lambda tensor: tensor.to(dst_type))

    def float(self) -> Self:
        """Convert floating tensors to float32, in place."""
        return self.to(np.float32)

    def double(self) -> Self:
        """Convert floating tensors to float64, in place."""
        return self.to(np.float64)

    def half(self) -> Self:
        """Convert floating tensors to float16, in place."""
        return self.to(np.float16)

    # -- state ------------------------------------------------------------------------------------

    def get_extra_state(self) -> Any:
        """What a subclass wants to have in its state dict beside tensors."""
        raise NotImplementedError("a module with extra state defines get_extra_state()")

    def set_extra_state(self, state: Any) -> None:
        """Take over what `get_extra_state` gave."""
        raise NotImplementedError("a module with extra state defines set_extra_state()")

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        """Write this module's own state into a state dict."""
        for name, tensor in own_state(self).items():
            destination[prefix + name] = tensor if keep_vars else tensor.detach()
        if type(self).get_extra_state is not Module.get_extra_state:
            destination[f"{prefix}_extra_state"] = self.get_extra_state()

    def state_dict(
        self,
        *,
        destination: dict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Any]:
        """The parameters and persistent buffers by their dotted names; memory is shared.

        Args:
            destination: the dictionary to write into.
            prefix: goes before every name.
            keep_vars: the tensors themselves instead of detached ones.
        """
        if destination is None:
            destination = StateDict()
            destination._metadata = {}
        for path, module in self.named_modules(remove_duplicate=False):
            start = f"{prefix}{path}." if path else prefix
            if isinstance(destination, StateDict):
                destination._metadata[start[:-1]] = {"version": module._version}
            module._save_to_state_dict(destination, start, keep_vars)
        return destination

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Take this module's own state out of a state dict, and note what does not fit.

        Args:
            state_dict: may be changed: it has the names below `prefix` alone.
            prefix: goes before the module's own names.
            local_metadata: the version the module had when it was saved, and
                `assign_to_params_buffers`.
            strict: note what is unexpected, too.
            missing_keys: to add names to.
            unexpected_keys: to add names to.
            error_msgs: to add to what can't be loaded, and why.
        """
        assign = local_metadata.get("assign_to_params_buffers", False)
        load_own(self, state_dict, prefix, assign, missing_keys, error_msgs)
        extra = f"{prefix}_extra_state"
        if type(self).set_extra_state is not Module.set_extra_state:
            if extra in state_dict:
                self.set_extra_state(state_dict.pop(extra))
            else:
                missing_keys.append(extra)
        if strict:
            unexpected_keys += find_unexpected(self, state_dict, prefix)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> LoadResult:
        """Copy parameters and buffers from a state dict.

        Args:
            state_dict: tensors by dotted names.
            strict: names must match exactly.
            assign: keep the given tensors themselves instead of copying their values.

        Returns:
            The missing and the unexpected names.

        Raises:
            TypeError: if `state_dict` is no mapping.
            RuntimeError: if shapes, or with `strict` names, do not match.
        """
        return load(self, state_dict, strict, assign)

    # -- hooks ------------------------------------------------------------------------------------

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

    # -- words ------------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """What a subclass wants to have said about itself."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        """The tree, one module a line."""
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        below = [
            f"({name}): " + repr(module).replace("\n", "\n  ")
            for name, module in self._modules.items()
        ]
        if not below and len(lines) <= 1:
            return f"{self._get_name()}({extra})"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines + below) + "\n)"


def _target(*args: Any, device: Any = None, dtype: Any = None, **_: Any) -> tuple[Any, Any]:
    """The device and dtype that the arguments of `to` ask for, None for what is to stay."""
    for argument in args:
        if isinstance(argument, Variable):
            device, dtype = argument._metadata.device, argument._metadata.dtype
        elif argument is None or isinstance(argument, bool):
            continue
        elif isinstance(argument, (np.dtype, type)):
            dtype = argument
        else:
            device = argument
    if dtype is not None:
        dtype = np.dtype(dtype)
        if category(dtype) < 2:
            raise TypeError(
                f"nn.Module.to only accepts floating point or complex dtypes, but got desired "
                f"dtype={dtype}"
            )
    return device, dtype


def clear_gradient(parameter: Tensor, set_to_none: bool) -> None:
    """Drop a leaf's gradient, or fill it with zeros."""
    meta = parameter._autograd
    if meta is None or meta.grad is None:
        return
    grad: Any = meta.grad
    if set_to_none:
        meta.grad = None
    else:
        meta.grad = (grad if grad._edge is None else grad.detach()).zero_()
