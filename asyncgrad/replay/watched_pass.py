"""Watches the passes of a recorded call: what rules compute, and which gradients are added.

A pass hands arrays from one rule to the next, and each is known by its identity. So it is enough to
note what goes into a rule or a sum, and what comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from asyncgrad.autograd.arguments import ONES
from asyncgrad.core.node import name_of
from asyncgrad.core.rule import Rule
from asyncgrad.devices import CPU
from asyncgrad.devices.pool import POOL
from asyncgrad.ops.device_check import device_of
from asyncgrad.ops.memory import is_dense
from asyncgrad.ops.namespace import metadata_of
from asyncgrad.replay.arrays import KnownArrays
from asyncgrad.replay.device_arrays import is_array
from asyncgrad.replay.steps import Again, Compute, Place, Same, UnrepeatableError


class WatchedPass:
    """Watches a pass, which calls rules and adds gradients by this; `recorder` takes the steps."""

    def __init__(self, recorder: Any) -> None:
        self._recorder = recorder
        #: What is committed at the end of the pass: leaves with their gradients.
        self.staged: list[tuple[Any, Any]] = []
        #: The steps that call user code, each with whether the code was awaited; and whether some
        #: runs now.
        self.called: list[tuple[Again, bool]] = []
        self._running = False
        #: The leaves whose gradients are committed already.
        self.committed: set[Any] = set()
        #: The namespace that rules compute with.
        self._F = Same(None)

    def forget(self) -> None:
        """Drop the leaves, which are part of a cycle."""
        self.staged.clear()

    # -- reports of a pass ------------------------------------------------------------------------

    def call(self, node: Any, rule: Any, at: int | None, F: Any, gradient: Any, saved: Any) -> Any:
        """Call a node's rule, or its pull number `at`, and note how to compute that again."""
        run = rule.run if at is None else rule.pulls[at]
        received = run(F, gradient, saved)
        recorder = self._recorder
        if recorder.reason is not None:
            return received
        if F is not self._F.value:
            self._F = Same(F)
        known = recorder.known
        try:
            kept = saved_in(recorder, node, saved) if recorder.earlier else recorder.template(saved)
            arguments = (self._F, known.get(id(gradient)) or self.place(gradient), kept)
            several = received.__class__ is tuple
            outs: list[Place | None] = []
            new: list[Place] = []
            for value in received if several else (received,):
                out = known.get(id(value))
                if out is None and value is not None:
                    if recorder.views:
                        out = recorder.found(value)
                    if out is None:
                        if value.__class__ is not np.ndarray and not is_array(value):
                            raise UnrepeatableError(f"the gradient of {name_of(node)} is no array")
                        out = recorder.new(value)
                        new.append(out)
                outs.append(out)
            if new:
                name = rule.name if rule.variant is None else name_of(node)
                made = tuple(outs) if several else outs[0]
                step = Compute(name, run, arguments, made, node.cost)
                if rule.over is None and not rule.apart:
                    recorder.steps.append(step)
                else:
                    recorder.steps += steps_of(step, rule, received, outs, new)
        except UnrepeatableError as error:
            recorder.refuse(str(error))
        return received

    def adding(self, F: Any) -> Any:
        """The namespace in which gradients are added, so that the sums are noted."""
        return SimpleNamespace(accumulate=partial(self._accumulate, F))

    def _accumulate(
        self, F: Any, value: Any, owned: bool, gradient: Any, gradient_owned: bool
    ) -> Any:
        """Add two gradients as the pass's namespace does."""
        made = F.accumulate(value, owned, gradient, gradient_owned)
        self._note(self._added, value, gradient, made[0])
        return made

    def copied(self, gradient: Any, copy: Any) -> None:
        """Note that a copy is committed in the place of a gradient."""
        self._note(self._copied, gradient, copy)

    def commits(self, staged: list[Any]) -> None:
        """Note which gradients are about to be committed."""
        self.staged = [(variable, gradient) for variable, gradient, _ in staged]

    def examined(self) -> None:
        """Take note that user code goes by what its pass is, or takes part in it."""
        self._recorder.refuse("code in a pass asks which pass runs it, or takes part in it")

    # -- places -----------------------------------------------------------------------------------

    def _note(self, note: Callable[..., None], *given: Any) -> None:
        """Note something, or why the call can't be repeated."""
        recorder = self._recorder
        if recorder.reason is None:
            try:
                note(*given)
            except UnrepeatableError as error:
                recorder.refuse(str(error))

    def _added(self, left: Any, right: Any, made: Any) -> None:
        """Note that a pass has added two gradients, perhaps in the memory of one."""
        recorder = self._recorder
        operands = self.place(left), self.place(right)
        device = device_of(made)
        function: Any = np.add if device is None else device.xp.add
        in_place = device is None and (made is left or made is right)
        if in_place and left.strides != right.strides and is_dense(made):
            function = partial(_sum_in, made.dtype, made.strides)
        out, cost = recorder.new(made), metadata_of(made, device or CPU).cost
        recorder.steps.append(Compute("a sum of gradients", function, operands, out, cost))

    def _copied(self, gradient: Any, copy: Any) -> None:
        self._recorder.known[id(copy)] = self.place(gradient)
        self._recorder.keep(copy)

    def place(self, gradient: Any) -> Any:
        """The place of a gradient, or a tuple of those of several."""
        recorder = self._recorder
        place = recorder.known.get(id(gradient))
        if place is not None:
            return place
        if gradient.__class__ is tuple or gradient.__class__ is list:
            return tuple([None if part is None else self.place(part) for part in gradient])
        if is_one(gradient):
            recorder.constants.add(recorder.new(gradient))
        return recorder.place_of(gradient)

    def _passed_on(self, gradients: tuple[Any, ...]) -> None:
        """Note the gradients of a node that has passed on its own, or zeros."""
        recorder = self._recorder
        for gradient in gradients:
            if gradient is not None and id(gradient) not in recorder.known:
                recorder.constants.add(recorder.new(gradient))


