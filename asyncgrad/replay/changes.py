"""What a recorded call changes by functions that are called anew, and its `.grad`s."""

from __future__ import annotations

from functools import partial
from operator import is_
from typing import Any

from asyncgrad.core.array_holders import holders
from asyncgrad.core.modes import Mode, current
from asyncgrad.core.node import next_sequence_nr
from asyncgrad.core.saved_values import counters_of, guards_of
from asyncgrad.core.variable import Variable, counter_of, requires_grad, view_of
from asyncgrad.core.versions import owner_of
from asyncgrad.nn.module import Module
from asyncgrad.ops.device_check import device_of
from asyncgrad.optim.lr_scheduler import LRScheduler
from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.optim.swa_utils import AveragedModel
from asyncgrad.replay.arrays import CONSTANTS
from asyncgrad.replay.changed_memory import ChangedMemory, grad_of
from asyncgrad.replay.device_arrays import is_array
from asyncgrad.replay.looks import line
from asyncgrad.replay.names import is_own
from asyncgrad.replay.steps import (
    CHANGED,
    GRADIENTS_ONLY,
    Again,
    Compute,
    Load,
    Made,
    Place,
    Recorded,
    Same,
    Source,
    UnrepeatableError,
    places_in,
    report,
)

#: The classes of this package whose methods may call user code when a replay calls them anew.
CALLERS = (Optimizer, LRScheduler, AveragedModel)
_SET_DATA = "Tensor._set_data"
#: Why a call can't be repeated in which `is_outgrown` holds for a node that is still needed.
OUTGROWN = "an optimiser steps between an operation and a pass through it"


