"""Access to saved values from outside: `node._saved_*`, `node._raw_saved_*` and their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncgrad.aliases import Value
from asyncgrad.core.node import Freed, Node, OpNode, first_metadata, refuse_freed
from asyncgrad.core.saved import SavedHooks, SavedTensor, pack, pack_attribute, restored
from asyncgrad.core.saved_values import check_version, guards_by_position, saved_edge, values_of
from asyncgrad.core.variable import wrap
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
    """A handle to one saved value of a table node, for registering hooks on it."""

    __slots__ = ("_node", "_part", "_position")

    def __init__(self, node: OpNode, position: int, part: int | None = None) -> None:
        self._node = node
        self._position = position
        self._part = part

    @property
    def data(self) -> Any:
        """What the hooks packed, or a tensor with the values."""
        value = self._value()
        if value.__class__ is SavedTensor and value.unpack_hook is not None:
            return value.data
        where = dict(self._node.rule.arrays).get(self._position, -1)
        edge = None if where < 0 else saved_edge(self._node, where)
        return restored(value, first_metadata(self._node).F.metadata_of(value), edge)

    @property
    def unpack_hook(self) -> Callable[[Any], Any] | None:
        """The function that unpacks it, None without hooks."""
        value = self._value()
        return value.unpack_hook if value.__class__ is SavedTensor else None

    def _value(self) -> Any:
        if self._node.saved.__class__ is Freed:
            refuse_freed(self._node, self._node.saved)
        value = values_of(self._node)[self._position]
        return value if self._part is None else value[self._part]

    def register_hooks(
        self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]
    ) -> None:
        """Pack the value now, and unpack it whenever it is used."""
        node = self._node
        try:
            value = self._value()
        except GraphFreedError as error:
            error.args = (
                f"Calling register_hooks on a saved tensor after it has been freed. {error}",
            )
            raise
        if value.__class__ is SavedTensor:
            value.register_hooks(pack_hook, unpack_hook)
        else:
            hooks = SavedHooks(pack_hook, unpack_hook)
            if self._position in dict(node.rule.arrays):
                pack(node, hooks, (self._position,))
            else:
                pack_attribute(node, hooks, self._position, self._part)


def saved_attribute(node: OpNode, name: str) -> Any:
    """A node's `_saved_*` or `_raw_saved_*` attribute.

    Raises:
        AttributeError: if the node saves nothing of that name.
        RuntimeError: for a tensor that has been released.
    """
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
        position = names.index(key)
        where = dict(rule.arrays).get(position)
        if not raw:
            return _read(node, position, key, where)
        found = RawSaved(node, position) if where is not None else _raw(node, position, key)
        if found is not None:
            return found
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
    own = node.rule.names
    arrays = {position for position, _ in node.rule.arrays}
    names = _their_names(own)
    raw = [
        f"_raw_saved_{name}"
        for position, name in enumerate(names)
        if position in arrays or _raw(node, position, own[position]) is not None
    ]
    return [*raw, *[f"_saved_{name}" for name in names]]


def _raw(node: OpNode, position: int, key: str) -> Any:
    """The handle of an array that is saved though it is no operand; None for other values."""
    rule, saved = node.rule, node.saved
    if saved.__class__ is not Freed:
        value = values_of(node)[position]
    elif key in rule.plain:
        assert node.guard is not None
        value = node.guard[rule.plain.index(key)]
    else:
        return RawSaved(node, position)
    kinds = (first_metadata(node).F.array_type, SavedTensor)
    if value.__class__ in kinds:
        return RawSaved(node, position)
    if value is None:
        return SavedNone()
    if key != "index" or value.__class__ is not tuple:
        return None
    if saved.__class__ is Freed:
        refuse_freed(node, saved)
    return tuple(
        RawSaved(node, position, place) if part.__class__ in kinds else SavedNone()
        for place, part in enumerate(value)
    )


def _tensor_of(node: Node, value: Value) -> Any:
    """An array that a table node keeps, or what hooks have made of it, as a tensor."""
    if value.__class__ is SavedTensor:
        return value.unpack(node)
    F = first_metadata(node).F
    return wrap(value, F.metadata_of(value)) if value.__class__ is F.array_type else None


def _read(node: OpNode, position: int, key: str, where: int | None) -> Any:
    saved = node.saved
    if saved.__class__ is Freed:
        plain = node.rule.plain
        if where is None and node.guard is not None and key in plain:
            value = node.guard[plain.index(key)]
            if key != "index" or value.__class__ is not tuple:
                return value
        refuse_freed(node, saved)
    value = values_of(node)[position]
    F = first_metadata(node).F
    if where is None:
        if key == "index" and value.__class__ is tuple:
            return tuple([_tensor_of(node, part) for part in value])
        tensor = _tensor_of(node, value)
        return value if tensor is None else tensor
    edge = saved_edge(node, where)
    if value.__class__ is SavedTensor:
        return value.unpack(node, edge)
    if node.guard is not None:
        check_version(node, running=False)
    elif where < 0:
        # `counter_of` gives the output this counter, too, if it ever needs one.
        node.guard, node.version = VersionCounter(), 0
    tensor = restored(value, F.metadata_of(value), edge)
    if tensor._counter is None:
        tensor._counter, _ = guards_by_position(node).get(position, (None, 0))
    return tensor
