"""The nodes of a pass that is recorded, and the steps that repeat what their rules compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.core.node import Edge
from asyncgrad.core.rule import Rule
from asyncgrad.core.variable import AccumulateGrad
from asyncgrad.devices.pool import POOL
from asyncgrad.replay.steps import Compute, Place

if TYPE_CHECKING:
    from asyncgrad.replay.arrays import KnownArrays


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


def saved_in(recorder: KnownArrays, node: Any, saved: Any) -> Any:
    """The template of what a node has saved, at the places where it was when the node was made."""
    later = [places for number, places in recorder.earlier if number > node.sequence_nr]
    if not later:
        return recorder.template(saved)
    known = recorder.known
    earlier = {id(place.sample): place for places in reversed(later) for place in places}
    present = {key: known[key] for key in earlier if key in known}
    known.update(earlier)
    try:
        return recorder.template(saved)
    finally:
        for key in earlier:
            del known[key]
        known.update(present)


def steps_of(
    step: Compute, rule: Rule, at: int | None, received: Any, outs: list[Place | None],
    new: list[Place],
) -> Sequence[Compute]:  # fmt: skip
    """The steps that repeat what a node has computed.

    If the gradients are large, each is a step of its own, with what it needs. That by the first
    input comes last: what only others need is free by then.

    Args:
        step: computes all gradients at once.
        rule: the node's rule.
        at: the number of the pull that was called, None for the rule as a whole.
        received: what it has returned.
        outs: the places of the gradients.
        new: those of them that were not there before.
    """
    several = received.__class__ is tuple
    for x in received if several else (received,):
        if x.__class__ is np.ndarray and x.nbytes >= POOL.large:
            # In the pool's memory.
            break
    else:
        return (step,)
    if at is not None or not (several and rule.apart):
        if at is None and not several:
            step.over = rule.over
        return (step,)
    F, gradient, saved = step.arguments
    cost = step.cost // len(outs)
    steps = []
    for number, out in reversed([*enumerate(outs)]):
        if out in new:
            new.remove(out)
            given = saved
            if len(rule.names) > 1:
                needs = rule.needs[number]
                given = tuple([value if n in needs else None for n, value in enumerate(saved)])
            pull = rule.pulls[number]  # type: ignore[index]
            steps.append(Compute(step.name, pull, (F, gradient, given), out, cost))
    return steps
