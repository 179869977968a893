"""Replays on an event loop: passes like any other."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import types

import numpy as np
import pytest
from replay_counts import replays

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.errors import AutogradError
from asyncgrad.replay import awaited


class Training:
    """A coroutine function that makes a training step."""

    def __init__(self, width=16, layers=2, *, optimizer=ag.optim.SGD):
        ag.manual_seed(3)
        parts = [nn.Linear(width, width) if n % 2 == 0 else nn.Tanh() for n in range(2 * layers)]
        self.model = model = nn.Sequential(*parts)
        self.optimizer = update = optimizer(model.parameters(), lr=0.05)

        async def step(x):
            update.zero_grad()
            loss = (model(x) ** 2).sum()
            await loss.backward()
            update.step()
            return loss.detach()

        self.step = step

    def state(self):
        """The weights and gradients, as bytes."""
        return [
            None if t is None else t.detach().numpy().tobytes()
            for p in self.model.parameters()
            for t in (p, p.grad)
        ]


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [(4, 16, 2), (64, 256, 6)], ids=["small", "heavy"])
async def test_steps_are_as_eager_ones(size):
    """Small programs run at once, large ones in slices and threads; the bits are the same."""
    rows, width, layers = size
    ours, theirs = Training(width, layers), Training(width, layers)
    fast = ag.compile(ours.step)
    for seed in range(5):
        ag.manual_seed(seed)
        x = ag.randn(rows, width)
        a, b = await fast(x), await theirs.step(x)
        assert a.numpy().tobytes() == b.numpy().tobytes()
        assert ours.state() == theirs.state()
    assert replays(fast) == 4, fast.explain()


@pytest.mark.asyncio
async def test_slow_functions_without_a_graph_run_in_threads():
    """A replay expects of them what their nodes would, before it has timed any."""

    @ag.compile
    async def values(x):
        await ag.grad((w * 2.0).sum(), w)
        return ag.lgamma(x)

    w, x = ag.ones(4, requires_grad=True), ag.full((20_000,), 2.5)
    await values(x)
    before = ag.engine().counts["segments"]
    await values(x)
    assert replays(values) == 1, values.explain()
    assert ag.engine().counts["segments"] == before + 1


@pytest.mark.asyncio
async def test_many_at_once_do_not_share_memory():
    """Each replay in flight has memory of its own."""
    w = ag.ones(64, requires_grad=True)

    @ag.compile
    async def slope(x):
        for _ in range(200):
            x = ag.tanh(x * w)
        return (await ag.grad(x.sum(), w))[0]

    inputs = [ag.full((64,), n / 10) for n in range(30)]
    wanted = [(await slope.__wrapped__(x)).tolist() for x in inputs]
    await slope(inputs[0])
    found = await asyncio.gather(*[slope(x) for x in inputs])
    assert [x.tolist() for x in found] == wanted
    assert replays(slope) == 30


@pytest.mark.asyncio
async def test_a_cancelled_replay_is_all_or_nothing():
    """No gradient is there, or each is; weights change with a whole step."""
    ours, theirs = Training(256, 12), Training(256, 12)
    fast = ag.compile(ours.step)
    x = ag.ones(128, 256) * 0.01
    for _ in range(2):
        await fast(x)
        await theirs.step(x)
    ours.optimizer.zero_grad()
    before = ours.state()
    await theirs.step(x)
    after = theirs.state()
    for turns in range(6):
        running = asyncio.ensure_future(fast(x))
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        try:
            await running
        except asyncio.CancelledError:
            state = ours.state()
            assert state[0::2] in (before[0::2], after[0::2])
            assert state[1::2] in (before[1::2], after[1::2])
        if ours.state()[0] != before[0]:
            break
        ours.optimizer.zero_grad()
    assert ag.engine().live == set()


@pytest.mark.asyncio
async def test_a_deadline_holds_for_replays():
    """The pass fails in time, and nothing is touched."""
    ours = Training(256, 12)
    fast = ag.compile(ours.step)
    x = ag.ones(128, 256) * 0.01
    await fast(x)
    await fast(x)
    ours.optimizer.zero_grad()
    before = ours.state()
    loop = asyncio.get_running_loop()
    with pytest.raises(TimeoutError), ag.request(deadline=loop.time() - 1):
        await fast(x)
    assert ours.state() == before


@pytest.mark.asyncio
async def test_a_replay_whose_deadline_has_passed_says_so():
    """It has changed nothing, so the call is made again, which is too late, too."""

    @ag.compile
    async def slope(x):
        y = x
        for _ in range(300):
            y = y.tanh()
        (found,) = await ag.grad(y.sum(), x)
        return found

    x = ag.zeros(3, requires_grad=True)
    await slope(x)
    loop = asyncio.get_running_loop()
    with pytest.raises(TimeoutError), ag.request(deadline=loop.time() - 1):
        await slope(x)
    with ag.request(deadline=loop.time() + 1000):
        assert (await slope(x)).tolist() == [1, 1, 1]
    assert "eager: its deadline has passed (1 calls)" in slope.explain()


@pytest.mark.asyncio
async def test_weights_that_others_update_meanwhile_are_not_mixed():
    """An optimiser's step of another task gives the weights new memory, as for eager passes."""
    w = ag.ones(256, 256, requires_grad=True)
    update = ag.optim.SGD([w], lr=1.0)

    @ag.compile
    async def slope(x):
        for _ in range(20):
            x = ag.tanh(x @ w * 0.01)
        return (await ag.grad(x.sum(), w))[0]

    x = ag.ones(64, 256)
    await slope(x)
    wanted = await slope.__wrapped__(x)
    running = asyncio.ensure_future(slope(x))
    await asyncio.sleep(0)
    w.grad = ag.ones(256, 256)
    update.step()
    found = await running
    again = await slope.__wrapped__(x)
    assert np.array_equal(found.numpy(), wanted.numpy()) or np.array_equal(
        found.numpy(), again.numpy()
    )


