"""What goes wrong on a device reaches who awaits the pass, and changes nothing."""

import asyncio
import gc

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.devices.simulated.device import SimDevice
from asyncgrad.devices.simulated.memory import Memory
from asyncgrad.errors import AcceleratorError, DeviceLostError, OutOfMemoryError
from asyncgrad.testing import Machine, RaceError, simulate


def graph():
    """A loss over two devices and the host, with its leaves."""
    x = ag.full((3,), 2.0, device="sim:0", requires_grad=True)
    w = ag.full((3,), 3.0, requires_grad=True)
    y = (x * x).exp().to("sim:1") * w.to("sim:1")
    return (y.cpu() * 2).sum().to("sim:0") * x.sum(), (x, w)


def grads(leaves):
    return [None if leaf.grad is None else leaf.grad.tolist() for leaf in leaves]


def operations_of_a_pass(accumulated):
    with simulate(devices=2) as machine:
        loss, leaves = graph()
        if accumulated:
            for leaf in leaves:
                leaf.grad = ag.ones_like(leaf)
        before = machine.launched
        asyncio.run(_awaited(loss))
        return machine.launched - before


async def _awaited(loss):
    await loss.backward()


@pytest.mark.parametrize("accumulated", [False, True])
def test_a_fault_at_any_operation_fails_the_pass_and_touches_no_grad(accumulated):
    total = operations_of_a_pass(accumulated)
    assert total > 10
    for place in range(total):
        with simulate(devices=2) as machine:
            loss, leaves = graph()
            if accumulated:
                for leaf in leaves:
                    leaf.grad = ag.ones_like(leaf)
            before = grads(leaves)
            ag.accelerator.synchronize("sim:0")
            ag.accelerator.synchronize("sim:1")

            async def main(loss=loss, leaves=leaves, before=before, machine=machine, place=place):
                machine.fail(place, AcceleratorError(f"at {place}"))
                with pytest.raises(AcceleratorError, match=f"at {place}"):
                    await asyncio.wait_for(loss.backward(), 30)
                assert grads(leaves) == before
                again, others = graph()
                await again.backward()
                assert np.isfinite(grads(others)[0]).all()

            asyncio.run(main())


def test_a_fault_where_nobody_awaits_is_raised_by_the_call():
    with simulate(devices=2) as machine:
        loss, leaves = graph()
        machine.fail(3)
        with pytest.raises(AcceleratorError, match="simulated fault"):
            loss.backward()
        assert grads(leaves) == [None, None]


@pytest.mark.asyncio
async def test_a_lost_device_ends_passes_and_says_so():
    with simulate(devices=2, schedule="manual") as machine:
        x = ag.full((3,), 2.0, device="sim:0", requires_grad=True)
        loss = (x * x).sum()
        passing = loss.backward()
        assert not passing.done()
        machine.lose(0)
        with pytest.raises(DeviceLostError, match="is lost"):
            await passing
        assert x.grad is None
        with pytest.raises(DeviceLostError):
            x * 2
        with pytest.raises(DeviceLostError):
            ag.accelerator.synchronize("sim:0")
        # The others go on.
        y = ag.ones(2, device="sim:1", requires_grad=True)
        passing = (y * 2).sum().backward()
        while not passing.done():
            machine.step()
            await asyncio.sleep(0)
        await passing
        assert y.grad.shape == (2,)


@pytest.mark.asyncio
async def test_out_of_memory_fails_the_pass_and_the_engine_goes_on():
    with simulate(devices=1, memory=100_000):
        x = ag.ones(4_000, device="sim:0", requires_grad=True)
        y = (x * 2).exp()
        held = [ag.ones(4_000, device="sim:0") for _ in range(3)]
        with pytest.raises(OutOfMemoryError, match="out of memory"):
            await (y * y).sum().backward()
        assert x.grad is None
        del held, y
        gc.collect()
        await (x * 2).sum().backward()
        assert x.grad[0].item() == 2.0


