"""Replays a program as passes like any other: on an event loop, or with the user's code in them.

Its parts up to the next change are the nodes of one pass, a chain. Functions with effects are
called between passes. A program that this turn of the loop has time for is run at once.
"""

from __future__ import annotations

from asyncio.events import _get_running_loop
from collections.abc import Generator
from contextvars import copy_context
from operator import is_
from time import perf_counter_ns
from typing import Any, NoReturn

from asyncgrad.autograd.new_pass import start_pass
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.modes import current, install
from asyncgrad.core.node import Node, init_node
from asyncgrad.core.variable import counter_of, is_inference
from asyncgrad.devices.fp_errors import (
    call_without_fp_errors,
    fp_errors_ignored,
    restore_fp_errors,
)
from asyncgrad.errors import AutogradError
from asyncgrad.replay.anew import BailError
from asyncgrad.replay.order import LASTING
from asyncgrad.replay.program import Program
from asyncgrad.replay.steps import UnrepeatableError, UnwritableError
from asyncgrad.replay.unchanged import Unchanged
from asyncgrad.replay.whole_graph import WholeCall
from asyncgrad.scheduler import engine_of

#: Programs that take longer than this become passes.
_AT_ONCE_NS = 200_000
#: What is left after the last change is run without a pass if it takes less than this.
_REST_NS = 20_000


class OtherPathError(UnrepeatableError):
    """This call runs other lines than the recorded one, so another recorded call may fit."""


async def replay(
    program: Program, tensors: Any, state: list[int], watched: Unchanged | None = None
) -> Any:
    """Run a program and return what the function returns.

    Args:
        state: gets what the program has changed so far (see `order.LASTING`). If other tasks may
            run meanwhile, it also gets whether user code has changed something in `watched`.

    Raises:
        UnrepeatableError: if the call has to be made eagerly; nothing has changed then.
    """
    loop = _get_running_loop()
    whole = program.whole
    try:
        if loop is not None and current().deadline is None:
            if (
                whole is not None
                and not current().blocking
                and engine_of(loop).runs_at_once(whole.cost)
                and whole.graph.is_ready(tensors, waits=False)
            ):
                result = _timed(program, whole, tensors, state)
                await whole.graph.finish()
                return result
            if (
                program.cost < _AT_ONCE_NS
                and not program.within
                and not program.streamed
                and engine_of(loop).runs_at_once(program.cost)
            ):
                return _timed(program, None, tensors, state)
        # A cancellation here cancels the pass that runs, and nothing else has to be undone.
        return await _Replay(program, tensors, state, watched).run()
    except Exception as error:
        _fail(error, state)


def _fail(error: Exception, state: list[int]) -> NoReturn:
    """Raise for an error in a replay."""
    if isinstance(error, BailError):
        if state[0] != LASTING:
            raise OtherPathError("a check failed") from None
        why = str(error) or (
            "code that was called anew has done what it did not do in the recorded call, after the "
            "call had changed something"
        )
        raise AutogradError(f"compile: {why}") from error
    if state[0] or isinstance(error, UnwritableError):
        raise error
    # Nothing has changed, so the call is made again, and raises the error as the function does.
    overdue = isinstance(error, TimeoutError) and current().deadline is not None
    why = "its deadline has passed" if overdue else "it raised an error"
    raise UnrepeatableError(why) from None


def replay_blocking(program: Program, tensors: Any, state: list[int]) -> Any:
    """`replay` where no loop runs or passes block, so that a pass ends before its start returns."""
    if program.is_being_planned():
        raise UnrepeatableError("another call's program is being written")
    whole = program.whole
    if whole is not None and not whole.graph.is_ready(tensors):
        whole = None
    if whole is not None or not (program.within or program.streamed):
        try:
            return _at_once(program, whole, tensors, state)
        except Exception as error:
            _fail(error, state)
    try:
        replay(program, tensors, state).send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("a pass that was started here had to be awaited")


def _timed(program: Program, whole: WholeCall | None, tensors: Any, state: list[int]) -> Any:
    """`_at_once`, and correct the expected cost.

    That is the least time so far. It grows by a sixteenth at most, so that it slowly follows a
    program that has become slower.
    """
    start = perf_counter_ns()
    result = _at_once(program, whole, tensors, state)
    timed = program if whole is None else whole
    timed.cost = min(perf_counter_ns() - start, timed.cost + (timed.cost >> 4))
    return result


def _at_once(program: Program, whole: WholeCall | None, tensors: Any, state: list[int]) -> Any:
    """Run a program, or the whole call by one launch, without a pass."""
    run = program.run if whole is None else whole.run
    memory = program.take_memory() if whole is None else whole.new_memory()
    result: Any = None
    for token in fp_errors_ignored:
        try:
            if program.device is None and memory.arena is None:
                result = run(tensors, state, memory.buffers)
            else:
                result = program.call(memory, run, tensors, state, memory.buffers)
        finally:
            restore_fp_errors(token)
        break
    if whole is None:
        program.give_memory(memory)
    return result


class _Pass(GraphTask):
    """A pass in the place of one or more of the recorded call."""

    __slots__ = ()

    def examined(self) -> None:
        """Give the replay up: the function's pass has other nodes."""
        root: Any = self.root
        # The code may catch this error, or raise another one for it.
        root.replay.refused = True
        raise BailError


