"""What type checkers refuse: each line that says so has one mistake."""

from __future__ import annotations

import asyncgrad as ag
from asyncgrad import Tensor, nn
from asyncgrad.nn import functional as F


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
