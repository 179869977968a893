"""The state of one backward pass, and what has to run next.

Rule 0: a pass has one owner at a time: the event loop's worker, or the thread that runs a segment.
    Others (a finished coroutine, `cancel()`) append to the inbox, which the owner drains.
Rule 1: everything that decides the order of a backward pass is in this file, once
    `core/dependencies.py` has counted what each node waits for.
Rule 2: nothing here waits. A call returns what became possible; the caller makes it happen.
Rule 3: a report that comes late (after an error or a cancellation) is counted and dropped.

The order is that of PyTorch: among the ready nodes the one made last goes first, and accumulators
run as soon as they are ready. A node is ready when every node of this pass that leads to it has
reported. A pass that is DRAINING hands out nothing new, and ends when the last node that was
handed out has come back, so that no buffer is freed under a function that still runs.

States: NEW -> RUNNING -> (DRAINING ->) DONE, FAILED or CANCELLED.
"""

from __future__ import annotations

from contextvars import copy_context
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from asyncgrad.core.accumulate_grad import AccumulateGrad
from asyncgrad.core.call_site import DEPTH
from asyncgrad.core.commit import commit
from asyncgrad.core.dependencies import count, plan
from asyncgrad.core.exec_info import ExecInfo
from asyncgrad.core.frames import clear_frames
from asyncgrad.core.input_buffer import InputBuffer
from asyncgrad.core.modes import current
from asyncgrad.core.node import (
    Callbacks,
    Devices,
    Edge,
    Freed,
    GraphRoot,
    Node,
    as_edge,
    refuse_freed,
)
from asyncgrad.core.parallel_nodes import share
from asyncgrad.core.run_node import conclude, evaluate
from asyncgrad.core.saved_values import check_version, steadily
from asyncgrad.core.states import (
    CANCELLED,
    CHEAP_NS,
    CHEAP_RUN_NS,
    DONE,
    DRAINING,
    ENDED,
    FAILED,
    FINISHED,
    HEAVY,
    HEAVY_NS,
    LONG_WAY_NS,
    MORE,
    NEW,
    RUNNING,
    SHARE_NS,
    WAITING,
    Outcome,
    Ready,
    Resumed,
    State,
    Suspended,
)
from asyncgrad.core.streams import PassStreams, host_cost
from asyncgrad.core.versions import VersionCounter
from asyncgrad.errors import add_note, described, note_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextvars import Context

    from asyncgrad.core.parallel_nodes import Helpers

#: Up to this many staged elements are committed on the loop, where no coroutine can see some leaves
#: updated and others not; more are committed in a thread.
_LARGE = 50_000
#: The root of passes that have ended, instead of their graph.
_NO_ROOT = GraphRoot((), ())
#: Pseudo-nodes: what happens after the last node is run like a node.
_CALLBACKS = Callbacks()
_DEVICES = Devices()
#: Node classes without a rule that run no user code unless they have hooks.
_SAFE = {AccumulateGrad, Callbacks, Devices, GraphRoot}


