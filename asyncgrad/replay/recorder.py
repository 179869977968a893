"""Records a call of a function as a flat list of steps on arrays.

While a call is recorded it runs as always, on ordinary arrays. The recorder is told of every op
(`computed`), of every pass (`begin`), and of functions that are called anew (`again`). It knows
each array by its identity and keeps all of them, so that no identity is used twice. An array that
it does not know was made in a way that it was not told of: then the call can't be repeated, and the
reason is noted. Nothing here changes what the call computes.
"""

from __future__ import annotations

import sys
from asyncio.events import _get_running_loop
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.autograd.arguments import ONES
from asyncgrad.core.modes import current, install
from asyncgrad.core.node import GraphRoot, as_edge
from asyncgrad.core.variable import (
    AccumulateGrad,
    Variable,
    bump_version,
    is_inference,
    requires_grad,
    view_of,
)
from asyncgrad.devices import CPU
from asyncgrad.errors import AutogradError
from asyncgrad.ops.dtype import DType
from asyncgrad.ops.memory import unlocked
from asyncgrad.ops.namespace import metadata_of
from asyncgrad.ops.registry import CHAPTERS, OPS

if TYPE_CHECKING:
    from asyncgrad.core.graph_task import GraphTask
    from asyncgrad.ops.op import Op

#: Ops whose functions of the API look at values without saying so, or that change memory.
_LEFT_OUT = frozenset(
    op.name
    for chapter in CHAPTERS
    if chapter.__name__.rpartition(".")[2] in {"index", "sort", "random", "in_place", "matrices"}
    for op in chapter.OPS
    if op.name not in {"getitem", "index", "scale_gradient", "zeros_of", "overwrite"}
)
_CONSTANTS = (
    type(None), bool, int, float, complex, str, bytes, type(Ellipsis), np.dtype, DType, type,
)  # fmt: skip
#: Functions whose results follow from their Python arguments alone.
_CONSTANTS_OF = frozenset({
    "arange", "eye", "full", "full_like", "linspace", "ones", "ones_like", "tril_indices",
    "triu_indices", "zeros", "zeros_like",
})  # fmt: skip
_PACKAGE = f"{__name__.partition('.')[0]}."


class UnrepeatableError(Exception):
    """Why a call can't be repeated from what was recorded."""


class Place:
    """An array of the program: one that a step makes, or that is read when the program is there."""

    __slots__ = ("number", "sample")

    def __init__(self, number: int, sample: Any) -> None:
        """Note the number, and the array that the recorded call had there."""
        self.number = number
        self.sample = sample


class Source:
    """A tensor that the program starts from: an argument or one that the function reaches for."""

    __slots__ = ("argument", "tensor")

    def __init__(self, tensor: Any, argument: int | None) -> None:
        """Note the tensor; `argument` is its number among the arguments, None for others."""
        self.tensor = tensor
        self.argument = argument


class Made:
    """A tensor of an array, for functions that are called anew."""

    __slots__ = ("metadata", "place")

    def __init__(self, place: Place, metadata: Any) -> None:
        """Note the array and its metadata."""
        self.place = place
        self.metadata = metadata


class Compute:
    """A step: arrays from arrays."""

    __slots__ = ("arguments", "cost", "function", "name", "outs")

    def __init__(self, name: str, function: Any, arguments: Any, outs: Any, cost: int) -> None:
        """Note what is called, and the template of what it returns: places, None, tuples."""
        self.name = name
        self.function = function
        self.arguments = arguments
        self.outs = outs
        self.cost = cost


class Load:
    """A step: read the present array of a source, or of its `.grad`."""

    __slots__ = ("gradient", "out", "source")

    def __init__(self, source: Source, out: Place, gradient: bool) -> None:
        """Note what is read."""
        self.source = source
        self.out = out
        self.gradient = gradient


class Again:
    """A step: call a function anew, and compare what it returns besides arrays."""

    __slots__ = ("arguments", "effect", "function", "keywords", "name", "outs", "tensors")

    def __init__(
        self, name: str, function: Any, arguments: Any, keywords: Any, outs: Any, effect: bool
    ) -> None:
        """Note the call and the template of its result."""
        self.name = name
        self.function = function
        self.arguments = arguments
        self.keywords = keywords
        self.outs = outs
        self.effect = effect


