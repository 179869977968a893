"""Any graph, any interleaving of reports: the machine against a reference that does one thing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import hypothesis.strategies as st
from hypothesis import event, given, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from integer_graphs import (
    ENDLESS,
    Answer,
    Lends,
    Question,
    Step,
    accumulate,
    by_rule,
    finish,
    launch,
    leaf,
    pass_over,
    staged,
)
from invariants import validate

from asyncgrad.core.node import Edge, Node
from asyncgrad.core.states import HEAVY_NS, Outcome, Resumed, State
from asyncgrad.core.variable import AccumulateGrad, Variable, gradient_edge

if TYPE_CHECKING:
    from asyncgrad.core.graph_task import GraphTask


class Mixes(Step):
    """Answers each edge with a word that depends on all that came in and in which order."""

    __slots__ = ("asks", "silent")

    def compute(self, gradients: tuple) -> Any:
        return Question() if self.asks else self.answer(gradients)

    def answer(self, gradients: tuple) -> Answer:
        if all(gradient is None for gradient in gradients):
            return Answer((None,) * len(self.next_edges))
        return Answer(
            None if place in self.silent else (hash((self.label, place, gradients)),)
            for place in range(len(self.next_edges))
        )


class Plan(NamedTuple):
    """How to make a node: where its edges go, and what it does."""

    #: Pairs of an earlier node or leaf and one of its outputs; None for a missing edge.
    edges: list[tuple[int, int] | None]
    outputs: int
    silent: frozenset[int]
    asks: bool


class Graph(NamedTuple):
    leaves: list[Variable]
    nodes: list[Mixes]
    #: Stored edges.
    roots: list[Any]
    gradients: list[Any]
    requested: list[Edge] | None
    runs_requested: bool


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Graphs of up to ten nodes with any fan-in, fan-out, duplicates and several outputs."""
    leaves = [leaf() for _ in range(draw(st.integers(1, 3)))]
    nodes: list[Mixes] = []

    def pick(*, missing: bool = True) -> Edge | None:
        if missing and draw(st.integers(0, 9)) == 0:
            return None
        place = draw(st.integers(0, len(leaves) + len(nodes) - 1))
        if place < len(leaves):
            return Edge(gradient_edge(leaves[place]), 0)
        node = nodes[place - len(leaves)]
        return Edge(node, draw(st.integers(0, node.num_inputs - 1)))

    for label in range(draw(st.integers(1, 10))):
        edges = [pick() for _ in range(draw(st.integers(1, 3)))]
        node = Mixes(edges, outputs=draw(st.integers(1, 3)), label=str(label))
        node.silent = draw(st.frozensets(st.integers(0, 2), max_size=1))
        node.asks = draw(st.booleans())
        if draw(st.booleans()):
            node.cost = 2 * HEAVY_NS
        if node.num_inputs == 1 and draw(st.booleans()):
            node.asks = False
            by_rule(node)
        nodes.append(node)
    roots = [Edge(nodes[-1], 0)]
    roots += [pick(missing=False) for _ in range(draw(st.integers(0, 2)))]
    gradients: list[Any] = [(f"root {place}",) for place in range(len(roots))]
    if draw(st.integers(0, 4)) == 0:
        gradients[0] = None
    requested, runs = None, False
    if draw(st.booleans()):
        runs = draw(st.booleans())
        requested = [pick(missing=False) for _ in range(draw(st.integers(1, 3)))]
        if runs:
            requested = [Edge(gradient_edge(draw(st.sampled_from(leaves))), 0)]
    return Graph(leaves, nodes, roots, gradients, requested, runs)


