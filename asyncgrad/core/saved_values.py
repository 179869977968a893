"""What a table node saves: plain arrays, and version checks before they are used.

`guard` holds the version counters to check, and `version` their expected values. If hooks have
packed a value, a `SavedTensor` replaces its array: see `core/saved.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from asyncgrad.aliases import Namespace, NodeGradient, Saved, StoredEdge
from asyncgrad.core.metadata import Metadata
from asyncgrad.core.modes import current
from asyncgrad.core.node import (
    Freed,
    Node,
    OpNode,
    as_edge,
    first_metadata,
    name_of,
    refuse_freed,
    stored_edges,
)
from asyncgrad.core.pass_state import PassState
from asyncgrad.core.recording import note_copy, note_result, recorders
from asyncgrad.core.variable import Variable
from asyncgrad.core.versions import VersionCounter, looks_into
from asyncgrad.errors import AutogradError, SavedTensorModifiedError

if TYPE_CHECKING:
    from asyncgrad.core.rule import Run


def values_of(node: OpNode) -> tuple[Any, ...]:
    """What a table node has saved, as a tuple."""
    return (node.saved,) if len(node.rule.names) == 1 else node.saved


def as_saved(values: Sequence[Any]) -> Saved:
    """Values in the form in which a node saves them, as `values_of` reads them."""
    return values[0] if len(values) == 1 else tuple(values)


def saved_edge(node: OpNode, where: int | None) -> StoredEdge:
    """The edge of a saved value: an input's edge, the node itself for -1, an output; else None."""
    if where == -1:
        return node
    places = node.rule.places
    return None if where not in places else stored_edges(node)[places.index(where)]


def guards_by_position(node: OpNode) -> dict[int, tuple[Any, int]]:
    """The counters and expected versions of a table node's saved values, by position."""
    guards, versions = guards_of(node)
    # `Plan.save` stores the counters of inputs first, then the output's if that is saved.
    places = [position for position, where in node.rule.arrays if where >= 0]
    places += [position for position, where in node.rule.arrays if where < 0]
    return dict(zip(places, zip(guards, versions, strict=True), strict=False))


def counters_of(node: OpNode) -> tuple[Any, ...]:
    """The counters that a table node checks; none once it has released what it saved."""
    return () if node.saved.__class__ is Freed else guards_of(node)[0]


def guards_of(node: OpNode) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """A table node's counters and expected versions, as tuples."""
    guards = node.guard
    if guards is None:
        return (), ()
    return (guards, node.version) if guards.__class__ is tuple else ((guards,), (node.version,))


def _replace_counter(node: OpNode, old: VersionCounter | None, new: VersionCounter) -> None:
    """Check another counter instead of one; the order stays that of `guards_by_position`."""
    guards, versions = guards_of(node)
    node.guard = tuple([new if guard is old else guard for guard in guards])
    node.version = tuple(
        [new.value if g is old else v for g, v in zip(guards, versions, strict=True)]
    )


def run_rule(
    node: OpNode, run: Run, F: Namespace, gradient: NodeGradient, task: PassState | None,
    *, thread: bool = True,
) -> Any:  # fmt: skip
    """Run a table node: check what it has saved, call its rule, and release it.

    In a thread, tasks on the loop may change a saved tensor meanwhile, so versions are checked
    before and after, unless another pass has released the values. The pass says whether they are
    released; it is None outside of passes.
    """
    saved = check_saved(node)
    while True:
        received = run(F, gradient, saved)
        found, guards = node.saved, node.guard
        if not thread or guards is None or found.__class__ is Freed:
            break
        found = check_version(node, found, guards, running=False)
        if found is saved:
            break
        saved = found
    if task is not None and not task.keep_graph:
        node.release_saved(task.freed)
    return received


def check_saved(node: OpNode) -> Saved:
    """What a table node has saved; raises if that was released, changed or detached in place."""
    # Read together: another pass may release them in a thread as soon as a function is called.
    saved, guards = node.saved, node.guard
    if saved.__class__ is Freed:
        refuse_freed(node, saved)
    return saved if guards is None else check_version(node, saved, guards)


