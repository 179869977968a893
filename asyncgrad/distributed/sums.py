"""What is kept back until it is committed: sums of gradients, and who is told of their end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from asyncgrad.autograd.new_pass import add_gradients
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.last_steps import Holder, Member
from asyncgrad.core.locks import RLock
from asyncgrad.core.modes import Mode
from asyncgrad.distributed.errors import late
from asyncgrad.scheduler.segments import retrieve

if TYPE_CHECKING:
    from asyncio import Future


class Staged:
    """The gradients that passes have computed here, kept back until they are committed."""

    __slots__ = ("_folded", "_parts", "_sums")

    def __init__(self) -> None:
        #: The sums of the first passes, and how many these are.
        self._sums: dict[Any, Any] = {}
        self._folded = 0
        #: By turn of the pass and by number of the call: gradients by leaf.
        self._parts: dict[tuple[tuple[int, int], tuple[int, ...]], dict[Any, Any]] = {}

    def add(self, turn: tuple[int, int], call: tuple[int, ...], gradients: dict[Any, Any]) -> None:
        """Keep the gradients of one call."""
        if gradients:
            self._parts[turn, call] = gradients

    def fold(self, first: int, finished: set[int]) -> None:
        """Add up the first passes as far as they have run, so that one sum of them is kept."""
        while self._folded in finished:
            self._fold((first, self._folded))
            self._folded += 1

    def _fold(self, turn: tuple[int, int]) -> None:
        sums: dict[Any, Any] = {}
        for key in sorted((key for key in self._parts if key[0] == turn), reverse=True):
            _add_into(sums, self._parts.pop(key))
        _add_into(self._sums, sums)

    def total(self) -> dict[Any, Any]:
        """The sum for each leaf, in the order of the passes, and within a pass last call first."""
        for turn in sorted({turn for turn, _ in self._parts}):
            self._fold(turn)
        return self._sums


def _add_into(sums: dict[Any, Any], gradients: dict[Any, Any]) -> None:
    for leaf, gradient in gradients.items():
        known = sums.get(leaf)
        sums[leaf] = gradient if known is None else known + gradient


class Stays:
    """A participant that is told of the end of its pass, also if the commit comes later."""


class Held:
    """Participants and callbacks of passes whose gradients are committed later."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.callbacks: list[Callable[[], Any]] = []
        #: By `id`: the participants of all passes, which are told once.
        self.known: dict[int, Any] = {}
        #: Nothing more is taken: all is being committed, or nothing will be.
        self.closed = False
        #: Passes may end in threads, while the loop closes this.
        self._lock = RLock()

    def take(self, task: GraphTask) -> None:
        """Take those of a pass whose nodes have run, or that ends early, except what `Stays`.

        If this is closed, the pass fails, and tells those that are not known.
        """
        stay: list[Member] = []
        with self._lock:
            for member in task.members:
                one = member.participant
                if isinstance(one, Stays) or member.held:
                    stay.append(member)
                elif id(one) not in self.known:
                    self.known[id(one)] = one
                    member.held = True
                    (stay if self.closed else self.members).append(member)
            task.members = stay
            if not self.closed:
                self.callbacks += task.callbacks
                task.callbacks.clear()

    def check(self) -> None:
        """Raise if nothing more is taken."""
        if self.closed:
            raise late("the pass")

    def commit(self, gradients: dict[Any, Any]) -> Any:
        """Start the pass that adds gradients, in which all take part."""
        members, callbacks = self._close()
        # What comes too late for it has another end.
        self.known.clear()
        return _started(gradients, members, callbacks)

    def give_up(self) -> Future[None] | None:
        """Have those that are left told that all has failed; the future is then done."""
        members, _ = self._close()
        if not members:
            return None
        telling: Future[None] = _started({}, members, (), late("the pass"))
        telling.add_done_callback(retrieve)
        return telling

    def _close(self) -> tuple[list[Member], list[Callable[[], Any]]]:
        """Take nothing more; those that are left."""
        with self._lock:
            self.closed = True
            found = self.members, self.callbacks
            self.members, self.callbacks = [], []
        return found


class KeepsBack(Holder, Stays):
    """Takes part in a pass whose gradients, by leaf, are committed later."""

    def __init__(self, held: Held, kept: dict[Any, Any]) -> None:
        self.held = held
        #: Takes the others that take part.
        self.hold = held.take
        self._kept = kept

    async def prepare(self, gradients: dict[Any, Any]) -> dict[Any, Any]:
        """Have the pass add nothing."""
        self.held.check()
        self._kept |= gradients
        return dict.fromkeys(self._kept)

    async def commit(self) -> None:
        """Change nothing: the gradients are committed later."""

    async def abort(self) -> None:
        """Keep nothing."""
        self._kept.clear()


def _started(*args: Any) -> Any:
    """Start a pass in which others take part, who need the loop: so it does not block."""
    with Mode(blocking=False):
        return add_gradients(*args)
