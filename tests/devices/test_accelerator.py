"""The public names: devices by name, the accelerator, transfers and their errors."""

import asyncio
import contextvars
import gc
import weakref

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.devices import discovery
from asyncgrad.testing import RaceError, simulate

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def kind_of(function):
    try:
        function()
    except Exception as error:
        return next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")
    return None


@pytest.mark.torch
@pytest.mark.parametrize(
    "arguments",
    [
        ("foo",),
        ("cuda:x",),
        ("cuda:-1",),
        (None,),
        (2.5,),
        ("cpu:0", 0),
        ("cpu", "x"),
        ("cpu",),
        (),
        ("cpu", True),
        (True,),
        ("cpu:00",),
        ("",),
        ("cpu:",),
        ("CPU",),
        ("cpu", -1),
    ],
)
def test_names_are_refused_as_pytorch_does(arguments):
    assert kind_of(lambda: ag.device(*arguments)) is kind_of(lambda: torch.device(*arguments))


MISUSE = (
    lambda T, x: x + T.ones(2),
    lambda T, x: T.ones(2) * x,
    lambda T, x: x.numpy(),
    lambda T, x: x.item(),
    lambda T, x: np.asarray(x),
    lambda T, x: setattr(T.ones(2, requires_grad=True), "grad", x),
    lambda T, x: (T.ones(2, requires_grad=True) * 2).backward(x),
    lambda T, x: x.record_stream(None),
    lambda T, x: x.to("nowhere"),
    lambda T, x: T.ones(2).cuda(),
    lambda T, x: T.from_dlpack(3),
    lambda T, x: T.ones(2, requires_grad=True).__dlpack__(),
)


@pytest.mark.torch
@pytest.mark.parametrize("program", MISUSE)
def test_misuse_is_refused_as_pytorch_does(program):
    """PyTorch's device without memory stands for ours."""
    with pytest.raises(Exception) as theirs:  # noqa: PT011  whichever it is
        program(torch, torch.ones(2, device="meta"))
    classes = tuple(k for k in theirs.type.__mro__ if k.__module__ == "builtins")
    with pytest.raises(classes[0]):
        program(ag, ag.ones(2, device="sim:0"))


def test_mixed_devices_are_refused_and_nothing_changes():
    a, b = ag.ones(2, device="sim:0"), ag.ones(2, device="sim:1")
    with pytest.raises(RuntimeError, match="same device"):
        a + b
    assert (a + 1).tolist() == [2.0, 2.0]


def test_the_library_has_no_more_options_than_cupys():
    x = ag.ones(3, device="sim:0")._array
    with pytest.raises(TypeError, match="Wrong arguments"):
        np.multiply(x, 2, where=x > 0)
    assert np.add(x, 1, dtype=np.float64).dtype == np.float64


def test_the_host_can_not_see_a_devices_memory():
    x = ag.ones(3, device="sim:0")
    with pytest.raises(TypeError, match=r"\.cpu\(\)|\.get\(\)"):
        np.asarray(x._array)
    with pytest.raises(TypeError, match="host array"):
        x._array + np.ones(3)


def test_the_accelerator_is_the_simulated_one_here():
    with simulate(devices=3):
        devices = [ag.device("sim", index) for index in range(3)]
        assert ag.accelerator.device_count() == 3
        assert ag.accelerator.current_accelerator() is devices[0]
        assert ag.accelerator.current_device_index() == 0
        stream = ag.Stream(device="sim:2")
        with stream:
            assert ag.accelerator.current_device_index() == 2
            assert ag.accelerator.current_stream() is stream
            assert ag.accelerator.current_stream("sim:1") is devices[1].default_stream

        def change():
            ag.accelerator.set_stream(stream)
            assert ag.accelerator.current_stream() is stream
            ag.accelerator.set_device_index("sim:1")
            assert ag.accelerator.current_device_index() == 1

        contextvars.copy_context().run(change)
        assert ag.accelerator.current_device_index() == 0


