"""The base class of all modules: a tree of parameters, buffers and other modules.

This file is long because it is one class, with all that PyTorch's has besides members and hooks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, SupportsIndex, TypeVar, overload

import numpy as np

from asyncgrad._unbound import unbound
from asyncgrad.autograd.modes import no_grad
from asyncgrad.core.frames import warn
from asyncgrad.core.recording import called_anew
from asyncgrad.nn.hooks import EVERYWHERE, HOOKS, Hooked, HookedCall, registered_anew
from asyncgrad.nn.parameter import clear_gradients
from asyncgrad.nn.snapshot import Snapshot
from asyncgrad.nn.state import LoadResult, load, load_own, own_state
from asyncgrad.nn.state import unexpected_keys as find_unexpected
from asyncgrad.ops.api.conversion import arguments_of_to, target_of_to
from asyncgrad.ops.api.creation import empty_like
from asyncgrad.ops.api.transfer import cuda_device
from asyncgrad.ops.bfloat16 import needs_bfloat16
from asyncgrad.ops.dtype_device import memory_format
from asyncgrad.ops.promotion import category
from asyncgrad.ops.tensors.copies import noted
from asyncgrad.scheduler import check_awaited
from asyncgrad.types import DeviceLike, DTypeLike, Tensor

if TYPE_CHECKING:
    _P = ParamSpec("_P")
    _R = TypeVar("_R", covariant=True)

    class _Forward(Protocol[_P, _R]):
        """A module, of which `__call__` takes the arguments and the result of its `forward`."""

        @property
        def forward(self) -> Callable[_P, _R]:
            """The subclass's method."""


#: `asyncgrad.compile`.
replayed: Callable[..., Any] = unbound


