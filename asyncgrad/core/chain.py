"""A quick way for passes along a chain.

A chain consists of table nodes without hooks. The edges of each lead to leaves and to at most one
other node, so every node gets exactly one gradient: there is nothing to count, to put in order or
to sum. Such a pass does without a `GraphTask`, which would take most of the time of a small pass.
"""

from __future__ import annotations

from typing import Any

from asyncgrad.aliases import Gradient, StoredEdge
from asyncgrad.core.commit import commit
from asyncgrad.core.node import Edge, Freed, OpNode
from asyncgrad.core.saved_values import check_saved
from asyncgrad.core.variable import AccumulateGrad, Staged
from asyncgrad.core.versions import VersionCounter
from asyncgrad.errors import note_failure

#: Longer chains are run by a `GraphTask`. If `is_chain` finds a branch, its walk was in vain, and
#: this limits how long it was.
_LONGEST = 64
#: How many frames of the package lie between the call of `Freed.remember` below and the user's call
#: of `backward()`.
_DEPTH = 6


def is_chain(edge: StoredEdge) -> bool:
    """Whether a chain starts here that reaches each leaf once, on devices without streams."""
    node: Any = edge
    leaves: list[Any] = []
    for _ in range(_LONGEST):
        if (
            node.__class__ is Edge
            or node.rule is None
            or node.extras is not None
            or node.output_metadata.__class__ is tuple
            or node.output_metadata.device.streamed
        ):
            return False
        following = node.following
        if following.__class__ is OpNode:
            node = following
            continue
        node = None
        for target in following if following.__class__ is tuple else (following,):
            if target.__class__ is AccumulateGrad:
                if target.extras is not None or target.output_metadata.device.streamed:
                    return False
                leaves.append(target)
            elif node is None:
                node = target
            else:
                return False
        if node is None:
            return len(leaves) == 1 or len(leaves) == len(set(leaves))
    return False


def run_chain(node: Any, gradient: Gradient, keep_graph: bool) -> BaseException | None:
    """Run a chain from its root, and commit; return the error, if there is one.

    It is caught here because `clear_frames` stops at the first frame of the scheduler.
    """
    staged: list[Staged] = []
    freed: Freed | None = None
    owned = False
    received: Any = None
    try:
        while gradient is not None:
            rule: Any = node.rule
            run, saved = rule.run, node.saved
            if rule.saves:
                # The fast path of `run_rule`, written out as in `GraphTask.run`: to call a function
                # here makes passes of four nodes up to 3.5 % slower.
                guard = node.guard
                if guard is not None and (
                    guard.__class__ is not VersionCounter or guard.value != node.version
                ):
                    saved = check_saved(node)
                received = run(node.output_metadata.F, gradient, saved)
                if not keep_graph:
                    if freed is None:
                        freed = Freed().remember(_DEPTH)
                    outliving = rule.outliving
                    node.guard = () if outliving is None else outliving(saved)
                    node.saved = freed
            else:
                received = run(node.output_metadata.F, gradient, saved)
            following = node.following
            gradient = None
            if following.__class__ is tuple:
                owned = rule.fresh
                # `strict=True` takes longer, and a rule gives one gradient for each edge, or None.
                for target, value in zip(following, received or ()):  # noqa: B905
                    if target.__class__ is not AccumulateGrad:
                        node, gradient = target, value
                    elif value is not None:
                        staged.append((target.variable, value, owned))
                continue
            owned = rule.fresh or (owned and rule.passes)
            if following.__class__ is not AccumulateGrad:
                node, gradient = following, received
            elif received is not None:
                staged.append((following.variable, received, owned))
        node = None
        if staged:
            commit(staged, None, True)
    except BaseException as error:
        if node is not None:
            note_failure(error, node)
        del node, gradient, received, staged  # See core.frames.
        return error
    return None