class Turn:
    """Suspends its task once, without asyncio."""

    def __await__(self):
        yield


@types.coroutine
def turn():
    yield


@pytest.mark.asyncio
@pytest.mark.parametrize("give", [Turn, turn])
async def test_other_tasks_run_where_the_function_lets_them(give):
    """A replay that left this out would not see what they change."""
    w = ag.ones(3)

    async def function(x):
        y = x * w
        await give()
        return y * w

    async def change():
        w.add_(1)

    fast = ag.compile(function)
    for number in range(1, 4):
        result, _ = await asyncio.gather(fast(ag.ones(3)), change())
        assert result.tolist() == [number * (number + 1)] * 3


@pytest.mark.asyncio
@pytest.mark.parametrize("commits", [False, True])
async def test_a_change_in_place_meanwhile_gives_no_mixture(commits):
    """The call is then made again with the new values; nothing was committed."""
    w = ag.ones(256, 256, requires_grad=True)

    @ag.compile
    async def slope(x):
        for _ in range(20):
            x = ag.tanh(x @ w * 0.01)
        if not commits:
            return (await ag.grad(x.sum(), w))[0]
        await x.sum().backward()
        return w.grad

    x = ag.ones(64, 256)
    for turns in range(1, 4):
        for _ in range(2):
            w.grad = None
            await slope(x)
        w.grad = None
        running = asyncio.ensure_future(slope(x))
        for _ in range(turns):
            await asyncio.sleep(0)
        before = w.detach().clone()
        with ag.no_grad():
            w.mul_(0.5)
        found = (await running).numpy().tobytes()
        w.grad = None
        expected = [(await slope.__wrapped__(x)).numpy().tobytes()]
        w.data, w.grad = before, None
        expected.append((await slope.__wrapped__(x)).numpy().tobytes())
        assert found in expected


@pytest.mark.asyncio
async def test_a_plain_function_with_a_pass_is_eager_on_a_loop():
    """Its caller gets the future of the pass, as always."""
    w = ag.ones(2, requires_grad=True)
    fast = ag.compile(lambda x: ag.grad((x * w).sum(), w))
    for _ in range(3):
        (g,) = await fast(ag.ones(2))
        assert g.tolist() == [1, 1]
    assert replays(fast) == 0
    forward = ag.compile(lambda x: x * 2)
    for _ in range(3):
        assert forward(ag.ones(1)).item() == 2
    assert replays(forward) == 2


