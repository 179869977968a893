"""Saved tensors that are packed and unpacked by coroutine functions, on disk for example."""

import asyncio
import collections
import weakref

import numpy as np
import pytest
from blockbuster import blockbuster_ctx

import asyncgrad as ag
from asyncgrad.autograd.graph import save_to_disk, saved_tensors_hooks


def leaf(*values):
    return ag.tensor(values, dtype=ag.float64, requires_grad=True)


class Store:
    """Keeps tensors where only awaiting gets them, and notes what happens when."""

    def __init__(self):
        self.kept = []
        self.events = []
        self.gates = {}
        self.begun = collections.defaultdict(asyncio.Event)

    async def pack(self, tensor):
        key = len(self.kept)
        self.kept.append(tensor.numpy().copy())
        await asyncio.sleep(0)
        return key

    async def unpack(self, key):
        self.events.append(f"begin {key}")
        self.begun[key].set()
        if key in self.gates:
            await self.gates[key].wait()
        await asyncio.sleep(0)
        self.events.append(f"end {key}")
        return ag.from_numpy(self.kept[key])


async def settle():
    """Let all other tasks end: one that nobody has cancelled would hang."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others)


async def emptied(directory):
    """Files are removed by threads: one that nobody removes would hang."""
    while await asyncio.to_thread(lambda: list(directory.iterdir())):
        pass


def chain(x, length):
    for _ in range(length):
        x = ag.sin(x)
    return x


def expected(x, length):
    y = x.detach().requires_grad_()
    ag.sync.backward(chain(y, length).sum())
    return y.grad.numpy()


@pytest.mark.asyncio
async def test_the_next_one_is_unpacked_while_a_node_waits():
    """In the order of backward, one ahead of what is needed."""
    store = Store()
    x = leaf(0.5)
    with saved_tensors_hooks(store.pack, store.unpack):
        loss = chain(x, 4).sum()
    await settle()
    await loss.backward()
    np.testing.assert_allclose(x.grad, expected(x, 4))
    assert sorted(store.events) == sorted(
        f"{what} {i}" for what in ("begin", "end") for i in range(4)
    )
    assert store.events[:2] == ["begin 3", "begin 2"]
    assert store.events.index("begin 1") > store.events.index("end 3")


@pytest.mark.asyncio
async def test_how_far_ahead_is_the_users_choice():
    """Not at all, one, or all."""
    for prefetch, begun in ((0, {3}), (1, {2, 3}), (2, {1, 2, 3}), (9, {0, 1, 2, 3})):
        store = Store()
        store.gates[3] = asyncio.Event()
        with saved_tensors_hooks(store.pack, store.unpack, prefetch=prefetch):
            loss = chain(leaf(0.5), 4).sum()
        running = loss.backward()
        for key in begun:
            await store.begun[key].wait()
        for _ in range(5):
            await asyncio.sleep(0)
        assert {int(e.split()[1]) for e in store.events if e.startswith("begin")} == begun
        store.gates[3].set()
        await running
        assert len([e for e in store.events if e.startswith("begin")]) == 4


@pytest.mark.asyncio
async def test_every_pass_unpacks_for_itself():
    """Two at once over a retained graph, and one after the other."""
    store = Store()
    x = leaf(0.5)
    with saved_tensors_hooks(store.pack, store.unpack):
        loss = chain(x, 3).sum()
    first, second = await asyncio.gather(
        ag.grad(loss, x, retain_graph=True), ag.grad(loss, x, retain_graph=True)
    )
    (third,) = await ag.grad(loss, x)
    for gradient in (*first, *second, third):
        np.testing.assert_allclose(gradient, expected(x, 3))
    assert len(store.events) == 2 * 3 * 3


@pytest.mark.asyncio
async def test_what_was_fetched_in_vain_is_stopped_with_the_pass():
    """A partial pass asks for the newest alone."""
    store = Store()
    store.gates[0] = asyncio.Event()
    x = leaf(0.5)
    with saved_tensors_hooks(store.pack, store.unpack):
        middle = ag.sin(x)
        loss = ag.sin(middle).sum()
    (g,) = await ag.grad(loss, middle)
    np.testing.assert_allclose(g, np.cos(np.sin(0.5)))
    assert "begin 0" in store.events
    await settle()


@pytest.mark.asyncio
async def test_failures_ahead_of_time_are_raised_by_who_needs_them():
    """And by nobody if nobody does."""
    x = leaf(0.5)

    async def unpack(kept):
        await asyncio.sleep(0)
        if kept[0] == 0:
            raise KeyError("lost")
        return ag.from_numpy(kept[1])

    def packs():
        count = iter(range(9))
        return lambda t: (next(count), t.numpy().copy())

    for partial in (False, True):
        with saved_tensors_hooks(packs(), unpack):
            middle = ag.sin(x)
            loss = ag.sin(middle).sum()
        if partial:
            await ag.grad(loss, middle)
            await asyncio.sleep(0)
        else:
            with pytest.raises(KeyError, match="lost"):
                await loss.backward()
    assert x.grad is None
    await ag.sin(x).sum().backward()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.asyncio
async def test_a_cancelled_pass_stops_all_that_is_unpacked():
    """Its graph goes with it, with the cycle collector off."""
    store = Store()
    store.gates[2] = asyncio.Event()
    with saved_tensors_hooks(store.pack, store.unpack):
        loss = chain(leaf(0.5), 3).sum()
    running = loss.backward()
    await store.begun[1].wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    graph = weakref.ref(loss.grad_fn)
    del loss, running
    await settle()
    assert graph() is None


@pytest.mark.asyncio
@pytest.mark.parametrize("fails", [False, True])
async def test_a_pass_ends_after_all_that_is_unpacked_for_it(fails):
    """What is unpacked ahead of time may use what its caller closes after the pass."""
    begun, log = [], []
    all_begun = asyncio.Event()

    async def unpack(packed):
        begun.append(packed)
        # Those of two nodes begin, then the two ahead of them.
        if len(begun) == 4:
            all_begun.set()
        if fails and len(begun) == 2:
            await all_begun.wait()
            raise ValueError("no")
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            log.append("end")

    with saved_tensors_hooks(lambda tensor: tensor, unpack, prefetch=1):
        loss = (chain(leaf(0.5), 3) + chain(leaf(0.5), 3)).sum()
    running = loss.backward()
    await all_begun.wait()
    if not fails:
        running.cancel()
    with pytest.raises(ValueError if fails else asyncio.CancelledError):
        await running
    assert log == ["end"] * (4 - fails)
    await settle()


def test_awaited_hooks_without_a_loop():
    """The portal's loop runs them."""
    store = Store()
    x = leaf(0.5)
    with saved_tensors_hooks(store.pack, store.unpack):
        loss = chain(x, 3).sum()
    loss.backward()
    np.testing.assert_allclose(x.grad, expected(x, 3))


