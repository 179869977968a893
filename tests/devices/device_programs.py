"""Programs whose result is right only if streams wait for one another where they have to."""

import inspect
import textwrap

import numpy as np

import asyncgrad as ag

SIZE = 4


def mutated(monkeypatch, owner, name, line, instead="pass"):
    """Have a function run with one statement replaced, which must be there once."""
    function = inspect.getattr_static(owner, name)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(line) == 1, (name, line)
    scope = {}
    exec(  # the mutant
        compile(source.replace(line, instead), "<mutant>", "exec"), function.__globals__, scope
    )
    monkeypatch.setattr(owner, name, scope[name])


def leaf(device="sim:0", value=2.0):
    return ag.full((SIZE,), value, device=device, requires_grad=True)


def stream(index=0):
    return ag.Stream(device=f"sim:{index}")


def default(index=0):
    return ag.device(f"sim:{index}").default_stream


async def between_streams():
    """(2) A gradient passes from one stream of a device to another."""
    x = leaf()
    first, second = stream(), stream()
    first.wait_stream(default())
    with first:
        y = x * 3
    second.wait_stream(first)
    with second:
        z = (y * y).sum()
    default().wait_stream(second)
    await z.backward()
    return x.grad, 2 * 3 * 3 * 2.0


async def from_another_device():
    """(3) A gradient comes from another device to a stream that is not the default one."""
    x = leaf()
    side = stream()
    side.wait_stream(default())
    with side:
        y = x * 3
    default().wait_stream(side)
    z = (y.to("sim:1") * 2).sum()
    await z.backward()
    return x.grad, 6.0


class Split(ag.autograd.Function):
    """One value here, one on the other device; both gradients are used in `backward`."""

    @staticmethod
    def forward(ctx, x):
        return x * 2, x.to("sim:1") * 5

    @staticmethod
    def backward(ctx, here, there):
        return here * 2 + (there * 5).to("sim:0")


async def to_another_device():
    """(4) A gradient of a side stream goes to a node of another device."""
    x = leaf()
    here, there = Split.apply(x)
    side = stream(1)
    side.wait_stream(default(1))
    with side:
        z = there * 3
    default(1).wait_stream(side)
    await (here.sum() + z.to("sim:0").sum()).backward()
    return x.grad, 2 + 15.0


async def gradient_elsewhere_is_kept():
    """A gradient on another device than its node's is that device's other stream's memory."""
    x, others = leaf(), [leaf("sim:1", 0.0) for _ in range(8)]
    side = stream(1)
    side.wait_stream(default(1))
    with side:
        w = sum(other.exp() for other in others)
    here, there = Split.apply(x)
    side.wait_stream(default(1))
    with side:
        z = there * 3 + w
    default(1).wait_stream(side)
    await (here.sum() + z.to("sim:0").sum()).backward()
    return x.grad, 2 + 15.0


class Silent(ag.autograd.Function):
    """Works in `backward`, and gives no gradient."""

    @staticmethod
    def forward(ctx, x):
        return x * 2, x.to("sim:1")

    @staticmethod
    def backward(ctx, here, there):
        for _ in range(10):
            here = here * 2


async def work_without_gradient():
    """A pass is done when all its work is, whether gradients come of it or not."""
    x, y = leaf(), leaf()
    side = stream()
    side.wait_stream(default())
    with side:
        there = Silent.apply(y)[1]
    default().wait_stream(side)
    await (x.sum() + there.sum().to("sim:0")).backward()
    assert not side.raw.queue
    return x.grad, 1.0


async def between_other_devices():
    """(5) A gradient comes from one other device, and lies on a second, for a node of a third."""
    x = leaf()
    here, there = Split.apply(x)
    z = there.to("sim:2") * 3
    await (here.sum() + z.sum().to("sim:0")).backward()
    return x.grad, 2 + 15.0


async def through_the_host():
    """(1) A gradient in the host's memory: what made it has been waited for."""
    x = leaf()
    w = ag.full((SIZE,), 3.0, requires_grad=True)
    await (x.cpu() * w).square().sum().to("sim:0").backward()
    np.testing.assert_array_equal(w.grad.numpy(), np.full(SIZE, 24.0))
    return x.grad, 36.0


async def to_the_host():
    """A leaf of the host gets its gradient from a device."""
    w = ag.full((SIZE,), 3.0, requires_grad=True)
    await ((w * 1.5).to("sim:0") * 2).sum().backward()
    return w.grad, 3.0


async def root_of_a_side_stream():
    """The root's gradient is made in the caller's stream."""
    x = leaf()
    side = stream()
    side.wait_stream(default())
    with side:
        y = x * 3
    await y.backward(ag.full((SIZE,), 2.0, device="sim:0") * 2)
    return x.grad, 12.0


