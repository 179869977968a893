"""Checkpoints where PyTorch has no word: awaited, concurrent, and what they leave behind."""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
import weakref
from unittest.mock import Mock

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.utils.checkpoint import (
    CheckpointError,
    checkpoint,
    checkpoint_sequential,
    set_checkpoint_early_stop,
)

forms = pytest.mark.parametrize("use_reentrant", [True, False])


def leaf(*values):
    return ag.tensor(values, dtype=ag.float64, requires_grad=True)


def expected(function, x):
    y = x.detach().requires_grad_()
    ag.sync.backward(function(y).sum())
    return y.grad.numpy()


@forms
@pytest.mark.asyncio
async def test_a_coroutine_function_is_awaited_both_times(use_reentrant):
    """Its second run gives way to others, and the pass waits for it."""
    calls = []

    async def function(x):
        calls.append(ag.is_grad_enabled())
        y = ag.exp(x)
        await asyncio.sleep(0)
        return ag.sin(y) * x

    x = leaf(0.5, 0.25)
    out = await checkpoint(function, x, use_reentrant=use_reentrant)
    assert calls == [not use_reentrant]
    await out.sum().backward()
    assert calls == [not use_reentrant, True]
    np.testing.assert_allclose(x.grad, expected(lambda x: ag.sin(ag.exp(x)) * x, x))
    assert ag.is_grad_enabled()


@forms
def test_a_coroutine_function_without_a_loop(use_reentrant):
    """The forward is awaited in a loop, the pass is run where there is none."""

    async def function(x):
        await asyncio.sleep(0)
        return ag.exp(x) * x

    async def forward():
        return await checkpoint(function, x, use_reentrant=use_reentrant)

    x = leaf(0.5)
    out = asyncio.run(forward())
    out.sum().backward()
    np.testing.assert_allclose(x.grad, expected(lambda x: ag.exp(x) * x, x))


@pytest.mark.asyncio
async def test_modules_and_sequences_of_coroutine_functions():
    """A module with an `async def forward`, alone and among others."""

    class Slow(ag.nn.Module):
        async def forward(self, x):
            await asyncio.sleep(0)
            return ag.exp(x)

    for use_reentrant in (True, False):
        x = leaf(0.5)
        out = await checkpoint(functools.partial(Slow()), x, use_reentrant=use_reentrant)
        out = await checkpoint_sequential(
            [ag.sin, Slow(), ag.tanh, Slow()], 2, out, use_reentrant=use_reentrant
        )
        await out.sum().backward()
        np.testing.assert_allclose(
            x.grad, expected(lambda x: ag.exp(ag.tanh(ag.exp(ag.sin(ag.exp(x))))), x)
        )


@pytest.mark.asyncio
@forms
@pytest.mark.parametrize("early_stop", [True, False])
async def test_a_function_may_use_a_group_of_tasks(early_stop, use_reentrant):
    """The group raised what ends a second run early as one of the errors of its tasks."""

    async def function(x):
        async def child(operation):
            await asyncio.sleep(0)
            return operation(x)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(child(one)) for one in (ag.exp, ag.sin)]
        return tasks[0].result() + tasks[1].result()

    x = leaf(0.5)
    with set_checkpoint_early_stop(early_stop):
        out = await checkpoint(function, x, use_reentrant=use_reentrant)
    await out.sum().backward()
    np.testing.assert_allclose(x.grad, expected(lambda x: ag.exp(x) + ag.sin(x), x))


@pytest.mark.asyncio
@forms
async def test_a_module_with_an_async_call_is_awaited(use_reentrant):
    """Its plain `forward` decided: the checkpoint ended before the call had begun."""

    class Called(ag.nn.Module):
        def forward(self, x):
            return ag.exp(x)

        async def __call__(self, x):
            await asyncio.sleep(0)
            return super().__call__(x)

    x = leaf(0.5)
    out = await checkpoint(Called(), x, use_reentrant=use_reentrant)
    await out.sum().backward()
    np.testing.assert_allclose(x.grad, expected(ag.exp, x))


