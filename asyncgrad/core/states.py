"""What a pass consists of: its states and outcomes, limits of its work, entries and buffers."""

from __future__ import annotations

from enum import Enum
from typing import Any

from asyncgrad.aliases import Gradient, Namespace
from asyncgrad.records import NamedTuple


class State(Enum):
    """How far a pass has come; in the last three it has ended."""

    NEW = "new"
    RUNNING = "running"
    #: It has failed or was cancelled, and ends when the last node that was handed out has reported.
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


class Suspended(NamedTuple):
    """A node that waits for something that only an event loop can provide."""

    node: Any
    #: The generator that runs the node, to be resumed with the result of `waiting`.
    steps: Any
    waiting: Any
    #: For `waiting`: as the pass's was when the node began to wait. Other nodes change the pass's.
    context: Any


class Resumed(NamedTuple):
    """Takes the place of the gradient of a ready node that has waited and can go on."""

    #: The generator that runs the node.
    steps: Any
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
#: What it adds to the cost of a table node to run it by `run_node`, for hooks or observers.
GENERAL_NODE_NS = 5_000


class InputBuffer:
    """The gradients of one node so far, one slot for each of its inputs.

    Gradients are summed in descending sequence number of the nodes that produced them, in whatever
    order these finish, so the same pass gives the same bits. If producers run one at a time,
    gradients arrive in that order and are added at once. If producers run in parallel, a gradient
    that arrives before that of a producer with a greater number is held back.
    """

    __slots__ = ("held", "owned", "values")

    def __init__(self, size: int) -> None:
        self.values: list[Any] = [None] * size
        #: The value may be added into: it was summed here, or the producer gave up its array.
        self.owned = [False] * size
        #: Gradients that arrived early: (minus sequence number, input, gradient, owned).
        self.held: list[tuple[int, int, Any, bool]] = []

    def add(self, position: int, gradient: Gradient, owned: bool, F: Namespace) -> None:
        """Add a gradient to one of the inputs; None changes nothing."""
        if gradient is None:
            return
        value = self.values[position]
        if value is None:
            self.values[position] = gradient
            self.owned[position] = owned
            return
        # The sum may be made in place only in an array that nothing else refers to.
        self.values[position], self.owned[position] = F.accumulate(
            value, self.owned[position], gradient, owned
        )

    def hold(self, sequence_nr: int, position: int, gradient: Gradient, owned: bool) -> None:
        """Hold a gradient that arrived early; `admit` adds it."""
        if gradient is not None:
            self.held.append((-sequence_nr, position, gradient, owned))

    def admit(self, number: int, F: Namespace) -> None:
        """Add the held gradients of all producers with this number or a greater one.

        The producer with this very number may report its gradients in two parts. If one part is
        held, it came before the other, so it is added first.
        """
        if self.held:
            self.held.sort(key=lambda entry: entry[0])
            while self.held and -self.held[0][0] >= number:
                _, position, gradient, owned = self.held.pop(0)
                self.add(position, gradient, owned, F)