async def leaf_of_a_side_stream():
    """A leaf that a side stream used first is accumulated there; the caller goes on at once."""
    x = leaf()
    side = stream()
    side.wait_stream(default())
    with side:
        y = (x * 3).sum()
    default().wait_stream(side)
    await y.backward(wait="enqueued")
    return x.grad * 1, 3.0


async def captured_in_a_side_stream():
    """What `grad()` returns is ordered with the caller's stream, too."""
    x = leaf()
    side = stream()
    side.wait_stream(default())
    with side:
        y = (x * 3).sum()
    default().wait_stream(side)
    (g,) = await ag.grad(y, x)
    return g * 1, 3.0


async def captured_in_another_dtype():
    """What `grad()` returns is made in the caller's stream, and done when that is awaited."""
    x = leaf()
    x.grad_dtype = ag.float64
    unused = leaf()
    first, second = stream(), stream()
    first.wait_stream(default())
    with first:
        y = (x * 3).sum()
    with second:
        g, zeros = await ag.grad(y, [x, unused], allow_unused=True, materialize_grads=True)
        assert not second.raw.queue
        total = g * 1 + zeros
    default().wait_stream(second)
    return total, 3.0


async def gradient_is_kept():
    """Memory of one stream's, read in another, is not used again before it has been."""
    x, v = leaf(), leaf(value=0.0)
    first, second = stream(), stream()
    first.wait_stream(default())
    second.wait_stream(default())
    with second:
        w = v.exp()
    with first:
        y = x * 3
    second.wait_stream(first)
    with second:
        z = y.sin()
        total = (z.exp() * w).sum()
    default().wait_stream(second)
    await total.backward()
    a = np.float32(6)
    return x.grad, 3 * np.cos(a) * np.exp(np.sin(a))


async def saved_is_kept():
    """What a node has saved is freed when it has run: the memory may be another stream's."""
    x, v = leaf(), leaf(value=0.0)
    first, second = stream(), stream()
    first.wait_stream(default())
    second.wait_stream(default())
    with second:
        w = v.exp()
        c = v.detach() + 5
    first.wait_stream(second)
    with first:
        y = x * c
    second.wait_stream(first)
    with second:
        z = y.sum() + w.sum()
    del c, y
    default().wait_stream(second)
    await z.backward()
    return x.grad, 5.0


async def sum_is_kept():
    """A gradient that was added to others, and what it was added to, are other streams'."""
    x = leaf()
    first, second, third = stream(), stream(), stream()
    first.wait_stream(default())
    with first:
        y = x * 1
    second.wait_stream(first)
    third.wait_stream(first)
    with second:
        w = leaf(value=0.0).exp()
        b = (y.exp() + w).sum()
    with third:
        c = (y * 3).sum()
    default().wait_stream(second)
    default().wait_stream(third)
    await (b + c).backward()
    return x.grad, np.exp(np.float32(2)) + 3


async def accumulated_is_kept():
    """The old `.grad` and the new gradient are other streams' than the leaf's."""
    x = leaf()
    first, second = stream(), stream()
    first.wait_stream(default())
    with first:
        y = x * 3
    second.wait_stream(first)
    second.wait_stream(default())
    with second:
        x.grad = ag.full((SIZE,), 1.0, device="sim:0")
        z = (y.exp() * 0 + x.exp() * 0 + x * 1).sum()
    default().wait_stream(second)
    await z.backward(wait="enqueued")
    with second:
        [ag.full((SIZE,), 7.0, device="sim:0") for _ in range(16)]
    return x.grad * 1, 2.0


async def back_to_a_side_stream():
    """The caller's stream is another one than that in which copies come."""
    x = leaf()
    side = stream()
    side.wait_stream(default())
    with side:
        x.grad = ag.full((SIZE,), 1.0, device="sim:0")
        y = x.detach() * 1
    default().wait_stream(side)
    z = (x * 3).cpu().sum()
    with side:
        x.grad = x.grad * 2 + y * 0
        await z.backward(wait="enqueued")
        total = x.grad * 1
    default().wait_stream(side)
    return total, 5.0


async def number():
    """A number that is awaited is there."""
    x = leaf()
    total = await (x * 3).sum().item_async()
    return ag.full((SIZE,), total, device="sim:0"), 24.0


async def done_when_awaited():
    """What follows an awaited pass needs no stream, not even to free its memory."""
    x = leaf()
    await (x * 3).sum().backward()
    assert not default().raw.queue
    return x.grad, 3.0


async def offloaded():
    """Saved tensors go to the host in a stream of their own, and come back in it."""
    x = leaf()
    side = stream()
    side.wait_stream(default())
    with side, ag.autograd.graph.save_on_cpu(pin_memory=True):
        y = (x * 3).square()
        y = y.square()
    default().wait_stream(side)
    await y.sum().backward()
    return x.grad, 4 * 3**4 * 2.0**3


