"""Allow in-place changes of saved tensors, by cloning the tensors before the change."""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from asyncgrad.autograd.saved_tensors import check_enabled
from asyncgrad.core.modes import Mode, current
from asyncgrad.core.saved import SavedHooks
from asyncgrad.core.variable import wrap
from asyncgrad.errors import AutogradError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncgrad.aliases import Array, Value


class _Handle:
    """Stands in the graph for a saved tensor at one version."""

    __slots__ = ("__weakref__",)


class MutationContext:
    """The tensors saved within `allow_mutation_on_saved_tensors`, and clones of changed ones."""

    def __init__(self) -> None:
        #: Keyed by handle. The graph holds the handles, so entries go with the graph.
        self.original: weakref.WeakKeyDictionary[_Handle, Any] = weakref.WeakKeyDictionary()
        self.cloned: weakref.WeakKeyDictionary[_Handle, Any] = weakref.WeakKeyDictionary()
        #: By id of the array that owns the memory: the handles of tensors not changed since.
        self._handles: dict[int, weakref.WeakSet[_Handle]] = {}

    def pack(self, tensor: Value) -> _Handle:
        """Save a tensor without a copy; `before_change` clones it if it is changed."""
        handles = self._handles.setdefault(id(_owner(tensor._array)), weakref.WeakSet())
        for handle in handles:
            if self.original[handle]._array is tensor._array:
                return handle
        handle = _Handle()
        self.original[handle] = tensor
        handles.add(handle)
        return handle

    def unpack(self, handle: _Handle) -> Any:
        """The tensor as it was when it was saved."""
        if current().before_change != self.before_change:
            raise AssertionError(_OUTSIDE)
        tensor = self.cloned.get(handle)
        if tensor is None:
            tensor = self.original.get(handle)
        if tensor is None:
            raise AssertionError(_OUTSIDE)
        return tensor

    def before_change(self, tensor: Value) -> None:
        """Clone the saved tensors that share memory with a tensor about to be changed."""
        for handle in self._handles.pop(id(_owner(tensor._array)), ()):
            saved = self.original.pop(handle, None)
            if saved is not None:
                metadata = saved._metadata
                self.cloned[handle] = wrap(metadata.F.clone(saved._array), metadata)

    def clear(self) -> None:
        """Drop everything; the graph can't be used any more."""
        self.original.clear()
        self.cloned.clear()
        self._handles.clear()


def _owner(array: Array) -> Any:
    """The array that owns the memory of an array."""
    while isinstance(base := getattr(array, "base", None), type(array)):
        array = base
    return array


_OUTSIDE = (
    "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the "
    "graph was originally recorded."
)


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[MutationContext]:
    """Let saved tensors be changed in place, by cloning them before the change.

    Passes over a graph recorded here have to run here, too.

    Yields:
        The context, with the tensors saved and cloned so far.

    Raises:
        RuntimeError: if such contexts are nested.
    """
    if current().before_change is not None:
        raise AutogradError("allow_mutation_on_saved_tensors contexts cannot be nested")
    check_enabled()
    context = MutationContext()
    hooks = SavedHooks(context.pack, context.unpack)
    try:
        with Mode(saved_hooks=hooks, before_change=context.before_change):
            yield context
    finally:
        context.clear()
