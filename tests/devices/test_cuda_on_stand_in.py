"""The CUDA device on a stand-in of CuPy that has the real one's traps."""

import asyncio
import threading

import numpy as np
import pytest
from cupy_stand_in import installed
from device_programs import mutated

import asyncgrad as ag
import asyncgrad.nn.functional as F
from asyncgrad.devices import cuda as home
from asyncgrad.errors import AcceleratorError, DeviceLostError, RaceError


@pytest.fixture
def cupy(monkeypatch):
    """CuPy with two devices."""
    return installed(monkeypatch, devices=2)


def test_without_cupy_the_error_says_what_toinstalled(monkeypatch):
    monkeypatch.setattr(home, "cupy", None)
    for ask in (
        lambda: ag.ones(2).cuda(),
        lambda: ag.device("cuda"),
        lambda: ag.ones(2).to("cuda:0"),
    ):
        with pytest.raises(RuntimeError, match="CuPy is not installed"):
            ask()
        with pytest.raises(AssertionError):
            ask()
    assert "cuda" not in {device.type for device in ag.devices.available()}


def test_without_a_gpu_the_error_says_so(monkeypatch):
    installed(monkeypatch, devices=0)
    with pytest.raises(RuntimeError, match="sees no CUDA device"):
        ag.ones(2).cuda()
    assert "cuda" not in {device.type for device in ag.devices.available()}


def test_devices_are_found_and_counted(cupy):
    assert [str(d) for d in ag.devices.available()][:3] == ["cpu", "cuda:0", "cuda:1"]
    assert ag.accelerator.is_available()
    assert ag.accelerator.device_count() == 2
    assert ag.accelerator.current_accelerator() is ag.device("cuda:0")
    assert ag.ones(2).cuda().is_cuda
    assert ag.ones(2).cuda(1).device is ag.device("cuda", 1)
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        ag.device("cuda:2")
    with pytest.raises(RuntimeError, match="must be cuda device"):
        ag.ones(2).cuda("cpu")


@pytest.mark.asyncio
async def test_a_pass_over_devices_and_streams(cupy):
    x = ag.tensor([1.0, 2.0], requires_grad=True)
    w = ag.tensor([3.0, 4.0]).cuda(1).requires_grad_()
    y = x.cuda()
    side = ag.Stream(device="cuda:0")
    side.wait_stream(ag.accelerator.current_stream())
    with side:
        y = (y * 2).exp()
        await asyncio.sleep(0)
        y = y + 1
    ag.accelerator.current_stream().wait_stream(side)
    loss = (y.to("cuda:1") * w).sum()
    await loss.backward()
    np.testing.assert_allclose(
        x.grad.numpy(), np.exp([2.0, 4.0]) * 2 * np.array([3.0, 4.0]), rtol=1e-6
    )
    found = (await w.grad.to_async("cpu")).numpy()
    np.testing.assert_allclose(found, np.exp([2.0, 4.0]) + 1, rtol=1e-6)
    assert await loss.item_async() == pytest.approx(float(loss.item()))


def test_streams_come_from_a_fixed_set(cupy):
    device = ag.device("cuda:0")
    raws = {id(ag.Stream(device=device).raw) for _ in range(100)}
    assert len(raws) == home._STREAMS
    urgent = ag.Stream(device=device, priority=-1)
    assert urgent.raw.raw.priority == -1


def test_the_current_stream_is_the_threads_only_while_a_call_lasts(cupy):
    """An await inside `with stream:` must not leak CuPy's thread-local stream."""
    side = ag.Stream(device="cuda:0")

    async def inside(entered, seen):
        with side:
            entered.set()
            await seen.wait()
            return ag.ones(2, device="cuda:0") * 2

    async def outside(entered, seen):
        await entered.wait()
        assert cupy.cuda.get_current_stream() == cupy.null
        assert ag.accelerator.current_stream() is not side
        seen.set()

    async def main():
        entered, seen = asyncio.Event(), asyncio.Event()
        y, _ = await asyncio.gather(inside(entered, seen), outside(entered, seen))
        assert y._array.storage.stream is side.raw.raw

    asyncio.run(main())


def test_cupy_arrays_are_exchanged_in_order(cupy):
    theirs = cupy.cuda.Stream()
    side = ag.Stream(device="cuda:0")
    with side:
        y = ag.ones(2, device="cuda:0") * 2
        with theirs:
            array = y.cupy()
            array *= 3
            y.device.borrow(array)
        assert array is y._array
        assert (y + 1).tolist() == [7.0, 7.0]


