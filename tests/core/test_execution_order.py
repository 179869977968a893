"""What runs, when, and with which gradients: a machine on paper."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import pytest
from integer_graphs import (
    ENDLESS,
    Lends,
    Step,
    by_rule,
    finish,
    launch,
    leaf,
    pass_over,
    run_through,
    staged,
)
from invariants import validate

from asyncgrad.core.node import MAX_SEQUENCE_NR, Edge, Identity
from asyncgrad.core.states import HEAVY_NS, Outcome, State
from asyncgrad.core.variable import AccumulateGrad, gradient_edge

if TYPE_CHECKING:
    from collections.abc import Callable

    Kind = Callable[[Step], Step]

#: Nodes that compute in `apply`, and those that do by a rule: the machine has a way for each.
KINDS = [pytest.param(lambda node: node, id="apply"), pytest.param(by_rule, id="rule")]


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_of_a_leaf_is_the_number_of_paths_to_it(kind: Kind) -> None:
    """A diamond of diamonds: each doubles the paths."""
    x = leaf()
    node = kind(Step([x]))
    for _ in range(10):
        node = kind(Step([kind(Step([node])), kind(Step([node]))]))
    assert staged(run_through(pass_over(node))) == {x: 2**10}


@pytest.mark.parametrize("kind", KINDS)
class TestOrder:
    def test_ready_nodes_run_in_descending_sequence_number(self, kind: Kind) -> None:
        """Not in order of depth, and not in the order in which they became ready."""
        log: list[str] = []
        x = leaf()
        first = kind(Step([x], label="first", log=log))
        second = kind(Step([x], label="second", log=log))
        third = kind(Step([second], label="third", log=log))
        fourth = kind(Step([first], label="fourth", log=log))
        root = kind(Step([first, third, fourth, second], label="root", log=log))
        run_through(pass_over(root))
        assert log == ["root", "fourth", "third", "second", "first"]

    def test_a_node_that_becomes_ready_goes_before_older_ones_that_wait(self, kind: Kind) -> None:
        log: list[str] = []
        x = leaf()
        old = kind(Step([x], label="old", log=log))
        young = kind(Step([x], label="young", log=log))
        bridge = kind(Step([young], label="bridge", log=log))
        run_through(pass_over(kind(Step([old, bridge], label="root", log=log))))
        assert log == ["root", "bridge", "young", "old"]

    def test_a_node_goes_behind_younger_ones_that_are_ready_already(self, kind: Kind) -> None:
        """Whether it is the only one that its producer makes ready or one of several."""
        log: list[str] = []
        x = leaf()
        oldest, old, young = (
            kind(Step([x], label=label, log=log)) for label in ("oldest", "old", "young")
        )
        bridge = kind(Step([old], label="bridge", log=log))
        fork = kind(Step([oldest, None], label="fork", log=log))
        run_through(pass_over(kind(Step([young, bridge, fork], label="root", log=log))))
        assert log == ["root", "fork", "bridge", "young", "old", "oldest"]


def test_an_accumulator_runs_before_anything_else_that_is_ready() -> None:
    """It carries the greatest number there is."""
    x, y = leaf(), leaf()
    accumulator = gradient_edge(x)
    assert accumulator.sequence_nr == MAX_SEQUENCE_NR
    assert accumulator.topological_nr == 0
    rest = Step([y])
    task = pass_over(Step([rest, Identity([accumulator, accumulator], (x._metadata,) * 2)]))
    task.start()
    order = []
    while (entry := launch(task)) is not None:
        order.append(entry.node)
        if entry.node.__class__ is AccumulateGrad:
            task.staged.append((entry.node.variable, entry.gradient, False))
            finish(task, entry.node, ())
            continue
        gradient = entry.gradient if type(entry.gradient) is list else [entry.gradient]
        finish(task, entry.node, entry.node.apply(tuple(gradient), task))
    kinds = [type(node).__name__ for node in order]
    assert kinds == ["Step", "Identity", "AccumulateGrad", "Step"]
    assert staged(task) == {x: 1, y: 1}


@pytest.mark.parametrize("kind", KINDS)
def test_an_edge_that_appears_twice_counts_twice(kind: Kind) -> None:
    """`x * x` has two edges to the same accumulator, and both bring a gradient."""
    x = leaf()
    shared = kind(Step([x, x]))
    root = kind(Step([shared, shared, shared]))
    task = pass_over(root)
    task.start()
    assert task.dependencies == {shared: 3, gradient_edge(x): 2}
    assert staged(run_through(task)) == {x: 6}


def test_dependencies_count_edges_to_different_outputs_of_a_node_alike() -> None:
    log: list[str] = []
    x = leaf()
    two = Step([x], outputs=2, label="two", log=log)
    left, right = Step([Edge(two, 0)]), Step([Edge(two, 1)])
    task = pass_over(Step([left, right, Edge(two, 1)]))
    task.start()
    assert task.dependencies[two] == 3
    assert staged(run_through(task)) == {x: 3}
    assert log == ["two"]


def test_outputs_that_nothing_leads_to_are_undefined() -> None:
    seen = []

    class Looks(Step):
        __slots__ = ()

        def compute(self, gradients: tuple) -> tuple:
            seen.append(gradients)
            return super().compute(gradients)

    x = leaf()
    three = Looks([x], outputs=3)
    assert staged(run_through(pass_over(Edge(three, 1)))) == {x: 1}
    assert seen == [(None, 1, None)]


def test_an_undefined_gradient_still_releases_what_waits_for_it() -> None:
    class Nothing(Step):
        __slots__ = ()

        def compute(self, gradients: tuple) -> tuple:
            return (None,) * len(self.next_edges)

    class Silent(Step):
        __slots__ = ()

        def compute(self, gradients: tuple) -> None:
            return None

    x, y = leaf(), leaf()
    meet = Step([x, y])
    task = run_through(pass_over(Step([meet, Nothing([meet, y]), Silent([meet, y])])))
    assert staged(task) == {x: 1, y: 1}


def test_a_pass_of_nothing_but_undefined_gradients_stages_nothing() -> None:
    x = leaf()
    task = run_through(pass_over(Step([Step([x])]), gradients=[None]))
    assert task.staged == []


def test_missing_edges_are_passed_over() -> None:
    x = leaf()
    assert staged(run_through(pass_over(Step([None, x, None, Step([None])])))) == {x: 1}


def test_a_leaf_can_be_the_root() -> None:
    x = leaf()
    assert staged(run_through(pass_over(x, gradients=[7]))) == {x: 7}


class TestSeveralRoots:
    def test_each_root_gets_its_own_gradient(self) -> None:
        x, y = leaf(), leaf()
        task = pass_over(Step([x]), Step([y]), gradients=[3, 5])
        assert staged(run_through(task)) == {x: 3, y: 5}

    def test_the_same_root_twice_is_summed(self) -> None:
        x = leaf()
        root = Step([x])
        assert staged(run_through(pass_over(root, root, gradients=[3, 5]))) == {x: 8}

    def test_a_root_may_lie_behind_another_and_runs_once(self) -> None:
        log: list[str] = []
        x = leaf()
        inner = Step([x], label="inner", log=log)
        outer = Step([inner, inner], label="outer", log=log)
        assert staged(run_through(pass_over(inner, outer, gradients=[10, 1]))) == {x: 12}
        assert log == ["outer", "inner"]

    def test_leaves_and_outputs_of_one_node_can_be_roots(self) -> None:
        x = leaf()
        two = Step([x], outputs=2)
        task = pass_over(x, Edge(two, 1), Edge(two, 0), x, gradients=[1, 10, 100, 1000])
        assert staged(run_through(task)) == {x: 1111}

    def test_no_roots_at_all_is_a_pass_that_does_nothing(self) -> None:
        task = run_through(pass_over())
        assert task.staged == []


class TestSlices:
    def test_a_slice_ends_when_its_budget_is_used_up_and_the_next_goes_on(self) -> None:
        log: list[int] = []
        node = Step([x := leaf()], label=0, log=log)
        for label in range(1, 10):
            node = Step([node], label=label, log=log)
        task = pass_over(node)
        task.start()
        lengths = []
        while (outcome := task.run(3 * 2_000)) is Outcome.MORE:
            validate(task)
            lengths.append(len(log))
        assert outcome is Outcome.FINISHED
        assert lengths == [3, 6, 9]
        assert log == list(range(9, -1, -1))
        assert staged(task) == {x: 1}

    def test_a_node_that_costs_more_than_a_slice_is_announced_and_not_run(self) -> None:
        log: list[str] = []
        x = leaf()
        heavy = Step([x], label="heavy", log=log, cost=10**9)
        task = pass_over(Step([heavy], label="light", log=log))
        task.start()
        assert task.run(250_000) is Outcome.HEAVY
        validate(task)
        assert log == ["light"]
        assert task.run(1, Lends(0)) is Outcome.FINISHED
        assert log == ["light", "heavy"]
        assert staged(task) == {x: 1}

    def test_a_thread_gives_a_pass_back_after_a_run_of_cheap_nodes(self) -> None:
        node = Step([x := leaf()])
        for _ in range(100):
            node = Step([node])
        node = Step([node], cost=10**9)
        task = pass_over(node)
        task.start()
        assert task.run(24_000, Lends(0)) is Outcome.MORE
        validate(task)
        (ready,) = task.ready
        assert ready[2] is not node
        assert task.run(ENDLESS) is Outcome.FINISHED
        assert staged(task) == {x: 1}

    def test_nothing_runs_before_the_walk_is_complete(self) -> None:
        log: list[str] = []
        task = pass_over(Step([leaf()], label="root", log=log))
        assert task.state is State.NEW
        task.run(ENDLESS)
        assert launch(task) is None
        assert log == []


class TestResumableWalk:
    @pytest.mark.parametrize("partial", [False, True])
    @pytest.mark.parametrize("steps", [1, 1_000, 2_000, 3_500])
    def test_a_walk_in_parts_finds_what_one_in_one_go_finds(
        self, steps: int, partial: bool
    ) -> None:
        x, y = leaf(), leaf()
        node = Step([x, y])
        for _ in range(10_000):
            node = Step([node])
        node = Step([node, node])
        inputs = [x] if partial else None
        whole, parts = pass_over(node, inputs=inputs), pass_over(node, inputs=inputs)
        assert whole.start()
        calls = 1
        while not parts.start(steps):
            assert parts.state is State.NEW
            assert launch(parts) is None
            calls += 1
        assert calls >= 10_000 // max(steps, 2_000)
        assert parts.state is State.RUNNING
        assert parts.dependencies == whole.dependencies
        assert staged(run_through(parts)) == staged(run_through(whole))

    @pytest.mark.parametrize("partial", [False, True])
    def test_a_walk_stops_among_the_edges_of_a_node(self, partial: bool) -> None:
        """Otherwise one with 20,000 edges would hold the loop for two milliseconds."""
        x, y = leaf(), leaf()
        node = Step([*[x] * 20_000, y])
        inputs = [x] if partial else None
        whole, parts = pass_over(node, inputs=inputs), pass_over(node, inputs=inputs)
        assert whole.start()
        calls = 1
        while not parts.start(2_000):
            calls += 1
        assert calls >= (20 if partial else 10)
        assert parts.dependencies == whole.dependencies
        assert staged(run_through(parts)) == staged(run_through(whole))

    def test_a_second_start_changes_nothing(self) -> None:
        x = leaf()
        task = pass_over(Step([x, x]))
        assert task.start()
        before = dict(task.dependencies)
        assert task.start()
        assert task.dependencies == before
        assert staged(run_through(task)) == {x: 2}

    def test_a_pass_cancelled_in_the_middle_of_its_walk_ends_without_a_node_run(self) -> None:
        log: list[int] = []
        node = Step([leaf()], label=0, log=log)
        for label in range(5_000):
            node = Step([node], label=label, log=log)
        task = pass_over(node)
        assert not task.start(1)
        assert task.cancel()
        validate(task)
        assert task.run(ENDLESS) is Outcome.FINISHED
        assert task.state is State.CANCELLED
        assert log == []
        task.release()
        validate(task)


def test_threads_that_need_a_leafs_accumulator_at_once_get_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Gradients of both graphs go to the leaf; a pass sums them in one place."""
    x = leaf()
    others: list[AccumulateGrad] = []

    def switched(accumulator: AccumulateGrad) -> Any:
        monkeypatch.undo()
        others.append(gradient_edge(x))
        return weakref.ref(accumulator)

    monkeypatch.setattr("asyncgrad.core.variable.ref", switched)
    assert gradient_edge(x) is others[0]
    assert gradient_edge(x) is others[0]


