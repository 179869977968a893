"""Expensive nodes of one pass on several cores.

One thread still owns the pass: helpers compute the gradients of nodes handed to them and report to
the inbox. Only table nodes are handed out. Their rules read the saved values and the gradient, and
write neither, so every thread computes the same bits. `InputBuffer` fixes the order of sums, and
`waits_for_helpers` fixes that of hooks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop
from typing import TYPE_CHECKING, Any, Protocol

from asyncgrad.aliases import Gradient, Namespace, NodeGradient, Saved, StoredEdge
from asyncgrad.core.delivery import deliver, take_report
from asyncgrad.core.node import Node, OpNode
from asyncgrad.core.pass_state import PassState
from asyncgrad.core.saved_values import run_rule
from asyncgrad.core.states import HEAVY_NS, RUNNING
from asyncgrad.core.variable import AccumulateGrad
from asyncgrad.errors import note_failure

if TYPE_CHECKING:
    from asyncgrad.core.rule import Run


class Helpers(Protocol):
    """The threads that help the owner of a pass."""

    def gives_way(self, cost: int, suspended: int) -> bool:
        """Whether the owner should leave its thread before a node of this expected cost.

        `suspended` nodes wait for the loop to arrange their awaits.
        """

    def room(self) -> int:
        """How many nodes may be handed out now."""

    def splits(self) -> bool:
        """Whether the parts of one node may go to different threads, too."""

    def lend(self, job: Callable[[], None], *, part: bool = False) -> None:
        """Run a job, which does not raise, in another thread; a `part` is not all of a node."""


def share(task: PassState, helpers: Helpers, node: OpNode, gradient: NodeGradient) -> bool:
    """Hand out other expensive nodes that are ready before `node`; split it if threads are left.

    Returns:
        Whether the node itself has been run.
    """
    room = helpers.room()
    ready = task.ready
    while (
        room
        and ready
        and ready[0][2].cost > HEAVY_NS
        and _can_lend(task, *ready[0][2:4])
        # To pass on a gradient, or a view of it, takes less time than to wake a thread.
        and not ready[0][2].rule.passes
    ):
        _, _, other, received, _ = heappop(ready)
        task.launched[other] = other.sequence_nr
        whole, fresh = other.rule.run, other.rule.fresh
        helpers.lend(partial(_run_lent, task, other, received, whole, fresh, None))
        room -= 1
    if node.cost < 2 * HEAVY_NS or not helpers.splits() or not _can_lend(task, node, gradient):
        return False
    rule = node.rule
    pulls = rule.pulls
    if pulls is None or not rule.apart:
        return False
    # Here the gradient of the first edge is computed that does not lead to a leaf, so that the pass
    # can go on with that node. A helper computes the others meanwhile.
    following = node.following
    place = next((i for i, edge in enumerate(following) if edge.__class__ is not AccumulateGrad), 0)
    others = [pull for i, pull in enumerate(pulls) if i != place]

    def run(F: Namespace, gradient: NodeGradient, saved: Saved) -> list[Gradient]:
        return [pull(F, gradient, saved) for pull in others]

    edges = (*following[:place], *following[place + 1 :])
    task.launched[node] = node.sequence_nr
    helpers.lend(partial(_run_lent, task, node, gradient, run, rule.fresh, edges), part=True)
    try:
        received = run_rule(node, pulls[place], node.output_metadata.F, gradient, None)
    except BaseException as error:
        # The node stays launched until the others report.
        note_failure(error, node)
        task.fail(error)
        del node, gradient, task, following, edges  # See core.frames.
        return True
    deliver(task, node, (following[place],), (received,), rule.fresh)
    return True


def waits_for_helpers(task: PassState, node: Node) -> bool:
    """Whether a node must wait for helpers because it may run user code.

    Users must see their code run in order. A node with a greater number that a helper still
    computes may lead to nodes that come before this one. Table nodes run no user code, so they may
    run in any order.
    """
    if node.rule is not None and node.extras is None:
        return False
    number, _ = task.postponed.get(node, (node.sequence_nr, 0))
    # Other launched nodes are suspended in the user's coroutines.
    return any(
        theirs > number and other.rule is not None and other.extras is None
        for other, theirs in task.launched.items()
    )


def _can_lend(task: PassState, node: OpNode, gradient: NodeGradient) -> bool:
    """Whether helpers may call a node's rule, or parts of it. (An ordinary node has one output.)"""
    return (
        task.is_ordinary(node)
        # Rules report one at a time.
        and task.watch is None
        and gradient is not None
        and (task.exec_info is None or not task.exec_info.trims(node))
    )


def _run_lent(
    task: PassState, node: OpNode, gradient: NodeGradient, run: Run, fresh: bool,
    edges: tuple[StoredEdge, ...] | None,
) -> None:  # fmt: skip
    """Compute the gradients for some edges, or all, in a helper thread; report to the inbox."""
    received: Any = None
    try:
        if task.state is RUNNING:
            received = run_rule(node, run, node.output_metadata.F, gradient, None)
            if node.following.__class__ is not tuple:
                received = (received,)
        task.inbox.append(partial(take_report, task, node, received, fresh, edges))
    except BaseException as error:
        task.inbox.append(partial(task.fail, error, node))
    finally:
        del task, node, gradient, run, received, edges  # See core.frames.
