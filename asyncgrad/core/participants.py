"""Those who take part in a pass: its gradients are committed only if all of them agree.

Once the last node has reported, every participant is asked, all at the same time. Only when the
last has agreed are gradients committed here, and then the scheduler calls `commit` of each. A pass
that ends otherwise calls `abort` of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from asyncgrad.core.hook_calls import awaited
from asyncgrad.core.node import Node, init_node
from asyncgrad.core.variable import Variable, autograd_meta, requires_grad, wrap
from asyncgrad.errors import AutogradError

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from asyncgrad.core.pass_state import PassState


class Participant(Protocol):
    """What takes part in a pass: see `asyncgrad.autograd.graph.join`."""

    async def prepare(self, gradients: dict[Any, Any]) -> Mapping[Any, Any] | None:
        """Say whether the pass may succeed: raise if not; may give other gradients."""

    async def commit(self) -> None:
        """The pass has succeeded."""

    async def abort(self) -> None:
        """The pass has failed or was cancelled."""


class Member(Node):
    """Pseudo-node after the last node of a pass: asks one participant."""

    __slots__ = ("given", "participant")

    def __init__(self, participant: Participant) -> None:
        """Make a node without edges."""
        init_node(self, (), ())
        self.participant = participant
        #: The leaves for which the participant has given a gradient.
        self.given: frozenset[Any] = frozenset()

    def name(self) -> str:
        """The name of the method that it calls."""
        return f"{type(self.participant).__qualname__}.prepare"


def ask(task: PassState, member: Member) -> Generator[Any, Any, None]:
    """Ask a participant, and stage the gradients that it gives in the place of others."""
    if task.streams is not None:
        # Participants may read the gradients in any stream, or on the host.
        yield from task.streams.wait(task)
    given = yield from awaited(member.participant.prepare(_staged(task)))
    if not given:
        return
    if task.captures is not None:
        raise AutogradError(
            f"{member.name()} gave gradients for leaves to a pass of grad(), which adds to none: "
            f"return None from prepare() there"
        )
    others: frozenset[Any] = frozenset().union(*(other.given for other in task.members))
    for leaf, gradient in given.items():
        check_given(member.name(), leaf, gradient)
        if leaf in others:
            raise AutogradError(
                f"{member.name()} gave a gradient for a leaf of shape {leaf._metadata.shape}, and "
                f"so did another participant: let one of them give it"
            )
    member.given = frozenset(given)
    kept = [entry for entry in task.staged if entry[0] not in member.given]
    task.secured = len(kept)
    task.staged = kept + staged_given(given, recorded=task.recorded is not None)


def _staged(task: PassState) -> dict[Any, Any]:
    """The staged gradients by leaf, as tensors."""
    gradients: dict[Any, Any] = {}
    for variable, gradient, _ in task.staged:
        F = variable._metadata.F
        if task.recorded is None:
            array = F.in_own_dtype(gradient, variable._metadata.dtype)
            gradient = wrap(array, F.metadata_of(array))
        known = gradients.get(variable)
        if known is not None and task.recorded is not None:
            gradient = task.recorded.add(known, gradient)
        elif known is not None:
            total, _ = F.accumulate(known._array, False, gradient._array, False)
            gradient = wrap(total, gradient._metadata)
        gradients[variable] = gradient
    return gradients


def staged_given(given: Mapping[Any, Any], *, recorded: bool) -> list[tuple[Any, Any, bool]]:
    """What `commit` takes for gradients that somebody has given, by leaf."""
    # Gradients are added in place. One that shares memory with a `.grad` would change meanwhile.
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


def check_given(who: str, leaf: Any, gradient: Any) -> None:
    """Raise unless the second can be added to `.grad` of the first; None always can."""
    if not isinstance(leaf, Variable):
        raise TypeError(f"{who}: gradients are given by leaf, not by {type(leaf).__name__}")
    if not requires_grad(leaf) or leaf._edge is not None:
        raise AutogradError(
            f"{who}: a gradient was given for a tensor of shape {leaf._metadata.shape} that is no "
            f"leaf or requires no grad, and so has no .grad to add it to"
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
