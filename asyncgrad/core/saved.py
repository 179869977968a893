"""Saved values: checked for in-place changes before they are used, packed and unpacked by hooks.

A table node keeps plain arrays, with the version counters to look at in `guard`. Where hooks pack
what is saved, a `SavedTensor` stands in the place of the array; Functions keep nothing else.
"""

from __future__ import annotations

from inspect import isawaitable
from typing import TYPE_CHECKING, Any, NamedTuple

from asyncgrad.core.accumulate_grad import AccumulateGrad
from asyncgrad.core.modes import current, install
from asyncgrad.core.node import Edge, Node, as_edge, extras_of
from asyncgrad.core.variable import (
    Variable,
    VersionCounter,
    counter_of,
    gradient_edge,
    wrap,
)
from asyncgrad.core.views import looks_into
from asyncgrad.errors import AutogradError, SavedTensorModifiedError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence


class SavedHooks(NamedTuple):
    """What packs a tensor when it is saved and unpacks it when it is used."""

    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]
    #: What `unpack` returns has to be awaited.
    waits: bool = False


class SavedTensor:
    """One tensor that a node keeps for backward."""

    __slots__ = ("_array", "_counter", "_edge", "_hooks", "_metadata", "_packed", "_variable",
                 "_version")  # fmt: skip

    def __init__(self, variable: Variable, hooks: SavedHooks | None) -> None:
        """Save a tensor; `as_output` says that it is an output of the node.

        Args:
            variable: what to save.
            hooks: what packs it, or None to keep it as it is.
        """
        self._array: Any = variable._array
        self._packed: Any = None
        self._metadata = variable._metadata
        self._edge = None if hooks is None else gradient_edge(variable)
        self._counter = counter_of(variable)
        self._version = self._counter.value
        self._variable: Variable | None = variable
        self._hooks: SavedHooks | None = None
        if hooks is not None:
            self._pack(hooks)

    def as_output(self) -> None:
        """The tensor is an output of the node, which knows its edge: keep the values alone."""
        variable = self._variable
        if variable is not None:
            self._array = variable._array
            self._variable = None
        self._edge = None

    @property
    def array(self) -> Any:
        """The values, or None where hooks keep them."""
        return self._array if self._variable is None else self._variable._array

    @property
    def data(self) -> Any:
        """What is kept: what hooks have made of the tensor, or a tensor with its values."""
        if self._hooks is not None:
            return self._packed
        variable = self._variable
        return wrap(self._array, self._metadata) if variable is None else variable

    @property
    def unpack_hook(self) -> Callable[[Any], Any] | None:
        """What unpacks it, None without hooks."""
        return None if self._hooks is None else self._hooks.unpack

    @property
    def metadata(self) -> Any:
        """The record of the tensor that was saved."""
        return self._metadata

    @property
    def waits(self) -> bool:
        """The tensor can only be unpacked by awaiting."""
        return self._hooks is not None and self._hooks.waits

    def register_hooks(
        self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]
    ) -> None:
        """Pack this tensor now, and unpack it whenever it is used.

        Raises:
            RuntimeError: if hooks have been set before, or the value has been released.
        """
        if self._hooks is not None:
            raise AutogradError(
                "Calling register_hooks on a saved tensor whose hooks have already been set. "
                "Hint: only one pair of hooks is allowed at a time."
            )
        if self._array is None:
            raise AutogradError(
                "Calling register_hooks on a saved tensor after it has been freed. Saved "
                "intermediate values are freed by backward() or grad() without retain_graph."
            )
        if self._variable is not None:
            self._edge = gradient_edge(self._variable)
        self._pack(SavedHooks(pack_hook, unpack_hook))

    def _pack(self, hooks: SavedHooks) -> None:
        """Let the hooks have the values, and keep what they make of them.

        They see a leaf itself, and other tensors as they stand in the graph: while they run. What
        they keep must not hold the graph, of which it is a part.
        """
        given = self._variable
        if given is None or self._edge.__class__ is not AccumulateGrad:
            array = self._array if given is None else given._array
            given = wrap(array, self._metadata, self._edge)
            given._counter = self._counter
        before = self._counter.value
        found = current()
        install(found.replace(grad=False))
        try:
            packed = hooks.pack(given)
        finally:
            install(found)
            if given is not self._variable:
                given._edge = None
        if self._counter.value != before:
            raise AutogradError(
                "A saved tensor pack hook is modifying its input in place, which is the tensor "
                "that is saved. Work on a clone in the hook."
            )
        self._packed = packed
        self._hooks = hooks
        self._variable = self._array = None

    def release(self) -> None:
        """Give the values up."""
        self._variable = self._array = self._packed = self._edge = None

    def unpack(self, node: Node, edge: Any = None) -> Any:
        """The tensor, leading to where it led when it was saved.

        Args:
            node: the node that keeps it, for errors.
            edge: where an output of the node leads.
        """
        hooks = self._hooks
        if hooks is None:
            return self._checked(node, edge)
        result = hooks.unpack(self._packed)
        if isawaitable(result) and not isinstance(result, Variable):
            raise _cannot_wait(node, result)
        return self._unpacked(result, edge)

    def unpack_steps(self, node: Node, edge: Any = None) -> Generator[Any, Any, Any]:
        """The same, yielding what a coroutine hook wants awaited."""
        hooks = self._hooks
        if hooks is None:
            return self._checked(node, edge)
        result = hooks.unpack(self._packed)
        if isawaitable(result) and not isinstance(result, Variable):
            result = yield result
        return self._unpacked(result, edge)

    def _checked(self, node: Node, edge: Any) -> Any:
        """The values as they were saved, if nobody has changed them."""
        if self._counter.changed_since(self._version):
            refuse_modified(node, self._metadata, self._counter, self._version)
        variable = self._variable
        if variable is None:
            return restored(self._array, self._metadata, edge or self._edge)
        if variable._counter is self._counter:
            return variable
        # An optimiser has given the leaf other values since: these are still the old ones.
        return restored(self._array, self._metadata, gradient_edge(variable))

    def _unpacked(self, result: Any, edge: Any) -> Any:
        if not isinstance(result, Variable):
            raise TypeError(
                f"Output of saved tensor unpack_hook expected to be a Tensor but got result of "
                f"type {type(result).__name__}"
            )
        return restored(result._array, result._metadata, edge or self._edge)


