"""Moving a tensor is an operation like any other: every mode and transform knows of it."""

import asyncio

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad import func
from asyncgrad.autograd import forward_ad


def there_and_back(x, device):
    return (x.to(device) * x.to(device)).cpu()


def test_a_move_into_another_dtype_is_one_node(accelerator):
    x = ag.tensor([1.5, -2.0], requires_grad=True)
    y = x.to(accelerator, ag.float64)
    assert (y.dtype, y.device) == (ag.float64, ag.device(accelerator))
    ((leaf, _),) = y.grad_fn.next_functions
    assert (y.grad_fn.name(), leaf.name()) == ("ToCopyBackward0", "AccumulateGrad")
    back = (y * 3).to("cpu", ag.float32)
    assert back.grad_fn.next_functions[0][0].name() == "MulBackward0"
    back.sum().backward()
    assert (x.grad.dtype, x.grad.device) == (ag.float32, ag.device("cpu"))
    assert x.grad.tolist() == [3.0, 3.0]
    assert not x.to(accelerator, ag.int64).requires_grad


def test_moves_between_kinds_of_numbers(accelerator):
    x = ag.tensor([1.0, 2.0], requires_grad=True)
    z = x.to(accelerator, ag.complex64)
    (z * (2 + 1j)).real.sum().backward()
    assert x.grad.dtype is ag.float32
    assert x.grad.tolist() == [2.0, 2.0]


def test_a_recorded_pass_goes_through_a_move(accelerator):
    x = ag.tensor([1.0, 2.0], requires_grad=True)
    y = (x.to(accelerator, ag.float64) ** 3).to("cpu", ag.float32).sum()
    (first,) = ag.autograd.grad(y, x, create_graph=True)
    assert first.dtype is ag.float32
    (second,) = ag.autograd.grad(first.sum(), x)
    assert second.tolist() == [6.0, 12.0]


@pytest.mark.filterwarnings("ignore:Using backward:UserWarning")
def test_a_recorded_pass_adds_with_a_graph_on_the_host_and_on_the_device(accelerator):
    """Whatever the caller's own grad mode is."""
    leaves = [ag.ones(3, device=device, requires_grad=True) for device in ("cpu", accelerator)]
    loss = sum((leaf**3).sum().cpu() for leaf in leaves)
    for leaf in leaves:
        leaf.grad = ag.ones_like(leaf)
    with ag.no_grad():
        loss.backward(create_graph=True)
    for leaf in leaves:
        assert leaf.grad.tolist() == [4.0] * 3
        (second,) = ag.autograd.grad(leaf.grad.sum(), leaf)
        assert second.tolist() == [6.0] * 3
        leaf.grad = None


def test_tangents_go_along(accelerator):
    x, t = ag.tensor([1.0, 2.0]), ag.tensor([3.0, 5.0])
    out, tangent = func.jvp(lambda x: there_and_back(x, accelerator), (x,), (t,))
    assert (out.tolist(), tangent.tolist()) == ([1.0, 4.0], [6.0, 20.0])
    with forward_ad.dual_level():
        moved = forward_ad.make_dual(x, t).to(accelerator, ag.float64)
        tangent = forward_ad.unpack_dual(moved).tangent
        assert (tangent.device, tangent.dtype) == (moved.device, ag.float64)
        assert tangent.tolist() == [3.0, 5.0]


def test_second_tangents_go_along(accelerator):
    x, t = ag.tensor([1.0, 2.0]), ag.ones(2)

    def first(x):
        return func.jvp(lambda x: there_and_back(x, accelerator) * x, (x,), (t,))[1]

    assert func.jvp(first, (x,), (t,))[1].tolist() == [6.0, 12.0]
    hessian = func.hessian(lambda x: (there_and_back(x, accelerator) * x).sum())(x)
    assert hessian.tolist() == [[6.0, 0.0], [0.0, 12.0]]


def test_batches_go_along(accelerator):
    xs = ag.arange(6.0).reshape(3, 2)
    mapped = func.vmap(lambda x: there_and_back(x, accelerator))
    assert mapped(xs).tolist() == (xs * xs).tolist()
    slopes = func.vmap(func.grad(lambda x: there_and_back(x, accelerator).sum()))
    assert slopes(xs).tolist() == (2 * xs).tolist()
    nested = func.vmap(func.vmap(lambda x: x.to(accelerator, ag.float64).cpu()))
    assert nested(xs).dtype is ag.float64


def test_the_modes_see_it(accelerator):
    x = ag.ones(2, requires_grad=True)
    with ag.inference_mode():
        assert x.to(accelerator).is_inference()
    with ag.no_grad():
        assert not x.to(accelerator).requires_grad
    packed = []
    with ag.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        y = x.to(accelerator)
    assert not packed
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_an_offloaded_function_that_nobody_wants_stops_at_it(accelerator):
    """Like at any operation: what it computes goes nowhere."""

    async def main():
        moves = []

        def work(started):
            x = ag.ones(2)
            started()
            while True:
                x.to(accelerator)
                moves.append(1)
                assert len(moves) < 100_000

        loop = asyncio.get_running_loop()
        running = asyncio.Event()
        job = asyncio.ensure_future(
            ag.offload(work, lambda: loop.call_soon_threadsafe(running.set))
        )
        await running.wait()
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job

    asyncio.run(main())


def test_random_moves_have_the_gradients_of_none(accelerator):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(4, 3))
    expected = ag.tensor(values, requires_grad=True)
    (expected.sin().exp() * expected).sum().backward()
    x = ag.tensor(values, requires_grad=True)
    y = x.to(accelerator, ag.float64).sin().to("cpu", copy=True).exp().to(accelerator)
    (y * x.to(accelerator)).cpu().sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), expected.grad.numpy(), rtol=1e-12)