@forms
def test_a_function_may_be_a_mock(use_reentrant):
    """A mock has all attributes, among them the one by which transforms tell what they await."""
    x = leaf(0.5)
    function = Mock(side_effect=ag.exp)
    checkpoint(function, x, use_reentrant=use_reentrant).sum().backward()
    assert function.call_count == 2
    np.testing.assert_allclose(x.grad, expected(ag.exp, x))


def test_a_coroutine_of_a_plain_function_is_refused():
    """It would be run outside of the checkpoint."""

    async def function(x):
        return ag.exp(x)

    with pytest.raises(TypeError, match="no coroutine function"):
        checkpoint(lambda x: function(x), leaf(1.0), use_reentrant=False)


@pytest.mark.asyncio
async def test_nodes_of_one_pass_share_one_second_run():
    """Two branches ask at the same time; the function runs once more, not twice."""
    calls = []

    async def function(x):
        calls.append(1)
        await asyncio.sleep(0)
        return ag.exp(x), ag.sin(x), ag.tanh(x)

    x = leaf(0.5)
    a, b, c = await checkpoint(function, x, use_reentrant=False, early_stop=False)
    await (a + b + c).sum().backward()
    assert len(calls) == 2


@pytest.mark.asyncio
async def test_two_passes_over_one_graph_run_it_once_each():
    """Neither takes what the other has computed."""
    calls = []

    async def function(x):
        calls.append(1)
        y = ag.exp(x)
        await asyncio.sleep(0)
        return ag.sin(y)

    x = leaf(0.5)
    out = (await checkpoint(function, x, use_reentrant=False)).sum()
    first, second = await asyncio.gather(
        ag.grad(out, x, retain_graph=True), ag.grad(out, x, retain_graph=True)
    )
    assert len(calls) == 3
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_allclose(first[0], expected(lambda x: ag.sin(ag.exp(x)), x))


@forms
@pytest.mark.asyncio
async def test_an_expensive_function_runs_again_off_the_loop(use_reentrant):
    """On a thread of the engine; its context is the pass's."""
    threads = []

    def function(x):
        threads.append(threading.current_thread())
        return ag.sin(ag.exp(x))

    x = ag.zeros(400_000, requires_grad=True)
    out = checkpoint(function, x, use_reentrant=use_reentrant)
    await out.sum().backward()
    here = threading.current_thread()
    assert threads[0] is here
    assert threads[1] is not here
    assert float(x.grad[0].item()) == pytest.approx(np.cos(1.0))
    with ag.blocking():
        checkpoint(function, x, use_reentrant=use_reentrant).sum().backward()
    assert threads[3] is here


@forms
def test_random_numbers_are_drawn_again(use_reentrant):
    """And the source of everybody else's goes on as if nothing had been."""
    for preserve in (True, False):
        ag.manual_seed(3)
        masks = []

        def function(x, masks=masks):
            masks.append(ag.nn.functional.dropout(ag.ones(64), 0.5))
            return ag.exp(x) * masks[-1]

        x = ag.ones(64, requires_grad=True)
        out = checkpoint(
            function, x, use_reentrant=use_reentrant, preserve_rng_state=preserve
        ).sum()
        after = ag.rand(4).tolist()
        out.backward()
        assert (masks[0].tolist() == masks[1].tolist()) is preserve
        if preserve:
            ag.manual_seed(3)
            ag.nn.functional.dropout(ag.ones(64), 0.5)
            assert ag.rand(4).tolist() == after
            out = checkpoint(function, x, use_reentrant=use_reentrant).sum()
            before = ag.default_generator.clone_state()
            out.backward()
            drawn = ag.rand(4).tolist()
            assert drawn == ag.rand(4, generator=before).tolist()


