"""Under trio's loop asyncgrad says that it needs asyncio's, and blocks only where it is told to."""

from __future__ import annotations

import pytest

import asyncgrad as ag

trio = pytest.importorskip("trio", reason="trio is not installed")


def loss():
    x = ag.ones(3, requires_grad=True)
    return x, (x * x).sum()


@pytest.mark.parametrize("call", [
    lambda x, y: y.backward(),
    lambda x, y: ag.grad(y, x),
    lambda x, y: ag.autograd.backward(y),
    lambda x, y: ag.func.grad(lambda z: (z * z).sum())(x),
    lambda x, y: ag.autograd.functional.hessian(lambda z: (z**3).sum(), x),
    lambda x, y: ag.engine(),
    lambda x, y: ag.offload(abs, 1).send(None),
    lambda x, y: ag.cooperate().send(None),
    lambda x, y: aiter(ag.utils.data.DataLoader(range(3))),
])  # fmt: skip
def test_what_would_be_awaited_is_refused_and_says_what_to_do(call):
    x, y = loss()

    async def main():
        call(x, y)

    with pytest.raises(RuntimeError, match=r"not on trio's.*trio.to_thread.run_sync"):
        trio.run(main)
    assert x.grad is None


def test_passes_may_block_in_threads_of_trios_and_where_they_are_told_to():
    async def main():
        x, y = loss()
        await trio.to_thread.run_sync(y.backward)
        with ag.blocking():
            (x * 2).sum().backward()
        with ag.no_grad():
            return (x.grad + 0).tolist()

    assert trio.run(main) == [4.0] * 3
    x, y = loss()
    y.backward()
    assert x.grad.tolist() == [2.0] * 3
