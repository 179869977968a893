"""Names for what is handled without looking inside, so that signatures say what is meant.

All but `Steps` stand for `Any`: arrays are duck-typed, because the core knows no array library, and
hot paths tell the forms of the others apart by `__class__`, which type checkers do not follow.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

_T = TypeVar("_T")
#: An array of a device's library.
Array: TypeAlias = Any
#: The gradient of one output: an array, a tensor where the pass records itself, None if undefined.
Gradient: TypeAlias = Any
#: The `Gradient` of a node with one output; a list with one for each output of any other node.
NodeGradient: TypeAlias = Any
#: For each `Gradient`, in the same form: nothing else refers to its array, so it may be added into.
Owned: TypeAlias = Any
#: A `Node` for an edge to its first input, an `Edge` for one to another input, None for no edge.
StoredEdge: TypeAlias = Any
#: A `StoredEdge`, or a tuple of several.
Following: TypeAlias = Any
#: What a table node keeps: one value, or a tuple of several; a `Freed` once it is released.
Saved: TypeAlias = Any
#: The namespace to compute with: raw array functions, or recorded functions on tensors.
Namespace: TypeAlias = Any
#: A dtype of a device's array library.
DType: TypeAlias = Any
#: A device with its array functions, of `asyncgrad.devices`, which the core does not import.
Device: TypeAlias = Any
#: A stream of such a device, or None for the host.
Stream: TypeAlias = Any
#: A chain of streams that are current, one for each device.
StreamScope: TypeAlias = Any
#: What a function of the user may take, return or await.
Value: TypeAlias = Any
#: A generator that yields what has to be awaited and is sent the result; it returns a `_T`.
Steps: TypeAlias = Generator[Any, Any, _T]
