"""Passes started by the nodes and hooks of other passes."""

import asyncio
import contextlib
import gc
import threading
import weakref

import pytest
from functions import function_of
from parity import attempt, both, leaf, raised

import asyncgrad as ag
from asyncgrad.core import frames
from asyncgrad.core.modes import current
from asyncgrad.errors import NestingError


def reentrant(T, log, nested, name="reentrant"):
    """A function that passes its gradient on and runs something in its backward."""

    def backward(ctx, gradient):
        log(f"enter {name}")
        nested(gradient)
        log(f"leave {name}")
        return gradient

    return function_of(T, backward=backward)


@both
def test_a_nested_pass_runs_to_its_end_at_once(T, log):
    x, w = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)

    def nested(gradient):
        with T.enable_grad():
            y = (w * w).sum()
        y.register_hook(lambda g: log("nested node"))
        y.backward()
        log(w.grad)

    other = (x * 5).sum()
    other.register_hook(lambda g: log("other"))
    out = reentrant(T, log, nested).apply(x * 2).sum()
    yield (out + other).backward()
    log(x.grad, w.grad, T.is_grad_enabled())


@both
def test_older_nodes_wait(T, log):
    x = leaf(T, 1.0)

    def nested(gradient):
        with T.enable_grad():
            y = x.detach().requires_grad_()
            z = y * 2
            z.register_hook(lambda g: log("nested"))
            z.sum().backward()

    first = x * 3
    first.register_hook(lambda g: log("other"))
    out = reentrant(T, log, nested).apply(x * 2)
    yield (first + out).sum().backward()
    log(x.grad)


@both
def test_both_accumulate_into_the_same_leaf(T, log):
    x = leaf(T, 1.0, 2.0)

    def nested(gradient):
        with T.enable_grad():
            y = (x * x).sum()
        y.backward()
        log(x.grad)

    for _ in range(2):
        out = reentrant(T, log, nested).apply(x * 3).sum()
        yield out.backward()
        log(x.grad)


@both
def test_the_mode_is_restored(T, log):
    x = leaf(T, 1.0)

    def nested(gradient):
        log(T.is_grad_enabled())
        with T.enable_grad():
            y = (x * x).sum()
            log(T.is_grad_enabled())
            y.backward(retain_graph=True)
            log(T.is_grad_enabled())
        log(T.is_grad_enabled())
        (g,) = T.autograd.grad(y, x, create_graph=True)
        log(g.requires_grad, T.is_grad_enabled())
        with T.no_grad():
            T.autograd.grad(y, x)
            log(T.is_grad_enabled())

    out = reentrant(T, log, nested).apply(x * 3)
    (g,) = yield T.autograd.grad(out.sum(), x, create_graph=True)
    log(g, T.is_grad_enabled())


@both
def test_a_nested_failure_can_be_caught(T, log):
    x = leaf(T, 1.0)
    fails = reentrant(T, log, lambda gradient: 1 / 0, "inner")

    def nested(gradient):
        with T.enable_grad():
            y = fails.apply(x * 2).sum()
        attempt(log, y.backward)
        log(x.grad, T.is_grad_enabled())

    out = reentrant(T, log, nested).apply(x * 3).sum()
    yield out.backward()
    log(x.grad)


@both
def test_a_nested_failure_that_nobody_catches_is_the_outer_passes(T, log):
    x = leaf(T, 1.0)
    fails = reentrant(T, log, lambda gradient: 1 / 0, "inner")

    def nested(gradient):
        with T.enable_grad():
            fails.apply(x * 2).sum().backward()

    out = reentrant(T, log, nested).apply(x * 3).sum()
    try:
        yield out.backward()
    except ZeroDivisionError as error:
        log(error)
    log(x.grad)
    yield (x * x).sum().backward()
    log(x.grad)


@both
def test_the_outer_pass_fails_after_a_nested_one(T, log):
    x, w = leaf(T, 1.0), leaf(T, 1.0)

    def nested(gradient):
        with T.enable_grad():
            (w * 2).sum().backward()
        raise KeyError("after")

    yield from raised(log, reentrant(T, log, nested).apply(x * 3).sum().backward)
    log(x.grad, w.grad)


@both
def test_hooks_start_passes(T, log):
    x, w = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)

    def inner(name):
        def hook(*args):
            log(f"enter {name}")
            with T.enable_grad():
                (w * w).sum().backward()
            log(w.grad, f"leave {name}")

        return hook

    y = x * 2
    y.register_hook(inner("tensor"))
    y.grad_fn.register_prehook(inner("pre"))
    y.grad_fn.register_hook(inner("post"))
    x.register_hook(inner("leaf"))
    x.register_post_accumulate_grad_hook(inner("accumulated"))
    yield y.sum().backward()
    log(x.grad)