class Module(Hooked):
    """A function with parameters.

    Subclasses call `super().__init__()`, assign parameters and other modules as attributes and
    define `forward`. If `forward` is a coroutine function, calling the module returns a coroutine.

    Example:
        >>> class Double(Module):
        ...     def forward(self, x):
        ...         return 2 * x
        >>> Double()(21)
        42
    """

    #: Saved in state dicts. A subclass that changes the layout of its state increases it.
    _version: int = 1

    training: bool

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Tensor | Module:
            """A parameter, buffer or module."""

        # `Members` has these, but can't name this class.
        def get_submodule(self, target: str) -> Module: ...  # noqa: D102
        def named_children(self) -> Iterator[tuple[str, Module]]: ...  # noqa: D102
        def children(self) -> Iterator[Module]: ...  # noqa: D102
        def modules(self, remove_duplicate: bool = True) -> Iterator[Module]: ...  # noqa: D102
        def named_modules(  # noqa: D102
            self, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True
        ) -> Iterator[tuple[str, Module]]: ...

    def __init__(self) -> None:
        vars(self).update(
            training=True,
            _parameters={},
            _buffers={},
            _non_persistent_buffers_set=set(),
            _modules={},
            **{table: {} for table in HOOKS},
        )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the output; subclasses define this method."""
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def __call__(self: _Forward[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Call `forward`, with the registered hooks before and after it."""
        own = self.__dict__
        try:
            hooked = (
                own["_forward_hooks"]
                or own["_forward_pre_hooks"]
                or own["_backward_hooks"]
                or own["_backward_pre_hooks"]
                or EVERYWHERE
            )
        except KeyError as error:
            raise AttributeError(
                f"'{type(self).__name__}' object has no attribute {error}: call "
                f"super().__init__() in its __init__()"
            ) from None
        if hooked:
            return HookedCall(self, args, kwargs).run()  # type: ignore[no-any-return]
        return self.forward(*args, **kwargs)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Pickle as any object, and note that the parameters are pickled with their module."""
        found = noted.get()
        if found is not None:
            found.members += [one for one in self._parameters.values() if one is not None]
        return super().__reduce_ex__(protocol)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled or copied state; hooks get new keys, unique in this process."""
        self.__dict__.update(state)
        for table in HOOKS:
            self.__dict__[table] = registered_anew(state.get(table, {}))

    # -- recursive changes -------------------------------------------------------------------------

    def apply(self, fn: Callable[[Module], object]) -> Self:
        """Call a function with every module below this one, and with this one last."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> Self:
        """Set training mode: dropout is active, batch norms use the statistics of the batch."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Self:
        """Set evaluation mode: the same as `train(False)`."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set `requires_grad` of all parameters."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def snapshot(self) -> Snapshot:
        """A context manager in which this task sees the parameters with their present values.

        Updates by other tasks' optimisers are not visible inside it. A forward pass that awaits
        therefore never mixes old and new weights, and its gradients are taken at the weights it
        saw. They are accumulated into the parameters' `.grad` as usual.

        Example:
            >>> async def answer(model, question):
            ...     with model.snapshot():
            ...         return model.head(await fetch(model.body(question)))
        """
        return Snapshot(self)

    @called_anew
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients of all parameters to None, or fill them with zeros.

        Raises:
            PendingBackwardError: if this task has started a pass that it has not awaited.
        """
        check_awaited(f"{type(self).__name__}.zero_grad")
        clear_gradients(self.parameters(), set_to_none)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Apply a function to all parameters, gradients and buffers, and keep its results."""
        for module in self.modules() if recurse else (self,):
            for parameter in module._parameters.values():
                if parameter is None:
                    continue
                with no_grad():
                    grad = parameter.grad
                    parameter.data = fn(parameter)
                    if grad is not None:
                        grad.data = fn(grad)
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = fn(buffer)
        return self

    @overload
    def to(self, dtype: DTypeLike, non_blocking: bool = False) -> Self: ...
    @overload
    def to(
        self, device: DeviceLike | None = None, dtype: DTypeLike | None = None,
        non_blocking: bool = False, *, memory_format: memory_format | None = None,
    ) -> Self: ...  # fmt: skip
    @overload
    def to(self, tensor: Tensor, non_blocking: bool = False) -> Self: ...
    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Convert floating and complex tensors to a dtype and move all to a device, in place.

        Args:
            args: a dtype, a device, a device and a dtype, or a tensor that has both.
            kwargs: `device=` and `dtype=`.

        Raises:
            TypeError: if the dtype is neither floating nor complex.
        """
        device, dtype = target_of_to(**arguments_of_to(args, kwargs))
        if dtype is not None and category(dtype) < 2:
            raise TypeError(
                f"nn.Module.to only accepts floating point or complex dtypes, but got desired "
                f"dtype={dtype}"
            )

        def convert(tensor: Tensor) -> Tensor:
            if device is not None:
                tensor = tensor.to(device)
            return tensor if dtype is None or category(tensor.dtype) < 2 else tensor.to(dtype)

        return self._apply(convert)

    def cpu(self) -> Self:
        """Move every parameter and buffer to host memory, in place."""
        return self._apply(lambda tensor: tensor.cpu())

    def cuda(self, device: DeviceLike | None = None) -> Self:
        """Move every parameter and buffer to a CUDA device, `cuda:0` if None, in place.

        Raises:
            RuntimeError: if there is no such device; nothing is moved then.
        """
        place = cuda_device(device)
        return self._apply(lambda tensor: tensor.to(place))

    def type(self, dst_type: DTypeLike | None) -> Self:
        """Convert every parameter and buffer to a dtype, in place."""
        return self._apply(lambda tensor: tensor.to(dst_type))

    def _to_floating(self, dtype: DTypeLike) -> Self:
        """Convert floating tensors, but not complex ones, to a dtype, in place."""
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self) -> Self:
        """Convert floating tensors to float32, in place."""
        return self._to_floating(np.float32)

    def double(self) -> Self:
        """Convert floating tensors to float64, in place."""
        return self._to_floating(np.float64)

    def half(self) -> Self:
        """Convert floating tensors to float16, in place."""
        return self._to_floating(np.float16)

    def bfloat16(self) -> Self:
        """Convert floating tensors to bfloat16, in place.

        Raises:
            ImportError: if ml_dtypes is not installed.
        """
        return self._to_floating(needs_bfloat16("Module.bfloat16()"))

    def to_empty(self, *, device: DeviceLike | None, recurse: bool = True) -> Self:
        """Move parameters and buffers to a device without copying values, in place.

        Args:
            device: the new device; if None, each tensor stays on its device.
            recurse: also move the tensors of all submodules.
        """
        return self._apply(lambda tensor: empty_like(tensor, device=device), recurse)

    def share_memory(self) -> Self:
        """Do nothing: threads and tasks share all memory. Exists for PyTorch compatibility."""
        return self

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Replay calls of `forward` from now on; the arguments are those of `asyncgrad.compile`."""
        self.__dict__["forward"] = replayed(self.forward, *args, **kwargs)

    # -- state ------------------------------------------------------------------------------------

    def get_extra_state(self) -> Any:
        """State other than tensors that a subclass saves in its state dict."""
        raise NotImplementedError("a module with extra state defines get_extra_state()")

    def set_extra_state(self, state: Any) -> None:
        """Restore the state that `get_extra_state` returned."""
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
        self, *args: Any, destination: dict[str, Any] | None = None, prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        """The parameters and persistent buffers by their dotted names; memory is shared.

        Args:
            args: the three arguments below by position, which PyTorch discourages.
            destination: the dictionary to write into.
            prefix: prepended to every name.
            keep_vars: return the tensors themselves instead of detached ones.
        """
        if args:
            warn("Positional args are being deprecated, use kwargs instead.", FutureWarning)
            given = dict(zip(("destination", "prefix", "keep_vars"), args, strict=False))
            destination = given.get("destination", destination)
            prefix, keep_vars = given.get("prefix", prefix), given.get("keep_vars", keep_vars)
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()  # type: ignore[attr-defined]
        metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        for hook in tuple(self._state_dict_pre_hooks.values()):
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(
                    destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars
                )
        for hook in tuple(self._state_dict_hooks.values()):
            if hook(self, destination, prefix, metadata) is not None:
                raise RuntimeError("state_dict post-hook must return None")
        return destination

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any],
        strict: bool, missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        """Load this module's own state from a state dict, and collect errors.

        Args:
            state_dict: holds only names that start with `prefix`; may be changed.
            prefix: prepended to the module's own names.
            local_metadata: the version the module had when it was saved, and
                `assign_to_params_buffers`.
            strict: collect unexpected names, too.
            missing_keys, unexpected_keys, error_msgs: the lists that get what is found.
        """
        for hook in tuple(self._load_state_dict_pre_hooks.values()):
            hook(
                self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                error_msgs,
            )  # fmt: skip
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
        """Copy parameters and buffers from a state dict; return the missing and unexpected names.

        Args:
            state_dict: tensors by dotted names.
            strict: raise if names are missing or unexpected.
            assign: use the given tensors themselves instead of copying their values.

        Raises:
            RuntimeError: if shapes do not match, or names do not and `strict` is set.
        """
        return load(self, state_dict, strict, assign)

    # -- words ------------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """What a subclass shows between the parentheses of its `repr`."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        below = []
        for name, module in self._modules.items():
            first, *rest = repr(module).split("\n")
            # As in PyTorch, blank lines stay empty.
            rest = [f"  {line}" if line.strip() else "" for line in rest]
            below.append("\n".join([f"({name}): {first}", *rest]))
        if not below and len(lines) <= 1:
            return f"{self._get_name()}({extra})"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines + below) + "\n)"
