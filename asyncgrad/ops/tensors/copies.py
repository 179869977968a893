"""Copies and pickles of tensors, for Python's protocols."""

from __future__ import annotations

import copy
from contextvars import ContextVar
from typing import Any

from asyncgrad.core.frames import warn
from asyncgrad.core.variable import Variable, autograd_meta, gradient_edge, requires_grad, wrap
from asyncgrad.devices import CPU
from asyncgrad.errors import AutogradError
from asyncgrad.ops.dtype_device import as_device
from asyncgrad.ops.namespace import metadata_of
from asyncgrad.ops.tensors.transfer import moved, on_host


class Differentiable:
    """The tensors that require grad among those that are pickled, wherever they are hidden."""

    __slots__ = ("members", "tensors")

    def __init__(self) -> None:
        self.tensors: list[Variable] = []
        #: The parameters of modules that are pickled, which may come before or after their tensors.
        self.members: list[Variable] = []

    def alone(self) -> list[Variable]:
        """The tensors other than parameters of a module that is pickled, too."""
        members = {id(member) for member in self.members}
        return [tensor for tensor in self.tensors if id(tensor) not in members]


#: What each tensor holds, whatever its class.
_SLOTS = frozenset(Variable.__slots__) - {"__weakref__"}
#: Notes what is pickled here; None where nobody asks.
noted: ContextVar[Differentiable | None] = ContextVar("asyncgrad_noted", default=None)


def _is_computed(variable: Variable) -> bool:
    """Whether a tensor is an op's result through which a gradient flows."""
    return gradient_edge(variable) is not None and variable._edge is not None


def _leaf(array: Any, metadata: Any, requires_grad: bool) -> Any:
    made = wrap(array, metadata)
    if requires_grad:
        autograd_meta(made).requires_grad = True
    return made


def _copied(array: Any) -> Any:
    return array.copy(order="K")


def deep_copy(variable: Variable, memo: dict[int, Any]) -> Any:
    """Copy a leaf: its values, and its gradient if it has one."""
    if id(variable) in memo:
        # `copy.deepcopy` has looked there, but not a class that calls the method itself.
        return memo[id(variable)]
    if _is_computed(variable):
        raise AutogradError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
            "protocol at the moment. Copy its values with .detach().clone()."
        )
    metadata = variable._metadata
    array = metadata.device.launching(_copied)(variable._array)
    made = _leaf(array, metadata, requires_grad(variable))
    memo[id(variable)] = copied = of_class(made, type(variable))
    if copied is not made:
        _set_state(copied, copy.deepcopy(_state_of(variable), memo))
    meta = variable._autograd
    if meta is not None and meta.grad is not None:
        autograd_meta(copied).grad = copy.deepcopy(meta.grad, memo)
    return copied


def shallow_copy(variable: Variable) -> Any:
    """A leaf that shares the memory: its own version counter, no graph, no gradient."""
    made = _leaf(variable._array, variable._metadata, requires_grad(variable))
    copied = of_class(made, type(variable))
    if copied is not made:
        _set_state(copied, _state_of(variable))
    return copied


def of_class(made: Variable, kind: type[Any]) -> Any:
    """The same tensor as an instance of a class of tensors."""
    if kind is type(made):
        return made
    same = object.__new__(kind)
    for name in _SLOTS:
        setattr(same, name, getattr(made, name))
    return same


def _state_of(variable: Any) -> Any:
    """What a tensor of a subclass holds besides: its attributes, or what `__getstate__` gives."""
    kind: Any = type(variable)
    state = variable.__getstate__()
    if kind.__getstate__ is not object.__getstate__:
        return state
    attributes, slots = state
    return {**(attributes or {}), **{n: x for n, x in slots.items() if n not in _SLOTS}}


def _set_state(variable: Any, state: Any) -> None:
    if hasattr(variable, "__setstate__"):
        variable.__setstate__(state)
        return
    for name, value in state.items():
        object.__setattr__(variable, name, value)


def reduced(variable: Variable, protocol: Any) -> Any:
    """What a pickle holds: values and `requires_grad`, but neither graph nor gradient.

    Raises:
        RuntimeError: for a tensor that was computed and leads into a graph. It would come back as a
            leaf, so that gradients would stop there in silence.
    """
    if _is_computed(variable):
        raise AutogradError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd "
            "does not support crossing process boundaries. Pickle its values: .detach()."
        )
    kind, given = type(variable), pickled(variable)
    if kind is type(wrap(variable._array, variable._metadata)):
        return _rebuilt, given
    return _rebuilt_in_class, (kind, _state_of(variable), *given)


def pickled(variable: Variable) -> tuple[Any, ...]:
    """The arguments of `_rebuilt` for a tensor; warns if it has hooks, which are not pickled."""
    found = noted.get()
    if found is not None and requires_grad(variable):
        found.tensors.append(variable)
    meta = variable._autograd
    extras = None if meta is None else meta.extras
    if extras is not None and any(extras.tensor.values()):
        warn(
            "a backward hook on a tensor will not be serialized. Register it again when the "
            "tensor has been loaded."
        )
    device = variable._metadata.device
    where = () if device is CPU else (device,)
    array = on_host(variable)
    if not array.flags.forc:
        # NumPy pickles the values of another within the pickle, never out of band.
        array = array.copy()
    return array, requires_grad(variable), *where


def _rebuilt_in_class(kind: type[Any], state: Any, *given: Any) -> Any:
    """Make a tensor of a subclass from its pickle."""
    made = of_class(_rebuilt(*given), kind)
    _set_state(made, state)
    return made


def _rebuilt(array: Any, requires_grad: bool, device: Any = CPU) -> Any:
    """Make a tensor from its pickle, on the device where it was."""
    if device is not CPU:
        array = moved(array, CPU, as_device("pickle", device))
    return _leaf(array, metadata_of(array, device), requires_grad)
