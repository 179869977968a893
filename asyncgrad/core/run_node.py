"""Runs one node in the general way: hooks, captures, Functions, passes that record themselves.

`run_node` is a generator. It yields what a coroutine hook or node wants awaited, and is sent the
result. A node without coroutines runs to its end in one go. For one node the order is PyTorch's:
hooks of each output, `retain_grad`, the capture, hooks before the node, the node, hooks after it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from asyncgrad._unbound import unbound
from asyncgrad.aliases import Gradient, Namespace, NodeGradient, Owned, Saved, Steps, StoredEdge
from asyncgrad.core.anomaly import check_nan, report
from asyncgrad.core.commit import commit
from asyncgrad.core.commit_turns import leave_line, line_up
from asyncgrad.core.hook_calls import (
    awaited,
    post_accumulate_hooks,
    post_hooks,
    pre_hooks,
    tensor_hooks,
)
from asyncgrad.core.modes import Modes, current, install
from asyncgrad.core.node import (
    Edge,
    Ending,
    Node,
    OpNode,
    first_metadata,
    name_of,
    stored_edges,
)
from asyncgrad.core.pass_state import PassState
from asyncgrad.core.recording import recorders, watch_of
from asyncgrad.core.saved import unpack_packed, unpacked, values_as_tensors
from asyncgrad.core.saved_values import check_saved, run_rule
from asyncgrad.core.variable import AccumulateGrad, Variable, autograd_meta, grad_dtype
from asyncgrad.errors import AutogradError, class_of

if TYPE_CHECKING:
    from asyncgrad.core.rule import Run

#: Node classes that run no user code unless they have hooks, besides those of direct nodes.
_SAFE = {AccumulateGrad, Ending}


def run_node(
    task: PassState, node: Node, gradient: NodeGradient, owned: Owned
) -> Steps[tuple[Sequence[Gradient], bool] | None]:
    """Run one node; the gradients for its next edges and whether they are fresh, or None."""
    if (
        task.context is not None
        and (node.sees_modes or task.careful or task.recorded is not None or node.extras)
        and current().graph_task is not task
    ):
        install(modes_within(task))
    gradients = in_own_dtypes(task, node, gradient)
    extras = node.extras
    info = task.exec_info
    if info is not None:
        needed = info.runs(node)
        if extras is not None and not needed:
            gradients = yield from _reported(task, node, tensor_hooks, gradients)
        # As in PyTorch: if a captured node also runs, the capture precedes its hooks.
        for position, place in task.captures.get(node, ()):
            task.captured[place] = gradients[position]
        if not needed:
            return None
    if extras is not None:
        gradients = yield from _reported(task, node, tensor_hooks, gradients)
        owned = False
        if extras.pre:
            gradients = yield from _reported(task, node, pre_hooks, gradients)
    observer = task.observer
    token = observer.enter(task, node) if observer is not None else None
    try:
        if node.__class__ is AccumulateGrad:
            yield from _accumulate(task, node, gradients[0], owned)
            if extras is not None and extras.post:
                yield from _reported(task, node, post_hooks, (), gradients)
            return None
        apply = _apply_checked if task.careful and current().anomaly else _apply
        received, fresh = yield from apply(task, node, gradients)
    except GeneratorExit:
        # The pass has ended, and a coroutine of the node was given up.
        observer = None
        raise
    finally:
        if observer is not None:
            observer.leave(task, node, token)
    if extras is not None and extras.post:
        received = yield from _reported(task, node, post_hooks, received, gradients)
        fresh = False
    return received, fresh


def _reported(task: PassState, node: Node, function: Callable[..., Any], *args: Any) -> Steps[Any]:
    """Run user code; if a recorder follows the pass, report what goes in and what comes out."""
    watch = watch_of(task) if recorders else None
    if watch is None:
        steps: Steps[Any] = function(task, node, *args)
        return steps
    return _reported_to(watch, task, node, function, args)


def _reported_to(
    watch: Any, task: PassState, node: Node, function: Callable[..., Any], args: tuple[Any, ...]
) -> Steps[Any]:
    noted, args = watch.began(task, node, function, args)
    result = yield from function(task, node, *args)
    return result if noted is None else watch.ended(noted, result)


def must_secure(task: PassState, node: Node, above: int = -1) -> bool:
    """Whether user code of a node may see staged gradients whose copies cost more than `above`."""
    if task.secured == len(task.staged) or task.streams is not None:
        return False
    if node.extras is None and (node.rule is not None or node.direct or node.__class__ in _SAFE):
        return False
    unsecured = islice(task.staged, task.secured, None)
    return above < sum([x._metadata.cost for x, _, owned in unsecured if owned is False])


def secure(task: PassState) -> None:
    """Copy staged gradients before user code that may change their arrays in place."""
    staged = task.staged
    for place in range(task.secured, len(staged)):
        variable, gradient, owned = staged[place]
        # None for a `Total`, which nothing else refers to: True would have it added, not replace.
        if owned is False:
            F = task.recorded or variable._metadata.F
            copy = task.within(F.own_copy, gradient)
            if task.watch is not None:
                task.watch.copied(gradient, copy)
            staged[place] = variable, copy, True
    task.secured = len(staged)


# Set in `asyncgrad/_wiring.py`.
#: Called in the context of a pass before any user code runs there.
prepare_context: Callable[[], Any] = unbound
#: Returns an awaitable that ends when no pass commits, or None if the caller may block.
until_free: Callable[[PassState], Awaitable[None] | None] = unbound


def commit_in_turn(task: PassState, commit: Callable[[bool], Any]) -> Steps[Any]:
    """Commit when no other pass does, in line on a loop; `commit` gets whether it may block."""
    place = None
    try:
        while not (made := commit(False)):
            free = until_free(task)
            if free is None:
                break
            place = line_up(place)
            yield free
    finally:
        if place is not None:
            leave_line(place)
    return made or commit(True)


def modes_within(task: PassState) -> Modes:
    """The record of modes for hooks and Functions of a pass."""
    prepare_context()
    modes = current()
    if modes.recorder is not None and task.recorded is None:
        # What hooks and Functions do is not recorded, because a replay calls them anew.
        modes = modes.replace(recorder=None, before_change=None)
    # Passes that this code starts block because it is in a node. Tasks that a hook makes inherit
    # these modes, too, but their passes must not block: so `blocking` is off.
    return modes.replace(grad=task.create_graph, graph_task=task, blocking=False)


def _apply(
    task: PassState, node: Any, gradients: list[Gradient]
) -> Steps[tuple[tuple[Gradient, ...], bool]]:
    """Compute a node's gradients for the next edges, as a tuple; and whether they are fresh."""
    if node.rule is None:
        return (yield from _reported(task, node, call_apply, gradients)), node.fresh
    run = wanted = wanted_rule(task, node)
    packed: dict[int, Any] | None = None
    if node.extras is not None and node.extras.packed:
        check_saved(node)
        packed = yield from unpack_packed(node)
    recorded = task.recorded is not None
    if packed is not None or (recorded and node.rule.arrays):

        def run(F: Namespace, gradient: NodeGradient, saved: Saved) -> Any:
            return wanted(F, gradient, unpacked(packed or {}, recorded, node))

    several = node.output_metadata.__class__ is tuple
    gradient = gradients if several else gradients[0]
    return apply_rule(task, node, gradient, run, task.recorded)


