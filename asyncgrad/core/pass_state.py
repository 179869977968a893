"""What is known of one backward pass, and the changes to it that run no node.

`GraphTask` adds how nodes are run. All modules that take part in that know a pass by this class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from heapq import heappush
from typing import TYPE_CHECKING, Any

from asyncgrad.aliases import Gradient, Namespace, NodeGradient, Owned, Steps, StoredEdge
from asyncgrad.core.exec_info import ExecInfo
from asyncgrad.core.frames import DEPTH, clear_frames
from asyncgrad.core.node import Edge, Freed, GraphRoot, Node, as_edge
from asyncgrad.core.states import (
    CANCELLED,
    DONE,
    DRAINING,
    ENDED,
    FAILED,
    NEW,
    RUNNING,
    SHARE_NS,
    InputBuffer,
    Resumed,
    Suspended,
)
from asyncgrad.core.variable import Staged
from asyncgrad.errors import add_note, described, is_stop, note_failure

if TYPE_CHECKING:
    from contextvars import Context

#: Up to this many staged elements of so many leaves are committed on the loop, where no coroutine
#: can see some leaves updated and others not; more are committed in a thread.
_LARGE, _MANY = 50_000, 300
#: The root of passes that have ended, instead of their graph.
_NO_ROOT = GraphRoot((), ())


class PassState:
    """The state of one backward pass.

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

    __slots__ = (
        "__weakref__", "asked", "callbacks", "cancelling", "captured", "captures", "careful",
        "collect", "committed", "committed_early", "context", "create_graph", "deadline",
        "dependencies", "depth", "ending", "error", "event_log", "exec_info", "freed", "future",
        "inbox", "keep_graph", "later_errors", "launched", "members", "not_ready", "observer",
        "order", "outermost", "parent", "postponed", "priority", "ready", "recorded", "result",
        "revoke", "root", "running", "secured", "share_ns", "staged", "state", "stepping",
        "streams", "suspended", "timer", "virtual_time", "wait_enqueued", "walk", "watch",
    )  # fmt: skip

    def __init__(
        self, edges: Sequence[StoredEdge], gradients: Sequence[Gradient], keep_graph: bool = False,
        create_graph: bool = False, inputs: Sequence[StoredEdge] | None = None,
        accumulate: bool = True, recorded: Namespace = None, context: Context | None = None,
        parent: PassState | None = None,
    ) -> None:  # fmt: skip
        root: Any
        gradient: NodeGradient
        owned: Owned
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
        #: How deep the pass is nested, and the outermost of the passes around it.
        self.depth: int = 0
        self.outermost: PassState | None = None
        if parent is not None:
            self.depth = parent.depth + 1
            self.outermost = parent.outermost or parent
        #: Replaces what nodes have saved when it is released; knows where the pass was started.
        # There is one call more between `backward` and this line than between `grad` and it.
        self.freed = Freed().remember(DEPTH + accumulate)
        #: Notified of every node; None if there is no observer.
        self.observer: Any = None
        #: A recorder's `WatchedPass`, which calls rules and adds gradients for it; else None.
        self.watch: Any = None
        #: Every node is run by `run_node`: the pass records itself, is observed, or checks for NaN.
        self.careful = recorded is not None
        #: Computes the result of the pass after its gradients are committed.
        self.collect: Callable[[Any, Callable[..., Any]], Any] | None = None
        self.result: Any = None
        # -- progress
        self.state = NEW
        #: The rest of the walk that counts dependencies: the nodes to visit, or the generator
        #: `ExecInfo.walk`; None when it is complete.
        self.walk: Any = [root]
        #: Waiting nodes, with the number of edges over which no gradient has come yet.
        self.dependencies: dict[Node, int] = {}
        #: Nodes with some but not all gradients. Their keys are in `dependencies`, too.
        self.not_ready: dict[Node, InputBuffer] = {}
        #: Nodes with all their gradients: a heap with the next node first. An entry is minus the
        #: node's number, a tie breaker, the node, its gradient and whether that is owned; the last
        #: two are lists, with one for each input, if the node has several.
        self.ready: list[Any] = [(-root.sequence_nr, 0, root, gradient, owned)]
        #: Counts pushes to the heap: a tie breaker, so that nodes are never compared.
        self.order = 0
        #: Leaves with hooks that got a gradient before nodes with greater numbers had reported, and
        #: must not run before these. For each: the least sequence number of its producers so far,
        #: by which it is put in order, and a tie breaker.
        self.postponed: dict[Node, tuple[int, int]] = {}
        #: Nodes that were handed out and have not reported, with their sequence number.
        self.launched: dict[Node, int] = {}
        #: Launched nodes for which the owner still has to arrange a wait.
        self.suspended: list[Suspended] = []
        #: Whether a hook or a user's node may be running, so that a pass started now is nested in
        #: this one; None until the first has run. The context alone does not tell: tasks that such
        #: code starts have a copy of it, and may outlive the code.
        self.stepping: bool | None = None
        #: Reports from code that is not the owner: calls without arguments.
        self.inbox: list[Callable[[], Any]] = []
        #: What a partial pass runs and captures; None if everything runs.
        self.exec_info: ExecInfo | None = None
        #: For each captured node: pairs of an input number and a position in `captured`. Only
        #: passes of `grad()` capture any.
        self.captures: dict[Any, tuple[tuple[int, int], ...]] = {}
        self.captured: Any = ()
        if inputs is not None:
            self.exec_info = ExecInfo(inputs, accumulate)
            if not accumulate:
                self.captures = self.exec_info.requested
                self.captured = [None] * len(inputs)
        #: What `commit` will add to the leaves: (variable, gradient, owned).
        self.staged: list[Staged] = []
        #: How many of the first staged gradients share no memory any more with what users see.
        self.secured = 0
        #: What is staged has been added, and will not be revoked.
        self.committed = False
        #: A leaf with post-accumulate hooks was reached, whose gradient is not staged.
        self.committed_early = False
        #: The participants of the pass, each a `Member` (`core/last_steps.py`), and how many of the
        #: first have been asked.
        self.members: Sequence[Any] = ()
        self.asked = 0
        #: Functions to call after the last node.
        self.callbacks: list[Callable[[], Any]] = []
        #: Undoes the commit made before the callbacks, if the pass does not succeed.
        self.revoke: Callable[[bool], bool] | None = None
        #: The `PassStreams` of a pass over devices with streams, else None; and whether the pass
        #: ends when all its work is enqueued in streams, rather than done.
        self.streams: Any = None
        self.wait_enqueued = False
        self.error: BaseException | None = None
        self.later_errors: tuple[BaseException, ...] = ()
        # -- the scheduler's notes
        self.priority = 0
        self.deadline: float | None = None
        self.future: Any = None
        #: The timer for the deadline, or for the grace period of cancelled nodes.
        self.timer: Any = None
        #: The last events (`EventLog`); None while the pass is in its first slice.
        self.event_log: Any = None
        #: A slice of the pass is running.
        self.running = False
        #: The pass was asked to end.
        self.cancelling = False
        #: The gradients are being committed, or are about to be: the pass can't be cancelled.
        self.ending = False
        #: How long this pass and those nested in it have run; -1 before the first slice.
        self.virtual_time = -1
        #: The longest slice while other passes wait; set when the walk is complete.
        self.share_ns = SHARE_NS

    # -- ready nodes ----------------------------------------------------------------------------

    def make_ready(self, node: Node, gradient: NodeGradient, owned: Owned) -> None:
        """Note that a node has all its gradients."""
        self.order += 1
        if self.postponed:
            self.put_back(node, gradient, owned, self.order)
        else:
            heappush(self.ready, (-node.sequence_nr, self.order, node, gradient, owned))

    def put_back(self, node: Node, gradient: NodeGradient, owned: Owned, order: int = 0) -> None:
        """Return a node to `ready`, before all others with its number."""
        number = node.sequence_nr
        if node in self.postponed:
            number, order = self.postponed[node]
        heappush(self.ready, (-number, order, node, gradient, owned))

    def capture(self, node: Node, gradient: NodeGradient) -> bool:
        """Store a requested node's gradients; True if the node itself is not to run."""
        assert self.exec_info is not None
        several = node.output_metadata.__class__ is tuple
        for position, place in self.captures[node]:
            self.captured[place] = gradient[position] if several else gradient
        return not self.exec_info.runs(node)

    def is_ordinary(self, node: Node) -> bool:
        """Whether to run a node means to call its rule: no hook, capture or observer sees it."""
        return (
            node.rule is not None
            and node.extras is None
            and not self.careful
            and node not in self.captures
        )

    def within(self, function: Callable[..., Any], *args: object) -> Any:
        """Call a function in the pass's context, if it has one."""
        return function(*args) if self.context is None else self.context.run(function, *args)

    def new_context(self) -> Context:
        """A copy of the context in which hooks and Functions run, or of the caller's."""
        return copy_context() if self.context is None else self.context.copy()

    # -- ending ---------------------------------------------------------------------------------

    def examined(self) -> None:
        """Note that the user's code asks which pass runs it, or takes part: it is not replayed."""
        if self.watch is not None:
            self.watch.examined()

    def fail(self, error: BaseException, node: Node | None = None) -> None:
        """End the pass with an error: the first wins, later ones become notes on it.

        One that is meant to stop the program takes the place of one that is not, and of a
        cancellation, even if the pass has just ended.
        """
        # A cancellation that was reported before the error takes effect first.
        self.read_inbox()
        if self.state is RUNNING or self.state is NEW:
            self.error = error
            if node is not None:
                note_failure(error, node)
            self.state = DRAINING
            self._forget()
        elif self.state is not DONE and error is not self.error:
            later: BaseException | None = error
            if is_stop(error) and not is_stop(self.error):
                self.error, later = error, self.error
            if later is not None:
                self.later_errors += (later,)
        if node is not None:
            # Last, because an interrupt may come before: without the error the pass must not go on.
            self.launched.pop(node, None)

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
                close(gradient.steps)
        self.ready.clear()
        self.not_ready.clear()
        self.dependencies.clear()
        self.staged.clear()
        self.captured = ()
        self.callbacks.clear()

    def read_inbox(self) -> None:
        """Apply the reports in the inbox."""
        while self.inbox:
            self.inbox.pop(0)()

    def is_large(self) -> bool:
        """Whether what is staged is so much that a thread should commit it."""
        staged = self.staged
        return len(staged) > _MANY or sum([x._metadata.size for x, _, _ in staged]) > _LARGE

    def succeed(self) -> None:
        """Note that the gradients are committed."""
        if self.collect is not None:
            self.result = self.collect(self, self.within)
        self.state = DONE

    def fail_at_end(self, error: BaseException) -> None:
        """Note that the commit has failed."""
        self.error = error
        self.end(True)

    def end(self, wait: bool) -> bool:
        """Undo the commit of a pass that has failed or was cancelled, and set its final state.

        Without `wait`, False if the commit can't be undone at once; nothing has been done then.
        """
        if self.revoke is not None and not self.revoke(wait):
            return False
        self.revoke = None
        self.state = CANCELLED if self.error is None else FAILED
        return True

    def drop_graph(self) -> None:
        """Drop the graph after a success, so that references to the pass don't keep it alive.

        Tasks and timers started by hooks have such references, in their contexts.
        """
        self.root = _NO_ROOT
        self.result = self.collect = self.exec_info = self.revoke = None
        self.captures = {}
        self.captured = ()
        self.postponed.clear()
        # Its records of modes refer back to the pass: a cycle.
        self.streams = None

    def release(self) -> None:
        """Drop the graph and the context, so that references to the error don't keep them alive."""
        for error in self.later_errors:
            clear_frames(error)
            if self.error is not None:
                add_note(self.error, f"later in the same pass: {described(error)}")
        if self.error is not None:
            clear_frames(self.error)
        self._forget()
        self.drop_graph()
        self.walk = self.context = self.parent = self.outermost = self.error = None
        self.later_errors = ()
        self.inbox.clear()


def running_pass(task: PassState | None) -> PassState | None:
    """This pass or, if it has ended, the innermost enclosing one that has not."""
    while task is not None and task.state in ENDED:
        task = task.parent
    return task


def close(steps: Steps[Any]) -> None:
    """End the generator of a node early.

    It restores modes of its pass, so it runs in a copy of the context: they are not the caller's.
    """
    copy_context().run(steps.close)
