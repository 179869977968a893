"""Modules that tests put on workers."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Any

import asyncgrad as ag
from asyncgrad import distributed as dist


class Affine(ag.nn.Module):
    """`x * scale + shift`, in float64."""

    def __init__(self, scale: float = 2.0, size: int = 3) -> None:
        super().__init__()
        self.scale = ag.nn.Parameter(ag.full((size,), scale, dtype=ag.float64))
        self.shift = ag.nn.Parameter(ag.zeros(size, dtype=ag.float64))

    def forward(self, x: Any) -> Any:
        return ag.tanh(x * self.scale + self.shift)


class Both(Affine):
    """Takes two tensors."""

    def forward(self, x: Any, y: Any) -> Any:
        return ag.tanh(x * self.scale + y * self.shift)


class Mixed(ag.nn.Module):
    """Takes and gives structures."""

    def forward(self, given: dict[str, Any], *, times: int) -> dict[str, Any]:
        return {"sum": given["x"] * times + given["y"], "rank": (given["x"] > 0, "plain")}


@dataclass
class Settings:
    """Plain data that may hold a tensor."""

    value: Any


class Kept(Affine):
    """Keeps a value, which retains its gradient, and gives it in a dataclass if asked for."""

    def forward(self, x: Any, *, wrapped: bool = False) -> Any:
        self.hidden = x * self.scale
        self.hidden.retain_grad()
        return Settings(self.shift) if wrapped else ag.tanh(self.hidden)


class Outer(ag.nn.Module):
    """A part that calls another part, twice."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.own = Affine(0.5)
        self.inner = inner

    async def forward(self, x: Any) -> Any:
        return await self.inner(await self.inner(self.own(x)))


class Failing(ag.nn.Module):
    """Fails in its forward or in its backward."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        self.weight = ag.nn.Parameter(ag.ones(3, dtype=ag.float64))

    def forward(self, x: Any) -> Any:
        if self.where == "forward":
            raise ValueError("planned")
        y = x * self.weight
        y.register_hook(self.fail)
        return y

    def fail(self, gradient: Any) -> None:
        raise ValueError("planned")


class Held(ag.nn.Module):
    """Its backward waits until it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = ag.nn.Parameter(ag.ones(3, dtype=ag.float64))
        self.begun = self.ended = 0

    def forward(self, x: Any) -> Any:
        y = x * self.weight
        y.register_hook(self.wait)
        return y

    async def wait(self, gradient: Any) -> None:
        self.begun += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.ended += 1


def identity(x: Any) -> Any:
    return x


def second(module: Any, given: Any) -> Any:
    return given


async def gives_back(given: Any) -> Any:
    return given


def fails_on_rank_1() -> Affine:
    if dist.get_rank() == 1:
        raise ValueError("planned")
    return Affine()


def refuses(*args: Any) -> None:
    raise ValueError("planned")


def no_module() -> int:
    return 3


def freeze(module: Any) -> None:
    for parameter in module.parameters():
        parameter.requires_grad_(False)


def gradients(module: Any) -> list[Any]:
    """The gradients of a module's parameters, as lists."""
    return [None if p.grad is None else p.grad.tolist() for p in module.parameters()]


def pid_of(module: Any) -> int:
    return os.getpid()


async def train(size: int) -> Any:
    """One pass of a data parallel model on each rank; its loss and the bits of a gradient."""
    ag.manual_seed(0)
    module = ag.nn.Linear(size, size)
    model = await dist.nn.parallel.DistributedDataParallel(module, bucket_cap_mb=0.1)
    x = ag.full((4, size), 0.01 * (dist.get_rank() + 1))
    loss = model(x).square().mean()
    await loss.backward()
    total = await dist.all_reduce(loss.detach())
    return total.item(), module.weight.grad.numpy().tobytes()


def mean_square(y: Any, target: Any) -> Any:
    return ((y - target) ** 2).mean()
