"""Notes user code while a call is recorded: hooks, and `Function`s.

Such code may do anything, so nothing of what it does is recorded. A pass reports what goes in and
what comes out, and so does `Function.apply`. A replay calls it anew: see `replay.anew`.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import numpy as np

from asyncgrad.autograd.function_node import FunctionNode
from asyncgrad.core.hook_calls import post_hooks, pre_hooks, tensor_hooks
from asyncgrad.core.modes import Mode, current
from asyncgrad.core.node import (
    Edge,
    GraphRoot,
    Node,
    as_edge,
    as_stored,
    init_node,
    name_of,
    stored_edges,
)
from asyncgrad.core.run_node import accumulate_now, call_apply
from asyncgrad.core.variable import AccumulateGrad, Variable, requires_grad, view_of
from asyncgrad.nn.backward_hooks import BackwardHooks, Passage
from asyncgrad.records import NamedTuple
from asyncgrad.replay.anew import StandIn, apply_function, hooks_on, versions_of, within
from asyncgrad.replay.names import names_in
from asyncgrad.replay.steps import Again, Opaque, Place, Same, UnrepeatableError, UserCall
from asyncgrad.replay.watched_pass import WatchedPass

#: Stands for the target of no code.
_NOTHING = object()
#: Values that a hook may hold.
_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes})


def record_function(recorder: Any, function: Any, args: tuple[Any, ...]) -> Any:
    """Call a `Function`, and note it."""
    name = function.__name__
    arguments: Any = ()
    tensors = [x for x in args if isinstance(x, Variable)]
    if recorder.reason is None:
        try:
            arguments = tuple([_argument(recorder, x) for x in args])
        except UnrepeatableError as error:
            recorder.refuse(f"{name}: {error}")
        if current().inference is not recorder.inference:
            recorder.refuse(f"{name}: it is called in inference mode")
    versions, hooks = versions_of(tensors), {id(x): hooks_on(x) for x in tensors}
    recorder.check_unchanged()
    with Mode(recorder=None, before_change=None):
        result = function.apply(*args)
    recorder.check_unchanged()
    if recorder.reason is None:
        try:
            if versions_of(tensors) != versions:
                raise UnrepeatableError("it changes an argument in place")
            _note_function(recorder, function, args, arguments, result, hooks)
        except UnrepeatableError as error:
            recorder.refuse(f"{name}: {error}")
    return result


def _argument(recorder: Any, value: Any) -> Any:
    if isinstance(value, Variable) and id(value) not in recorder.sources:
        # A tensor with a graph is made in `apply_function`.
        return recorder.array_of(value)
    return recorder.template(value, tensors=True)


def _note_function(
    recorder: Any, function: Any, args: Any, arguments: Any, result: Any, hooks: dict[int, int]
) -> None:
    results = result if isinstance(result, tuple) else (result,)
    node: Any = None
    expected: list[Any] = []
    for value in results:
        if not isinstance(value, Variable):
            expected.append(Same(recorder.template(value)))
            continue
        if view_of(value) is not None or recorder.knows(value._array):
            raise UnrepeatableError("it returns an argument, or a view")
        expected.append((value._metadata, value._edge is not None))
        if value._edge is not None:
            node = as_edge(value._edge).node
    outs: list[Any] = [Same(None)]
    if node is not None:
        outs[0] = recorder.new(Opaque())
        recorder.known[id(node)] = outs[0]
        recorder.keep(node)
    outs += [recorder.new(x._array) for x in results if isinstance(x, Variable)]
    made: list[Any] = []
    first: dict[int, int] = {}
    for number, (x, value) in enumerate(zip(args, arguments, strict=True)):
        if value.__class__ is not Place:
            made.append(None)
        else:
            at = first.setdefault(id(x), number)
            made.append(at if at < number else _facts(x, hooks[id(x)]))
    recorder.call_anew(
        Again(
            function.__name__,
            apply_function,
            (*map(Same, (function, current().grad, tuple(made), tuple(expected))), *arguments),
            {},
            tuple(outs),
            True,
            UserCall(within=False),
        )
    )


def _facts(tensor: Any, hooks: int) -> tuple[Any, ...]:
    """What `apply_function` makes a tensor by, which had so many hooks before."""
    node: Any = as_edge(tensor._edge).node
    name = None if node is None else name_of(node)
    return tensor._metadata, requires_grad(tensor), name, hooks_on(tensor) - hooks


def _check_lasting(value: Any, is_there: Any) -> None:
    """Raise for a hook, or a part of one, that a later call might make differently."""
    kind = type(value)
    if kind in _PLAIN or is_there(value):
        return
    parts: Any = None
    if kind is types.MethodType:
        parts = (value.__func__, value.__self__)
    elif kind is functools.partial:
        parts = (value.func, *value.args, *value.keywords.values())
    elif kind is tuple:
        parts = value
    elif kind is types.FunctionType:
        if value.__globals__.get("__name__") == BackwardHooks.__module__:
            # This package has made it for hooks of a module, and those are compared at each call.
            return
        names_in(value.__code__, value.__code__.co_freevars)
        cells = [cell for cell in value.__closure__ or () if not is_there(cell)]
        parts = (
            *(value.__defaults__ or ()),
            *(value.__kwdefaults__ or {}).values(),
            *[cell.cell_contents for cell in cells],
        )
    if parts is None:
        raise UnrepeatableError(f"a hook that is made in the call holds a {kind.__name__}")
    for part in parts:
        _check_lasting(part, is_there)


def check_waits(steps: list[Any], called: list[tuple[Again, bool]]) -> None:
    """Raise if user code that awaits something runs beside other user code that comes later.

    A replay runs one after the other. If the first waited for the second, it would never end.
    """
    if len(called) < 2 or not any(waited for _, waited in called):
        return
    makers = {place: step for step in steps for place in step.made}
    needed: dict[Again, set[Any]] = {}
    for step, _ in called:
        found: set[Any] = set()
        todo: list[Any] = [step]
        while todo:
            one = todo.pop()
            makes = {makers[x] for x in one.read if x in makers} - found
            found |= makes
            todo += makes
        needed[step] = found
    for number, (step, waited) in enumerate(called):
        for other, _ in called[number + 1 :] if waited else ():
            if step not in needed[other]:
                raise UnrepeatableError(f"{step.name} may wait for {other.name}")


class _Noted(NamedTuple):
    """User code that runs while a pass is recorded."""

    task: Any
    node: Any
    function: Any
    target: Any
    arguments: list[Any]
    #: The arrays that it gets, each with a copy.
    given: list[tuple[Any, Any]]


class UsersCode(WatchedPass):
    """Watches a pass, and notes the user code in it."""

    def began(self, task: Any, node: Any, function: Any, args: tuple[Any, ...]) -> Any:
        """Take the report that code is about to run, by a function of the engine.

        Returns:
            What goes to `ended`, None where nothing is to be noted, and the arguments: with arrays
            for NumPy's scalars, in which a change in place would not be seen.
        """
        recorder = self._recorder
        if function is call_apply and not isinstance(node, (FunctionNode, Passage)):
            if not (node._applied_rule or node.__class__ is GraphRoot or task.recorded):
                recorder.refuse(f"{name_of(node)} is not an operation of the table")
            return None, args
        if recorder.reason is not None or task.recorded is not None:
            recorder.refuse(
                f"{name_of(node)}: code of the user's runs in a pass that records itself"
            )
            return None, args
        try:
            if current().inference is not recorder.inference:
                raise UnrepeatableError("its pass starts in inference mode")
            if self._running:
                raise UnrepeatableError("several coroutines are awaited at once")
            gradients = args[:1] if function is accumulate_now else args
            if not all(isinstance(x, (np.ndarray, np.generic)) for x in _arrays(gradients)):
                raise UnrepeatableError("it gets gradients on a device with streams")
            target = self._target(node, function)
            if target is _NOTHING:
                return None, args
            arguments = [None if x is None else self.place(x) for x in gradients]
            gradients = tuple(map(self._in_arrays, gradients))
        except UnrepeatableError as error:
            recorder.refuse(f"{name_of(node)}: {error}")
            return None, args
        recorder.check_unchanged()
        self._running = True
        given = [(x, np.array(x)) for x in _arrays(gradients)]
        noted = _Noted(task, node, function, target, arguments, given)
        return noted, (*gradients, *args[len(gradients) :])

    def _in_arrays(self, gradient: Any) -> Any:
        """A gradient, or several, with arrays in the place of NumPy's scalars."""
        if isinstance(gradient, (tuple, list)):
            return type(gradient)(map(self._in_arrays, gradient))
        if not isinstance(gradient, np.generic):
            return gradient
        array = np.asarray(gradient)
        self._copied(gradient, array)
        return array

    def _target(self, node: Any, function: Any) -> Any:
        """The template of the node that a replay calls the function with."""
        recorder = self._recorder
        if function is call_apply:
            if isinstance(node, Passage):
                return None
            known = recorder.known.get(id(node))
            if known is None:
                raise UnrepeatableError("it was not made in the call")
            return known
        extras = node.extras
        if extras is not None and extras.retain:
            raise UnrepeatableError("it retains its gradient")
        if node.__class__ is AccumulateGrad:
            source = recorder.sources.get(id(node.variable))
            if source is None or source.argument is not None:
                raise UnrepeatableError("a leaf with hooks is an argument, or made in the call")
            return source
        hooks: Any = {
            tensor_hooks: [hook for hooks in extras.tensor.values() for hook in hooks.values()],
            pre_hooks: extras.pre.values(),
            post_hooks: extras.post.values(),
        }[function]
        for hook in hooks:
            _check_lasting(hook, recorder.call.reached.has_met)
        return Same(_stand_in(node)) if hooks else _NOTHING

    def ended(self, noted: _Noted, result: Any) -> Any:
        """Take the report that the code has run, and return its result in new arrays."""
        recorder = self._recorder
        self._running = False
        node, function = noted.node, noted.function
        recorder.check_unchanged()
        if recorder.reason is not None:
            return result
        for value, copy in noted.given:
            if np.asarray(value).tobytes() != copy.tobytes():
                recorder.refuse(f"{name_of(node)}: code of the user's changes a gradient in place")
                return result
        if noted.target is None:
            self._passed_on(result)
            return result
        if function is accumulate_now:
            self.committed.add(node)
            outs: Any = Same(None)
        else:
            # The result gets arrays of its own. The code may return an array that is another
            # gradient, too, and that gradient would be taken for this result.
            result = [None if x is None else np.asarray(x).view() for x in result]
            outs = tuple([Same(None) if x is None else recorder.new(x) for x in result])
            if function is call_apply or function is post_hooks:
                result = tuple(result)
        wanted = node.wants_grad if function is call_apply else None
        step = Again(
            name_of(node) if function is call_apply else f"hooks of {name_of(node)}",
            within,
            (Same(function), noted.target, Same(wanted), *noted.arguments),
            {},
            outs,
            True,
            UserCall(
                strict=function not in {tensor_hooks, accumulate_now},
                commits=function is accumulate_now,
            ),
        )
        recorder.call_anew(step)
        # If the code was awaited, its node is among those launched until it has ended.
        self.called.append((step, node in noted.task.launched))
        return result


def _arrays(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [x for part in value for x in _arrays(part)]
    return [] if value is None else [value]


def _stand_in(node: Any) -> Node:
    """A node with the hooks of another, and without its graph."""
    made = _bare(node)
    edges = []
    for stored in stored_edges(node):
        edge = as_edge(stored)
        edges.append(None if edge.node is None else as_stored(Edge(_bare(edge.node), edge[1])))
    made.following = tuple(edges)
    made.rule = node.rule
    made.extras = node.extras
    return made


def _bare(node: Any) -> Node:
    made = StandIn()
    init_node(made, (), node.output_metadata, node.cost)
    made.title = name_of(node)
    return made
