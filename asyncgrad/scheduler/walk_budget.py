"""How far the walk over a large graph gets in one turn, and the cost that it predicts."""

from __future__ import annotations

from itertools import islice

from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.states import GENERAL_NODE_NS, SHARE_NS

#: The expected time for one node of a walk.
WALK_NS = 120
#: Graphs with more nodes than this get a cost estimate.
LONG = 200
#: A dictionary with more entries takes noticeable time to grow.
_LARGE = 10_000
#: How many nodes are walked in a turn in which such a dictionary grows.
_FEW = 32
#: While other passes wait, a slice is at most `1 / _PARTS` of its pass, so that none of several
#: equal passes gets much ahead. But it may always last `_LEAST_NS`, to be worth the switch, and
#: passes that cost less than `_SHORT_NS` are not divided so.
_PARTS = 12
_LEAST_NS = 100_000
_SHORT_NS = 900_000
#: How many nodes are sampled for the estimate.
_SAMPLE = 16


def steps_of(known: int, budget: int) -> int:
    """How many nodes to walk within `budget` nanoseconds, if `known` nodes are counted already."""
    steps = budget // WALK_NS + 1
    if known > _LARGE:
        # Python resizes a dictionary that is two thirds of a power of two full. That takes half a
        # millisecond with 40,000 entries, so it gets a turn of its own.
        room = (2 << (known * 3 // 2).bit_length()) // 3 - known
        return min(steps, max(room, _FEW))
    return steps


def share_of(task: GraphTask) -> int:
    """The longest slice of a pass whose walk is complete while others wait; 0 for a short one.

    The cost of the pass is estimated from a sample of its nodes.
    """
    nodes = task.dependencies
    sampled = sum(
        node.cost + GENERAL_NODE_NS * (task.careful or node.extras is not None)
        for node in islice(nodes, _SAMPLE)
    )
    cost = sampled * len(nodes) // _SAMPLE
    return min(SHARE_NS, max(_LEAST_NS, cost // _PARTS)) if cost > _SHORT_NS else 0