class Commit:
    """A step: add gradients to the `.grad` of leaves, all or none."""

    __slots__ = ("staged",)

    def __init__(self, staged: list[tuple[Source, Place]]) -> None:
        """Note the leaves and their gradients."""
        self.staged = staged


class Output:
    """A tensor that the function returns."""

    __slots__ = ("inference", "metadata", "place")

    def __init__(self, place: Place, metadata: Any, inference: bool) -> None:
        """Note the array, and what the tensor knows of it."""
        self.place = place
        self.metadata = metadata
        self.inference = inference


class Recorder:
    """What one call does; `reason` says why it can't be repeated, or is None."""

    def __init__(
        self, arguments: list[Any], reached: list[Any], *, strict: bool, waits: bool
    ) -> None:
        """Start with the tensors that the call may use.

        Args:
            arguments: the tensors among the arguments, each once.
            reached: other tensors that the function can reach.
            strict: raise an error where the call turns out to be unrepeatable.
            waits: the call is awaited.
        """
        self._waits = waits
        self.reason: str | None = None
        self.steps: list[Any] = []
        self.strict = strict
        #: Whether passes run in this call.
        self.passes = 0
        #: Arrays that every replay starts with as they are.
        self.constants: set[Place] = set()
        #: The leaves whose `.grad` the call has added to, and whether anything has changed so far.
        self._committed_to: set[Source] = set()
        self._changed = False
        #: The tensor that is being changed in place.
        self._changing: Source | None = None
        self._outputs: dict[int, Any] = {}
        #: The version counters of returned tensors, and the `.grad`s that were read.
        self._counters: list[Any] = []
        self._gradients: list[Any] = []
        self._count = 0
        self._all: list[Place] = []
        #: By the identity of an array: its place. `_kept` keeps the arrays.
        self._places: dict[int, Place] = {}
        self._kept: list[Any] = []
        #: By the identity of a tensor.
        self._sources: dict[int, Source] = {}
        self.loaded: dict[Source, Place] = {}
        #: The gradients that have arrived in the running passes, by target.
        self._passes: dict[Any, _Pass] = {}
        for number, tensor in enumerate(arguments):
            self._sources[id(tensor)] = Source(tensor, number)
        for tensor in reached:
            if id(tensor) not in self._sources:
                self._sources[id(tensor)] = Source(tensor, None)
        #: The sources by the identity of their present arrays.
        self._holders: dict[int, Source] = {}
        self._find_holders()

    def _find_holders(self) -> None:
        self._holders = {id(s.tensor._array): s for s in self._sources.values()}
        if len(self._holders) < len(self._sources):
            self.refuse("two of its tensors are one array")

    # -- reasons ----------------------------------------------------------------------------------

    def refuse(self, why: str) -> None:
        """Note why the call can't be repeated; the first reason stays."""
        if self.reason is not None:
            return
        self.reason = f"{why} ({_line()})"
        self.steps.clear()
        if self.strict:
            raise AutogradError(f"compile(fullgraph=True): {self.reason}")

    def looked(self, what: str) -> None:
        """Note that Python sees values."""
        self.refuse(f"Python sees values, and may choose what follows by them: {what}")

    # -- arrays -----------------------------------------------------------------------------------

    def _new(self, array: Any) -> Place:
        place = Place(self._count, array)
        self._count += 1
        self._all.append(place)
        self._places[id(array)] = place
        self._kept.append(array)
        return place

    def _load(self, source: Source) -> Place:
        place = self.loaded.get(source)
        array = source.tensor._array
        if place is None or place.sample is not array:
            place = self.loaded[source] = self._new(array)
            self.steps.append(Load(source, place, False))
        return place

    def _array_of(self, tensor: Any) -> Place:
        """The place of a tensor's array."""
        source = self._sources.get(id(tensor))
        if source is not None:
            return self._load(source)
        return self._known(tensor._array)

    def _known(self, array: Any) -> Place:
        place = self._places.get(id(array))
        if place is None:
            source = self._holders.get(id(array))
            if source is None:
                raise UnrepeatableError(
                    "it uses values that no recorded operation has made, and that were not there "
                    "before the call"
                )
            return self._load(source)
        return place

    def template(self, value: Any, *, tensors: bool = False) -> Any:
        """A value with places for its arrays; raises for what a replay could not make again.

        Args:
            value: an argument of a function.
            tensors: keep tensors; otherwise they become their arrays.
        """
        kind = type(value)
        if issubclass(kind, (np.ndarray, np.generic)):
            return self._known(value)
        if kind in _CONSTANTS or issubclass(kind, (type, np.dtype)):
            return value
        if kind is list and id(value) in self._places:
            return self._places[id(value)]
        if isinstance(value, Variable):
            source = self._sources.get(id(value))
            if tensors and source is not None:
                return source
            if tensors and (requires_grad(value) or view_of(value) is not None):
                raise UnrepeatableError("it is given a tensor with a history")
            place = self._array_of(value)
            return Made(place, value._metadata) if tensors else place
        if kind is slice:
            return slice(*[self.template(x) for x in (value.start, value.stop, value.step)])
        if isinstance(value, tuple):
            parts = [self.template(part, tensors=tensors) for part in value]
            if not any(map(_moves, parts)):
                return value
            if kind is tuple:
                return tuple(parts)
        if kind is list and value:
            return [self.template(part, tensors=tensors) for part in value]
        if kind is dict and tensors:
            return {key: self.template(part, tensors=tensors) for key, part in value.items()}
        if kind.__module__.startswith(_PACKAGE) and kind.__name__ in {"Metadata", "AllAxes"}:
            return value
        raise UnrepeatableError(f"a value of type {kind.__name__} may be another in a later call")

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
        known: Any = OPS.get(name)
        if known is not op or name in _LEFT_OUT:
            raise UnrepeatableError(f"{name} is not repeated")
        metadata = inputs[0]._metadata
        if metadata.device.streamed:
            raise UnrepeatableError(f"programs on {metadata.device} are not repeated")
        if id(out._array) in self._places:
            # The op has returned the array of an operand.
            return
        arrays: Any = [self._array_of(x) for x in inputs]
        if op.inputs == ("*xs",):
            arrays = [arrays]
        kept = attributes[-1] if op.attributes and op.attributes[-1] == "kept" else None
        if kept.__class__ is list and id(kept) not in self._places:
            # The op puts intermediate values into this list, for its gradient.
            self.steps.append(Compute("list", list, (), self._new(kept), 0))
        arguments = (*arrays, *map(self.template, attributes))
        if name == "getitem" and _moves(arguments[1]):
            raise UnrepeatableError("indexing with a tensor is not repeated")
        if name == "index" and any(x.sample.dtype.kind == "b" for x in places_in(arguments[1:])):
            raise UnrepeatableError("the shape of its result depends on values")
        self.steps.append(
            Compute(
                name,
                metadata.kernels[name],
                arguments,
                self._new(out._array),
                max(metadata.cost, out._metadata.cost)
                if op.cost is None or op.inputs == ("*xs",)
                else op.cost(*inputs, *attributes),
            )
        )
        if kept.__class__ is list:
            self._contents(self._places[id(kept)], kept, ())

    def _contents(self, place: Place, values: Any, path: tuple[int, ...]) -> None:
        """Make the arrays known that an op has put into a list."""
        for number, value in enumerate(values):
            way = (*path, number)
            if isinstance(value, np.ndarray):
                if id(value) not in self._places:
                    out = self._new(value)
                    self.steps.append(Compute("item", item_at, (place, way), out, 0))
            elif isinstance(value, (tuple, list)):
                self._contents(place, value, way)

    def compared(self, name: str, x: Any, number: Any, out: Any) -> None:
        """Take the report of a comparison with a number."""
        if self.reason is not None:
            return
        try:
            arguments = (self._array_of(x), number)
        except UnrepeatableError as error:
            self.refuse(f"{name}: {error}")
            return
        metadata = x._metadata
        place = self._new(out._array)
        self.steps.append(Compute(name, metadata.kernels[name], arguments, place, metadata.cost))

    def constant(self, array: Any) -> None:
        """Take note of an array whose values follow from Python's alone."""
        if self.reason is None:
            self.constants.add(self._new(array))

    def created(self, name: str, array: Any) -> None:
        """Take note of a tensor that no op has computed.

        Args:
            name: the function that has made it.
            array: its values.
        """
        if name in _CONSTANTS_OF:
            self.constant(array)
        else:
            self.refuse(f"{name}() is not repeated")

    def changing(self, tensor: Any) -> None:
        """Take note of a tensor that is about to be changed in place."""
        if self.reason is not None:
            return
        source = self._sources.get(id(tensor))
        counter = tensor._counter
        if (
            source is None
            or requires_grad(tensor)
            or view_of(tensor) is not None
            or is_inference(tensor)
            or (counter is not None and counter.sharers())
        ):
            self.refuse("it changes a tensor in place")
        else:
            self._changing = source

    def assigned(self, tensor: Any, result: Any) -> None:
        """Take the report of the values that a tensor gets in place."""
        source, self._changing = self._changing, None
        if self.reason is not None:
            return
        if source is None or source.tensor is not tensor or requires_grad(result):
            self.refuse("it changes a tensor in place")
            return
        try:
            arguments = (source, self._array_of(result))
        except UnrepeatableError as error:
            self.refuse(str(error))
            return
        self._effect(Again("a change in place", _put, arguments, {}, Same(None), True))

    def _effect(self, step: Again) -> None:
        """Add a step after which arrays have to be read again."""
        self._changed = True
        for source, place in tuple(self.loaded.items()):
            # A replay may find another array here.
            self._places.pop(id(place.sample), None)
            del self.loaded[source]
        self._find_holders()
        self.steps.append(step)

    def again(self, function: Any, args: Any, kwargs: Any, effect: bool) -> Any:
        """Call a function that a replay calls anew, without recording what it does inside.

        Args:
            function: the function.
            args: its positional arguments. Iterators are turned into lists.
            kwargs: its keyword arguments.
            effect: it changes something; otherwise it takes arrays and depends on nothing else.
        """
        args = tuple([list(x) if hasattr(x, "__next__") else x for x in args])
        name = getattr(function, "__qualname__", str(function))
        arguments: Any = ()
        keywords: Any = {}
        if self.reason is None:
            try:
                arguments = tuple([self._argument(x, effect) for x in args])
                keywords = {key: self._argument(x, effect) for key, x in kwargs.items()}
            except UnrepeatableError as error:
                self.refuse(f"{name}: {error}")
        found = current()
        install(found.replace(recorder=None, before_change=None))
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            self.reason = self.reason or f"{name} has raised {type(error).__name__}"
            raise
        finally:
            install(found)
        if self.reason is None:
            try:
                outs = self._result(result)
                step = Again(name, function, arguments, keywords, outs, effect)
                if effect:
                    self._effect(step)
                elif outs.__class__ is Place:
                    cost = 2_000 + 10 * result.size
                    self.steps.append(Compute(name, function, arguments, outs, cost))
                else:
                    self.steps.append(step)
            except UnrepeatableError as error:
                self.refuse(f"{name}: {error}")
        return result

    def _argument(self, value: Any, effect: bool) -> Any:
        if (
            effect
            and type(value).__module__.startswith(_PACKAGE)
            and not isinstance(value, Variable)
        ):
            # An optimiser, a schedule or a module, whose identity is checked at each call.
            return Same(value)
        return self.template(value, tensors=effect)

    def _result(self, result: Any) -> Any:
        """The template of what a function has returned."""
        if isinstance(result, (np.ndarray, np.generic)):
            known = self._places.get(id(result))
            return self._new(result) if known is None else known
        if isinstance(result, Variable):
            if result._batched:
                raise UnrepeatableError("it returns a batch")
            if requires_grad(result) or view_of(result) is not None:
                raise UnrepeatableError("it returns a tensor with a history")
            return Made(self._new(result._array), result._metadata)
        if type(result) is tuple:
            return tuple([self._result(part) for part in result])
        if type(result) in _CONSTANTS:
            return Same(result)
        raise UnrepeatableError(f"it returns a {type(result).__name__}")

    def reads_gradient(self, tensor: Any, grad: Any) -> None:
        """Take note that `.grad` of a tensor is read."""
        if self.reason is not None:
            return
        source = self._sources.get(id(tensor))
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
            self._gradients.append(grad)
            self.steps.append(Load(source, self._new(grad._array), True))

    # -- passes -----------------------------------------------------------------------------------

    def begin(self, task: GraphTask) -> None:
        """Watch a pass that is about to start."""
        if self.reason is not None:
            return
        self.passes += 1
        if task.streams is not None:
            self.refuse("it runs a pass over devices with streams")
        elif task.observer is not None:
            self.refuse("its passes are traced")
        elif task.recorded is None and not self._waits and awaited_here():
            self.refuse("it runs a pass on an event loop, and is no coroutine function")
        elif task.parent is not None:
            self.refuse("it runs a pass within a pass")
        elif task.recorded is None:
            known = self._passes[task] = _Pass(self)
            task.observer = known
            task.careful = True
            task.collect = partial(self._collect, known, task.collect)
        elif task.captures is None:
            self.refuse("it runs backward(create_graph=True)")
        else:
            root = task.root
            given = root.gradients if root.__class__ is GraphRoot else (task.ready[0][3],)
            for gradient in given:
                if isinstance(gradient, Variable) and is_one(gradient._array):
                    self.constants.add(self._new(gradient._array))

    def running(self) -> bool:
        """Whether a pass, or a change in place, has not ended."""
        return bool(self._passes) or self._changing is not None

    def _collect(self, known: _Pass, collect: Any, task: GraphTask, within: Any) -> Any:
        """Note the gradients of a pass that has ended, and return its result."""
        del self._passes[task]
        try:
            if self.reason is None and task.captures is None:
                self._committed(known)
            elif self.reason is None:
                known.capture(task)
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
        if tensor is None or id(tensor._array) in self._places:
            return
        if place is None or tensor._array.dtype != place.sample.dtype:
            self.refuse("grad() has made a gradient of its own")
        else:
            # `grad` returns a copy where others may hold the array.
            self.steps.append(
                Compute("copy", np.array, (place,), self._new(tensor._array), tensor._metadata.cost)
            )

    def _committed(self, known: _Pass) -> None:
        staged = []
        for node, position in known.arrived:
            if node.__class__ is AccumulateGrad:
                source = self._sources.get(id(node.variable))
                if source is None:
                    raise UnrepeatableError("it accumulates into a leaf that it has made")
                total = known.sum(node, position)
                assert total is not None
                staged.append((source, total))
                self._committed_to.add(source)
        self._changed = True
        self.steps.append(Commit(staged))

    def places(self) -> list[Place]:
        """All places."""
        return self._all

    def _check_alone(self, value: Any) -> None:
        """Raise for a returned tensor that counts its changes with one that the caller knows."""
        counter = value._counter
        if any(value is grad for grad in self._gradients):
            raise UnrepeatableError("it returns a .grad")
        if counter is None:
            return
        known = [source.tensor._counter for source in self._sources.values()]
        if any(counter is other for other in (*known, *self._counters)):
            raise UnrepeatableError("it returns two tensors of the same memory")
        self._counters.append(counter)

    # -- the end ----------------------------------------------------------------------------------

    def output(self, value: Any) -> Any:
        """The template of what the function returns."""
        if isinstance(value, Variable):
            source = self._sources.get(id(value))
            if source is not None:
                return source
            if value._edge is not None or requires_grad(value):
                raise UnrepeatableError(
                    "it returns a tensor that requires grad, whose graph a replay would not make"
                )
            if view_of(value) is not None:
                raise UnrepeatableError("it returns a view")
            known = self._outputs.get(id(value))
            if known is None:
                self._check_alone(value)
                place = self._array_of(value)
                known = Output(place, value._metadata, is_inference(value))
                self._outputs[id(value)] = known
                self._kept.append(value)
            return known
        kind = type(value)
        if kind in _CONSTANTS:
            return value
        if kind in {tuple, list} or (isinstance(value, tuple) and hasattr(value, "_fields")):
            return [kind, [self.output(part) for part in value]]
        if kind.__module__.startswith(_PACKAGE) and kind.__name__ in {
            "Results", "ResultList", "ResultDict", "Finished", "Size",
        }:  # fmt: skip
            if isinstance(value, (tuple, list)):
                return [kind, [self.output(part) for part in value]]
            if not isinstance(value, dict):
                return value
        if isinstance(value, dict) and kind.__name__ in {"dict", "ResultDict"}:
            return {kind: [(key, self.output(part)) for key, part in value.items()]}
        raise UnrepeatableError(f"it returns a value of type {kind.__name__}")