@pytest.mark.parametrize("above", [0, 1])
def test_only_nodes_above_the_limit_are_lent(above: int) -> None:
    """The limit is that of slices, so that no node is too cheap for a thread and lent to one."""
    x = leaf()
    ready = by_rule(Step([x], cost=HEAVY_NS + above))
    running = by_rule(Step([x], cost=10 * HEAVY_NS))
    task = pass_over(by_rule(Step([ready, running])))
    task.start()
    helpers = Lends()
    assert task.run(0) is Outcome.HEAVY
    task.run(0, helpers)
    assert len(helpers.jobs) == above
    for job in helpers.jobs:
        job()
    assert task.run(ENDLESS, helpers) is Outcome.FINISHED
    assert sum(gradient for _, gradient, _ in task.staged) == 2


def run_with(helpers: Lends, *nodes: Step) -> int:
    """Run a pass over nodes that are ready together, the last one first; the number of jobs."""
    task = pass_over(by_rule(Step(list(nodes))))
    task.start()
    assert task.run(0) is Outcome.HEAVY
    task.run(0, helpers)
    lent = len(helpers.jobs)
    while helpers.jobs:
        helpers.jobs.pop()()
        task.run(ENDLESS, helpers)
    assert task.run(ENDLESS, helpers) is Outcome.FINISHED
    assert sum(gradient for _, gradient, _ in task.staged) == sum(
        len(node.next_edges) for node in nodes
    )
    return lent


