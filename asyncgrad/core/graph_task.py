"""How one backward pass runs: what has to run next.

Rule 0: a pass has one owner at a time: the event loop's worker, or the thread that runs a segment.
    Others (a finished coroutine, `cancel()`) append to the inbox, which the owner reads.
Rule 1: everything that decides the order of a backward pass is in this file, in
    `core/delivery.py` and in `make_ready` and `put_back` of `core/pass_state.py`.
Rule 2: nothing here waits. A call returns what became possible; the caller makes it happen.
Rule 3: a report that comes late (after an error or a cancellation) is counted and dropped.

The order is that of PyTorch: among the ready nodes the one made last goes first, and accumulators
run as soon as they are ready. A node is ready when every node of this pass that leads to it has
reported. A pass that is DRAINING hands out nothing new, and ends when the last node that was
handed out has come back, so that no buffer is freed under a function that still runs.

States: NEW -> RUNNING -> (DRAINING ->) DONE, FAILED or CANCELLED.
"""

from __future__ import annotations

from functools import partial
from heapq import heappop
from typing import TYPE_CHECKING, Any

from asyncgrad.aliases import NodeGradient, Owned, Steps, Value
from asyncgrad.core.delivery import deliver, pass_on, stage_leaf
from asyncgrad.core.dependencies import count, count_needed
from asyncgrad.core.exec_info import ALL
from asyncgrad.core.last_steps import ask, commit_and_call_back
from asyncgrad.core.modes import current
from asyncgrad.core.node import Ending, Node, stored_edges
from asyncgrad.core.node_streams import host_cost
from asyncgrad.core.parallel_nodes import Helpers, share, waits_for_helpers
from asyncgrad.core.pass_state import PassState, close
from asyncgrad.core.run_node import (
    forget_node,
    in_own_dtypes,
    must_secure,
    run_node,
    secure,
    wanted_rule,
)
from asyncgrad.core.saved_values import check_saved, run_rule
from asyncgrad.core.states import (
    CHEAP_NS,
    CHEAP_RUN_NS,
    DRAINING,
    ENDED,
    FINISHED,
    GENERAL_NODE_NS,
    HEAVY,
    HEAVY_NS,
    MORE,
    NEW,
    RUNNING,
    WAITING,
    Outcome,
    Resumed,
    Suspended,
)
from asyncgrad.core.streams import PassStreams
from asyncgrad.core.variable import AccumulateGrad
from asyncgrad.core.versions import VersionCounter

_CALLBACKS = Ending("Callbacks")
_DEVICES = Ending("Devices")