@pytest.mark.parametrize("make", [ag.asarray, ag.as_tensor, ag.tensor])
def test_cupys_arrays_become_tensors_after_what_made_them(cupy, make):
    theirs, ours = cupy.cuda.Stream(), ag.Stream(device="cuda:0")
    with theirs:
        array = cupy.ones(3)
        array *= 2
        with ours:
            x = make(array)
    with ours:
        assert x.device is ag.device("cuda:0")
        assert (x._array is array) == (make is not ag.tensor)
        assert (x + 1).tolist() == [3.0, 3.0, 3.0]
    assert make(array, device="cpu").device is ag.device("cpu")
    with pytest.raises(ValueError, match="alias"):
        ag.asarray(array, dtype=ag.int32, copy=False)
    assert ag.asarray(array, copy=True)._array is not array


def test_dlpack_follows_the_streams_of_both_sides(cupy):
    """Export: the consumer's stream waits for our current one. Import: ours for the producer's."""
    theirs, ours = cupy.cuda.Stream(), ag.Stream(device="cuda:0")
    with ours:
        x = ag.ones(3, device="cuda:0") * 2
        assert x.__dlpack_device__() == (2, 0)
        capsule = x.__dlpack__(stream=theirs.ptr)
    assert capsule.array is x._array
    with theirs:
        capsule.array.__imul__(3)
        producer = capsule.array
        with ours:
            y = ag.from_dlpack(producer)
    with ours:
        assert y._array is x._array
        assert (y + 1).tolist() == [7.0, 7.0, 7.0]
        copied = ag.from_dlpack(y, copy=True)
        assert copied._array is not y._array
        assert ag.from_dlpack(y, device="cpu").tolist() == [6.0, 6.0, 6.0]
    with pytest.raises(BufferError, match="detach"):
        x.clone().requires_grad_().__dlpack__()


def test_dlpack_without_order_is_none(cupy):
    theirs, ours = cupy.cuda.Stream(), ag.Stream(device="cuda:0")
    with ours:
        capsule = (ag.ones(3, device="cuda:0") * 2).__dlpack__(stream=-1)
    with theirs, pytest.raises(RaceError):
        capsule.array.__imul__(3)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("lend", "cupy.cuda.get_current_stream().wait_event(event)"),
        ("borrow", "self.wait(current_stream(self).raw, event)"),
    ],
)
def test_an_exchange_without_order_is_noticed(cupy, monkeypatch, name, line):
    mutated(monkeypatch, home.CudaDevice, name, line)
    theirs, ours = cupy.cuda.Stream(), ag.Stream(device="cuda:0")

    def exchange():
        with ours:
            x = ag.ones(2, device="cuda:0") * 2
            with theirs:
                array = x.cupy()
                array *= 3
                y = ag.asarray(array)
            return y + 1

    with pytest.raises(RaceError):
        exchange()


@pytest.mark.asyncio
async def test_errors_come_through_the_future(cupy):
    x = ag.ones(3, device="cuda:0", requires_grad=True)
    loss = (x * x).exp().sum()
    cupy.machine.fail(1)
    with pytest.raises((AcceleratorError, DeviceLostError)):
        await loss.backward()
    assert x.grad is None
    await (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("status", "expected"), [(700, DeviceLostError), (1, AcceleratorError), (None, RuntimeError)]
)
def test_errors_of_the_driver_and_of_cublas_are_translated(cupy, status, expected):
    """They are no errors of the runtime, but have a status, too."""

    def fail():
        error = RuntimeError("launch failed")
        if status is not None:
            error.status = status
        raise error

    with pytest.raises(RuntimeError, match="launch failed") as raised:
        ag.device("cuda:0").launching(fail)()
    assert type(raised.value) is expected


def test_an_event_that_failed_is_not_taken_for_pending(cupy):
    """CuPy's `Event.done` would be False for ever."""
    x = ag.ones(3, device="cuda:0")
    cupy.machine.fail(0)
    x * 2
    event = ag.accelerator.current_stream().record_event()
    while cupy.machine.step():
        pass
    assert not event._raw.done
    assert event.status() not in {0, 600}
    with pytest.raises((AcceleratorError, DeviceLostError)):
        event.query()


