"""User code in a replay: hooks and `Function`s are called again, each in its place.

A replay calls the functions of the engine that call such code, with the arrays that the program has
at that place. What the code returns must be of the same kind as in the recorded call. Otherwise the
replay is given up, and the function is called eagerly.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from asyncgrad.core.modes import Mode
from asyncgrad.core.node import Node, as_edge, init_node
from asyncgrad.core.run_node import accumulate_now
from asyncgrad.core.variable import Variable, autograd_meta, gradient_edge, view_of, wrap
from asyncgrad.devices import CPU
from asyncgrad.errors import AutogradError, note_failure
from asyncgrad.ops.namespace import metadata_of
from asyncgrad.replay.steps import Same


class BailError(Exception):
    """A check has found that this call computes something else than the recorded one."""


def changed() -> None:
    """Raise for a call that can't be replayed, nor be made eagerly after its changes."""
    raise AutogradError(
        "compile: a function that was called anew has returned another kind of result than in the "
        "recorded call, after it had changed something. Leave it out of the compiled function."
    )


def apply_function(
    live: tuple[Any, ...], function: Any, grad: bool, made: Any, expected: Any, *args: Any
) -> tuple[Any, ...]:
    """Call a `Function` anew.

    Args:
        live: tensors whose arrays are read later, too.
        grad: whether grad mode is on.
        made: what is known of each argument. Of the array of a tensor: the tensor's metadata,
            whether it requires grad, the name of its node (None for a leaf), and how many hooks
            `forward` adds to the node. Of a tensor that is given a second time: the number of the
            argument that it is. Of others: None.
        expected: for each result that is a tensor, its metadata and whether it has a graph; a
            template of others.

    Returns:
        Its node, and the arrays of its results.
    """
    given: list[Any] = []
    for x, facts in zip(args, made, strict=True):
        if facts.__class__ is int:
            given.append(given[facts])
        else:
            given.append(x if facts is None else _tensor(x, *facts[:3]))
    watched = [*live, *[x for x in given if isinstance(x, Variable)]]
    before = versions_of(watched)
    with Mode(grad=grad):
        result = function.apply(*given)
    results = result if isinstance(result, tuple) else (result,)
    if versions_of(watched) != before or len(results) != len(expected):
        raise BailError
    for x, facts in zip(given, made, strict=True):
        if facts.__class__ is tuple and hooks_on(x) != facts[3]:
            raise BailError
    node: Any = None
    arrays: list[Any] = []
    for value, known in zip(results, expected, strict=True):
        if known.__class__ is Same:
            if type(value) is not type(known.value) or value != known.value:
                raise BailError
            continue
        metadata, flows = known
        if (
            not isinstance(value, Variable)
            or value._metadata is not metadata
            or (value._edge is not None) is not flows
            or view_of(value) is not None
        ):
            raise BailError
        arrays.append(value._array)
        if flows:
            node = as_edge(value._edge).node
    return node, *arrays


def hooks_on(tensor: Any) -> int:
    """How many hooks the node of a tensor has."""
    node: Any = as_edge(tensor._edge).node
    return 0 if node is None or node.extras is None else node.extras.count()


def _tensor(array: Any, metadata: Any, flows: bool, name: str | None) -> Any:
    """A tensor of an array of the program."""
    if name is None:
        tensor = wrap(array, metadata)
        if flows:
            autograd_meta(tensor).requires_grad = True
        return tensor
    node = _Argument()
    init_node(node, (), metadata)
    node.title = name
    return wrap(array, metadata, node)


class StandIn(Node):
    """Is in the place of a node of the recorded call, without that node's graph."""

    __slots__ = ("title",)

    title: str

    def name(self) -> str:
        """The node's name."""
        return self.title


class _Argument(StandIn):
    """Is in the place of the node of a `Function`'s argument."""

    __slots__ = ()

    @property
    def following(self) -> Any:
        """Give the replay up: user code looks at the graph, or runs a pass through it."""
        raise BailError

    @following.setter
    def following(self, edges: Any) -> None:
        """Set nothing."""


def within(
    task: Any, live: tuple[Any, ...], function: Any, target: Any, wanted: Any, *args: Any
) -> Generator[Any, Any, Any]:
    """Run user code again, in a pass.

    Args:
        live: tensors whose arrays are read later, too.
        function: the function of the engine that runs the code.
        wanted: which gradients a `Function` has to give.
    """
    before = versions_of(live)
    # A leaf makes its node anew if no graph has kept it.
    node: Any = gradient_edge(target) if isinstance(target, Variable) else target
    if node is None:
        # Other user code has just set its `requires_grad` to False.
        raise BailError
    result: Any = None
    try:
        if function is accumulate_now:
            yield from accumulate_now(task, node, args[0], False)
        else:
            if wanted is not None:
                node._wanted = wanted
            given = [[x if x is None else _shown(x) for x in gradients] for gradients in args]
            shown = [x for tensors in given for x in tensors if x is not None]
            result = yield from function(task, node, *given)
            if any(versions_of(shown)):
                # The gradient of another node may be in the same memory.
                raise BailError
            result = tuple([None if x is None else _array(x) for x in result])
    except BaseException as error:
        note_failure(error, node)
        raise
    if versions_of(live) != before:
        if function is accumulate_now:
            changed()
        raise BailError
    return result


def _shown(gradient: Any) -> Any:
    """A gradient as a tensor, so that a change in place is noticed."""
    array = np.asarray(gradient)
    return wrap(array, metadata_of(array, CPU))


def _array(gradient: Any) -> Any:
    return np.asarray(gradient._array if isinstance(gradient, Variable) else gradient)


def versions_of(tensors: Any) -> list[Any]:
    """The versions of tensors: others after a call mean that it has changed a tensor in place."""
    return [0 if x._counter is None else x._counter.value for x in tensors]