@pytest.mark.parametrize("room", [0, 1, 2])
def test_as_many_nodes_are_lent_as_there_are_idle_threads(room: int) -> None:
    x = leaf()
    nodes = [by_rule(Step([x], cost=10 * HEAVY_NS)) for _ in range(4)]
    assert run_with(Lends(room), *nodes) == room


def test_no_node_is_lent_that_has_no_rule() -> None:
    """It runs user code, whose thread the user may notice."""
    x = leaf()
    of_the_user = Step([x], cost=10 * HEAVY_NS)
    assert run_with(Lends(splits=True), of_the_user, by_rule(Step([x], cost=10 * HEAVY_NS))) == 0


class Reports:
    """Has the rules called of a pass that it watches."""

    def call(self, node: Any, rule: Any, place: int | None, *facts: Any) -> Any:
        return (rule.run if place is None else rule.pulls[place])(*facts)

    def adding(self, functions: Any) -> Any:
        return functions


@pytest.mark.parametrize("kind", ["undefined", "careful", "watched", "captured", "needed in part"])
def test_no_node_is_lent_that_is_more_than_its_rule(kind: str) -> None:
    """Two are ready: the first would be split, and the second is handed out."""
    x, y = leaf(), leaf()
    nodes = [by_rule(Step([x, y], cost=10 * HEAVY_NS), apart=True) for _ in range(2)]
    inputs = {"captured": [x, y, *nodes], "needed in part": [x]}.get(kind)
    gradients = [None] if kind == "undefined" else None
    task = pass_over(by_rule(Step(nodes)), gradients=gradients, inputs=inputs, accumulate=False)
    if kind == "careful":
        task.careful = True
    if kind == "watched":
        task.watch = Reports()
    helpers = Lends(splits=True)
    task.start()
    assert task.run(0) is Outcome.HEAVY
    assert task.run(0, helpers) is Outcome.FINISHED
    assert helpers.jobs == []
    if inputs is not None:
        assert list(task.captured) == [2, 2, 1, 1][: len(inputs)]
    elif gradients is None:
        assert staged(task) == {x: 2, y: 2}


