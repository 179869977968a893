"""How far the walk over a large graph gets in one turn, and what it says of the pass."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from asyncgrad.core.states import LONG_WAY_NS, SHARE_NS

if TYPE_CHECKING:
    from asyncgrad.core.graph_task import GraphTask

#: Expected nanoseconds for a walk to look at a node.
WALK_NS = 120
#: Walks over so many nodes are worth counting.
LONG = 200
#: A dictionary of more entries takes a while to make room for others.
_LARGE = 10_000
#: Nodes to look at in a turn in which it does.
_FEW = 32
#: Where others wait, a slice is so small a part of a pass that none of several which are alike is
#: much ahead of the others; but it has to be worth its while, and passes that cost less than
#: `SHORT_NS` are not divided so.
_PARTS = 12
_LEAST_NS = 100_000
SHORT_NS = 900_000
#: Nodes that say what all cost.
_SAMPLE = 16


def steps_of(known: int, budget: int) -> int:
    """How many nodes a walk that knows so many is to look at in so many nanoseconds."""
    steps = budget // WALK_NS + 1
    if known > _LARGE:
        # Python's dictionaries move when they are two thirds of a power of two full: for half a
        # millisecond with 40,000 entries, which is a turn of its own.
        room = (2 << (known * 3 // 2).bit_length()) // 3 - known
        return min(steps, max(room, _FEW))
    return steps


def cost_of(task: GraphTask) -> int:
    """What a pass that has been walked over is expected to cost, by a few of its nodes."""
    nodes = task.dependencies
    sampled = 0
    for node in islice(nodes, _SAMPLE):
        sampled += node.cost
        if task.careful or node.extras is not None:
            sampled += LONG_WAY_NS
    return sampled * len(nodes) // _SAMPLE


def share_of(cost: int) -> int:
    """The longest slice of a pass of this cost where others wait."""
    return min(SHARE_NS, max(_LEAST_NS, cost // _PARTS))
