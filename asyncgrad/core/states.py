"""Constants of a pass: its states, the outcomes of a slice, and limits for cheap and heavy work."""

from __future__ import annotations

from enum import Enum
from typing import Any

from asyncgrad.records import NamedTuple


class State(Enum):
    """The state of a pass."""

    NEW = "new"
    RUNNING = "running"
    DRAINING = "draining"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Outcome(Enum):
    """Why a slice ended."""

    #: Nothing is ready, launched or waiting: the gradients can be committed.
    FINISHED = "finished"
    #: More nodes are ready than the slice had time for.
    MORE = "more"
    #: The next node, or the commit, is an expensive one, for which the slice has no time left.
    HEAVY = "heavy"
    #: Nodes are launched, and nothing is ready.
    WAITING = "waiting"


#: Module-level names, because Python looks up a member through its class each time.
NEW, RUNNING, DRAINING, DONE, FAILED, CANCELLED = State
FINISHED, MORE, HEAVY, WAITING = Outcome
ENDED = frozenset({DONE, FAILED, CANCELLED})


class Ready(NamedTuple):
    """A node with its gradients; in the heap it is a plain tuple, which costs less."""

    #: Minus the sequence number: a heap hands out its smallest.
    key: int
    order: int
    node: Any
    #: The gradient of the node's only input, or a list with one for each input.
    gradient: Any
    owned: Any


class Suspended(NamedTuple):
    """A node that waits for something that only an event loop can provide."""

    node: Any
    #: The generator of the node's evaluation, to be resumed with the result of `waiting`.
    evaluation: Any
    waiting: Any


class Ended(NamedTuple):
    """How a coroutine node ended: it returned, raised, or was cancelled by the loop."""

    result: Any = None
    error: BaseException | None = None
    #: The loop is cancelling all its tasks.
    cancelled: bool = False


class Resumed(NamedTuple):
    """Takes the place of the gradient of a ready node that has waited and can go on."""

    #: The rest of the node's evaluation.
    evaluation: Any
    #: The result of the wait.
    result: Any


#: Expected cost in nanoseconds. Nodes below the first are cheap; after cheap nodes with a total of
#: the second, a segment leaves its thread.
CHEAP_NS = 20_000
CHEAP_RUN_NS = 24_000
#: Nodes above this are heavy and run in a thread.
HEAVY_NS = 200_000
#: The longest slice of a pass while others wait: many equal slices are fairer than a few full ones.
#: The same holds on a device, which has work queued for a while.
SHARE_NS = 250_000
#: What hooks, observers and recording add to a table node.
LONG_WAY_NS = 5_000
