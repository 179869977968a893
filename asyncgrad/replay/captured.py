"""Steps on a CUDA device that are put into a CUDA graph, and replayed by one launch.

The first replay takes them one by one, and the second captures them. Arrays that are the same at
each call, such as weights, are read where they are. Others are copied to the graph's memory, and
results to new arrays, because the next launch overwrites both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from asyncgrad.core.locks import RLock, is_held_here
from asyncgrad.devices import current_stream
from asyncgrad.errors import AcceleratorError, OutOfMemoryError
from asyncgrad.ops.registry import OPS
from asyncgrad.replay.device_arrays import is_host_work
from asyncgrad.replay.memory import ends_of, last_uses
from asyncgrad.replay.steps import MADE, Compute, Load, Place, filled, lists_in

#: How often steps are captured again because an array was replaced that had always been the same.
_MOST = 4


def with_graphs(
    steps: list[Any], outputs: Any, families: Any, device: Any
) -> tuple[list[Any], list[CapturedSteps]]:
    """Replace steps that can be captured together by one step each; returns all, and these."""
    ends = ends_of(steps, outputs)
    lists = lists_in(steps)
    # These tensors most often have the same array in each call.
    loaded = {x.out for x in steps if x.__class__ is Load and x.source.argument is None}
    found: list[Any] = []
    groups: list[CapturedSteps] = []
    end = 0
    for works, part in groupby(steps, partial(is_work_of_the_device, lists=lists)):
        together = [*part]
        end += len(together)
        group = CapturedSteps(device, together, ends, end, families) if works else None
        if group is not None and group.pays(families, loaded):
            groups.append(group)
            call = Compute("graph", group, group.inputs, group.outs, together[0].cost)
            together = [call, *group.views]
        found += together
    return found, groups


def is_work_of_the_device(step: Any, lists: set[Place]) -> bool:
    """Whether a step only puts work on arrays of the device into the stream."""
    return (
        step.__class__ is Compute
        and not is_host_work(step.function)
        # It takes values from the host that may be others at each call.
        and step.name != MADE
        and all(place in lists or _is_on_device(place) for place in (*step.read, *step.made))
    )


def _is_on_device(place: Place) -> bool:
    """Whether there is an array of the device, and not one of the host, as all constants are."""
    return place.sample is None and place.is_array and not place.on_host


def inputs_of(steps: list[Any]) -> tuple[list[Place], list[Place]]:
    """The places that steps read and don't make, and those that they make."""
    inputs: dict[Place, None] = {}
    made: dict[Place, None] = {}
    for step in steps:
        inputs.update(dict.fromkeys(x for x in step.read if x not in made))
        # A function may return an array that it is given.
        made.update(dict.fromkeys(x for x in step.made if x not in inputs))
    return list(inputs), list(made)


def are_apart(families: Any, inputs: Iterable[Place], outs: Sequence[Place]) -> bool:
    """Whether results can be copied: none is a view of what is read, or of another result."""
    roots = [families.of(place) for place in outs]
    return len(set(roots)) == len(roots) and {*map(families.of, inputs)}.isdisjoint(roots)


def without_views(
    steps: list[Any], outs: list[Place], families: Any
) -> tuple[list[Place], list[Compute]]:
    """The results that are copied; and the steps that make the others, as views of these.

    Copies of both would not share memory, so these steps are taken with the copies.
    """
    results, known = set(outs), set[Place]()
    views: list[Compute] = []
    for step in steps:
        op = OPS.get(step.name) if step.__class__ is Compute else None
        memory = {families.of(x) for x in (*step.read, *step.made)}
        if op is not None and op.view and len(memory) == 1 and known.issuperset(step.read):
            views.append(step)
            known.update(step.made)
        else:
            known.update(results.intersection(step.made))
    found: list[Compute] = []
    for step in reversed(views):
        if step.outs in results:
            found.append(step)
            results.update(step.read)
    made = {step.outs for step in found}
    return [place for place in outs if place not in made], found[::-1]


def take_steps(
    steps: list[Any], over: list[list[Place]], known: dict[Any, Any], other: Any = None
) -> None:
    """Take steps one by one, and put results beside the `known` arrays.

    What is `over` is dropped after each step. `other` takes a step that is no operation.
    """
    for step, dropped in zip(steps, over, strict=False):
        if step.__class__ is Compute:
            result = step.function(*filled(step.arguments, known))
            outs = (step.outs,) if step.outs.__class__ is Place else step.outs
            results = (result,) if step.outs.__class__ is Place else result
            known.update(zip(outs, results, strict=True))
        else:
            other(step)
        for place in dropped:
            known.pop(place, None)


