"""What a recorded call changes: in place, by functions that are called anew, and `.grad`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.core import versions
from asyncgrad.core.array_holders import is_held
from asyncgrad.core.modes import Mode
from asyncgrad.core.node import next_sequence_nr
from asyncgrad.core.variable import Variable, bump_version, is_inference, requires_grad, view_of
from asyncgrad.nn.module import Module
from asyncgrad.ops.memory import unlocked
from asyncgrad.optim.lr_scheduler import LRScheduler
from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.replay.arrays import KnownArrays
from asyncgrad.replay.device_arrays import copying, is_array
from asyncgrad.replay.looks import line
from asyncgrad.replay.names import is_own
from asyncgrad.replay.regions import Put, Region
from asyncgrad.replay.steps import (
    CHANGED,
    GRADIENTS_ONLY,
    IN_PLACE,
    Again,
    Compute,
    Load,
    Place,
    Same,
    Source,
    UnrepeatableError,
    places_in,
)

if TYPE_CHECKING:
    from asyncgrad.replay.arrays import Recorded

#: Why a call can't be repeated that changes what others may see.
_SHARED = "it changes a tensor in place that shares its memory"
#: Why a call can't be repeated in which `is_outgrown` holds for a node that is still needed.
OUTGROWN = "an optimiser steps between an operation and a pass through it"


class Changes(KnownArrays):
    """The part of a recorder that is told of changes. Abstract, as `KnownArrays` is."""

    def __init__(self, call: Recorded) -> None:
        super().__init__(call)
        #: The lines at which values may have decided what follows.
        self.looks: list[str] = []
        #: The leaves whose `.grad` the call has added to, and whether anything has changed so far.
        self._committed_to: set[Source] = set()
        self._changed = False
        #: The tensor that is being changed in place.
        self._changing: Any = None
        #: Places of memory that was there before the call, other than that of tensors.
        self._there: set[Place] = set()
        #: By the identity of the array that owns some memory: the identity of the only known array
        #: there, or 0 if there are several. And how many places were looked at for that.
        self._roots: dict[int, int] = {}
        self._compared = 0
        #: By the identity of the version counter of a parameter that graphs held when an optimiser
        #: stepped: nodes that were made before have lower numbers than this.
        self.outgrown: dict[int, int] = {}

    def changing(self, tensor: Any) -> None:
        """Take note of a tensor that is about to be changed in place."""
        if self.reason is not None:
            return
        source = self.sources.get(id(tensor))
        array = tensor._array
        if is_inference(tensor):
            own = False
        elif source is None:
            array = self._owner(array)
            own = array is not None
        else:
            counter = tensor._counter
            own = tensor._edge is None and (counter is None or not counter.sharers() - {tensor})
            own = own and view_of(tensor) is None
        if own:
            self._changing = tensor
            place = self.known.get(id(array))
            if place in self.constants:
                # A replay starts with the values that it has now.
                place.sample = array.copy()
        else:
            self.refuse(_SHARED)

    def _owner(self, array: Any) -> Any:
        """The array that the call has made and in whose memory another one lies, perhaps itself.

        None if others see that memory.
        """
        base = array.base if isinstance(array, np.ndarray) else None
        owner = base if isinstance(base, np.ndarray) and id(base) in self.known else array
        place = self.known.get(id(owner))
        if place is None or place in self.loaded.values():
            return None
        shared = [x.sample for x in (*self._there, *self.given)]
        if any(x is owner or getattr(x, "base", None) is owner for x in shared):
            return None
        is_view = isinstance(getattr(owner, "base", None), np.ndarray)
        if isinstance(owner, np.ndarray) and owner.flags.c_contiguous and not is_view:
            return owner
        return owner if owner is array and self._is_alone(array) else None

    def _is_alone(self, array: Any) -> bool:
        """Whether the call has made no other array in the same memory."""
        roots = self._roots
        for other in self.places[self._compared :]:
            found = other.sample
            if is_array(found) and not isinstance(found, np.generic):
                root = found if found.base is None else found.base
                roots[id(root)] = id(found) if roots.get(id(root), id(found)) == id(found) else 0
        self._compared = len(self.places)
        return roots.get(id(array if array.base is None else array.base)) == id(array)

    def assigned(self, tensor: Any, result: Any) -> None:
        """Take the report of the values that a tensor gets in place."""
        changing, self._changing = self._changing, None
        if self.reason is not None:
            return
        source, array = self.sources.get(id(tensor)), tensor._array
        if changing is not tensor or (source is not None and requires_grad(result)):
            self.refuse("it changes a tensor in place")
            return
        try:
            values = self.array_of(result)
        except UnrepeatableError as error:
            self.refuse(str(error))
            return
        if source is not None:
            step = Again(IN_PLACE, _put, (source, values), {}, Same(None), True)
            self._effect(step)
        elif result._array.dtype != array.dtype:
            self.refuse("it changes a tensor in place by values of another dtype")
        else:
            self._assign(array, values)

    def put(self, array: Any, step: Compute) -> None:
        """Add a step that makes the values that an array has from now on, in new memory.

        Nobody else can see that memory, so later steps may read the new array instead.
        """
        owner = self._owner(array)
        if owner is None:
            self.refuse(_SHARED)
        elif owner is array:
            self._change(owner)
            step.outs = self.new(owner)
            self.steps.append(step)
        else:
            step.outs = self.new(array.copy())
            self.steps.append(step)
            self._assign(array, step.outs)

    def _assign(self, array: Any, values: Place) -> None:
        """Add a step that gives an array other values."""
        owner = self._owner(array)
        if owner is array:
            if not array.flags.c_contiguous:
                self.refuse("it changes a tensor in place by values of another layout")
                return
            self._change(owner)
            self._copy(values, array)
        else:
            before = self._change(owner)
            put = Put(Region(owner, array))
            cost = 500 + array.size
            self.steps.append(Compute("put", put, (before, values), self.new(owner), cost))

    def _change(self, owner: Any) -> Place:
        """Give what was read so far of an array memory of its own; returns its place so far."""
        before = self.known[id(owner)]
        if isinstance(owner, np.ndarray):
            views = [
                x for x in self.places[before.number :] if getattr(x.sample, "base", None) is owner
            ]
            if before not in self.constants:
                before.sample = np.empty_like(owner)
            for place in views:
                view = place.sample
                if self.known.pop(id(view), None) is not None:
                    self.views[id(view)] = (owner, view)
                place.sample = Region(owner, view).of(before.sample)
        return before

    def copied(self, array: Any, copy: Any) -> None:
        """Take the report of a copy of an array that is known."""
        known = self.found(array) if self.reason is None else None
        if known is not None:
            self._copy(known, copy)

    def _copy(self, place: Place, copy: Any) -> None:
        function = copying(copy)
        if place.sample.strides != copy.strides:
            function = partial(function, order="C")
        self.steps.append(Compute("copy", function, (place,), self.new(copy), 500 + copy.size))

    def _effect(self, step: Again) -> None:
        """Add a step after which arrays have to be read again."""
        self._changed = True
        if self._shared:
            self.refuse("it changes something, and two of its tensors are one array")
        self.load_again()
        self.steps.append(step)

    def load_again(self) -> None:
        """Forget which arrays tensors have: a replay may find others there."""
        for source, place in tuple(self.loaded.items()):
            self.known.pop(id(place.sample), None)
            del self.loaded[source]
        self.find_holders()

    def call_anew(self, step: Again) -> None:
        """Add a step that calls user code. A replay finds out what the code changes."""
        self._changed = True
        self.steps.append(step)

    def check_unchanged(self) -> None:
        """Refuse a call that changes what it reaches around code that is called anew.

        That code may read it, and the call may undo the change before it ends.
        """
        if self.reason is None and not self._holds():
            self.refuse(CHANGED)

    def again(
        self, function: Any, args: Any, kwargs: Any, effect: bool, *, values: bool = False
    ) -> Any:
        """Call a function that a replay calls anew, without recording what it does inside.

        Args:
            args: its positional arguments. Iterators are turned into lists.
            kwargs: its keyword arguments.
            effect: it changes something; otherwise it takes arrays and depends on nothing else.
            values: it takes the values of tensors, and not their history.
        """
        args = tuple([list(x) if hasattr(x, "__next__") else x for x in args])
        named = function.func if isinstance(function, partial) else function
        name = getattr(named, "__qualname__", str(named))
        if args and _calls_users_code(args[0]):
            self.check_unchanged()
        arguments: Any = ()
        keywords: Any = {}
        if self.reason is None:
            try:
                arguments = tuple([self._argument(x, effect, values) for x in args])
                keywords = {key: self._argument(x, effect, values) for key, x in kwargs.items()}
            except UnrepeatableError as error:
                self.refuse(f"{name}: {error}")
        if effect and args and isinstance(args[0], Optimizer) and name not in GRADIENTS_ONLY:
            self._steps_over(args[0])
        if effect and not values:
            self._give(places_in((arguments, keywords)))
        try:
            with Mode(recorder=None, before_change=None):
                result = function(*args, **kwargs)
        except BaseException as error:
            self.reason = self.reason or f"{name} has raised {type(error).__name__}"
            raise
        if self.reason is None:
            try:
                outs = self.result(result)
                step = Again(name, function, arguments, keywords, outs, effect)
                parts = outs if outs.__class__ is tuple else (outs,)
                if effect:
                    self._effect(step)
                elif parts and all(part.__class__ is Place for part in parts):
                    cost = 2_000 + 10 * sum([part.sample.size for part in parts])
                    self.steps.append(Compute(name, function, arguments, outs, cost))
                else:
                    if not step.only_raises:
                        self.looks.append(line())
                    self.steps.append(step)
            except UnrepeatableError as error:
                self.refuse(f"{name}: {error}")
        return result

    def _steps_over(self, optimizer: Optimizer) -> None:
        """Take note of parameters that get new memory because graphs need their old values.

        A replay makes no such graphs. And whether others hold a parameter may differ from call to
        call: so views that were taken of it before are not known any more.
        """
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        for parameter in filter(is_held, parameters):
            self.keep(parameter._counter)
            self.outgrown[id(parameter._counter)] = next_sequence_nr()
        owners = {id(versions.owner_of(parameter._array)) for parameter in parameters}
        for key, place in tuple(self.known.items()):
            if is_array(place.sample) and id(versions.owner_of(place.sample)) in owners:
                del self.known[key]

    def is_outgrown(self, node: Any) -> bool:
        """Whether a node has saved a parameter that an optimiser has stepped over since."""
        guard = node.guard
        counters = guard if guard.__class__ is tuple else (guard,)
        return any(self.outgrown.get(id(x), -1) > node.sequence_nr for x in counters)

    def _give(self, places: list[Place]) -> None:
        """Take note of arrays that a function gets which may keep them, as setting `.grad` does."""
        for place in places:
            if place in self.constants:
                self.make_anew(place)
            self.given.add(place)

    def _argument(self, value: Any, effect: bool, values: bool) -> Any:
        if values and isinstance(value, Variable):
            return self.values_of(value)
        own = is_own(type(value).__module__) and not isinstance(value, Variable)
        if effect and (own or (isinstance(value, (Module, Optimizer)) and self._is_there(value))):
            # An optimiser, a schedule or a module, whose identity is checked at each call.
            return Same(value)
        return self.template(value, tensors=effect)

    def reads_gradient(self, tensor: Any, grad: Any) -> None:
        """Take note that `.grad` of a tensor is read."""
        if self.reason is not None:
            return
        source = self.sources.get(id(tensor))
        if source is None:
            self.refuse("it reads .grad of a tensor that it has made")
            return
        present = grad is not None
        if not self._changed:
            outs = Same(present)
            self.steps.append(Again(".grad", _has_gradient, (source,), {}, outs, False))
        elif not present or source not in self._committed_to:
            self.refuse("it reads .grad after a change")
            return
        if present:
            self.gradients.append(grad)
            place = self.new(grad._array)
            self._there.add(place)
            self.steps.append(Load(source, place, True))


def _calls_users_code(owner: Any) -> bool:
    """Whether an object's methods may call code of the user's."""
    if isinstance(owner, Optimizer):
        hooked = any(getattr(owner, name, None) for name in ("_pre_hooks", "_post_hooks"))
        return hooked or not is_own(type(owner).__module__)
    return isinstance(owner, LRScheduler)


def _put(tensor: Any, values: Any) -> None:
    """Change a tensor in place."""
    bump_version(tensor)
    tensor._metadata.F.assign(unlocked(tensor._array), values)


def _has_gradient(tensor: Any) -> bool:
    meta = tensor._autograd
    return meta is not None and meta.grad is not None