def apply_rule(
    task: PassState | None, node: OpNode, gradient: NodeGradient, run: Run, recorded: Namespace
) -> tuple[tuple[Gradient, ...], bool]:
    """Call a table node's rule; the gradients for the next edges, and whether they are fresh."""
    several = node.output_metadata.__class__ is tuple
    if gradient is None or (several and all(one is None for one in gradient)):
        return (None,) * len(stored_edges(node)), False
    F = first_metadata(node).F if recorded is None else recorded
    received = run_rule(node, run, F, gradient, task)
    return received if node.following.__class__ is tuple else (received,), node.rule.fresh


def call_apply(
    task: PassState, node: Node, gradients: Sequence[Gradient]
) -> Steps[tuple[Gradient, ...]]:
    """Compute the gradients of a node that has no rule."""
    yield from node.prefetch()
    try:
        received = node.apply(tuple(gradients), task)
        if received.__class__ is not tuple:
            received = yield from awaited(received)
    finally:
        node._after_apply()
    concluded = node.conclude(received, task)
    if not task.keep_graph:
        node.release_saved(task.freed)
    return concluded


def wanted_rule(task: PassState, node: OpNode) -> Run:
    """A table node's rule; in a partial pass only the pulls for gradients that the pass needs."""
    rule, info, watch = node.rule, task.exec_info, task.watch
    run, pulls = rule.run, rule.pulls
    if watch is not None:
        run = partial(watch.call, node, rule, None)
    if info is None or not info.trims(node):
        return run
    following = node.following
    if following.__class__ is not tuple:
        return run if is_wanted(task, following) else (lambda F, gradient, saved: None)
    if watch is not None and pulls is not None:
        pulls = tuple([partial(watch.call, node, rule, place) for place in range(len(pulls))])
    return some_pulls(run, pulls, [is_wanted(task, edge) for edge in following])


