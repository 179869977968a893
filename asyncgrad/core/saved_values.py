"""What a table node keeps of its operation: plain arrays, and a look at them before they are used.

The version counters to look at are in `guard`, with what they must still say in `version`. What
hooks have packed stands as a `SavedTensor` in the place of its array: `core/saved.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.core.modes import current
from asyncgrad.core.node import Freed, Node, as_edge, first_metadata, refuse_freed
from asyncgrad.core.views import looks_into
from asyncgrad.errors import AutogradError, SavedTensorModifiedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncgrad.core.variable import Variable
    from asyncgrad.core.versions import VersionCounter


def values_of(node: Node) -> tuple[Any, ...]:
    """What a table node has saved, one after the other."""
    rule = node.rule
    assert rule is not None
    return (node.saved,) if len(rule.names) == 1 else node.saved


def saved_edge(node: Node, where: int) -> Any:
    """Where a saved value of a table node leads: an input's edge, or the node for an output."""
    rule = node.rule
    assert rule is not None
    if where < 0:
        return node
    if where not in rule.places:
        return None
    following = node.following
    return following[rule.places.index(where)] if following.__class__ is tuple else following


def watched(node: Node) -> dict[int, tuple[Any, int]]:
    """The version counters of what a table node has saved, with their versions, by position."""
    rule = node.rule
    assert rule is not None
    guards, versions = _guards(node)
    # As `Plan.save` lays them out: those of the inputs, and then the output's if it is saved.
    places = [position for position, where in rule.arrays if where >= 0]
    places += [position for position, where in rule.arrays if where < 0]
    return dict(zip(places, zip(guards, versions, strict=True), strict=False))


def _guards(node: Node) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The version counters of what a table node has saved, and their versions."""
    guards = node.guard
    if guards is None:
        return (), ()
    return (guards, node.version) if guards.__class__ is tuple else ((guards,), (node.version,))


def further(node: Node) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The counters, with their versions, of tensors that a node keeps as attributes."""
    rule, guards = node.rule, node.guard
    assert rule is not None
    if guards.__class__ is not tuple:
        return (), ()
    return guards[len(rule.arrays) :], node.version[len(rule.arrays) :]


def check_saved(node: Node) -> None:
    """Raise if what a table node has saved has been released, or changed or detached in place."""
    saved = node.saved
    if saved.__class__ is Freed:
        refuse_freed(node, saved)
    if node.guard is not None:
        check_version(node)


def steadily(node: Node, compute: Callable[[Any], Any]) -> Any:
    """What is computed from what a table node has saved, in a thread.

    A tensor may be changed in place meanwhile, by the loop's tasks: that is looked for before and
    after.

    Args:
        node: the node.
        compute: is given what it has saved.

    Raises:
        SavedTensorModifiedError: if a tensor has been changed.
    """
    check_saved(node)
    while True:
        saved = node.saved
        computed = compute(saved)
        if node.guard is None or check_version(node, running=False) is saved:
            return computed


def check_version(node: Node, *, running: bool = True) -> Any:
    """Raise if a tensor that the node saved has been changed, or detached, in place since.

    Args:
        node: the node.
        running: it is about to run; to read what it saved is allowed after `detach_()`.

    Returns:
        What the node has saved. An output that can be renewed is, if it has been changed.
    """
    guards, versions = node.guard, node.version
    if guards.__class__ is not tuple:
        guards, versions = (guards,), (versions,)
    elif len(guards) == 2:
        # Mostly there are two, and nothing has changed.
        first, second = guards
        if first.value == versions[0] and second.value == versions[1]:
            return node.saved
    for guard, version in zip(guards, versions):  # noqa: B905  they are made together
        if guard.value != version:
            if guard.changed_since(version):
                if _renews(node, guard):
                    break
                refuse_modified(node, node.output_metadata, guard, version)
            if running:
                _refuse_detached(node, guard.cuts_since(version))
    return node.saved


def _renews(node: Node, changed: Any) -> bool:
    """Whether a changed value is the node's output, which is then put back as it was."""
    rule, guards = node.rule, node.guard
    assert rule is not None
    # The output's counter is the last.
    if rule.renew is None or guards.__class__ is not tuple or guards[-1] is not changed:
        return False
    values = list(values_of(node))
    (place,) = [position for position, where in rule.arrays if where < 0]
    values[place] = rule.renew(first_metadata(node).F, values)
    node.saved = tuple(values)
    node.guard, node.version = guards[:-1], node.version[:-1]
    return True


def refuse_modified(node: Node, metadata: Any, counter: VersionCounter, expected: int) -> None:
    """Raise for a saved tensor that has been changed in place."""
    found, expected = counter.version, counter.version - counter.changed_since(expected)
    raise SavedTensorModifiedError(
        f"one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: a tensor of {metadata!r} that {node.name()} saved is at version {found}; "
        f"expected version {expected} instead. Replace the in-place operation by its functional "
        f"form, or clone the tensor before changing it."
    )


def _refuse_detached(node: Node, cuts: Sequence[tuple[Node | None, int]]) -> None:
    """Raise if a saved operand led along one of these edges before `detach_()`."""
    rule = node.rule
    assert rule is not None
    operands = [where for _, where in rule.arrays if where in rule.places]
    if any(as_edge(saved_edge(node, where)) in cuts for where in operands):
        raise AutogradError(
            f"{node.name()}: Trying to use a saved tensor that has been detached in-place, i.e. "
            f"with .detach_(). Use the out-of-place .detach() instead."
        )


def keep_old_values(edge: Any, variable: Variable, since: int) -> None:
    """Before a change in place: what the change's own nodes have saved of the variable is copied.

    Args:
        edge: the stored edge of the new values.
        variable: what is about to be changed.
        since: the change's nodes have greater sequence numbers.
    """
    array, counter = variable._array, variable._counter
    if counter is None:
        return
    stack = [edge]
    while stack:
        node = as_edge(stack.pop()).node
        if node is None or node.rule is None or node.sequence_nr <= since:
            continue
        following = node.following
        stack += following if following.__class__ is tuple else (following,)
        guards, versions = _guards(node)
        if counter not in guards:
            continue
        values = list(values_of(node))
        for position, where in node.rule.arrays:
            value = values[position]
            if where >= 0 and looks_into(value, array):
                values[position] = variable._metadata.F.clone(value)
                level = current().dual_level
                if level is not None:
                    level.copy(value, values[position])
        node.saved = values[0] if len(values) == 1 else tuple(values)
        kept = [(g, v) for g, v in zip(guards, versions, strict=True) if g is not counter]
        node.guard = tuple([g for g, _ in kept])
        node.version = tuple([v for _, v in kept])


def watch_result(edge: Any, result: Variable, counter: VersionCounter) -> None:
    """After a change in place: its node has saved a result that is now counted by another.

    Args:
        edge: the stored edge of the new values.
        result: what the node gave, whose values the changed tensor has now.
        counter: the changed tensor's.
    """
    node = as_edge(edge).node
    if node is None or node.rule is None or all(where >= 0 for _, where in node.rule.arrays):
        return
    if node.guard is None:
        node.guard, node.version = counter, counter.value
        return
    guards, versions = _guards(node)
    own = [guard is result._counter for guard in guards]
    node.guard = tuple([counter if o else g for o, g in zip(own, guards, strict=True)])
    node.version = tuple([counter.value if o else v for o, v in zip(own, versions, strict=True)])