@pytest.mark.asyncio
async def test_a_second_run_neither_gets_nor_takes_others_random_numbers():
    """Another task draws while it waits."""
    ag.manual_seed(1)
    masks = []
    waiting, go_on = asyncio.Event(), asyncio.Event()

    async def function(x):
        if masks:
            waiting.set()
            await go_on.wait()
        masks.append(ag.rand(8))
        return ag.exp(x) * masks[-1]

    x = ag.ones(8, requires_grad=True)
    out = (await checkpoint(function, x, use_reentrant=False)).sum()
    running = out.backward()
    await waiting.wait()
    before = ag.default_generator.clone_state()
    drawn = ag.rand(8).tolist()
    go_on.set()
    await running
    assert drawn == ag.rand(8, generator=before).tolist()
    assert masks[0].tolist() == masks[1].tolist()


@pytest.mark.asyncio
async def test_settings_are_the_tasks_own():
    """Two tasks on one loop disagree about early stop."""
    barrier = asyncio.Barrier(2)

    async def run(early_stop):
        reached = []

        def function(x):
            y = ag.exp(x)
            reached.append(1)
            return y

        with ag.utils.checkpoint.set_checkpoint_early_stop(early_stop):
            await barrier.wait()
            out = checkpoint(function, leaf(1.0), use_reentrant=False)
            await barrier.wait()
        await out.sum().backward()
        return len(reached)

    assert await asyncio.gather(run(True), run(False)) == [1, 2]


class Tracked(np.ndarray):
    """An array that can be seen to die."""


@forms
@pytest.mark.usefixtures("no_collector")
def test_what_is_saved_is_not_kept_until_it_is_needed(use_reentrant):
    """Intermediate tensors die with the first run, and again with the pass."""
    alive: list[weakref.ref] = []

    def function(x):
        y = ag.exp(x)
        alive.append(weakref.ref(y._array))
        return ag.sin(y)

    x = leaf(1.0, 2.0)
    out = checkpoint(function, x, use_reentrant=use_reentrant).sum()
    assert alive[0]() is None
    out.backward(retain_graph=True)
    assert len(alive) == 2
    assert alive[1]() is None
    out.backward()
    assert all(reference() is None for reference in alive)
    node = weakref.ref(out.grad_fn)
    del out
    assert node() is None


@forms
@pytest.mark.usefixtures("no_collector")
def test_a_graph_that_is_never_run_goes_at_once(use_reentrant):
    """With its arguments, its function and what that closes over."""

    class Owner:
        pass

    def build():
        owner = Owner()
        x = leaf(1.0) * 1
        out = checkpoint(lambda x: ag.exp(x) * len([owner]), x, use_reentrant=use_reentrant)
        return out, weakref.ref(owner), weakref.ref(x._array)

    out, owner, argument = build()
    assert owner() is not None
    assert argument() is not None
    del out
    assert owner() is None
    assert argument() is None


@pytest.mark.asyncio
@pytest.mark.usefixtures("no_collector")
async def test_failing_and_cancelled_second_runs_leave_nothing(no_collector):
    """Neither the graph nor what was computed so far; nor is any `.grad` touched."""
    alive: list[weakref.ref] = []
    started = asyncio.Event()

    async def function(x, how):
        y = ag.exp(x)
        alive.append(weakref.ref(y._array))
        if len(alive) > 1:
            started.set()
            if how == "fail":
                raise KeyError("again")
            await asyncio.Event().wait()
        return ag.sin(y)

    for how in ("fail", "cancel"):
        alive.clear()
        started.clear()
        x = leaf(1.0)
        out = (await checkpoint(function, x, how, use_reentrant=False)).sum()
        running = out.backward()
        if how == "cancel":
            await started.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        else:
            try:
                await running
            except KeyError:
                pass
            else:
                pytest.fail("the error got lost")
        assert x.grad is None
        graph = weakref.ref(out.grad_fn)
        del out, running
        await asyncio.sleep(0)
        assert graph() is None
        assert [reference() for reference in alive] == [None, None]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.asyncio