def some_pulls(run: Run, pulls: tuple[Run, ...] | None, wanted: Sequence[bool]) -> Run:
    """A rule of those pulls that are wanted, with None in the place of other gradients.

    If all are, it is the whole rule, `run`, which may compute for several gradients at once.
    """
    if pulls is None or all(wanted):
        return run
    return lambda F, gradient, saved: tuple(
        pull(F, gradient, saved) if flag else None for pull, flag in zip(pulls, wanted, strict=True)
    )


def _apply_checked(
    task: PassState, node: Node, gradients: list[Gradient]
) -> Steps[tuple[tuple[Gradient, ...], bool]]:
    """Run a node in anomaly mode: new nodes note this one, and NaN is an error."""
    modes = current()
    install(modes.replace(node=node))
    try:
        received, fresh = yield from _apply(task, node, gradients)
        if modes.check_nan:
            check_nan(node, received)
    except Exception as error:
        report(node, error)
        raise
    finally:
        install(modes)
    return received, fresh


def forget_node() -> None:
    """In anomaly mode, have what runs while a node waits not be noted as that node's work."""
    modes = current()
    if modes.node is not None:
        install(modes.replace(node=None))


def call_node(
    node: Node, gradients: tuple[Gradient, ...], recorded: Namespace
) -> tuple[Gradient, ...]:
    """Compute a node's gradients from tensors, outside of a pass and without its hooks."""
    for place, gradient in enumerate(gradients):
        if gradient is not None and not isinstance(gradient, Variable):
            raise TypeError(
                f"{name_of(node)}: argument {place} is not a Variable, but {class_of(gradient)}"
            )
    if len(gradients) != node.num_inputs:
        raise TypeError(
            f"{name_of(node)}: expected {node.num_inputs} arguments, got {len(gradients)} "
            f"arguments instead: one gradient for each output"
        )
    if node.__class__ is AccumulateGrad:
        if gradients[0] is not None:
            commit([(node.variable, gradients[0]._array, False)], None, wait=True)
        return ()
    if not isinstance(node, OpNode):
        try:
            received = node.apply(gradients, None)
        finally:
            node._after_apply()
        return node.conclude(received, None)
    rule = node.rule
    gradient = gradients if node.output_metadata.__class__ is tuple else gradients[0]
    run = rule.run
    if rule.arrays:
        run = lambda F, gradient, _: rule.run(F, gradient, values_as_tensors(node))  # noqa: E731
    received, _ = apply_rule(None, node, gradient, run, recorded)
    by_place = dict(zip(rule.places, received, strict=True))
    return tuple(by_place.get(place) for place in range(rule.arity))


def is_wanted(task: PassState, edge: StoredEdge) -> bool:
    """Whether this pass needs the gradient along an edge."""
    return (edge.node if edge.__class__ is Edge else edge) in task.dependencies


def _accumulate(
    task: PassState, node: AccumulateGrad, gradient: Gradient, owned: bool
) -> Steps[None]:
    """Stage a leaf's gradient, or commit it at once if the leaf has post-accumulate hooks."""
    variable = node.variable
    meta = variable._autograd
    if meta is not None and not meta.requires_grad:
        return
    if meta is not None and meta.post_accumulate:
        yield from _reported(task, node, accumulate_now, gradient, owned)
    elif gradient is not None:
        task.staged.append((variable, gradient, owned))


def accumulate_now(
    task: PassState, node: AccumulateGrad, gradient: Gradient, owned: bool
) -> Steps[None]:
    """Commit a leaf's gradient, and call the hooks that run after it."""
    if task.members:
        raise AutogradError(
            "a pass with participants has reached a leaf with a post-accumulate hook, to which it "
            "would add before all of them have agreed: use a tensor hook, register_hook(), or call "
            "its function after the pass"
        )
    task.committed_early = True
    variable = node.variable
    if gradient is not None:
        change = partial(commit, [(variable, gradient, owned)], task.recorded)
        yield from commit_in_turn(task, change)
    yield from post_accumulate_hooks(variable)


def in_own_dtypes(task: PassState, node: Node, gradient: NodeGradient) -> list[Gradient]:
    """Convert a node's gradients to the dtypes of its outputs; a leaf's to the one it asks for.

    Rules for half precision may return float32, which user code must not see.
    """
    metadata = node.output_metadata
    several = metadata.__class__ is tuple
    gradients = list(gradient) if several else [gradient]
    if node.__class__ is AccumulateGrad and autograd_meta(node.variable).grad_dtype is not None:
        dtype = grad_dtype(node.variable)
        if gradient is not None and dtype is not None and gradient.dtype != dtype:
            convert = metadata.F.in_dtype if task.recorded is None else task.recorded.to
            gradients[0] = convert(gradient, dtype)
    elif task.recorded is None:
        for place, facts in enumerate(metadata if several else (metadata,)):
            if gradients[place] is not None:
                gradients[place] = facts.F.in_own_dtype(gradients[place], facts.dtype)
    return gradients