class Changes(ChangedMemory):
    """The part of a recorder that calls functions anew. Abstract, as `KnownArrays` is."""

    def __init__(self, call: Recorded) -> None:
        super().__init__(call)
        #: The lines at which values may have decided what follows.
        self.looks: list[str] = []
        #: The leaves whose `.grad` the call has added to.
        self._committed_to: set[Source] = set()
        #: By the identity of a leaf that the call has made: the gradient that became its `.grad`.
        self._own_gradients: dict[int, Place] = {}
        #: The identities of those whose `.grad` was read.
        self._own_read: set[int] = set()
        #: By leaf that has a `.grad` before the call: its layout. And those that are looked for.
        self._layouts_before = {
            source: _layout(meta.grad)
            for source in self.sources.values()
            if (meta := source.tensor._autograd) is not None and meta.grad is not None
        }
        self._layouts: set[Any] = set()
        #: The leaves whose `.grad` is read.
        self._read: list[Source] = []
        #: By the identity of the version counter of a parameter that graphs held when an optimiser
        #: stepped: nodes that were made before have lower numbers than this.
        self.outgrown: dict[int, int] = {}
        #: Weak references to the nodes of the call's operations that have saved tensors.
        self.saving: list[Any] = []

    def call_anew(self, step: Again) -> None:
        """Add a step that calls user code. A replay finds out what the code changes in place.

        It may also give tensors other arrays. Graphs keep the present ones, all else reads anew.
        """
        self._changed = True
        self.foreign.update(step.made)
        self._note_users_code()
        number = next_sequence_nr()
        for source in self.loaded:
            self.outdated.setdefault(source, number)
        self.steps.append(step)

    def _note_callers(self, given: tuple[Any, ...]) -> None:
        """Take note of arguments whose methods have called user code."""
        if any(map(calls_users_code, given)):
            self._note_users_code()

    def _note_users_code(self) -> None:
        """Take note of a call of user code, which may give tensors, and `.grad`s, other arrays."""
        self.called = True
        self.doubtful |= self.seconds
        self.doubtful.update([id(grad._array) for grad, _ in self.gradients.values()])

    def check_unchanged(self) -> None:
        """Refuse a call that changes what it reaches around code that is called anew.

        That code may read it, and the call may undo the change before it ends.
        """
        if self.reason is None and not self.call.reached.holds():
            self.refuse(CHANGED)

    def again(
        self, function: Any, args: Any, kwargs: Any, effect: bool, *, values: bool = False
    ) -> Any:
        """Call a function that a replay calls anew, without recording what it does inside.

        With `effect` it changes something; otherwise it takes arrays and depends on nothing else.
        With `values` it takes the values of tensors, and not their history.
        """
        args = tuple([list(x) if hasattr(x, "__next__") else x for x in args])
        named = function.func if isinstance(function, partial) else function
        name = getattr(named, "__qualname__", str(named))
        if name == _SET_DATA and not (id(args[0]) in self.sources or id(args[0]) in self.gradients):
            return self._give_own_data(function, *args)
        given = *args, *kwargs.values()
        if any(map(calls_users_code, given)):
            self.check_unchanged()
        called, arguments, keywords = function, (), {}
        if self.reason is None:
            try:
                called, arguments, keywords = self._call(function, args, kwargs, effect, values)
            except UnrepeatableError as error:
                self.refuse(f"{name}: {error}")
        for stepped in args if effect and name not in GRADIENTS_ONLY else ():
            if isinstance(stepped, (Optimizer, AveragedModel)) and (held := self._held_by(stepped)):
                called = partial(_while_held, called, held)
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
                count = len(self.places)
                outs = self._result(result)
                step = Again(name, called, arguments, keywords, outs, effect)
                parts = outs if outs.__class__ is tuple else (outs,)
                if effect:
                    self.effect(step)
                    self._note_callers(given)
                elif parts and all(part.__class__ is Place for part in parts):
                    cost = 2_000 + 10 * sum([part.sample.size for part in parts])
                    self.steps.append(Compute(name, function, arguments, outs, cost))
                elif _are_made(outs, {*self.places[count:]}):
                    function, places = partial(_arrays_of, function), tuple(places_in(outs))
                    self.steps.append(Compute(name, function, arguments, places, 2_000))
                else:
                    if not step.only_raises:
                        self.looks.append(line())
                    self.foreign.update(step.made)
                    self.steps.append(step)
            except UnrepeatableError as error:
                self.refuse(f"{name}: {error}")
        return result

    def _result(self, result: Any) -> Any:
        """The template of what a function has returned."""
        if is_array(result):
            return self.found(result) or self.new(result)
        if isinstance(result, Variable):
            if result._batched:
                raise UnrepeatableError("it returns a batch")
            if requires_grad(result) or view_of(result) is not None:
                raise UnrepeatableError("it returns a tensor with a history")
            return Made(self.new(result._array), result._metadata)
        if type(result) is tuple:
            return tuple([self._result(part) for part in result])
        if type(result) in CONSTANTS:
            return Same(result)
        raise UnrepeatableError(f"it returns a {type(result).__name__}")

    def _call(self, function: Any, args: Any, kwargs: Any, effect: bool, values: bool) -> Any:
        """What a replay calls, and the templates of its arguments."""
        arguments = tuple([self._argument(x, effect, values) for x in args])
        keywords = {key: self._argument(x, effect, values) for key, x in kwargs.items()}
        source = current().generator if effect else None
        if source is None:
            return function, arguments, keywords
        # The second run of a checkpoint draws the numbers of the first.
        known = self.known.get(id(source))
        if known is None:
            raise UnrepeatableError("it draws from a generator that is not known")
        return _drawn_from, (known, Same(function), *arguments), keywords

    def _give_own_data(self, function: Any, tensor: Any, array: Any, metadata: Any) -> None:
        """Give a tensor that the call has made another array, of which a replay takes the place."""
        if self.reason is None and (self._owners(array) or self.found(array) is None):
            self.refuse(f"{_SET_DATA}: a tensor that it has made gets memory that was there before")
        with Mode(recorder=None, before_change=None):
            function(tensor, array, metadata)

    def _held_by(self, owner: Optimizer | AveragedModel) -> list[Any]:
        """The parameters that `owner` gives new memory because graphs need their old values.

        A replay makes no such graphs, but holds these parameters instead: others of their memory
        see the new values, or don't, as in the recorded call. Graphs from before the call may be
        gone by the next one.
        """
        if isinstance(owner, AveragedModel):
            return [*filter(self._holds, (*owner.module.parameters(), *owner.module.buffers()))]
        parameters = [one for group in owner.param_groups for one in group["params"]]
        held = [*filter(self._holds, parameters)]
        for parameter in held:
            self.keep(parameter._counter)
            self.outgrown[id(parameter._counter)] = next_sequence_nr()
        # Whether others hold a parameter may differ from call to call: so other tensors of its
        # memory, made before, are not known any more.
        owners = {id(owner_of(parameter._array)) for parameter in parameters}
        for key, place in tuple(self.known.items()):
            if is_array(place.sample) and id(owner_of(place.sample)) in owners:
                del self.known[key]
        return held

    def _holds(self, tensor: Any) -> bool:
        """Whether graphs that the call has made need a tensor's values unchanged."""
        nodes = [one() for one in self.saving] if holders(tensor) else []
        return any(node is not None and tensor._counter in counters_of(node) for node in nodes)

    def is_outgrown(self, node: Any) -> bool:
        """Whether a node has saved a parameter that an optimiser has stepped over since."""
        return any(self.outgrown.get(id(x), -1) > node.sequence_nr for x in guards_of(node)[0])

    def _give(self, places: list[Place]) -> None:
        """Take note of arrays that a function gets which may keep them, as setting `.grad` does."""
        for place in places:
            if place in self.constants:
                self.make_anew(place)
            self.given.add(place)

    def _argument(self, value: Any, effect: bool, values: bool) -> Any:
        if values and isinstance(value, Variable):
            return self.values_of(value)
        own = is_own(type(value).__module__)
        own = own and not (isinstance(value, Variable) or is_array(value))
        there = isinstance(value, (Module, Optimizer)) and self.call.reached.has_met(value)
        if effect and (own or there):
            # An optimiser, a schedule or a module, whose identity is checked at each call.
            return Same(value)
        return self.template(value, tensors=effect)

    @report
    def reads_gradient(self, tensor: Any, grad: Any) -> None:
        """Take note that `.grad` of a tensor is read."""
        source = self.sources.get(id(tensor))
        if grad is not None and requires_grad(grad):
            raise UnrepeatableError("it reads a .grad with a graph")
        if source is None:
            self._reads_own_gradient(tensor, grad)
            return
        layouts: tuple[Any, ...] = (_layout(grad),)
        if self._changed:
            if grad is None or source not in self._committed_to:
                raise UnrepeatableError("it reads .grad after a change")
            # The pass adds in place, or makes the layout of the recorded call.
            if self.called:
                # That code may have dropped it.
                there = source, Same(layouts)
                self.steps.append(Again(".grad", _has_layout, there, {}, Same(True), True))
            layouts = (*layouts, self._layouts_before.get(source))
        if (source, layouts) not in self._layouts:
            self._layouts.add((source, layouts))
            self.looks.append(line())
            arguments = (source, Same(layouts))
            self.steps.append(Again(".grad", _has_layout, arguments, {}, Same(True), False))
        if source not in self._read:
            if not self._read:
                # Code may ask which tensors are one.
                held = [x for x in self.sources.values() if not requires_grad(x.tensor)]
                both = held, self._read
                self.steps.insert(0, Again(".grad", _are_apart, both, {}, Same(True), False))
            self._read.append(source)
        if grad is not None:
            _, leaf = self.gradients.get(id(grad), (grad, source))
            if leaf is not source or id(grad) in self.sources:
                raise UnrepeatableError("it reads a .grad that is another tensor, too")
            known = self.known.get(id(grad._array)) if id(grad) in self.gradients else None
            self.gradients[id(grad)] = grad, source
            self.doubtful.discard(id(grad._array))
            place = self.new(grad._array)
            self.there.add(place)
            self.steps.append(Load(source, place, True))
            if self.called and known is not None:
                # What was read before may be used, too: that code may have set another.
                self.steps.append(Again(".grad", is_, (known, place), {}, Same(True), True))

    def _commit_to_own(self, leaf: Any, gradient: Place) -> None:
        """Take note of what becomes the `.grad` of a leaf that the call has made.

        Nobody else sees that leaf, so a replay commits nothing to it.
        """
        if id(leaf) in self._own_gradients:
            raise UnrepeatableError("it accumulates twice into a leaf that it has made")
        self._own_gradients[id(leaf)] = gradient
        self.keep(leaf)

    def _reads_own_gradient(self, leaf: Any, grad: Any) -> None:
        """Take note that `.grad` of a tensor is read that the call has made."""
        if grad is None:
            # So it is at this point of each replay.
            return
        place = self._own_gradients.get(id(leaf))
        if place is None or place.dtype != grad._array.dtype:
            raise UnrepeatableError("it reads .grad of a tensor that it has made")
        if id(leaf) not in self._own_read:
            self._own_read.add(id(leaf))
            array = grad._array
            if self.known.get(id(array)) is place:
                return
            if array.strides != place.strides and not array.flags.c_contiguous:
                raise UnrepeatableError("it reads a .grad of another layout than its gradient")
            self._copy(place, array)


