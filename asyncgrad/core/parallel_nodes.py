"""Expensive nodes of one pass on several cores.

One thread still owns the pass: helpers compute the gradients of nodes handed to them and report to
the inbox. Only table nodes are handed out. Their rules read the saved values and the gradient, and
write neither, so every thread computes the same bits. The order of sums is fixed by `InputBuffer`,
and that of hooks by `GraphTask._is_early`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from asyncgrad.core.saved_values import steadily
from asyncgrad.core.states import HEAVY_NS, RUNNING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncgrad.core.graph_task import GraphTask


class Helpers(Protocol):
    """The threads that help the owner of a pass."""

    #: The parts of one node may go to different threads, too.
    splits: bool

    def gives_way(self, cost: int, suspended: int) -> bool:
        """Whether the owner should leave its thread before a node of this cost.

        Args:
            cost: the node's expected cost.
            suspended: how many nodes wait for the loop to arrange their awaits.
        """

    def room(self) -> int:
        """How many threads are idle."""

    def lend(self, job: Callable[[], None]) -> None:
        """Run a job, which does not raise, in another thread."""

    def together(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run calls in parallel, the first in this thread, and wait for all."""


#: A node is split only if this many threads are idle: one helps, and the core of the other is left
#: to the event loop, which would otherwise lag throughout a pass with nothing else to share.
_ROOM = 2


def share(task: GraphTask, helpers: Helpers, node: Any, gradient: Any) -> bool:
    """Hand out the other expensive nodes that are ready; split `node` if threads are left.

    Args:
        task: the pass.
        helpers: the threads that help.
        node: the node that is about to run.
        gradient: the node's gradient.

    Returns:
        Whether the node itself has been run.
    """
    room = helpers.room()
    ready = task.ready
    while room and ready and ready[0][2].cost >= HEAVY_NS and _is_plain(task, *ready[0][2:4]):
        entry = task.launch()
        helpers.lend(partial(_run_lent, task, entry))
        room -= 1
    if (
        room < _ROOM
        or not helpers.splits
        or node.cost < 2 * HEAVY_NS
        or not _is_plain(task, node, gradient)
        or not node.rule.apart
    ):
        return False
    rule = node.rule
    try:
        F = node.output_metadata.F
        received = steadily(
            node,
            lambda saved: helpers.together(
                [partial(pull, F, gradient, saved) for pull in rule.pulls]
            ),
        )
        if not task.keep_graph:
            node.release_saved(task.freed)
    except BaseException as error:
        task.fail(error, node)
        # The traceback holds this frame, which must not keep the graph alive.
        del node, gradient, task
        return True
    task._deliver(node, node.following, received, rule.fresh)
    return True


def _is_plain(task: GraphTask, node: Any, gradient: Any) -> bool:
    """Whether running a node means calling its rule, and nothing else."""
    info = task.exec_info
    return (
        node.rule is not None
        and gradient is not None
        and node.extras is None
        and node.output_metadata.__class__ is not tuple
        and not task.careful
        and (info is None or (node not in info.captures and node not in info.trimmed))
    )


def _run_lent(task: GraphTask, entry: Any) -> None:
    """Compute a node in a helper thread, and report to the inbox."""
    _, _, node, gradient, owned = entry
    rule = node.rule
    received: Any = None
    try:
        following = node.following
        if task.state is RUNNING:
            received = steadily(node, partial(rule.run, node.output_metadata.F, gradient))
            if not task.keep_graph:
                node.release_saved(task.freed)
        fresh = rule.fresh
        if following.__class__ is not tuple:
            received = (received,)
            fresh = fresh or (owned and rule.passes)
        task.inbox.append(partial(task.finish, node, received, fresh=fresh))
    except BaseException as error:
        task.inbox.append(partial(task.fail, error, node))
    finally:
        # An error's traceback holds this frame, which must not keep the graph alive.
        del task, entry, node, gradient, received
