"""What type checkers refuse: each line that says so has one mistake."""

from __future__ import annotations

import asyncgrad as ag
from asyncgrad import Tensor, nn
from asyncgrad.nn import functional as F
from asyncgrad.serving import Admission, Batcher
from asyncgrad.utils.data import DataLoader, random_split


class Net(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


def norm(x: Tensor, power: float) -> Tensor:
    return (x**power).sum()


async def mistakes(x: Tensor, model: Net, optimizer: ag.optim.Adam) -> None:
    x.nonsense()  # refused
    ag.nonsense(x)  # refused
    ag.special.nonsense(x)  # refused
    F.nonsense(x)  # refused
    ag.tanh("hello")  # refused
    ag.tanh(x, 3)  # refused
    ag.maximum(x, "a")  # refused
    x.reshape("a")  # refused
    x.sum(dims=0)  # refused
    x + "a"  # refused
    model("hello")  # refused
    model(x, 3)  # refused
    number: float = model(x)  # refused
    await ag.offload(norm, x)  # refused
    await ag.offload(norm, x, "2")  # refused
    gradient: Tensor = await ag.grad(x.sum(), x)  # refused
    done: int = await x.sum().backward()  # refused
    print(ag.max(x, 0).sums)  # refused
    x.backward(retain="yes")  # refused
    x.register_hook(3)  # refused
    optimizer.step(3)  # refused
    print(ag.distributions.Normal(x, 1.0).rate)  # refused
    with ag.no_grad(3):  # refused
        print(number, gradient, done)


class Steps:
    @ag.compile
    def scaled(self, x: Tensor) -> Tensor:
        return x


async def compute(numbers: list[int]) -> list[str]:
    return [str(number) for number in numbers]


async def wrong_services(x: Tensor) -> None:
    Steps().scaled()  # refused
    Steps().scaled("a")  # refused
    Batcher(len)  # refused
    async with Batcher(compute) as batcher:
        await batcher("a")  # refused
        number: int = await batcher(3)  # refused
    async with Admission(2).enter(3):  # refused
        print(number)
    ag.engine().limit(passes="3")  # refused
    nn.ModuleList([nn.ReLU()])[0].modules()[0]  # refused
    F.adaptive_avg_pool2d(x, ("a", 1))  # refused


@ag.compile
def compiled(x: Tensor, y: Tensor) -> Tensor:
    return x + y


class Tree(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(2, 2)])
        self.heads = nn.ModuleDict({"a": nn.Linear(2, 2)})
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x: Tensor) -> Tensor:
        self.loss(x)  # refused
        self.loss(x, target="a")  # refused
        self.heads["a"]("a")  # refused
        for block in self.blocks:
            block(x, x)  # refused
        return nn.Sequential(nn.ReLU())("a")  # refused


def more_mistakes(x: Tensor, tree: Tree, d: ag.distributions.Normal) -> str:
    compiled(x)  # refused
    compiled(x, "a")  # refused
    x.to(3.5)  # refused
    x.to("cpu", nonblocking=True)  # refused
    x.transpose_("a", 1)  # refused
    x.unsqueeze_()  # refused
    x.squeeze_(dims=0)  # refused
    x.uniform_("a")  # refused
    x.index_fill_(0, x, "a")  # refused
    x["a"]  # refused
    ag.cat([1, 2])  # refused
    ag.stack([x, "a"])  # refused
    ag.hann_window(3, dtypes=ag.float32)  # refused
    ag.logical_not("a")  # refused
    ag.tensordot(x, x, dims="a")  # refused
    nn.Sequential(3)  # refused
    tree.to(3.5)  # refused
    tree.zero_grads()  # refused
    d.rsample().nonsense()  # refused
    F.mse_loss(x, x, reduction="avg")  # refused
    F.kl_div(x, x, reduction="batch")  # refused
    F.gelu(x, approximate="erf")  # refused
    F.pad(x, [1, 1], mode="mirror")  # refused
    F.interpolate(x, 2, mode="cubic")  # refused
    F.grid_sample(x, x, padding_mode="zero")  # refused
    F.conv1d(x, x, padding="full")  # refused
    nn.Conv1d(1, 1, 1, padding_mode="mirror")  # refused
    nn.MSELoss(reduction="batchmean")  # refused
    nn.RNN(2, 2, nonlinearity="gelu")  # refused
    nn.GELU("erf")  # refused
    nn.init.kaiming_normal_(x, mode="fan_avg")  # refused
    ag.div(x, x, rounding_mode="ceil")  # refused
    x.div_(2, rounding_mode="ceil")  # refused
    ag.meshgrid(x, indexing="yx")  # refused
    ag.fft.fft(x, norm="none")  # refused
    ag.func.vmap(norm, randomness="some")  # refused
    x.scatter_reduce(0, x, x, "max")  # refused
    x.sum().backward(wait="no")  # refused
    ag.einsum(3, x)  # refused
    x.view("a", "b")  # refused
    ag.sync.grad(x.sum())  # refused
    ag.sync.backward(x.sum(), retain=True)  # refused
    ag.func.vmap(norm, in_dims="a")  # refused
    DataLoader(3)  # refused
    random_split([1, 2], 2)  # refused
    x.sum().backward().add_done_callback(3)  # refused
    ag.engine().submit(x)  # refused
    with ag.trace_passes(3):  # refused
        return d.mean  # refused
