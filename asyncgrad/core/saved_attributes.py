"""Access to saved values from outside: `node._saved_*`, `node._raw_saved_*` and their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncgrad.aliases import Value
from asyncgrad.core.node import Freed, OpNode, first_metadata, refuse_freed
from asyncgrad.core.saved import SavedHooks, SavedTensor, pack, restored
from asyncgrad.core.saved_values import check_version, guards_by_position, saved_edge, values_of
from asyncgrad.core.versions import VersionCounter
from asyncgrad.errors import AutogradError, GraphFreedError


class SavedNone:
    """Stands for None among a Function's saved tensors."""

    __slots__ = ()

    def register_hooks(
        self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]
    ) -> None:
        """Raise RuntimeError always: there is no value to pack."""
        raise AutogradError(
            "Calling register_hooks on a saved tensor with value None is forbidden. There is "
            "nothing to pack."
        )


class RawSaved:
    """A handle to one array that a table node has saved: reads it, and registers hooks on it."""

    __slots__ = ("_node", "_part", "_position", "_where")

    def __init__(self, node: OpNode, position: int, part: int | None = None) -> None:
        self._node = node
        self._position = position
        #: The array is a part of the value at the position: of a tuple of indices.
        self._part = part
        #: The number of the operand that it is, -1 for the output; None for what is neither.
        self._where = dict(node.rule.arrays).get(position)

    @property
    def data(self) -> Any:
        """What the hooks packed, or a tensor with the values."""
        value = self._value()
        if value.__class__ is SavedTensor:
            return value.data
        edge = None if self._where == -1 else saved_edge(self._node, self._where)
        return restored(value, first_metadata(self._node).F.metadata_of(value), edge)

    @property
    def unpack_hook(self) -> Callable[[Any], Any] | None:
        """The function that unpacks it, None without hooks."""
        value = self._value()
        return value.unpack_hook if value.__class__ is SavedTensor else None

    def tensor(self) -> Any:
        """The saved tensor, with its edge; raises if it has been changed in place."""
        node, value = self._node, self._value()
        edge = saved_edge(node, self._where)
        if value.__class__ is SavedTensor:
            return value.unpack(node, edge)
        if self._where is not None and node.guard is not None:
            check_version(node, node.saved, node.guard, running=False)
            # The check may have computed a changed output again.
            value = self._value()
        elif self._where == -1:
            # `counter_of` gives the output this counter, too, if it ever needs one.
            node.guard, node.version = VersionCounter(), 0
        tensor = restored(value, first_metadata(node).F.metadata_of(value), edge)
        if self._where is not None and tensor._counter is None:
            tensor._counter, _ = guards_by_position(node).get(self._position, (None, 0))
        return tensor

    def _value(self) -> Any:
        if self._node.saved.__class__ is Freed:
            refuse_freed(self._node, self._node.saved)
        value = values_of(self._node)[self._position]
        return value if self._part is None else value[self._part]

    def register_hooks(
        self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]
    ) -> None:
        """Pack the value now, and unpack it whenever it is used."""
        try:
            value = self._value()
        except GraphFreedError as error:
            error.args = (
                f"Calling register_hooks on a saved tensor after it has been freed. {error}",
            )
            raise
        if value.__class__ is SavedTensor:
            value.register_hooks(pack_hook, unpack_hook)
            return
        slot = self._position, self._part
        pack(self._node, SavedHooks(pack_hook, unpack_hook), slot)


def saved_attribute(node: OpNode, name: str) -> Any:
    """A node's `_saved_*` or `_raw_saved_*` attribute."""
    raw = name.startswith("_raw_saved_")
    own = name.removeprefix("_raw_saved_" if raw else "_saved_")
    rule = node.rule
    names = rule.names
    key = own if own in names else _ALIASES.get(own, own)
    if key == "y" and key not in names and key not in rule.keepable:
        key = "scalar"
        if raw and key in names:
            # This call was given a number where others are given a tensor.
            return SavedNone()
    if key in names:
        value, is_raw = _raw_or_value(node, names.index(key))
        if raw and is_raw:
            return value
        if not raw:
            return _as_tensors(value) if is_raw else value
    elif key in rule.keepable:
        # An operand that no gradient of this call needs, so it was not saved.
        return SavedNone() if raw else None
    raise AttributeError(f"{node.name()} has no attribute {name!r}")


#: PyTorch's names of saved values, with ours.
_ALIASES = {
    "self": "x", "other": "y", "mat2": "y", "result": "out", "exponent": "scalar", "dim": "dims",
    "dims": "order", "self_sym_sizes": "x_shape", "indices": "index", "min": "low", "max": "high",
    "input": "x", "mat1": "x", "mat": "x", "batch1": "x", "A": "x", "vec": "y", "tensor": "y",
    "batch2": "y", "target": "y", "inverse": "out", "L": "out", "negative_slope": "slope",
}  # fmt: skip


def named_saved_values(node: OpNode) -> list[tuple[str, Any]]:
    """A table node's saved values with PyTorch's names: arrays, `SavedTensor`s, and others."""
    if node.saved.__class__ is Freed:
        return []
    names = node.rule.names
    if not names:
        return [("saved", node.saved)]
    return list(zip(_their_names(names), values_of(node), strict=True))


def _their_names(names: tuple[str, ...]) -> list[str]:
    """Translate our names of saved values to PyTorch's."""
    theirs = {ours: name for name, ours in reversed(_ALIASES.items())}
    return [theirs.get(name, name) for name in names]


def saved_names(node: OpNode) -> list[str]:
    """The names of a node's `_saved_*` and `_raw_saved_*` attributes."""
    names = _their_names(node.rule.names)
    raw = [
        f"_raw_saved_{name}"
        for position, name in enumerate(names)
        if _raw_or_value(node, position)[1]
    ]
    return [*raw, *[f"_saved_{name}" for name in names]]


def _raw_or_value(node: OpNode, position: int) -> tuple[Any, bool]:
    """The handle of a saved array, or the saved value itself; and whether it is a handle.

    For indices it is a tuple of handles.
    """
    rule, saved = node.rule, node.saved
    name = rule.names[position]
    if saved.__class__ is not Freed:
        value = values_of(node)[position]
    elif name in rule.outliving_names:
        assert node.guard is not None
        value = node.guard[rule.outliving_names.index(name)]
    else:
        value = saved
    kinds = (first_metadata(node).F.array_type, SavedTensor, Freed)
    if value.__class__ in kinds:
        return RawSaved(node, position), True
    if value is None:
        return SavedNone(), True
    if name != "index" or value.__class__ is not tuple:
        return value, False
    parts = [
        RawSaved(node, position, place) if part.__class__ in kinds else SavedNone()
        for place, part in enumerate(value)
    ]
    return tuple(parts), True


def _as_tensors(raw: Value) -> Any:
    """The tensors of handles, None where nothing was saved."""
    if raw.__class__ is tuple:
        return tuple([_as_tensors(part) for part in raw])
    return raw.tensor() if raw.__class__ is RawSaved else None
