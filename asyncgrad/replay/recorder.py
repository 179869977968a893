"""Records a call of a function as a flat list of steps on arrays.

While a call is recorded it runs as always, on ordinary arrays. The recorder is told of every op
(`computed`), of every pass (`begin`), and of functions that are called anew (`again`). An array
that it does not know was made in a way that it was not told of: then the call can't be repeated,
and the reason is noted. Nothing here changes what the call computes.
"""

from __future__ import annotations

import sys
from asyncio.events import _get_running_loop
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

from asyncgrad.core.modes import current
from asyncgrad.core.node import GraphRoot
from asyncgrad.core.streams import stream_of
from asyncgrad.core.variable import (
    AccumulateGrad,
    Variable,
)
from asyncgrad.devices import CPU
from asyncgrad.ops.registry import OPS
from asyncgrad.ops.tensors.transfer import TO, moved
from asyncgrad.replay.arrays import line
from asyncgrad.replay.changes import Changes
from asyncgrad.replay.device_arrays import copying, is_array, transfer
from asyncgrad.replay.looks import is_only_returned, way_of
from asyncgrad.replay.steps import (
    LOOK,
    Again,
    Commit,
    Compute,
    Place,
    Same,
    UnrepeatableError,
    item_at,
    moves,
    places_in,
)
from asyncgrad.replay.users_code import UsersCode, check_lasting, check_waits, record_function
from asyncgrad.replay.watched_pass import WatchedPass, is_one

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.core.graph_task import GraphTask
    from asyncgrad.ops.op import Op

#: Functions whose results follow from their Python arguments alone.
_CONSTANTS_OF = frozenset({
    "arange", "as_tensor", "asarray", "eye", "full", "full_like", "linspace", "new_tensor", "ones",
    "ones_like", "scalar_tensor", "tensor", "tril_indices", "triu_indices", "zeros", "zeros_like",
})  # fmt: skip
#: Of tensors with more elements the values are not compared.
_SMALL = 16
_PACKAGE = f"{__name__.partition('.')[0]}."


