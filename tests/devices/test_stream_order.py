"""Passes over streams wait where they must; without any one wait the simulation would tell."""

import asyncio

import device_programs as programs
import numpy as np
import pytest
from device_programs import PROGRAMS

import asyncgrad as ag
from asyncgrad.autograd import saved_on_cpu
from asyncgrad.core import streams as core_streams
from asyncgrad.devices.simulated.device import SimDevice
from asyncgrad.ops.api import transfer as functions_transfer
from asyncgrad.ops.tensors import transfer as ops_transfer
from asyncgrad.scheduler.coroutines import CoroutineNodes
from asyncgrad.testing import RaceError, simulate


async def right(program):
    tensor, expected = await program()
    values = (await tensor.to_async("cpu")).numpy()
    np.testing.assert_allclose(values, np.full(programs.SIZE, expected), rtol=1e-5)


@pytest.mark.asyncio
@pytest.mark.parametrize("program", PROGRAMS)
async def test_streams_wait_for_one_another(program):
    await right(program)


@pytest.mark.asyncio
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("greedy", [0, -1])
async def test_in_whichever_order_streams_are_served(program, greedy):
    """The first stream that can go on does so first, or the last."""
    with simulate(devices=3, schedule=lambda heads: greedy % len(heads)):
        await right(program)


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p is not programs.number])
def test_where_nobody_awaits(program):
    steps = program()
    with pytest.raises(StopIteration) as stop:
        steps.send(None)
    tensor, expected = stop.value.value
    np.testing.assert_allclose(tensor.cpu().numpy(), np.full(programs.SIZE, expected), rtol=1e-5)


