"""What the other ranks of a run have sent to one of them.

A message has a tag: a name and a key. The receiver finds a message by its key, whose first two
members say to which collective or pass it belongs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from asyncgrad.distributed.errors import PassEndedError, late
from asyncgrad.distributed.lifetimes import Memory, one_of
from asyncgrad.distributed.site import Site
from asyncgrad.errors import AutogradError
from asyncgrad.scheduler.segments import retrieve

if TYPE_CHECKING:
    import asyncio


def decision(key: Any) -> Any:
    """The tag of what rank 0 decides on a pass."""
    return "the decision", *key, "decision"


class Mail:
    """The messages of a run that have come to one rank, and those that it waits for."""

    def __init__(self, site: Site) -> None:
        self._site = site
        #: Whether the run has ended on this rank: it has failed somewhere, or nobody waits for it.
        self.ended = False
        #: By key and sender: a future for the name and content of the message.
        self._boxes: dict[tuple[Any, int], asyncio.Future[Any]] = {}
        #: The passes that have ended here: models' numbers and passes' names.
        self._closed = Memory()
        #: The passes that have not ended here and that another rank has given up, with the error.
        self._given_up: dict[Any, str] = {}
        #: The ranks on which the run's function has returned.
        self._returned = set[int]()
        #: Which ranks wait for one another, so that this one waits for nothing any more, or None.
        self.stopped: str | None = None

    def take(self, tag: Any, sender: int, content: Any) -> bool:
        """Keep what has come; False if it belongs to a pass that has ended."""
        if tag[1:3] in self._closed:
            return False
        if not (box := self.expected(sender, tag)).done():
            box.set_result((tag[0], content))
        return True

    def give_up(self, key: Any, sender: int, reason: str | None) -> bool:
        """End the waits for a pass that another rank has given up; False if it has ended."""
        if key in self._closed:
            return False
        why = f"rank {sender} has given this pass up" + (f": {reason}" if reason else "")
        self._given_up.setdefault(key, why)
        self._end_waits(partial(PassEndedError, why), lambda its, _: its[:2] == key)
        return sender != 0 or self.decide(key, succeeds=False)

    def decide(self, key: Any, *, succeeds: bool) -> bool:
        """Take what rank 0 has decided on a pass; False if it has ended."""
        return self.take(decision(key), 0, succeeds)

    def expected(self, rank: int, tag: Any) -> asyncio.Future[Any]:
        """A future for the name and content of what another rank will send, until `close`."""
        if self.ended:
            # A pass that nobody awaits may outlive its run.
            raise late("the run")
        given_up = None if tag[-1] == "decision" else self._given_up.get(tag[1:3])
        # What has come for a pass that was given up does not count.
        box = self._boxes.get((tag[1:], rank)) if given_up is None else None
        if box is None:
            box = self._boxes[tag[1:], rank] = self._site.loop.create_future()
            if self._site.has_lost(rank):
                self.lose(rank)
            elif given_up is not None:
                _fail(box, PassEndedError(given_up))
            elif self.stopped is not None:
                _fail(box, AutogradError(self.stopped))
            elif rank in self._returned:
                self.returned(rank)
        return box

    async def receive(self, rank: int, tag: Any) -> Any:
        """Await what another rank sends, with the name it gives it; it is kept no longer.

        Raises:
            TimeoutError: if it does not come in time.
        """
        box, timeout = self.expected(rank, tag), self._site.timeout
        try:
            # If this wait is cancelled, the run has ended, or does not need the message any more.
            if not await one_of(box, seconds=timeout):
                raise TimeoutError(
                    f"rank {rank} has sent nothing within {timeout:g} s, the timeout of the world"
                )
            return box.result()
        finally:
            self._boxes.pop((tag[1:], rank), None)
            # The traceback of its error holds this frame: a cycle.
            del box

    def check(self, passes: Iterable[Any]) -> None:
        """Raise if another rank has given one of some passes up."""
        for key in passes:
            if key in self._given_up:
                raise PassEndedError(self._given_up[key])

    def close(self, tag: Any) -> None:
        """Drop what comes, or has come, with a tag that begins with this one of three members."""
        self._closed.add(tag[1:])
        self._given_up.pop(tag[1:], None)
        for key, sender in [box for box in self._boxes if box[0][:2] == tag[1:]]:
            self._boxes.pop((key, sender)).cancel()

    def lose(self, rank: int) -> None:
        """Nothing more comes from a lost worker."""
        error = partial(self._site.lost_error, rank, "a collective")
        self._end_waits(error, lambda _, sender: sender == rank, decisions=True)

    def returned(self, rank: int) -> None:
        """Nothing more comes from a rank whose function has returned."""
        self._returned.add(rank)
        self._end_waits(partial(_missed, rank), lambda _, sender: sender == rank, decisions=True)

    def stop(self, why: str) -> None:
        """End all waits, except those for what rank 0 has decided: no rank goes on."""
        if self.stopped is None:
            self.stopped = why
            self._end_waits(partial(AutogradError, why), lambda key, sender: True)

    def _end_waits(
        self, error: Callable[[], Exception], which: Callable[[Any, int], bool],
        *, decisions: bool = False,
    ) -> None:  # fmt: skip
        """End waits, those for what rank 0 has decided only if none of that comes any more."""
        for (key, sender), box in self._boxes.items():
            if not box.done() and which(key, sender) and (decisions or key[-1] != "decision"):
                _fail(box, error())

    def end(self) -> None:
        """Drop all messages, and refuse what comes later."""
        self.ended = True
        for box in self._boxes.values():
            box.cancel()
        self._boxes.clear()


def _missed(rank: int) -> AutogradError:
    return AutogradError(
        f"the function of the run has returned on rank {rank}, which has not taken part in "
        f"what this rank waits for: call collectives, and passes of a data parallel model, "
        f"equally often on all ranks"
    )


def _fail(box: asyncio.Future[Any], error: Exception) -> None:
    box.set_exception(error)
    retrieve(box)