async def test_a_pass_cancelled_before_the_second_run_forgets_no_coroutine(waits):
    """One that was made and never awaited would be a warning, which is an error here."""

    async def later(x):
        return ag.exp(x)

    x = leaf(0.5)
    out = checkpoint(later if waits else ag.exp, x, use_reentrant=True)
    future = (await out).sum().backward()
    future.cancel()
    with pytest.raises(asyncio.CancelledError):
        await future
    gc.collect()
    assert x.grad is None


@pytest.mark.asyncio
async def test_a_mismatch_ends_the_pass_and_nothing_else():
    """Its error is the checkpoint's; the next pass is served."""
    again = []

    def function(x):
        return ag.sin(x) if again else ag.sin(ag.exp(x))

    x = leaf(1.0)
    out = checkpoint(function, x, use_reentrant=False).sum()
    again.append(1)
    with pytest.raises(CheckpointError, match="different number of tensors"):
        await out.backward()
    assert x.grad is None
    await (x * x).sum().backward()
    assert x.grad.item() == 2.0


@pytest.mark.asyncio
async def test_arguments_that_others_have_packed_are_awaited(tmp_path):
    """A checkpoint within `save_to_disk`: its argument comes from a file."""
    x = leaf(0.5)
    with ag.autograd.graph.save_to_disk(tmp_path):
        out = checkpoint(lambda x: ag.exp(x) * x, x * 2, use_reentrant=False)
    await out.sum().backward()
    np.testing.assert_allclose(x.grad, expected(lambda x: ag.exp(x * 2) * x * 2, x))
    while await asyncio.to_thread(lambda: list(tmp_path.iterdir())):
        pass


def test_a_checkpoint_of_an_example_runs_again_after_its_vmap():
    x = ag.arange(6.0).reshape(3, 2)

    def part(row):
        return checkpoint(lambda r: r.sin() * r, row, use_reentrant=False)

    expected = x.sin() + x * x.cos()
    leaf = x.clone().requires_grad_()
    ag.func.vmap(part)(leaf).sum().backward()
    assert ag.allclose(leaf.grad, expected)
    assert ag.allclose(ag.func.vmap(ag.func.grad(lambda row: part(row).sum()))(x), expected)
    assert ag.allclose(ag.func.grad(lambda x: ag.func.vmap(part)(x).sum())(x), expected)


def test_a_checkpoint_runs_again_with_the_tangents_of_its_first_run():
    """Also after the level of forward mode has ended, as in `linearize`."""
    x = ag.arange(1.0, 4.0).requires_grad_()

    def function(x):
        return checkpoint(lambda x: x.sin() * x, x, use_reentrant=False)

    slope = x.sin() + x * x.cos()
    with ag.autograd.forward_ad.dual_level():
        y = function(ag.autograd.forward_ad.make_dual(x, ag.ones(3)))
        tangent = ag.autograd.forward_ad.unpack_dual(y).tangent
    assert ag.allclose(ag.grad(y.sum(), x, retain_graph=True)[0], slope)
    assert ag.allclose(ag.grad(tangent.sum(), x)[0], ag.grad(slope.sum(), x)[0])
    assert ag.allclose(ag.func.linearize(function, x)[1](ag.ones(3)), x.sin() + x * x.cos())


@pytest.mark.asyncio
@forms
@pytest.mark.parametrize("wrapped", [lambda f: f, functools.partial])
async def test_a_transform_of_a_coroutine_function_is_awaited(use_reentrant, wrapped):
    """Its future was taken for a result: backward ran it where nothing could be awaited."""

    async def body(x):
        await asyncio.sleep(0)
        return (x * x).exp()

    x = leaf(1.0, 2.0)
    mapped = wrapped(ag.func.vmap(body))
    y = await checkpoint(mapped, x, use_reentrant=use_reentrant)
    await y.sum().backward()
    z = await checkpoint_sequential([mapped, ag.sqrt], 2, x, use_reentrant=use_reentrant)
    await z.sum().backward()
    expected = 2 * x * (x * x).exp() + x * (x * x / 2).exp()
    assert ag.allclose(x.grad, expected)
