"""Modes as users set them: beside PyTorch, and where they go further."""

from __future__ import annotations

import asyncio
import threading
import types
import warnings

import anyio
import pytest
from parity import attempt, both, leaf, raised

import asyncgrad as ag
from asyncgrad.core.modes import DEFAULT, current


@both
def test_nothing_is_recorded_in_no_grad(T, log):
    x, y = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
    with T.no_grad():
        w = x + y
        log(w.requires_grad, w.grad_fn, w.is_leaf, T.is_grad_enabled())

        @T.enable_grad()
        def recorded():
            log(T.is_grad_enabled())
            return x * y

        log(recorded().requires_grad)
        with T.enable_grad():
            log((x * y).requires_grad)
            with T.no_grad():
                log((x * y).requires_grad)
        w += 1
        log(w)
        new = T.ones(2, requires_grad=True)
        log(new.requires_grad, new.is_leaf)
    log(T.is_grad_enabled())
    attempt(log, lambda: w.backward(T.ones(2)))
    attempt(log, lambda: x.add_(1))
    with T.no_grad():
        x.add_(1)
        x[0] = 7.0
    log(x, x.requires_grad, x.is_leaf, x._version)
    yield (x * x).sum().backward()
    log(x.grad)


@both
def test_views_and_leaves_made_in_no_grad(T, log):
    x = leaf(T, 1.0, 2.0)
    with T.no_grad():
        v, y, z = x[0], x.view(2, 1), x * 1
        log(v.requires_grad, v.is_leaf, v._is_view(), y.requires_grad, y.is_leaf)
        log(x.detach().requires_grad, z.requires_grad, x.clone().requires_grad)
        log(z.requires_grad_().is_leaf)
        x.grad = T.ones(2, dtype=T.float64)
        x.sub_(x.grad)
    log(x, x.requires_grad, z)
    attempt(log, v.add_, 1)
    attempt(log, y.mul_, 2)
    yield (x * z).sum().backward()
    log(x.grad, z.grad)


@both
def test_a_pass_sets_its_own_mode(T, log):
    x = leaf(T, 2.0)
    seen = []
    y = x * x
    y.register_hook(lambda g: seen.append(T.is_grad_enabled()))
    loss = y.sum()
    with T.no_grad():
        (g,) = yield T.autograd.grad(loss, x, create_graph=True)
        log(g.requires_grad, T.is_grad_enabled())
    yield (g * 1).sum().backward(retain_graph=True)
    y = x * x
    y.register_hook(lambda g: seen.append(T.is_grad_enabled()))
    loss = y.sum()
    log(x.grad, seen)
    yield loss.backward()
    log(seen, T.is_grad_enabled())


@both
def test_set_grad_enabled_holds_from_the_call(T, log):
    x = leaf(T, 1.0)
    with T.set_grad_enabled(False):
        log((x * 2).requires_grad)
        with T.set_grad_enabled(True):
            log((x * 2).requires_grad)
        log((x * 2).requires_grad)
    log((x * 2).requires_grad)
    T.set_grad_enabled(False)
    log((x * 2).requires_grad)
    T.set_grad_enabled(True)
    log((x * 2).requires_grad)

    @T.set_grad_enabled(False)
    def off(x):
        return x * 2

    @T.set_grad_enabled(True)
    def on(x):
        return x * 2

    log(T.is_grad_enabled(), off(x).requires_grad, T.is_grad_enabled())
    with T.no_grad():
        log(on(x).requires_grad, T.is_grad_enabled())
    mode = T.set_grad_enabled(mode=False)
    log(mode.mode if T.__name__ == "torch" else False, T.is_grad_enabled())
    T.set_grad_enabled(True)


@both
def test_an_error_restores_the_mode(T, log):
    x = leaf(T, 1.0)

    @T.no_grad()
    def fails():
        raise KeyError("here")

    attempt(log, fails)
    log(T.is_grad_enabled())
    try:
        with T.no_grad(), T.enable_grad(), T.inference_mode():
            raise ValueError
    except ValueError:
        log(T.is_grad_enabled(), T.is_inference_mode_enabled())
    y = (x * x).sum()

    def hook(gradient):
        raise KeyError

    handle = y.register_hook(hook)
    yield from raised(log, y.backward)
    handle.remove()
    log(T.is_grad_enabled())


@both
def test_decorated_functions_recurse_and_nest(T, log):
    @T.no_grad()
    def down(depth):
        log(T.is_grad_enabled())
        if depth:
            with T.enable_grad():
                down(depth - 1)
                log(T.is_grad_enabled())
        log(T.is_grad_enabled())

    down(2)
    log(T.is_grad_enabled())

    @T.enable_grad()
    @T.no_grad()
    def both_of_them():
        return T.is_grad_enabled()

    log(both_of_them())
    manager = T.no_grad()
    with manager:
        log(T.is_grad_enabled())
    with manager:
        log(T.is_grad_enabled())
    log(T.is_grad_enabled())