@pytest.mark.asyncio
async def test_errors_are_those_of_the_function():
    """An error of a later call is raised as by the function itself."""
    w = ag.ones(3, 3, requires_grad=True)

    @ag.compile
    async def step(x, target):
        loss = nn.functional.cross_entropy(x @ w, target)
        await loss.backward()
        return loss.detach()

    for _ in range(3):
        await step(ag.ones(2, 3), ag.tensor([0, 1]))
    before = w.grad.tolist()
    with pytest.raises(IndexError, match="out of bounds"):
        await step(ag.ones(2, 3), ag.tensor([0, 7]))
    assert w.grad.tolist() == before
    assert replays(step) == 2


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.asyncio
async def test_errors_of_indices_behind_a_pass(accumulate):
    """A replay can't be made again there, so its kernels raise the error."""
    w = ag.ones(3, requires_grad=True)

    @ag.compile
    async def step(x, at):
        await (x * w).sum().backward()
        y = x * 1
        y.index_put_((at,), x[:2], accumulate)
        return y

    for _ in range(3):
        await step(ag.ones(3), ag.tensor([0, 1]))
    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension 0 with size 3"):
        await step(ag.ones(3), ag.tensor([0, 7]))
    assert replays(step) == 2


def test_other_loops_and_no_loop():
    """A program belongs to no loop."""
    ours, theirs = Training(), Training()
    fast = ag.compile(ours.step)

    async def main(step):
        return (await step(ag.ones(2, 16))).item()

    for _ in range(4):
        assert asyncio.run(main(fast)) == asyncio.run(main(theirs.step))
    assert replays(fast) == 3


@pytest.mark.asyncio
async def test_small_replays_keep_deadlines_and_limits():
    """They are run at once only where nothing speaks against it."""
    training = Training()
    fast = ag.compile(training.step)
    x = ag.ones(2, 16) * 0.1
    for _ in range(3):
        await fast(x)
    before = training.state()[0]
    loop = asyncio.get_running_loop()
    with pytest.raises(TimeoutError), ag.request(deadline=loop.time() - 1):
        await fast(x)
    assert training.state()[0] == before
    with ag.request(deadline=loop.time() + 60, priority=3):
        await fast(x)
    running = ag.engine()
    running.limit(passes=1)
    try:
        await asyncio.gather(fast(x), fast(x), fast(x))
    finally:
        running.limit()
    assert replays(fast) >= 6
    passes = running.statistics().passes
    await fast(x)
    assert running.statistics().passes == passes + 1


@pytest.mark.asyncio
@pytest.mark.filterwarnings("ignore:a call started at")
async def test_what_the_call_starts_may_end_after_it():
    """It has the modes of a recorded call that has ended."""
    w = ag.ones(3)

    @ag.compile
    async def step(x):
        ag.func.grad(lambda z: (z * w).sum())(x)
        return x * w

    failed = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failed.append(context))
    for number in range(3):
        assert (await step(ag.ones(3) * number)).tolist() == [number] * 3
        await asyncio.sleep(0)
    gc.collect()
    assert not failed


@pytest.mark.asyncio
@pytest.mark.filterwarnings("ignore:a backward pass started at")
@pytest.mark.parametrize("fails", [False, True])
async def test_a_pass_that_is_not_awaited_ends_after_a_recorded_call(fails):
    """Nothing that was recorded is left by then, and the gradients arrive."""
    w = ag.ones(100_000, requires_grad=True)
    passes = []

    @ag.compile
    async def step(x):
        y = x * w
        for _ in range(20):
            y = y.tanh()
        passes.append(y.sum().backward())
        if fails:
            raise KeyError

    with contextlib.suppress(KeyError):
        await step(ag.ones(100_000))
    await passes[0]
    assert w.grad is not None