class Same:
    """A value that a replay passes on as it is, or that it compares."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class _Pass:
    """Watches one pass, as its observer: which gradients come where, and how they are computed."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        #: By target and input number, the gradients that have arrived, with what orders them.
        self.arrived: dict[Any, list[tuple[int, int, Place]]] = {}
        self.captured: list[Place | None] = []
        self._order = 0
        #: By rule, the one that reports, and the node that runs.
        self._watched: dict[Any, Any] = {}
        self._node: Any = None

    def forget(self) -> None:
        """Drop the graph: what refers to it is part of a cycle."""
        self.arrived.clear()
        self._watched.clear()
        self._node = None

    def enter(self, task: GraphTask, node: Any) -> Any:
        """Called when a node starts; makes its rule report what it computes."""
        recorder = self._recorder
        if recorder.reason is not None:
            return None
        rule = node.rule
        if node.extras is not None:
            recorder.refuse("it has hooks")
        elif rule is None:
            if node.__class__ is GraphRoot:
                edges = node.following if node.following.__class__ is tuple else (node.following,)
                try:
                    for edge, gradient in zip(edges, node.gradients, strict=True):
                        self._root(edge, gradient)
                except UnrepeatableError as error:
                    recorder.refuse(str(error))
            else:
                recorder.refuse(f"{node.name()} is not an operation of the table")
        else:
            watched = self._watched.get(rule)
            if watched is None:
                watched = self._watched[rule] = copy(rule)
                watched.run = partial(self._run, rule.run, None)
                if rule.pulls is not None:
                    watched.pulls = tuple(
                        [partial(self._run, pull, at) for at, pull in enumerate(rule.pulls)]
                    )
            # Nodes of a watched pass run one at a time.
            self._node = node
            node.rule = watched
        return rule

    def leave(self, task: GraphTask, node: Any, rule: Any) -> None:
        """Called when a node has ended."""
        if rule is not None:
            node.rule = rule

    def waited(self, task: GraphTask, nanoseconds: int) -> None:
        """Called when a pass gets its turn."""

    def _root(self, edge: Any, gradient: Any) -> None:
        recorder = self._recorder
        node, position = as_edge(edge)
        place = recorder._places.get(id(gradient))
        if place is None:
            if not is_one(gradient):
                raise UnrepeatableError("a pass starts from an array that is not known")
            place = recorder._new(gradient)
            recorder.constants.add(place)
        self.arrived.setdefault((node, position), []).append((0, 0, place))

    def sum(self, node: Any, position: int) -> Place | None:
        """The sum of the gradients that have come to an input of a node."""
        found = self.arrived.get((node, position))
        if not found:
            return None
        found.sort(key=lambda entry: entry[:2])
        total = found[0][2]
        recorder = self._recorder
        for _, _, place in found[1:]:
            value = np.add(total.sample, place.sample)
            made = recorder._new(value)
            recorder.steps.append(
                Compute("add", np.add, (total, place), made, recorder_cost(node, position))
            )
            total = made
        self.arrived[node, position] = [(0, 0, total)]
        return total

    def capture(self, task: GraphTask) -> None:
        """Note the places of the gradients that `grad` returns."""
        recorder = self._recorder
        self.captured = [None] * len(task.captured)
        for node, wanted in (task.captures or {}).items():
            for position, number in wanted:
                gradient = task.captured[number]
                if gradient is None:
                    continue
                place = self.sum(node, position)
                if place is None and node is task.root:
                    self._root(node, gradient)
                    place = self.sum(node, position)
                if place is None:
                    raise UnrepeatableError("the way of a gradient is not known")
                _check_alike(gradient, place)
                self.captured[number] = place
                recorder._places[id(gradient)] = place
                recorder._kept.append(gradient)

    def _run(self, function: Any, at: int | None, F: Any, gradient: Any, saved: Any) -> Any:
        """Call a rule, or one of its pulls, and note what it computes."""
        recorder, node = self._recorder, self._node
        if recorder.reason is not None:
            return function(F, gradient, saved)
        try:
            self._take(node, gradient)
            places = (
                recorder.template(gradient)
                if gradient.__class__ is not list
                else [None if part is None else recorder._known(part) for part in gradient]
            )
            arguments = (Same(F), places, recorder.template(saved))
        except UnrepeatableError as error:
            recorder.refuse(str(error))
            return function(F, gradient, saved)
        received = function(F, gradient, saved)
        try:
            self._give(node, function, at, arguments, received)
        except UnrepeatableError as error:
            recorder.refuse(str(error))
        return received

    def _take(self, node: Any, gradient: Any) -> None:
        """Make known the gradient that a rule is called with."""
        recorder = self._recorder
        several = node.output_metadata.__class__ is tuple
        for position, part in enumerate(gradient if several else (gradient,)):
            if part is None:
                continue
            place = self.sum(node, position)
            if place is None:
                # Only the root is handed a gradient that no node has computed.
                if self.arrived:
                    raise UnrepeatableError("the way of a gradient is not known")
                self._root(node if position == 0 else (node, position), part)
                place = self.sum(node, position)
            assert place is not None
            _check_alike(part, place)
            recorder._places[id(part)] = place
            recorder._kept.append(part)

    def _give(
        self, node: Any, function: Any, at: int | None, arguments: Any, received: Any
    ) -> None:
        recorder = self._recorder
        following = node.following
        values: tuple[Any, ...]
        if following.__class__ is not tuple:
            following, values = (following,), (received,)
        elif at is None:
            values = received if received is not None else (None,) * len(following)
        else:
            following, values = (following[at],), (received,)
        known = [value is None or id(value) in recorder._places for value in values]
        outs = [None if value is None else recorder._result(value) for value in values]
        if any(out is not None and not isinstance(out, Place) for out in outs):
            raise UnrepeatableError(f"the gradient of {node.name()} is no array")
        template = outs[0] if received.__class__ is not tuple else tuple(outs)
        if not all(known):
            recorder.steps.append(Compute(node.name(), function, arguments, template, node.cost))
        for edge, out in zip(following, outs, strict=True):
            if out is not None:
                self._order += 1
                key = tuple(as_edge(edge))
                self.arrived.setdefault(key, []).append((-node.sequence_nr, self._order, out))


