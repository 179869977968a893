"""Under trio's loop asyncgrad says that it needs asyncio's, and blocks only where it is told to."""

import pytest

import asyncgrad as ag

trio = pytest.importorskip("trio", reason="trio is not installed")


def loss():
    x = ag.ones(3, requires_grad=True)
    return x, (x * x).sum()


def of(x):
    return (x**3).sum()


functional = ag.autograd.functional


@pytest.mark.parametrize(("name", "call"), [
    ("backward", lambda x, y: y.backward()),
    ("backward", lambda x, y: ag.autograd.backward(y)),
    ("backward", lambda x, y: (x * x).sum().backward(inputs=[x])),
    ("grad", lambda x, y: ag.grad(y, x)),
    ("grad", lambda x, y: ag.grad(y, {"x": x}, create_graph=True)),
    ("grad", lambda x, y: ag.func.grad(of)(x)),
    ("grad_and_value", lambda x, y: ag.func.grad_and_value(of)(x)),
    ("vjp", lambda x, y: ag.func.vjp(of, x)),
    ("jvp", lambda x, y: ag.func.jvp(of, (x,), (x,))),
    ("linearize", lambda x, y: ag.func.linearize(of, x)),
    ("jacrev", lambda x, y: ag.func.jacrev(of)(x)),
    ("jacfwd", lambda x, y: ag.func.jacfwd(of)(x)),
    ("hessian", lambda x, y: ag.func.hessian(of)(x)),
    ("vmap", lambda x, y: ag.func.vmap(ag.func.grad(of))(x)),
    ("jacobian", lambda x, y: functional.jacobian(of, x)),
    ("hessian", lambda x, y: functional.hessian(of, x)),
    ("vjp", lambda x, y: functional.vjp(of, x)),
    ("jvp", lambda x, y: functional.jvp(of, x, x)),
    ("vhp", lambda x, y: functional.vhp(of, x, x)),
    ("hvp", lambda x, y: functional.hvp(of, x, x)),
    ("backward", lambda x, y: ag.compile(lambda: (x * x).sum().backward())()),
    ("engine", lambda x, y: ag.engine()),
    ("offload", lambda x, y: ag.offload(abs, 1).send(None)),
    ("cooperate", lambda x, y: ag.cooperate().send(None)),
    ("DataLoader", lambda x, y: aiter(ag.utils.data.DataLoader(range(3)))),
])  # fmt: skip
def test_what_would_be_awaited_is_refused_and_says_what_to_do(name, call):
    """By the name of the function that was called."""
    x, y = loss()

    async def main():
        call(x, y)

    with pytest.raises(RuntimeError, match=rf"^{name}: .*not on trio's.*trio.to_thread.run_sync"):
        trio.run(main)
    assert x.grad is None


@pytest.mark.parametrize(("name", "call"), [
    ("engine", lambda: ag.engine()),
    ("offload", lambda: ag.offload(abs, 1).send(None)),
    ("cooperate", lambda: ag.cooperate().send(None)),
    ("DataLoader", lambda: anext(aiter(ag.utils.data.DataLoader(range(3)))).send(None)),
])  # fmt: skip
def test_what_needs_a_loop_says_so_by_its_name_where_none_runs(name, call):
    with pytest.raises(RuntimeError, match=rf"^{name}\(\): no running event loop"):
        call()


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
