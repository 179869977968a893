"""Rules that report what they compute, while their pass is recorded."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.devices.pool import POOL
from asyncgrad.replay.steps import Compute, Place

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.core.rule import Rule


class WatchedRule:
    """A rule of one node, which reports to the pass that runs it."""

    __slots__ = (
        "_call", "fresh", "name", "node", "outliving", "own", "passes", "run", "saves", "variant",
    )  # fmt: skip

    def __init__(self, rule: Rule, node: Any, call: Callable[..., Any]) -> None:
        """Copy what a pass and its recorder read of every rule."""
        #: The rule that it reports.
        self.own = rule
        self.node = node
        self._call = call
        self.run = partial(call, node, rule.run, None)
        self.fresh = rule.fresh
        self.passes = rule.passes
        self.saves = rule.saves
        self.outliving = rule.outliving
        self.name = rule.name
        self.variant = rule.variant

    @property
    def pulls(self) -> tuple[Any, ...] | None:
        """The parts of the rule, which report, too."""
        pulls = self.own.pulls
        if pulls is None:
            return None
        return tuple([partial(self._call, self.node, pull, at) for at, pull in enumerate(pulls)])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)


def set_rule(node: Any, rule: Any) -> None:
    """Give a node another rule, in the place of the one that it has."""
    if node.rule is None:
        node._form = rule
    else:
        node.rule = rule


def steps_of(
    node: Any, function: Any, at: int | None, arguments: tuple[Any, ...], received: Any,
    outs: list[Place | None], new: set[Place],
) -> list[Compute]:  # fmt: skip
    """The steps that repeat what a node has computed.

    If the gradients are large, each is a step of its own, with what it needs. That by the first
    input comes last: what only others need is free by then.

    Args:
        node: the node.
        function: its rule, or the pull by the input number `at`.
        at: the number of the pull, None for the rule.
        arguments: the template of what it was called with.
        received: what it has returned.
        outs: the places of the gradients.
        new: those of them that were not there before.
    """
    rule = node.rule or node._form
    rule = getattr(rule, "own", rule)
    several = received.__class__ is tuple
    if at is not None or not (several and rule.apart and any(map(_is_large, received))):
        template = tuple(outs) if several else outs[0]
        step = Compute(node.name(), function, arguments, template, node.cost)
        step.over = rule.over if at is None and _is_large(received) else None
        return [step]
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
            pull = rule.pulls[number]
            steps.append(Compute(node.name(), pull, (F, gradient, given), out, cost))
    return steps


def _is_large(value: Any) -> bool:
    """Whether a value is an array that is in the pool's memory."""
    return value.__class__ is np.ndarray and value.nbytes >= POOL.large