def saved_in(recorder: KnownArrays, node: Any, saved: Any) -> Any:
    """The template of what a node has saved, at the places where it was when the node was made."""
    if not recorder.earlier:
        return recorder.template(saved)
    later = [places for number, places in recorder.earlier if number > node.sequence_nr]
    earlier = {id(place.sample): place for places in reversed(later) for place in places}
    return _template(recorder, saved, earlier)


def _template(recorder: KnownArrays, value: Any, earlier: dict[int, Place]) -> Any:
    """The template of a value of which some arrays are at `earlier` places."""
    if (place := earlier.get(id(value))) is not None:
        return place
    kind = value.__class__
    if kind is tuple or (kind is list and id(value) not in recorder.known):
        return kind([_template(recorder, part, earlier) for part in value])
    return recorder.template(value)


def steps_of(
    step: Compute, rule: Rule, received: Any, outs: list[Place | None], new: list[Place]
) -> Sequence[Compute]:
    """The steps that repeat what a node has computed, of which `new` are new arrays.

    If the gradients are large, each is a step of its own, with what it needs. That by the first
    input comes last: what only others need is free by then.
    """
    several = received.__class__ is tuple
    for x in received if several else (received,):
        if x.__class__ is np.ndarray and x.nbytes >= POOL.large:
            # In the pool's memory.
            break
    else:
        return (step,)
    whole = step.function is rule.run
    pulls = rule.pulls if rule.apart else None
    if not whole or not several or pulls is None:
        if whole and not several:
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
            steps.append(Compute(step.name, pulls[number], (F, gradient, given), out, cost))
    return steps


def is_one(gradient: Any) -> bool:
    """Whether an array is a kept gradient of ones, which passes give to roots of one element."""
    if gradient.__class__ is not np.ndarray:
        return False
    return ONES.get(metadata_of(gradient, CPU)) is gradient


def _sum_in(dtype: Any, strides: tuple[int, ...], x: Any, y: Any) -> Any:
    """The sum in a given layout: eager passes add in place where they can."""
    return np.add(x, y, np.ndarray(x.shape, dtype, None, 0, strides))
