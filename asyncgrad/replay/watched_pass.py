"""Watches the passes of a recorded call: which gradients come where, and how they are computed."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from asyncgrad.autograd.arguments import ONES
from asyncgrad.autograd.function_node import FunctionNode
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.locks import RLock, is_held_here
from asyncgrad.core.node import (
    MAX_SEQUENCE_NR,
    Edge,
    GraphRoot,
    as_stored,
    first_metadata,
    metadata_at,
    name_of,
    stored_edges,
)
from asyncgrad.core.saved_values import check_saved
from asyncgrad.core.variable import AccumulateGrad
from asyncgrad.devices import CPU
from asyncgrad.nn.backward_hooks import Passage
from asyncgrad.ops.device_check import device_of
from asyncgrad.ops.namespace import metadata_of
from asyncgrad.replay.arrays import KnownArrays
from asyncgrad.replay.device_arrays import is_array
from asyncgrad.replay.memory import sum_in
from asyncgrad.replay.steps import Again, Compute, Place, Same, UnrepeatableError
from asyncgrad.replay.watched_rule import saved_in, steps_of


class WatchedPass:
    """Watches one pass: the rules of its nodes report, and as its observer it sees other nodes."""

    def __init__(self, recorder: KnownArrays, *, adds: bool = False) -> None:
        """Start without gradients.

        Args:
            recorder: takes the steps.
            adds: gradients are summed here, as there is no pass that does it: see `run`.
        """
        self._recorder = recorder
        self._adds = adds
        #: The gradients that have arrived, each with a number by which they are ordered, by where
        #: they go: see `target_of`.
        self.arrived: dict[Any, list[tuple[int, Place]]] = {}
        self.captured: list[Place | None] = []
        #: The steps that call user code, each with whether the code was awaited; and how many calls
        #: of user code run now.
        self.called: list[tuple[Again, bool]] = []
        self.running = 0
        #: The leaves whose gradients are committed already.
        self.committed: set[Any] = set()
        #: What rules have been called with and have returned, as far as it is not yet noted.
        self._log: deque[Any] = deque()
        #: Held while that is noted: a pass may run in a thread, and the call goes on beside it.
        self._noting = RLock()
        #: Gradients that were captured before hooks ran, by node and input number.
        self._early: dict[Any, Place] = {}
        #: For each node with hooks and each of its edges: the entry of its gradient in `arrived`.
        self._leaving: dict[Any, dict[int, Any]] = {}
        #: The namespace that rules compute with.
        self._F = Same(None)
        #: Gradients that an eager pass may add into.
        self._owned: set[Place | None] = set()

    def forget(self) -> None:
        """Drop the graph, which is part of a cycle."""
        self._log.clear()
        self.arrived.clear()
        self._leaving.clear()

    def enter(self, task: GraphTask, node: Any) -> Any:
        """Called when a node starts that is no operation of the table, or has hooks."""
        recorder = self._recorder
        ruled = node.rule is not None or node._form is not None or node.__class__ is AccumulateGrad
        if recorder.reason is not None or ruled:
            return None
        if node.__class__ is not GraphRoot:
            if not isinstance(node, (FunctionNode, Passage)):
                recorder.refuse(f"{name_of(node)} is not an operation of the table")
        else:
            following = node.following
            edges = following if following.__class__ is tuple else (following,)
            try:
                for edge, gradient in zip(edges, node.gradients, strict=True):
                    self._root(edge, gradient)
            except UnrepeatableError as error:
                recorder.refuse(str(error))
        return None

    def leave(self, task: GraphTask, node: Any, token: Any) -> None:
        """Called when such a node has ended."""

    def waited(self, task: GraphTask, nanoseconds: int) -> None:
        """Called when a pass gets its turn."""

    def _root(self, edge: Any, gradient: Any) -> None:
        recorder = self._recorder
        place = recorder.known.get(id(gradient))
        if place is None:
            if not is_one(gradient):
                raise UnrepeatableError("a pass starts from an array that is not known")
            place = recorder.new(gradient)
            recorder.constants.add(place)
        self.arrive(edge, place)

    def arrive(self, edge: Any, place: Place) -> None:
        """Note a gradient that comes from the root of the pass, which is its latest node."""
        self.arrived.setdefault(target_of(edge), []).append((-MAX_SEQUENCE_NR, place))

    def run(self, node: Any, wanted: list[bool]) -> None:
        """Run a node outside of a pass, if a gradient has come to it.

        Args:
            node: the node.
            wanted: for each of its edges whether its gradient is wanted.
        """
        places = [self.sum(node, position) for position in range(node.num_inputs)]
        if all(place is None for place in places):
            return
        gradients = tuple([None if place is None else place.sample for place in places])
        rule, F, saved = node.rule or node._form, first_metadata(node).F, check_saved(node)
        gradient = gradients if node.output_metadata.__class__ is tuple else gradients[0]
        if all(wanted):
            self.call(node, rule, None, F, gradient, saved)
        else:
            for at in range(len(rule.pulls)):
                if wanted[at]:
                    self.call(node, rule, at, F, gradient, saved)
        self.settle()

    # -- user code --------------------------------------------------------------------------------

    def take(self, task: GraphTask, node: Any, gradients: Any) -> None:
        """Give places to the gradients that user code gets."""
        self._given(node, gradients)
        info = task.exec_info
        if info is not None and node in info.needed:
            for position, _ in info.captures.get(node, ()):
                place = self.sum(node, position)
                if place is not None:
                    self._early.setdefault((node, position), place)

    def replaced(self, node: Any, places: list[Place | None]) -> None:
        """Note the gradients of a node's outputs after its hooks."""
        for position, place in enumerate(places):
            edge = Edge(node, position) if position else node
            self.arrived.pop(edge, None)
            if place is not None:
                self.arrived[edge] = [(0, place)]

    def left(self, node: Any, places: list[Place | None]) -> None:
        """Note the gradients that a user's node, or hooks after a node, have returned."""
        known = self._leaving.pop(node, {})
        edges = map(target_of, stored_edges(node))
        for number, (edge, place) in enumerate(zip(edges, places, strict=True)):
            entry = None if place is None else (-node.sequence_nr, place)
            if number in known:
                # In the place of what the node has returned before these hooks.
                before = known[number]
                found = self.arrived[edge]
                at = next((n for n, one in enumerate(found) if one is before), len(found))
                found[at : at + 1] = [] if entry is None else [entry]
            elif entry is not None:
                self.arrived.setdefault(edge, []).append(entry)
            if entry is not None and node.extras is not None:
                self._leaving.setdefault(node, {})[number] = entry

    def passed_on(self, node: Any, gradients: tuple[Any, ...]) -> None:
        """Note the gradients of a node that has passed on its own, or zeros."""
        places: list[Place | None] = []
        for gradient in gradients:
            place = self._recorder.known.get(id(gradient))
            if place is None:
                place = self._recorder.new(gradient)
                self._recorder.constants.add(place)
            places.append(place)
        self.left(node, places)

    def accumulated(self, node: Any) -> None:
        """Note that the gradient of a leaf is committed already."""
        self.committed.add(node)

    # -- sums -------------------------------------------------------------------------------------

    def ordered(self) -> dict[Any, list[Place]]:
        """The gradients by where they go, in the order in which they are added."""
        return {
            edge: [place for _, place in sorted(found, key=itemgetter(0))]
            for edge, found in self.arrived.items()
        }

    def sum(self, node: Any, position: int, like: Any = None) -> Place | None:
        """The sum of the gradients that have come to an input of a node.

        Args:
            node: the node.
            position: the number of the input.
            like: the sum that the pass has made, in the memory of one of the gradients.
        """
        edge = Edge(node, position) if position else node
        found = self.arrived.get(edge)
        if not found:
            return None
        if len(found) == 1:
            return found[0][1]
        found.sort(key=itemgetter(0))
        total = found[0][1]
        recorder = self._recorder
        device = device_of(total.sample)
        for _, place in found[1:]:
            last = like is not None and place is found[-1][1]
            if device is None or self._adds:
                function: Any = np.add if device is None else device.xp.add
                value = function(total.sample, place.sample)
                target = like if last else self._added_into(total, place)
                if target is not None and value.strides != target.strides:
                    placed = partial(sum_in, target.dtype, target.strides)
                    # For a part of a larger array, this fails; its layout may not matter.
                    with suppress(ValueError):
                        value, function = placed(total.sample, place.sample), placed
            else:
                # The pass has made this sum already. Its result is the sample, so that the device
                # need not add once more.
                function, value = device.xp.add, like if last else total.sample
            made = recorder.new(value)
            self._owned.add(made)
            cost = metadata_at(node, position).cost
            recorder.steps.append(
                Compute("a sum of gradients", function, (total, place), made, cost)
            )
            total = made
        self.arrived[edge] = [(0, total)]
        return total

    def _added_into(self, total: Place, place: Place) -> Any:
        """The array that an eager pass would make a sum in; None if it would make another."""
        if device_of(total.sample) is None and total.sample.dtype == place.sample.dtype:
            for one in (total, place):
                if one in self._owned and one.sample.__class__ is np.ndarray:
                    return one.sample
        return None

    def capture(self, task: GraphTask) -> None:
        """Note the places of the gradients that `grad` returns."""
        self.captured = [None] * len(task.captured)
        for node, wanted in (task.captures or {}).items():
            for position, number in wanted:
                gradient = task.captured[number]
                if gradient is None:
                    continue
                place = self._early.get((node, position)) or self.sum(node, position, gradient)
                if place is None and node is task.root:
                    self._root(as_stored(Edge(node, position)), gradient)
                    place = self.sum(node, position)
                if place is None:
                    raise UnrepeatableError("the way of a gradient is not known")
                self.captured[number] = place
                if gradient is not place.sample:
                    self._use(gradient, place)

    def call(self, node: Any, rule: Any, at: int | None, F: Any, gradient: Any, saved: Any) -> Any:
        """Call a node's rule, or its pull number `at`, and keep what `settle` needs."""
        received = (rule.run if at is None else rule.pulls[at])(F, gradient, saved)
        recorder = self._recorder
        if recorder.reason is None:
            self._log.append((node, rule, at, F, gradient, saved, received))
            if recorder.strict:
                # An error has to come before gradients are added.
                self.settle()
        return received

    def settle(self) -> None:
        """Note what rules have computed since this was last called."""
        recorder = self._recorder
        if is_held_here(self._noting):
            recorder.refuse("other code interrupts the recording of a pass")
        with self._noting:
            try:
                if recorder.reason is None:
                    self._note()
            except UnrepeatableError as error:
                recorder.refuse(str(error))

    def _note(self) -> None:
        """Note where gradients go that rules have returned, and how to compute them again."""
        recorder, arrived, owned, log = self._recorder, self.arrived, self._owned, self._log
        known, views = recorder.known, recorder.views
        while log:
            node, rule, at, F, gradient, saved, received = log.popleft()
            found = arrived.get(node)
            place: Any = None if found is None or len(found) > 1 else found[0][1]
            if place is None or place.sample is not gradient:
                place = self._given(node, gradient)
            if F is not self._F.value:
                self._F = Same(F)
            arguments = (self._F, place, saved_in(recorder, node, saved))
            following, fresh = node.following, rule.fresh
            values: Any = ((following, received),)
            if following.__class__ is not tuple:
                fresh = fresh or (rule.passes and place in owned)
            elif at is not None:
                values = ((following[at], received),)
            elif received is None:
                continue
            else:
                values = zip(following, received, strict=True)
            outs: list[Place | None] = []
            new: list[Place] = []
            for edge, value in values:
                if value is None:
                    outs.append(None)
                    continue
                out = recorder.found(value) if views else known.get(id(value))
                if out is None:
                    out = self._made(node, value)
                    new.append(out)
                entry = -node.sequence_nr, out
                target = target_of(edge) if edge.__class__ is Edge else edge
                if target in arrived:
                    arrived[target].append(entry)
                else:
                    arrived[target] = [entry]
                if node.extras is not None:
                    self._leaving.setdefault(node, {})[len(outs) + (at or 0)] = entry
                outs.append(out)
            if fresh:
                owned.update(outs)
            if new:
                name = rule.name if rule.variant is None else name_of(node)
                function = rule.run if at is None else rule.pulls[at]
                made = tuple(outs) if received.__class__ is tuple else outs[0]
                step = Compute(name, function, arguments, made, node.cost)
                if rule.over is None and not rule.apart:
                    recorder.steps.append(step)
                else:
                    recorder.steps += steps_of(step, rule, at, received, outs, new)

    def _made(self, node: Any, gradient: Any) -> Place:
        """A place for a gradient that a node has computed."""
        if gradient.__class__ is not np.ndarray and not is_array(gradient):
            raise UnrepeatableError(f"the gradient of {name_of(node)} is no array")
        return self._recorder.new(gradient)

    def _given(self, node: Any, gradient: Any) -> Any:
        """The template of the gradients that a rule, or code of the user's, is called with."""
        several = node.output_metadata.__class__ is tuple
        found: list[Any] = []
        for position, part in enumerate(gradient if several else (gradient,)):
            found.append(None if part is None else self._place(node, position, part))
        return tuple(found) if several else found[0]

    def _place(self, node: Any, position: int, gradient: Any) -> Place:
        """The place of a gradient that has come to an input of a node."""
        edge = Edge(node, position) if position else node
        if edge not in self.arrived:
            # Only the root is handed a gradient that no node has computed.
            if self.arrived:
                raise UnrepeatableError("the way of a gradient is not known")
            self._root(edge, gradient)
        place = self.sum(node, position, gradient)
        assert place is not None
        if gradient is not place.sample:
            self._use(gradient, place)
        return place

    def _use(self, gradient: Any, place: Place) -> None:
        """Make the pass's own array the sample of a place: other arrays may be views of it."""
        recorder, sample = self._recorder, place.sample
        if (
            gradient.dtype != sample.dtype
            or gradient.shape != sample.shape
            or gradient.strides != sample.strides
        ):
            raise UnrepeatableError("a gradient is converted on its way")
        recorder.keep(sample)
        place.sample = gradient
        recorder.has_views = recorder.has_views or getattr(gradient, "base", None) is not None
        recorder.known[id(gradient)] = place


def target_of(edge: Any) -> Any:
    """What a stored edge leads to: the node for its first input, otherwise the edge."""
    return as_stored(edge) if edge.__class__ is Edge else edge


def is_one(gradient: Any) -> bool:
    """Whether an array is a kept gradient of ones, which passes give to roots of one element."""
    if gradient.__class__ is not np.ndarray:
        return False
    return ONES.get(metadata_of(gradient, CPU)) is gradient
