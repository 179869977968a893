"""`asyncgrad.sync.func`: transforms whose functions have ended when they return, on a loop, too."""

import asyncio

import pytest

import asyncgrad as ag

transforms = ag.sync.func
X = ag.tensor([1.0, 2.0, 3.0], dtype=ag.float64)


def _cube(x):
    return (x**3).sum()


CALLS = {
    "grad": (lambda: transforms.grad(_cube)(X), [3.0, 12.0, 27.0]),
    "grad_and_value": (lambda: transforms.grad_and_value(_cube)(X)[1], 36.0),
    "of one another": (
        lambda: transforms.grad(lambda x: transforms.grad(_cube)(x).sum())(X),
        [6.0, 12.0, 18.0],
    ),
    "vmap": (lambda: transforms.vmap(transforms.grad(lambda x: x**3))(X), [3.0, 12.0, 27.0]),
    "vjp": (lambda: transforms.vjp(lambda x: x * x, X)[1](X)[0], [2.0, 8.0, 18.0]),
    "jvp": (lambda: transforms.jvp(lambda x: x * x, (X,), (X,))[1], [2.0, 8.0, 18.0]),
    "linearize": (lambda: transforms.linearize(lambda x: x * x, X)[1](X), [2.0, 8.0, 18.0]),
    "jacrev": (lambda: transforms.jacrev(lambda x: x.sum())(X), [1.0, 1.0, 1.0]),
    "jacfwd": (lambda: transforms.jacfwd(lambda x: x.sum())(X), [1.0, 1.0, 1.0]),
    "hessian": (lambda: transforms.hessian(_cube)(X).diagonal(), [6.0, 12.0, 18.0]),
    "functional_call": (
        lambda: transforms.functional_call(
            ag.nn.Linear(3, 1, bias=False), {"weight": X.reshape(1, 3)}, (X,)
        ),
        [14.0],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_transform_has_ended_when_it_returns(name):
    """Without a loop, and on the thread of a running one."""
    call, expected = CALLS[name]
    assert call().tolist() == expected

    async def main():
        return call().tolist()

    assert asyncio.run(main()) == expected


def test_an_awaited_transform_takes_a_blocking_one():
    async def main():
        return (await ag.func.grad(transforms.grad(lambda x: x**3))(X[1])).item()

    assert asyncio.run(main()) == 12.0


def test_what_would_have_to_wait_is_refused_on_a_running_loop():
    async def slow(x):
        await asyncio.sleep(0)
        return x * x

    async def main():
        with pytest.raises(RuntimeError, match="use await"):
            transforms.grad(slow)(X[0])

    asyncio.run(main())


def test_every_transform_is_there():
    assert sorted(transforms.__all__) == sorted(ag.func.__all__)
