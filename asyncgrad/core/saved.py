"""Saved tensors: checked for in-place changes before they are used, packed and unpacked by hooks.

A table node keeps plain arrays (`core/saved_values.py`). If hooks pack what is saved, a
`SavedTensor` replaces the array. Functions keep only `SavedTensor`s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncgrad.aliases import Array, Saved, Steps, StoredEdge, Value
from asyncgrad.core.hook_calls import awaited
from asyncgrad.core.metadata import Metadata
from asyncgrad.core.modes import current, install
from asyncgrad.core.node import Node, OpNode, extras_of, first_metadata, name_of
from asyncgrad.core.saved_values import (
    as_saved,
    guards_by_position,
    guards_of,
    refuse_modified,
    saved_edge,
    values_of,
)
from asyncgrad.core.variable import (
    AccumulateGrad,
    Variable,
    autograd_meta,
    counter_of,
    gradient_edge,
    wrap,
)
from asyncgrad.core.versions import VersionCounter
from asyncgrad.errors import AutogradError
from asyncgrad.records import NamedTuple

#: In the place of the counters of what hooks keep, whose changes can't be detected.
_UNWATCHED = VersionCounter()


class SavedHooks(NamedTuple):
    """A pair of functions: one packs a tensor when it is saved, the other unpacks it for use."""

    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]
    #: `unpack` returns an awaitable.
    waits: bool = False


class SavedTensor:
    """One tensor that a node keeps for backward."""

    __slots__ = ("_counter", "_edge", "_hooks", "_packed", "_variable", "_version", "array",
                 "metadata")  # fmt: skip

    def __init__(self, variable: Variable, hooks: SavedHooks | None) -> None:
        """Save a tensor; if it is an output of the node, call `as_output` afterwards."""
        #: The values, or None if hooks keep them.
        self.array: Any = variable._array
        self._packed: Any = None
        #: Shape, dtype and device of the tensor.
        self.metadata = variable._metadata
        self._edge = None if hooks is None else gradient_edge(variable)
        self._counter = counter_of(variable)
        self._version = self._counter.value
        self._variable: Variable | None = variable
        self._hooks: SavedHooks | None = None
        if hooks is not None:
            self._pack(hooks)

    def as_output(self) -> None:
        """Drop the tensor's edge, which leads to the node itself, and keep only the values."""
        variable = self._variable
        if variable is not None:
            self.array = variable._array
            self._variable = None
        self._edge = None

    @property
    def data(self) -> Any:
        """What the hooks packed, or a tensor with the values."""
        if self._hooks is not None:
            return self._packed
        variable = self._variable
        return wrap(self.array, self.metadata) if variable is None else variable

    @property
    def unpack_hook(self) -> Callable[[Any], Any] | None:
        """The function that unpacks it, None without hooks."""
        return None if self._hooks is None else self._hooks.unpack

    @property
    def waits(self) -> bool:
        """Whether unpacking has to be awaited."""
        return self._hooks is not None and self._hooks.waits

    def register_hooks(
        self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]
    ) -> None:
        """Pack this tensor now, and unpack it whenever it is used."""
        if self._hooks is not None:
            raise AutogradError(
                "Calling register_hooks on a saved tensor whose hooks have already been set. "
                "Hint: only one pair of hooks is allowed at a time."
            )
        if self._variable is not None:
            self._edge = gradient_edge(self._variable)
        self._pack(SavedHooks(pack_hook, unpack_hook))

    def _pack(self, hooks: SavedHooks) -> None:
        """Pass the tensor to the pack hook, and keep the result instead.

        A hook gets leaves and constants themselves. Other tensors have their edge only while the
        hook runs: the graph holds what the hook keeps, which therefore must not hold the graph.
        """
        given = self._variable
        if given is None or not (self._edge is None or self._edge.__class__ is AccumulateGrad):
            array = self.array if given is None else given._array
            given = wrap(array, self.metadata, self._edge)
            given._counter = self._counter
        before = self._counter.value
        found = current()
        install(found.replace(grad=False))
        try:
            packed = hooks.pack(given)
        finally:
            install(found)
            if given is not self._variable:
                given._edge = None
        if self._counter.value != before:
            raise AutogradError(
                "A saved tensor pack hook is modifying its input in place, which is the tensor "
                "that is saved. Work on a clone in the hook."
            )
        self._packed = packed
        self._hooks = hooks
        self._variable = self.array = None

    def unpack(self, node: Node, edge: StoredEdge = None) -> Any:
        """The tensor, with the edge that it had when it was saved, or that of an output."""
        if self._hooks is None:
            return self._checked(node, edge)
        return _at_once(node, self.unpack_steps(node, edge))

    def unpack_steps(self, node: Node, edge: StoredEdge = None) -> Steps[Any]:
        """`unpack` as a generator, which yields what a coroutine hook wants awaited."""
        hooks = self._hooks
        if hooks is None:
            return self._checked(node, edge)
        result = yield from awaited(hooks.unpack(self._packed))
        if not isinstance(result, Variable):
            raise TypeError(
                f"Output of saved tensor unpack_hook expected to be a Tensor but got result of "
                f"type {type(result).__name__}"
            )
        edge = edge or self._edge
        if edge is None and gradient_edge(result) is None:
            return result
        return restored(result._array, result._metadata, edge)

    def _checked(self, node: Node, edge: StoredEdge) -> Any:
        """The saved tensor; raises if it has been changed in place."""
        if self._counter.changed_since(self._version):
            refuse_modified(node, self.metadata, self._counter, self._version)
        variable = self._variable
        if variable is None:
            return restored(self.array, self.metadata, edge or self._edge)
        if variable._counter is self._counter:
            return variable
        # `rebind` has given the leaf a new array since; the saved one is unchanged.
        return restored(self.array, self.metadata, gradient_edge(variable))


