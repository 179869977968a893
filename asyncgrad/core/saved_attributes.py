"""Access to saved values from outside: `node._saved_*`, `node._raw_saved_*` and their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.core.node import Freed, Node, bind_reader, first_metadata, refuse_freed
from asyncgrad.core.saved import SavedHooks, SavedTensor, pack, restored
from asyncgrad.core.saved_values import check_version, saved_edge, values_of, watched
from asyncgrad.core.variable import wrap
from asyncgrad.core.versions import VersionCounter
from asyncgrad.errors import AutogradError

if TYPE_CHECKING:
    from collections.abc import Callable


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

    __slots__ = ("_node", "_position")

    def __init__(self, node: Node, position: int) -> None:
        """Refer to the saved value at a position."""
        self._node = node
        self._position = position

    @property
    def data(self) -> Any:
        """What the hooks packed, or a tensor with the values."""
        value = self._value()
        if value.__class__ is SavedTensor and value.unpack_hook is not None:
            return value.data
        rule = self._node.rule
        assert rule is not None
        where = dict(rule.arrays)[self._position]
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
        return values_of(self._node)[self._position]

    def register_hooks(
        self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]
    ) -> None:
        """Pack the value now, and unpack it whenever it is used.

        Raises:
            RuntimeError: if hooks have been set before, or the value has been released.
        """
        node = self._node
        value = self._value()
        if value.__class__ is SavedTensor:
            value.register_hooks(pack_hook, unpack_hook)
        else:
            pack(node, SavedHooks(pack_hook, unpack_hook), (self._position,))


def saved_attribute(node: Node, name: str) -> Any:
    """A node's `_saved_*` or `_raw_saved_*` attribute.

    Raises:
        AttributeError: if the node saves nothing of that name.
        RuntimeError: for a tensor that has been released.
    """
    raw = name.startswith("_raw_saved_")
    own = name.removeprefix("_raw_saved_" if raw else "_saved_")
    rule = node.rule
    if rule is not None:
        names = rule.names
        key = own if own in names else _ALIASES.get(own, own)
        if key == "y" and key not in names and key not in rule.keepable:
            key = "scalar"
        if key in names:
            position = names.index(key)
            where = dict(rule.arrays).get(position)
            if raw and where is not None:
                return RawSaved(node, position)
            if not raw:
                return _read(node, position, key, where)
        if key in rule.keepable:
            # An operand that no gradient of this call needs, so it was not saved.
            return None
    raise AttributeError(f"{node.name()} has no attribute {name!r}")


#: PyTorch's names of saved values, with ours.
_ALIASES = {
    "self": "x", "other": "y", "mat2": "y", "result": "out", "exponent": "scalar", "dim": "dims",
    "dims": "order", "self_sym_sizes": "x_shape", "indices": "index", "min": "low", "max": "high",
    "input": "x", "mat1": "x", "mat": "x", "batch1": "x", "A": "x", "vec": "y", "tensor": "y",
    "batch2": "y", "target": "y", "inverse": "out", "L": "out", "negative_slope": "slope",
}  # fmt: skip


def kept_by(node: Node) -> list[tuple[str, Any]]:
    """A table node's saved values with PyTorch's names: arrays, `SavedTensor`s, and others."""
    rule = node.rule
    assert rule is not None
    if node.saved.__class__ is Freed:
        return []
    if not rule.names:
        return [("saved", node.saved)]
    return list(zip(_their_names(rule.names), values_of(node), strict=True))


def _their_names(names: tuple[str, ...]) -> list[str]:
    """Translate our names of saved values to PyTorch's."""
    theirs = {ours: name for name, ours in reversed(_ALIASES.items())}
    return [theirs.get(name, name) for name in names]


def saved_names(node: Node) -> list[str]:
    """The names of a node's `_saved_*` and `_raw_saved_*` attributes."""
    rule = node.rule
    if rule is None:
        return []
    arrays = {position for position, _ in rule.arrays}
    names = _their_names(rule.names)
    raw = [f"_raw_saved_{name}" for position, name in enumerate(names) if position in arrays]
    return [*raw, *[f"_saved_{name}" for name in names]]


def _read(node: Node, position: int, key: str, where: int | None) -> Any:
    saved = node.saved
    if saved.__class__ is Freed:
        rule = node.rule
        assert rule is not None
        if where is None and node.guard is not None and key in rule.plain:
            return node.guard[rule.plain.index(key)]
        refuse_freed(node, saved)
    value = values_of(node)[position]
    F = first_metadata(node).F
    if where is None:
        if key == "index" and value.__class__ is tuple:
            return tuple(
                [wrap(p, F.metadata_of(p)) if p.__class__ is F.array_type else None for p in value]
            )
        return wrap(value, F.metadata_of(value)) if value.__class__ is F.array_type else value
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
        tensor._counter, _ = watched(node).get(position, (None, 0))
    return tensor


bind_reader(saved_attribute, saved_names)