def reference(graph: Graph) -> tuple[dict[Variable, Any], list[Any]]:
    """What each leaf gets and each request captures: one node after the other, youngest first."""
    requested = {edge.node for edge in graph.requested or ()}
    leads: dict[Node, bool] = {}
    for node in graph.nodes:  # made in this order: what an edge leads to comes before
        leads[node] = any(
            edge.node is not None and (edge.node in requested or leads.get(edge.node, False))
            for edge in node.next_edges
        )
    everything = graph.requested is None
    received: dict[Node, list[Any]] = {}

    def give(edge: Edge, gradient: Any) -> None:
        if edge.node is None:
            return
        places = received.setdefault(edge.node, [None] * edge.node.num_inputs)
        if gradient is not None:
            before = places[edge.input_nr]
            places[edge.input_nr] = gradient if before is None else before + gradient

    for edge, gradient in zip(graph.roots, graph.gradients, strict=True):
        give(edge, gradient)
    for node in reversed(graph.nodes):
        if node in received and (everything or leads[node]):
            for edge, gradient in zip(
                node.next_edges, node.answer(tuple(received[node])), strict=True
            ):
                give(edge, gradient)
    gradients = {}
    for variable in graph.leaves:
        node = gradient_edge(variable)
        runs = everything or (graph.runs_requested and node in requested)
        if runs and node in received and received[node] != [None]:
            gradients[variable] = received[node][0]
    captured = []
    if not everything and not graph.runs_requested:
        captured = [
            received[edge.node][edge.input_nr] if edge.node in received else None
            for edge in graph.requested
        ]
    return gradients, captured


def pass_over_graph(graph: Graph) -> GraphTask:
    return pass_over(
        *graph.roots,
        gradients=graph.gradients,
        inputs=graph.requested,
        accumulate=graph.runs_requested,
    )


@given(graphs())
def test_a_pass_run_in_one_go_is_the_reference(graph: Graph) -> None:
    for node in graph.nodes:
        node.asks = False
    task = pass_over_graph(graph)
    task.start()
    validate(task)
    assert task.run(ENDLESS) is Outcome.FINISHED
    validate(task)
    assert (staged(task), list(task.captured)) == reference(graph)


