"""Work in different streams, and copies, go on at the same time; the host is not held."""

import asyncio
import itertools
import selectors

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.core import prepared, streams
from asyncgrad.testing import RaceError, simulate

MS = 1e-3


def seconds(machine, program):
    """Simulated time of a program."""
    ag.accelerator.synchronize("sim:0")
    before = machine.clock.now()
    asyncio.run(program())
    ag.accelerator.synchronize("sim:0")
    return machine.clock.now() - before


def test_two_branches_on_two_streams_take_little_more_than_half_the_time():
    took = {}
    for count in (1, 2):
        with simulate(latency=MS) as machine:
            sides = [ag.Stream(device="sim:0") for _ in range(count)]

            async def program(sides=sides):
                default = ag.accelerator.current_stream("sim:0")
                parts = []
                for place in range(2):
                    leaf = ag.ones(4, device="sim:0", requires_grad=True)
                    stream = sides[place % len(sides)]
                    stream.wait_stream(default)
                    with stream:
                        value = leaf
                        for _ in range(50):
                            value = value.sin()
                        parts.append(value.sum())
                for stream in sides:
                    default.wait_stream(stream)
                await (parts[0] + parts[1]).backward()

            took[count] = seconds(machine, program)
    assert took[2] <= 0.6 * took[1]


def test_a_copy_to_the_host_overlaps_compute():
    def duration(name, size):
        return 50 * MS if name == "copy to the host" else MS

    took = {}
    for copies in (False, True):
        with simulate(duration=duration) as machine:
            x = ag.ones(4, device="sim:0")
            side = ag.Stream(device="sim:0")

            async def program(x=x, side=side, copies=copies):
                y = x * 2
                if copies:
                    side.wait_stream(ag.accelerator.current_stream("sim:0"))
                    with side:
                        coming = y.to_async("cpu")
                z = y
                for _ in range(100):
                    z = z + 1
                if copies:
                    assert (await coming).tolist() == [2.0] * 4
                return await z.to_async("sim:0")

            took[copies] = seconds(machine, program)
    assert took[True] == pytest.approx(took[False])


def test_the_cpu_works_while_the_device_does():
    """The node that waits for its copy holds nothing else up."""
    with simulate(devices=1, schedule="manual") as machine:
        seen = []

        async def main():
            w = ag.ones(3, requires_grad=True)
            v = ag.ones(3, requires_grad=True)
            slow = (w.to("sim:0") * 2).sum()
            fast = v * 3
            fast.register_hook(lambda g: seen.append((machine.launched, len(machine.heads()))))
            loss = slow.to("cpu", non_blocking=True) + fast.sum()
            passing = loss.backward()
            while not seen:  # noqa: ASYNC110  turns are what is waited for
                await asyncio.sleep(0)
            assert not passing.done()
            while not passing.done():
                machine.step()
                await asyncio.sleep(0)
            await passing
            assert w.grad.tolist() == [2.0] * 3

        asyncio.run(main())
        assert seen[0][1] > 0


def test_launching_does_not_run_far_ahead_of_the_device():
    with simulate(devices=1, schedule="manual") as machine:

        async def main():
            x = ag.ones(2, device="sim:0", requires_grad=True)
            y = x
            for _ in range(3_000):
                y = -y
            while machine.step():
                pass
            before = machine.launched
            passing = y.sum().backward()
            for _ in range(3_000):
                await asyncio.sleep(0)
            assert 500 < machine.launched - before < 1_500
            while not passing.done():
                machine.step()
                await asyncio.sleep(0)
            await passing
            assert x.grad.shape == (2,)

        asyncio.run(main())


def test_launching_without_a_loop_does_not_run_far_ahead_either():
    with simulate(devices=1) as machine:
        y = ag.ones(2, device="sim:0", requires_grad=True)
        for _ in range(1_500):
            y = -y
        ag.accelerator.synchronize("sim:0")
        before = machine.blocked
        y.sum().backward()
        assert machine.blocked - before > 1, "once at the end, and once before"


