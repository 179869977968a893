"""All messages of a world: who sends them, what for, and what they find when they come late.

A message is a call of the method `on_...` of a host, and its answer is what that returns or raises.
Three things hold for all (`inbox.py`, `site.py`):

- Sent to a worker that is lost, or is lost meanwhile, it raises `WorkerLostError` at the sender. A
  host refuses the messages of a lost worker, and drops what that worker had there.
- It is taken once: a second copy is refused. The sender gets the answer to the first.
- A sender that waits no longer, because it was cancelled or the timeout of the world is over, sends
  `give_up`, which cancels the method, or has the host refuse a message that comes later.
"""

from __future__ import annotations

from typing import Any

from asyncgrad.records import NamedTuple


class Message(NamedTuple):
    """A call of a host's method."""

    session: str
    #: The rank of the sender, -1 for the caller of the world.
    sender: int
    #: Counts the sender's messages: a message that arrives twice is taken once.
    number: int
    method: str
    args: tuple[Any, ...]
    #: Modes of the sender's that hold for the method, too.
    modes: dict[str, bool]

    @property
    def called(self) -> str:
        """What errors call it."""
        return MESSAGES[self.method].called or self.method


class Place(NamedTuple):
    """The place of a micro-batch in a step of a pipeline."""

    #: The key under which hosts stage the gradients of the step.
    key: tuple[int, int]
    step: int
    stage: int
    #: The number of the stage's part.
    part: int
    number: int


class Kind(NamedTuple):
    """What all messages with one method have in common."""

    sender: str
    asks: str
    #: What it finds if what it is about has ended, or the like has come before.
    late: str
    #: What errors call it, if not by its method.
    called: str | None = None
    #: Its answer has results of a part, to which gradients come back.
    has_results: bool = False
    #: It waits for no others, because a host that does not confirm it within the grace is lost.
    decides: bool = False
    #: Its answer may take longer than the timeout of the world.
    is_unlimited: bool = False
    #: Its sender sends `stop` in place of `give_up`.
    is_stopped: bool = False


_CALLER, _OWNER = "the caller", "who calls a part"
_DECIDES, _RANK = "who decides", "a rank of a run"
_REFUSED, _NOTHING = "it is refused", "nothing happens"
_MADE = "refused, if `release` has come before"
_OF_PASS = "it is dropped after its pass, and refused after the run"

MESSAGES = {
    # The world.
    "open": Kind(_CALLER, "begin: the others can be reached", _REFUSED),
    "watch": Kind(_CALLER, "say which workers it has lost, at the latest after a while", _REFUSED),
    "fence": Kind(_CALLER, "never listen to a worker again", _NOTHING),
    "give_up": Kind("who sent a message", "cancel what that asked for", _NOTHING),
    "release": Kind(_CALLER + " or a part", "drop what is no longer referred to", _NOTHING),
    "statistics": Kind(_CALLER, "count what is kept", _REFUSED),
    "metrics": Kind(_CALLER, "the same for Prometheus", _REFUSED),
    "trace": Kind(_CALLER, "record all passes", "recording begins anew"),
    "traced": Kind(_CALLER, "end that, and send what was recorded", "there is nothing to send"),
    "close": Kind(_CALLER, "drop everything, end what runs", _NOTHING),
    # Parts and optimizers.
    "remote": Kind(_CALLER, "make a part", _MADE),
    "apply": Kind(_OWNER, "call a function with a part", "it is refused without the part"),
    "optimizer": Kind(_CALLER, "make an optimizer of parts", _MADE),
    "optimize": Kind(_CALLER, "call a method of it", _REFUSED, "an optimizer"),
    # A step through parts.
    "forward": Kind(_OWNER, "compute a call, keep its graph", _MADE, "a part", has_results=True),
    "hand_over": Kind("a host", "send results for the next part", _REFUSED, has_results=True),
    "fetch": Kind(_OWNER, "send results of a call", _REFUSED, has_results=True),
    "backward": Kind(_OWNER, "compute gradients, stage those of leaves", _REFUSED),
    "deposit": Kind("a host", "keep gradients of results that were handed over", _REFUSED),
    "prepare": Kind(_DECIDES, "promise to commit, and wait for one of the next two", _REFUSED),
    "commit": Kind(_DECIDES, "add what is staged to `.grad`", "refused, or done", decides=True),
    "abort": Kind(_DECIDES, "drop what is staged, end what still computes", _NOTHING),
    # Runs, and passes of data parallel models.
    "run": Kind(_CALLER, "call the function", _REFUSED, is_unlimited=True, is_stopped=True),
    "replicate": Kind(_CALLER, "make a copy of a model", _REFUSED, is_stopped=True),
    "forward_backward": Kind(_CALLER, "compute with a copy, stage its gradients", _REFUSED),
    "stop": Kind(_CALLER, "end a run, once passes that have voted know the decision", _NOTHING),
    "mail": Kind(_RANK, "take part: a tensor, data or a vote", _OF_PASS, "a collective"),
    "gave_up": Kind(_RANK, "fail a pass, as it has there; rank 0 decides so", _OF_PASS),
    "succeeds": Kind("rank 0", "commit the pass that was voted for", _OF_PASS, decides=True),
    "has_succeeded": Kind(_RANK, "say whether rank 0, now lost, has said so", "it may not know"),
    "returned": Kind(_RANK, "expect nothing more: the function has returned", _REFUSED),
    "awaits": Kind(_RANK, "know what this rank, which stands still, awaits", _REFUSED),
    "stop_waiting": Kind(_RANK, "end all waits: ranks wait for one another", _REFUSED),
}  # fmt: skip