class Interleavings(RuleBasedStateMachine):
    """One pass, driven by an owner who does anything in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[Exception] = []
        self.cancelled = False
        #: Handed out by `launch`, with their gradients.
        self.out: list[tuple[Any, Any]] = []

    @initialize(graph=graphs(), calm=st.sampled_from([True, True, False]), early=st.booleans())
    def begin(self, graph: Graph, calm: bool, early: bool) -> None:
        self.graph = graph
        #: Nothing goes wrong.
        self.calm = calm
        self.task = pass_over_graph(graph)
        if early or calm:
            self.task.start()

    # -- driving --------------------------------------------------------------

    @precondition(lambda self: self.task.state is not State.RUNNING)
    @rule(steps=st.sampled_from([-1, 1, 2]))
    def start(self, steps: int) -> None:
        self.task.start(steps)

    @rule(budget=st.sampled_from([1_999, 2_000, 4_000, 6_000]))
    def run(self, budget: int) -> None:
        self.task.run(budget)

    @precondition(lambda self: not self.calm)
    @rule()
    def run_in_a_thread(self) -> None:
        self.task.run(24_000, Lends(0))

    @rule()
    def read_inbox(self) -> None:
        self.task.read_inbox()

    @rule()
    def launch(self) -> None:
        entry = launch(self.task)
        if entry is not None:
            assert self.task.state is State.RUNNING
            if entry.gradient.__class__ is Resumed:
                self.task._run_node(*entry[2:])
            else:
                self.out.append((entry.node, entry.gradient))

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        node, gradient = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        if self.task.captures and node in self.task.captures and self.is_running():
            # Captures are the machine's; `launch` is for nodes that are none.
            self.task.capture(node, gradient)
        if node.__class__ is AccumulateGrad:
            if self.is_running() and self.runs(node):
                accumulate(self.task, node, gradient)
            finish(self.task, node, ())
            return
        if not isinstance(node, Mixes):
            answer = node.apply((), self.task)
        else:
            several = node.output_metadata.__class__ is tuple
            answer = node.answer(tuple(gradient) if several else (gradient,))
        ready = finish(self.task, node, answer if self.runs(node) else (None,) * len(answer))
        assert self.is_running() or ready == []

    @precondition(lambda self: self.task.suspended)
    @rule(data=st.data(), by_inbox=st.booleans())
    def resume(self, data: st.DataObject, by_inbox: bool) -> None:
        place = data.draw(st.integers(0, len(self.task.suspended) - 1))
        node, steps, *_ = self.task.suspended.pop(place)
        gradients = steps.gi_yieldfrom.gi_frame.f_locals["gradients"]
        answer = node.answer(tuple(gradients))

        def report() -> None:
            self.task.resume(node, steps, answer, None)

        if by_inbox:
            self.task.inbox.append(report)
        else:
            report()

    # -- ending ---------------------------------------------------------------

    @precondition(lambda self: self.task.suspended and not self.calm)
    @rule(data=st.data())
    def resume_with_an_error(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.task.suspended) - 1))
        node, steps, *_ = self.task.suspended.pop(place)
        self.note(error := ValueError(len(self.errors)))
        self.task.resume(node, steps, None, error)

    @precondition(lambda self: self.out and not self.calm)
    @rule(data=st.data())
    def fail_a_node(self, data: st.DataObject) -> None:
        node, _ = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        self.note(error := ValueError(len(self.errors)))
        self.task.fail(error, node)

    @precondition(lambda self: not self.calm)
    @rule(by_inbox=st.booleans())
    def cancel(self, by_inbox: bool) -> None:
        ended = self.task.state in {State.FAILED, State.CANCELLED}
        if not self.errors and not ended:
            # From here on: an error that comes before the inbox is read comes after the cancel.
            self.cancelled = True
        if by_inbox:
            self.task.inbox.append(self.task.cancel)
        else:
            assert self.task.cancel() is not ended

    def note(self, error: Exception) -> None:
        """Remember an error that the pass is to end with, if no cancel was there before."""
        if not self.cancelled:
            self.errors.append(error)

    # -- what always holds -----------------------------------------------------

    def is_running(self) -> bool:
        return self.task.state is State.RUNNING

    def runs(self, node: Node) -> bool:
        info = self.task.exec_info
        return info is None or info.runs(node)

    @invariant()
    def is_sound(self) -> None:
        if hasattr(self, "task"):
            validate(self.task)
            if self.task.state not in {State.NEW, State.RUNNING}:
                assert self.task.staged == []
                assert not self.task.captured

    def teardown(self) -> None:
        """Bring the pass to its end, and compare."""
        if not hasattr(self, "task"):
            return
        task = self.task
        task.start()
        while True:
            outcome = task.run(ENDLESS)
            task.read_inbox()
            validate(task)
            while task.suspended:
                node, steps, *_ = task.suspended.pop()
                gradients = steps.gi_yieldfrom.gi_frame.f_locals["gradients"]
                task.resume(node, steps, node.answer(tuple(gradients)), None)
            while self.out:
                self.finish(_Last())
            if outcome is Outcome.FINISHED and task.take_last_steps() is Outcome.FINISHED:
                break
        assert not task.launched
        if self.errors:
            event("failed")
            assert (task.state, task.error) == (State.FAILED, self.errors[0])
            assert list(task.later_errors) == self.errors[1:]
        elif self.cancelled:
            event("cancelled")
            assert (task.state, task.error) == (State.CANCELLED, None)
        else:
            event("succeeded")
            assert task.state is State.RUNNING
            assert (staged(task), list(task.captured)) == reference(self.graph)


class _Last:
    """Draws the last of what there is."""

    def draw(self, strategy: Any) -> int:
        return -1


TestInterleavings = Interleavings.TestCase
# Runs are short and graphs small: what matters is how many.
TestInterleavings.settings = settings(max_examples=300, stateful_step_count=40)


def test_a_requested_node_that_leads_nowhere_is_captured() -> None:
    node = by_rule(Step([None], label="0"))
    task = pass_over(node, gradients=[("root",)], inputs=[node], accumulate=False)
    task.start()
    assert task.run(ENDLESS) is Outcome.FINISHED
    assert list(task.captured) == [("root",)]