class DeviceGraph:
    """A CUDA graph, which is captured when it is first needed. Abstract."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._lock = RLock()
        self._graph: Any = None
        #: The arrays that the graph reads, and the stream in which its own ones were allocated.
        self._targets: list[Any] = []
        self._made_in: Any = None
        self._captures = 0
        #: The stream of the last launch, and an event that was recorded after it.
        self._last: Any = None
        #: Why there is no graph, None while there may be one.
        self.reason: str | None = None

    @property
    def is_captured(self) -> bool:
        """Whether there is a graph."""
        return self._graph is not None

    def fate(self, what: str, verb: str = "are") -> str:
        """What becomes of some work, for `explain()`."""
        if self.reason is None:
            return f"{what} {verb} one CUDA graph"
        return f"{what} are no CUDA graph: {self.reason}"

    def _tries(self, capture: Callable[..., None], *args: Any) -> bool:
        """Have the graph captured; whether there is one then."""
        try:
            capture(*args)
        except (NotImplementedError, AcceleratorError, OutOfMemoryError) as error:
            self.reason = str(error)
            self._graph = None
            self._targets.clear()
        return self.is_captured

    def _capture_in(self, function: Callable[..., Any], targets: list[Any]) -> None:
        """Capture a function of arrays that the graph reads."""
        self._made_in = current_stream(self._device)
        self._targets = targets
        graph = self._device.capture(function, *targets)
        if any(not (a.flags.c_contiguous or a.flags.f_contiguous) for a in graph.result):
            raise NotImplementedError("a result has a layout that a copy would not have")
        self._graph = graph

    def _launch(
        self, stream: Any, arrays: tuple[Any, ...], results: Any = None, prepare: Any = None
    ) -> Any:
        """Launch the graph with arrays that come in; returns copies of what it computes.

        `results` are where the copies go. `prepare` is called when the last launch has no more use
        for the graph's memory.
        """
        xp = self._device.xp
        if self._last is not None and self._last[0] is not stream:
            stream.wait_event(self._last[1])
        for target, array in zip(self._targets, arrays, strict=True):
            if target is not array:
                xp.copyto(target, array)
        if prepare is not None:
            prepare()
        self._graph.launch(stream)
        if results is None:
            results = tuple(map(xp.array, self._graph.result))
        else:
            for result, array in zip(results, self._graph.result, strict=True):
                xp.copyto(result, array)
        self._last = stream, stream.record_event()
        if stream is not self._made_in:
            stream.keep(*self._targets)
        return results


class CapturedSteps(DeviceGraph):
    """Steps that follow one another, as one function of arrays."""

    def __init__(
        self, device: Any, steps: list[Any], ends: dict[Place, int], end: int, families: Any
    ) -> None:
        super().__init__(device)
        self._steps = steps
        inputs, made = inputs_of(steps)
        results = [place for place in made if ends[place] >= end]
        #: What later steps read: places that the graph makes, and steps that take views of these.
        outs, self.views = without_views(steps, results, families)
        self.inputs, self.outs = tuple(inputs), tuple(outs)
        self._over = last_uses(steps, ends_of(steps, self.outs))
        #: The arrays of the last call; for each input whether it was always the same array.
        self._arrays: Any = None
        self._constant = [True] * len(self.inputs)

    def pays(self, families: Any, loaded: set[Place]) -> bool:
        """Whether the steps may be captured, and are more than copies of what is not `loaded`."""
        if any(not place.is_array for place in (*self.inputs, *self.outs)):
            return False
        copied = set(self.inputs) - loaded
        many = len(self._steps) > len(copied) + len(self.outs)
        return many and are_apart(families, self.inputs, self.outs)

    def words(self) -> str:
        """What becomes of the steps, for `explain()`."""
        return self.fate(f"{len(self._steps)} operations")

    def __call__(self, *arrays: Any) -> Any:
        """Launch the graph, capture it first, or take the steps one by one."""
        if self.reason is None and not is_held_here(self._lock):
            with self._lock:
                if self._is_ready(arrays):
                    return self._launch(current_stream(self._device), arrays)
        return self._take(*arrays)

    def _take(self, *arrays: Any) -> tuple[Any, ...]:
        """Take the steps one by one."""
        known: dict[Any, Any] = dict(zip(self.inputs, arrays, strict=True))
        take_steps(self._steps, self._over, known)
        return tuple([known[place] for place in self.outs])

    def _is_ready(self, arrays: tuple[Any, ...]) -> bool:
        """Whether there is a graph for these arrays; captures one if this is not the first call."""
        known, self._arrays = self._arrays, arrays
        if known is None:
            return False
        constant = [a and x is y for a, x, y in zip(self._constant, arrays, known, strict=True)]
        if self._graph is not None and constant == self._constant:
            return True
        self._constant = constant
        self._captures += 1
        if not self._tries(self._capture, arrays):
            self._arrays = None
        return self.is_captured

    def _capture(self, arrays: tuple[Any, ...]) -> None:
        if self._captures > _MOST:
            raise NotImplementedError("its arrays are others at each call")
        copy = self._device.xp.array
        pairs = zip(arrays, self._constant, strict=True)
        self._capture_in(self._take, [x if constant else copy(x) for x, constant in pairs])
