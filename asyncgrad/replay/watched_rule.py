"""The nodes of a pass that is recorded, and their rules, which report what they compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from asyncgrad.core.node import Edge
from asyncgrad.core.rule import Rule
from asyncgrad.core.variable import AccumulateGrad
from asyncgrad.devices.pool import POOL
from asyncgrad.replay.steps import Compute, Place


class WatchedRule:
    """A rule of one node, which reports to the pass that runs it.

    It holds what a pass reads of every rule; the rest is read from the rule itself.
    """

    __slots__ = ("fresh", "outliving", "own", "passes", "run", "saves")

    def __init__(self, rule: Rule, node: Any, call: Callable[..., Any]) -> None:
        #: The rule that it reports.
        self.own = rule
        self.run = partial(call, node, rule, None)
        self.fresh = rule.fresh
        self.passes = rule.passes
        self.saves = rule.saves
        self.outliving = rule.outliving

    @property
    def pulls(self) -> tuple[Any, ...] | None:
        """The parts of the rule, which report, too."""
        pulls = self.own.pulls
        if pulls is None:
            return None
        call, (node, rule, _) = self.run.func, self.run.args
        return tuple([partial(call, node, rule, at) for at in range(len(pulls))])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)


def behind(root: Any) -> list[Any]:
    """The nodes that a root leads to, itself the first, without those of leaves."""
    found, nodes = {root, None}, [root]
    for node in nodes:
        following = node.following
        for edge in following if following.__class__ is tuple else (following,):
            target = edge.node if edge.__class__ is Edge else edge
            if target.__class__ is not AccumulateGrad and target not in found:
                found.add(target)
                nodes.append(target)
    return nodes


def set_rule(node: Any, rule: Any) -> None:
    """Give a node another rule, in the place of the one that it has."""
    if node.rule is None:
        node._form = rule
    else:
        node.rule = rule


def steps_of(
    node: Any, rule: Rule, at: int | None, arguments: tuple[Any, ...], received: Any,
    outs: list[Place | None], new: list[Place],
) -> Sequence[Compute]:  # fmt: skip
    """The steps that repeat what a node has computed.

    If the gradients are large, each is a step of its own, with what it needs. That by the first
    input comes last: what only others need is free by then.

    Args:
        node: the node.
        rule: its rule.
        at: the number of the pull that was called, None for the rule as a whole.
        arguments: the template of what it was called with.
        received: what it has returned.
        outs: the places of the gradients.
        new: those of them that were not there before.
    """
    several = received.__class__ is tuple
    large = False
    if rule.apart or rule.over is not None:
        for x in received if several else (received,):
            # In the pool's memory.
            large = large or (x.__class__ is np.ndarray and x.nbytes >= POOL.large)
    if not (large and several and rule.apart and at is None):
        function: Any = rule.run if at is None else rule.pulls[at]  # type: ignore[index]
        # `node.name()` would read it by `WatchedRule.__getattr__`, which takes 2 us.
        name = rule.name if rule.variant is None else node.name()
        step = Compute(name, function, arguments, tuple(outs) if several else outs[0], node.cost)
        if large and at is None and not several:
            step.over = rule.over
        return (step,)
    F, gradient, saved = arguments
    cost = node.cost // len(outs)
    steps = []
    for number, out in reversed([*enumerate(outs)]):
        if out in new:
            new.remove(out)
            given = saved
            if len(rule.names) > 1:
                needs = rule.needs[number]
                given = tuple([value if n in needs else None for n, value in enumerate(saved)])
            pull = rule.pulls[number]  # type: ignore[index]
            steps.append(Compute(node.name(), pull, (F, gradient, given), out, cost))
    return steps