class Part(Node):
    """A node that runs one part of a program."""

    __slots__ = ("place", "replay")

    #: The number of the part, and the run that it belongs to.
    place: int
    replay: _Replay

    def prefetch(self) -> Generator[Any, Any, None]:
        """Call user code that an eager pass calls in a node at this place."""
        replay = self.replay
        request, replay.request = replay.request, None
        if request is None:
            return
        function, *arguments = request
        before = replay.seen()
        try:
            replay.answer = yield from function(current().graph_task, *arguments)
        except Exception:
            if not replay.refused:
                raise
        if replay.refused:
            raise BailError
        replay.blame(before)
        # This code may have changed tensors that are not read any more, and that is no error. The
        # others have been compared by `within`.
        replay.note_versions()

    def apply(self, gradients: tuple[Any, ...], task: Any) -> Any:
        """Run the part; gradients that are to be committed are staged."""
        staged = self.replay.advance(self.place)
        if staged is not None:
            task.staged.extend(staged)
            self.replay.follow(task)
        return (None,) if self.following else ()

    def name(self) -> str:
        """How errors and traces call it."""
        return f"Replay[{self.place}]"


class _Replay:
    """One run of a program on an event loop."""

    def __init__(
        self, program: Program, tensors: Any, state: list[int], watched: Unchanged | None
    ) -> None:
        self._program = program
        self._state = state
        self._watched = watched
        if watched is not None:
            state.append(False)
        walk = program.walk
        self._memory = program.take_memory()
        self._walk = walk(tensors, state, self._memory.buffers)
        self._tensors = [source.of(tensors) for source in program.sources]
        self._held: list[Any] = []
        self._versions: list[int] = []
        self._ended = False
        self._result: Any = None
        self._scope = current().streams
        #: The last part of the running pass.
        self._last = 0
        #: The function that the next part calls first, with its arguments; what it has returned.
        self.request: Any = None
        self.answer: Any = None
        #: Code that was called has asked what a replay can't tell it.
        self.refused = False

    async def run(self) -> Any:
        parts = self._program.parts
        place = 0
        try:
            while not self._ended:
                if parts[place][0] == "change":
                    before = self.seen()
                    self._program.call(self._memory, next, self._walk)
                    self.blame(before)
                    place += 1
                    continue
                last = place
                while parts[last][0] in {"compute", "call"} and parts[last + 1][0] != "change":
                    last += 1
                self._last = last
                if place == last and parts[place][0] == "end" and parts[place][1] < _REST_NS:
                    call_without_fp_errors(self.advance, place)
                    continue
                # Optimisers write into new arrays in the place of those that are held.
                self._held = [counter_of(x) for x in self._tensors if not is_inference(x)]
                self.note_versions()
                # While this waits, other tasks run. If the wait is cancelled, so is the pass, and
                # nothing of it is committed.
                await start_pass(self._task(place, last))
                self._held, self._versions = [], []
                place = last + 1
            self._program.give_memory(self._memory)
            # By the measured times of its parts, the program may be short enough to run at once.
            learned = sum(cost for _, cost in parts)
            self._program.cost = min(self._program.cost, learned)
            return self._result
        finally:
            self._held = []
            self._walk.close()

    def seen(self) -> Any:
        """What the function can read, if user code may change that."""
        return None if self._watched is None else self._watched.seen()

    def blame(self, before: Any) -> None:
        """Note whether user code, and not another task, has changed what was seen before."""
        if before is not None:
            now = self.seen()
            same = len(now[0]) == len(before[0]) and all(map(is_, now[0], before[0]))
            self._state[1] |= not (same and now[1] == before[1])

    def note_versions(self) -> None:
        """Note how often what is held has been changed so far."""
        self._versions = [counter.value for counter in self._held]

    def _task(self, first: int, last: int) -> GraphTask:
        """The pass of some parts."""
        following: Any = ()
        for place in range(last, first - 1, -1):
            node = Part()
            init_node(node, following, None, max(1, self._program.parts[place][1]))
            node.place = place
            node.replay = self
            following = node
        device = self._program.device
        kinds = {kind for kind, _ in self._program.parts[first : last + 1]}
        # User code runs in a context of its own. What it has saved is dropped at the end.
        context = None if device is None and "call" not in kinds else copy_context()
        task = _Pass((following,), (None,), keep_graph=True, context=context)
        if device is None:
            return task
        task.wait_enqueued = self._program.parts[last][0] != "commit"
        streams = task.enter_streams()
        stream = streams.caller_stream(device)
        streams.used[stream] = None
        if device.side_streams:
            # As in an eager pass, the caller may drop the tensors before the device has read them.
            stream.keep([tensor._array for tensor in self._tensors])
        return task

    def follow(self, task: GraphTask) -> None:
        """Have the streams of leaves wait for the gradients that were staged."""
        for variable, _, _ in task.staged:
            device = variable._metadata.device
            if device.streamed:
                streams = task.enter_streams()
                streams.follow(variable, streams.caller_stream(device))

    def advance(self, place: int) -> Any:
        """Run one part; returns the gradients to commit, or None."""
        start, before = perf_counter_ns(), self._state[0]
        answer, self.answer = self.answer, None
        found = current()
        if found.streams is not self._scope:
            install(found.replace(streams=self._scope))
        try:
            staged = self._program.call(self._memory, self._walk.send, answer)
        except StopIteration as stop:
            self._ended = True
            self._result = stop.value
            staged = None
        finally:
            if found.streams is not self._scope:
                install(found)
        if self._program.parts[place][0] == "call":
            self.request, staged = staged, None
        taken = perf_counter_ns() - start
        if place == self._last and [counter.value for counter in self._held] != self._versions:
            # What this part would have had committed is dropped.
            self._state[0] = before
            raise BailError("a tensor that the call uses was changed in place by another task")
        parts = self._program.parts
        kind, cost = parts[place]
        parts[place] = kind, min(taken, cost + (cost >> 4))
        return staged
