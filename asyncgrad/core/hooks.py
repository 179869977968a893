"""Hooks: where they are stored, and the handles that remove them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from asyncgrad.aliases import Value

_next_key: Callable[[], int] = count().__next__

#: Hooks in order of registration. Keys are unique numbers, as a function may be registered twice.
Hooks = dict[int, Any]


class RemovableHandle:
    """Removes a hook: by `remove()`, any number of times, or at the end of a `with` block."""

    __slots__ = ("_hooks", "id")

    def __init__(self, hooks: Hooks, hook: Value) -> None:
        self._hooks: Hooks | None = hooks
        #: The hook's key among the others.
        self.id = _next_key()
        hooks[self.id] = hook

    def remove(self) -> None:
        """Remove the hook; further calls do nothing."""
        if self._hooks is not None:
            self._hooks.pop(self.id, None)
            self._hooks = None

    def __enter__(self) -> RemovableHandle:
        """The handle itself; the hook is registered already."""
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


class NodeExtras:
    """What only few nodes have: hooks, metadata, and anomaly mode's notes."""

    __slots__ = ("metadata", "packed", "post", "pre", "retain", "tensor")

    def __init__(self) -> None:
        #: Hooks on each forward output, by its number.
        self.tensor: dict[int, Hooks] = {}
        #: By output number: a weak reference to the tensor that retains its gradient (after hooks).
        self.retain: dict[int, Callable[[], Any]] = {}
        #: Hooks that run before the node, and after it.
        self.pre: Hooks = {}
        self.post: Hooks = {}
        #: Whether hooks have packed some of the saved values.
        self.packed = False
        #: The user's dictionary.
        self.metadata: dict[str, Any] = {}

    def count(self) -> int:
        """How many hooks there are."""
        return sum(map(len, (*self.tensor.values(), self.retain, self.pre, self.post)))


#: The extras of a node that has none, but that passes have to run in the general way: of the
#: accumulator of a leaf that was frozen. Nothing is ever put here.
NO_EXTRAS = NodeExtras()
