"""Whoever looks at the memory of `.grad` sees what passes add to it, as on the CPU."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.core.commit import commit
from asyncgrad.core.prepared import prepare
from asyncgrad.errors import AcceleratorError
from asyncgrad.testing import simulate


def two_leaves(device):
    return [ag.ones(3, device=device, requires_grad=True) for _ in range(2)]


def loss(x, y):
    return (x * 2 + y * 3).sum()


async def in_one_buffer(device):
    """Gradients that are parts of one tensor, as for a reduction over machines."""
    x, y = two_leaves(device)
    flat = ag.zeros(6, device=device)
    x.grad, y.grad = flat[:3], flat[3:]
    for _ in range(2):
        await loss(x, y).backward()
    return flat.tolist(), x.grad.tolist(), y.grad.tolist(), flat._version


def looked_at(look):
    async def program(device):
        x, y = two_leaves(device)
        await loss(x, y).backward()
        seen = look(x.grad)
        for _ in range(2):
            await loss(x, y).backward()
        return seen.tolist(), x.grad.tolist(), y.grad.tolist(), seen._version

    return program


PROGRAMS = {
    "one buffer": in_one_buffer,
    "a view": looked_at(lambda grad: grad[1:]),
    "a view of a view": looked_at(lambda grad: grad.view(3, 1)[1:]),
    "detached": looked_at(lambda grad: grad.detach()),
    "data": looked_at(lambda grad: grad.data),
    "nobody": looked_at(lambda grad: ag.ones(2)),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("schedule", [None, lambda heads: 0, lambda heads: -1])
@pytest.mark.parametrize("name", PROGRAMS)
async def test_views_of_grad_see_what_is_added(name, schedule):
    with simulate(schedule=schedule):
        assert await PROGRAMS[name]("sim:0") == await PROGRAMS[name]("cpu")


def test_without_a_loop_too():
    flat = ag.zeros(3, device="sim:0")
    x = ag.ones(3, device="sim:0", requires_grad=True)
    x.grad = flat[:]
    (x * 2).sum().backward()
    assert flat.tolist() == [2.0] * 3


@pytest.mark.asyncio
async def test_the_owner_of_the_memory_may_be_in_another_stream():
    side = ag.Stream("sim:0")
    flat = ag.zeros(3, device="sim:0")
    x = ag.ones(3, device="sim:0", requires_grad=True)
    x.grad = flat[:]
    side.wait_stream(ag.accelerator.current_stream("sim:0"))
    with side:
        y = (x * 2).sum()
    before = flat + 1
    ag.accelerator.current_stream("sim:0").wait_stream(side)
    await y.backward(wait="enqueued")
    assert (flat + before).tolist() == [3.0] * 3


@pytest.mark.asyncio
async def test_memory_that_nobody_looks_at_is_exchanged():
    """Writing into it would take another operation, and time to wait for that."""
    x = ag.ones(3, device="sim:0", requires_grad=True)
    launched = []
    for _ in range(4):
        with simulate() as machine:
            x = ag.ones(3, device="sim:0", requires_grad=True)
            await (x * 2).sum().backward()
            alias = x.grad.detach() if len(launched) % 2 else None
            start = machine.launched
            await (x * 2).sum().backward()
            launched.append(machine.launched - start)
            del alias
    exchanged, written, *again = launched
    assert written == exchanged + 2
    assert again == [exchanged, written]


@pytest.mark.asyncio
async def test_a_fault_at_any_operation_leaves_the_memory_as_it_was():
    faults = 0
    while True:
        with simulate() as machine:
            x, y = two_leaves("sim:0")
            host = ag.ones(3, requires_grad=True)
            flat = ag.arange(6.0, device="sim:0")
            x.grad, y.grad = flat[:3], flat[3:]
            total = loss(x, y) + host.to("sim:0").sum()
            await ag.accelerator.synchronize_async("sim:0")
            machine.fail(faults)
            try:
                await total.backward()
            except AcceleratorError:
                faults += 1
            else:
                break
            assert host.grad is None
            np.testing.assert_array_equal(flat.cpu().numpy(), np.arange(6.0))
            assert x.grad.tolist() == [0.0, 1.0, 2.0]
            await loss(x, y).backward()
            assert flat.tolist() == [2.0, 3.0, 4.0, 6.0, 7.0, 8.0]
    assert faults > 10


@pytest.mark.parametrize(("first", "second"), [((0, 4), (0, 4)), ((0, 4), (2, 6))])
def test_leaves_whose_gradients_share_memory_are_all_added(first, second) -> None:
    memory = ag.zeros(6, device="sim:1")
    a, b = (ag.ones(4, device="sim:1", requires_grad=True) for _ in "ab")
    a.grad, b.grad = memory[slice(*first)], memory[slice(*second)]
    (a * 2.0 + b * 3.0).sum().backward()
    expected = np.zeros(6)
    expected[slice(*first)] += 2
    expected[slice(*second)] += 3
    assert memory.tolist() == expected.tolist()


@pytest.mark.asyncio
async def test_what_a_commit_adds_after_that_of_another_pass_is_waited_for():
    """Both passes have computed the new `.grad` before either is committed."""

    async def one(w):
        side = ag.Stream(device="sim:0")
        side.wait_stream(ag.accelerator.current_stream("sim:0"))
        with side:
            await (w * 2).sum().backward()

    with simulate():
        w = ag.ones(3, device="sim:0", requires_grad=True)
        await asyncio.gather(*(one(w) for _ in range(3)))
        assert (await w.grad.to_async("cpu")).tolist() == [6.0] * 3


class Meanwhile:
    """A participant of a pass that awaits something after the pass has computed its `.grad`s."""

    def __init__(self, decide):
        self.decide = decide

    async def prepare(self, gradients):
        pass

    async def commit(self):
        pass

    async def abort(self):
        pass


@pytest.mark.asyncio
@pytest.mark.parametrize("reads", [True, False])
async def test_what_a_commit_adds_after_that_of_another_pass_comes_before_later_work(reads):
    """In every stream: whoever has awaited the other pass may read, or free, that memory."""
    with simulate():
        w = ag.ones(3, device="sim:0", requires_grad=True)
        first, second = ag.Stream("sim:0"), ag.Stream("sim:0")
        for stream in first, second:
            stream.wait_stream(ag.accelerator.current_stream("sim:0"))

        async def other():
            with second, ag.enable_grad():
                await (w * 3).sum().backward()
                if not reads:
                    w.grad = w.grad + 0

        with first:
            y = w * 2
            y.register_hook(lambda gradient: ag.autograd.graph.join(Meanwhile(other)))
            await y.sum().backward()
        with second:
            ag.ones(3, device="sim:0")
        assert (await w.grad.to_async("cpu")).tolist() == [5.0] * 3


@pytest.mark.asyncio
async def test_an_undone_commit_leaves_what_another_pass_has_added():
    """Both have computed the new `.grad` before the other one is committed."""

    def fails():
        raise ValueError("no")

    with simulate():
        w = ag.ones(3, device="sim:0", requires_grad=True)
        y = w * 2
        y.register_hook(lambda gradient: ag.autograd.graph.queue_callback(fails))
        other, undone = (w * 5).sum().backward(), y.sum().backward()
        await other
        with pytest.raises(ValueError, match="no"):
            await undone
        assert w.grad.tolist() == [5.0] * 3


def test_what_is_prepared_while_another_thread_writes_is_computed_again():
    """It has read the values from before that."""
    meanwhile = []

    def within(function, *args):
        if function is not prepare and not meanwhile:
            meanwhile.append(prepare(x, gradient, False, None, within))
        return function(*args)

    flat = ag.zeros(3, device="sim:0")
    x = ag.ones(3, device="sim:0", requires_grad=True)
    x.grad = flat[:]
    gradient = ag.ones(3, device="sim:0")._array
    commit((), None, True, [prepare(x, gradient, False, None, within)])
    commit((), None, True, meanwhile)
    assert flat.tolist() == [2.0] * 3
