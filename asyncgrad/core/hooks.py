"""Hooks: where they are kept, and the handles that remove them."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_next_key: Callable[[], int] = count().__next__

#: Hooks in order of registration, by a key of their own: the same function may be there twice.
Hooks = dict[int, Any]


class RemovableHandle:
    """Removes a hook: by `remove()`, any number of times, or at the end of a `with` block."""

    __slots__ = ("_hooks", "_key")

    def __init__(self, hooks: Hooks, hook: Any) -> None:
        """Register `hook` last."""
        self._hooks: Hooks | None = hooks
        self._key = _next_key()
        hooks[self._key] = hook

    def remove(self) -> None:
        """Take the hook out; a second call does nothing."""
        if self._hooks is not None:
            self._hooks.pop(self._key, None)
            self._hooks = None

    def __enter__(self) -> RemovableHandle:
        """Nothing more to do: the hook is registered."""
        return self

    def __exit__(self, *error: object) -> None:
        """Take the hook out."""
        self.remove()


class NodeExtras:
    """What few nodes have: hooks, metadata, and what anomaly mode remembers."""

    __slots__ = ("_metadata", "packed", "post", "pre", "retain", "tensor")

    def __init__(self) -> None:
        """Start with nothing."""
        #: Hooks on each forward output, by its number.
        self.tensor: dict[int, Hooks] = {}
        #: Where the gradient of each output is to be kept, by its number: always after its hooks.
        self.retain: dict[int, Callable[[], Any]] = {}
        #: Hooks on the node before it runs, and after.
        self.pre: Hooks = {}
        self.post: Hooks = {}
        #: Some of what the node has saved is packed by hooks.
        self.packed = False
        self._metadata: dict[str, Any] | None = None

    @property
    def metadata(self) -> dict[str, Any]:
        """The user's dictionary, made when first asked for."""
        if self._metadata is None:
            self._metadata = {}
        return self._metadata