def _are_made(outs: Any, new: set[Place]) -> bool:
    """Whether a function has made arrays of a device and nothing else, in new places.

    Then it has looked at no values.
    """
    return (
        outs.__class__ is tuple
        and all(x.__class__ is Place or x.__class__ is Made for x in outs)
        and all(x in new and device_of(x.sample) is not None for x in places_in(outs))
    )


def _while_held(function: Any, held: list[Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function while the version counters of parameters are held, as by a graph."""
    counters = [*map(counter_of, held)]
    try:
        return function(*args, **kwargs)
    finally:
        counters.clear()


def _arrays_of(function: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """The arrays, and those of tensors, that a function returns."""
    found = function(*args, **kwargs)
    return tuple([x._array if isinstance(x, Variable) else x for x in found])


def calls_users_code(owner: Any) -> bool:
    """Whether an object's methods may call code of the user's."""
    if isinstance(owner, Optimizer):
        return owner._steps_have_hooks() or not is_own(type(owner).__module__)
    if not isinstance(owner, CALLERS):
        return False
    return not is_own(type(owner).__module__) or any(map(_is_users, vars(owner).values()))


def _is_users(value: Any) -> bool:
    """Whether what an object holds is a function of the user's, or leads to one."""
    if isinstance(value, (list, tuple)):
        return any(map(_is_users, value))
    if isinstance(value, LRScheduler):
        return calls_users_code(value)
    return callable(value) and not is_own(getattr(value, "__module__", None) or "")


def _drawn_from(source: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function that draws random numbers from a generator."""
    with Mode(generator=source):
        return function(*args, **kwargs)


def _layout(grad: Any) -> Any:
    """What a program depends on of a `.grad`, or None if there is none."""
    return None if grad is None else (grad._metadata, grad._array.strides, requires_grad(grad))


def _are_apart(tensors: list[Any], leaves: list[Any]) -> bool:
    """Whether the `.grad`s of leaves are other objects than some tensors and than each other."""
    held = [grad for leaf in leaves if (grad := grad_of(leaf)) is not None]
    held += tensors
    return len({*map(id, held)}) == len(held)


def _has_layout(tensor: Any, layouts: Any) -> bool:
    return _layout(grad_of(tensor)) in layouts
