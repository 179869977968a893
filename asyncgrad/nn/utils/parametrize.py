"""Parameters that are functions of others, PyTorch's `torch.nn.utils.parametrize`.

A module with a parametrized tensor gets its own class, in which the tensor is a property. Each
look-up computes the tensor from its originals, which are the parameters that the module learns.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from asyncgrad.autograd.modes import no_grad
from asyncgrad.core.modes import Mode, current
from asyncgrad.nn.containers import ModuleDict, ModuleList
from asyncgrad.nn.module import Module
from asyncgrad.nn.parameter import Parameter
from asyncgrad.ops.dtype import DType
from asyncgrad.tensor import Tensor

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization",
    "remove_parametrizations", "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]  # fmt: skip


@contextmanager
def cached() -> Iterator[None]:
    """A context in which each parametrized tensor is computed once, in this task and its children.

    Example:
        >>> with cached():
        ...     same = layer.weight is layer.weight  # doctest: +SKIP
    """
    known = current().parametrized
    with Mode(parametrized={} if known is None else known):
        yield


class ParametrizationList(ModuleList):
    """The functions that compute one tensor, and their original tensors.

    Args:
        modules: the functions; the first one takes the originals.
        original: the tensor. It becomes `original`; if a `right_inverse` returns several tensors,
            these become `original0`, `original1` and so on.
    """

    def __init__(self, modules: Iterable[Module], original: Tensor, unsafe: bool = False) -> None:
        functions = list(modules)
        if not functions:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(functions)
        self.unsafe = unsafe
        with no_grad():
            value: Any = original.detach()
            function: Any
            for function in reversed(functions):
                if hasattr(function, "right_inverse"):
                    try:
                        value = function.right_inverse(value)
                    except NotImplementedError:
                        continue
        self.is_tensor = isinstance(value, Tensor)
        self.ntensors = 1 if self.is_tensor else _count(value)
        shape, dtype = original.shape, original.dtype
        if self.is_tensor:
            if value.dtype != dtype:
                raise ValueError(
                    f"When `right_inverse` outputs one tensor, it may not change the dtype: "
                    f"{dtype} became {value.dtype}"
                )
            before = original.data
            _register(self, "original", original)
            original.data = value
        else:
            for place, part in enumerate(value):
                leaf = part.detach()
                leaf = Parameter(leaf, False) if isinstance(original, Parameter) else leaf
                _register(self, f"original{place}", leaf.requires_grad_(original.requires_grad))
        if not unsafe:
            try:
                _check("A parametrization", shape, dtype, self())
            except BaseException:
                if self.is_tensor:
                    original.data = before
                raise

    def originals(self) -> list[Any]:
        """The tensors that the first function takes."""
        if self.is_tensor:
            return [self.original]
        return [getattr(self, f"original{place}") for place in range(self.ntensors)]

    def right_inverse(self, value: Any) -> None:
        """Set the originals so that the functions compute `value`.

        Raises:
            RuntimeError: if a function has no `right_inverse`.
        """
        with no_grad():
            function: Any
            for function in reversed(list(self)):
                if not hasattr(function, "right_inverse"):
                    raise RuntimeError(
                        f"parametrization {type(function).__name__} does not implement "
                        f"right_inverse."
                    )
                value = function.right_inverse(value)
            parts = [value] if self.is_tensor else list(value)
            originals = self.originals()
            if len(parts) != len(originals):
                raise ValueError(
                    f"'right_inverse' must return a sequence of tensors of length "
                    f"{len(originals)}. Got a sequence of length {len(parts)}."
                )
            for original, part in zip(originals, parts, strict=True):
                if not isinstance(part, Tensor) or part.dtype != original.dtype:
                    raise ValueError(
                        f"`right_inverse` should return tensors of dtype {original.dtype}. Got "
                        f"{getattr(part, 'dtype', type(part).__name__)}"
                    )
            for original, part in zip(originals, parts, strict=True):
                original.data = part.detach()

    def forward(self) -> Any:
        """The parametrized tensor."""
        first, *rest = self
        value = first(*self.originals())
        for function in rest:
            value = function(value)
        return value


def _count(values: Any) -> int:
    got = None if isinstance(values, Sequence) else type(values).__name__
    for number, value in enumerate(() if got else values):
        if not isinstance(value, Tensor):
            got = f"element {number} of the sequence with type {type(value).__name__}"
            break
    if got:
        raise ValueError(
            f"'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got "
            f"{got}."
        )
    return len(values)


def _register(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _check(who: str, shape: tuple[int, ...], dtype: DType, value: Tensor) -> None:
    """Raise unless a parametrized tensor has the shape and dtype of the one before."""
    if not isinstance(value, Tensor):
        raise ValueError(f"{who} must return a tensor. Got: {type(value).__name__}")
    for name, old, new in (("dtype", dtype, value.dtype), ("shape", shape, value.shape)):
        if old != new:
            raise ValueError(
                f"Registering a parametrization may not change the {name} of the tensor, unless "
                f"the `unsafe` flag is enabled: {who} returned {new} for {old}"
            )


def _refused(module: Module) -> Any:
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict()."
    )


def _copied(module: Module, memo: dict[int, Any]) -> Any:
    """A deep copy with its own class, so that removing parametrizations changes only one module."""
    kind = type(module)
    replica: Any = object.__new__(type(kind.__name__, kind.__bases__, dict(kind.__dict__)))
    memo[id(module)] = replica
    replica.__setstate__(copy.deepcopy(vars(module), memo))
    return replica


def _property(name: str) -> property:
    """The attribute that computes a parametrized tensor."""

    def get(module: Any) -> Any:
        function = module.parametrizations[name]
        known = current().parametrized
        if known is None:
            return function()
        key = module, name
        if key not in known:
            known[key] = function()
        return known[key]

    def put(module: Any, value: Any) -> None:
        module.parametrizations[name].right_inverse(value)

    return property(get, put)


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Make a parameter or buffer of a module a function of its original; returns the module.

    Args:
        module: the module; its class changes.
        tensor_name: the name of the parameter or buffer.
        parametrization: the function. If it has a `right_inverse`, the tensor keeps its values,
            and can be assigned to. Several functions are applied in the order of registration.
        unsafe: the function may change the shape and dtype.

    Raises:
        ValueError: if there is no such tensor, or the function's shapes or dtypes do not fit;
            nothing has been changed then.

    Example:
        >>> class Symmetric(ag.nn.Module):
        ...     def forward(self, x):
        ...         return x.triu() + x.triu(1).T
        >>> layer = register_parametrization(ag.nn.Linear(3, 3), "weight", Symmetric())
        >>> bool((layer.weight == layer.weight.T).all())
        True
    """
    parametrization.train(module.training)
    parts: Any = module
    if is_parametrized(module, tensor_name):
        functions = parts.parametrizations[tensor_name]
        if not unsafe:
            before = getattr(module, tensor_name)
            after = parametrization(before)
            _check("A parametrization", before.shape, before.dtype, after)
            inverse: Any = getattr(parametrization, "right_inverse", None)
            if inverse is not None:
                back = inverse(after)
                _check("A parametrization's right_inverse", after.shape, after.dtype, back)
        functions.append(parametrization)
        functions.unsafe |= unsafe
    elif tensor_name in module._parameters or tensor_name in module._buffers:
        original = getattr(module, tensor_name)
        functions = ParametrizationList([parametrization], original, unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            kind = type(module)
            namespace: dict[str, Any] = {"__getstate__": _refused}
            if not hasattr(kind, "__deepcopy__"):
                namespace["__deepcopy__"] = _copied
            module.__class__ = type(f"Parametrized{kind.__name__}", (kind,), namespace)
            parts.parametrizations = ModuleDict()
        setattr(type(module), tensor_name, _property(tensor_name))
        parts.parametrizations[tensor_name] = functions
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a tensor of a module, or any, is parametrized."""
    known = module._modules.get("parametrizations")
    if not isinstance(known, ModuleDict):
        return False
    return len(known) > 0 if tensor_name is None else tensor_name in known


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Make a parametrized tensor a parameter or buffer again; returns the module.

    Args:
        module: the module; without any parametrizations left, it gets its old class back.
        leave_parametrized: keep the computed values instead of the original's.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    parts: Any = module
    functions = parts.parametrizations[tensor_name]
    if functions.is_tensor:
        tensor = functions.original
        if leave_parametrized:
            with no_grad():
                tensor.data = getattr(module, tensor_name).detach()
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        tensor = Parameter(value.detach()) if value.requires_grad else value.detach()
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is "
            "parametrized in terms of a sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del parts.parametrizations[tensor_name]
    if not is_parametrized(module):
        del parts.parametrizations
        module.__class__ = type(module).__bases__[0]
    _register(module, tensor_name, tensor)
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class that a module had before any of its tensors was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Give a module the parametrizations of another one, with which it shares them; returns it.

    Args:
        from_module: the module that has them; it is not changed.
        tensor_name: the tensor whose parametrizations are transferred; all if None.
    """
    if not is_parametrized(from_module):
        return to_module
    known: Any = from_module._modules["parametrizations"]
    for name in list(known) if tensor_name is None else [tensor_name]:
        if not hasattr(to_module, name):
            _register(to_module, name, copy.deepcopy(getattr(from_module, name).detach()))
        for function in known[name]:
            register_parametrization(to_module, name, function, unsafe=True)
        there: Any = to_module._modules["parametrizations"]
        for table in ("_parameters", "_buffers"):
            for key, original in getattr(known[name], table).items():
                setattr(there[name], key, original)
    return to_module