def test_streams_follow_the_task_and_not_the_thread():
    first, second = (ag.Stream(device="sim:0") for _ in range(2))

    async def inside(stream, barrier):
        with stream:
            for _ in range(3):
                await barrier.wait()
                assert ag.accelerator.current_stream() is stream
        assert ag.accelerator.current_stream() is stream.device.default_stream

    async def main():
        barrier = asyncio.Barrier(3)
        await asyncio.gather(*(inside(s, barrier) for s in (first, second, first)))

    asyncio.run(main())


def test_a_simulated_device_is_there_before_it_is_named(monkeypatch):
    """As a GPU is: pinned memory asks which accelerator there is."""
    monkeypatch.setattr(discovery, "_loaded", {})
    with simulate():
        assert ag.accelerator.is_available()
        assert ag.ones(2).pin_memory().is_pinned()


def test_a_race_is_found_in_any_schedule():
    x = ag.ones(4, device="sim:0")
    side = ag.Stream(device="sim:0")
    with pytest.raises(RaceError, match="in no certain order"), side:
        x * 2
    side.wait_stream(ag.accelerator.current_stream("sim:0"))
    with side:
        y = x * 2
    with pytest.raises(RaceError, match="reads"):
        x.add_(1)
    with simulate(detect_races=False, latency=1.0):
        x = ag.ones(4, device="sim:0") * 3
        side = ag.Stream(device="sim:0")
        with side:
            # It overtakes: what it reads is not there yet.
            y = x.to("cpu", non_blocking=True)
            side.synchronize()
        assert np.isnan(y.numpy()).all()


def test_a_race_is_found_although_the_kept_arrays_have_been_released():
    """The library asks whether they may be; the program does not know what it was told."""
    x = ag.ones(4, device="sim:0")
    side = ag.Stream(device="sim:0")
    side.wait_stream(ag.accelerator.current_stream("sim:0"))
    with side:
        y = x * 2
    x.record_stream(side)
    for _ in range(3):
        x.tolist()  # Time passes, until the work in `side` is done.
    x.record_stream(side)
    assert len(side.reading.marks) < 2
    with pytest.raises(RaceError, match="in no certain order"):
        y + 1


def test_memory_that_is_still_read_must_not_be_used_again():
    x = ag.ones(4, device="sim:0") * 2
    side = ag.Stream(device="sim:0")
    side.wait_stream(ag.accelerator.current_stream("sim:0"))
    with side:
        y = x.exp()
    del x
    with pytest.raises(RaceError, match="record_stream"):
        [ag.zeros(4, device="sim:0") for _ in range(8)]
    z = ag.ones(4, device="sim:1")
    other = ag.Stream(device="sim:1")
    other.wait_stream(ag.accelerator.current_stream("sim:1"))
    with other:
        w = z.exp()
    z.record_stream(other)
    del z
    [ag.zeros(4, device="sim:1") for _ in range(8)]
    ag.accelerator.synchronize("sim:0")
    assert y.shape == w.shape


def test_a_stream_that_everybody_has_forgotten_goes_on():
    """Its work is waited for, and what it reads is held until then."""

    def double(x):
        side = ag.Stream(device="sim:0")
        side.wait_stream(ag.accelerator.current_stream("sim:0"))
        with side:
            y = x * 2
        x.record_stream(side)
        return y, side.record_event()

    y, event = double(ag.ones(4, device="sim:0"))
    gc.collect()
    [ag.zeros(4, device="sim:0") for _ in range(8)]
    assert not event.query()
    ag.accelerator.synchronize("sim:0")
    assert event.query()
    assert y.tolist() == [2.0] * 4


