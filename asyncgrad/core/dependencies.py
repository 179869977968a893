"""The walk before a pass runs: which nodes it reaches, and how many gradients each waits for.

Large graphs take long to walk, so the walk can stop after some steps and resume later.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from asyncgrad.core.node import Edge, OpNode
from asyncgrad.core.pass_state import PassState

#: The walk of a partial pass checks after looking at so many edges how many steps it has left. Each
#: look takes as long as so many steps.
_LOOKS, _STEPS_OF_LOOK = 400, 3
#: The edges of a node that has more are walked in parts, because a slice may end between these.
_EDGES = 128


def count(task: PassState, steps: int) -> bool:
    """Walk the graph for a pass that runs every node.

    A partial pass does so, too, if all leaves are requested: then every node runs. The walk ends
    at the first leaf that is not requested. False after `steps` nodes of a chain, or the time that
    these take: then call it again.
    """
    info = task.exec_info
    requested: Any = None if info is None else info.requested
    dependencies = task.dependencies
    stack: list[Any] = task.walk
    while stack:
        node = stack.pop()
        while node is not None:
            following = node.following
            node = None
            child: Any
            if following.__class__ is OpNode:
                # The usual case, a chain: an `OpNode` always has a next node.
                if following in dependencies:
                    dependencies[following] += 1
                else:
                    dependencies[following] = 1
                    node = following
            elif following is not None:
                if following.__class__ is not tuple:
                    following = (following,)
                elif len(following) > _EDGES:
                    starts = range(0, len(following), _EDGES)
                    parts = [following[start : start + _EDGES] for start in starts]
                    stack += [SimpleNamespace(following=part) for part in parts]
                    following = ()
                # Each takes as long as a node of a chain.
                steps -= len(following)
                for edge in following:
                    if edge is None:
                        continue
                    child = edge.node if edge.__class__ is Edge else edge
                    if child in dependencies:
                        dependencies[child] += 1
                        continue
                    dependencies[child] = 1
                    if child.following:
                        if node is None:
                            node = child
                        else:
                            stack.append(child)
                    elif info is not None and child not in requested:
                        info.all_run = False
                        return True
            steps -= 1
            if steps <= 0:
                stack.append(node)
                return False
    return True


def count_needed(task: PassState, steps: int) -> bool:
    """Walk the graph for a partial pass; False if the walk has to be continued later."""
    info, root = task.exec_info, task.root
    assert info is not None
    if task.walk.__class__ is list:
        # The walk has not begun, or is that of `count`.
        if info.all_run:
            if not count(task, steps):
                return False
            if info.all_run and (root.following or info.should_execute(root)):
                return True
        task.dependencies.clear()
        task.walk = info.walk(root, task.dependencies, _LOOKS)
    for _ in task.walk:
        steps -= _LOOKS * _STEPS_OF_LOOK
        if steps <= 0:
            return False
    if not info.should_execute(root) and root.extras is None:
        # As in PyTorch, hooks of a root's tensor are called even if no node runs.
        task.ready.clear()
    return True
