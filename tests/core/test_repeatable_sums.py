"""A sum has one order: descending sequence number of who contributes, whoever is quicker.

The gradients are tuples, whose sum is their concatenation: any other order shows.
"""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from integer_graphs import (
    ENDLESS,
    FACTS,
    Answer,
    Asks,
    Step,
    accumulate,
    finish,
    launch,
    leaf,
    pass_over,
    staged,
)
from invariants import validate

from asyncgrad.core.node import Edge
from asyncgrad.core.states import InputBuffer, Outcome

F = FACTS.F


class Says(Step):
    """Sends its label along every edge, numbered."""

    __slots__ = ()

    def compute(self, gradients: tuple) -> tuple:
        return tuple((f"{self.label}{place}",) for place in range(len(self.next_edges)))


class TestInputBuffer:
    def test_what_arrives_in_order_is_added_at_once(self) -> None:
        buffer = InputBuffer(1)
        for number in (9, 7, 4):
            buffer.admit(number, F)
            buffer.add(0, (number,), False, F)
            assert buffer.values[0][-1] == number
        assert buffer.values == [(9, 7, 4)]
        assert buffer.held == []

    def test_undefined_gradients_change_nothing(self) -> None:
        buffer = InputBuffer(2)
        buffer.add(0, None, False, F)
        buffer.hold(3, 1, None, False)
        buffer.admit(-1, F)
        assert buffer.values == [None, None]

    def test_a_sum_is_owned_and_a_single_gradient_as_it_came(self) -> None:
        """Only a sum made here may be added into."""
        buffer = InputBuffer(3)
        buffer.add(0, (1,), False, F)
        buffer.add(1, (1,), True, F)
        buffer.add(2, (1,), False, F)
        buffer.add(2, (2,), False, F)
        assert buffer.owned == [False, True, True]

    def test_what_is_held_waits_for_its_turn_alone(self) -> None:
        buffer = InputBuffer(1)
        buffer.hold(3, 0, ("three",), False)
        buffer.hold(8, 0, ("eight",), False)
        buffer.admit(5, F)
        assert buffer.values == [("eight",)]
        buffer.add(0, ("five",), False, F)
        buffer.admit(-1, F)
        assert buffer.values == [("eight", "five", "three")]
        assert buffer.held == []

    @given(order=st.permutations(range(6)))
    def test_everything_held_comes_out_in_descending_order(self, order: list[int]) -> None:
        buffer = InputBuffer(2)
        for number in order:
            buffer.hold(number, number % 2, (number,), False)
        buffer.admit(-1, F)
        assert buffer.values == [(4, 2, 0), (5, 3, 1)]

    def test_of_a_producer_that_reports_in_two_parts_the_first_comes_first(self) -> None:
        """Also if a producer with a greater number reports between the two."""
        buffer = InputBuffer(1)
        buffer.hold(4, 0, (4,), False)
        for number, gradient in ((9, (9,)), (4, (4.5,))):
            buffer.admit(number, F)
            buffer.add(0, gradient, False, F)
        buffer.admit(-1, F)
        assert buffer.values == [(9, 4, 4.5)]

    def test_one_producer_along_several_edges_keeps_their_order(self) -> None:
        buffer = InputBuffer(1)
        for text in "abc":
            buffer.hold(1, 0, (text,), False)
        buffer.admit(-1, F)
        assert buffer.values == [("a", "b", "c")]


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_any_order_of_finishing_gives_the_same_sum(order: tuple[int, ...]) -> None:
    x = leaf()
    target = Step([x])
    producers = [Says([target, target], label=label) for label in "abcd"]
    task = pass_over(*producers)
    task.start()
    root = launch(task)
    finish(task, root.node, root.node.apply((), task))
    launched = [launch(task) for _ in producers]
    assert [entry.node.label for entry in launched] == ["d", "c", "b", "a"]
    for place in order:
        node = launched[place].node
        finish(task, node, node.apply((1,), task))
        validate(task)
    assert task.run(ENDLESS) is Outcome.FINISHED
    assert staged(task) == {x: ("d0", "d1", "c0", "c1", "b0", "b1", "a0", "a1")}


