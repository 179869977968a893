"""Participants of a pass: its gradients are committed only if all of them agree.

Once the last node has reported, all participants are asked at the same time. If all agree, the
gradients are committed here, and then the scheduler calls `commit` of each participant. If the pass
ends in any other way, the scheduler calls `abort` of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from asyncgrad.core.node import Node, init_node
from asyncgrad.core.variable import Variable, autograd_meta, requires_grad
from asyncgrad.errors import AutogradError


class Participant(Protocol):
    """What takes part in a pass: see `asyncgrad.autograd.graph.join`."""

    async def prepare(self, gradients: dict[Any, Any]) -> Mapping[Any, Any] | None:
        """Raise if the pass must not succeed; may return gradients that replace those given."""

    async def commit(self) -> None:
        """The pass has succeeded."""

    async def abort(self) -> None:
        """The pass has failed or was cancelled."""


class Member(Node):
    """Pseudo-node after the last node of a pass: asks one participant."""

    __slots__ = ("given", "participant")

    def __init__(self, participant: Participant) -> None:
        init_node(self, (), ())
        self.participant = participant
        #: The leaves for which the participant has given a gradient.
        self.given: frozenset[Any] = frozenset()

    def name(self) -> str:
        """The name of the method that it calls."""
        return f"{type(self.participant).__qualname__}.prepare"


def staged_given(given: Mapping[Any, Any], *, recorded: bool) -> list[tuple[Any, Any, bool]]:
    """Convert gradients by leaf, which a participant or the user has given, for `commit`."""
    # The commit adds in place. A gradient that shares memory with a `.grad` would change while it
    # is added, so it is copied.
    grads = [grad for leaf in given if (grad := autograd_meta(leaf).grad) is not None]
    changing = {id(known) for grad in grads for known in (grad, grad._counter) if known is not None}
    staged: list[tuple[Any, Any, bool]] = []
    for leaf, gradient in given.items():
        if gradient is None:
            continue
        if recorded:
            staged.append((leaf, gradient, False))
            continue
        array = gradient._array
        shares = id(gradient) in changing or id(gradient._counter) in changing
        if shares:
            array = leaf._metadata.F.own_copy(array)
        staged.append((leaf, array, shares))
    return staged


def check_given(who: str, given: Any) -> None:
    """Raise unless the gradients that `who` has given can be added to the leaves' `.grad`."""
    if not isinstance(given, Mapping):
        raise TypeError(
            f"{who}: expected a dictionary of gradients by leaf, not {type(given).__name__}"
        )
    for leaf, gradient in given.items():
        _check_fits(who, leaf, gradient)


def _check_fits(who: str, leaf: Any, gradient: Any) -> None:
    """Raise unless a gradient can be added to the `.grad` of a leaf; None always can."""
    if not isinstance(leaf, Variable):
        raise TypeError(f"{who}: gradients are given by leaf, not by {type(leaf).__name__}")
    has_grad = leaf._edge is None or autograd_meta(leaf).retains_grad
    if not has_grad or not requires_grad(leaf):
        raise AutogradError(
            f"{who}: a gradient was given for a tensor of shape {leaf._metadata.shape} that is no "
            f"leaf, nor retains its grad, or requires no grad, and so has no .grad to add it to"
        )
    if gradient is None:
        return
    if not isinstance(gradient, Variable):
        raise TypeError(f"{who}: a gradient is a Tensor or None, not {type(gradient).__name__}")
    for what in ("shape", "device", "is_complex"):
        wanted, found = getattr(leaf._metadata, what), getattr(gradient._metadata, what)
        if wanted != found:
            raise AutogradError(
                f"{who}: the {what} of a leaf is {wanted}, that of the gradient given for it "
                f"{found}. Give a gradient like the leaf."
            )
