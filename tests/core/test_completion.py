"""How a pass ends: with its gradients, with its first error, or cancelled and drained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from integer_graphs import (
    ENDLESS,
    Answer,
    Asks,
    Fails,
    Step,
    finish,
    launch,
    leaf,
    pass_over,
    run_through,
    staged,
)
from invariants import validate

from asyncgrad.core.states import Outcome, State

if TYPE_CHECKING:
    from asyncgrad.core.graph_task import GraphTask


def failing(error: BaseException, edges: list, label: str = "fails") -> Fails:
    node = Fails(edges, label=label)
    node.error = error
    return node


def two_asking() -> tuple[GraphTask, list]:
    """A pass with two nodes handed out and one more ready behind them."""
    x = leaf()
    task = pass_over(Step([Asks([x], label="a"), Asks([x], label="b")]))
    task.start()
    assert task.run(ENDLESS) is Outcome.WAITING
    validate(task)
    return task, list(task.suspended)


def answer(task: GraphTask, suspended: object, error: BaseException | None = None) -> None:
    task.resume(suspended.node, suspended.steps, Answer((1,)), error)
    validate(task)


class TestSuccess:
    def test_a_pass_is_running_until_its_gradients_are_committed(self) -> None:
        task = run_through(pass_over(Step([leaf()])))
        assert task.state is State.RUNNING
        task.succeed()
        assert task.state is State.DONE
        validate(task)

    def test_the_result_is_collected_at_the_very_end(self) -> None:
        task = run_through(pass_over(Step([leaf()])))
        task.collect = lambda task, within: len(task.staged)
        assert task.result is None
        task.succeed()
        assert task.result == 1

    def test_callbacks_run_in_order_with_those_that_they_add(self) -> None:
        calls = []
        task = run_through(pass_over(Step([])))
        task.callbacks += [
            lambda: (calls.append("first"), task.callbacks.append(lambda: calls.append("third"))),
            lambda: calls.append("second"),
        ]
        assert task.take_last_steps() is Outcome.FINISHED
        assert calls == ["first", "second", "third"]

    def test_a_callback_that_raises_fails_the_pass(self) -> None:
        task = run_through(pass_over(Step([])))

        def callback() -> None:
            raise error

        error = ValueError()
        task.callbacks.append(callback)
        assert task.take_last_steps() is Outcome.FINISHED
        assert (task.state, task.error) == (State.FAILED, error)

    def test_a_commit_that_raises_fails_the_pass(self) -> None:
        task = run_through(pass_over(Step([leaf()])))
        task.fail_at_end(error := ValueError())
        assert (task.state, task.error) == (State.FAILED, error)


class TestFailure:
    def test_a_node_that_raises_ends_the_pass_with_its_error_and_a_note(self) -> None:
        log: list[str] = []
        x = leaf()
        behind = Step([x], label="behind", log=log)
        task = pass_over(failing(error := ValueError("no"), [behind]))
        task.start()
        assert task.run(ENDLESS) is Outcome.FINISHED
        validate(task)
        assert task.state is State.FAILED
        assert task.error is error
        assert error.__notes__ == ["raised by Fails, whose forward output was int[] on paper"]
        assert task.staged == []
        assert log == []

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), StopIteration(3)])
    def test_any_exception_of_a_node_is_the_error_of_its_pass(self, error: BaseException) -> None:
        task = pass_over(failing(error, [leaf()]))
        task.start()
        task.run(ENDLESS)
        assert task.state is State.FAILED
        assert task.error is error or task.error.__cause__ is error

    @pytest.mark.parametrize("wrong", [(), (1, 2, 3), 1])
    def test_a_node_that_answers_with_the_wrong_number_of_gradients_fails_its_pass(
        self, wrong: object
    ) -> None:
        """Whoever drives the pass sees a failure of the pass, not of the machine."""

        class Wrong(Step):
            __slots__ = ()

            def compute(self, gradients: tuple) -> object:
                return wrong

        x = leaf()
        task = pass_over(Step([Wrong([x, x])]))
        task.start()
        assert task.run(ENDLESS) is Outcome.FINISHED
        validate(task)
        assert task.state is State.FAILED
        assert "Wrong" in task.error.__notes__[0]

    def test_gradients_that_can_not_be_added_fail_the_pass(self) -> None:
        class Says(Step):
            __slots__ = ()

            def compute(self, gradients: tuple) -> tuple:
                return ("word",)

        x = leaf()
        task = pass_over(Step([Step([x]), Says([x])]))
        task.start()
        assert task.run(ENDLESS) is Outcome.FINISHED
        validate(task)
        assert isinstance(task.error, TypeError)

    def test_the_first_error_wins_and_later_ones_become_notes(self) -> None:
        task, (first, second) = two_asking()
        answer(task, first, error := ValueError("first"))
        assert task.state is State.DRAINING
        answer(task, second, KeyError("second"))
        assert task.take_last_steps() is Outcome.FINISHED
        assert task.state is State.FAILED
        assert task.error is error
        task.release()
        assert error.__notes__[1:] == ["later in the same pass: KeyError('second')"]

    def test_a_launched_node_that_fails_has_reported(self) -> None:
        """What was handed out by `launch` comes back by `fail` as well as by `finish`."""
        task = pass_over(Step([leaf()]))
        task.start()
        entry = launch(task)
        task.fail(error := ValueError(), entry.node)
        validate(task)
        assert task.take_last_steps() is Outcome.FINISHED
        assert (task.state, task.error) == (State.FAILED, error)

    def test_a_second_launched_node_that_fails_has_reported_too(self) -> None:
        x, y = leaf(), leaf()
        task = pass_over(Step([x]), Step([y]))
        task.start()
        root = launch(task)
        finish(task, root.node, root.node.apply((), task))
        first, second = launch(task), launch(task)
        task.fail(error := ValueError(), first.node)
        assert task.take_last_steps() is Outcome.WAITING
        task.fail(KeyError(), second.node)
        assert task.take_last_steps() is Outcome.FINISHED
        assert task.error is error

    def test_an_error_after_the_end_is_dropped(self) -> None:
        task = run_through(pass_over(Step([leaf()])))
        task.succeed()
        task.fail(ValueError())
        assert task.state is State.DONE
        assert task.error is None

    def test_an_error_keeps_what_the_thrower_noted(self) -> None:
        error = ValueError()
        error.add_note("mine")
        task = pass_over(failing(error, [leaf()]))
        task.start()
        task.run(ENDLESS)
        assert error.__notes__[0] == "mine"
        assert len(error.__notes__) == 2

    def test_an_exception_that_refuses_notes_is_still_the_error(self) -> None:
        class Refuses(Exception):
            def add_note(self, note: str) -> None:
                raise TypeError("no notes")

        task = pass_over(failing(error := Refuses(), [leaf()]))
        task.start()
        task.run(ENDLESS)
        assert task.error is error


class TestCancellation:
    def test_a_pass_that_has_not_begun_is_cancelled_at_once(self) -> None:
        task = pass_over(Step([leaf()]))
        assert task.cancel()
        assert task.take_last_steps() is Outcome.FINISHED
        assert task.state is State.CANCELLED

    def test_it_drains_until_the_last_node_has_come_back(self) -> None:
        task, (first, second) = two_asking()
        assert task.cancel()
        validate(task)
        assert task.state is State.DRAINING
        assert task.take_last_steps() is Outcome.WAITING
        answer(task, first)
        assert task.take_last_steps() is Outcome.WAITING
        answer(task, second)
        assert task.take_last_steps() is Outcome.FINISHED
        assert task.state is State.CANCELLED

    def test_nothing_is_handed_out_while_it_drains(self) -> None:
        log: list[str] = []
        x = leaf()
        task = pass_over(Step([Step([x], label="ready", log=log), Asks([x])]))
        task.start()
        while not task.suspended:
            task.run(2_000)
        task.cancel()
        assert launch(task) is None
        assert task.run(ENDLESS) is Outcome.WAITING
        assert log == []
        assert task.ready == []

    def test_late_finish_after_cancel_is_dropped(self) -> None:
        x = leaf()
        task = pass_over(Step([x]))
        task.start()
        entry = launch(task)
        task.cancel()
        assert finish(task, entry.node, (1,)) == []
        validate(task)
        assert task.state is State.CANCELLED
        assert task.staged == []

    def test_a_report_of_a_node_that_was_not_handed_out_leaves_the_pass_as_it_was(self) -> None:
        x = leaf()
        root = Step([Step([x])])
        task = pass_over(root)
        task.start()
        before = dict(task.dependencies), list(task.ready), task.state
        with pytest.raises(ValueError, match="not handed out"):
            finish(task, root, (1,))
        assert (dict(task.dependencies), list(task.ready), task.state) == before
        entry = launch(task)
        finish(task, entry.node, (1,))
        with pytest.raises(ValueError, match="has reported already"):
            finish(task, entry.node, (1,))
        assert staged(run_through(task)) == {x: 1}

    def test_cancelling_twice_is_cancelling_once(self) -> None:
        task, (first, second) = two_asking()
        assert [task.cancel() for _ in range(100)] == [True] * 100
        answer(task, first)
        answer(task, second)
        assert task.take_last_steps() is Outcome.FINISHED
        assert not task.cancel()

    @pytest.mark.parametrize("state", ["done", "failed", "cancelled"])
    def test_a_pass_that_has_ended_can_not_be_cancelled(self, state: str) -> None:
        task = pass_over(Step([leaf()]))
        if state == "cancelled":
            task.cancel()
            task.take_last_steps()
        elif state == "failed":
            task.fail(ValueError())
            task.take_last_steps()
        else:
            run_through(task).succeed()
        assert task.state.value == state
        assert not task.cancel()
        assert task.state.value == state

    def test_an_error_before_the_cancel_wins(self) -> None:
        task, (first, second) = two_asking()
        answer(task, first, error := ValueError())
        assert task.cancel()
        answer(task, second)
        task.take_last_steps()
        assert (task.state, task.error) == (State.FAILED, error)

    def test_an_error_after_the_cancel_does_not(self) -> None:
        task, (first, second) = two_asking()
        task.cancel()
        answer(task, first, ValueError())
        answer(task, second)
        task.take_last_steps()
        assert task.state is State.CANCELLED
        assert task.error is None

    def test_a_cancellation_by_inbox_takes_effect_before_the_next_node(self) -> None:
        """The owner looks at every node: drains are short."""
        log: list[int] = []

        class Cancels(Step):
            __slots__ = ()

            def compute(self, gradients: tuple) -> tuple:
                task.inbox.append(task.cancel)
                return super().compute(gradients)

        node = Step([leaf()], label=0, log=log)
        for label in range(1, 5):
            node = (Cancels if label == 3 else Step)([node], label=label, log=log)
        task = pass_over(node)
        task.start()
        assert task.run(ENDLESS) is Outcome.FINISHED
        assert task.state is State.CANCELLED
        assert log == [4, 3]

    @pytest.mark.parametrize("last", range(5))
    def test_a_cancellation_while_any_node_runs_commits_nothing(self, last: int) -> None:
        """Also while the last runs: a pass that was told to end must not end with a result."""
        ran = []

        class Cancels(Step):
            __slots__ = ()

            def compute(self, gradients: tuple) -> tuple:
                ran.append(self)
                if len(ran) == last + 1:
                    task.inbox.append(task.cancel)
                return super().compute(gradients)

        node = Cancels([leaf()])
        for _ in range(4):
            node = Cancels([node, leaf()])
        task = pass_over(node)
        task.start()
        assert task.run(ENDLESS) is Outcome.FINISHED
        assert task.state is State.CANCELLED
        assert len(ran) == last + 1
        assert task.staged == []

    def test_a_suspended_node_is_closed_and_never_resumed(self) -> None:
        """Its `finally` blocks run."""
        ends = []

        class Closes(Step):
            __slots__ = ()

            def compute(self, gradients: tuple) -> object:
                return Asks.compute(self, gradients)

        task = pass_over(Closes([leaf()]))
        task.start()
        task.run(ENDLESS)
        (suspended,) = task.suspended

        def evaluation() -> object:
            try:
                yield
            finally:
                ends.append("closed")

        mine = evaluation()
        next(mine)
        task.cancel()
        task.resume(suspended.node, mine, None, None)
        assert ends == ["closed"]


def test_a_pass_knows_how_deep_it_is_nested() -> None:
    outer = pass_over(Step([leaf()]))
    inner = pass_over(Step([leaf()]), parent=outer)
    innermost = pass_over(Step([leaf()]), parent=inner)
    assert [task.depth for task in (outer, inner, innermost)] == [0, 1, 2]
    assert [task.outermost for task in (outer, inner, innermost)] == [None, outer, outer]


def test_release_lets_go_of_everything() -> None:
    task = pass_over(Step([leaf()]), parent=pass_over(Step([leaf()])))
    task.collect = lambda task, within: "result"
    run_through(task).succeed()
    task.release()
    validate(task)
    assert task.root.following == ()
    assert not any((task.ready, task.dependencies, task.staged, task.captured, task.inbox))
    assert task.parent is None
    assert task.outermost is None
    assert (task.context, task.collect, task.error, task.result) == (None,) * 4


@pytest.mark.skipif(not __debug__, reason="python -O takes assertions out")
@pytest.mark.parametrize(
    "damage",
    [
        lambda task: task.dependencies.__setitem__(task.root, 0),
        lambda task: task.not_ready.__setitem__(task.root, None),
        lambda task: task.ready.append(task.ready[0]),
        lambda task: task.dependencies.__setitem__(task.root, 1),
        lambda task: task.launched.__setitem__(task.root, 1),
        lambda task: setattr(task, "state", State.DRAINING),
        lambda task: task.ready.clear(),
    ],
)
def test_validate_notices_a_broken_invariant(damage: object) -> None:
    task = pass_over(Step([leaf()]))
    task.start()
    validate(task)
    damage(task)
    with pytest.raises(AssertionError):
        validate(task)