@both
def test_decorated_generators(T, log):
    @T.no_grad()
    def count(stop):
        """Counts."""
        try:
            for i in range(stop):
                got = yield (i, T.is_grad_enabled())
                log(got)
        except KeyError:
            log("thrown", T.is_grad_enabled())
            yield "after"
        except GeneratorExit:
            log("closed", T.is_grad_enabled())
            raise
        return "result"

    def outer():
        log((yield from count(2)))

    log(list(outer()), count.__name__, count.__doc__)
    running = count(3)
    log(next(running), T.is_grad_enabled(), running.send("sent"), T.is_grad_enabled())
    log(running.throw(KeyError()))
    attempt(log, lambda: next(running))
    running = count(3)
    next(running)
    running.close()
    with T.enable_grad():
        log(list(count(2)))
    with T.no_grad():

        @T.enable_grad()
        def other():
            yield T.is_grad_enabled()
            yield T.is_grad_enabled()

        for seen in other():
            log(seen, T.is_grad_enabled())


@both
def test_a_generator_may_change_its_mode_and_only_its_own(T, log):
    @T.no_grad()
    def generator():
        log(T.is_grad_enabled())
        with T.enable_grad():
            yield T.is_grad_enabled()
        yield T.is_grad_enabled()

    running = generator()
    log(next(running), T.is_grad_enabled())
    log(next(running), T.is_grad_enabled())


@both
def test_classes_are_decorated_with_a_warning(T, log):
    for mode in (T.no_grad(), T.no_grad, T.enable_grad()):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")

            @mode
            class Model:
                def __init__(self):
                    log(T.is_grad_enabled())

                def forward(self):
                    log(T.is_grad_enabled())

        log([w.category.__name__ for w in caught])
        Model().forward()


@both
def test_methods_and_lambdas_are_decorated(T, log):
    class Model:
        @T.no_grad()
        def forward(self, x, *, scale=2):
            return x * scale

        @classmethod
        @T.no_grad()
        def made(cls):
            return T.is_grad_enabled()

        @staticmethod
        @T.no_grad
        def still():
            return T.is_grad_enabled()

    x = leaf(T, 3.0)
    log(Model().forward(x), Model().forward(x, scale=3).requires_grad, Model.made(), Model.still())
    log(T.no_grad()(lambda: T.is_grad_enabled())())


@both
def test_multithreading_is_noted(T, log):
    log(T.autograd.is_multithreading_enabled())
    with T.autograd.set_multithreading_enabled(False):
        log(T.autograd.is_multithreading_enabled())
        with T.autograd.set_multithreading_enabled(True):
            log(T.autograd.is_multithreading_enabled())
        log(T.autograd.is_multithreading_enabled())
    log(T.autograd.is_multithreading_enabled())
    T.autograd.set_multithreading_enabled(False)
    log(T.autograd.is_multithreading_enabled())
    T.autograd.set_multithreading_enabled(True)


@both
def test_versions_can_be_preserved(T, log):
    x = T.ones(3)
    x.add_(1)
    with T.autograd._unsafe_preserve_version_counter(x):
        x.add_(1)
        log(x._version)
    log(x._version, x)
    x.add_(1)
    log(x._version)
    y, z = T.ones(1), T.ones(1)
    with T.autograd._unsafe_preserve_version_counter((y, z)):
        y.add_(1)
        z.add_(1)
    log(y._version, z._version)


@both
def test_the_faces_have_pytorchs_paths(T, log):
    log(T.no_grad is T.autograd.no_grad is T.autograd.grad_mode.no_grad)
    log(T.inference_mode is T.autograd.inference_mode is T.autograd.grad_mode.inference_mode)
    log(T.autograd.detect_anomaly is T.autograd.anomaly_mode.detect_anomaly)
    log(T.is_anomaly_enabled(), T.is_anomaly_check_nan_enabled())
    with T.autograd.set_detect_anomaly(True):
        log(T.is_anomaly_enabled(), T.is_anomaly_check_nan_enabled())
        with T.autograd.set_detect_anomaly(False):
            log(T.is_anomaly_enabled())
    with T.autograd.set_detect_anomaly(True, check_nan=False):
        log(T.is_anomaly_enabled(), T.is_anomaly_check_nan_enabled())
    T.autograd.set_detect_anomaly(True, False)
    log(T.is_anomaly_enabled(), T.is_anomaly_check_nan_enabled())
    T.set_anomaly_enabled(False)
    log(T.is_anomaly_enabled(), T.is_anomaly_check_nan_enabled())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with T.autograd.detect_anomaly(check_nan=False):
            log(T.is_anomaly_enabled(), T.is_anomaly_check_nan_enabled())
    log([w.category.__name__ for w in caught], T.is_anomaly_enabled())


# -- further than PyTorch --------------------------------------------------------------------------