def check_version(node: OpNode, saved: Saved, guards: Any, *, running: bool = True) -> Saved:
    """What the node has saved, with a changed output computed again if its rule can do that.

    Raises if another saved tensor has been changed in place since or, where the node is `running`
    next, detached.
    """
    versions = node.version
    if guards.__class__ is not tuple:
        guards, versions = (guards,), (versions,)
    elif len(guards) == 2:
        # Fast path: usually there are two counters, and nothing has changed.
        first, second = guards
        if first.value == versions[0] and second.value == versions[1]:
            return saved
    # `strict=True` takes longer, and both tuples have the same length.
    for guard, version in zip(guards, versions):  # noqa: B905
        if guard.value != version:
            if not guard.changed_since(version):
                if running:
                    _refuse_detached(node, guard.cuts_since(version))
            elif _renews(node, guard):
                saved = node.saved
            else:
                refuse_modified(node, node.output_metadata, guard, version)
    return saved


def _renews(node: OpNode, changed: VersionCounter) -> bool:
    """Compute a changed value again if it is the node's output and its rule can; else False."""
    rule, guards = node.rule, node.guard
    if rule.renew is None or guards.__class__ is not tuple:
        return False
    ((number, place),) = [(n, at) for n, (at, where) in enumerate(rule.arrays) if where < 0]
    if guards[number] is not changed:
        return False
    values = list(values_of(node))
    values[place] = None
    given, renew = tuple(values), partial(rule.renew, first_metadata(node).F)
    values[place] = renew(given)
    if recorders:
        note_result(values[place], renew, given)
    node.saved = tuple(values)
    # Nobody else has the new array: the new counter never changes.
    _replace_counter(node, changed, VersionCounter())
    return True


def refuse_modified(
    node: Node, metadata: Metadata | tuple[Metadata, ...], counter: VersionCounter, expected: int
) -> NoReturn:
    """Raise for a saved tensor that has been changed in place."""
    found, expected = counter.version, counter.version - counter.changed_since(expected)
    raise SavedTensorModifiedError(
        f"one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: a tensor of {metadata!r} that {name_of(node)} saved is at version {found}; "
        f"expected version {expected} instead. Replace the in-place operation by its functional "
        f"form, or clone the tensor before changing it."
    )


def _refuse_detached(node: OpNode, cuts: Sequence[tuple[Node | None, int]]) -> None:
    """Raise if a saved operand had one of these edges before `detach_()`."""
    operands = [where for _, where in node.rule.arrays if where in node.rule.places]
    if any(as_edge(saved_edge(node, where)) in cuts for where in operands):
        raise AutogradError(
            f"{name_of(node)}: Trying to use a saved tensor that has been detached in-place, i.e. "
            f"with .detach_(). Use the out-of-place .detach() instead."
        )


def keep_old_values(edge: StoredEdge, variable: Variable, since: int) -> None:
    """Copy what the nodes of an operation in place have saved of the variable before it changes.

    `edge` is that of the new values. The operation's nodes have greater numbers than `since`.
    """
    array, counter = variable._array, variable._counter
    if counter is None:
        return
    stack = [edge]
    while stack:
        node = as_edge(stack.pop()).node
        if not isinstance(node, OpNode) or node.sequence_nr <= since:
            continue
        stack += stored_edges(node)
        if counter not in guards_of(node)[0]:
            continue
        values = list(values_of(node))
        for position, where in node.rule.arrays:
            value = values[position]
            if where >= 0 and looks_into(value, array):
                values[position] = variable._metadata.F.clone(value)
                note_copy(value, values[position])
                level = current().dual_level
                if level is not None:
                    level.copy(value, values[position])
        node.saved = as_saved(values)
        # Nobody else has the copies: the new counter never changes.
        _replace_counter(node, counter, VersionCounter())


def watch_result(edge: StoredEdge, result: Variable, counter: VersionCounter) -> None:
    """After a change in place, watch the result that its node has saved with another counter.

    It is the counter of the changed tensor, which has now the result's values and edge.
    """
    node = as_edge(edge).node
    if not isinstance(node, OpNode) or all(where >= 0 for _, where in node.rule.arrays):
        return
    if node.guard is None:
        node.guard, node.version = counter, counter.value
        return
    _replace_counter(node, result._counter, counter)
