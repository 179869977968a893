"""A pass whose nodes put their work into the streams of devices.

A node runs on the stream of its forward operation. Where gradients pass from one stream to another,
the streams wait for each other on the device and the host does not wait: the pass tracks work that
has been *issued*, not done. `_meet` orders the streams, in PyTorch's five cases.

Known ugliness: a pass whose roots are on the CPU begins in `GraphTask.run`, and comes here when it
meets the copy that leads to a device (`GraphTask.enter_streams`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from heapq import heappop
from types import coroutine
from typing import Any

from asyncgrad.aliases import (
    Device,
    Gradient,
    NodeGradient,
    Owned,
    Saved,
    Steps,
    StoredEdge,
    Stream,
    StreamScope,
    Value,
)
from asyncgrad.core.delivery import deliver
from asyncgrad.core.modes import Modes, current, install
from asyncgrad.core.node import Edge, GraphRoot, Node, OpNode, as_edge, metadata_at, stored_edges
from asyncgrad.core.node_streams import stream_of
from asyncgrad.core.pass_state import PassState
from asyncgrad.core.prepared import Prepared, prepare
from asyncgrad.core.run_node import apply_rule, modes_within, run_node, wanted_rule
from asyncgrad.core.states import Resumed
from asyncgrad.core.variable import AccumulateGrad, Variable, gradient_edge

#: How many nodes of a stream lie between two marks, and how many marks the host may be ahead.
MARK_EVERY = 64
MARKS_AHEAD = 16
#: How many leaves' gradients are prepared before the event loop gets a turn.
LEAVES_IN_TURN = 8


@coroutine
def next_turn() -> Generator[None, None, None]:
    """Wait for the next turn of the loop, as `sleep(0)` does."""
    yield


def _keep(node: Node, stream: Stream, gradient: NodeGradient, saved: Saved) -> None:
    """Keep what a node reads until its stream has read it: the memory may be another stream's."""
    if stream is not None and stream.device.side_streams:
        stream.keep(gradient, saved)
    if node.output_metadata.__class__ is tuple:
        for metadata, value in zip(node.output_metadata, gradient, strict=True):
            if metadata is None or value is None or not metadata.device.side_streams:
                continue
            if stream is None or metadata.device is not stream.device:
                metadata.device.default_stream.keep(value)