MODES = {
    "no_grad": (ag.no_grad, lambda: not ag.is_grad_enabled()),
    "inference_mode": (ag.inference_mode, ag.is_inference_mode_enabled),
    "set_grad_enabled": (lambda: ag.set_grad_enabled(False), lambda: not ag.is_grad_enabled()),
    "anomaly": (
        lambda: ag.autograd.set_detect_anomaly(True),
        lambda: ag.is_anomaly_enabled(),
    ),
    "saved_tensors_hooks": (
        lambda: ag.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
        lambda: current().saved_hooks is not None,
    ),
    "disable_saved_tensors_hooks": (
        lambda: ag.autograd.graph.disable_saved_tensors_hooks("not here"),
        lambda: current().saved_hooks_disabled == "not here",
    ),
    "save_on_cpu": (
        ag.autograd.graph.save_on_cpu,
        lambda: current().saved_hooks is not None,
    ),
    "request": (lambda: ag.request(priority=3), lambda: current().priority == 3),
    "blocking": (ag.blocking, lambda: current().blocking),
}
every_mode = pytest.mark.parametrize(("mode", "within"), MODES.values(), ids=MODES)


@every_mode
@pytest.mark.asyncio
async def test_every_mode_decorates_every_kind_of_function(mode, within):
    """Functions, coroutine functions, generators, coroutine generators, async generators."""

    @mode()
    def function():
        return within()

    @mode()
    async def coroutine():
        await asyncio.sleep(0)
        return within()

    @mode()
    def generator():
        yield within()
        yield within()

    @types.coroutine
    @mode()
    def coroutine_generator():
        before = within()
        yield
        return before, within()

    @mode()
    async def async_generator():
        yield within()
        await asyncio.sleep(0)
        yield within()

    assert not within()
    assert function()
    assert await coroutine()
    for seen in generator():
        assert seen
        assert not within()
    assert await coroutine_generator() == (True, True)
    async for seen in async_generator():
        assert seen
        assert not within()
    assert current() is DEFAULT


@every_mode
@pytest.mark.asyncio
async def test_calls_of_one_decorated_function_overlap(mode, within):
    """Each call has its own mode, whichever ends first."""
    gates = [asyncio.Event() for _ in range(3)]
    entered = asyncio.Barrier(4)

    @mode()
    async def wait(gate):
        await entered.wait()
        await gate.wait()
        return within()

    tasks = [asyncio.ensure_future(wait(gate)) for gate in gates]
    await entered.wait()
    for gate, task in zip(reversed(gates), reversed(tasks), strict=True):
        assert not within()
        gate.set()
        assert await task
    assert current() is DEFAULT


@every_mode
@pytest.mark.asyncio
async def test_tasks_and_threads_inherit_and_nobody_else(mode, within):
    """Children get a copy; siblings, other threads and the parent don't see what they set."""
    entered, left = asyncio.Event(), asyncio.Event()

    async def inside():
        with mode():
            entered.set()
            await left.wait()
            return within()

    task = asyncio.ensure_future(inside())
    await entered.wait()
    assert not within()
    assert not await asyncio.to_thread(within)
    left.set()
    assert await task
    with mode():
        assert await asyncio.create_task(asyncio.to_thread(within))
        assert await anyio.to_thread.run_sync(within)
        assert await ag.offload(within)
        async with anyio.create_task_group() as group:
            group.start_soon(asyncio.sleep, 0)
            seen = []
            group.start_soon(lambda: _append(seen, within))
        assert seen == [True]
        foreign = []
        thread = threading.Thread(target=lambda: foreign.append(within()))
        thread.start()
        thread.join()
        assert foreign == [False]


async def _append(seen, within):
    seen.append(within())


@pytest.mark.asyncio
async def test_a_decorated_generator_closed_in_another_context():
    """The loop finalises it in a task of its own: no mode leaks, no token is missed."""

    @ag.no_grad()
    async def items():
        try:
            yield 1
        finally:
            closed.append(ag.is_grad_enabled())

    closed: list[bool] = []
    running = items()
    assert await anext(running) == 1
    await asyncio.create_task(_close(running))
    assert closed == [False]
    assert ag.is_grad_enabled()


async def _close(generator):
    await generator.aclose()


@pytest.mark.asyncio
async def test_a_pass_and_its_hooks_have_the_modes_of_their_caller():
    """Anomaly mode around `backward` holds in its hooks; a sibling's does not."""
    x = ag.tensor([2.0], requires_grad=True)
    seen = []

    async def hook(gradient):
        await asyncio.sleep(0)
        seen.append((ag.is_anomaly_enabled(), ag.is_grad_enabled()))

    async def run(anomaly):
        y = x * x
        y.register_hook(hook)
        with ag.autograd.set_detect_anomaly(anomaly):
            pending = y.sum().backward()
        await pending

    await asyncio.gather(run(True), run(False))
    assert sorted(seen) == [(False, False), (True, False)]
    assert not ag.is_anomaly_enabled()
