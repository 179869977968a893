"""One manager may be entered by several tasks, threads and passes: each entry has its context."""

import asyncio
import warnings
from contextvars import copy_context

import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncgrad as ag
from asyncgrad.core.modes import DEFAULT, current
from asyncgrad.utils import checkpoint

MODEL = ag.nn.Linear(2, 2)


def _anomaly():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ag.autograd.detect_anomaly()


KINDS = {
    "no_grad": ag.no_grad,
    "enable_grad": ag.enable_grad,
    "inference": ag.inference_mode,
    "no_inference": lambda: ag.inference_mode(False),
    "set_grad_enabled": lambda: ag.set_grad_enabled(False),
    "set_grad_enabled_on": lambda: ag.set_grad_enabled(True),
    "detect_anomaly": _anomaly,
    "set_detect_anomaly": lambda: ag.autograd.set_detect_anomaly(True, check_nan=False),
    "saved_tensors_hooks": lambda: ag.autograd.graph.saved_tensors_hooks(id, id),
    "save_on_cpu": ag.autograd.graph.save_on_cpu,
    "disable_saved_tensors_hooks": lambda: ag.autograd.graph.disable_saved_tensors_hooks("no"),
    "dual_level": ag.autograd.forward_ad.dual_level,
    "set_fwd_grad_enabled": lambda: ag.autograd.forward_ad.set_fwd_grad_enabled(False),
    "set_multithreading_enabled": lambda: ag.autograd.set_multithreading_enabled(False),
    "set_nesting_limit": lambda: ag.autograd.set_nesting_limit(7),
    "request": lambda: ag.request(priority=3),
    "blocking": ag.blocking,
    "fork_rng": ag.random.fork_rng,
    "early_stop": lambda: checkpoint.set_checkpoint_early_stop(False),
    "group": checkpoint.GraphExecGroup,
    "snapshot": MODEL.snapshot,
    "device": lambda: ag.device("sim"),
    "stream": lambda: ag.Stream("sim"),
}


def make(kind):
    """A manager, made where its making leaves no trace."""
    return copy_context().run(KINDS[kind])


def enter(mode):
    try:
        mode.__enter__()
    except RuntimeError:
        return False  # Not within another of its kind.
    return True


#: Who does it (a context), and what: to enter a mode, to leave one, or to start a task.
steps = st.lists(
    st.tuples(
        st.integers(0, 3), st.sampled_from(["enter", "enter", "leave", "start"]), st.integers(0, 3)
    ),
    max_size=30,
)
kinds = st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4)


@given(kinds, steps)
def test_each_entry_belongs_to_its_context(chosen, steps):
    """Tasks enter and leave shared managers in any order: each goes back to what it had found."""
    modes = [make(kind) for kind in chosen]
    # Each context with what it has entered, and what was in force before.
    tasks = [(copy_context(), []) for _ in range(2)]
    for who, action, number in steps:
        context, entered = tasks[who % len(tasks)]
        others = [(c, c.run(current)) for c, _ in tasks if c is not context]
        if action == "start":
            tasks.append((context.copy(), list(entered)))
        elif action == "leave" and entered:
            mode, found = entered.pop()
            context.run(mode.__exit__, None, None, None)
            assert context.run(current) == found
        elif action == "enter":
            mode, found = modes[number % len(modes)], context.run(current)
            if context.run(enter, mode):
                entered.append((mode, found))
            assert entered or context.run(current) == found
        assert all(c.run(current) is record for c, record in others)
    for context, entered in tasks:
        for mode, found in reversed(entered):
            context.run(mode.__exit__, None, None, None)
            assert context.run(current) == found
        assert context.run(current) == DEFAULT


@given(st.lists(st.sampled_from(sorted(set(KINDS) - {"device", "stream"})), max_size=6), st.data())
def test_modes_may_be_left_in_any_order(chosen, data):
    """A mode that is left before those entered later takes away what it has changed, and no more.

    Generators that hold modes end in any order.
    """

    def program():
        modes = [mode for mode in map(make, chosen) if enter(mode)]
        for mode in data.draw(st.permutations(modes)):
            mode.__exit__(None, None, None)
        assert current() == DEFAULT

    copy_context().run(program)


@pytest.mark.parametrize("kind", KINDS)
def test_leaving_what_this_context_has_not_entered_changes_nothing(kind):
    """The finaliser of an async generator runs in a context that may have modes of its own."""
    mode = make(kind)
    copy_context().run(enter, mode)
    with ag.no_grad(), ag.Stream("sim"), ag.request(priority=1):
        found = current()
        mode.__exit__(None, None, None)
        assert current() is found


def test_a_coroutine_that_is_closed_within_another_call_leaves_that_calls_mode():
    """A decorated function that was abandoned may be closed in any context."""
    no_grad = ag.no_grad()

    class Pause:
        def __await__(self):
            yield

    @no_grad
    async def pauses():
        await Pause()

    @no_grad
    def closes():
        abandoned.close()
        return ag.is_grad_enabled()

    abandoned = pauses()
    copy_context().run(abandoned.send, None)
    assert not closes()


@pytest.mark.asyncio
async def test_one_object_in_two_tasks():
    """While the first waits, the second enters and leaves it, within a mode of its own."""
    shared, turns = ag.no_grad(), asyncio.Barrier(2)

    async def first():
        with shared:
            await turns.wait()
            await turns.wait()
            inside = ag.is_grad_enabled()
        return inside, ag.is_grad_enabled()

    async def second():
        await turns.wait()
        with ag.no_grad():
            with shared:
                await turns.wait()
            inside = ag.is_grad_enabled()
        return inside, ag.is_grad_enabled()

    assert await asyncio.gather(first(), second()) == [(False, True)] * 2


@pytest.mark.parametrize("kind", [*KINDS, "twice"])
@pytest.mark.asyncio
async def test_what_hooks_enter_ends_with_the_pass(kind):
    """Also the manager that the caller has entered: its own block ends as ever."""
    mode = make("no_grad" if kind == "twice" else kind)

    def enters(*_):
        enter(mode)
        if kind == "twice":
            enter(mode)

    def leaves(*_):
        mode.__exit__(None, None, None)

    x = ag.ones(2, requires_grad=True)
    for change in (enters, leaves):
        y = ag.exp(x)
        y.register_hook(change)
        y.grad_fn.register_prehook(change)
        x.register_post_accumulate_grad_hook(change)
        loss = y.sum()
        found = current()
        entered = enter(mode)
        within = current()
        await loss.backward()
        assert current() is within
        if entered:
            mode.__exit__(None, None, None)
        assert current() == found


def test_hooks_that_are_entered_again_by_their_own_unpacking_end_with_the_block():
    """And what they hold goes with them."""

    def unpack(packed):
        hooks.__enter__()
        return packed

    hooks = ag.autograd.graph.saved_tensors_hooks(lambda t: t, unpack)
    x = ag.ones(2, requires_grad=True)
    with hooks:
        x.sin().sum().backward()
    assert current() is DEFAULT


def test_a_call_that_sets_a_mode_is_undone_by_the_first_block_alone():
    """Later blocks of the same object go back to what they find, and calls leave no chain."""
    mode = ag.set_grad_enabled(False)
    other = ag.autograd.set_detect_anomaly(True)
    with mode, other:
        assert not ag.is_grad_enabled()
    assert current() is DEFAULT
    with ag.no_grad():
        with mode:
            pass
        assert not ag.is_grad_enabled()
    assert current() is DEFAULT