def test_what_is_kept_while_a_stream_is_marked_is_not_let_go_with_the_rest(monkeypatch, machine):
    """Several threads use one stream: their steps may come between one another's."""
    stream = ag.Stream(device="sim:0")
    device = stream.device
    x, y = (ag.ones(4, device="sim:0") for _ in range(2))
    alive = [weakref.ref(x._array), weakref.ref(y._array)]
    record, status = type(device).record, type(device).status

    def recording(self, event, raw):
        nonlocal y
        if y is not None:
            y = stream.keep(y._array)
        record(self, event, raw)

    def view_dispatch(self, event):
        monkeypatch.undo()
        stream.mark()
        return status(self, event)

    stream.wait_stream(device.default_stream)
    with stream:
        z = x * y
    stream.keep(x._array)
    del x
    monkeypatch.setattr(type(device), "record", recording)
    stream.mark()
    assert all(one() is not None for one in alive)
    while machine.step():
        pass
    with stream:
        z * z
    monkeypatch.setattr(type(device), "status", view_dispatch)
    stream.mark()
    assert [one() is None for one in alive] == [True, False]


def test_an_event_holds_a_stream_back():
    first, second, third = (ag.Stream("sim:0") for _ in range(3))
    with first:
        x = ag.ones(2, device="sim:0") * 2
    event = first.record_event()
    event.wait(second)
    with second:
        assert (x * 2).tolist() == [4.0, 4.0]
    with third:
        event.wait()
        assert (x * 3).tolist() == [6.0, 6.0]


def test_streams_can_be_awaited():
    async def main():
        stream = ag.Stream("sim:0")
        with stream:
            x = ag.ones(2, device="sim:0") * 2
        assert not stream.query()
        await stream
        assert stream.query()
        await ag.Stream("cpu")
        return x.tolist()

    assert asyncio.run(main()) == [2.0, 2.0]


def test_events_tell_the_time():
    with simulate(latency=1e-3):
        start, end = (ag.Event("sim:0", enable_timing=True) for _ in range(2))
        start.record()
        x = ag.ones(2, device="sim:0")
        x * 2 * 3
        end.record()
        with pytest.raises(RuntimeError, match="completed"):
            start.elapsed_time(end)
        end.synchronize()
        assert start.elapsed_time(end) == pytest.approx(3.0)
        with pytest.raises(RuntimeError, match="enable_timing"):
            ag.Event("sim:0").elapsed_time(end)
        with pytest.raises(ValueError, match="recorded"):
            ag.Event("sim:0", enable_timing=True).elapsed_time(end)
        with pytest.raises(RuntimeError, match="does not match"):
            start.record(ag.Stream(device="sim:1"))


def test_steps_by_hand():
    with simulate(schedule="manual") as machine:
        x = ag.ones(2, device="sim:0")
        side = ag.Stream(device="sim:1")
        with side:
            y = ag.ones(2, device="sim:1")
        assert {str(head.stream.device) for head in machine.heads()} == {"sim:0", "sim:1"}
        event = side.record_event()
        assert not event.query()
        place = next(i for i, h in enumerate(machine.heads()) if h.stream.device.index == 1)
        machine.step(place)
        while not event.query():
            assert machine.step() is not None
        while machine.step():
            pass
        assert machine.step() is None
        assert x.shape == y.shape


def test_memory_is_counted():
    before = ag.accelerator.memory_allocated("sim:0")
    x = ag.zeros(1000, device="sim:0")
    assert ag.accelerator.memory_allocated("sim:0") == before + 4000
    ag.accelerator.reset_peak_memory_stats("sim:0")
    del x
    assert ag.accelerator.memory_allocated("sim:0") == before
    assert ag.accelerator.max_memory_allocated("sim:0") == before + 4000
    assert ag.accelerator.memory_reserved("sim:0") >= 4000
    ag.device("sim:0").empty_cache()
    assert ag.accelerator.memory_reserved("sim:0") == before


def test_pinned_memory():
    x = ag.ones(3)
    assert not x.is_pinned()
    y = x.pin_memory()
    assert y.is_pinned()
    assert y.pin_memory() is y
    assert (y + 1).tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(RuntimeError, match="only dense CPU tensors"):
        x.to("sim:0").pin_memory()