S = core_streams.PassStreams
#: What is taken away, and a program that then goes wrong.
MUTANTS = {
    "case 1: the host waits for copies": (
        ops_transfer, "_after", "await event", programs.to_the_host,
    ),
    "case 2: the consumer waits for the producer": (
        S, "_meet", "summed_in.wait_stream(made_in)", programs.between_streams,
    ),
    "case 3: the consumer waits for the default stream": (
        S, "_meet", "summed_in.wait_stream(made_in)", programs.from_another_device,
    ),
    "case 4: the default stream waits for the producer": (
        S, "_meet", "summed_in.wait_stream(made_in)", programs.to_another_device,
    ),
    "the root waits for the caller": (
        S, "begin", "stream.wait_stream(self.caller_stream(stream.device))",
        programs.root_of_a_side_stream,
    ),
    "the caller waits for the leaves' streams": (
        S, "settle", "self.caller_stream(stream.device).wait_stream(stream)",
        programs.leaf_of_a_side_stream,
    ),
    "results are finished in the caller's stream": (
        S, "settle", "install(modes_within(task).replace(streams=self.callers))",
        programs.captured_in_another_dtype,
    ),
    "the pass waits for what finishes its results": (
        S, "_for_the_caller", "self.used[self.caller_stream(device)] = None",
        programs.captured_in_another_dtype,
    ),
    "gradients are kept": (
        core_streams, "_keep", "stream.keep(gradient, saved)", programs.gradient_is_kept,
    ),
    "the pass waits for its nodes' streams": (
        S, "run_node", "self.used[stream] = None", programs.work_without_gradient,
    ),
    "saved values are kept": (
        core_streams, "_keep", "stream.keep(gradient, saved)", programs.saved_is_kept,
    ),
    "what is summed is kept": (
        S, "deliver", "stream.keep(gradient, buffer.values[position], list(buffer.held))",
        programs.sum_is_kept,
    ),
    "what is accumulated is kept": (
        S, "prepare", "stream.keep(gradient, prepared.before)", programs.accumulated_is_kept,
    ),
    "a gradient that others see is written after what the caller has put in": (
        S, "within", "stream.wait_stream(other)", programs.shared_memory,
    ),
    "the caller waits for a gradient that others see": (
        S, "within", "other.wait_stream(stream)", programs.shared_memory,
    ),
    "memory that others see is used again after the pass has read it": (
        S, "within", "other.wait_stream(stream)", programs.shared_memory_is_freed,
    ),
    "a copy comes after what the caller has put in": (
        S, "copies_follow_caller", "stream.wait_stream(self.caller_stream(device))",
        programs.back_to_a_side_stream,
    ),
    "a coroutine hook keeps the stream of its node": (
        CoroutineNodes, "launch", "context=suspended.context", programs.hook_that_waits,
        "context=task.new_context()",
    ),
    "a leaf waits for what a participant gives": (
        S, "follow", "node.stream.wait_stream(stream)", programs.given_by_a_participant,
    ),
    "a leaf waits for what is accumulated": (
        S, "follow", "node.stream.wait_stream(stream)", programs.given_by_the_caller,
    ),
    "numbers are waited for": (
        functions_transfer, "_number", "await event", programs.number,
    ),
    "tensors are waited for": (
        functions_transfer, "_arrived", "await event", programs.between_streams,
    ),
    "the pass waits for its devices": (
        S, "wait", "yield event.synchronize_async()", programs.done_when_awaited, "yield from ()",
    ),
    "copies to the host are waited for": (
        ops_transfer, "moved", "stream.record_event().synchronize()", programs.through_the_host,
    ),
    "what is offloaded is there": (
        saved_on_cpu.Offload, "pack", "stream.wait_stream(current_stream(device))",
        programs.offloaded,
    ),
    "what comes back is there": (
        saved_on_cpu.Offload, "unpack", "here.wait_stream(packed.stream)",
        programs.offloaded,
    ),
    "what comes back is kept": (
        saved_on_cpu.Offload, "unpack", "here.keep(array)", programs.offloaded_is_kept,
    ),
    "a copy between devices follows what made it": (
        SimDevice, "from_peer", "here.wait_stream(there)", programs.between_devices_directly,
    ),
    "what follows comes after a copy between devices": (
        SimDevice, "from_peer", "there.wait_stream(here)", programs.between_devices_directly,
    ),
    "what is copied is kept": (
        ops_transfer, "moved", "stream.keep(array, copy)", programs.copy_is_kept,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_missing_wait_is_noticed(name, monkeypatch):
    owner, function, line, program, *instead = MUTANTS[name]
    with simulate(devices=3, latency=1e-3):
        asyncio.run(right(program))
    programs.mutated(monkeypatch, owner, function, line, *instead)
    with simulate(devices=3, latency=1e-3), pytest.raises((RaceError, AssertionError)):
        asyncio.run(right(program))


def entered(monkeypatch):
    """The functions that are called within a stream, from now on."""
    found, run_in = [], SimDevice.run_in

    def spy(device, stream, function, *args):
        found.append(function.__name__)
        return run_in(device, stream, function, *args)

    monkeypatch.setattr(SimDevice, "run_in", spy)
    return found


def test_a_chain_enters_its_stream_once(monkeypatch):
    x = ag.ones(3, device="sim:0", requires_grad=True)
    y = x
    for _ in range(200):
        y = ag.sin(y) * 1.01
    calls = entered(monkeypatch)
    y.sum().backward()
    assert calls.count("_run_chain") == 1
    assert len(calls) == 2, "and once for the leaf's gradient"
    values = x.detach().cpu().numpy()
    np.testing.assert_allclose(x.grad.cpu().numpy(), slope(values), rtol=1e-5)


def slope(x):
    """The derivative of that chain."""
    total = np.ones_like(x)
    for _ in range(200):
        total = total * np.cos(x) * 1.01
        x = np.sin(x) * 1.01
    return total


@pytest.mark.parametrize("what", ["hook", "retain_grad", "inputs", "create_graph", "side stream"])
def test_a_chain_with_an_extraordinary_node(what):
    """A hook, a capture, a pass that records itself, and a second stream in the midst of a pass."""
    x = ag.ones(3, device="sim:0", requires_grad=True)
    middle = ag.sin(x) * 2
    seen = []
    if what == "hook":
        middle.register_hook(lambda g: seen.append(g.device) or g * 10)
    elif what == "retain_grad":
        middle.retain_grad()
    elif what == "side stream":
        middle.register_hook(lambda g: seen.append(ag.Stream(device="sim:0")))
    loss = (ag.sin(middle) * 3).sum()
    slope = 3 * np.cos(2 * np.sin(1))
    if what in {"inputs", "create_graph"}:
        one, other = ag.grad(loss, [middle, x], create_graph=what == "create_graph")
        np.testing.assert_allclose(one.detach().cpu().numpy(), [slope] * 3, rtol=1e-5)
        found = other.detach()
    else:
        loss.backward()
        found = x.grad
    factor = 10 if what == "hook" else 1
    expected = [slope * factor * 2 * np.cos(1)] * 3
    np.testing.assert_allclose(found.cpu().numpy(), expected, rtol=1e-5)
    assert len(seen) == (what in {"hook", "side stream"})
    if what == "retain_grad":
        np.testing.assert_allclose(middle.grad.cpu().numpy(), [slope] * 3, rtol=1e-5)


def test_an_error_in_a_chain_names_its_node():
    """The next node's gradient is not computed, and nothing is added to the leaf."""
    x = ag.ones(3, device="sim:0", requires_grad=True)
    middle = ag.exp(x)
    loss = (ag.sin(middle) * 2).sum()
    with ag.no_grad():
        middle.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    assert x.grad is None