def graph_with_a_slow_node() -> tuple:
    """`young` waits behind `slow`; `old` and `older` can run meanwhile. All meet at one leaf."""
    x = leaf()
    older, old, young = (Says([x], label=label) for label in ("older", "old", "young"))
    slow = Asks([young])
    return x, pass_over(older, old, slow)


EXPECTED = ("young0", "old0", "older0")


def test_a_node_behind_one_that_waits_still_comes_first_in_the_sum() -> None:
    """Else the bits of a gradient would depend on how long a coroutine took."""
    x, task = graph_with_a_slow_node()
    task.start()
    assert task.run(ENDLESS) is Outcome.WAITING
    (suspended,) = task.suspended
    task.resume(suspended.node, suspended.steps, Answer((1,)), None)
    assert task.run(ENDLESS) is Outcome.FINISHED
    assert staged(task) == {x: EXPECTED}


def test_the_moment_at_which_a_slow_node_ends_does_not_change_the_sum() -> None:
    """After any number of the other nodes, with the rest handed out or not."""
    for steps in range(4):
        for hand_out in (False, True):
            x, task = graph_with_a_slow_node()
            task.start()
            slow = launch(task)
            finish(task, slow.node, slow.node.apply((), task)) if slow.node is task.root else None
            slow = launch(task)
            others = []
            for _ in range(steps):
                entry = launch(task)
                if entry is None or len(entry.node.next_edges) == 0:
                    break
                others.append(entry.node)
                if not hand_out:
                    finish(task, entry.node, entry.node.apply((1,), task))
            finish(task, slow.node, (1,))
            validate(task)
            if hand_out:
                for node in others:
                    finish(task, node, node.apply((1,), task))
            assert task.run(ENDLESS) is Outcome.FINISHED
            assert staged(task) == {x: EXPECTED}, (steps, hand_out)


def test_a_node_that_is_ready_but_not_handed_out_comes_before_older_ones_that_end() -> None:
    """`old` ends after `slow` has made `young` ready and before `young` runs."""
    x, task = graph_with_a_slow_node()
    task.start()
    root = launch(task)
    finish(task, root.node, root.node.apply((), task))
    slow, old = launch(task), launch(task)
    assert old.node.label == "old"
    finish(task, slow.node, (1,))
    finish(task, old.node, old.node.apply((1,), task))
    assert task.run(ENDLESS) is Outcome.FINISHED
    assert staged(task) == {x: EXPECTED}


def test_outputs_of_a_node_are_summed_each_by_itself() -> None:
    x = leaf()
    seen = []

    class Looks(Step):
        __slots__ = ()

        def compute(self, gradients: tuple) -> tuple:
            seen.append(gradients)
            return (("x",),)

    two = Looks([x], outputs=2)
    a = Says([Edge(two, 0), Edge(two, 1)], label="a")
    b = Says([Edge(two, 1), Edge(two, 0)], label="b")
    task = pass_over(a, b)
    task.start()
    root = launch(task)
    finish(task, root.node, root.node.apply((), task))
    first, second = launch(task), launch(task)
    assert (first.node, second.node) == (b, a)
    finish(task, a, a.apply((1,), task))
    finish(task, b, b.apply((1,), task))
    assert task.run(ENDLESS) is Outcome.FINISHED
    assert seen == [(("b1", "a0"), ("b0", "a1"))]


def test_a_driver_that_launches_accumulators_stages_what_they_get() -> None:
    """The protocol as `launch` users see it."""
    x = leaf()
    task = pass_over(Says([x, x], label="a"))
    task.start()
    entry = launch(task)
    ready = finish(task, entry.node, entry.node.apply((1,), task))
    assert [r.gradient for r in ready] == [("a0", "a1")]
    entry = launch(task)
    accumulate(task, entry.node, entry.gradient)
    assert finish(task, entry.node, ()) == []
    assert task.take_last_steps() is Outcome.FINISHED
    assert staged(task) == {x: ("a0", "a1")}