@pytest.mark.parametrize("waiting", ["thread", "poll"])
def test_events_are_awaited_by_a_thread_or_by_looking(monkeypatch, waiting):
    # Who looks does not make time pass.
    cupy = installed(monkeypatch, devices=1, clock="real")
    device = ag.device("cuda:0")
    assert device.waiting == "thread"
    with pytest.raises(ValueError, match="'thread' or 'poll'"):
        device.waiting = "spin"
    device.waiting = waiting

    async def main():
        x = ag.ones(3, device=device, requires_grad=True)
        y = x * 2
        await y.sum().backward()
        assert x.grad.tolist() == [2.0] * 3
        assert await y.sum().item_async() == 6.0
        cupy.machine.fail(1)
        with pytest.raises((AcceleratorError, DeviceLostError)):
            await (x * x).sum().item_async()

    asyncio.run(main())


def test_who_does_not_wait_any_more_is_forgotten(monkeypatch):
    cupy = installed(monkeypatch, devices=1, schedule="manual")
    device = ag.device("cuda:0")
    device.waiting = "poll"

    async def main():
        x = ag.ones(3, device=device)
        waits = asyncio.ensure_future((x * 2).sum().item_async())
        await asyncio.sleep(0)
        assert not waits.done()
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        again = asyncio.ensure_future((x * 2).sum().item_async())
        await asyncio.sleep(0)
        while cupy.machine.step():
            pass
        assert await again == 6.0

    asyncio.run(main())


def test_a_waiter_thread_serves_loops_and_does_not_hold_them(cupy):
    x = ag.ones(3, device="cuda:0")
    before = set(threading.enumerate())

    async def main():
        y = x * 2
        total = await y.sum().item_async()
        return total, len(set(threading.enumerate()) - before)

    assert asyncio.run(main()) == (6.0, 1)
    assert asyncio.run(main()) == (6.0, 1)


def test_pinned_memory_is_used_again(cupy):
    device = ag.device("cuda:0")
    for _ in range(50):
        x = ag.ones(1000, device="cpu").to(device)
        x.cpu()
        ag.accelerator.synchronize(device)
    assert 0 < device._pool.unused < 20 * 4096


def test_memory_statistics(cupy):
    x = ag.ones(1000, device="cuda:0")
    assert ag.accelerator.memory_allocated("cuda:0") >= 4000
    assert ag.accelerator.memory_reserved("cuda:0") >= ag.accelerator.memory_allocated("cuda:0")
    assert ag.accelerator.get_memory_info("cuda:0") == (2**30, 2**31)
    del x
    ag.accelerator.empty_cache()
    assert ag.accelerator.memory_reserved("cuda:0") == ag.accelerator.memory_allocated("cuda:0")


def test_pytorchs_cuda_names(cupy):
    assert ag.cuda.is_available()
    assert ag.cuda.device_count() == 2
    assert ag.cuda.current_device() == 0
    with ag.cuda.stream(ag.Stream(device="cuda:1")) as side:
        assert ag.cuda.current_device() == 1
        assert ag.cuda.current_stream() is side
        assert ag.cuda.default_stream() is ag.device("cuda:1").default_stream
        assert ag.ones(2, device="cuda").device is side.device
        x = ag.ones(100, device="cuda:0")
        assert ag.cuda.memory_allocated(0) >= 400
    ag.cuda.synchronize()
    ag.cuda.synchronize(1)
    ag.cuda.empty_cache()
    assert ag.cuda.memory_reserved("cuda:0") >= x.numel() * 4
    assert ag.cuda.mem_get_info() == (2**30, 2**31)
    assert ag.cuda.get_device_name(1) == "Stand-in 1"
    assert ag.cuda.get_device_capability() == (9, 0)
    assert ag.cuda.is_bf16_supported()
    assert ag.cuda.is_bf16_supported(including_emulation=False)
    assert ag.cuda.get_device_properties("cuda:0").total_memory == 2**31
    with pytest.raises(ValueError, match="Expected a cuda device"):
        ag.cuda.synchronize("cpu")


def test_a_part_of_another_gpus_array_is_gathered_in_its_stream(cupy):
    side = ag.cuda.Stream()
    with side:
        x = ag.arange(6.0, device="cuda:0").reshape(2, 3)[:, ::2] * 1
        y = ag.arange(6.0, device="cuda:0").reshape(2, 3)[:, ::2].to("cuda:1")
    assert y.tolist() == [[0.0, 2.0], [3.0, 5.0]]
    side.synchronize()
    assert x.tolist() == y.tolist()


def test_elements_are_looked_up_in_the_current_stream(cupy):
    side = ag.cuda.Stream()
    with side:
        x = ag.arange(3.0, device="cuda:0") * 1
        # Numbers of bfloat16 are converted first, by a method of theirs.
        x = x.to(ag.bfloat16)
        found = ag.isin(x, x[1:])
    side.synchronize()
    assert found.tolist() == [False, True, True]


