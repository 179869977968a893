"""Which steps of a call one CUDA graph stands for, and which the host takes before and after it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from asyncgrad.nn.utils import clip
from asyncgrad.ops.api import normalisation
from asyncgrad.optim.elementwise import ElementwiseOptimizer
from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.replay.captured import (
    are_apart,
    inputs_of,
    is_work_of_the_device,
    without_views,
)
from asyncgrad.replay.device_arrays import Constant
from asyncgrad.replay.memory import Families, Plan
from asyncgrad.replay.names import is_own
from asyncgrad.replay.order import is_change
from asyncgrad.replay.steps import (
    GRADIENTS_ONLY,
    IN_PLACE,
    Again,
    Commit,
    Compute,
    Gradient,
    Load,
    Place,
    Same,
    Source,
    UnrepeatableError,
    lists_in,
    places_in,
    sources_in,
)

#: Functions that change gradients and read no values on the host.
_CLIPS = frozenset({"clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_"})
#: Moves a running moment of batch norm.
_MOVE = normalisation._move.__wrapped__  # type: ignore[attr-defined]
#: The place of `error_if_nonfinite` among their arguments.
_STRICT = 3


class Sorted:
    """Which steps the host takes before and after the graph, and which the graph stands for."""

    def __init__(
        self,
        device: Any,
        steps: list[Any],
        outputs: Any,
        families: Families,
        constants: set[Place],
    ) -> None:
        self._device = device
        self.before: list[Any] = []
        self.inside: list[Any] = []
        self.after: list[Any] = []
        #: The leaves that get gradients, and the number of passes that each gets some from.
        self.leaves: dict[Any, int] = {}
        #: Those of them that have gradients now, and in the end.
        self.graded: dict[Any, None] = {}
        #: By optimiser: the leaves that have gradients when it steps.
        self.updates: dict[Any, set[Any]] = {}
        #: Those whose `zero_grad` comes first; those that drop gradients of this call, with their
        #: parameters.
        self.clearing: list[Any] = []
        self.dropping: dict[Any, list[Any]] = {}
        #: Tensors of which only gradients of this call may be there.
        self.bare: dict[Any, None] = {}
        #: Leaves whose gradients were dropped within the call.
        self._dropped: set[Any] = set()
        #: Other tensors that the graph changes in place, and how often.
        self.changed: dict[Any, int] = {}
        #: The numbers of arguments that are read after something has changed, but copied before.
        self.read_late: list[int] = []
        #: Events after which constants are there.
        self.events: list[Any] = []
        #: A pass waits until the device has done its work.
        self.waits = False
        #: Gradients to whose arrays nothing else refers.
        self.owned = Plan(steps, outputs, families).owned
        self._outside = set(constants)
        self._lists = lists_in(steps)
        for step in steps:
            self._sort(step)
        if not any(step.__class__ is Commit for step in self.inside):
            raise UnrepeatableError("it runs no pass")
        self._use([leaf for leaf in self.graded if self.leaves[leaf] > 1])
        later = {*places_in(outputs), *(place for step in self.after for place in step.read)}
        #: The places that the graph reads and does not make, and those that are read later.
        self.inputs, made = inputs_of(self.inside)
        results = [place for place in made if place in later]
        self.outs, self.after[:0] = without_views(self.inside, results, families)
        # Copies of the results have to do.
        grads = {step.out for step in self.inside if step.__class__ is Load}
        if not are_apart(families, (*self.inputs, *grads), self.outs):
            raise UnrepeatableError("a result shares memory with another array")
        if any(not place.is_array for place in (*self.inputs, *self.outs)):
            raise UnrepeatableError("something else than arrays comes in or out")
        loaded = {step.out: step.source for step in self.before if step.__class__ is Load}
        sources = [loaded.get(place) for place in self.inputs]
        #: The tensors whose arrays the graph reads where they are, None for arrays that are copied.
        self.in_place = [x.tensor if x and x.argument is None else None for x in sources]

    # -- which step goes where --------------------------------------------------------------------

    def _sort(self, step: Any) -> None:
        """Put a step before the graph, into it or after it."""
        ready = all(place in self._outside for place in step.read)
        if step.__class__ is Compute and isinstance(step.function, Constant):
            self.events.append(step.function.made)
            copy, array = self._device.xp.array, Same(step.function.array)
            self.inside.append(Compute("constant", copy, (array,), step.outs, step.cost))
        elif step.__class__ is Again:
            self._sort_call(step, ready)
        elif step.__class__ is Load:
            self._sort_load(step)
        elif step.__class__ is Commit:
            self._sort_commit(step)
        elif is_work_of_the_device(step, self._lists):
            self._put_inside(step)
        else:
            (self._before if ready else self.after.append)(step)

    def _before(self, step: Any) -> None:
        self.before.append(step)
        self._outside.update(step.made)

    @property
    def _is_over(self) -> bool:
        """Whether a function with effects is called after the graph."""
        return any(map(is_change, self.after))

    def _put_inside(self, step: Any) -> None:
        late = {place for one in self.after for place in one.made}
        if self._is_over or not late.isdisjoint(step.read):
            raise UnrepeatableError("the device works on after the host")
        self.inside.append(step)

    def _sort_load(self, step: Load) -> None:
        if step.gradient:
            if self._leaf(step.source) not in self.graded:
                raise UnrepeatableError("it reads a .grad that was there before")
            self._use([step.source.tensor])
            self._put_inside(step)
        elif self._is_over:
            self.after.append(step)
        else:
            if (self.updates or self.changed) and step.source.argument is not None:
                self.read_late.append(step.source.argument)
            self._before(step)

    def _sort_commit(self, step: Commit) -> None:
        self._put_inside(step)
        self.waits = self.waits or step.waits
        for source, place in step.staged:
            leaf = self._leaf(source)
            self.leaves[leaf] = self.leaves.get(leaf, 0) + 1
            self.graded[leaf] = None
            if not place.is_array or place.on_host:
                raise UnrepeatableError("a gradient is not an array of the device")

    def _sort_call(self, step: Again, ready: bool) -> None:
        """Put a function that is called anew where it belongs."""
        owner = owner_of(step)
        if step.user_call is not None:
            raise UnrepeatableError(f"{step.name} is code of yours")
        if self._is_over:
            self.after.append(step)
        elif step.name in GRADIENTS_ONLY:
            self._sort_clearing(step, owner)
        elif step.name in _CLIPS and getattr(clip, step.name).__wrapped__ is step.function:
            if True in step.arguments[_STRICT:] or True in step.keywords.values():
                raise UnrepeatableError("clipping looks at the norm")
            self._use(map(self._leaf, sources_in((step.arguments, step.keywords))))
            self._put_inside(step)
        elif isinstance(owner, Optimizer) and step.name.endswith(".step"):
            self._sort_update(step, owner)
        elif step.name == IN_PLACE or step.function is _MOVE:
            if step.name == IN_PLACE and step.arguments[1] != (step.arguments[0],):
                raise UnrepeatableError("it changes memory in place that several tensors share")
            changed = self._leaf(step.arguments[0])
            self.changed[changed] = self.changed.get(changed, 0) + 1
            self._put_inside(step)
        elif ready and (not step.effect or getattr(step.function, "draws", False)):
            self._before(step)
        elif step.effect:
            self.after.append(step)
        else:
            raise UnrepeatableError(f"{step.name} is called between")

    def _sort_update(self, step: Again, owner: Any) -> None:
        # A graph writes in place; the recorded step was not to (`changes._while_held`).
        own = isinstance(owner, ElementwiseOptimizer) and step.function.__class__ is not partial
        own = own and is_own(type(owner).__module__)
        alone = len(step.arguments) == 1 and not step.keywords and owner not in self.updates
        if own and alone and self.leaves:
            self.updates[owner] = set(self.graded)
            self._use(parameters_of(owner))
            self._put_inside(step)
        else:
            self.after.append(step)

    def _sort_clearing(self, step: Again, owner: Any) -> None:
        to_none = [*step.arguments[1:], *step.keywords.values()]
        if to_none and to_none[0] is not True:
            raise UnrepeatableError("zero_grad() fills gradients with zeros")
        # Parameters without gradients of this call drop theirs before it.
        self._before(step)
        if not self.leaves:
            self.clearing.append(owner)
            return
        self.dropping[owner] = parameters_of(owner)
        self._dropped.update(self.dropping[owner])
        for parameter in self.dropping[owner]:
            self.graded.pop(parameter, None)
        self._put_inside(step)

    def _use(self, leaves: Iterable[Any]) -> None:
        """Note that gradients are used, to which others from before the call would add."""
        self.bare.update(dict.fromkeys(leaf for leaf in leaves if leaf not in self._dropped))

    def _leaf(self, source: Source | Gradient) -> Any:
        if isinstance(source, Gradient):
            raise UnrepeatableError("it changes a .grad in place")
        if source.argument is not None or source.tensor._metadata.device is not self._device:
            raise UnrepeatableError("what changes is an argument, or elsewhere")
        return source.tensor


def parameters_of(owner: Any) -> list[Any]:
    """The parameters of an optimiser or a module."""
    if isinstance(owner, Optimizer):
        return [parameter for group in owner.param_groups for parameter in group["params"]]
    return list(owner.parameters())


def owner_of(step: Again) -> Any:
    """The object of which a step calls a method, if its identity is checked at each call."""
    first = step.arguments[0] if step.arguments else None
    return first.value if first.__class__ is Same else None
