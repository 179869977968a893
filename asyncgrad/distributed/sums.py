"""Gradients that are kept back until they are committed, and their sums in one order."""

from __future__ import annotations

from typing import Any

from asyncgrad.core.graph_task import GraphTask
from asyncgrad.errors import AutogradError


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


def check_alone(task: GraphTask) -> None:
    """Raise if somebody would be told of the end of a pass before its gradients are committed."""
    told = [one for one in task.members if getattr(one.participant, "tells_others", True)]
    if len(told) > 1 or task.callbacks:
        raise AutogradError(
            "a hook has called graph.join() or graph.queue_callback() in a pass whose gradients "
            "are committed later, with those on other workers or of other passes: what it gave "
            "would be told too early that they are added. Change gradients by register_hook(), and "
            "join a pass of the caller's, outside of autograd.context()"
        )