@pytest.mark.asyncio
async def test_a_blocking_pass_on_the_loops_thread_says_why_it_can_not():
    """It would wait for itself."""
    store = Store()
    x = leaf(0.5)
    with saved_tensors_hooks(store.pack, store.unpack):
        loss = chain(x, 1).sum()
    with pytest.raises(RuntimeError, match="use await"):
        ag.sync.backward(loss, retain_graph=True)
    await loss.backward()
    np.testing.assert_allclose(x.grad, expected(x, 1))


@pytest.mark.asyncio
async def test_functions_and_second_derivatives_have_their_tensors_awaited():
    """`ctx.saved_tensors` is at hand when `backward` runs."""

    class Cube(ag.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return 3 * x * x * gradient

    store = Store()
    x = leaf(2.0)
    with saved_tensors_hooks(store.pack, store.unpack):
        y = Cube.apply(x) * x
    (g,) = await ag.grad(y.sum(), x, create_graph=True)
    (h,) = await ag.grad(g.sum(), x)
    assert g.item() == 4 * 2.0**3
    assert h.item() == 12 * 2.0**2


@pytest.mark.asyncio
async def test_on_disk(tmp_path):
    """Files are there as long as something can still be read from them."""
    x, w = leaf(0.5, 0.25), leaf(2.0, 3.0)
    with save_to_disk(tmp_path, prefetch=2):
        y = x * 1
        z = ag.exp(y * w)
        y.add_(1)
        loss = (z * w).sum()
    await loss.backward(retain_graph=True)
    files = list(tmp_path.iterdir())
    assert files
    first = x.grad.numpy().copy()
    await loss.backward()
    np.testing.assert_allclose(x.grad, 2 * first)
    np.testing.assert_allclose(first, np.exp(x.detach().numpy() * [2.0, 3.0]) * [4.0, 9.0])
    await emptied(tmp_path)
    with save_to_disk(tmp_path):
        loss = chain(x, 3).sum()
    await settle()
    assert list(tmp_path.iterdir())
    del loss
    await emptied(tmp_path)


@pytest.mark.asyncio
async def test_a_function_may_release_what_was_unpacked_at_its_first_access():
    """By `clear_saved_tensors_on_access`, as without hooks."""
    seen = []

    class Square(ag.autograd.Function):
        clear_saved_tensors_on_access = True

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            with pytest.raises(RuntimeError, match="only be accessed once"):
                _ = ctx.saved_tensors
            seen.append(x.item())
            return 2 * x * gradient

    store, x = Store(), leaf(3.0)
    with saved_tensors_hooks(store.pack, store.unpack):
        y = Square.apply(x)
    await y.sum().backward()
    assert seen == [3.0]
    assert x.grad.item() == 6.0


def test_a_file_that_can_not_be_written_is_removed(tmp_path, monkeypatch):
    """A disk may be full."""

    def full(array):
        raise OSError("no space left")

    monkeypatch.setattr("asyncgrad.autograd.saved_tensors._bytes_of", full)
    with save_to_disk(tmp_path), pytest.raises(OSError, match="no space left"):
        ag.exp(leaf(0.5))
    assert not list(tmp_path.iterdir())


@pytest.mark.asyncio
async def test_two_tasks_pack_each_with_its_own_hooks():
    """On one loop, at the same time."""
    barrier = asyncio.Barrier(2)

    async def run(factor):
        async def unpack(kept):
            await barrier.wait()
            return kept * factor

        x = leaf(2.0)
        with saved_tensors_hooks(lambda t: t.clone(), unpack):
            await barrier.wait()
            y = (x * 3.0).exp()
            await barrier.wait()
        await y.sum().backward()
        return x.grad.item()

    one, two = await asyncio.gather(run(1), run(2))
    assert two == pytest.approx(2 * one)


@pytest.mark.asyncio
async def test_the_loop_touches_no_file(tmp_path):
    """Written, read and removed elsewhere."""
    with blockbuster_ctx("asyncgrad") as active:
        for name in ("threading.Lock.acquire", "threading.Lock.acquire_lock"):
            if name in active.functions:
                active.functions[name].deactivate()
        with save_to_disk(tmp_path):
            loss = chain(leaf(0.5), 3).sum()
        await loss.backward()
    await emptied(tmp_path)


@pytest.mark.asyncio
async def test_on_disk_from_a_device(tmp_path):
    """What comes back is where it was; anomaly mode and checkpoints work there, too."""
    x = ag.tensor([0.5, 0.25], device="sim:0", requires_grad=True)
    with save_to_disk(tmp_path), ag.autograd.set_detect_anomaly(True):
        loss = ag.exp(x * x).sum()
    await loss.backward()
    once = x.grad.cpu().numpy().copy()
    assert str(x.grad.device) == "sim:0"
    again = ag.utils.checkpoint.checkpoint(lambda x: ag.exp(x * x), x, use_reentrant=False)
    await again.sum().backward()
    np.testing.assert_allclose(x.grad.cpu(), 2 * once)
    assert ag.autograd.graph.memory(again).nbytes == 8