@pytest.mark.asyncio
@pytest.mark.parametrize("by_request", [False, True])
async def test_a_deadline_of_the_calls_own(by_request):
    """A call that gives its pass a deadline is eager: the next one may be too late."""
    w = ag.ones(3, requires_grad=True)

    @ag.compile
    async def step(x, deadline):
        loss = (x * w).sum()
        with ag.request(deadline=deadline if by_request else None):
            await loss.backward(deadline=None if by_request else deadline)

    loop = asyncio.get_running_loop()
    now = loop.time()
    loop.time = lambda: now
    for _ in range(2):
        await step(ag.ones(3), now + 60)
    now += 120
    with pytest.raises(TimeoutError):
        await step(ag.ones(3), now - 60)
    assert w.grad.tolist() == [2, 2, 2]


@pytest.mark.asyncio
async def test_others_get_their_turns_beside_many_replays():
    """A hundred calls that start at once do not hold the loop until all have run."""
    w = ag.ones(64, 64, requires_grad=True)

    @ag.compile
    async def slope(x):
        for _ in range(30):
            x = ag.tanh(x @ w * 0.02)
        return (await ag.grad(x.sum(), w))[0]

    x = ag.ones(32, 64)
    for _ in range(3):
        await slope(x)
    turns = 0

    async def bystander():
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.ensure_future(bystander())
    await asyncio.gather(*[slope(x) for _ in range(100)])
    other.cancel()
    assert turns > 10


def test_calls_that_start_before_the_first_has_ended_are_not_recorded():
    w, x = ag.ones(300, 300, requires_grad=True), ag.ones(200, 300)

    @ag.compile
    async def slope(x):
        return await ag.grad(ag.tanh(x @ w).sum(), w)

    async def main():
        for _ in range(2):
            await asyncio.gather(*[slope(x) for _ in range(40)])

    asyncio.run(main())
    assert slope.explain().startswith(f"{slope.__qualname__}: 1 recorded, ")
    assert "another call was being recorded" in slope.explain()
    assert "replayed 40 times" in slope.explain()


@pytest.mark.asyncio
async def test_nodes_of_a_recorded_pass_run_one_at_a_time():
    """The recorder notes the rules in the order in which they run."""
    # Products have the same bits only while an engine runs.
    ag.engine()
    w = ag.ones(900, 900, requires_grad=True)

    @ag.compile
    async def step(x: ag.Tensor) -> tuple[ag.Tensor, ...]:
        return await ag.grad(((x @ w).tanh() * (2 * x @ w).exp()).sum(), [w])

    x = ag.ones(900, 900) * 1e-3
    wanted = await step.__compiled__(x)
    for _ in range(2):
        for one, other in zip(await step(x), wanted, strict=True):
            assert one.numpy().tobytes() == other.numpy().tobytes()
    assert "1 replayed" in step.explain()


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [8, 400_000], ids=["at once", "in slices"])
async def test_passes_that_run_at_once_through_one_graph_are_replayed(size):
    """Each has gradients of its own, whichever of their nodes run first."""
    ag.manual_seed(0)
    w, v = (ag.randn(size, requires_grad=True) for _ in range(2))

    async def step(x):
        hidden = ag.tanh(x * w)
        y = hidden * v * hidden
        passes = [ag.grad((y * n).sum(), (w, v), retain_graph=True) for n in (1, 2)]
        return [g for gradients in passes for g in await gradients]

    fast = ag.compile(step)
    for _ in range(3):
        x = ag.randn(size)
        for mine, other in zip(await fast(x), await step(x), strict=True):
            assert mine.numpy().tobytes() == other.numpy().tobytes()
    assert replays(fast) == 2, fast.explain()


def test_a_change_while_a_pass_runs_leaves_what_its_nodes_have_read():
    """A node that has run has read the weight as it was before the change."""

    def world():
        ag.manual_seed(0)
        v, w = (ag.randn(1, requires_grad=True) for _ in range(2))

        async def step(x):
            # What comes before the last product takes long in the pass alone.
            passing = ag.grad(v.expand(4_000_000)[:1] * x * w, v)
            with ag.no_grad():
                w.add_(1)
            (gradient,) = await passing
            return gradient

        return step

    fast, eager = ag.compile(world()), world()
    for _ in range(3):
        x = ag.randn(1)
        # In a new loop the first node runs at once.
        assert asyncio.run(fast(x)).tolist() == asyncio.run(eager(x)).tolist()
    assert replays(fast) == 2, fast.explain()