class Recorder(Changes):
    """What one call does; `reason` says why it can't be repeated, or is None."""

    def __init__(
        self,
        arguments: list[Any],
        reached: list[Any],
        *,
        strict: bool,
        waits: bool,
        code: Any = None,
        is_there: Callable[[Any], bool],
    ) -> None:
        """Start with the tensors that the call may use.

        Args:
            arguments: the tensors among the arguments, each once.
            reached: other tensors that the function can reach.
            strict: raise an error where the call turns out to be unrepeatable.
            waits: the call is awaited.
            code: the function's own code, if it has some.
            is_there: whether the function has reached a value before the call.
        """
        super().__init__(arguments, reached, strict=strict)
        self._waits = waits
        self._thread = get_ident()
        self._code = code
        self._is_there = is_there
        self.inference = current().inference
        self._scope = current().streams
        #: The lines at which Python has looked at values.
        self.looks: list[str] = []
        #: The gradients that have arrived in the running passes, by target.
        self._passes: dict[Any, WatchedPass] = {}
        #: Passes that record themselves.
        self._recorded: list[GraphTask] = []

    def looked(self, what: str) -> None:
        """Note that Python sees values."""
        self.refuse(f"Python sees values, and may choose what follows by them: {what}")

    def sees(self, x: Any, read: Any) -> Any:
        """Read a Python value from a tensor.

        A replay reads it anew if it is only returned. Otherwise a replay goes on only if it is the
        same.
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
        # Values of other types need not be new objects.
        if type(value) in {float, complex, list} and is_only_returned(
            names, frame, self._code, value
        ):
            made = self.values[id(value)] = self.new(value)
            self.steps.append(Compute("value", read, (place,), made, 0))
        elif self.strict or frame is None or x._metadata.size > _SMALL:
            self.looked("item(), bool(), tolist() or the like")
        else:
            arguments = (place, Same(read), Same(value))
            self.looks.append(line())
            self.steps.append(Again(LOOK, _reads, arguments, {}, Same(True), False))
        return value

    # -- operations -------------------------------------------------------------------------------

    def computed(
        self, op: Op, inputs: tuple[Any, ...], attributes: tuple[Any, ...], out: Any
    ) -> None:
        """Take the report of an op: its tensors, its other arguments and its result."""
        if self.reason is not None:
            return
        try:
            self._computed(op, inputs, attributes, out)
        except UnrepeatableError as error:
            self.refuse(f"{op.name}: {error}")

    def _computed(self, op: Any, inputs: Any, attributes: Any, out: Any) -> None:
        name = op.name
        metadata = inputs[0]._metadata
        device = metadata.device
        if device.streamed and device.stream_in(current().streams) is not self._stream(device):
            raise UnrepeatableError("it enters another stream")
        if op is TO:
            if self._waits and not out._metadata.device.streamed:
                raise UnrepeatableError("it copies to the host on an event loop")
            function = transfer(inputs[0], out, attributes[1])
            place = self.array_of(inputs[0])
            self.steps.append(Compute(name, function, (place,), self.new(out._array), 0))
            return
        known: Any = OPS.get(name)
        if known is not op or not op.repeats:
            raise UnrepeatableError(f"{name} is not repeated")
        kernel = metadata.kernels[name]
        if name in {"put", "put_add"}:
            self._put(inputs[0])
            kernel = partial(_of_copy, kernel)
        elif id(out._array) in self.known:
            # The op has returned the array of an operand.
            return
        arrays: Any = [self.array_of(x) for x in inputs]
        if op.inputs == ("*xs",):
            arrays = [arrays]
        kept = attributes[-1] if op.attributes and op.attributes[-1] == "kept" else None
        if kept.__class__ is list and id(kept) not in self.known:
            # The op puts intermediate values into this list, for its gradient.
            self.steps.append(Compute("list", list, (), self.new(kept), 0))
        arguments = (*arrays, *map(self.template, attributes))
        if name == "getitem" and moves(arguments[1]):
            raise UnrepeatableError("indexing with a tensor is not repeated")
        if name in {"index", "put", "put_add"} and any(
            x.sample.dtype.kind == "b" for x in places_in(arguments[len(inputs) :])
        ):
            raise UnrepeatableError("the shape of its result depends on values")
        self.steps.append(
            Compute(
                name,
                kernel,
                arguments,
                self.new(out._array),
                max(metadata.cost, out._metadata.cost)
                if op.cost is None or op.inputs == ("*xs",)
                else op.cost(*inputs, *attributes),
            )
        )
        if kept.__class__ is list:
            self._contents(self.known[id(kept)], kept, ())

    def _put(self, tensor: Any) -> None:
        """Take note of a tensor that gets other elements: a replay puts them into a copy."""
        self._changing = None
        if id(tensor) in self.sources or not tensor._array.flags.c_contiguous:
            raise UnrepeatableError("it changes elements of a tensor that it has not made")

    def _contents(self, place: Place, values: Any, path: tuple[int, ...]) -> None:
        """Make the arrays known that an op has put into a list."""
        for number, value in enumerate(values):
            way = (*path, number)
            if is_array(value):
                if id(value) not in self.known:
                    out = self.new(value)
                    self.steps.append(Compute("item", item_at, (place, way), out, 0))
            elif isinstance(value, (tuple, list)):
                self._contents(place, value, way)

    def compared(self, name: str, x: Any, number: Any, out: Any) -> None:
        """Take the report of a comparison with a number."""
        if self.reason is not None:
            return
        try:
            arguments = (self.array_of(x), number)
        except UnrepeatableError as error:
            self.refuse(f"{name}: {error}")
            return
        metadata = x._metadata
        place = self.new(out._array)
        self.steps.append(Compute(name, metadata.kernels[name], arguments, place, metadata.cost))

    def constant(self, array: Any) -> None:
        """Take note of an array whose values follow from Python's alone."""
        if self.reason is None:
            self.new_constant(array)

    def detached(self, tensor: Any) -> None:
        """Take note whose array it is that another tensor is made of: others may have it, too."""
        source = self.sources.get(id(tensor))
        if self.reason is None and source is not None and id(tensor._array) in self._shared:
            try:
                self._load(source)
            except UnrepeatableError as error:
                self.refuse(str(error))

    def followed(self, array: Any, function: Any, args: tuple[Any, ...]) -> None:
        """Take note of an array that a function which is no op has made."""
        if self.reason is not None:
            return
        name = getattr(function, "__name__", "a function").strip("_")
        try:
            arguments = tuple([self.values_of(x) for x in args])
        except UnrepeatableError as error:
            self.refuse(f"{name}: {error}")
            return
        if isinstance(args[0], Variable):
            function = partial(_array_of, function)
        cost = 5_000 + 10 * array.size
        self.steps.append(Compute(name, function, arguments, self.new(array), cost))

    def created(self, name: str, array: Any) -> None:
        """Take note of a tensor that no op has computed.

        Args:
            name: the function that has made it.
            array: its values.
        """
        if id(array) in self.known:
            return
        if name in _CONSTANTS_OF:
            self.constant(array)
        else:
            self.refuse(f"{name}() is not repeated")

    # -- passes -----------------------------------------------------------------------------------

    def begin(self, task: GraphTask) -> None:
        """Watch a pass that is about to start."""
        if self.reason is not None:
            return
        self.passes += 1
        if task.observer is not None:
            self.refuse("its passes are traced")
        elif any(source.tensor._edge is not None for source in self.sources.values()):
            self.refuse("it runs a pass, and an argument has a graph")
        elif (
            task.recorded is None
            and not self._waits
            and awaited_here()
            # In another thread, the portal runs it while the caller waits.
            and get_ident() == self._thread
        ):
            self.refuse("it runs a pass on an event loop, and is no coroutine function")
        elif task.parent is not None:
            self.refuse("it runs a pass within a pass")
        elif task.recorded is None:
            known = self._passes[task] = WatchedPass(self)
            task.observer = known
            try:
                known.watch(task.root)
                self._check_streams(known)
            except UnrepeatableError as error:
                self.refuse(str(error))
            task.collect = partial(self._collect, known, task.collect)
        elif task.captures is None:
            self.refuse("it runs backward(create_graph=True)")
        else:
            self._recorded.append(task)
            root = task.root
            given = root.gradients if root.__class__ is GraphRoot else (task.ready[0][3],)
            for gradient in given:
                if (
                    isinstance(gradient, Variable)
                    and not gradient._batched
                    and is_one(gradient._array)
                ):
                    self.constants.add(self.new(gradient._array))

    def watch_of(self, task: GraphTask) -> Any:
        """What is told of the user's code in a pass of this call, None if it is of another."""
        known = self._passes.get(task)
        if known is None and task in self._recorded:
            known = WatchedPass(self)
        return None if known is None else UsersCode(known, self)

    def function(self, function: Any, args: tuple[Any, ...]) -> Any:
        """Call a `Function`, and note it."""
        return record_function(self, function, args)

    def check_lasting(self, hook: Any) -> None:
        """Raise for a hook that is made in the call, and that a later call would make otherwise."""
        check_lasting(hook, self._is_there)

    def _stream(self, device: Any) -> Any:
        """The stream of a device that is current in the recorded call."""
        return device.stream_in(self._scope)

    def _check_streams(self, known: WatchedPass) -> None:
        """Raise if a node of a pass was made in another stream: a replay knows only one."""
        for node in known.nodes():
            stream = stream_of(node)
            if stream is not None and stream is not self._stream(stream.device):
                raise UnrepeatableError("it runs a pass through a node of another stream")

    def running(self) -> bool:
        """Whether a pass, or a change in place, has not ended."""
        return bool(self._passes) or self._changing is not None

    def leave_passes(self) -> None:
        """Stop watching passes that have not ended, as one that has failed."""
        for known in self._passes.values():
            known.forget()

    def _collect(self, known: WatchedPass, collect: Any, task: GraphTask, within: Any) -> Any:
        """Note the gradients of a pass that has ended, and return its result."""
        del self._passes[task]
        try:
            if self.reason is None and task.captures is None:
                self._committed(known, task)
            elif self.reason is None:
                known.capture(task)
                if task.streams is not None:
                    self._end_in_streams([], task)
            if self.reason is None:
                check_waits(self.steps, known.called)
        except UnrepeatableError as error:
            self.refuse(str(error))
        finally:
            known.forget()
        result = None if collect is None else collect(task, within)
        if self.reason is None and task.captures is not None and result is not None:
            found = result.values() if isinstance(result, dict) else result
            for tensor, place in zip(found, known.captured, strict=True):
                self._captured(tensor, place)
        return result

    def _captured(self, tensor: Any, place: Place | None) -> None:
        if tensor is None or id(tensor._array) in self.known:
            return
        if place is None or tensor._array.dtype != place.sample.dtype:
            self.refuse("grad() has made a gradient of its own")
        else:
            # `grad` returns a copy where others may hold the array.
            self.steps.append(
                Compute(
                    "copy",
                    copying(tensor._array),
                    (place,),
                    self.new(tensor._array),
                    tensor._metadata.cost,
                )
            )

    def _end_in_streams(self, staged: list[Any], task: GraphTask) -> None:
        """Note that a pass ends that waits for the device."""
        self.steps.append(Commit(staged, streamed=True, waits=not task.wait_enqueued))

    def _committed(self, known: WatchedPass, task: GraphTask) -> None:
        staged = []
        for node, position in known.arrived:
            if node.__class__ is AccumulateGrad and node not in known.committed:
                source = self.sources.get(id(node.variable))
                if source is None:
                    raise UnrepeatableError("it accumulates into a leaf that it has made")
                total = known.sum(node, position)
                assert total is not None
                staged.append((source, total))
                self._committed_to.add(source)
        self._changed = True
        if task.streams is None:
            self.steps.append(Commit(staged))
        else:
            self._end_in_streams(staged, task)
        if known.committed:
            for node in known.committed:
                self._committed_to.add(self.sources[id(node.variable)])
            self.load_again()


def awaited_here() -> bool:
    """Whether a pass that starts here has to be awaited."""
    return _get_running_loop() is not None and not current().blocking


def _of_copy(function: Any, x: Any, *args: Any) -> Any:
    """The result of a function that changes its first argument."""
    return function(x.copy(), *args)


def _array_of(function: Any, *args: Any) -> Any:
    """The array of the tensor that a function returns."""
    return function(*args)._array


def _reads(array: Any, read: Any, value: Any) -> bool:
    """Whether a value that is read from an array is the one of the recorded call."""
    found = read(array)
    return type(found) is type(value) and repr(found) == repr(value)