def restored(array: Any, metadata: Any, edge: Any) -> Any:
    """A tensor with saved values that leads to where it led: a leaf is a leaf again."""
    if edge.__class__ is AccumulateGrad:
        variable = edge.variable
        if variable._array is array:
            return variable
        return leaf_alias(array, metadata, edge)
    return wrap(array, metadata, edge)


def leaf_alias(array: Any, metadata: Any, accumulator: AccumulateGrad) -> Any:
    """Other values in the place of a leaf's: their gradient goes to the leaf."""
    alias = wrap(array, metadata)
    alias._autograd = accumulator.variable._autograd
    return alias


def save(variable: Variable) -> SavedTensor:
    """Save a tensor, packed by the hooks in force."""
    return SavedTensor(variable, current().saved_hooks)


def values_of(node: Node) -> tuple[Any, ...]:
    """What a table node has saved, one after the other."""
    rule = node.rule
    assert rule is not None
    return (node.saved,) if len(rule.names) == 1 else node.saved


def pack(
    node: Node,
    hooks: SavedHooks,
    positions: tuple[int, ...] | None = None,
    out: Variable | None = None,
) -> None:
    """Have hooks pack the arrays that a table node has saved.

    Args:
        node: the node.
        hooks: the hooks.
        positions: which of the values; all of them if None.
        out: the node's result, if it has only just been made.
    """
    rule = node.rule
    assert rule is not None
    if out is not None and any(where < 0 for _, where in rule.arrays):
        counter_of(out)
    values = list(values_of(node))
    counters = watched(node)
    for position, where in rule.arrays:
        if positions is None or position in positions:
            array = values[position]
            metadata = node_metadata(node).F.metadata_of(array)
            variable = restored(array, metadata, saved_edge(node, where))
            counter, _ = counters.pop(position, (None, 0))
            if variable._counter is None:
                variable._counter = counter
            values[position] = SavedTensor(variable, hooks)
            values[position].as_output()
    node.saved = values[0] if len(values) == 1 else tuple(values)
    # What the hooks keep is theirs: changes of it can't be seen.
    further = _further(node)
    node.guard = tuple([counter for counter, _ in counters.values()]) + further[0]
    node.version = tuple([version for _, version in counters.values()]) + further[1]
    extras_of(node).packed = True