@pytest.mark.asyncio
async def test_cancelled_in_any_part_it_has_made_its_changes_whole(monkeypatch):
    """Each of its changes, of gradients and by the optimiser, is there in all or in none."""
    ours, theirs = (Training(64, 6, optimizer=ag.optim.Adam) for _ in range(2))
    fast = ag.compile(ours.step)
    x = ag.ones(64, 64) * 0.01
    for _ in range(4):
        await fast(x)
        await theirs.step(x)
    # However short the parts are, they are run as passes.
    monkeypatch.setattr(awaited, "_AT_ONCE_NS", 0)
    advance = awaited._Replay.advance
    left = 0
    running = None

    def advance_or_cancel(self, place):
        nonlocal left
        if left == 0:
            running.cancel()
        left -= 1
        return advance(self, place)

    monkeypatch.setattr(awaited._Replay, "advance", advance_or_cancel)
    outcomes = []
    for count in range(100):
        before = theirs.state(), repr(theirs.optimizer.state_dict())
        await theirs.step(x)
        whole = theirs.state(), repr(theirs.optimizer.state_dict())
        left = count
        running = asyncio.ensure_future(fast(x))
        try:
            await running
        except asyncio.CancelledError:
            after = ours.state(), repr(ours.optimizer.state_dict())
            stepped = after[1] != before[1]
            assert after[1] == (whole if stepped else before)[1]
            assert after[0][0::2] == (whole if stepped else before)[0][0::2]
            # `zero_grad` and the pass are changes of their own, as eagerly.
            gradients = after[0][1::2]
            assert gradients in (whole[0][1::2], before[0][1::2], [None] * len(gradients))
            outcomes.append(count)
            if not stepped:
                ours.model.load_state_dict(theirs.model.state_dict())
                ours.optimizer.load_state_dict(theirs.optimizer.state_dict())
        if left >= 0:
            break
    assert len(outcomes) >= 2
    assert ag.engine().live == set()


@pytest.mark.asyncio
@pytest.mark.parametrize("who", ["task", "hook"])
async def test_changes_of_other_tasks_are_not_put_down_to_hooks(who, monkeypatch):
    """A replay goes on with what it has read; after a change by a hook it can't."""
    w = ag.tensor([1.0, 2.0], requires_grad=True)
    scales, calls = [1.0], []

    def hook(_):
        if len(calls) == 4 and who == "hook":
            scales[0] = 2.0

    w.register_hook(hook)

    @ag.compile
    async def step(x):
        w.grad = None
        await (x * w).sum().backward()
        return w.grad * scales[0]

    advance = awaited._Replay.advance

    def as_another_task_would(self, place):
        if len(calls) == 4 and who == "task":
            scales[0] = 2.0
        return advance(self, place)

    monkeypatch.setattr(awaited._Replay, "advance", as_another_task_would)
    for number in range(6):
        calls.append(None)
        if number == 3 and who == "hook":
            with pytest.raises(AutogradError, match="called anew, such as a hook, has changed"):
                await step(ag.ones(2))
        else:
            expected = 1.0 if number < 4 else 2.0
            assert (await step(ag.ones(2))).tolist() == [expected] * 2
    assert replays(step) == (4 if who == "task" else 3)


@pytest.mark.asyncio
async def test_zeros_of_awaited_passes():
    """A pass that makes them ends in other modes than those of the call."""
    w, other = (ag.ones(n, requires_grad=True) for n in (3, 2))

    @ag.compile(fullgraph=True)
    async def slopes(x):
        return await ag.grad((x * w).sum(), [w, other], materialize_grads=True)

    for number in range(3):
        first, zeros = await slopes(ag.ones(3) * number)
        assert [first.tolist(), zeros.tolist()] == [[number] * 3, [0, 0]]
        zeros.add_(1)
    assert "1 recorded, 2 replayed" in slopes.explain()