def awaited_here() -> bool:
    """Whether a pass that starts here has to be awaited."""
    return _get_running_loop() is not None and not current().blocking


def is_one(gradient: Any) -> bool:
    """Whether an array is one that `backward()` and `grad()` keep for roots without a gradient."""
    return ONES.get(metadata_of(gradient, CPU)) is gradient


def recorder_cost(node: Any, position: int) -> int:
    """The expected nanoseconds of adding two gradients of a node."""
    metadata = node.output_metadata
    cost: int = (metadata[position] if metadata.__class__ is tuple else metadata).cost
    return cost


def _check_alike(gradient: Any, place: Place) -> None:
    sample = place.sample
    if (
        gradient.dtype != sample.dtype
        or gradient.shape != sample.shape
        or gradient.strides != sample.strides
    ):
        raise UnrepeatableError("a gradient is converted on its way")


def _put(tensor: Any, values: Any) -> None:
    """Change a tensor in place."""
    bump_version(tensor)
    tensor._metadata.F.assign(unlocked(tensor._array), values)


def item_at(values: Any, path: tuple[int, ...]) -> Any:
    """An item of nested lists."""
    for number in path:
        values = values[number]
    return values


def _has_gradient(tensor: Any) -> bool:
    meta = tensor._autograd
    return meta is not None and meta.grad is not None


def places_in(template: Any) -> list[Place]:
    """The places of a template, in order."""
    if template.__class__ is Place:
        return [template]
    if template.__class__ in {Output, Made}:
        return [template.place]
    if isinstance(template, (tuple, list)):
        return [place for part in template for place in places_in(part)]
    if isinstance(template, dict):
        return [place for part in template.values() for place in places_in(part)]
    if isinstance(template, slice):
        return places_in((template.start, template.stop, template.step))
    return []


def _moves(template: Any) -> bool:
    """Whether a template holds a place."""
    if isinstance(template, (tuple, list)):
        return any(map(_moves, template))
    if isinstance(template, slice):
        return any(map(_moves, (template.start, template.stop, template.step)))
    return isinstance(template, (Place, Source, Made))


def _line() -> str:
    """The innermost line of code outside of this package."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(_PACKAGE):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return "in a pass"
