"""Checkpoints in compiled functions: a replay runs their functions a second time, too."""

import asyncio

import pytest

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.utils.checkpoint import checkpoint, checkpoint_sequential


class Model(nn.Module):
    """Blocks of which all or some are checkpoints."""

    def __init__(self, way):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(4, 4), nn.Tanh(), nn.Dropout(0.3), nn.Linear(4, 4), nn.BatchNorm1d(4)
        )
        self.way = way

    def block(self, x):
        return self.layers(x).tanh()

    def outer(self, x):
        return checkpoint(self.block, x, use_reentrant=False) * x

    def forward(self, x):
        if self.way == "sequential":
            return checkpoint_sequential(self.layers, 2, x, use_reentrant=False)
        function = self.outer if self.way == "nested" else self.block
        options = {"early_stop": False, "preserve_rng_state": False} if self.way == "other" else {}
        return self.block(checkpoint(function, x, use_reentrant=False, **options))


def training(way):
    ag.manual_seed(1)
    model = Model(way)
    optimizer = ag.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = (model(x) * ag.rand(4)).sum()
        if way == "twice":
            first = ag.grad(loss, model.layers[0].weight, retain_graph=True)[0]
            loss = loss + first.sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    async def awaited(x):
        optimizer.zero_grad()
        loss = (model(x) * ag.rand(4)).sum()
        await loss.backward()
        optimizer.step()
        return loss.detach()

    return model, awaited if way == "awaited" else step


@pytest.mark.parametrize("way", ["one", "nested", "sequential", "other", "twice", "awaited"])
def test_checkpoints_are_repeated(way):
    """With the random numbers of the first run, where they are preserved."""
    found = []
    for compiled in (False, True):
        model, step = training(way)
        call = ag.compile(step, fullgraph=True) if compiled else step
        results = []
        for number in range(4):
            x = ag.arange(8.0).reshape(2, 4) + number
            out = call(x)
            out = asyncio.run(out) if asyncio.iscoroutine(out) else out
            results.append([out.tolist(), ag.get_rng_state().tolist()])
            results[-1] += [value.tolist() for value in model.state_dict().values()]
        found.append(results)
    assert found[0] == found[1]
    assert call.explain().splitlines()[0].endswith("1 recorded, 3 replayed")


def test_a_checkpoint_of_a_coroutine_function():
    w = ag.ones(3, requires_grad=True)

    async def block(x):
        first = (x * w).tanh()
        await asyncio.sleep(0)
        return (first * w).tanh()

    async def step(x):
        y = await checkpoint(block, x, use_reentrant=False)
        await (y * w).sum().backward()
        found = w.grad * 1
        w.grad = None
        return found

    async def compare():
        fast = ag.compile(step)
        for number in range(3):
            assert (await fast(ag.ones(3) * number)).tolist() == (
                await step(ag.ones(3) * number)
            ).tolist()

    asyncio.run(compare())


def test_the_second_run_of_a_large_checkpoint_on_a_loop():
    """An eager pass makes it in a thread, where nothing is recorded."""
    w = ag.ones(200, 200, requires_grad=True)

    async def step(x):
        loss = checkpoint(lambda x: (x @ w).tanh() @ w, x, use_reentrant=False).tanh().sum()
        return (await ag.grad(loss, w))[0]

    async def compare():
        fast = ag.compile(step, fullgraph=True)
        for number in range(3):
            x = ag.full((200, 200), 0.001 * number)
            assert (await fast(x)).tolist() == (await step(x)).tolist()
        assert fast.explain().splitlines()[0].endswith("1 recorded, 2 replayed")

    asyncio.run(compare())