def test_dlpack_shares_the_hosts_memory():
    array = np.arange(3.0)
    x = ag.from_dlpack(array)
    array[0] = 5
    assert x[0].item() == 5.0
    assert np.from_dlpack(x)[0] == 5.0
    assert x.__dlpack_device__() == (1, 0)
    assert ag.from_dlpack(array, copy=True)._array is not array
    with pytest.raises(BufferError, match="detach"):
        ag.ones(2, requires_grad=True).__dlpack__()
    with pytest.raises(BufferError, match="can't be shared"):
        ag.ones(2, device="sim:0").__dlpack__()
    with pytest.raises(AssertionError):
        x.__dlpack__(stream=3)


def test_bad_machines_are_refused():
    with pytest.raises(ValueError, match="clock"), simulate(clock="wall"):
        pass
    with pytest.raises(ValueError, match="schedule"), simulate(schedule="random"):
        pass
    with simulate(devices=1), pytest.raises(RuntimeError, match=r"devices=4"):
        ag.device("sim:3")


def test_new_tensors_are_made_where_the_innermost_device_says():
    sim, other = ag.device("sim:0"), ag.device("sim:1")
    with sim:
        assert ag.get_default_device() is sim
        made = (
            ag.ones(2), ag.tensor([1.0]), ag.arange(3), ag.rand(2), ag.randn(2), ag.eye(2),
            ag.full((2,), 1.0), ag.as_tensor([1.0]), ag.randint(3, (2,)), ag.nn.Linear(2, 2).weight,
            ag.nn.BatchNorm1d(2).running_mean,
        )  # fmt: skip
        assert {x.device for x in made} == {sim}
        assert ag.ones(2, device="cpu").device is ag.device("cpu")
        assert ag.from_numpy(np.ones(2)).device is ag.device("cpu")
        with other, sim, other:
            assert ag.ones(2).device is other
        assert ag.ones(2).device is sim
        with ag.device("cpu"):
            assert ag.ones(2).device is ag.device("cpu")
    assert ag.ones(2).device is ag.get_default_device() is ag.device("cpu")


def test_default_devices_are_the_tasks_own():
    async def inside(name, barrier):
        with ag.device(name):
            for _ in range(3):
                await barrier.wait()
                assert str(ag.ones(2).device) == name
        ag.set_default_device(name)
        await barrier.wait()
        assert str(ag.get_default_device()) == name
        ag.set_default_device(None)
        assert ag.ones(2).device is ag.device("cpu")

    async def main():
        barrier = asyncio.Barrier(3)
        await asyncio.gather(*(inside(name, barrier) for name in ("sim:0", "sim:1", "cpu")))
        assert ag.get_default_device() is ag.device("cpu")

    asyncio.run(main())
    with pytest.raises(RuntimeError):
        ag.set_default_device("nowhere")


def test_a_device_that_no_tensor_was_on_can_be_the_default():
    with simulate(devices=2):
        with ag.device("sim:0"):
            assert (ag.ones(2) + 1).tolist() == [2, 2]
        ag.set_default_device("sim:1")
        try:
            assert str(ag.tensor([1.0]).device) == "sim:1"
        finally:
            ag.set_default_device(None)


def test_the_current_device_is_changed_within_a_block():
    ag.device("sim:1")
    with ag.accelerator.device_index(1):
        assert ag.accelerator.current_device_index() == 1
        with ag.accelerator.device_index(None):
            assert ag.accelerator.current_device_index() == 1
        with ag.accelerator.device_index(0):
            assert ag.accelerator.current_device_index() == 0
    assert ag.accelerator.current_device_index() == 0


def test_streams_and_events_take_what_pytorchs_take():
    assert ag.Stream(device="sim:1", priority=-1).device_index == 1
    assert ag.Stream(device="cpu").device_index == -1
    assert ag.Event("sim:0", enable_timing=True, blocking=True, interprocess=False).query()
    for wrong in (None, 3):
        with pytest.raises(TypeError, match="Stream"):
            ag.accelerator.set_stream(wrong)
    with pytest.raises(RuntimeError, match="not an accelerator"):
        ag.ones(2).pin_memory("cpu")