def watched(node: Node) -> dict[int, tuple[Any, int]]:
    """The version counters of what a table node has saved, with their versions, by position."""
    guards, rule = node.guard, node.rule
    assert rule is not None
    if guards is None:
        return {}
    versions = node.version
    if guards.__class__ is not tuple:
        guards, versions = (guards,), (versions,)
    # As `Plan.save` lays them out: those of the inputs, and then the output's if it is saved.
    places = [position for position, where in rule.arrays if where >= 0]
    places += [position for position, where in rule.arrays if where < 0]
    return dict(zip(places, zip(guards, versions, strict=True), strict=False))


def _further(node: Node) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The counters, with their versions, of tensors that a node keeps as attributes."""
    rule, guards = node.rule, node.guard
    assert rule is not None
    if guards.__class__ is not tuple:
        return (), ()
    return guards[len(rule.arrays) :], node.version[len(rule.arrays) :]


def unpack_steps(node: Node, *, recorded: bool) -> Generator[Any, Any, Any]:
    """What a table node has saved, unpacked: arrays, or tensors that lead into the graph."""
    rule = node.rule
    assert rule is not None
    values = list(values_of(node))
    for position, where in rule.arrays:
        value = values[position]
        edge = saved_edge(node, where)
        if value.__class__ is SavedTensor:
            tensor = yield from value.unpack_steps(node, edge)
            values[position] = tensor if recorded else tensor._array
        elif recorded:
            values[position] = restored(value, node_metadata(node).F.metadata_of(value), edge)
    return values[0] if len(values) == 1 else tuple(values)


def values_as_tensors(node: Node) -> Any:
    """The same outside of a pass, where nothing can be awaited."""
    steps = unpack_steps(node, recorded=True)
    try:
        waiting = next(steps)
    except StopIteration as stop:
        return stop.value
    raise _cannot_wait(node, waiting)


def _cannot_wait(node: Node, waiting: Any) -> AutogradError:
    """The error of what must be awaited where nothing can be."""
    close = getattr(waiting, "close", None)
    if close is not None:
        close()
    return AutogradError(
        f"a saved tensor of {node.name()} has an unpack hook that must be awaited. It can be read "
        f"in a pass, not from outside."
    )


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


def node_metadata(node: Node) -> Any:
    """The record of a node's first output."""
    metadata = node.output_metadata
    return metadata[0] if metadata.__class__ is tuple else metadata


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
        edge = stack.pop()
        node = edge.node if edge.__class__ is Edge else edge
        if node is None or node.rule is None or node.sequence_nr <= since:
            continue
        following = node.following
        stack += following if following.__class__ is tuple else (following,)
        guards = node.guard
        if guards is None:
            continue
        versions = node.version
        if guards.__class__ is not tuple:
            guards, versions = (guards,), (versions,)
        if counter not in guards:
            continue
        values = list(values_of(node))
        for position, where in node.rule.arrays:
            value = values[position]
            if where >= 0 and looks_into(value, array):
                values[position] = value.copy()
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
    node = edge.node if edge.__class__ is Edge else edge
    if node is None or node.rule is None or all(where >= 0 for _, where in node.rule.arrays):
        return
    guards = node.guard
    if guards is None:
        node.guard, node.version = counter, counter.value
        return
    versions = node.version
    if guards.__class__ is not tuple:
        guards, versions = (guards,), (versions,)
    own = [guard is result._counter for guard in guards]
    node.guard = tuple([counter if o else g for o, g in zip(own, guards, strict=True)])
    node.version = tuple([counter.value if o else v for o, v in zip(own, versions, strict=True)])


def check_version(node: Node, *, running: bool = True) -> Any:
    """Raise if a tensor that the node saved has been changed, or detached, in place since.

    Args:
        node: the node.
        running: it is about to run; to read what it saved is allowed after `detach_()`.

    Returns:
        What the node has saved. An output that can be renewed is, if it has been changed.
    """
    guards, versions = node.guard, node.version
    if guards.__class__ is VersionCounter:
        guards, versions = (guards,), (versions,)
    elif guards.__class__ is not tuple:
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
    values[place] = rule.renew(node_metadata(node).F, values)
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
