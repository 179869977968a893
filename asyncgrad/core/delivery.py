"""Passes the gradients that a node has computed on along its edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asyncgrad.aliases import Gradient, NodeGradient, Owned, StoredEdge
from asyncgrad.core.node import Edge, Node, OpNode, stored_edges
from asyncgrad.core.pass_state import PassState
from asyncgrad.core.states import RUNNING, InputBuffer
from asyncgrad.core.variable import AccumulateGrad


def deliver(
    task: PassState, node: Node, following: tuple[StoredEdge, ...],
    received: Sequence[Gradient] | None, fresh: bool,
) -> None:  # fmt: skip
    """Pass a node's gradients on. A node that has received all of its gradients becomes ready.

    `received` is None where all gradients are undefined; if they are `fresh`, nothing else refers
    to their arrays.
    """
    dependencies = task.dependencies
    buffers = task.not_ready
    sequence_nr = node.sequence_nr
    # Gradients are summed in descending sequence number of their producers. So a gradient is held
    # back while a producer with a greater number has still to report. Such a producer is ready or
    # launched, or it waits for a ready or launched node whose number is greater still.
    ready, launched = task.ready, task.launched
    overtakes = bool(ready) and -ready[0][0] > sequence_nr
    if launched and not overtakes:
        overtakes = max(launched.values()) > sequence_nr
    recorded, careful = task.recorded, task.careful
    if received is None:
        received = (None,) * len(following)
    try:
        for edge, gradient in zip(following, received, strict=True):
            target: Any = edge
            position = 0
            if edge.__class__ is Edge:
                target, position = edge
            waiting = dependencies.pop(target, 0)
            if not waiting:
                continue
            if overtakes or task.postponed:
                _postpone_leaf(task, target, sequence_nr, overtakes)
            metadata = target.output_metadata
            buffer = buffers.get(target)
            if waiting == 1 and buffer is None and metadata.__class__ is not tuple:
                runs = careful or target.extras is not None
                if runs or not _stage_or_capture(task, target, gradient, fresh):
                    task.make_ready(target, gradient, fresh)
                continue
            if buffer is None:
                buffer = buffers[target] = InputBuffer(target.num_inputs)
            F = recorded
            if F is None:
                F = (metadata[position] if metadata.__class__ is tuple else metadata).F
                F = F if task.watch is None else task.watch.adding(F)
            if overtakes:
                buffer.hold(sequence_nr, position, gradient, fresh)
            else:
                buffer.admit(sequence_nr, F)
                buffer.add(position, gradient, fresh, F)
            if waiting > 1:
                dependencies[target] = waiting - 1
                continue
            del buffers[target]
            buffer.admit(-1, F)
            if metadata.__class__ is tuple:
                task.make_ready(target, buffer.values, buffer.owned)
            else:
                task.make_ready(target, buffer.values[0], buffer.owned[0])
    except BaseException as error:
        # Too few gradients, or a failed sum: the node is to blame, not the owner.
        task.fail(error, node)


def pass_on(
    task: PassState, producer: OpNode, received: tuple[Gradient, ...] | None
) -> tuple[Node | None, NodeGradient]:
    """Deliver a table node's gradients; the node that runs next, with its gradient, where known."""
    following, rule = producer.following, producer.rule
    owned = rule.fresh
    if received is None or task.launched:
        deliver(task, producer, following, received, owned)
        return None, None
    dependencies, buffers = task.dependencies, task.not_ready
    node: Any = None
    gradient: NodeGradient = None
    place = 0
    # Counted here, because `zip` costs 0.1 us a node.
    for target in following:
        value = received[place]
        place += 1
        waiting = dependencies.pop(target, 0)
        if waiting == 1 and target not in buffers:
            if target.__class__ is AccumulateGrad:
                if not stage_leaf(task, target, value, owned):
                    task.make_ready(target, value, owned)
                continue
            if target.output_metadata.__class__ is not tuple:
                if node is None:
                    node, gradient = target, value
                else:
                    task.make_ready(target, value, owned)
                continue
        if waiting:
            dependencies[target] = waiting
        deliver(task, producer, (target,), (value,), owned)
        if task.state is not RUNNING:
            return None, None
    if node is not None and task.ready and -task.ready[0][0] > node.sequence_nr:
        task.put_back(node, gradient, owned)
        node = None
    return node, gradient


def stage_leaf(task: PassState, node: Node, gradient: NodeGradient, owned: Owned) -> bool:
    """Stage or capture the gradient of a leaf without hooks; False for other nodes."""
    if node.__class__ is not AccumulateGrad or node.extras is not None:
        return False
    if task.captures:
        for _, wanted in task.captures.get(node, ()):
            task.captured[wanted] = gradient
    elif gradient is not None:
        task.staged.append((node.variable, gradient, owned))
    return True


def _stage_or_capture(task: PassState, target: Node, gradient: Gradient, fresh: bool) -> bool:
    """Stage or capture a complete gradient; False if the node has to run with it."""
    if target in task.captures:
        return task.capture(target, gradient)
    return stage_leaf(task, target, gradient, fresh)


def _postpone_leaf(task: PassState, target: Node, sequence_nr: int, overtakes: bool) -> None:
    """Update `PassState.postponed` for a gradient that goes to `target`, if a leaf with hooks."""
    if target.__class__ is AccumulateGrad and target.extras:
        earlier = task.postponed.pop(target, None)
        if earlier is not None and earlier[0] < sequence_nr:
            task.postponed[target] = earlier
        elif overtakes:
            task.order += 1
            task.postponed[target] = sequence_nr, task.order


def take_report(
    task: PassState, node: Node, gradients: Sequence[Gradient] | None, fresh: bool,
    following: tuple[StoredEdge, ...] | None = None,
) -> None:  # fmt: skip
    """Take the last gradients of a node that was handed out, and release what it has saved.

    They go along all of its edges, or along those `following`. Raises ValueError for a node that
    was not handed out, or has reported already.
    """
    if node not in task.launched:
        raise ValueError(f"{node!r} was not handed out by this pass, or has reported already")
    if task.state is RUNNING:
        if not task.keep_graph:
            node.release_saved(task.freed)
        deliver(task, node, following or stored_edges(node), gradients, fresh)
    # Last, because an interrupt may come before: without a report the pass must not go on.
    task.launched.pop(node, None)
