"""The words of a pass: its states, what a slice answers, and what counts as cheap and as heavy."""

from __future__ import annotations

from enum import Enum
from typing import Any

from asyncgrad.records import NamedTuple


class State(Enum):
    """Where a pass stands."""

    NEW = "new"
    RUNNING = "running"
    DRAINING = "draining"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Outcome(Enum):
    """Why a slice ended."""

    #: Nothing is ready, handed out or to come: the gradients can be committed.
    FINISHED = "finished"
    #: More is ready than the slice had time for.
    MORE = "more"
    #: The next node, or the commit, is an expensive one, for which the slice has no time left.
    HEAVY = "heavy"
    #: Nodes are handed out, and nothing else is ready.
    WAITING = "waiting"


#: As names of the module: Python looks a member of a class up each time.
NEW, RUNNING, DRAINING, DONE, FAILED, CANCELLED = State
FINISHED, MORE, HEAVY, WAITING = Outcome
ENDED = frozenset({DONE, FAILED, CANCELLED})


class Ready(NamedTuple):
    """A node with its gradients; a plain tuple of the same in the heap, where it costs less."""

    #: Minus the sequence number: a heap hands out its smallest.
    key: int
    order: int
    node: Any
    #: The gradient of the node's only input, or a list with one for each input.
    gradient: Any
    owned: Any


class Suspended(NamedTuple):
    """A node that waits for something only an event loop can give."""

    node: Any
    #: The rest of the node's evaluation, to be resumed with the result of `waiting`.
    evaluation: Any
    waiting: Any


class Resumed(NamedTuple):
    """What has come for a node that has waited: in the place of its gradient, it is ready again."""

    #: The rest of the node's evaluation.
    evaluation: Any
    #: What it is to be resumed with.
    result: Any


#: Of nodes' expected costs, in nanoseconds. What costs less is cheap; so much of that in a row, and
#: a segment leaves its thread.
CHEAP_NS = 20_000
CHEAP_RUN_NS = 24_000
#: What costs more is heavy: it runs in a thread.
HEAVY_NS = 200_000
#: The longest slice of a pass for which others wait: many that are alike are fairer than few full
#: ones. Likewise on a device, which has work for a while.
SHARE_NS = 250_000
#: What hooks, watching and recording add to a node of the table.
LONG_WAY_NS = 5_000