@both
def test_callbacks_belong_to_the_pass_that_queued_them(T, log):
    x = leaf(T, 1.0)
    queue = (
        T.autograd.Variable._execution_engine.queue_callback
        if T.__name__ == "torch"
        else T.autograd.graph.queue_callback
    )

    def nested(gradient):
        queue(lambda: log("outer"))
        with T.enable_grad():
            y = x * 2
            loss = y.sum()
        y.register_hook(lambda g: queue(lambda: log("inner")))
        loss.backward()
        log("nested has ended")

    out = reentrant(T, log, nested).apply(x * 3).sum()
    yield out.backward()
    log("outer has ended")


@both
def test_through_the_same_graph(T, log):
    x = leaf(T, 2.0)
    shared = x * x
    loss = shared.sum()
    nested = reentrant(T, log, lambda g: loss.backward(retain_graph=True))
    out = nested.apply(shared).sum()
    yield out.backward()
    log(x.grad)
    shared = x * x
    loss = shared.sum()
    out = reentrant(T, log, lambda g: loss.backward()).apply(shared).sum()
    yield from raised(log, out.backward)


@both
def test_partial_passes_within_partial_passes(T, log):
    x, w = leaf(T, 2.0), leaf(T, 5.0)

    def nested(gradient):
        with T.enable_grad():
            y = (x * x * w).sum()
        log(T.autograd.grad(y, w))

    out = reentrant(T, log, nested).apply(x * w).sum()
    log((yield T.autograd.grad(out, w)))
    log(x.grad, w.grad)


def nest(T, depth, log=None):
    """A pass that is so many passes deep."""
    x = leaf(T, 1.0)
    levels = []

    def backward(ctx, gradient):
        levels.append(T.is_grad_enabled())
        if len(levels) < depth:
            with T.enable_grad():
                y = x.detach().requires_grad_()
                T.autograd.backward(Deep.apply(y), gradient)
        return gradient

    Deep = function_of(T, backward=backward)
    return Deep.apply(x), x, levels


@both
def test_five_hundred_deep(T, log):
    out, x, levels = nest(T, 500)
    yield out.backward()
    log(x.grad, len(levels), any(levels))


# -- further than PyTorch --------------------------------------------------------------------------

# What is ten thousand deep takes five times as long if coverage is measured.


@pytest.mark.no_cover
def test_ten_thousand_deep_without_a_loop():
    """Stacks go on in fresh threads; none of them is left."""
    before = {*threading.enumerate()}
    out, x, levels = nest(ag, 10_000)
    out.backward()
    assert len(levels) == 10_000
    assert x.grad.item() == 1.0
    for thread in {*threading.enumerate()} - before:
        # It has told its result, and needs some microseconds to end.
        thread.join(30)
    assert {*threading.enumerate()} <= before


def deep():
    """Ten thousand; a loop in debug mode is slow, and neither it nor uvloop is different."""
    loop = asyncio.get_running_loop()
    return 1_000 if loop.get_debug() or type(loop).__module__ == "uvloop" else 10_000


@pytest.mark.no_cover
@pytest.mark.asyncio
async def test_ten_thousand_deep_on_a_loop_by_blocking():
    """A synchronous `backward` in a pass that is awaited."""
    depth = deep()
    out, x, levels = nest(ag, depth)
    await out.backward()
    assert len(levels) == depth
    assert x.grad.item() == 1.0


@pytest.mark.no_cover
@pytest.mark.asyncio
async def test_ten_thousand_deep_by_awaiting():
    """Costs no stack at all."""
    depth = deep()
    x = leaf(ag, 1.0)
    levels = []

    async def backward(ctx, gradient):
        levels.append(1)
        if len(levels) < depth:
            with ag.enable_grad():
                y = x.detach().requires_grad_()
                inner = Deep.apply(y)
            await ag.autograd.backward(inner, gradient)
        return gradient

    Deep = function_of(ag, backward=backward)
    await Deep.apply(x).backward()
    assert len(levels) == depth
    assert x.grad.item() == 1.0


def runaway():
    """A pass whose node starts another without end."""

    def backward(ctx, gradient):
        with ag.enable_grad():
            Runaway.apply(leaf(ag, 1.0)).backward()
        return gradient

    Runaway = function_of(ag, backward=backward)
    return Runaway.apply(leaf(ag, 1.0))


async def awaited_runaway():
    """The same, each pass awaiting the next."""

    async def backward(ctx, gradient):
        await awaited_runaway()
        return gradient

    Runaway = function_of(ag, backward=backward)
    with ag.enable_grad():
        out = Runaway.apply(leaf(ag, 1.0))
    await out.backward()


