"""Records the passes of a call, and the user code that runs in them.

A pass that records itself, as `grad(create_graph=True)` makes one, consists of ops like any others.
"""

from __future__ import annotations

from asyncio.events import _get_running_loop
from functools import partial
from threading import get_ident
from typing import Any

from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.modes import current
from asyncgrad.core.node import GraphRoot, as_edge, stored_edges
from asyncgrad.core.node_streams import stream_of
from asyncgrad.core.variable import AccumulateGrad, Variable
from asyncgrad.ops.device_check import device_of
from asyncgrad.replay.changes import OUTGROWN, Changes
from asyncgrad.replay.device_arrays import Constant, copying
from asyncgrad.replay.steps import CHANGED, COPY, Commit, Place, Recorded, UnrepeatableError, report
from asyncgrad.replay.users_code import UsersCode, check_waits, record_function
from asyncgrad.replay.watched_pass import WatchedPass, is_one

#: Why a pass can't be recorded that goes through the graph of an argument.
GRAPH_OF_ARGUMENT = "it runs a pass through the graph of an argument"


class Passes(Changes):
    """Notes what passes compute and commit, and what they call."""

    def __init__(self, call: Recorded) -> None:
        super().__init__(call)
        self._thread = get_ident()
        modes = current()
        self.inference = modes.inference
        self._scope = modes.streams
        self._request = modes.priority, modes.deadline
        #: Passes that record themselves.
        self._recorded: list[GraphTask] = []

    @report
    def begin(self, task: GraphTask) -> None:
        """Watch a pass that is about to start."""
        self.passes += 1
        if task.observer is not None or current().anomaly:
            self.refuse("its passes are traced, or in anomaly mode")
        elif (task.priority, task.deadline) != self._request:
            self.refuse("it gives a pass a priority or deadline of its own")
        elif self._leads_to_argument(task.root):
            self.refuse(GRAPH_OF_ARGUMENT)
        elif (
            task.recorded is None
            and not self.call.waits
            and awaited_here()
            # In another thread, the portal runs it while the caller waits.
            and get_ident() == self._thread
        ):
            self.refuse("it runs a pass on an event loop, and is no coroutine function")
        elif task.parent is not None:
            self.refuse("it runs a pass within a pass")
        elif self.outgrown and any(map(self.is_outgrown, behind(task.root))):
            self.refuse(OUTGROWN)
        elif self.call.waits and not self.call.reached.values_hold():
            # Other tasks may read it while the pass is awaited, even if the call undoes the change.
            self.refuse(CHANGED)
        elif task.recorded is None:
            known = self._passes[task] = UsersCode(self)
            task.watch = known
            if self.devices:
                streams = map(stream_of, behind(task.root))
                if any(x is not None and x is not self._stream(x.device) for x in streams):
                    # A replay knows only the current stream.
                    self.refuse("it runs a pass through a node of another stream")
            task.collect = partial(self._collect, known, task.collect)
        elif not task.captures:
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

    def _leads_to_argument(self, root: Any) -> bool:
        """Whether a root leads to the graph of an argument."""
        edges = [edge for x in self.call.arguments if (edge := x._edge) is not None]
        return bool(edges) and not {as_edge(x).node for x in edges}.isdisjoint(behind(root))

    def watch_of(self, task: GraphTask) -> Any:
        """The object that takes reports of user code in a pass; None for a pass of another call."""
        known = self._passes.get(task)
        return UsersCode(self) if known is None and task in self._recorded else known

    def function(self, function: Any, args: tuple[Any, ...]) -> Any:
        """Call a `Function`, and note it."""
        return record_function(self, function, args)

    def shows_node(self, tensor: Any) -> None:
        """Take note that Python sees a tensor's node, which for an argument differs by call."""
        if tensor._edge is not None and id(tensor) in self.sources:
            self.refuse("it uses .grad_fn of an argument")

    def _stream(self, device: Any) -> Any:
        """The stream of a device that is current in the recorded call."""
        return device.stream_in(self._scope)

    def running(self) -> bool:
        """Whether a pass, or a change in place, has not ended."""
        return bool(self._passes) or self._changing is not None

    def leave_passes(self) -> None:
        """Stop watching passes that have not ended properly, such as one that has failed."""
        for known in self._passes.values():
            known.forget()

    def _collect(self, known: WatchedPass, collect: Any, task: GraphTask, within: Any) -> Any:
        """Note the gradients of a pass that has ended, and return its result."""
        if self._passes.pop(task, None) is None:
            # The call has ended first, with an error or without awaiting this pass.
            known.forget()
            return None if collect is None else collect(task, within)
        try:
            if self.reason is None and not task.captures:
                self._committed(known, task)
            elif self.reason is None:
                captured = [None if x is None else known.place(x) for x in task.captured]
                self._end([], known, task)
            if self.reason is None:
                check_waits(self.steps, known.called)
        except UnrepeatableError as error:
            self.refuse(str(error))
        finally:
            known.forget()
        result = None if collect is None else collect(task, within)
        if self.reason is None and task.captures and result is not None:
            found = result.values() if isinstance(result, dict) else result
            for tensor, place in zip(found, captured, strict=True):
                self._captured(tensor, place)
        return result

    def _captured(self, tensor: Any, place: Place | None) -> None:
        if tensor is None or self.found(tensor._array) is not None:
            return
        if place is None or tensor._array.dtype != place.dtype:
            self.refuse("grad() has made a gradient of its own")
        else:
            # `grad` returns a copy where others may hold the array.
            array = tensor._array
            self.compute(COPY, copying(array), (place,), array, tensor._metadata.cost)

    @report
    def constant(self, array: Any) -> None:
        """Take note of an array whose values depend on Python values alone."""
        if device_of(array) is None:
            self.constants.add(self.new(array))
        else:
            self.compute("constant", Constant(array), (), array)

    def _end(self, staged: list[Any], known: WatchedPass, task: GraphTask) -> None:
        """Note that a pass ends, if that makes a difference to what comes after it."""
        if task.streams is not None:
            self.steps.append(Commit(staged, streamed=True, waits=not task.wait_enqueued))
        elif staged or known.called:
            # User code in the next pass runs in another context.
            self.steps.append(Commit(staged))

    def _committed(self, known: WatchedPass, task: GraphTask) -> None:
        staged = []
        for variable, gradient in known.staged:
            source, total = self.sources.get(id(variable)), known.place(gradient)
            if source is None:
                self._commit_to_own(variable, total)
            else:
                staged.append((source, total))
                self._committed_to.add(source)
        self._changed = self._changed or bool(staged)
        self._end(staged, known, task)
        if known.committed:
            for node in known.committed:
                self._committed_to.add(self.sources[id(node.variable)])
            self.load_again()


def behind(root: Any) -> list[Any]:
    """The nodes that a root leads to, itself the first, without those of leaves."""
    found, nodes = {root, None}, [root]
    for node in nodes:
        for stored in stored_edges(node):
            target = as_edge(stored).node
            if target.__class__ is not AccumulateGrad and target not in found:
                found.add(target)
                nodes.append(target)
    return nodes


def awaited_here() -> bool:
    """Whether a pass that starts here has to be awaited."""
    return _get_running_loop() is not None and not current().blocking
