"""What transforms compute on the way is freed at once, with the cycle collector off."""

import asyncio
import weakref

import pytest

import asyncgrad as ag

F, A = ag.func, ag.autograd

CALLS = {
    "grad": lambda f, x: F.grad(f)(x),
    "vjp": lambda f, x: F.vjp(f, x)[0],
    "jvp": lambda f, x: F.jvp(f, (x,), (x,)),
    "jacrev": lambda f, x: F.jacrev(f)(x),
    "hessian": lambda f, x: F.hessian(f)(x),
    "vmap of grad": lambda f, x: F.vmap(F.grad(f))(ag.stack([x, x])),
    "grad of vmap": lambda f, x: F.grad(lambda x: F.vmap(f)(x).sum())(ag.stack([x, x])),
    "jacobian": lambda f, x: A.functional.jacobian(f, x),
    "hvp": lambda f, x: A.functional.hvp(f, x, x),
    "gradcheck": lambda f, x: A.gradcheck(f, x.detach().requires_grad_()),
}


def _watched(seen):
    def function(x):
        y = x.exp()
        seen.append(weakref.ref(y))
        return (y * y).sum()

    return function


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("name", CALLS)
def test_intermediate_tensors_die(name):
    """When the call returns."""
    seen = []
    CALLS[name](_watched(seen), ag.ones(3, dtype=ag.float64))
    assert seen
    assert not any(reference() is not None for reference in seen)


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("name", ["grad", "jacrev", "hessian", "vmap of grad", "jacobian", "hvp"])
def test_intermediate_tensors_die_on_a_loop(name):
    """Once the future has been awaited."""
    seen = []

    async def main():
        await CALLS[name](_watched(seen), ag.ones(3, dtype=ag.float64))
        await asyncio.sleep(0)
        assert not any(reference() is not None for reference in seen)

    asyncio.run(main())
    assert seen


@pytest.mark.usefixtures("no_collector")
def test_a_failed_call_keeps_nothing():
    """The error is all that is left."""
    seen = []

    def failing(x):
        _watched(seen)(x)
        raise ValueError("no")

    for call in (F.grad, F.jacrev, lambda f: F.vmap(F.grad(f))):
        with pytest.raises(ValueError, match="no"):
            call(failing)(ag.ones(2, 3))
    assert not any(reference() is not None for reference in seen)