def test_values_are_copied_in_place_from_anywhere():
    for here, there in (("cpu", "sim:0"), ("sim:0", "cpu"), ("sim:0", "sim:1")):
        source = ag.tensor([1.0, 2.0], device=there, requires_grad=True)
        target = ag.zeros(2, 2, device=here)
        assert target.copy_(source * 3, non_blocking=True) is target
        assert target.tolist() == [[3.0, 6.0], [3.0, 6.0]]
        target.sum().backward()
        assert source.grad.device is source.device
        assert source.grad.tolist() == [6.0, 6.0]


def test_pytorchs_cuda_names_say_that_there_is_none():
    if "cuda" in {device.type for device in ag.devices.available()}:
        pytest.skip("there is a GPU")
    assert not ag.cuda.is_available()
    assert ag.cuda.device_count() == 0
    ag.cuda.empty_cache()
    for ask in (
        ag.cuda.synchronize,
        ag.cuda.current_device,
        ag.cuda.current_stream,
        ag.cuda.Stream,
        ag.cuda.Event,
        lambda: ag.cuda.device(0),
    ):
        with pytest.raises(RuntimeError, match="cuda: CuPy is"):
            ask()


def test_a_type_without_an_index_means_the_current_device():
    """As in PyTorch: that of the innermost stream of the type."""
    one = ag.device("sim:1")
    with ag.accelerator.device_index(1):
        made = ag.zeros(2, device="sim"), ag.zeros(2).to("sim"), ag.Stream("sim"), ag.Event()
        assert {each.device for each in made} == {one}
        assert ag.zeros(2, device="sim:0").device is ag.device(0)
        with ag.Stream("cpu"):
            assert ag.device("sim") is one
        with ag.Stream("sim:0"):
            assert ag.device("sim") is ag.device("sim:0")
    assert ag.device("sim") is ag.device("sim:0")


def test_an_event_is_of_the_device_it_was_first_recorded_on():
    zero, one = ag.Stream("sim:0"), ag.Stream("sim:1")
    event = ag.Event("sim:0")
    event.record(one)
    assert event.device is one.device
    with pytest.raises(RuntimeError, match="does not match"):
        event.record(zero)
    with pytest.raises(RuntimeError, match="does not match"):
        ag.Event("cpu").record(zero)
    event = ag.Event("sim:0")
    with one:
        event.record()
    assert event.device is one.device


def test_streams_and_events_refuse_what_they_do_not_take():
    stream, event = ag.Stream("sim:0"), ag.Event("sim:0", enable_timing=True)
    for call in (
        lambda: stream.wait_stream(3),
        lambda: stream.wait_event(stream),
        lambda: event.record(3),
        lambda: event.elapsed_time(3),
        lambda: ag.Stream("sim:0", priority="high"),
        lambda: ag.accelerator.set_stream(event),
    ):
        with pytest.raises(TypeError, match="argument"):
            call()
    other = ag.Event("sim:1", enable_timing=True)
    other.record()
    event.record()
    with pytest.raises(RuntimeError, match="one device"):
        event.elapsed_time(other)


def test_a_kind_of_device_has_a_module():
    assert ag.get_device_module() is ag.accelerator
    assert ag.get_device_module("sim:1") is ag.accelerator
    assert ag.get_device_module("cuda") is ag.cuda
    assert ag.get_device_module(ag.device("cpu")) is ag.cpu
    for wrong in ("nowhere", 3):
        with pytest.raises(RuntimeError, match=r"Expected one of|Invalid value"):
            ag.get_device_module(wrong)
    with ag.cpu.stream(ag.cpu.current_stream()), ag.cuda.stream(None):
        ag.cpu.synchronize()
    assert ag.cpu.is_available() is ag.cpu.is_initialized() is True
    assert (ag.cpu.device_count(), ag.cpu.current_device(), ag.cpu.set_device("cpu")) == (
        1,
        "cpu",
        None,
    )
