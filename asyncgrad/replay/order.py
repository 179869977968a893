"""Which steps of a recorded call a program needs, and in which order."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from math import inf
from typing import Any

import numpy as np

from asyncgrad.devices.plain_numpy import COMPILED
from asyncgrad.ops.fused import Once
from asyncgrad.ops.registry import OPS
from asyncgrad.ops.save_plan import plan_of
from asyncgrad.replay.memory import Families
from asyncgrad.replay.steps import (
    COPY,
    GRADIENTS_ONLY,
    IN_PLACE,
    MADE,
    Again,
    Commit,
    Compute,
    Load,
    Place,
    Source,
    filled,
    lists_in,
    places_in,
)

#: Constants of at most so many bytes are made of others before a program is written.
_SMALL = 1 << 12
#: What `state[0]` becomes in a replay when a step has an effect: one that an eager call after it
#: repeats without harm, or one that lasts. See `effects_of`.
CALLED, LASTING = 1, 2


def useful(steps: list[Any], outputs: Any) -> list[Any]:
    """The steps whose results are used, or that have effects."""
    wanted = set(places_in(outputs))
    kept = []
    lists = lists_in(steps)
    #: By list of intermediate values: the first step that gets it, which fills it.
    fillers = reversed(steps if lists else [])
    fills = {place: step for step in fillers for place in lists.intersection(step.read)}
    for step in reversed(steps):
        if step.__class__ is Compute:
            made: tuple[Any, ...] = step.made
            if fills:
                made = (*made, *[place for place in fills if fills[place] is step])
            if wanted.isdisjoint(made):
                op = OPS.get(step.name)
                # It is kept for the error that it raises for some values, as integers by zero.
                if not made or not (made[0].dtype.kind in "iu" or (op and op.raises)):
                    continue
        elif step.__class__ is Load and step.out not in wanted:
            continue
        wanted.update(step.read)
        kept.append(step)
    return kept[::-1]


def folded(steps: list[Any], outputs: Any, constants: set[Place], families: Families) -> list[Any]:
    """The steps without those that make small arrays from constants; these become constants.

    Such is the first gradient of a pass, for example, as a sum spreads it. What others may get and
    change in place is made anew.
    """
    seen = [*places_in(outputs)]
    for step in steps:
        if step.__class__ is not Compute:
            seen += step.read
    shown = set(map(families.of, seen))
    kept = []
    for step in steps:
        out = step.outs if step.__class__ is Compute else None
        if (
            out.__class__ is Place
            and step.name not in {MADE, COPY}
            and out.is_array
            and out.nbytes <= _SMALL
            and families.of(out) not in shown
            and (read := step.read)
            and constants.issuperset(read)
            and (value := _value_of(step)) is not None
        ):
            out.sample = value
            constants.add(out)
            families.foreign.add(out)
        else:
            kept.append(step)
    return kept


def _value_of(step: Any) -> Any:
    """What a step makes of constants; None if it is not as it was recorded."""
    out = step.outs
    arrays = {place: place.sample for place in step.read}
    try:
        with np.errstate(all="ignore"):
            value = step.function(*[filled(part, arrays) for part in step.arguments])
    except Exception:
        # A replay raises it, at its place.
        return None
    found = getattr(value, "dtype", None), getattr(value, "strides", None)
    return value if found == (out.dtype, out.strides) else None


def checks_first(steps: list[Any], constants: set[Place]) -> list[Any]:
    """Move checks to the front: once something has changed, the call can't be made eagerly.

    Steps that compute what a check reads move with it. A check stays where it is if it depends on a
    tensor that a function with effects is given, or may have changed by then. The latter is no
    obstacle for integers, which optimisers don't change. But what changes in place may share its
    memory with other tensors, unless that is less memory than theirs.
    """
    if Again not in map(type, steps):
        return steps
    given = {
        source
        for step in steps
        if step.__class__ is Again and step.effect
        for part in (*step.arguments, *step.keywords.values())
        for source in (part if part.__class__ is tuple else (part,))
        if source.__class__ is Source
    }
    changed = _changed_integers(steps)
    makers: dict[Place, Any] = {}
    wanted: set[Any] = set()
    touched = False
    for step in steps:
        if step.__class__ is Load:
            early = not step.gradient and step.source not in given
            if touched:
                out = step.out
                early = early and out.dtype.kind in "iub" and out.nbytes > changed
        else:
            needed = [place for place in step.read if place not in constants]
            early = not is_change(step) and all(place in makers for place in needed)
            early = early and not (touched and step.name == MADE)
            if step.__class__ is Again and step.effect and step.name not in GRADIENTS_ONLY:
                touched = True
        if early:
            for place in step.made:
                makers.setdefault(place, step)
            if step.__class__ is Again:
                wanted.add(step)
    for step in reversed(steps):
        if step in wanted:
            wanted.update([makers[x] for x in step.read if x not in constants])
    return sorted(steps, key=lambda step: step not in wanted)


def _changed_integers(steps: list[Any]) -> float:
    """The bytes of integers that change in place; infinite if they may be part of more memory."""
    most = -1
    for step in steps:
        if (
            step.__class__ is Again
            and step.name == IN_PLACE
            and any(place.dtype.kind in "iub" for place in step.read)
        ):
            holder = step.arguments[0]
            own = holder.__class__ is Source and holder.argument is None
            if not own or holder.tensor._array.base is not None:
                return inf
            most = max(most, holder.tensor._array.nbytes)
    return most


def is_change(step: Any) -> bool:
    """Whether a step changes what others can see."""
    return step.__class__ is Commit or (step.__class__ is Again and step.effect)


def effects_of(steps: list[Any]) -> list[int]:
    """What each step does that others can see: nothing (0), `CALLED` or `LASTING`.

    A change is `LASTING` if it would happen twice, or get lost, if the call were then made eagerly.
    """
    found = []
    #: Whether the steps so far have added to some `.grad`, or read one.
    graded = False
    for step in steps:
        effect = 0
        if is_change(step):
            if step.__class__ is Commit:
                lasting = step.streamed or bool(step.staged)
                graded = graded or lasting
            elif step.user_call is not None:
                lasting = step.user_call.commits
            else:
                unset = step.name == "Tensor._set_grad" and step.arguments[1] is None
                lasting = graded or not (unset or step.name in GRADIENTS_ONLY)
            effect = LASTING if lasting else CALLED
        found.append(effect)
        graded = graded or (step.__class__ is Load and step.gradient)
    return found


def loads_first(steps: list[Any]) -> list[Any]:
    """Read all arrays that are needed before the next change at once, before anything else.

    On an event loop other tasks run in between, and must not change what was not read yet.
    """
    ordered: list[Any] = []
    for _, part in groupby(steps, is_change):
        # A stable sort: what is read early comes first.
        ordered += sorted(part, key=lambda one: one.__class__ is not Load or one.gradient)
    return ordered


def with_slopes(steps: list[Any], outputs: Any, families: Families) -> list[Any]:
    """The steps, where kernels leave the factors of their gradients in operands.

    That is done for large arrays whose other reader is the rule: it would compute much of that
    again. Compiled kernels stay, which round by themselves.
    """
    kernels = [
        step
        for step in steps
        if step.__class__ is Compute and (row := OPS.get(step.name)) and row.leaving_slope
    ]
    if not kernels or COMPILED:
        return steps
    joined = families.joined
    #: By array of the program's own that nobody else sees: the steps that read it, for each time.
    readers: dict[Place, list[Any]] = {
        place: []
        for step in steps
        if step.__class__ is Compute
        for place in step.made
        if place not in joined and place not in families.foreign
    }
    for place in places_in(outputs):
        readers.pop(place, None)
    for step in steps:
        for place in step.read:
            readers.get(place, []).append(step)
    new: dict[Any, Compute] = {}
    for step in kernels:
        op: Any = OPS[step.name]
        (x,) = step.read
        found = readers.get(x, ())
        if len(found) == 2 and _is_rule_of(op, rule := found[1], x):
            cost = rule.cost // 2
            kernel = partial(op.leaving_slope, step.function.__self__)
            new[step] = Compute(step.name, kernel, (x,), step.outs, step.cost + cost)
            new[rule] = Compute(rule.name, np.multiply, (x, rule.arguments[1]), rule.outs, cost)
    return [new.get(step, step) for step in steps]


def _is_rule_of(op: Any, step: Any, x: Place) -> bool:
    """Whether a step is an op's rule, called for large arrays that `op.leaving_slope` supports."""
    return (
        step.__class__ is Compute
        # It is None for small arrays.
        and step.over is not None
        and step.function is plan_of(op, (0,), ()).rule.run
        and step.arguments[0].value.fused
        and x.dtype.itemsize >= 4
        and all(place.is_target for place in (*step.read, step.outs))
    )


def read_once(steps: list[Any], outputs: Any) -> list[Any]:
    """The steps, with lists of intermediate values that one rule alone reads as `Once`."""
    lists = lists_in(steps)
    readers: dict[Place, list[Any]] = {x: [] for x in lists.difference(places_in(outputs))}
    if not readers:
        return steps
    for step in steps:
        for place in set(step.read).intersection(readers):
            readers[place].append(step)
    once = {
        place
        for place, found in readers.items()
        # The op that fills it, and the rule.
        if len(found) == 2 and all(step.__class__ is Compute for step in found)
    }
    return [
        Compute(step.name, Once, step.arguments, step.outs, step.cost)
        if step.__class__ is Compute and step.outs in once
        else step
        for step in steps
    ]