class GraphTask(PassState):
    """One backward pass."""

    __slots__ = ()

    if TYPE_CHECKING:
        parent: GraphTask | None

    def start(self, steps: int = 2**62) -> bool:
        """Count dependencies, for about `steps` nodes at most; whether all have been counted."""
        if self.walk is None:
            return True
        if not (count(self, steps) if self.exec_info is None else count_needed(self, steps)):
            return False
        self.walk = None
        if self.state is NEW:
            self.state = RUNNING
        return True

    # -- running --------------------------------------------------------------------------------

    # Ordinary nodes are run in this loop, and all others by the methods below. Three steps of an
    # ordinary node are written out, because a call costs 12 % of a chain's 0.85 us a node, of which
    # the array functions take half (benchmarks/chain.py): the fast path of `run_rule`, the release
    # of what it has used, and the delivery along a single edge.
    def run(self, budget: int, helpers: Helpers | None = None) -> Outcome:
        """Run ready nodes until `budget` nanoseconds of expected cost are used up; say why it ends.

        A thread that runs a segment has `helpers` for expensive nodes that are ready together. Its
        nodes run however expensive they are, and it ends after a run of cheap ones.
        """
        thread = helpers is not None
        streams = self.streams
        if streams is not None:
            return self._run_in_streams(budget, thread)
        if self.state is not RUNNING:
            return self.take_last_steps(thread=thread)
        ready, launched, inbox = self.ready, self.launched, self.inbox
        dependencies, buffers = self.dependencies, self.not_ready
        careful, keep, freed = self.careful, self.keep_graph, self.freed
        info = self.exec_info
        leads = None if info is None or info.all_run else info.leads
        watch = self.watch
        captures = self.captures if info is not None and info.inner else None
        whole = budget
        node: Any = None
        gradient: NodeGradient = None
        owned: Owned = False
        # When the pass fails or is cancelled, `_forget` clears `ready`, which ends this loop.
        while True:
            if inbox:
                if node is not None:
                    self.put_back(node, gradient, owned)
                    node = None
                self.read_inbox()
                if self.streams is not None:
                    return self._run_in_streams(budget, thread)
                continue
            if node is None:
                if not ready:
                    break
                _, _, node, gradient, owned = heappop(ready)
            rule = node.rule
            if rule is None and stage_leaf(self, node, gradient, owned):
                node = None
                continue
            budget -= node.cost
            if budget < 0:
                outcome = self._exceeded(node, helpers, first=budget + node.cost == whole)
                if outcome is not None:
                    self.put_back(node, gradient, owned)
                    return outcome
                if helpers is not None:
                    budget = CHEAP_RUN_NS
                    if share(self, helpers, node, gradient):
                        node = None
                        continue
            if helpers is not None and launched and waits_for_helpers(self, node):
                self.put_back(node, gradient, owned)
                return MORE
            if careful or rule is None or node.extras is not None:
                if rule is not None and not thread:
                    budget -= GENERAL_NODE_NS
                if not thread and self.future is not None and must_secure(self, node, HEAVY_NS):
                    self.put_back(node, gradient, owned)
                    return HEAVY
                self._run_node(node, gradient, owned)
                node = None
                continue
            if captures is not None and node in captures:
                if self.capture(node, gradient):
                    node = None
                    continue
                # The user gets this gradient, so nothing may be added into it.
                owned = False
            try:
                # Two steps: Python calls a function from a slot more slowly as `rule.run()`.
                run = rule.run if watch is None else partial(watch.call, node, rule, None)
                F = node.output_metadata.F
                if gradient is None:
                    received: Any = None
                elif leads is not None and leads.get(node) != ALL:
                    wanted = wanted_rule(self, node)
                    received = run_rule(node, wanted, F, gradient, self, thread=thread)
                elif not rule.saves:
                    received = run(F, gradient, node.saved)
                elif thread:
                    received = run_rule(node, run, F, gradient, self)
                else:
                    # Inlined `run_rule`.
                    saved, guard = node.saved, node.guard
                    if guard is not None and (
                        guard.__class__ is not VersionCounter or guard.value != node.version
                    ):
                        saved = check_saved(node)
                    received = run(F, gradient, saved)
                    if not keep:
                        # Inlined `Node.release_saved`.
                        outliving = rule.outliving
                        node.guard = () if outliving is None else outliving(saved)
                        node.saved = freed
            except BaseException as error:
                self.fail(error, node)
                node = gradient = received = None  # See core.frames.
                break
            following = node.following
            if following.__class__ is tuple:
                node, gradient = pass_on(self, node, received)
                owned = rule.fresh
                continue
            owned = rule.fresh or (owned and rule.passes)
            # Inlined `deliver` for a node that waits for nothing else, the usual case in a chain.
            waiting = dependencies.pop(following, 0)
            if (
                waiting == 1
                and following not in buffers
                and not (launched and following.__class__ is AccumulateGrad)
            ):
                node, gradient = following, received
                if node.output_metadata.__class__ is tuple:
                    others = node.num_inputs - 1
                    gradient, owned = [gradient] + [None] * others, [owned] + [False] * others
                if ready and -ready[0][0] > node.sequence_nr:
                    self.put_back(node, gradient, owned)
                    node = None
                continue
            if waiting:
                dependencies[following] = waiting
            deliver(self, node, (following,), (received,), owned)
            node = None
        return self.take_last_steps(thread=thread)

    def _exceeded(self, node: Node, helpers: Helpers | None, *, first: bool) -> Outcome | None:
        """How the slice ends before a node for which it has no time left; None if it goes on."""
        cost = node.cost
        if helpers is None:
            # Unless it is heavy, the first node always runs: every slice makes progress.
            if cost > HEAVY_NS:
                return HEAVY
            return None if first else MORE
        if cost < CHEAP_NS:
            return MORE
        return HEAVY if helpers.gives_way(cost, len(self.suspended)) else None

    # -- nodes that are not ordinary ------------------------------------------------------------

    def _run_in_streams(self, budget: int, thread: bool) -> Outcome:
        """`run` for a pass over devices with streams."""
        ready, streams = self.ready, self.streams
        whole = budget
        while self.state is RUNNING:
            if self.inbox:
                self.read_inbox()
                continue
            if not ready:
                break
            cost = host_cost(ready[0][2])
            budget -= cost
            if budget < 0 and not thread and (cost > HEAVY_NS or budget + cost != whole):
                return HEAVY if cost > HEAVY_NS else MORE
            try:
                left = streams.run_ordinary(self, budget + cost)
            except BaseException as error:
                self.fail(error, streams.running)
                continue
            if left is None:
                _, _, node, gradient, owned = heappop(ready)
                self._run_node(node, gradient, owned)
            else:
                budget = left
            if budget < 0:
                return MORE
        return self.take_last_steps(thread=thread)

    def enter_streams(self) -> PassStreams:
        """Continue as a pass over devices with streams; call it with the caller's streams set."""
        streams: PassStreams | None = self.streams
        if streams is None:
            streams = self.streams = PassStreams(current().streams)
            # A report makes `run` check `streams` again.
            self.inbox.append(lambda: None)
        return streams

    def _run_node(self, node: Node, gradient: NodeGradient, owned: Owned) -> None:
        """Start a node that is not ordinary, or continue one that has waited."""
        if gradient.__class__ is Resumed:
            self.launched[node] = node.sequence_nr
            self._resume(node, gradient.steps, gradient.result)
        elif (
            # To run the node means to call its `apply`, and nothing else.
            node.direct
            and node.extras is None
            and self.observer is None
            and not self.careful
            and self.exec_info is None
            and self.streams is None
        ):
            try:
                received = node.apply(tuple(in_own_dtypes(self, node, gradient)), self)
            except BaseException as error:
                self.fail(error, node)
                gradient = None  # See core.frames.
            else:
                deliver(self, node, stored_edges(node), received, node.fresh)
        elif self.streams is None:
            self._resume(node, run_node(self, node, gradient, owned), None)
        else:
            self._resume(node, self.streams.run_node(self, node, gradient, owned), None)

    def _resume(self, node: Node, steps: Steps[Any], result: Value, *, throw: bool = False) -> None:
        """Advance the generator that runs a node until it ends or waits for something."""
        step: Any = steps.throw if throw else steps.send
        streams = self.streams
        if streams is not None:
            step = partial(streams.step, self, node, step)
        elif self.secured < len(self.staged) and must_secure(self, node):
            secure(self)
        self.stepping = True
        try:
            try:
                waiting = step(result) if self.context is None else self.context.run(step, result)
            except StopIteration as stop:
                self.stepping = False
                if stop.value is not None and self.state is RUNNING:
                    received, fresh = stop.value
                    following = stored_edges(node)
                    # Looked up again: the node itself may be what moves the pass to a device.
                    streams = self.streams
                    if streams is None and self.recorded is None:
                        deliver(self, node, following, received, fresh)
                    else:
                        # In the context, so that sums are recorded as in this pass, not in its
                        # caller.
                        put = deliver if streams is None else streams.deliver
                        self.within(put, self, node, following, received, fresh)
                # Last, because an interrupt may come before: without a report the pass must not go
                # on.
                self.launched.pop(node, None)
                return
            suspended = Suspended(node, steps, waiting, self.new_context())
        except BaseException as error:
            self.stepping = False
            self.fail(error, node)
            # `result` may be the error thrown here, whose traceback holds this frame.
            result = None
        else:
            self.stepping = False
            # No interrupt can come between these two lines. Otherwise the pass could wait for ever,
            # for a node that nobody awaits.
            self.launched[node] = node.sequence_nr
            self.suspended.append(suspended)
            if self.careful:
                self.within(forget_node)

    # -- reports --------------------------------------------------------------------------------

    def resume(
        self, node: Node, steps: Steps[Any], result: Value, error: BaseException | None
    ) -> None:
        """Take the result that a suspended node waited for, and continue the node.

        One that is heavy, or before which much is copied, becomes ready again instead: the caller
        may be the loop, and `run` hands such nodes to a thread.
        """
        if self.state is not RUNNING:
            self.launched.pop(node, None)
            close(steps)
            if error is not None:
                self.later_errors += (error,)
        elif error is not None:
            self._resume(node, steps, error, throw=True)
            error = None  # See core.frames.
        elif host_cost(node) > HEAVY_NS or must_secure(self, node, HEAVY_NS):
            self.make_ready(node, Resumed(steps, result), False)
            self.launched.pop(node, None)
        else:
            self._resume(node, steps, result)

    # -- ending ---------------------------------------------------------------------------------

    def take_last_steps(self, *, thread: bool = False) -> Outcome:
        """Take a pass's last steps, if nothing is launched or ready; say why the slice is over.

        They are: undo the commit of a pass that has not succeeded, ask participants, wait for
        devices, call callbacks. Without `thread` this may run on a loop: then large gradients are
        neither committed nor reverted.
        """
        if self.launched or self.ready:
            return MORE if self.ready else WAITING
        on_loop = self.future is not None and not thread
        if self.state in ENDED:
            return FINISHED  # In a thread, and the loop asks again.
        for member in self.members:
            if member.hold is not None:
                member.hold(self)
        if self.state is DRAINING:
            return FINISHED if self.end(not on_loop) else HEAVY
        streams, asks = self.streams, self.asked < len(self.members)
        if streams is not None and not streams.settled and not asks:
            self._resume(_DEVICES, streams.settle(self), None)
        elif on_loop and self.staged and self.is_large():
            return HEAVY
        elif asks:
            while self.state is RUNNING and self.asked < len(self.members):
                member = self.members[self.asked]
                self.asked += 1
                self._resume(member, ask(self, member), None)
        elif self.callbacks or (streams is not None and streams.commits_work(self)):
            self._resume(_CALLBACKS, commit_and_call_back(self), None)
        else:
            return FINISHED
        return self.take_last_steps(thread=thread)
