"""What users write, with types: `test_typed_programs.py` has it checked and never runs it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, assert_type

import numpy as np

import asyncgrad as ag
from asyncgrad import Tensor, nn
from asyncgrad.nn import functional as F
from asyncgrad.serialization import load_safetensors
from asyncgrad.serving import Batcher
from asyncgrad.utils.checkpoint import checkpoint
from asyncgrad.utils.data import DataLoader, TensorDataset, random_split

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.distributed import World


class Cube(ag.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        x: Tensor
        (x,) = ctx.saved_tensors
        return 3.0 * g * x**2


class Net(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first = nn.Linear(4, width)
        self.act = nn.ReLU()
        self.weight = nn.Parameter(ag.randn(width, 3))

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        return self.act(self.first(x)) @ self.weight * scale


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.net(x, scale=2.0)
        return y, y.softmax(-1)


def double(g: Tensor) -> Tensor:
    return g * 2


async def clip(g: Tensor) -> Tensor:
    return g.clamp(-1, 1)


async def train(model: Net, x: Tensor, y: Tensor) -> float:
    loader = DataLoader(TensorDataset(x, y), batch_size=2, shuffle=True)
    assert_type(loader, DataLoader[tuple[Tensor, ...]])
    with_any_samples: DataLoader = loader
    assert_type(len(with_any_samples), int)
    optimizer = ag.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = ag.optim.lr_scheduler.StepLR(optimizer, 10)
    loss = ag.zeros(())
    for _ in range(5):
        async for inputs, targets in loader:
            loss = F.cross_entropy(await ag.offload(model, inputs), targets)
            optimizer.zero_grad()
            handle = loss.register_hook(double)
            loss.register_hook(clip)
            async with asyncio.timeout(5):
                await loss.backward(priority=1)
            handle.remove()
            assert_type(optimizer.step(), None)
        scheduler.step()
    ag.save(model.state_dict(), "weights.pt")
    return loss.mean().item()


async def engine_and_futures(x: Tensor) -> ag.BackwardFuture[None]:
    ag.engine().limit(passes=3)
    assert_type(ag.engine().loop, asyncio.AbstractEventLoop)
    assert_type(ag.engine().statistics().passes, int)
    future = x.sum().backward()
    future.add_done_callback(lambda ended: print(ended.committed()))
    return future


def blocking(x: Tensor) -> None:
    assert_type(ag.sync.backward(x.sum()), None)
    (g,) = ag.sync.grad(x.sum(), x)
    assert_type(g, Tensor)
    assert_type(ag.sync.func.grad(norm)(x, 2.0), Tensor)
    assert_type(ag.sync.jacobian(norm, x), Tensor)


def lists(rows: list[tuple[Tensor, int]]) -> None:
    assert_type(DataLoader(rows, batch_size=2), DataLoader[tuple[Tensor, int]])
    train, test = random_split(rows, [0.5, 0.5])
    assert_type(train[0], tuple[Tensor, int])
    assert_type(DataLoader(test), DataLoader[tuple[Tensor, int]])
    assert_type(ag.einsum("ij,jk->ik", train[0][0], test[0][0]), Tensor)
    assert_type(ag.einsum(train[0][0], [0, 1], [1, 0]), Tensor)
    assert_type(train[0][0].view(2, -1).view((4,)).view(ag.int32), Tensor)
    print(ag.func.vmap(norm, in_dims=(0, None))(train[0][0], 2.0))


async def ranks(world: World) -> None:
    async def work(number: int) -> float:
        return number / 2

    assert_type(await world.run(work, 3), list[float])


async def handler(model: Net, row: list[float]) -> dict[str, list[float]]:
    x = ag.tensor(row, requires_grad=True)
    future = model(x).sum().backward()
    await asyncio.wait_for(future, 1)
    assert future.committed()
    assert x.grad is not None
    values: list[float] = x.grad.tolist()
    return {"gradient": values}


@ag.no_grad()
def evaluate(model: Net, x: Tensor) -> Tensor:
    return F.softmax(model(x), 1).argmax(1)


@ag.no_grad
def accuracy(model: Net, x: Tensor, y: Tensor) -> float:
    return float((evaluate(model, x) == y).to(ag.float32).mean())


def norm(x: Tensor, power: float = 2.0) -> Tensor:
    return (x**power).sum()


async def results(x: Tensor, model: Net) -> None:
    assert_type(await x.sum().backward(), None)
    assert_type(await ag.autograd.backward([x.sum()]), None)
    assert_type(model(x), Tensor)
    assert_type(Pair()(x), tuple[Tensor, Tensor])
    assert_type(await ag.offload(norm, x, 2.0), Tensor)
    assert_type(await ag.offload(len, "abc"), int)
    assert_type(evaluate(model, x), Tensor)
    assert_type(accuracy(model, x, x), float)
    (g,) = await ag.grad(x.sum(), x)
    assert_type(g, Tensor)
    first, *_ = ag.grad(x.sum(), [x])
    assert_type(first, Tensor)
    (maybe,) = await ag.grad(x.sum(), x, allow_unused=True)
    assert_type(maybe, Tensor | None)
    assert_type((await ag.grad(x.sum(), {"x": x}))["x"], Tensor)
    assert_type(ag.func.grad(norm)(x, 2.0), Tensor)
    assert_type(await ag.func.grad(norm)(x, 2.0), Tensor)
    assert_type(ag.func.vmap(norm)(x, 2.0), Tensor)
    assert_type(ag.func.hessian(norm)(x, 2.0), Tensor)
    print(ag.func.grad(lambda a: a.sum())(x), ag.func.hessian(lambda a: a.sum())(x))
    print(ag.func.jacrev(lambda a: a * a)(x), ag.func.jacrev(ag.func.jacfwd(norm))(x, 2.0))
    assert_type(nn.Linear(2, 2).weight, nn.Parameter)
    assert_type(nn.Conv1d(2, 2, 1).weight, nn.Parameter)
    assert_type(ag.autograd.functional.jacobian(norm, x), Tensor)
    value, product = await ag.autograd.functional.vjp(norm, x)
    assert_type((value, product), tuple[Tensor, Tensor])
    assert_type(ag.autograd.gradcheck(norm, (x, 2.0)), bool)
    with ag.no_grad(), ag.autograd.set_nesting_limit(5), ag.inference_mode():
        assert_type(x + 1, Tensor)


x = ag.from_numpy(np.ones((2, 2)))
assert_type(x @ x.T, Tensor)
assert_type(1 - x[0], Tensor)
assert_type(-x, Tensor)
assert_type(x > 0, Tensor)
assert_type(x == 1, Tensor)
assert_type(x[:, None, ...], Tensor)
assert_type(x.exp().sum(), Tensor)
assert_type(x.sum((0, 1), keepdim=True), Tensor)
assert_type(x.reshape(-1).to(ag.float64), Tensor)
assert_type(x.add_(1).relu_(), Tensor)
assert_type(ag.where(x > 0, x, 0.0), Tensor)
assert_type(ag.where(x > 0), tuple[Tensor, ...])
assert_type(ag.max(x), Tensor)
assert_type(ag.max(x, 0), ag.return_types.max)
assert_type(x.max(dim=1).indices, Tensor)
assert_type(x.sort().values, Tensor)
assert_type(x.topk(2)[0], Tensor)
assert_type(x.median(), Tensor)
assert_type(ag.unique(x), Tensor)
assert_type(ag.unique(x, return_inverse=True), tuple[Tensor, Tensor])
assert_type(F.max_pool1d(x, 2), Tensor)
assert_type(F.max_pool1d(x, 2, return_indices=True), tuple[Tensor, Tensor])
assert_type(ag.linalg.eigh(x), ag.return_types.linalg_eigh)
assert_type(ag.svd(x).S, Tensor)
assert_type(x.norm(), Tensor)
assert_type(x.split(1), tuple[Tensor, ...])
assert_type(ag.std_mean(x), tuple[Tensor, Tensor])
assert_type(ag.cat([x, x]), Tensor)
assert_type(F.relu(x), Tensor)
assert_type(ag.add(x, np.float32(1), alpha=np.int64(2)), Tensor)
assert_type(x * np.float32(2), Tensor)
assert_type(ag.distributions.Normal(x, 1.0).scale, Tensor)
assert_type(ag.distributions.Gamma(x, 1.0).rate, Tensor)
assert_type(x.grad, Tensor | None)
assert_type(x.requires_grad, bool)
assert_type(x.size(0), int)
assert_type(x.shape[0], int)
assert_type(Cube.apply(x), Any)

assert_type(F.kl_div(x, x, reduction="batchmean"), Tensor)
assert_type(x.div(2, rounding_mode="floor"), Tensor)
assert_type(ag.norm(x, "nuc"), Tensor)
assert_type(F.conv1d(x, x, padding="same"), Tensor)
nn.Conv2d(1, 1, 3, padding="same", padding_mode="circular")

hook: Callable[[Tensor], Tensor] = double


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.more = nn.ModuleList()
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 2)})
        self.rnn = nn.LSTM(4, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        y, (h, _) = self.rnn(x)
        assert_type(h, Tensor)
        assert_type(self.body(x), Tensor)
        assert_type(self.blocks[0], nn.Linear)
        assert_type(nn.MSELoss()(input=x, target=y), Tensor)
        return self.heads["a"](self.body(x))


class Scale(ag.autograd.Function):
    @staticmethod
    def forward(ctx: ag.autograd.function.FunctionCtx, x: Tensor, by: Tensor) -> Tensor:
        ctx.save_for_backward(by)
        return x * by

    @staticmethod
    def backward(ctx: ag.autograd.function.FunctionCtx, g: Tensor) -> tuple[Tensor, None]:
        (by,) = ctx.saved_tensors
        assert_type(by, Tensor)
        return g * by, None


@ag.compile
def step(x: Tensor, scale: float = 1.0) -> Tensor:
    return x * scale


@ag.compile(fullgraph=True)
def strict_step(x: Tensor) -> Tensor:
    return x


class Steps(nn.Module):
    @ag.compile
    def scaled(self, x: Tensor, by: float = 2.0) -> Tensor:
        return x * by

    @ag.compile(fullgraph=True)
    async def slope(self, x: Tensor) -> Tensor:
        (gradient,) = await ag.grad(self.scaled(x).sum(), x)
        return gradient


async def methods(steps: Steps, x: Tensor) -> float:
    assert_type(steps.scaled(x, by=3.0), Tensor)
    assert_type(await steps.slope(x), Tensor)
    print(Steps.scaled.explain())
    return await x.item_async()


async def saved_memory(tower: Tower, x: Tensor) -> Tensor:
    assert_type(checkpoint(tower.body, x, use_reentrant=False), Tensor)
    assert_type(checkpoint(norm, x, power=3.0, use_reentrant=False), Tensor)
    assert_type(checkpoint(Pair(), x, use_reentrant=False), tuple[Tensor, Tensor])
    assert_type(await checkpoint(clip, x, use_reentrant=False), Tensor)
    return checkpoint(tower, x, use_reentrant=False)


def walks(tower: Tower) -> dict[str, Tensor]:
    for module in tower.modules():
        assert_type(module, nn.Module)
    assert_type(dict(tower.named_children()), dict[str, nn.Module])
    assert_type(tower.get_submodule("body.0"), nn.Module)
    nn.AdaptiveAvgPool2d((1, None))(F.adaptive_avg_pool2d(ag.ones(1, 1, 2, 2), (None, 2)))
    return load_safetensors("weights.safetensors")


async def batches() -> None:
    async def tensors(rows: list[list[float]]) -> Tensor:
        return ag.tensor(rows)

    async def names(numbers: list[int]) -> list[str]:
        return [str(number) for number in numbers]

    async with Batcher(tensors) as rows, Batcher(names) as texts:
        assert_type(await rows([1.0, 2.0]), Tensor)
        assert_type(await texts(3), str)


def made(tower: Tower, x: Tensor) -> Tensor:
    plain = [p for p in tower.parameters() if p.ndim < 2]
    groups = ag.optim.AdamW(
        [{"params": plain, "weight_decay": 0.0}, {"params": tower.rnn.parameters()}]
    )
    assert_type(step(x, scale=2.0), Tensor)
    assert_type(strict_step(x), Tensor)
    assert_type(ag.compile(tower), Tower)
    print(step.explain(), groups)
    place: ag.device = ag.device("cpu")
    assert_type(nn.utils.clip_grad_norm_(tower.parameters(), 1.0), Tensor)
    p, q = ag.distributions.Normal(x, 1.0), ag.distributions.Normal(0.0, 1.0)
    assert_type(p.rsample((2,)), Tensor)
    assert_type(ag.distributions.kl_divergence(p, q).mean(), Tensor)
    assert_type(ag.distributions.Independent(p, 1).log_prob(x), Tensor)
    with ag.trace_passes("passes.json") as recorder:
        print(recorder)
    tower.to(place, ag.float64).to("cpu").to(dtype=ag.float32)
    x = x.to(place, ag.float64, non_blocking=True).to(x).to(dtype=ag.float32)
    return x[..., None, 1:, [0, 1]].view(-1).transpose_(0, 0).unsqueeze_(0).squeeze_(dim=0)
