"""Nested tuples, lists, dictionaries and named tuples, taken apart and put together again."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any

from asyncgrad.records import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: What a leaf has in the place of a structure.
_LEAF: Any = None


class Structure(NamedTuple):
    """How a tree is put together: its kind, what the kind needs, and its branches."""

    kind: Any
    context: Any
    branches: tuple[Structure, ...]

    def build(self, leaves: Iterator[Any]) -> Any:
        """The tree with other leaves."""
        if self.kind is _LEAF:
            return next(leaves)
        parts = [branch.build(leaves) for branch in self.branches]
        if self.kind is defaultdict:
            factory, keys = self.context
            return defaultdict(factory, zip(keys, parts, strict=True))
        if issubclass(self.kind, dict):
            return self.kind(zip(self.context, parts, strict=True))
        return self.kind(*parts) if self.context == "named" else self.kind(parts)

    def __len__(self) -> int:
        """How many leaves there are."""
        return 1 if self.kind is _LEAF else sum(map(len, self.branches))


def _branches(tree: Any) -> tuple[Any, Any, list[Any]] | None:
    """The kind, context and children of a tree; None for a leaf."""
    if isinstance(tree, tuple):
        if hasattr(tree, "_fields"):
            return type(tree), "named", list(tree)
        return tuple, None, list(tree)
    if isinstance(tree, list):
        return list, None, list(tree)
    if isinstance(tree, defaultdict):
        return defaultdict, (tree.default_factory, tuple(tree)), list(tree.values())
    if isinstance(tree, dict):
        kind = OrderedDict if isinstance(tree, OrderedDict) else dict
        return kind, tuple(tree), list(tree.values())
    return None


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves of a tree, and how it is put together."""
    found = _branches(tree)
    if found is None:
        return [tree], Structure(_LEAF, None, ())
    kind, context, children = found
    leaves: list[Any] = []
    structures = []
    for child in children:
        own, structure = flatten(child)
        leaves += own
        structures.append(structure)
    return leaves, Structure(kind, context, tuple(structures))


def unflatten(structure: Structure, leaves: Any) -> Any:
    """The tree of some leaves."""
    return structure.build(iter(leaves))


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with a function's results in the place of its leaves."""
    leaves, structure = flatten(tree)
    return unflatten(structure, map(function, leaves))


def spread(prefix: Any, structure: Structure) -> list[Any] | None:
    """What a tree that may end earlier says of each leaf of a structure; None where it differs."""
    if structure.kind is _LEAF:
        return None if _branches(prefix) is not None else [prefix]
    found = _branches(prefix)
    if found is None:
        return [prefix] * len(structure)
    kind, context, children = found
    if kind is not structure.kind or len(children) != len(structure.branches):
        return None
    if isinstance(prefix, dict):
        keys = structure.context[1] if kind is defaultdict else structure.context
        if {*prefix} != {*keys}:
            return None
        children = [prefix[key] for key in keys]
    elif context != structure.context:
        return None
    out: list[Any] = []
    for child, branch in zip(children, structure.branches, strict=True):
        own = spread(child, branch)
        if own is None:
            return None
        out += own
    return out