def test_streams_and_events_of_pytorchs_cuda(cupy):
    one = ag.device("cuda:1")
    event = ag.cuda.Event(enable_timing=True)
    with ag.cuda.device(1):
        assert ag.cuda.current_device() == 1
        assert ag.ones(2).cuda().device is one
        side = ag.cuda.Stream(priority=-1)
        event.record()
        assert event.device is side.device is one
        with ag.cuda.device(-1):
            assert ag.cuda.current_device() == 1
    assert ag.cuda.current_device() == 0
    assert ag.cuda.Stream(1).device is one
    for stream in (side, ag.cuda.default_stream(), ag.Stream("cuda")):
        assert isinstance(stream, ag.cuda.Stream)
    assert isinstance(event, ag.cuda.Event)
    assert not isinstance(ag.Stream("sim:0"), ag.cuda.Stream)
    with pytest.raises(ValueError, match="Expected a cuda device"):
        ag.cuda.device("cpu")


def test_modules_move_to_a_gpu_and_back(cupy):
    layers = ag.nn.Linear(2, 3)
    before = layers.weight.tolist()
    assert layers.cuda(1) is layers
    assert {p.device for p in layers.parameters()} == {ag.device("cuda:1")}
    assert layers.cuda().weight.device is ag.device("cuda:0")
    with pytest.raises(RuntimeError, match="must be cuda device"):
        layers.cuda("cpu")
    assert layers.cpu().weight.tolist() == before


@pytest.mark.parametrize("dtype", [ag.float32, ag.complex128])
def test_batches_of_transposed_matrices_are_multiplied_as_they_lie(cupy, dtype, monkeypatch):
    """CuPy would copy them first."""
    x, y = (ag.randn(2, n, 3, dtype=dtype) for n in (4, 5))
    there = [z.to("cuda:0") for z in (x, y)]
    copies = []
    launched = cupy.machine.launch
    monkeypatch.setattr(
        cupy.machine, "launch", lambda name, *rest: copies.append(name) or launched(name, *rest)
    )
    for turn in (
        lambda x, y: ag.bmm(x, y.mT),
        lambda x, y: ag.bmm(x.mT.contiguous().mT, y.mT.contiguous()),
        lambda x, y: ag.bmm(x.mT, x.mT.contiguous().mT),
    ):
        found, expected = turn(*there), turn(x, y)
        np.testing.assert_allclose(found.cpu().numpy(), expected.numpy(), rtol=1e-5)
    assert "matmul" not in copies
    empty = ag.bmm(there[0][:, :, :0], there[1][:, :, :0].mT)
    assert empty.cpu().tolist() == ag.zeros(2, 4, 5, dtype=dtype).tolist()


def test_products_that_cublas_does_not_take_are_cupys(cupy):
    """`dot` of batches is another product than `matmul`."""
    xp = ag.device("cuda:0").xp
    values = np.arange(12.0).reshape(1, 3, 4), np.arange(12.0).reshape(1, 3, 4).swapaxes(1, 2)
    x, y = (xp.asarray(ag.tensor(v).cuda()._array) for v in (values[0], values[0]))
    y = y.swapaxes(1, 2)
    assert xp.dot(x, y).tolist() == np.dot(*values).tolist()
    with pytest.raises(ValueError, match="mismatch"):
        xp.matmul(x, x.swapaxes(1, 2)[:, :2])


def test_batches_of_half_precision_are_not_converted(cupy):
    """CuPy would multiply them in single precision, but not into a graph."""
    x, y = (ag.randn(2, n, 4, dtype=ag.float16) for n in (3, 4))
    found, expected = ag.bmm(x.cuda(), y.cuda()).cpu().numpy(), ag.bmm(x, y).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-3)
    assert cupy.blas_is_loaded


@pytest.mark.parametrize("ignored", [-100, 1, 300])
@pytest.mark.parametrize("dtype", [ag.uint8, ag.int8])
def test_classes_of_small_integers(cupy, dtype, ignored):
    """CuPy refuses to compare them with numbers that their dtype can't hold."""
    x, target = ag.randn(4, 300), ag.tensor([0, 1, 100, 1], dtype=dtype)
    found = F.cross_entropy(x.cuda(), target.cuda(), ignore_index=ignored).item()
    assert found == pytest.approx(F.cross_entropy(x, target, ignore_index=ignored).item())
