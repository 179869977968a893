"""How far the walk over a large graph gets in one turn."""

from __future__ import annotations

#: Expected nanoseconds for a walk to look at a node.
WALK_NS = 120
#: Walks over so many nodes are worth counting.
LONG = 200
#: A dictionary of more entries takes a while to make room for others.
_LARGE = 10_000
#: Nodes to look at in a turn in which it does.
_FEW = 32


def steps_of(known: int, budget: int) -> int:
    """How many nodes a walk that knows so many is to look at in so many nanoseconds."""
    steps = budget // WALK_NS + 1
    if known > _LARGE:
        # Python's dictionaries move when they are two thirds of a power of two full: for half a
        # millisecond with 40,000 entries, which is a turn of its own.
        room = (2 << (known * 3 // 2).bit_length()) // 3 - known
        return min(steps, max(room, _FEW))
    return steps