class GraphTask:
    """One backward pass."""

    __slots__ = (
        "__weakref__",
        "after",
        "callbacks",
        "cancelling",
        "captured",
        "captures",
        "careful",
        "collect",
        "context",
        "create_graph",
        "deadline",
        "dependencies",
        "depth",
        "ending",
        "error",
        "exec_info",
        "freed",
        "future",
        "inbox",
        "keep_graph",
        "later_errors",
        "launched",
        "not_ready",
        "observer",
        "order",
        "parent",
        "priority",
        "queued",
        "ready",
        "recorded",
        "result",
        "revoke",
        "root",
        "running",
        "secured",
        "share_ns",
        "staged",
        "state",
        "stepping",
        "story",
        "streams",
        "suspended",
        "timer",
        "virtual_time",
        "wait_enqueued",
        "walk",
    )

    def __init__(
        self,
        edges: Sequence[Any],
        gradients: Sequence[Any],
        keep_graph: bool = False,
        create_graph: bool = False,
        inputs: Sequence[Any] | None = None,
        accumulate: bool = True,
        recorded: Any = None,
        context: Context | None = None,
        parent: GraphTask | None = None,
    ) -> None:
        """Prepare a pass.

        Args:
            edges: the stored gradient edges of the roots.
            gradients: the roots' gradients.
            keep_graph: saved values survive the pass.
            create_graph: the pass records itself.
            inputs: run only what these stored edges need.
            accumulate: with `inputs`, run their nodes; otherwise capture what reaches them.
            recorded: the namespace of functions on tensors, if gradients are tensors: in a pass
                that records itself or pushes tangents.
            context: the context in which hooks and Functions run.
            parent: the pass whose node started this one.
        """
        root: Any
        gradient: Any
        owned: Any
        if len(edges) == 1:
            root, gradient, owned = edges[0], gradients[0], False
            if root.__class__ is Edge or root.output_metadata.__class__ is tuple:
                root, position = as_edge(root)
                gradient = [None] * root.num_inputs
                gradient[position] = gradients[0]
                owned = [False] * len(gradient)
        else:
            root, gradient, owned = GraphRoot(edges, gradients), [], []
        # -- arguments
        #: Where the pass begins.
        self.root: Node = root
        self.keep_graph = keep_graph
        self.create_graph = create_graph
        self.recorded = recorded
        self.context = context
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        #: Replaces what nodes have saved when it is released; knows where the pass was started.
        # `backward` makes one call more than `grad`, as a function and as a method.
        self.freed = Freed().remember(DEPTH + accumulate)
        #: Notified of every node; None if there is no observer.
        self.observer: Any = None
        #: Every node is run by `evaluate`: the pass records itself, is observed, or checks for NaN.
        self.careful = recorded is not None
        #: Computes the result of the pass after its gradients are committed.
        self.collect: Callable[[GraphTask, Callable[..., Any]], Any] | None = None
        self.result: Any = None
        # -- progress
        self.state = NEW
        #: The rest of the walk; None when it is complete.
        self.walk: Any = [root]
        #: Waiting nodes, with the number of edges over which no gradient has come yet.
        self.dependencies: dict[Node, int] = {}
        #: Nodes with some but not all gradients. Their keys are in `dependencies`, too.
        self.not_ready: dict[Node, InputBuffer] = {}
        #: Nodes with all their gradients: a heap with the next node first.
        self.ready: list[Any] = [(-root.sequence_nr, 0, root, gradient, owned)]
        #: Counts pushes to the heap: a tie breaker, so that nodes are never compared.
        self.order = 0
        #: Leaves with hooks that got a gradient early, before nodes with greater numbers reported:
        #: the least sequence number of their producers, after which they run, and a tie breaker.
        self.after: dict[Node, tuple[int, int]] = {}
        #: Nodes that were handed out and have not reported, with their sequence number.
        self.launched: dict[Node, int] = {}
        #: Launched nodes for which the owner still has to arrange a wait.
        self.suspended: list[Suspended] = []
        #: Whether a hook or a user's node may be running, so that a pass started now is nested.
        #: The context alone does not tell: tasks that such code starts have a copy, and outlive it.
        #: None until the first has run.
        self.stepping: bool | None = None
        #: Reports from code that is not the owner: calls without arguments.
        self.inbox: list[Callable[[], Any]] = []
        #: What a partial pass runs and captures; None if everything runs.
        self.exec_info: ExecInfo | None = None
        #: For each captured node: pairs of an input number and a position in `captured`.
        self.captures: dict[Any, tuple[tuple[int, int], ...]] | None = None
        self.captured: Any = ()
        if inputs is not None:
            self.exec_info = ExecInfo(inputs, accumulate)
            if not accumulate:
                self.captures = self.exec_info.captures
                self.captured = [None] * len(inputs)
        #: What `commit` will add to the leaves: (variable, gradient, owned).
        self.staged: list[tuple[Any, Any, bool]] = []
        #: How many of them, from the first, no longer share memory with what user code can see.
        self.secured = 0
        #: Functions to call after the last node.
        self.callbacks: list[Callable[[], Any]] = []
        #: Undoes the commit made before the callbacks, if the pass does not succeed.
        self.revoke: Callable[[bool], bool] | None = None
        #: The stream state of a pass over devices with streams, else None; and whether the pass
        #: ends when all its work is enqueued in streams, rather than done.
        self.streams: PassStreams | None = None
        self.wait_enqueued = False
        self.error: BaseException | None = None
        self.later_errors: tuple[BaseException, ...] = ()
        # -- the scheduler's notes
        self.priority = 0
        self.deadline: float | None = None
        self.future: Any = None
        #: The timer for the deadline, or for the grace period of cancelled nodes.
        self.timer: Any = None
        #: The last events, unless the pass ended in its first slice.
        self.story: Any = None
        #: In this order: it waits in a queue; a slice of it is running; it was asked to end; its
        #: gradients are being committed.
        self.queued = False
        self.running = False
        self.cancelling = False
        self.ending = False
        #: How long it and the passes nested in it have run; -1 before the first slice.
        self.virtual_time = -1
        #: The longest slice while other passes wait; set when the walk is complete.
        self.share_ns = SHARE_NS

    # -- the walk -------------------------------------------------------------------------------

    def start(self, steps: int = -1) -> bool:
        """Count dependencies; with `steps`, stop after about that many nodes.

        Returns:
            Whether the walk is complete and nodes can run.
        """
        if self.walk is None:
            return True
        if not (count(self, steps) if self.exec_info is None else plan(self, steps)):
            return False
        self.walk = None
        if self.state is NEW:
            self.state = RUNNING
        return True

    # -- running --------------------------------------------------------------------------------

    def run(self, budget: int, *, thread: bool = False, helpers: Helpers | None = None) -> Outcome:
        """Run ready nodes until `budget` nanoseconds of expected cost are used up.

        With `thread`, nodes run however expensive they are, and the slice ends after a run of cheap
        ones; `helpers` help with expensive nodes that are ready together. The hot loop of the
        engine: the work for an ordinary node is inlined (1.0 us a node, of which the array
        functions take half; benchmarks/chain.py).
        """
        streams = self.streams
        if streams is not None:
            return streams.run(self, budget, thread=thread)
        if self.state is not RUNNING:
            return self.outcome(thread=thread)
        ready = self.ready
        dependencies = self.dependencies
        buffers = self.not_ready
        captures = self.captures
        careful = self.careful
        info = self.exec_info
        trimmed = None if info is None else info.trimmed or None
        inner = info is not None and info.inner
        keep = self.keep_graph
        freed = self.freed
        running = RUNNING
        node: Any = None
        gradient: Any = None
        owned: Any = False
        inbox = self.inbox
        launched = self.launched
        whole = budget
        # When the pass fails or is cancelled, `_forget` clears `ready`, which ends this loop.
        while True:
            if inbox:
                if node is not None:
                    self._put_back(node, gradient, owned)
                    node = None
                self.drain()
                if self.streams is not None:
                    return self.streams.run(self, budget, thread=thread)
                continue
            if node is None:
                if not ready:
                    break
                _, _, node, gradient, owned = heappop(ready)
            rule = node.rule
            if rule is None and node.__class__ is AccumulateGrad and node.extras is None:
                if captures is not None:
                    for _, wanted in captures.get(node, ()):
                        self.captured[wanted] = gradient
                elif gradient is not None:
                    self.staged.append((node.variable, gradient, owned))
                node = None
                continue
            budget -= node.cost
            if budget < 0:
                cost = node.cost
                if not thread:
                    # Unless it is heavy, the first node always runs: every slice makes progress.
                    if cost > HEAVY_NS or budget + cost != whole:
                        self._put_back(node, gradient, owned)
                        return HEAVY if cost > HEAVY_NS else MORE
                elif cost < CHEAP_NS:
                    self._put_back(node, gradient, owned)
                    return MORE
                else:
                    budget = CHEAP_RUN_NS
                    if helpers is not None:
                        if helpers.gives_way(cost, len(self.suspended)):
                            self._put_back(node, gradient, owned)
                            return HEAVY
                        if share(self, helpers, node, gradient):
                            node = None
                            continue
            if helpers is not None and launched and self._is_early(node):
                self._put_back(node, gradient, owned)
                return MORE
            if careful or node.extras is not None:
                if rule is not None and not thread:
                    budget -= LONG_WAY_NS
                self._evaluate(node, gradient, owned)
                node = None
                continue
            if inner or rule is None:
                if captures is not None and node in captures and gradient.__class__ is not Resumed:
                    if self._capture(node, gradient):
                        node = None
                        continue
                    # The user gets this gradient, so nothing may be added into it.
                    owned = False
                if rule is None:
                    self._evaluate(node, gradient, owned)
                    node = None
                    continue
            try:
                following = node.following
                if gradient is None:
                    received: Any = None
                elif trimmed is not None and node in trimmed:
                    received = self._pull_wanted(node, gradient)
                elif rule.saves:
                    saved = node.saved
                    guard = node.guard
                    if saved.__class__ is Freed:
                        refuse_freed(node, saved)
                    if guard is not None and (
                        guard.__class__ is not VersionCounter or guard.value != node.version
                    ):
                        saved = check_version(node)
                    run = rule.run
                    received = run(node.output_metadata.F, gradient, saved)
                    if (
                        thread
                        and guard is not None
                        and check_version(node, running=False) is not saved
                    ):
                        received = steadily(node, partial(run, node.output_metadata.F, gradient))
                    if not keep:
                        # Inlined `Node.release_saved`.
                        outliving = rule.outliving
                        node.guard = None if outliving is None else outliving(saved)
                        node.saved = freed
                else:
                    # Two steps: Python calls a function from a slot more slowly as `rule.run()`.
                    run = rule.run
                    received = run(node.output_metadata.F, gradient, node.saved)
            except BaseException as error:
                self.fail(error, node)
                # The traceback holds this frame, which must not keep the graph alive.
                node = gradient = received = following = None
                break
            if following.__class__ is tuple:
                if received is None or launched:
                    self._deliver(node, following, received, rule.fresh)
                    node = None
                    continue
                producer, node, owned = node, None, rule.fresh
                place = 0
                # No `zip`, which costs 0.1 us a node.
                for target in following:
                    value = received[place]
                    place += 1
                    waiting = dependencies.pop(target, 0)
                    if waiting == 1 and target not in buffers:
                        if target.__class__ is AccumulateGrad:
                            if target.extras is not None:
                                self._make_ready(target, value, owned)
                            elif captures is None:
                                if value is not None:
                                    self.staged.append((target.variable, value, owned))
                            elif target in captures:
                                for _, wanted in captures[target]:
                                    self.captured[wanted] = value
                            continue
                        if target.output_metadata.__class__ is not tuple:
                            if node is None:
                                node, gradient = target, value
                            else:
                                self._make_ready(target, value, owned)
                            continue
                    if waiting:
                        dependencies[target] = waiting
                    self._deliver(producer, (target,), (value,), owned)
                    if self.state is not running:
                        node = None
                        break
                if node is not None and ready and -ready[0][0] > node.sequence_nr:
                    self._put_back(node, gradient, owned)
                    node = None
                continue
            waiting = dependencies.pop(following, 0)
            if (
                waiting == 1
                and following not in buffers
                and not (launched and following.__class__ is AccumulateGrad)
            ):
                # The usual case, a chain: the target has no other producer and can run next.
                owned = rule.fresh or (owned and rule.passes)
                gradient = received
                node = following
                if node.output_metadata.__class__ is tuple:
                    others = node.num_inputs - 1
                    gradient, owned = [gradient] + [None] * others, [owned] + [False] * others
                if ready and -ready[0][0] > node.sequence_nr:
                    self._put_back(node, gradient, owned)
                    node = None
                continue
            if waiting:
                dependencies[following] = waiting
            self._deliver(node, (following,), (received,), rule.fresh or (owned and rule.passes))
            node = None
        return self.outcome(thread=thread)

    def _within(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function in the pass's context, if it has one."""
        return function(*args) if self.context is None else self.context.run(function, *args)

    def _pull_wanted(self, node: Any, gradient: Any) -> Any:
        """Compute only those gradients of a table node that this pass needs."""
        rule = node.rule
        F = node.output_metadata.F
        dependencies = self.dependencies

        def pulled(saved: Any) -> Any:
            if rule.pulls is None:
                return rule.run(F, gradient, saved)
            received = []
            for edge, pull in zip(node.following, rule.pulls, strict=True):
                target = edge.node if edge.__class__ is Edge else edge
                received.append(pull(F, gradient, saved) if target in dependencies else None)
            return received

        received = steadily(node, pulled)
        if not self.keep_graph:
            node.release_saved(self.freed)
        return received

    def _capture(self, node: Any, gradient: Any) -> bool:
        """Store a requested node's gradients; True if the node itself is not to run."""
        assert self.exec_info is not None
        assert self.captures is not None
        several = node.output_metadata.__class__ is tuple
        for position, place in self.captures[node]:
            self.captured[place] = gradient[position] if several else gradient
        return node not in self.exec_info.needed

    def _evaluate(self, node: Any, gradient: Any, owned: Any) -> None:
        """Begin with a node that takes the long way, or go on with one that has waited."""
        if gradient.__class__ is Resumed:
            self.launched[node] = node.sequence_nr
            self._resume(node, gradient.evaluation, gradient.result)
        elif self.streams is None:
            self._resume(node, evaluate(self, node, gradient, owned), None)
        else:
            self._resume(node, self.streams.evaluate(self, node, gradient, owned), None)

    def _resume(self, node: Any, evaluation: Any, result: Any, *, throw: bool = False) -> None:
        """Run a node's evaluation until it ends or waits for something."""
        step = evaluation.throw if throw else evaluation.send
        streams = self.streams
        if streams is not None:
            step = partial(streams.step, self, node, step)
        elif self.secured < len(self.staged) and (node.rule is None or node.extras is not None):
            self._secure(node)
        self.stepping = True
        try:
            waiting = step(result) if self.context is None else self.context.run(step, result)
        except StopIteration as stop:
            self.stepping = False
            self.launched.pop(node, None)
            if stop.value is not None and self.state is RUNNING:
                received, fresh = stop.value
                following = node.following
                if following.__class__ is not tuple:
                    following = (following,)
                if self.streams is not None:
                    self._within(self.streams.deliver, self, node, following, received, fresh)
                elif self.recorded is None or self.context is None:
                    self._deliver(node, following, received, fresh)
                else:
                    # In the context, so that sums are recorded as in this pass, not in its caller.
                    self.context.run(self._deliver, node, following, received, fresh)
        except BaseException as error:
            self.stepping = False
            self.launched.pop(node, None)
            self.fail(error, node)
            # `result` may be the error thrown here, whose traceback holds this frame: a cycle.
            result = None
        else:
            self.stepping = False
            self.launched[node] = node.sequence_nr
            self.suspended.append(Suspended(node, evaluation, waiting))

    def _secure(self, node: Any) -> None:
        """Copy staged gradients before user code that may change their arrays in place."""
        if node.extras is None and node.__class__ in _SAFE:
            return
        staged = self.staged
        for place in range(self.secured, len(staged)):
            variable, gradient, owned = staged[place]
            if not owned:
                F = self.recorded or variable._metadata.F
                staged[place] = variable, self._within(F.own_copy, gradient), True
        self.secured = len(staged)

    def resume(self, node: Any, evaluation: Any, result: Any, error: BaseException | None) -> None:
        """Take the result that a suspended node waited for, and continue the node.

        A heavy node becomes ready again instead: the caller may be the loop, and `run` hands heavy
        nodes to a thread.
        """
        if self.state is not RUNNING:
            self.launched.pop(node, None)
            _close(evaluation)
            if error is not None:
                self.later_errors += (error,)
        elif error is not None:
            self._resume(node, evaluation, error, throw=True)
            # The error's traceback holds this frame: a cycle.
            error = None
        elif (node.cost if self.streams is None else host_cost(node)) > HEAVY_NS:
            self.launched.pop(node, None)
            self._make_ready(node, Resumed(evaluation, result), False)
        else:
            self._resume(node, evaluation, result)

    def finish(self, node: Any, gradients: Sequence[Any], *, fresh: bool = False) -> list[Ready]:
        """Take the report of a node that was handed out by `launch`.

        Returns:
            The nodes that have become ready.
        """
        if node not in self.launched:
            raise ValueError(f"{node!r} was not handed out by this pass, or has reported already")
        del self.launched[node]
        if self.state is not RUNNING:
            self.outcome()
            return []
        before = {entry[2] for entry in self.ready}
        following = node.following
        if following.__class__ is not tuple:
            following = (following,)
        self._deliver(node, following, gradients, fresh)
        self.outcome()
        return [Ready(*entry) for entry in self.ready if entry[2] not in before]

    def launch(self) -> Ready | None:
        """Hand out the next ready node, None if there is none."""
        if self.state is not RUNNING or not self.ready:
            return None
        entry = Ready(*heappop(self.ready))
        self.launched[entry.node] = entry.node.sequence_nr
        return entry

    def _make_ready(self, node: Any, gradient: Any, owned: Any) -> None:
        self.order += 1
        if self.after:
            self._put_back(node, gradient, owned, self.order)
        else:
            heappush(self.ready, (-node.sequence_nr, self.order, node, gradient, owned))

    def _put_back(self, node: Any, gradient: Any, owned: Any, order: int = 0) -> None:
        """Return a node to `ready`, before all others with its number."""
        number = node.sequence_nr
        if node in self.after:
            number, order = self.after[node]
        heappush(self.ready, (-number, order, node, gradient, owned))

    def _is_early(self, node: Any) -> bool:
        """Whether a node must wait for helpers because it may run user code.

        Users must see their code run in order. A node with a greater number that a helper still
        computes may lead to nodes that come before this one. Table nodes may run in any order.
        """
        if node.rule is not None and node.extras is None:
            return False
        number, _ = self.after.get(node, (node.sequence_nr, 0))
        # Other launched nodes are suspended in the user's coroutines.
        return any(
            theirs > number and other.rule is not None and other.extras is None
            for other, theirs in self.launched.items()
        )

    def _deliver(self, node: Any, following: Any, received: Any, fresh: Any) -> None:
        """Pass a node's gradients on; nodes that have all of theirs become ready."""
        dependencies = self.dependencies
        buffers = self.not_ready
        sequence_nr = node.sequence_nr
        # Sums are in descending number of the producers. A producer with a greater number that has
        # not reported is launched or ready, or waits for a node with a greater one still that is.
        ready, launched = self.ready, self.launched
        overtakes = bool(ready) and -ready[0][0] > sequence_nr
        if launched and not overtakes:
            overtakes = max(launched.values()) > sequence_nr
        plain = not self.careful
        captures = self.captures
        after = self.after
        if received is None:
            received = (None,) * len(following)
        try:
            for edge, gradient in zip(following, received, strict=True):
                target: Any = edge
                position = 0
                if edge.__class__ is Edge:
                    target, position = edge
                waiting = dependencies.pop(target, 0)
                if not waiting:
                    continue
                if (overtakes or after) and target.__class__ is AccumulateGrad and target.extras:
                    known = after.pop(target, None)
                    if known is not None and known[0] < sequence_nr:
                        after[target] = known
                    elif overtakes:
                        self.order += 1
                        after[target] = sequence_nr, self.order
                metadata = target.output_metadata
                buffer = buffers.get(target)
                if waiting == 1 and buffer is None and metadata.__class__ is not tuple:
                    if plain and target.extras is None:
                        if captures is not None and target in captures:
                            if self._capture(target, gradient):
                                continue
                        elif target.__class__ is AccumulateGrad:
                            if gradient is not None:
                                self.staged.append((target.variable, gradient, fresh))
                            continue
                    self._make_ready(target, gradient, fresh)
                    continue
                if buffer is None:
                    buffer = buffers[target] = InputBuffer(target.num_inputs)
                F = self.recorded
                if F is None:
                    F = (metadata[position] if metadata.__class__ is tuple else metadata).F
                if overtakes:
                    buffer.hold(sequence_nr, position, gradient, fresh)
                else:
                    buffer.admit(sequence_nr, F)
                    buffer.add(position, gradient, fresh, F)
                if waiting > 1:
                    dependencies[target] = waiting - 1
                    continue
                del buffers[target]
                buffer.admit(-1, F)
                if metadata.__class__ is tuple:
                    self._make_ready(target, buffer.values, buffer.owned)
                else:
                    self._make_ready(target, buffer.values[0], buffer.owned[0])
        except BaseException as error:
            # Too few gradients, or a failed sum: the node is to blame, not the owner.
            self.fail(error, node)

    # -- streams --------------------------------------------------------------------------------

    def enter_streams(self) -> PassStreams:
        """Continue as a pass over devices with streams; call it with the caller's streams set."""
        streams = self.streams
        if streams is None:
            streams = self.streams = PassStreams(current().streams)
            # A report makes `run` check `streams` again.
            self.inbox.append(_nothing)
        return streams

    # -- ending ---------------------------------------------------------------------------------

    def fail(self, error: BaseException, node: Any = None) -> None:
        """End the pass with an error: the first wins, later ones become notes on it."""
        self.launched.pop(node, None)
        # A cancellation that was reported before the error takes effect first.
        self.drain()
        if self.state in ENDED:
            return
        if self.error is None and self.state is not DRAINING:
            self.error = error
            if node is not None:
                note_failure(error, node)
            self.state = DRAINING
            self._forget()
        elif error is not self.error:
            self.later_errors += (error,)

    def cancel(self) -> bool:
        """Ask the pass to end; False if it has ended.

        A pass that has failed already keeps its error.
        """
        if self.state in ENDED:
            return False
        if self.state is not DRAINING:
            self.state = DRAINING
            self._forget()
        return True

    def _forget(self) -> None:
        """Drop every gradient that will not be used."""
        for _, _, _, gradient, _ in self.ready:
            if gradient.__class__ is Resumed:
                _close(gradient.evaluation)
        self.ready.clear()
        self.not_ready.clear()
        self.dependencies.clear()
        self.after.clear()
        self.staged.clear()
        self.captured = ()
        self.callbacks.clear()

    def drain(self) -> None:
        """Apply the reports in the inbox."""
        while self.inbox:
            self.inbox.pop(0)()

    def outcome(self, *, thread: bool = False) -> Outcome:
        """Why the slice is over; also ends the pass if nothing is launched or ready.

        Without `thread` this may run on a loop: large gradients are not committed or reverted.
        """
        if self.launched:
            return MORE if self.ready else WAITING
        if self.state is DRAINING:
            if self.revoke is not None:
                if not self.revoke(thread or self.future is None):
                    return HEAVY
                self.revoke = None
            self._end(CANCELLED if self.error is None else FAILED)
        elif self.ready:
            return MORE
        elif self.streams is not None and not self.streams.settled:
            self._resume(_DEVICES, self.streams.settle(self), None)
            return self.outcome(thread=thread)
        elif self.callbacks or (self.streams is not None and self.streams.shares(self)):
            if self.future is not None and not thread and self.is_large():
                return HEAVY
            self._resume(_CALLBACKS, conclude(self), None)
            return self.outcome(thread=thread)
        return FINISHED

    def is_large(self) -> bool:
        """Whether what is staged is so large that it should be committed in a thread."""
        size = 0
        for staged in self.staged:
            size += staged[0]._metadata.size
        return size > _LARGE

    def commit(self, wait: bool) -> bool:
        """Add what was staged to every `.grad`, or to none.

        Args:
            wait: block while another pass commits.

        Returns:
            False, with nothing changed, where another pass commits and `wait` is false.
        """
        staged = self.staged
        if self.streams is not None:
            prepared = self.streams.prepared
            if not commit(staged, self.recorded, wait, prepared):
                return False
            # Free the replaced `.grad` arrays now, even if the pass object is kept.
            prepared.clear()
            return True
        if not staged:
            return True
        if self.recorded is None:
            return commit(staged, None, wait)
        # Sums are part of the recorded graph, so they must be made in the pass's own grad mode.
        return bool(self._within(commit, staged, self.recorded, wait))

    def succeed(self) -> None:
        """Note that the gradients are committed."""
        if self.collect is not None:
            self.result = self.collect(self, self._within)
        self.state = DONE

    def drop_graph(self) -> None:
        """Drop the graph after a success, so that references to the pass don't keep it alive.

        Tasks and timers started by hooks have such references, in their contexts.
        """
        self.root = _NO_ROOT
        self.result = self.collect = self.exec_info = self.captures = self.revoke = None
        self.captured = ()
        self.after.clear()
        # Its records of modes refer back to the pass: a cycle.
        self.streams = None

    def fail_at_end(self, error: BaseException) -> None:
        """Note that the commit has failed."""
        self.error = error
        self._end(FAILED)

    def _end(self, state: State) -> None:
        """Set the final state of a pass that has not succeeded, and undo its commit."""
        self.state = state
        if self.revoke is not None:
            revoke, self.revoke = self.revoke, None
            revoke(True)

    def release(self) -> None:
        """Drop the graph and the context, so that references to the error don't keep them alive."""
        for error in self.later_errors:
            clear_frames(error)
            if self.error is not None:
                add_note(self.error, f"later in the same pass: {described(error)}")
        if self.error is not None:
            clear_frames(self.error)
        self._forget()
        self.root = _NO_ROOT
        self.walk = None
        self.context = None
        self.exec_info = None
        self.captures = None
        self.parent = None
        self.collect = None
        self.streams = None
        self.result = None
        self.error = None
        self.later_errors = ()
        self.inbox.clear()

    def running_parent(self) -> GraphTask | None:
        """This pass or, if it has ended, the innermost enclosing one that has not."""
        task: GraphTask | None = self
        while task is not None and task.state in ENDED:
            task = task.parent
        return task

    def validate(self) -> None:
        """Raise AssertionError where an invariant is broken."""
        waiting, buffers = self.dependencies, self.not_ready
        ready = [entry[2] for entry in self.ready]
        assert all(count > 0 for count in waiting.values()), "a ready node still waits"
        assert buffers.keys() <= waiting.keys(), "a node has gradients but waits for none"
        assert len(set(ready)) == len(ready), "a node is ready twice"
        assert not set(ready) & waiting.keys(), "a node is ready and waits"
        assert not set(ready) & self.launched.keys(), "a node is ready and handed out"
        assert not self.launched.keys() & waiting.keys(), "a node is handed out and waits"
        if self.state in ENDED or self.state is DRAINING:
            assert not ready, "a pass that ends has ready nodes"
        if self.state in ENDED:
            assert not self.launched, "a pass has ended while nodes run"
        if self.state is RUNNING and not ready and not self.launched and not self.walk:
            assert not waiting, "nodes wait for what never comes"


def _close(evaluation: Any) -> None:
    """End an evaluation early: the modes that it puts back are the pass's, and not the caller's."""
    copy_context().run(evaluation.close)


def _nothing() -> None:
    """An empty report: see `enter_streams`."""