class PassStreams:
    """The streams that a pass uses, and what it notes to order the work in them."""

    __slots__ = ("_ahead", "_followed", "_issued", "_records", "callers", "leaves",
                 "prepared", "running", "settled", "used")  # fmt: skip

    def __init__(self, scope: StreamScope) -> None:
        #: The caller's scope of current streams.
        self.callers = scope
        #: Streams with work of the pass, in order of first use; and those that compute leaves'
        #: gradients or results.
        self.used: dict[Any, None] = {}
        self.leaves: dict[Any, None] = {}
        #: The new `.grad`s to commit.
        self.prepared: list[Prepared] = []
        #: Leaves' nodes, held because they know the leaves' streams.
        self._followed: list[Node] = []
        #: `settle` has been called.
        self.settled = False
        #: The record of modes for nodes, by stream.
        self._records: dict[Any, Modes] = {}
        #: The node that `run_ordinary` runs.
        self.running: OpNode | None = None
        #: By stream: nodes issued since its last mark, and its marks that are still to be reached.
        self._issued: dict[Any, int] = {}
        self._ahead: dict[Any, list[Any]] = {}

    def caller_stream(self, device: Device) -> Stream:
        """The stream of a device that was current where the pass was started."""
        return device.stream_in(self.callers)

    def begin(self, task: PassState) -> None:
        """Make the root's stream wait for the caller's stream, which makes the root's gradient."""
        stream = stream_of(task.root)
        if stream is not None:
            stream.wait_stream(self.caller_stream(stream.device))

    def copies_follow_caller(self, device: Device) -> None:
        """Make copies to a device wait for the caller's work there."""
        stream = device.default_stream
        self.used[stream] = None
        stream.wait_stream(self.caller_stream(device))

    def follow(self, variable: Variable, stream: Stream) -> None:
        """Make a leaf's stream follow the one in which a gradient given for the leaf was made."""
        node: Node = as_edge(gradient_edge(variable)).node  # type: ignore[assignment]
        if not hasattr(node, "stream"):
            node.stream = stream
        node.stream.wait_stream(stream)
        self._followed.append(node)

    # -- running ----------------------------------------------------------------------------------

    def run_ordinary(self, task: PassState, budget: int) -> int | None:
        """Run the next nodes while they are ordinary ones of a device's only stream.

        The pass's context and the stream are entered once for all of them. Returns what is left of
        the budget, None if the next node is not ordinary.
        """
        node = task.ready[0][2]
        stream = stream_of(node)
        if not self._is_ordinary(task, stream):
            return None
        self.running = node
        self.used[stream] = self.leaves[stream] = None
        return task.within(  # type: ignore[no-any-return]
            stream.device.run_in, stream, self._run_chain, task, stream, budget
        )

    def _run_chain(self, task: PassState, stream: Stream, budget: int) -> int:
        """`run_ordinary` within the pass's context and the stream."""
        self.install(task, stream)
        ready, cost = task.ready, stream.device.launch_cost
        node = gradient = received = None
        try:
            while True:
                _, _, node, gradient, _ = heappop(ready)
                budget -= cost
                self.running = node
                received, fresh = apply_rule(
                    task, node, gradient, wanted_rule(task, node), task.recorded
                )
                self._note_issued(stream)
                deliver(task, node, stored_edges(node), received, fresh)
                if budget < 0 or task.inbox or not ready or not self._is_ordinary(task, stream):
                    return budget
        finally:
            node = gradient = received = None  # See core.frames.

    def _is_ordinary(self, task: PassState, stream: Stream) -> bool:
        """Whether the next node is an ordinary one, in a device's only stream."""
        _, _, node, gradient, _ = task.ready[0]
        return (
            task.is_ordinary(node)
            and gradient.__class__ is not Resumed
            and stream is not None
            and stream_of(node) is stream
            and len(self._ahead.get(stream, ())) <= MARKS_AHEAD
            and _all_in_one(stream.device, stored_edges(node))
        )

    def _note_issued(self, stream: Stream) -> None:
        """Count the nodes of a stream, and mark how far they have been issued."""
        issued = self._issued.get(stream, 0) + 1
        if issued == MARK_EVERY:
            issued = 0
            self._ahead.setdefault(stream, []).append(stream.record_event())
        self._issued[stream] = issued

    def run_node(
        self, task: PassState, node: Node, gradient: NodeGradient, owned: Owned
    ) -> Steps[tuple[Sequence[Gradient], bool] | None]:
        """Run one node on its stream; wait first if the device is too far behind."""
        stream = stream_of(node)
        if stream is not None:
            self.used[stream] = None
            ahead = self._ahead.setdefault(stream, [])
            while len(ahead) > MARKS_AHEAD:
                if task.future is None:
                    ahead[0].synchronize()
                else:
                    yield ahead[0].synchronize_async()
                ahead[:] = [mark for mark in ahead if not mark.query()]
        # Held until the node has issued its work, which may read memory of another stream.
        saved = node.saved
        received = yield from run_node(task, node, gradient, owned)
        _keep(node, stream, gradient, saved)
        if stream is not None:
            self._note_issued(stream)
        return received

    def step(self, task: PassState, node: Node, step: Callable[[Any], Any], value: Value) -> Any:
        """Continue a node with its stream as the current one, in the pass's context."""
        stream = stream_of(node)
        self.install(task, stream)
        return step(value) if stream is None else stream.device.run_in(stream, step, value)

    def install(self, task: PassState, stream: Stream) -> None:
        """Make a stream the current one, for a node of the pass."""
        record = self._records.get(stream)
        if record is None:
            record = self._records[stream] = modes_within(task).replace(
                streams=None if stream is None else stream.scope
            )
        install(record)

    # -- handing gradients on ---------------------------------------------------------------------

    def deliver(
        self, task: PassState, node: Node, following: tuple[StoredEdge, ...],
        received: Sequence[Gradient], fresh: bool,
    ) -> None:  # fmt: skip
        """`deliver` edge by edge, each gradient in the stream in which it is summed."""
        producer = stream_of(node)
        if producer is not None and _all_in_one(producer.device, following):
            self.leaves[producer] = None
            self.install(task, producer)
            deliver(task, node, following, received, fresh)
            return
        for edge, gradient in zip(following, received, strict=True):
            target, position = edge if edge.__class__ is Edge else (edge, 0)
            stream = None
            if gradient is not None and target in task.dependencies:
                device = metadata_at(target, position).device
                stream = self._meet(
                    device, producer, stream_of(target), from_caller=node.__class__ is GraphRoot
                )
                if stream is not None:
                    self.used[stream] = None
                    buffer = task.not_ready.get(target)
                    if buffer is not None and device.side_streams:
                        # The sum made below reads these in this stream.
                        stream.keep(gradient, buffer.values[position], list(buffer.held))
                    if _is_result(task, target):
                        self.leaves[stream] = None
            self.install(task, stream)
            deliver(task, node, (edge,), (gradient,), fresh)

    def _meet(
        self, device: Device, producer: Stream, consumer: Stream, *, from_caller: bool
    ) -> Stream:
        """The stream in which a gradient is summed, made to wait for the one in which it was made.

        `producer` and `consumer` are the streams of the nodes that it comes from and goes to.
        """
        if not device.streamed:
            # (1) Host memory: the producer has waited already.
            return None
        default = self.caller_stream(device) if from_caller else device.default_stream
        # (2) From a node on this device to one here, (3) from elsewhere to here, (4) from here to
        # elsewhere, (5) from elsewhere to elsewhere: copies come and go in the default stream.
        made_in = producer if producer is not None and producer.device is device else default
        summed_in = consumer if consumer is not None and consumer.device is device else default
        summed_in.wait_stream(made_in)
        return summed_in

    # -- ending -----------------------------------------------------------------------------------

    def prepare(self, task: PassState) -> Steps[list[Any]]:
        """Compute the leaves' new `.grad`s, each in its leaf's stream; return what has no stream.

        So nothing on a device can fail in the commit, which only exchanges arrays.
        """
        elsewhere = []
        if task.watch is not None:
            task.watch.commits(task.staged)
        for place, staged in enumerate(task.staged, 1):
            variable, gradient, owned = staged
            device = variable._metadata.device
            if not device.streamed:
                elsewhere.append(staged)
                continue
            stream = stream_of(as_edge(gradient_edge(variable)).node)  # type: ignore[arg-type]
            within = partial(self.within, task, stream)
            self.install(task, stream)
            prepared = device.run_in(
                stream, prepare, variable, gradient, owned, task.recorded, within
            )
            if device.side_streams:
                stream.keep(gradient, prepared.before)
            self.used[stream] = self.leaves[stream] = None
            self.prepared.append(prepared)
            if task.future is not None and not place % LEAVES_IN_TURN:
                yield next_turn()
        return elsewhere

    def within(
        self, task: PassState, stream: Stream, function: Callable[..., Any], *args: object
    ) -> Any:
        """Call a function on a leaf's `.grad` in the leaf's stream, after a pass was prepared.

        The call comes after all earlier work of the device and before all later work: the caller
        and other passes may use that memory in any stream, and it may be freed at once.
        """
        device, outside = stream.device, current()
        others = device.streams()
        for other in others:
            stream.wait_stream(other)
        self.install(task, stream)
        try:
            done = device.run_in(stream, function, *args)
        finally:
            install(outside)
        for other in others:
            other.wait_stream(stream)
        return done

    def commits_work(self, task: PassState) -> bool:
        """Whether the commit puts in work that the pass has to wait for.

        It writes a `.grad` in place that others see, and adds to one that has changed since.
        """
        return not task.wait_enqueued and any(
            one.kept is not None or not one.is_valid() for one in self.prepared
        )

    def settle(self, task: PassState) -> Steps[None]:
        """End the pass on its devices: compute what is to be committed, and wait for it.

        The caller's current streams wait for those that compute leaves' gradients and results.
        """
        self.settled = True
        for member in task.members:
            for leaf in member.given:
                if leaf._metadata.device.streamed:
                    self.follow(leaf, leaf._metadata.device.default_stream)
        task.staged = yield from self.prepare(task)
        for stream in self.leaves:
            self.caller_stream(stream.device).wait_stream(stream)
        if task.collect is not None:
            install(modes_within(task).replace(streams=self.callers))
            collect, task.collect = task.collect, None
            task.result = collect(task, self._for_the_caller)
        for stream in self.used:
            stream.mark()
        if not task.wait_enqueued:
            yield from self.wait(task)

    def _for_the_caller(self, function: Callable[..., Any], *args: object) -> Any:
        """Compute a result in the caller's current stream, and note that the stream is used."""
        made = function(*args)
        device = made._metadata.device
        if device.streamed:
            self.used[self.caller_stream(device)] = None
        return made

    def wait(self, task: PassState) -> Steps[None]:
        """Wait until all work of the pass in streams is done; raise the first error of a device."""
        errors: list[Exception] = []
        for event in [stream.record_event() for stream in self.used]:
            try:
                if task.future is None:
                    event.synchronize()
                elif not event.query():
                    yield event.synchronize_async()
            except Exception as error:
                # Wait for all: an error left on a stream would be raised in the next pass.
                errors = errors or [error]
        if errors:
            # Popped, because the error's traceback holds this frame.
            raise errors.pop()


def _all_in_one(device: Device, following: tuple[StoredEdge, ...]) -> bool:
    """Whether all gradients are summed in one stream: the device's only one."""
    if device.side_streams:
        return False
    for edge in following:
        target, position = edge if edge.__class__ is Edge else (edge, 0)
        metadata = None if target is None else metadata_at(target, position)
        if metadata is not None and metadata.device is not device:
            return False
    return True


def _is_result(task: PassState, target: Node) -> bool:
    """Whether what reaches a node is visible outside of the pass."""
    return (
        target.__class__ is AccumulateGrad
        or target in task.captures
        or (target.extras is not None and bool(target.extras.retain))
    )
