"""Passes that run only what somebody asked for."""

from __future__ import annotations

from integer_graphs import ENDLESS, Answer, Asks, Step, leaf, pass_over, run_through, staged
from invariants import validate

from asyncgrad.core.exec_info import arrivals
from asyncgrad.core.hooks import NodeExtras
from asyncgrad.core.node import Edge
from asyncgrad.core.states import Outcome, State


def chain(edge: object, length: int, log: list, label: str) -> Step:
    node = Step([edge], label=label, log=log)
    for _ in range(length - 1):
        node = Step([node], label=label, log=log)
    return node


def test_only_nodes_on_a_path_to_a_requested_leaf_run() -> None:
    """Counted: the other branch of 50 nodes costs nothing."""
    log: list[str] = []
    x, y = leaf(), leaf()
    wanted, other = chain(x, 3, log, "wanted"), chain(y, 50, log, "other")
    task = pass_over(Step([wanted, other], label="root", log=log), inputs=[x], accumulate=False)
    run_through(task)
    assert task.captured == [1]
    assert log == ["root"] + ["wanted"] * 3
    assert task.staged == []


def test_nothing_behind_the_oldest_requested_input_is_walked() -> None:
    """Topological numbers say that nothing requested can lie there: looked at once, not entered."""
    log: list[str] = []
    x = leaf()
    behind = chain(x, 1_000, log, "behind")
    middle = Step([behind], label="middle", log=log)
    side = chain(leaf(), 900, log, "side")
    root = Step([middle, side], label="root", log=log)
    task = pass_over(root, inputs=[Edge(middle, 0)], accumulate=False)
    assert task.exec_info.min_topological_nr == middle.topological_nr == 1_001
    run_through(task)
    assert task.captured == [1]
    assert log == ["root"]
    assert [task.exec_info.runs(node) for node in (root, middle, side)] == [True, False, False]


def test_an_input_above_another_is_captured_and_runs() -> None:
    log: list[str] = []
    x = leaf()
    inner = Step([x, x], label="inner", log=log)
    middle = Step([inner, inner], label="middle", log=log)
    root = Step([middle], label="root", log=log)
    task = pass_over(root, inputs=[x, middle, Edge(inner, 0), root], accumulate=False)
    run_through(task)
    assert task.captured == [4, 1, 2, 1]
    assert log == ["root", "middle", "inner"]


def test_capturing_keeps_the_node_itself_from_running_where_nothing_behind_is_wanted() -> None:
    log: list[str] = []
    x = leaf()
    inner = Step([x], label="inner", log=log)
    task = pass_over(
        Step([inner], label="root", log=log), inputs=[Edge(inner, 0)], accumulate=False
    )
    run_through(task)
    assert task.captured == [1]
    assert log == ["root"]
    assert task.staged == []


def test_the_same_input_twice_is_captured_twice() -> None:
    x = leaf()
    task = pass_over(Step([x, x]), inputs=[x, x], accumulate=False)
    run_through(task)
    assert task.captured == [2, 2]


def test_outputs_of_one_node_are_captured_each_by_itself() -> None:
    log: list[str] = []
    two = Step([leaf()], outputs=2, label="two", log=log)
    root = Step([Edge(two, 0), Edge(two, 1), Edge(two, 1)], label="root", log=log)
    task = pass_over(root, inputs=[Edge(two, 1), Edge(two, 0)], accumulate=False)
    run_through(task)
    assert task.captured == [2, 1]
    assert log == ["root"]


def test_an_input_that_nothing_leads_to_stays_undefined() -> None:
    log: list[str] = []
    x, y = leaf(), leaf()
    task = pass_over(Step([x], label="root", log=log), inputs=[y], accumulate=False)
    run_through(task)
    assert task.captured == [None]
    assert log == []


def test_a_root_that_is_the_input_is_captured_without_running() -> None:
    log: list[str] = []
    root = Step([leaf()], label="root", log=log)
    for edge in (root, Edge(root, 0)):
        task = run_through(pass_over(root, gradients=[9], inputs=[edge], accumulate=False))
        assert task.captured == [9]
    x = leaf()
    assert run_through(pass_over(x, gradients=[9], inputs=[x], accumulate=False)).captured == [9]
    assert log == []


def test_several_roots_and_inputs_at_once() -> None:
    log: list[str] = []
    x, y, z = leaf(), leaf(), leaf()
    a = Step([x, y], label="a", log=log)
    b = Step([y, z], label="b", log=log)
    idle = Step([z], label="idle", log=log)
    task = pass_over(a, b, idle, gradients=[1, 10, 100], inputs=[y, x], accumulate=False)
    run_through(task)
    assert task.captured == [11, 1]
    assert log == ["b", "a"]


def test_requested_leaves_accumulate_and_others_do_not() -> None:
    """`backward(inputs=)`: the accumulators of the inputs are what has to run."""
    log: list[str] = []
    x, y = leaf(), leaf()
    root = Step([Step([x, y], label="both", log=log), chain(y, 5, log, "y")], label="root", log=log)
    task = run_through(pass_over(root, inputs=[x]))
    assert staged(task) == {x: 1}
    assert log == ["root", "both"]


def test_hooks_see_the_gradient_before_it_is_captured() -> None:
    """What `grad()` returns for a leaf is what its hooks made of it."""
    x = leaf()
    root = Step([Step([x])])
    seen = []
    accumulator = root.next_edges[0].node.next_edges[0].node
    accumulator.extras = NodeExtras()
    accumulator.extras.pre[0] = seen.append
    task = run_through(pass_over(root, inputs=[x], accumulate=False))
    assert task.captured == [1]
    assert seen == [], "hooks before a node belong to the node, and it does not run"


def test_a_captured_node_may_be_handed_out_and_answer_later() -> None:
    x = leaf()
    asks = Asks([x, x])
    task = pass_over(Step([asks]), inputs=[asks, x], accumulate=False)
    task.start()
    assert task.run(ENDLESS) is Outcome.WAITING
    validate(task)
    (suspended,) = task.suspended
    task.resume(suspended.node, suspended.steps, Answer((5, 6)), None)
    validate(task)
    assert task.run(ENDLESS) is Outcome.FINISHED
    assert task.captured == [1, 11]


def test_a_cancelled_partial_pass_captures_nothing() -> None:
    x = leaf()
    asks = Asks([x])
    task = pass_over(Step([asks]), inputs=[asks, x], accumulate=False)
    task.start()
    task.run(ENDLESS)
    task.cancel()
    (suspended,) = task.suspended
    task.resume(suspended.node, suspended.steps, Answer((5,)), None)
    validate(task)
    assert task.take_last_steps() is Outcome.FINISHED
    assert task.state is State.CANCELLED
    assert not task.captured


def test_what_a_pass_reaches_is_told_without_running_it() -> None:
    """For a hook on several tensors, which waits for those alone that get a gradient."""
    log: list[str] = []
    behind = chain(leaf(), 5, log, "behind")
    near, far = chain(behind, 1, log, "near"), chain(behind, 3, log, "far")
    other = chain(leaf(), 2, log, "other")
    root = Step([near, far], label="root", log=log)
    counted = arrivals(root, None)
    assert [counted.get(node) for node in (root, near, far, behind, other)] == [None, 1, 1, 2, None]
    assert log == []