@pytest.mark.asyncio
async def test_cancelling_a_pass_on_a_device_changes_nothing():
    with simulate(devices=1, schedule="manual") as machine:
        x = ag.ones(3, device="sim:0", requires_grad=True)
        passing = (x * 2).sum().backward()
        await asyncio.sleep(0)
        assert not passing.done()
        assert passing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await passing
        while machine.step():
            pass
        assert x.grad is None


@pytest.mark.asyncio
async def test_an_error_of_a_pass_that_only_enqueues_shows_at_the_next_synchronisation():
    with simulate(devices=1) as machine:
        x = ag.ones(3, device="sim:0", requires_grad=True)
        loss = (x * 2).sum()
        machine.fail(0)
        await loss.backward(wait="enqueued")
        with pytest.raises(AcceleratorError):
            await ag.accelerator.synchronize_async("sim:0")
        await ag.accelerator.synchronize_async("sim:0")


def test_wait_is_checked():
    x = ag.ones(3, requires_grad=True)
    with pytest.raises(ValueError, match="'done' or 'enqueued'"):
        x.sum().backward(wait="soon")


def test_memory_that_a_copy_still_reads_must_not_change():
    host = ag.ones(3).pin_memory(device="sim:0")
    assert host.is_pinned()
    copy = host.to("sim:0", non_blocking=True)
    host.add_(1)
    with pytest.raises(RaceError, match="pinned memory was changed"):
        copy.cpu()
    pageable = ag.ones(3)
    copy = pageable.to("sim:0", non_blocking=True)
    pageable.add_(1)
    assert copy.tolist() == [1.0, 1.0, 1.0]


class Refusing:
    """A method that raises at one of its calls, once it is armed."""

    def __init__(self, monkeypatch, owner, name, error):
        self.calls = 0
        self.at = None
        original = getattr(owner, name)

        def method(*args, **kwargs):
            if self.at is not None:
                self.calls += 1
                if self.calls == self.at:
                    raise error
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, method)


CALLS = {
    "an allocation": (Memory, "take", OutOfMemoryError("no memory is left")),
    "a launch": (Machine, "launch", AcceleratorError("the launch failed")),
    "recording an event": (Machine, "record", AcceleratorError("the event failed")),
    "having a stream wait": (Machine, "wait", AcceleratorError("the wait failed")),
    "opening an event": (SimDevice, "new_event", AcceleratorError("there is no event")),
    "a copy to the host": (SimDevice, "to_host", AcceleratorError("the copy failed")),
    "a copy from the host": (SimDevice, "from_host", AcceleratorError("the copy failed")),
    "a copy between devices": (SimDevice, "from_peer", AcceleratorError("the copy failed")),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_fails_anywhere_fails_the_pass_and_touches_no_grad(name, monkeypatch):
    """What the library refuses at once, in the place of what fails later."""
    owner, method, error = CALLS[name]
    refusing = Refusing(monkeypatch, owner, method, error)

    async def main(place):
        loss, leaves = graph()
        leaves[0].grad = ag.ones_like(leaves[0])
        before = grads(leaves)
        for device in ("sim:0", "sim:1"):
            await ag.accelerator.synchronize_async(device)
        refusing.calls, refusing.at = 0, place
        raised = None
        try:
            await asyncio.wait_for(loss.backward(), 30)
        except type(error) as caught:
            raised = caught
        refusing.at = None
        if raised is not None:
            assert raised is error
            assert grads(leaves) == before
        again, others = graph()
        await again.backward()
        assert np.isfinite(grads(others)[0]).all()
        return raised is not None

    place = 0
    failed = True
    while failed:
        place += 1
        with simulate(devices=2):
            failed = asyncio.run(main(place))
    assert place > 1


@pytest.mark.asyncio
async def test_each_call_on_a_lost_device_has_an_error_of_its_own():
    """Passes write notes on theirs; the next call's must not have them."""
    with simulate(devices=2) as machine:
        x = ag.ones(2, device="sim:0", requires_grad=True)
        loss = (x * 2).sum()
        machine.lose(0)
        with pytest.raises(DeviceLostError) as first:
            await loss.backward()
        with pytest.raises(DeviceLostError) as second:
            x + 1
        assert first.value is not second.value
        assert not getattr(second.value, "__notes__", [])
