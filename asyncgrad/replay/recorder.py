"""Records a call of a function as a flat list of steps on arrays.

While a call is recorded it runs eagerly, on ordinary arrays. The recorder is told of every op
(`computed`), of every pass (`begin`), and of functions that are called anew (`again`). If an op
uses an array that the recorder does not know, something has made it that was not reported. Then the
call can't be repeated, and the reason is noted. Nothing here changes what the call computes.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any
from weakref import ref

from asyncgrad.core.metadata import CALL_NS
from asyncgrad.core.modes import current
from asyncgrad.core.node import OpNode
from asyncgrad.core.variable import Variable
from asyncgrad.devices import CPU
from asyncgrad.ops.op import Op
from asyncgrad.ops.registry import OPS
from asyncgrad.ops.tensors.transfer import TO, moved
from asyncgrad.replay.device_arrays import is_array, transfer
from asyncgrad.replay.looks import is_only_returned, line, way_of
from asyncgrad.replay.passes import Passes
from asyncgrad.replay.steps import (
    LOOK,
    MADE,
    Again,
    Opaque,
    Place,
    Same,
    UnrepeatableError,
    item_at,
    places_in,
    report,
)
from asyncgrad.replay.unchanged import same_value

#: Functions whose results follow from their Python arguments alone.
_CONSTANTS_OF = frozenset({
    "arange", "as_tensor", "asarray", "empty", "empty_like", "eye", "full", "full_like", "linspace",
    "new_tensor", "ones", "ones_like", "scalar_tensor", "tensor", "tril_indices", "triu_indices",
    "zeros", "zeros_like",
})  # fmt: skip
#: The inputs of ops that take a sequence.
_SEQUENCE = ("*xs",)
#: The values that Python sees are compared for tensors of at most so many elements.
_SMALL = 16


class Recorder(Passes):
    """Takes down the steps of one call; `reason` says why it can't be repeated, or is None."""

    def computed(
        self, op: Op, inputs: tuple[Any, ...], attributes: tuple[Any, ...], out: Any
    ) -> None:
        """Take the report of an op: its tensors, its other arguments and its result."""
        if self.reason is not None:
            return
        name, metadata, array, edge = op.name, inputs[0]._metadata, out._array, out._edge
        device = metadata.device
        if edge.__class__ is OpNode and edge.guard is not None:
            self.saving.append(ref(edge))
        try:
            if device.streamed and device.stream_in(current().streams) is not self._stream(device):
                raise UnrepeatableError("it enters another stream")
            if OPS.get(name) is not op or not op.repeats:
                self._transferred(op, inputs[0], attributes, out)
                return
            # These change elements of their first input.
            changes = name in {"put", "put_add"}
            if not changes and (id(array) in self.known or (self.views and self.found(array))):
                # The op has returned the array of an operand.
                return
            arguments: Any = (*map(self.array_of, inputs),)
            if op.inputs == _SEQUENCE:
                arguments = ([*arguments],)
            if attributes:
                arguments += self._attributes(op, attributes)
            cost = edge.cost if edge.__class__ is OpNode else _cost(op, inputs, attributes, out)
            if changes:
                self.put(inputs, name, metadata.kernels[name], arguments, cost)
                return
            self.compute(name, metadata.kernels[name], arguments, array, cost)
            if attributes and attributes[-1].__class__ is list and op.attributes[-1] == "kept":
                self._contents(self.known[id(attributes[-1])], attributes[-1], ())
        except UnrepeatableError as error:
            self.refuse(f"{name}: {error}")

    def _attributes(self, op: Op, attributes: tuple[Any, ...]) -> tuple[Any, ...]:
        """The templates of an op's arguments that are no inputs."""
        kept = attributes[-1] if op.attributes[-1] == "kept" else None
        if kept.__class__ is list and id(kept) not in self.known:
            # The op puts intermediate values into this list, for its gradient.
            self.compute("list", list, (), kept)
        found = (*map(self.template, attributes),)
        if op.name == "getitem" and places_in(found[0]):
            raise UnrepeatableError("indexing with a tensor is not repeated")
        if op.name in {"index", "put", "put_add"} and any(
            x.dtype.kind == "b" for x in places_in(found)
        ):
            raise UnrepeatableError("the shape of its result depends on values")
        return found

    def _transferred(self, op: Op, x: Any, attributes: tuple[Any, ...], out: Any) -> None:
        """Take the report of a copy from one device to another."""
        if op is not TO:
            raise UnrepeatableError(f"{op.name} is not repeated")
        if self.call.waits and not out._metadata.device.streamed:
            raise UnrepeatableError("it copies to the host on an event loop")
        function = transfer(x, out, attributes[1])
        self.compute(op.name, function, (self.array_of(x),), out._array)

    def _contents(self, place: Place, values: Any, path: tuple[int, ...]) -> None:
        """Give places to the arrays that an op has put into a list."""
        for number, value in enumerate(values):
            way = (*path, number)
            if is_array(value):
                if self.found(value) is None:
                    self.compute("item", item_at, (place, way), value)
            elif isinstance(value, (tuple, list)):
                self._contents(place, value, way)

    @report
    def compared(self, name: str, x: Any, number: Any, out: Any) -> None:
        """Take the report of a comparison with a number."""
        metadata = x._metadata
        arguments = (self.array_of(x), number)
        self.compute(name, metadata.kernels[name], arguments, out._array, metadata.cost)

    @report
    def made_anew(self, value: Any, make: Any, args: tuple[Any, ...]) -> None:
        """Take note of what follows from no array, such as a copy of a random generator."""
        sample = value if is_array(value) else Opaque()
        given = tuple([self.known[id(x)] for x in args])
        self.known[id(value)] = self.compute(MADE, make, given, sample)
        self.keep(value)

    def second_array(self, tensor: Any) -> Any:
        """The array for a second tensor in the memory of one; only the latter may get another."""
        source = self.sources.get(id(tensor))
        array = tensor._array
        if source is not None and self.reason is None:
            try:
                place = self._load(source)
            except UnrepeatableError as error:
                self.refuse(str(error))
            else:
                array = array.view()
                self.known[id(array)] = place
                self.keep(array)
                self.seconds.add(id(array))
        return array

    def cuts_off(self, tensor: Any) -> None:
        """Take note of a tensor that is detached in place, which fails for views."""
        if id(tensor) in self.sources:
            self.refuse("it detaches a tensor in place that it has not made")

    @report
    def followed(self, array: Any, function: Any, args: tuple[Any, ...]) -> None:
        """Take note of an array that was made by a function that is no op."""
        name = getattr(function, "__name__", "a function").strip("_")
        arguments = tuple([self.values_of(x) for x in args])
        if isinstance(args[0], Variable):
            function = partial(_array_of, function)
        self.compute(name, function, arguments, array, 5_000 + 10 * array.size)

    def created(self, name: str, array: Any) -> None:
        """Take note of a tensor that no op has computed, but the function `name`."""
        if self.found(array) is not None:
            return
        if name in _CONSTANTS_OF:
            self.constant(array)
        else:
            self.refuse(f"{name}() is not repeated")

    # -- looks ------------------------------------------------------------------------------------

    def looked(self, what: str) -> None:
        """Refuse the call, because Python sees values; note where."""
        self._note_place()
        self.refuse(f"Python sees values, and may choose what follows by them: {what}")

    def _note_place(self) -> None:
        """Note how far the function is."""
        frame: Any = sys._getframe(1)
        place = None
        while frame is not None:
            if frame.f_code is self.call.code:
                place = frame.f_lasti
            frame = frame.f_back
        if place is not None:
            self.looked_at.append(place)

    def sees(self, x: Any, read: Any) -> Any:
        """Read a Python value from a tensor.

        If it is only returned, a replay reads it anew. If the code may choose by it, a replay goes
        on only if it is the same.
        """
        device = x._metadata.device
        if device.streamed:
            self.looked("item(), bool() or the like")
            return read(moved(x._array, device, CPU))
        value = read(x._array)
        if self.reason is not None:
            return value
        try:
            place = self.array_of(x)
        except UnrepeatableError as error:
            self.refuse(str(error))
            return value
        names, frame = way_of(sys._getframe(1))
        # Only values of these types are new objects, so that their identity tells them from others.
        if type(value) in {float, complex, list} and is_only_returned(
            names, frame, self.call.code, value
        ):
            self.values[id(value)] = self.compute("value", read, (place,), value)
        elif self.call.strict or frame is None or x._metadata.size > _SMALL:
            self.looked("item(), bool(), tolist() or the like")
        else:
            arguments = (place, Same(read), Same(value))
            self.looks.append(line())
            self._note_place()
            self.steps.append(Again(LOOK, _reads_same, arguments, {}, Same(True), False))
        return value


def _cost(op: Any, inputs: tuple[Any, ...], attributes: tuple[Any, ...], out: Any) -> Any:
    """The expected nanoseconds of an op that has made no node."""
    each, metadata = op.cost, out._metadata
    if callable(each) and op.inputs != _SEQUENCE:
        return each(*inputs, *attributes)
    if isinstance(each, tuple):
        each = each[metadata.is_complex]
    more = 0 if callable(each) else (each - 1) * (metadata.cost - CALL_NS)
    return max(inputs[0]._metadata.cost, metadata.cost) + more


def _array_of(function: Any, *args: Any) -> Any:
    """The array of the tensor that a function returns."""
    return function(*args)._array


def _reads_same(array: Any, read: Any, value: Any) -> bool:
    """Whether what is read from an array is what was read in the recorded call."""
    return same_value(read(array), value)
