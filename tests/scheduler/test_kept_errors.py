"""Who keeps the error of a pass keeps no graph: neither what has run nor what has not."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import asyncgrad as ag

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = [4, 700_000]


class Stop(Exception):
    pass


def fail(*_: Any) -> Any:
    raise Stop


async def fail_later(*_: Any) -> Any:
    await asyncio.sleep(0)
    raise Stop


async def fail_in_a_nested_pass(*_: Any) -> Any:
    with ag.enable_grad():
        x = ag.ones(2, requires_grad=True)
        y = with_hook(fail, "tensor")(ag.tanh(x))
    await y.sum().backward()


class Failing(ag.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: ag.Tensor) -> ag.Tensor:
        return x * 2.0

    @staticmethod
    def backward(ctx: Any, gradient: ag.Tensor) -> ag.Tensor:
        # Who keeps ctx keeps the graph, which is theirs to decide.
        del ctx
        raise Stop


def with_unpack(x: ag.Tensor) -> ag.Tensor:
    def unpack(packed: Any) -> Any:
        del packed
        raise Stop

    with ag.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
        return x * x


def with_hook(hook: Callable[..., Any], where: str) -> Callable[[ag.Tensor], ag.Tensor]:
    def function(x: ag.Tensor) -> ag.Tensor:
        y = x * 1.5
        if where == "tensor":
            y.register_hook(hook)
        elif where == "before":
            y.grad_fn.register_prehook(hook)
        else:
            y.grad_fn.register_hook(hook)
        return y

    return function


def changed(x: ag.Tensor) -> ag.Tensor:
    y = ag.exp(x)
    y.detach().add_(1.0)
    return y


FUNCTIONS = {
    "hook": with_hook(fail, "tensor"),
    "coroutine hook": with_hook(fail_later, "tensor"),
    "hook before a node": with_hook(fail, "before"),
    "hook after a node": with_hook(fail, "after"),
    "coroutine after a node": with_hook(fail_later, "after"),
    "nested pass": with_hook(fail_in_a_nested_pass, "tensor"),
    "bad result": with_hook(lambda gradient: ag.ones(7), "tensor"),
    "function": Failing.apply,
    "unpack": with_unpack,
    "changed": changed,
}


def started(function: Callable[[ag.Tensor], ag.Tensor], size: int) -> tuple[Any, list[Any]]:
    """A pass through a function that fails, and weak references to arrays before and behind it."""
    refs: list[Any] = []

    def noted(tensor: ag.Tensor) -> ag.Tensor:
        refs.extend((weakref.ref(tensor.detach().numpy()), weakref.ref(tensor.grad_fn)))
        return tensor

    x = ag.tensor(np.ones(size), requires_grad=True)
    before = noted(ag.tanh(noted(ag.tanh(x))))
    loss = noted(ag.tanh(noted(ag.tanh(function(before))))).sum()
    return loss.backward(), refs


async def failed(function: Callable[[ag.Tensor], ag.Tensor], size: int) -> tuple[Any, list[Any]]:
    """The error of such a pass, and the weak references.

    The limit makes the pass begin in the worker: the caller's frames would hold his tensors.
    """
    ag.engine().limit(passes=1)
    entered, leave = asyncio.Event(), asyncio.Event()

    async def wait(gradient: ag.Tensor) -> None:
        entered.set()
        await leave.wait()

    y = ag.ones(3, requires_grad=True) * 2.0
    y.register_hook(wait)
    first = y.sum().backward()
    future, refs = started(function, size)
    assert not future.done()
    assert all(ref() is not None for ref in refs)
    await entered.wait()
    leave.set()
    await first
    await asyncio.wait([future])
    ag.engine().limit()
    return future.exception(), refs


@pytest.mark.asyncio
@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", FUNCTIONS)
async def test_an_error_that_is_kept_holds_no_graph(kind: str, size: int) -> None:
    error, refs = await failed(FUNCTIONS[kind], size)
    assert isinstance(error, (Stop, RuntimeError))
    assert error.__traceback__ is not None
    assert [ref() for ref in refs] == [None] * len(refs)


@pytest.mark.asyncio
@pytest.mark.usefixtures("no_collector")
async def test_a_later_error_that_is_kept_holds_no_graph() -> None:
    """A hook raises it as it is cancelled, because another hook has failed."""
    kept = []

    async def clean_up(gradient: ag.Tensor) -> None:
        del gradient
        try:
            await asyncio.Event().wait()
        finally:
            kept.append(KeyError("cleaning up"))
            raise kept[0]

    def function(x: ag.Tensor) -> ag.Tensor:
        return with_hook(clean_up, "tensor")(x) + with_hook(fail_later, "tensor")(x)

    error, refs = await failed(function, 4)
    assert isinstance(error, Stop)
    assert kept[0].__traceback__ is not None
    assert [ref() is None for ref in refs] == [True] * len(refs)
