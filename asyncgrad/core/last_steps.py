"""The last steps of a pass: participants, its commit, callbacks, devices.

Once the last node has reported, all participants are asked at the same time. If all agree, the
scheduler calls `decide` of those that have it: they have promised others to do as these decide, so
the pass can't be cancelled any more. Then the gradients are committed here, and the scheduler calls
`commit` of each participant. If the pass ends in any other way, it calls `abort` of each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Protocol

from asyncgrad.aliases import Steps
from asyncgrad.core.commit import commit, commit_revocably
from asyncgrad.core.hook_calls import awaited
from asyncgrad.core.node import Ending
from asyncgrad.core.pass_state import PassState
from asyncgrad.core.run_node import commit_in_turn
from asyncgrad.core.streams import PassStreams
from asyncgrad.core.variable import Staged, Variable, autograd_meta, requires_grad, wrap
from asyncgrad.errors import AutogradError
from asyncgrad.records import NamedTuple


class Participant(Protocol):
    """What takes part in a pass: see `asyncgrad.autograd.graph.join`."""

    async def prepare(self, gradients: dict[Any, Any]) -> Mapping[Any, Any] | None:
        """Raise if the pass must not succeed; may return gradients that replace those given."""

    # There may be a coroutine method `decide`, too, without arguments.

    async def commit(self) -> None:
        """The pass has succeeded."""

    async def abort(self) -> None:
        """The pass has failed or was cancelled."""


class Holder:
    """A participant of a pass that is part of a greater whole."""

    #: Called with the pass before its participants are asked, or told of a failure, and takes those
    #: that are to learn of the end of the whole; the others learn of that of the pass.
    hold: Callable[[Any], None]


class Member(Ending):
    """Pseudo-node after the last node of a pass: asks one participant."""

    __slots__ = ("decision", "given", "held", "hold", "participant")

    def __init__(self, participant: Participant) -> None:
        super().__init__(f"{type(participant).__qualname__}.prepare")
        self.participant = participant
        #: The leaves for which the participant has given a gradient.
        self.given: frozenset[Any] = frozenset()
        #: The future of its `decide`, which is called once.
        self.decision: Any = None
        #: That of a `Holder`: users' participants may have an attribute of this name, too.
        self.hold = participant.hold if isinstance(participant, Holder) else None
        #: `hold` has moved it. Nobody may be awaiting the pass any more when its `abort` fails, so
        #: the loop's exception handler gets that error.
        self.held = False


class Total(NamedTuple):
    """What a participant gives for a leaf on the host to replace its `.grad`, not to be added.

    Nothing else may refer to its array. The leaf may have been frozen since its `.grad` was made.
    """

    gradient: Any


def deciding(task: PassState) -> list[Member]:
    """Those whose participants have a method `decide`."""
    return [one for one in task.members if getattr(one.participant, "decide", None) is not None]


def staged_given(gradients: Mapping[Any, Any], *, recorded: bool) -> list[Staged]:
    """Convert gradients by leaf, which a participant or the user has given, for `commit`."""
    # The commit adds in place. A gradient that shares memory with a `.grad` would change while it
    # is added, so it is copied.
    grads = [grad for leaf in gradients if (grad := autograd_meta(leaf).grad) is not None]
    changing = {id(one) for grad in grads for one in (grad, grad._counter) if one is not None}
    staged: list[Staged] = []
    for leaf, gradient in gradients.items():
        if gradient is None:
            continue
        if isinstance(gradient, Total):
            # Where there is no `.grad`, it becomes the `.grad` itself.
            is_first = autograd_meta(leaf).grad is None
            staged.append((leaf, gradient.gradient._array, is_first or None))
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


def check_given(who: str, given: Any, staged: Collection[Any] = ()) -> None:
    """Raise unless the gradients that `who` has given can be added to the leaves' `.grad`.

    Leaves for which the pass has `staged` a gradient may have been frozen by its hooks.
    """
    if not isinstance(given, Mapping):
        raise TypeError(
            f"{who}: expected a dictionary of gradients by leaf, not {type(given).__name__}"
        )
    for leaf, gradient in given.items():
        _check_fits(who, leaf, gradient, leaf in staged)


def _check_fits(who: str, leaf: Any, gradient: Any, is_staged: bool) -> None:
    """Raise unless a gradient can be added to the `.grad` of a leaf; None always can."""
    if not isinstance(leaf, Variable):
        raise TypeError(f"{who}: gradients are given by leaf, not by {type(leaf).__name__}")
    has_grad = leaf._edge is None or autograd_meta(leaf).retains_grad
    is_total = isinstance(gradient, Total)
    if not (is_staged or is_total or (has_grad and requires_grad(leaf))):
        raise AutogradError(
            f"{who}: a gradient was given for a tensor of shape {leaf._metadata.shape} that is no "
            f"leaf, nor retains its grad, or requires no grad, and so has no .grad to add it to"
        )
    if is_total:
        gradient = gradient.gradient
    if gradient is None:
        return
    if not isinstance(gradient, Variable):
        raise TypeError(f"{who}: a gradient is a Tensor or None, not {type(gradient).__name__}")
    own, given = leaf._metadata, gradient._metadata
    for what in ("shape", "device", "dtype"):
        wanted, found = getattr(own, what), getattr(given, what)
        if wanted != found and (what != "dtype" or own.is_complex != given.is_complex):
            raise AutogradError(
                f"{who}: the {what} of a leaf is {wanted}, that of the gradient given for it "
                f"{found}. Give a gradient like the leaf."
            )


def commit_staged(task: PassState, wait: bool) -> bool:
    """Add what a pass has staged; nothing, and return False, if another commits and not `wait`."""
    staged, streams = task.staged, task.streams
    prepared = () if streams is None else streams.prepared
    if not staged and not prepared:
        return True
    if streams is None and task.watch is not None:
        task.watch.commits(staged)
    if task.recorded is None:
        committed = commit(staged, None, wait, prepared, task=task)
    else:
        # Sums are part of the recorded graph, so they must be made in the pass's own grad mode.
        change = partial(commit, task=task)
        committed = bool(task.within(change, staged, task.recorded, wait, prepared))
    if committed:
        # Free what it refers to here, in a thread if it is much, and not on the loop.
        staged.clear()
        if streams is not None:
            # Replaced `.grad` arrays, even if the pass object is kept.
            streams.prepared.clear()
    return committed


def commit_and_call_back(task: PassState) -> Steps[None]:
    """Commit a pass that has callbacks, or that must wait for devices, and call its callbacks.

    Callbacks see the new `.grad`s. If one fails, or the pass is cancelled while one waits, the
    commit is undone when the pass ends.
    """
    streams: PassStreams | None = task.streams
    prepared = [] if streams is None else streams.prepared
    if task.watch is not None and streams is None:
        task.watch.commits(task.staged)
    yield from commit_in_turn(
        task, lambda wait: commit_revocably(task.staged, task.recorded, wait, prepared, task)
    )
    task.staged.clear()
    prepared.clear()
    if streams is not None and not task.wait_enqueued:
        # Work that the commit has put in, if any.
        yield from streams.wait(task)
    while task.callbacks:
        yield from awaited(task.callbacks.pop(0)())


def ask(task: PassState, member: Member) -> Steps[None]:
    """Ask a participant; gradients that it returns replace the staged ones of the same leaves."""
    if task.streams is not None:
        # Participants may read the gradients in any stream, or on the host.
        yield from task.streams.wait(task)
    gradients = _staged(task)
    staged = frozenset(gradients)
    given = yield from awaited(member.participant.prepare(gradients))
    if given is None:
        return
    check_given(member.name(), given, staged)
    if not given:
        return
    if task.captures:
        raise AutogradError(
            f"{member.name()} gave gradients for leaves to a pass of grad(), which adds to none: "
            f"return None from prepare() there"
        )
    others: frozenset[Any] = frozenset().union(*(other.given for other in task.members))
    for leaf in given:
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
        earlier = gradients.get(variable)
        if earlier is not None and task.recorded is not None:
            gradient = task.recorded.add(earlier, gradient)
        elif earlier is not None:
            total, _ = F.accumulate(earlier._array, False, gradient._array, False)
            gradient = wrap(total, gradient._metadata)
        gradients[variable] = gradient
    return gradients