def test_however_fast_its_host_is_a_pass_gives_the_loop_its_turns():
    """A slice is worth what the device says a launch takes: others' timers are not late for it."""

    async def main():
        y = ag.ones(2, device="sim:0", requires_grad=True)
        for _ in range(300):
            y = -y
        engine = ag.engine()
        ticks = itertools.count(step=100)
        engine.clock = lambda: next(ticks)
        await y.sum().backward()
        launch = ag.device("sim:0").launch_cost
        assert engine.counts["slices"] >= 300 * launch // (engine.slice_ns + launch)

    asyncio.run(main())


def test_a_loop_that_waits_for_a_short_operation_does_not_sleep():
    """Loops sleep for whole milliseconds, and others' timers would be as late."""
    asked = []

    class Selector(selectors.DefaultSelector):
        def select(self, timeout=None):
            asked.append(timeout)
            return super().select(timeout)

    with (
        simulate(clock="real", latency=0.5 * MS),
        asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(Selector())) as runner,
    ):

        async def main():
            (-ag.ones(2, device="sim:0")).mul_(2)
            event = ag.accelerator.current_stream("sim:0").record_event()
            asked.clear()
            await event

        runner.run(main())
    assert not any(timeout is None or 0 < timeout < MS for timeout in asked)


async def _offloaded(pinned):
    """Saved tensors leave the device and come back."""
    x = ag.tensor(np.linspace(0, 1, 64)).to("sim:0").requires_grad_()
    with ag.autograd.graph.save_on_cpu(pin_memory=pinned):
        y = x
        for _ in range(20):
            y = y.sin() * y
    await y.sum().backward()
    return (await x.grad.to_async("cpu")).numpy()


def test_saved_tensors_go_to_the_host_and_come_back_beside_the_compute():
    def duration(name, size):
        return MS

    found, took = {}, {}
    for pinned in (False, True):
        with simulate(duration=duration) as machine:
            found[pinned] = asyncio.run(_offloaded(pinned))
            took[pinned] = machine.clock.now()
    x = ag.tensor(np.linspace(0, 1, 64), requires_grad=True)
    y = x
    for _ in range(20):
        y = y.sin() * y
    y.sum().backward()
    np.testing.assert_allclose(found[True], x.grad.numpy(), rtol=1e-6)
    np.testing.assert_allclose(found[False], x.grad.numpy(), rtol=1e-6)
    assert took[True] < 0.8 * took[False]


def test_a_copy_back_must_follow_the_copy_there():
    x = ag.ones(3, device="sim:0")
    host = x.to("cpu", non_blocking=True)
    other = ag.Stream(device="sim:0")
    with other, pytest.raises(RaceError, match="pinned memory"):
        host.to("sim:0", non_blocking=True)
    assert host.to("sim:0", non_blocking=True).tolist() == [1.0] * 3


def test_real_time_passes_as_the_model_says():
    with simulate(clock="real", latency=200 * MS) as machine:
        before = machine.clock.now()

        async def main():
            x = ag.ones(2, device="sim:0")
            event = ag.accelerator.current_stream("sim:0").record_event()
            turns = 0
            waiting = asyncio.ensure_future(event.synchronize_async())
            while not waiting.done():
                turns += 1
                await asyncio.sleep(0)
            assert x.tolist() == [1.0, 1.0]
            return turns

        turns = asyncio.run(main())
        assert machine.clock.now() - before >= 200 * MS
        # Were the loop held, the first turn would take all of the time.
        assert turns > 1


async def _turns_of(work, note):
    """Await a pass beside a task that counts the turns of the loop for `note`."""
    running = True

    async def count():
        while running:
            note.append(0)
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    await work
    running = False
    await counting


@pytest.mark.asyncio
async def test_the_loop_gets_turns_while_gradients_of_leaves_are_added(monkeypatch):
    """What is added for many parameters would hold it for longer than the nodes do."""
    leaves = [ag.ones(2, device="sim:0", requires_grad=True) for _ in range(50)]
    note = [0]

    def counted(*args):
        note[-1] += 1
        return prepared.prepare(*args)

    monkeypatch.setattr(streams, "prepare", counted)
    await _turns_of(sum(x.sum() for x in leaves).backward(), note)
    assert sum(note) == len(leaves)
    assert max(note) <= streams.LEAVES_IN_TURN
