"""The arrays and tensors that are known while a call is recorded.

An array is known by its identity. All known arrays are kept alive, so that no other object gets the
same identity.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncgrad.core.metadata import Metadata
from asyncgrad.core.variable import Variable, requires_grad, view_of
from asyncgrad.devices.pool import POOL
from asyncgrad.errors import AutogradError
from asyncgrad.ops.device_check import device_of
from asyncgrad.ops.dtype import DType
from asyncgrad.ops.table.in_place import Route
from asyncgrad.ops.table.reduction import AllAxes
from asyncgrad.replay.device_arrays import copying, is_array
from asyncgrad.replay.looks import line
from asyncgrad.replay.steps import (
    COPY,
    Compute,
    Gradient,
    Load,
    Made,
    Place,
    Recorded,
    Region,
    Source,
    UnrepeatableError,
    places_in,
    sources_in,
)

#: The types of values that a program passes on as they are.
CONSTANTS = frozenset({
    type(None), bool, int, float, complex, str, bytes, type(Ellipsis), np.dtype, DType, type,
    Metadata, AllAxes, Route,
})  # fmt: skip
ONE_ARRAY = "two of its tensors are one array"


class KnownArrays:
    """What a recorder knows, and the steps that it has noted so far.

    `Recorder` adds the reports of a call; for a pass through a graph this is enough.
    """

    def __init__(self, call: Recorded) -> None:
        self.call = call
        #: Why the call can't be repeated, or None.
        self.reason: str | None = None
        self.steps: list[Any] = []
        #: Arrays that every replay starts with as they are.
        self.constants: set[Place] = set()
        #: Places of memory that others have got, and may change in place.
        self.given: set[Place] = set()
        #: Places of memory that was there before the call.
        self.there: set[Place] = set()
        #: Other places of memory that no step has made; constants may be left out.
        self.foreign: set[Place] = set()
        self.places: list[Place] = []
        #: The devices with streams that arrays are on.
        self.devices: set[Any] = set()
        #: By the identity of an array: its place.
        self.known: dict[int, Place] = {}
        #: By identity: views of memory that has changed since, each with the array that owns it.
        self.views: dict[int, tuple[Any, Any]] = {}
        self._kept: list[Any] = []
        self._unused = POOL.unused
        #: By the identity of a tensor.
        self.sources = {id(x): Source(x, number) for number, x in enumerate(call.arguments)}
        reached = () if call.reached is None else call.reached.tensors
        self.sources |= {id(x): Source(x, None) for x in reached if id(x) not in self.sources}
        self.loaded: dict[Source, Place] = {}
        #: Those to read again, as user code may give them other arrays; and what older nodes saved.
        self.outdated: dict[Source, int] = {}
        #: Such code has been called.
        self.called = False
        #: By identity: arrays that `second_array` has made. And arrays, also of `.grad`s, that a
        #: tensor has had before that code, and perhaps has no more.
        self.seconds: set[int] = set()
        self.doubtful: set[int] = set()
        self.earlier: list[tuple[int, list[Place]]] = []
        #: The places of Python values that are read from arrays and only returned, by identity.
        self.values: dict[int, Place] = {}
        #: The places in the function's code at which Python has read values of tensors.
        self.looked_at: list[int] = []
        #: How many passes have started in this call, and what is watched of those that run.
        self.passes = 0
        self._passes: dict[Any, Any] = {}
        #: By identity: the `.grad`s that were read, each with its leaf.
        self.gradients: dict[int, tuple[Any, Source]] = {}
        self.find_holders()

    def find_holders(self) -> None:
        """Note which source has which array now."""
        #: The sources by the identity of their present arrays.
        self._holders: dict[int, Source] = {}
        #: The arrays that two tensors share, such as a weight and the result of its `detach()`.
        self._shared: set[int] = set()
        for source in self.sources.values():
            key = id(source.tensor._array)
            if self._holders.setdefault(key, source) is not source:
                self._shared.add(key)

    def refuse(self, why: str) -> None:
        """Note why the call can't be repeated; the first reason stays."""
        if self.reason is not None:
            return
        self.reason = f"{why} ({line()})"
        self.steps.clear()
        if self.call.strict:
            raise AutogradError(f"compile(fullgraph=True): {self.reason}")

    # -- arrays -----------------------------------------------------------------------------------

    def new(self, array: Any) -> Place:
        """Give a place to an array that a step makes, or that is constant."""
        place = self.known[id(array)] = Place(array)
        self.places.append(place)
        if array.__class__ is not np.ndarray and (device := device_of(array)) is not None:
            self.devices.add(device)
        return place

    def compute(self, name: str, function: Any, arguments: Any, array: Any, cost: int = 0) -> Place:
        """Add a step that makes an array; returns its place."""
        place = self.new(array)
        self.steps.append(Compute(name, function, arguments, place, cost))
        return place

    def make_anew(self, place: Place) -> None:
        """Copy a constant in each replay, because others get this array and may change it."""
        mine = self.new(place.sample.copy("K"))
        self.constants.discard(place)
        self.constants.add(mine)
        copy = copying(place.sample)
        self.steps.insert(0, Compute(COPY, copy, (mine,), place, mine.sample.size))

    def keep(self, value: Any) -> None:
        """Keep an array or tensor until the recording is forgotten."""
        self._kept.append(value)

    def forget(self) -> None:
        """Drop arrays and arguments; the pool keeps no more than before. Ignore later reports."""
        self.reason = self.reason or "the call has ended"
        self.call = Recorded()
        for source in self.sources.values():
            if source.argument is not None:
                source.tensor = None
        held: Any
        for held in (self._kept, self.known, self.views, self.places, self.earlier, self._passes):
            held.clear()
        POOL.shrink(self._unused)

    def _load(self, source: Source) -> Place:
        place = self.loaded.get(source)
        array = source.tensor._array
        if place is None or place.sample is not array or source in self.outdated:
            number = self.outdated.pop(source, None)
            if place is not None and number is not None:
                self.earlier.append((number, [place]))
            if id(array) in self._shared and id(array) in self.known:
                raise UnrepeatableError(ONE_ARRAY)
            place = self.loaded[source] = self.new(array)
            self.there.add(place)
            self.steps.append(Load(source, place, False))
        return place

    def array_of(self, tensor: Any) -> Place:
        """The place of a tensor's array."""
        source = self.sources.get(id(tensor))
        if source is not None:
            return self._load(source)
        if tensor._batched:
            raise UnrepeatableError("it is given a batch")
        array = tensor._array
        if self.called and (id(array) in self._holders or id(array) in self.doubtful):
            raise UnrepeatableError("code of yours may have given a tensor that it uses new memory")
        return self.known.get(id(array)) or self.place_of(array)

    def place_of(self, array: Any) -> Place:
        """The place of an array."""
        place = self.found(array)
        if place is None:
            source = self._holders.get(id(array))
            if source is None:
                raise UnrepeatableError(
                    "it uses values that no recorded operation has made, and that were not there "
                    "before the call"
                )
            if id(array) in self._shared:
                raise UnrepeatableError(ONE_ARRAY)
            return self._load(source)
        return place

    def found(self, array: Any) -> Place | None:
        """The place of an array that a step has made; None if there is none."""
        if id(array) in self.views:
            owner, view = self.views.pop(id(array))
            self.compute("view", Region(owner, view).of, (self.known[id(owner)],), view)
        return self.known.get(id(array))

    def knows(self, array: Any) -> bool:
        """Whether an array was there before the call, or was made in a step."""
        return self.found(array) is not None or id(array) in self._holders

    def template(self, value: Any, *, tensors: bool = False) -> Any:
        """A value with places for its arrays; with `tensors`, its tensors are passed on as such.

        What a replay could not make again is refused.
        """
        known = self.known.get(id(value))
        if known is not None:
            return known
        kind = type(value)
        if kind in CONSTANTS:
            return value
        if isinstance(value, tuple):
            of = self.known.get
            parts = tuple([of(id(x)) or self.template(x, tensors=tensors) for x in value])
            if kind is tuple:
                return parts
            if not (places_in(parts) or sources_in(parts)):
                return value
        if is_array(value):
            return self.place_of(value)
        if isinstance(value, Variable):
            return self._given(value) if tensors else self.array_of(value)
        if kind is slice:
            return slice(*[self.template(x) for x in (value.start, value.stop, value.step)])
        if kind is list and value:
            return [self.template(part, tensors=tensors) for part in value]
        if kind is dict and tensors:
            return {key: self.template(part, tensors=tensors) for key, part in value.items()}
        if issubclass(kind, (type, np.dtype)):
            return value
        raise UnrepeatableError(f"a value of type {kind.__name__} may be another in a later call")

    def before(self, tensor: Any) -> Source | Gradient | None:
        """The template of a tensor that the call has not made, or of a leaf's `.grad`."""
        source = self.sources.get(id(tensor))
        if source is not None or id(tensor) not in self.gradients:
            return source
        grad, leaf = self.gradients[id(tensor)]
        if leaf.tensor._autograd.grad is grad:
            return Gradient(leaf)
        raise UnrepeatableError("it uses a .grad that is none any more")

    def _given(self, tensor: Any) -> Any:
        """The template of a tensor that a function is given."""
        if (known := self.before(tensor)) is not None:
            return known
        if requires_grad(tensor) or view_of(tensor) is not None:
            raise UnrepeatableError("it is given a tensor with a history")
        place = self.array_of(tensor)
        if place in self.given:
            raise UnrepeatableError("it is given a tensor that others have been given, too")
        return Made(place, tensor._metadata)

    def values_of(self, value: Any) -> Any:
        """The template of an argument of a function that reads no history of tensors."""
        if isinstance(value, Variable):
            return Made(self.array_of(value), value._metadata)
        return self.template(value)
