"""An asyncio app with many backward passes at once, a timeout and a cancellation.

Shows: a pass is one more thing to await. A hundred users fit their own models at the same time,
beside a bystander who keeps getting turns of the loop; passes onto one leaf add up; a pass that
meets its deadline, or is cancelled, leaves `.grad` exactly as it was and disturbs nobody.
Leaves out: a network (examples/digits has one), priorities and deadlines of passes.
Run: python examples/concurrent_passes.py (it checks what it says)
"""

from __future__ import annotations

import asyncio

import numpy as np

import asyncgrad as ag

x = ag.from_numpy(np.linspace(-1.0, 1.0, 64))


async def fit(slope: float) -> float:
    """Find the slope of a noisy line by gradient descent: one user of a hundred."""
    noise = np.random.default_rng(int(slope * 10)).normal(0.0, 0.1, 64)
    y = x * slope + ag.from_numpy(noise)
    w = ag.zeros(1, dtype=ag.float64, requires_grad=True)
    optimizer = ag.optim.SGD([w], lr=0.5)
    for _ in range(30):
        loss = ((x * w - y) * (x * w - y)).mean()
        optimizer.zero_grad()
        await loss.backward()
        optimizer.step()
    return w.item()


def long_chain(w: ag.Tensor, length: int = 50_000) -> ag.Tensor:
    """Build a graph whose backward pass takes much longer than anyone here wants to wait."""
    y = w
    for _ in range(length):
        y = ag.tanh(y)
    return y.sum()


async def many_users() -> None:
    """A hundred tasks train at once, each on its own parameter."""
    turns = 0

    async def bystander() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    watching = asyncio.create_task(bystander())
    slopes = [number / 10 for number in range(100)]
    async with asyncio.TaskGroup() as group:
        users = [group.create_task(fit(slope)) for slope in slopes]
    watching.cancel()
    worst = max(abs(user.result() - slope) for user, slope in zip(users, slopes, strict=True))
    print(f"100 users fitted their lines; worst error {worst:.3f}, the bystander had its turns")
    assert worst < 0.2
    assert turns > 0


async def one_leaf() -> None:
    """Passes that meet at one leaf add up, in whatever order they end."""
    w = ag.ones(3, requires_grad=True)
    await asyncio.gather(*((w * float(k)).sum().backward() for k in range(100)))
    print(f"100 passes onto one leaf: .grad = {w.grad.numpy()}")
    assert (w.grad.numpy() == sum(range(100))).all()


async def too_late() -> None:
    """A pass that does not end in time changes nothing."""
    w = ag.ones(3, requires_grad=True)
    await (w * 2.0).sum().backward()
    loss = await ag.offload(long_chain, w)
    try:
        async with asyncio.timeout(0.01):
            await loss.backward()
    except TimeoutError:
        print(f"a timeout: .grad is still {w.grad.numpy()}")
    else:
        raise AssertionError("the pass should have taken longer than that")
    assert (w.grad.numpy() == 2.0).all()


async def called_off() -> None:
    """One of four passes is cancelled; the other three never notice."""
    leaves = [ag.ones(3, requires_grad=True) for _ in range(4)]
    losses = await asyncio.gather(*(ag.offload(long_chain, leaf, 10_000) for leaf in leaves))
    passes = [loss.backward() for loss in losses]
    passes[2].cancel()
    results = await asyncio.gather(*passes, return_exceptions=True)
    print(
        "a cancellation: .grad of the four leaves is",
        [None if leaf.grad is None else "there" for leaf in leaves],
    )
    assert isinstance(results[2], asyncio.CancelledError)
    assert [leaf.grad is None for leaf in leaves] == [False, False, True, False]


async def main() -> None:
    """Run the four scenes."""
    await many_users()
    await one_leaf()
    await too_late()
    await called_off()


if __name__ == "__main__":
    asyncio.run(main())
