"""Flatten and rebuild nested tuples, lists, dictionaries and named tuples."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from asyncgrad.records import NamedTuple

#: Marks a leaf where a structure would have its kind.
_LEAF: Any = None


class Structure(NamedTuple):
    """The structure of a tree: its container type, that type's context, and its branches."""

    kind: Any
    context: Any
    branches: tuple[Structure, ...]

    def build(self, leaves: Iterator[Any]) -> Any:
        """Build a tree of this structure from leaves."""
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
        return 1 if self.kind is _LEAF else sum(map(len, self.branches))


def _branches(tree: Any) -> tuple[Any, Any, list[Any]] | None:
    """The type, context and children of a container; None for a leaf."""
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
    """The leaves of a tree, and its structure."""
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
    """Build the tree of a structure from leaves."""
    return structure.build(iter(leaves))


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """Apply a function to each leaf of a tree."""
    leaves, structure = flatten(tree)
    return unflatten(structure, map(function, leaves))


def spread(prefix: Any, structure: Structure) -> list[Any] | None:
    """Repeat a prefix tree's leaves for each leaf of a structure; None if the two do not match."""
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
