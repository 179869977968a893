"""What is kept back until it is committed: sums of gradients, and who is told of their end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from asyncgrad.autograd.new_pass import add_gradients
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.last_steps import Member
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


class Held:
    """Participants and callbacks of passes whose gradients are committed later."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.callbacks: list[Callable[[], Any]] = []
        #: Nothing is committed any more.
        self.given_up = False

    def take(self, task: GraphTask) -> None:
        """Take those of a pass whose nodes have run, except what keeps its gradients back."""
        if self.given_up:
            # The pass fails, and tells them.
            return
        stay: list[Member] = []
        known = {id(member.participant) for member in self.members}
        for member in task.members:
            if getattr(member.participant, "stays", False):
                stay.append(member)
            elif id(member.participant) not in known:
                self.members.append(member)
        task.members = stay
        self.callbacks += task.callbacks
        task.callbacks.clear()

    def check(self) -> None:
        """Raise if nothing is committed any more."""
        if self.given_up:
            raise late("the pass")

    def commit(self, gradients: dict[Any, Any]) -> Any:
        """Start the pass that adds gradients, in which all take part."""
        members, self.members = self.members, []
        callbacks, self.callbacks = self.callbacks, []
        return add_gradients(gradients, members, callbacks)

    def give_up(self) -> Future[None] | None:
        """Have those that are left told that all has failed; the future is then done."""
        self.given_up = True
        self.callbacks.clear()
        members, self.members = self.members, []
        if not members:
            return None
        telling: Future[None] = add_gradients({}, members, (), late("the pass"))
        telling.add_done_callback(retrieve)
        return telling
