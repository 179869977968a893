"""What every device promises: the CPU, the simulated one, and CUDA's where there is one."""

import pickle

import numpy as np
import pytest

import asyncgrad as ag

DEVICES = ["cpu", "sim:0", pytest.param("cuda:0", marks=pytest.mark.gpu)]
pytestmark = pytest.mark.parametrize("name", DEVICES)


def test_a_device_is_one_object_with_a_name(name):
    device = ag.device(name)
    assert ag.device(name) is device
    assert ag.device(device) is device
    assert str(device) == name
    assert device in ag.devices.available()
    assert pickle.loads(pickle.dumps(device)) is device
    kind, _, index = name.partition(":")
    assert ag.device(kind, int(index or 0)) is device


def test_values_go_there_and_come_back(name):
    x = ag.tensor(np.arange(6.0).reshape(2, 3))
    y = x.to(name)
    assert y.device is ag.device(name)
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    assert y.cpu().tolist() == x.tolist() == y.tolist()
    assert y.to(name) is y
    assert (y[1, 2].item(), float(y[0, 1]), int(y[1, 0]), bool(y[0, 0])) == (5.0, 1.0, 3, False)


def test_a_tensor_is_made_where_it_is_wanted(name):
    assert ag.zeros(2, device=name).device is ag.device(name)
    assert ag.tensor([1, 2], device=name).tolist() == [1, 2]
    assert ag.full((2,), 3.0, device=name).tolist() == [3.0, 3.0]
    assert ag.ones_like(ag.zeros(2, device=name)).device is ag.device(name)
    x = ag.arange(3, device=name)
    assert (x.device, x.tolist()) == (ag.device(name), [0, 1, 2])


async def _transfers(name):
    x = await ag.tensor([1.0, 2.0]).to_async(name)
    y = await (x * 2).to_async("cpu", ag.float64)
    return y, await x.sum().item_async()


@pytest.mark.asyncio
async def test_transfers_can_be_awaited(name):
    y, total = await _transfers(name)
    assert (y.device, y.dtype, y.tolist(), total) == (
        ag.device("cpu"), ag.float64, [2.0, 4.0], 3.0,
    )  # fmt: skip


@pytest.mark.asyncio
async def test_item_async_wants_one_element(name):
    with pytest.raises(RuntimeError, match="2 elements"):
        await ag.ones(2).to(name).item_async()


def test_streams_and_events(name):
    device = ag.device(name)
    default, stream = device.default_stream, ag.Stream(device=name)
    assert ag.devices.current_stream(device) is default
    start, end = ag.Event(name), stream.record_event()
    assert start.query()
    with stream:
        assert ag.devices.current_stream(device) is stream
        y = ag.ones(2).to(name) + 1
        with default:
            assert ag.devices.current_stream(device) is default
        assert ag.devices.current_stream(device) is stream
        end.record()
    assert ag.devices.current_stream(device) is default
    default.wait_event(end)
    default.wait_stream(stream)
    assert (y * 2).tolist() == [4.0, 4.0]
    end.synchronize()
    assert end.query()
    assert end.status() == 0
    stream.synchronize()
    assert stream.query()


@pytest.mark.asyncio
async def test_events_can_be_awaited(name):
    x = ag.ones(3).to(name) * 2
    stream = ag.devices.current_stream(x.device)
    event = stream.record_event()
    await event
    assert event.query()
    await stream.synchronize_async()
    await ag.accelerator.synchronize_async(name)
    assert stream.query()


def test_gradients(name):
    x = ag.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = ag.tensor([2.0, 0.5, 1.0]).to(name).requires_grad_()
    y = x.to(name)
    (y * w + (y * w).exp()).sum().backward()
    r = x.detach().clone().requires_grad_()
    v = w.detach().cpu().requires_grad_()
    (r * v + (r * v).exp()).sum().backward()
    assert x.grad.device is ag.device("cpu")
    assert w.grad.device is ag.device(name)
    np.testing.assert_allclose(x.grad.numpy(), r.grad.numpy(), rtol=1e-6)
    np.testing.assert_allclose(w.grad.cpu().numpy(), v.grad.numpy(), rtol=1e-6)


@pytest.mark.asyncio
async def test_a_pass_accumulates_into_the_same_tensor(name):
    w = ag.ones(3).to(name).requires_grad_()
    await (w * 2).sum().backward()
    grad = w.grad
    await (w * 3).sum().backward()
    assert w.grad is grad
    assert grad.tolist() == [5.0, 5.0, 5.0]
    (captured,) = await ag.grad((w * w).sum(), w)
    assert captured.tolist() == [2.0, 2.0, 2.0]
    assert grad.tolist() == [5.0, 5.0, 5.0]


@pytest.mark.asyncio
async def test_gradients_of_gradients(name):
    x = ag.tensor([1.0, 2.0], requires_grad=True)
    y = x.to(name)
    (g,) = await ag.grad((y * y * y).sum(), x, create_graph=True)
    (h,) = await ag.grad(g.sum(), x)
    assert h.tolist() == [6.0, 12.0]


@pytest.mark.asyncio
async def test_hooks_and_callbacks_see_values(name):
    w = ag.ones(2).to(name).requires_grad_()
    y = w * 3
    seen = []
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.retain_grad()
    w.register_hook(lambda g: g * 2)
    w.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.tolist()))
    await y.sum().backward()
    assert seen == [[1.0, 1.0], [6.0, 6.0]]
    assert y.grad.tolist() == [1.0, 1.0]


def test_gradients_of_no_matrices(name):
    """Their diagonals are written to, though they have no elements."""
    x = ag.ones(0, 3, 3, device=name, requires_grad=True)
    (gradient,) = ag.grad(ag.linalg.qr(x)[0].sum(), x)
    assert gradient.shape == x.shape


def test_changes_in_place(name):
    x = ag.zeros(3, device=name)
    x[1] = 2.0
    x += 1
    x.mul_(2).copy_(x + 1)
    assert x.tolist() == [3.0, 7.0, 3.0]
    with pytest.raises(RuntimeError, match=r"single memory location|read-only"):
        ag.zeros(1, device=name).expand(3).add_(1)


def test_memory_statistics_are_numbers(name):
    assert all(isinstance(value, int) for value in ag.device(name).memory_stats().values())
    assert ag.accelerator.memory_allocated(name) >= 0


def test_repr_shows_values(name):
    shown = repr(ag.ones(2).to(name))
    assert shown.startswith("tensor([1., 1.]")
    assert (f"device='{name}'" in shown) == (name != "cpu")


@pytest.mark.asyncio
async def test_participants_see_and_give_gradients_on_the_device(name):
    x, w = (ag.ones(4, device=name, requires_grad=True) for _ in range(2))

    class Doubled:
        async def prepare(self, gradients):
            return {leaf: gradient * 2 for leaf, gradient in gradients.items()}

        async def commit(self):
            assert x.grad.tolist() == [2.0] * 4

        async def abort(self):
            raise AssertionError

    y = x * w
    y.register_hook(lambda g: ag.autograd.graph.join(Doubled()))
    await y.sum().backward()
    await ag.autograd.graph.accumulate({x: w.grad, w: x.grad})
    assert x.grad.tolist() == w.grad.tolist() == [4.0] * 4
