"""A pass with a timeout, one that its user cancels, and one with a deadline."""

import asyncio

import asyncgrad as ag


async def fit(w, target, wait):
    """One step towards the target; the gradient passes a service that may be slow."""

    async def pass_on(gradient):
        await wait()
        return gradient

    y = w * 2
    y.register_hook(pass_on)
    await ((y - target) ** 2).sum().backward()


async def forever():
    await asyncio.Event().wait()


async def at_once():
    pass


async def main():
    w = ag.ones(2, requires_grad=True)
    told = []
    try:
        async with asyncio.timeout(0.01):
            await fit(w, 1.0, forever)
    except TimeoutError:
        told.append(("timeout", w.grad))
    try:
        await asyncio.wait_for(fit(w, 1.0, forever), 0.01)
    except TimeoutError:
        told.append(("wait_for", w.grad))

    reached = asyncio.Event()

    async def says_so():
        reached.set()
        await forever()

    task = asyncio.create_task(fit(w, 1.0, says_so))
    await reached.wait()
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        told.append(("cancelled", w.grad))

    soon = asyncio.get_running_loop().time() + 0.01
    try:
        with ag.request(deadline=soon):
            await fit(w, 1.0, forever)
    except TimeoutError:
        told.append(("deadline", w.grad))
    await fit(w, 1.0, at_once)
    told.append(("done", w.grad.tolist()))
    return told


if __name__ == "__main__":
    print(asyncio.run(main()))