def restored(array: Array, metadata: Metadata, edge: StoredEdge) -> Any:
    """A tensor with saved values and their edge; for a leaf, the leaf itself if it has them."""
    if edge.__class__ is AccumulateGrad:
        variable = edge.variable
        if variable._array is array:
            return variable
        return acting_as(variable, array, metadata)
    return wrap(array, metadata, edge)


def acting_as(leaf: Variable, array: Array, metadata: Metadata) -> Any:
    """A tensor with other values that acts as a leaf: its gradient goes to the leaf."""
    alias = wrap(array, metadata)
    alias._autograd = autograd_meta(leaf)
    return alias


def pack(
    node: OpNode, hooks: SavedHooks, slot: tuple[int, int | None] | None = None,
    out: Variable | None = None,
) -> None:  # fmt: skip
    """Let hooks pack the operands and output that a table node has saved, or the array in one slot.

    `out` is the node's result, if it has only just been made. A slot is a position and, for an
    array in a tuple of indices, the place there.
    """
    arrays = dict(node.rule.arrays)
    if out is not None and -1 in arrays.values():
        counter_of(out)
    values = list(values_of(node))
    guards, versions = map(list, guards_of(node))
    numbers = {position: number for number, position in enumerate(guards_by_position(node))}
    for position, part in [(position, None) for position in arrays] if slot is None else [slot]:
        value = values[position]
        array = value if part is None else value[part]
        edge = saved_edge(node, arrays.get(position))
        variable = restored(array, first_metadata(node).F.metadata_of(array), edge)
        number = numbers.get(position)
        if number is not None:
            if variable._counter is None:
                variable._counter = guards[number]
            guards[number], versions[number] = _UNWATCHED, 0
        packed = SavedTensor(variable, hooks)
        packed.as_output()
        values[position] = packed if part is None else (*value[:part], packed, *value[part + 1 :])
    node.saved = as_saved(values)
    node.guard, node.version = tuple(guards), tuple(versions)
    extras_of(node).packed = True


def _unpack_attribute(node: OpNode, value: Value) -> Steps[Any]:
    """Unpack a saved value that is no operand to what the node's rule takes."""
    if value.__class__ is SavedTensor:
        return (yield from value.unpack_steps(node))._array
    if value.__class__ is tuple and SavedTensor in map(type, value):
        parts = list(value)
        for place, part in enumerate(parts):
            parts[place] = yield from _unpack_attribute(node, part)
        return tuple(parts)
    return value


def unpack_packed(node: OpNode) -> Steps[dict[int, Any]]:
    """Unpack those of a table node's saved values that hooks have packed, by position.

    Operands become tensors with their edges, other values arrays.
    """
    arrays = dict(node.rule.arrays)
    made: dict[int, Any] = {}
    for position, value in enumerate(values_of(node)):
        where = arrays.get(position)
        if where is None:
            attribute = yield from _unpack_attribute(node, value)
            if attribute is not value:
                made[position] = attribute
        elif value.__class__ is SavedTensor:
            made[position] = yield from value.unpack_steps(node, saved_edge(node, where))
    return made


def unpacked(packed: dict[int, Any], recorded: bool, node: OpNode) -> Saved:
    """The saved values, with unpacked ones in place; as tensors with edges if `recorded`."""
    values = list(values_of(node))
    for position, value in packed.items():
        values[position] = value
    counters = guards_by_position(node) if recorded else {}
    for position, where in node.rule.arrays:
        value = values[position]
        if position in packed:
            values[position] = value if recorded else value._array
        elif recorded:
            metadata = first_metadata(node).F.metadata_of(value)
            values[position] = tensor = restored(value, metadata, saved_edge(node, where))
            if tensor._counter is None:
                # A node that saves this value in turn also watches its version counter.
                tensor._counter, _ = counters.get(position, (None, 0))
    return as_saved(values)


def values_as_tensors(node: OpNode) -> Saved:
    """The saved values as tensors, outside of a pass, where nothing can be awaited."""
    return unpacked(_at_once(node, unpack_packed(node)), True, node)


def _at_once(node: Node, steps: Steps[Any]) -> Any:
    """Run a generator of unpack steps; raises if a hook has to be awaited."""
    try:
        waiting = next(steps)
    except StopIteration as stop:
        return stop.value
    close = getattr(waiting, "close", None)
    if close is not None:
        close()
    raise AutogradError(
        f"a saved tensor of {name_of(node)} has an unpack hook that must be awaited. It can be "
        f"read in a pass, not from outside."
    )