def test_runaway_nesting_ends_with_a_clear_error():
    """The limit is set like a mode."""
    with (
        ag.autograd.set_nesting_limit(50),
        pytest.raises(NestingError, match="set_nesting_limit"),
    ):
        runaway().backward()
    assert isinstance(NestingError(3), RecursionError)
    with pytest.raises(ValueError, match="at least 1"):
        ag.autograd.set_nesting_limit(0)

    @ag.autograd.set_nesting_limit(20)
    def limited():
        out, _, levels = nest(ag, 30)
        with pytest.raises(NestingError):
            out.backward()
        return len(levels)

    assert limited() == 21
    out, _, levels = nest(ag, 30)
    out.backward()
    assert len(levels) == 30


@pytest.mark.parametrize("awaited", [False, True])
def test_an_error_costs_the_same_at_each_level(monkeypatch, awaited):
    """Each pass clears its own frames of the traceback, and not those of the passes in it."""
    cleared, clear = [], frames._clear
    monkeypatch.setattr(frames, "_clear", lambda frame: cleared.append(frame) or clear(frame))
    counts = []
    for limit in (30, 60, 90):
        cleared.clear()
        with ag.autograd.set_nesting_limit(limit), pytest.raises(NestingError):
            asyncio.run(awaited_runaway()) if awaited else runaway().backward()
        counts.append(len(cleared))
    assert counts[0] > 30
    assert counts[2] - counts[1] == counts[1] - counts[0]


@pytest.mark.asyncio
async def test_runaway_nesting_on_a_loop():
    """The same for what is awaited; the next pass is served."""
    with ag.autograd.set_nesting_limit(50), pytest.raises(NestingError):
        await runaway().backward()
    x = leaf(ag, 3.0)
    await (x * x).sum().backward()
    assert x.grad.item() == 6.0


@pytest.mark.asyncio
async def test_a_nested_failure_awaited_and_caught():
    """The outer pass goes on; the nested one has touched nothing."""
    x, w = leaf(ag, 1.0), leaf(ag, 1.0)

    async def backward(ctx, gradient):
        await asyncio.sleep(0)
        raise KeyError("inner")

    Fails = function_of(ag, backward=backward)

    async def backward(ctx, gradient):
        with ag.enable_grad():
            nested = (Fails.apply(w * 1) + w).sum()
        with pytest.raises(KeyError):
            await nested.backward()
        assert not ag.is_grad_enabled()
        return gradient

    Outer = function_of(ag, backward=backward)
    await Outer.apply(x).sum().backward()
    assert x.grad.item() == 1.0
    assert w.grad is None


@pytest.mark.asyncio
async def test_nested_passes_inherit_their_parents_priority():
    """A less urgent one is raised to it, a more urgent one keeps its own."""
    seen = {}

    def watch(name):
        def hook(gradient):
            task = current().graph_task
            seen[name] = (task.priority, task.depth)

        return hook

    async def inner(gradient):
        with ag.enable_grad():
            low, high = ((leaf(ag, 1.0) * 2).sum() for _ in range(2))
        low.register_hook(watch("low"))
        high.register_hook(watch("high"))
        await low.backward()
        await high.backward(priority=9)

    out = leaf(ag, 1.0) * 2
    out.register_hook(inner)
    out.register_hook(watch("outer"))
    await out.sum().backward(priority=5)
    assert seen == {"outer": (5, 0), "low": (5, 1), "high": (9, 1)}


@pytest.mark.asyncio
async def test_many_nested_passes_at_once_share_few_threads():
    """Parents that wait hold no thread that their children need."""
    x = [ag.zeros(300_000, requires_grad=True) for _ in range(8)]

    def backward(ctx, gradient):
        with ag.enable_grad():
            y = ag.exp(x[0].detach().requires_grad_()).sum()
        y.backward()
        return gradient

    Outer = function_of(ag, backward=backward)
    await asyncio.gather(*[Outer.apply(one).sum().backward() for one in x])
    assert all(one.grad is not None for one in x)


@pytest.mark.usefixtures("no_collector")
@pytest.mark.asyncio
@pytest.mark.parametrize("awaited", [False, True])
async def test_nested_graphs_go_at_once(awaited):
    """Also when they fail, with the cycle collector off."""
    gone = []

    def build(fail):
        y = ag.exp(leaf(ag, 1.0) * 2)
        gone.append(weakref.ref(y.grad_fn))
        if fail:

            def hook(gradient):
                raise KeyError

            y.register_hook(hook)
        return y.sum()

    async def await_them(gradient):
        for fail in (False, True):
            with ag.enable_grad():
                y = build(fail)
            with contextlib.suppress(KeyError):
                await y.backward()

    def block(gradient):
        for fail in (False, True):
            with ag.enable_grad():
                y = build(fail)
            with contextlib.suppress(KeyError):
                y.backward()

    gc.collect()
    out = leaf(ag, 1.0) * 2
    out.register_hook(await_them if awaited else block)
    gone.append(weakref.ref(out.grad_fn))
    await out.sum().backward()
    del out
    for _ in range(5):  # the loop lets go of what it has called
        await asyncio.sleep(0)
    assert [reference() for reference in gone] == [None, None, None]