class Saves(Step):
    """Notes that it releases what it has saved."""

    __slots__ = ()

    def release_saved(self, freed: Any) -> None:
        assert self.log is not None
        self.log.append("released")


@pytest.mark.parametrize(
    ("keep", "cancels", "expected"),
    [(False, False, ["ran", "released"]), (True, False, ["ran"]), (False, True, [])],
    ids=["ends", "is retained", "is cancelled"],
)
def test_a_lent_node_runs_and_releases_what_it_has_saved_as_the_pass_would(
    keep: bool, cancels: bool, expected: list[str]
) -> None:
    """Another pass may go through what a cancelled one has not run."""
    log: list[str] = []
    lent = by_rule(Saves([leaf()], cost=10 * HEAVY_NS, label="ran", log=log))
    running = by_rule(Step([leaf()], cost=10 * HEAVY_NS))
    task = pass_over(by_rule(Step([lent, running])), keep_graph=keep)
    task.start()
    helpers = Lends()
    assert task.run(0) is Outcome.HEAVY
    task.run(0, helpers)
    if cancels:
        task.cancel()
    helpers.jobs.pop()()
    task.read_inbox()
    assert task.run(ENDLESS, helpers) is Outcome.FINISHED
    assert log == expected


def test_the_users_code_does_not_wait_for_an_older_node_that_a_thread_computes() -> None:
    log: list[str] = []
    lent = by_rule(Step([leaf()], cost=10 * HEAVY_NS))
    of_the_user = Step([leaf()], label="user", log=log)
    running = by_rule(Step([of_the_user], cost=10 * HEAVY_NS))
    task = pass_over(by_rule(Step([lent, running])))
    task.start()
    helpers = Lends()
    assert task.run(0) is Outcome.HEAVY
    task.run(0, helpers)
    assert (len(helpers.jobs), log) == (1, ["user"])
    helpers.jobs.pop()()
    assert task.run(ENDLESS, helpers) is Outcome.FINISHED


@pytest.mark.parametrize(
    ("cost", "splits", "apart", "lent"),
    [
        (2 * HEAVY_NS, True, True, 1),
        (2 * HEAVY_NS - 1, True, True, 0),
        (2 * HEAVY_NS, False, True, 0),
        (2 * HEAVY_NS, True, False, 0),
    ],
    ids=["split", "too cheap", "no thread for parts", "work in common"],
)
def test_a_node_is_split_whose_halves_are_worth_a_thread(
    cost: int, splits: bool, apart: bool, lent: int
) -> None:
    node = by_rule(Step([leaf(), leaf()], cost=cost), apart=apart)
    assert run_with(Lends(0, splits=splits), node) == lent