async def offloaded_is_kept():
    """What comes back is the copying stream's memory."""
    x = leaf()
    with ag.autograd.graph.save_on_cpu(pin_memory=True):
        y = x
        for _ in range(4):
            y = y.square() * 0.5
    await y.sum().backward()
    return x.grad, 16.0


async def between_devices_directly():
    """A copy between devices comes after what made it, and before what follows."""
    x = leaf().detach() * 3
    side = stream(1)
    with side:
        y = x.to("sim:1")
        z = y * 2
    x.mul_(0)
    default(1).wait_stream(side)
    return z, 12.0


async def copy_is_kept():
    """What is copied to the host behind everybody's back may be dropped at once."""
    side = stream()
    x = leaf().detach() * 3
    side.wait_stream(default())
    with side:
        y = x.to("cpu", non_blocking=True)
    del x
    held = [ag.full((SIZE,), 7.0, device="sim:0") for _ in range(4)]
    side.synchronize()
    assert len(held) == 4
    return y, 6.0


async def shared_memory():
    """A `.grad` in memory that the caller reads, too, is written in the order of that."""
    x, flat = leaf(), ag.zeros(SIZE, device="sim:0")
    x.grad = flat[:]
    side = stream()
    side.wait_stream(default())
    with side:
        y = (x * 3).sum()
    seen = []

    def look(gradient):
        with default():
            seen.append(flat + 1)

    x.register_hook(look)
    default().wait_stream(side)
    await y.backward(wait="enqueued")
    return flat + seen[0], 4.0


async def shared_memory_is_freed():
    """Memory of a third stream's that a `.grad` looks at may be dropped at once."""
    x, third, side = leaf(), stream(), stream()
    with third:
        flat = ag.zeros(SIZE, device="sim:0")
    default().wait_stream(third)
    x.grad = flat[:]
    side.wait_stream(default())
    with side:
        y = (x * 3).sum()

    def work(gradient):
        with default():
            late = leaf()
            for _ in range(40):
                late = late * 2

    # What is written into `.grad` comes after this, long after all else in its stream.
    x.register_hook(work)
    default().wait_stream(side)
    await y.backward(wait="enqueued")
    x.grad = None
    del flat
    with stream():
        fourth = leaf()
        for _ in range(20):
            fourth = fourth * 2
        fourth.cpu()
    side.mark()
    with third:
        z = ag.full((SIZE,), 7.0, device="sim:0") * 2
    default().wait_stream(third)
    return z, 14.0


async def hook_that_waits():
    """A coroutine hook computes in its node's stream, though others have run meanwhile."""
    x = leaf()
    side = stream()
    side.wait_stream(default())
    y = x * 3

    async def hook(gradient):
        return gradient * 5

    y.register_hook(hook)
    with side:
        z = x * 7
    default().wait_stream(side)
    loss = (y + z).sum()
    # Made last, so it runs first of the two, and begins to wait before the other runs.
    ag.autograd.graph.get_gradient_edge(y).node._set_sequence_nr(loss.grad_fn._sequence_nr() - 1)
    await loss.backward()
    return x.grad, 3 * 5.0 + 7


class Doubling:
    """A participant."""

    async def prepare(self, gradients):
        return {leaf: gradient * 2 for leaf, gradient in gradients.items()}

    async def commit(self):
        pass

    async def abort(self):
        pass


async def given_by_a_participant():
    """A participant computes in the default stream; the leaf's stream is another one."""
    x, side = leaf(), stream()
    side.wait_stream(default())
    with side:
        y = x * 3
    y.register_hook(lambda gradient: ag.autograd.graph.join(Doubling()))
    default().wait_stream(side)
    await y.sum().backward()
    return x.grad, 6.0


async def given_by_the_caller():
    """Gradients are added that were made in another stream than the leaf's."""
    x, side = leaf(), stream()
    side.wait_stream(default())
    with side:
        loss = (x * 3).sum()
    await ag.autograd.graph.accumulate({x: ag.full((SIZE,), 2.0, device="sim:0") * 2})
    default().wait_stream(side)
    await loss.backward()
    return x.grad, 7.0


PROGRAMS = (
    shared_memory, shared_memory_is_freed,
    offloaded, offloaded_is_kept, between_devices_directly, copy_is_kept,
    between_streams, from_another_device, to_another_device, between_other_devices,
    through_the_host, to_the_host, root_of_a_side_stream, leaf_of_a_side_stream,
    gradient_elsewhere_is_kept, work_without_gradient,
    captured_in_a_side_stream, captured_in_another_dtype, gradient_is_kept, saved_is_kept,
    sum_is_kept, accumulated_is_kept,
    back_to_a_side_stream, number, done_when_awaited,
    hook_that_waits, given_by_a_participant, given_by_the_caller,
)  # fmt: skip
