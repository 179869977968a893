"""`autograd.functional`, beside PyTorch's."""

import asyncio

import pytest
from parity import both

import asyncgrad as ag

F = ag.autograd.functional


def _x(T, *shape):
    size = 1
    for n in shape:
        size *= n
    return (T.arange(1.0, size + 1.0).reshape(shape) / 3).to(T.float64)


def _cubes(x):
    return (x * x * x).sum()


def _two(x, y):
    return (x * y).sum(0), x * 2 + y.sum()


def _mixed(x, y):
    return (x * x * y).sum() + (y.exp() * x).sum()


@both
def test_vjp(T, log):
    """Outputs and products, for one and several inputs and outputs."""
    f = T.autograd.functional
    x, y = _x(T, 2, 3), _x(T, 3)
    log((yield f.vjp(_cubes, x)))
    log((yield f.vjp(_two, (x, y), (_x(T, 3), _x(T, 2, 3)))))
    log((yield f.vjp(lambda x: x * 2, (x,), _x(T, 2, 3))))
    log((yield f.vjp(lambda x, y: x * 2, (x, y), _x(T, 2, 3))))


@both
def test_jvp(T, log):
    """The double-backward trick gives what forward mode would."""
    f = T.autograd.functional
    x, y = _x(T, 2, 3), _x(T, 3)
    log((yield f.jvp(_cubes, x, _x(T, 2, 3))))
    log((yield f.jvp(_two, (x, y), (_x(T, 2, 3), _x(T, 3)))))
    log((yield f.jvp(lambda x: x * 3, _x(T, 1))))
    log((yield f.jvp(lambda x, y: x.exp(), (x, y), (_x(T, 2, 3), _x(T, 3)))))


@both
def test_jacobian(T, log):
    """Structures follow inputs and outputs."""
    f = T.autograd.functional
    x, y = _x(T, 2, 3), _x(T, 3)
    log((yield f.jacobian(lambda x: x.exp().sum(1), x)))
    log((yield f.jacobian(lambda x: (x.exp().sum(1),), x)))
    log((yield f.jacobian(lambda x: x.exp().sum(1), (x,))))
    log((yield f.jacobian(_two, (x, y))))
    log((yield f.jacobian(lambda x, y: x * 2, (x, y))))
    log((yield f.jacobian(lambda x: x.sum(), T.tensor(2.0))))


@both
def test_hessian(T, log):
    """A tensor for one input, a tuple of tuples for several."""
    f = T.autograd.functional
    x, y = _x(T, 2, 3), _x(T, 3)
    log((yield f.hessian(_cubes, x)))
    log((yield f.hessian(_mixed, (x, y))))
    log((yield f.hessian(lambda x, y: (x**2).sum(), (x, y))))
    log((yield f.hessian(lambda x: (x**2).sum().reshape(1, 1), (x,))))


@both
def test_hessian_products(T, log):
    """From both sides."""
    f = T.autograd.functional
    x, y = _x(T, 2, 3), _x(T, 3)
    for name in ("vhp", "hvp"):
        log((yield getattr(f, name)(_cubes, x, _x(T, 2, 3) * 2)))
        log((yield getattr(f, name)(_mixed, (x, y), (_x(T, 2, 3), _x(T, 3)))))
        log((yield getattr(f, name)(_cubes, T.tensor([2.0]))))
        log((yield getattr(f, name)(lambda x, y: (x**2).sum(), (x, y), (x, y))))


@both
def test_results_are_differentiable_on_request(T, log):
    """`create_graph` leads on to the inputs, its absence to nothing."""
    f = T.autograd.functional
    for name, function, v in (
        ("vjp", _cubes, None),
        ("jvp", _cubes, (_x(T, 2, 3),)),
        ("vhp", _cubes, (_x(T, 2, 3),)),
        ("hvp", _cubes, (_x(T, 2, 3),)),
        ("jacobian", _cubes, ()),
        ("hessian", _cubes, ()),
    ):
        for create_graph in (False, True):
            x = _x(T, 2, 3).requires_grad_()
            result = yield getattr(f, name)(function, x, *(v or ()), create_graph=create_graph)
            product = result[1] if isinstance(result, tuple) else result
            log(name, product.requires_grad)
            if create_graph:
                log((yield T.autograd.grad((product * product).sum(), x)))


@both
def test_the_function_sees_new_tensors(T, log):
    """What it holds itself is a constant, and neither flag nor grad of the argument changes."""
    f = T.autograd.functional
    x = _x(T, 3).requires_grad_()
    log((yield f.jacobian(lambda z: z * x, x)))
    log((yield f.jacobian(lambda z: z * x, x, create_graph=True)))
    plain = _x(T, 3)
    yield f.vjp(_cubes, plain)
    log(plain.requires_grad, x.grad)
    with T.no_grad():
        part = x[1:]
        log((yield f.jacobian(_cubes, part, create_graph=True)))
        log((yield f.jacobian(_cubes, plain)))
        result = yield f.jacobian(_cubes, x, create_graph=True)
        log(result, result.requires_grad)


def _raised(log, call):
    """A step that notes the class of the error that a call or its await raises."""
    try:
        yield call()
    except Exception as error:
        log(error, _meaning(error))
    else:
        log("nothing raised")


def _meaning(error):
    text = str(error)
    known = (
        "must be either a Tensor or a tuple of Tensors",
        "v has invalid size",
        "v is a tuple of invalid length",
        "should contain a single Tensor",
        "vector v can only be None",
        "does not require gradients",
        "independent of",
        "should return a single Tensor",
        "contain a single element",
        "strategy",
    )
    return [phrase for phrase in known if phrase in text][:1]


@both
def test_arguments_are_checked(T, log):
    """PyTorch's classes and meanings."""
    f = T.autograd.functional
    x = _x(T, 2)
    for name in ("vjp", "jvp", "vhp", "hvp", "jacobian", "hessian"):
        function = getattr(f, name)
        yield from _raised(log, lambda: function(_cubes, [1.0]))  # noqa: B023  run at once
        yield from _raised(log, lambda: function(_cubes, (x, 2)))  # noqa: B023  run at once
        yield from _raised(log, lambda: function(lambda x: "no", x))  # noqa: B023  run at once
    for name in ("vhp", "hvp"):
        function = getattr(f, name)
        yield from _raised(log, lambda: function(lambda x: x * 2, x, x))  # noqa: B023  run at once
        yield from _raised(log, lambda: function(lambda x: (x.sum(), x), x, x))  # noqa: B023  run at once
        yield from _raised(log, lambda: function(_cubes, x))  # noqa: B023  run at once
        yield from _raised(log, lambda: function(_cubes, x, _x(T, 3)))  # noqa: B023  run at once
    yield from _raised(log, lambda: f.hessian(lambda x: x * 2, x))
    yield from _raised(log, lambda: f.hessian(lambda x: (x.sum(), x), x))
    yield from _raised(log, lambda: f.vjp(lambda x: x * 2, x))
    yield from _raised(log, lambda: f.vjp(lambda x: x * 2, x, _x(T, 3)))
    yield from _raised(log, lambda: f.vjp(lambda x: x * 2, x, (x, x)))
    yield from _raised(log, lambda: f.vjp(lambda x: (x, x), x, (x,)))
    yield from _raised(log, lambda: f.vjp(lambda x: (x, x), x, (x, _x(T, 3))))
    yield from _raised(log, lambda: f.jvp(lambda x: x * 2, x))
    yield from _raised(log, lambda: f.jvp(lambda x: x * 2, (x,), (x, x)))
    yield from _raised(log, lambda: f.jacobian(_cubes, x, strategy="sideways"))
    yield from _raised(log, lambda: f.jacobian(_cubes, x, strategy="forward-mode"))
    yield from _raised(
        log, lambda: f.jacobian(_cubes, x, strategy="forward-mode", strict=True, vectorize=True)
    )
    yield from _raised(
        log,
        lambda: f.jacobian(_cubes, x, strategy="forward-mode", create_graph=True, vectorize=True),
    )
    yield from _raised(log, lambda: f.hessian(_cubes, x, outer_jacobian_strategy="sideways"))
    yield from _raised(log, lambda: f.jacobian(_cubes, x, strict=True, vectorize=True))


@both
def test_strict_finds_independence(T, log):
    """An output without a gradient, an input without influence, a gradient without a function."""
    f = T.autograd.functional
    x = _x(T, 2)

    def detached(x):
        return x.detach().sum()

    def unused(x, y):
        return (x * x).sum()

    def linear(x):
        return x.sum()

    for strict in (False, True):
        for create_graph in (False, True):
            flags = {"strict": strict, "create_graph": create_graph}
            for name in ("vjp", "jvp", "vhp", "hvp", "jacobian", "hessian"):
                function = getattr(f, name)
                product = name in {"jvp", "vhp", "hvp"}
                one, two = ((x,), ((x, x),)) if product else ((), ())
                yield from _raised(log, lambda: function(detached, x, *one, **flags))  # noqa: B023  run at once
                yield from _raised(log, lambda: function(unused, (x, x), *two, **flags))  # noqa: B023  run at once
                yield from _raised(log, lambda: function(linear, x, *one, **flags))  # noqa: B023  run at once


async def _slow_cubes(x):
    await asyncio.sleep(0)
    return (x * x * x).sum()


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["vjp", "jacobian", "hessian"])
async def test_a_coroutine_function_is_awaited(name):
    """The loop goes on while it waits."""
    x = _x(ag, 3)
    found = await getattr(F, name)(_slow_cubes, x)
    expected = await getattr(F, name)(_cubes, x)
    for a, b in zip([*found], [*expected], strict=True):
        assert a.tolist() == b.tolist()


def test_a_coroutine_function_runs_without_a_loop_too():
    """On the portal's."""
    x = _x(ag, 3)
    assert F.hessian(_slow_cubes, x).tolist() == F.hessian(_cubes, x).tolist()


@pytest.mark.asyncio
async def test_calls_may_overlap():
    """Each is a future of its own."""
    x = _x(ag, 3)
    futures = [F.jacobian(_slow_cubes, x * n) for n in range(1, 4)]
    assert all(isinstance(future, asyncio.Future) for future in futures)
    rows = await asyncio.gather(*futures)
    assert [row.tolist() for row in rows] == [(3 * (x * n) ** 2).tolist() for n in range(1, 4)]


@pytest.mark.asyncio
async def test_unpacking_a_pending_call_says_what_to_do():
    """Instead of asyncio's riddle."""
    future = F.vjp(_cubes, _x(ag, 3))
    with pytest.raises(TypeError, match="await"):
        _, _ = future
    await future


@pytest.mark.asyncio
async def test_a_cancelled_call_ends_as_cancelled():
    """Where the user's function waits."""
    waiting = asyncio.Event()

    async def stuck(x):
        waiting.set()
        await asyncio.Event().wait()

    future = F.jacobian(stuck, _x(ag, 2))
    await waiting.wait()
    future.cancel()
    with pytest.raises(asyncio.CancelledError):
        await future


@pytest.mark.asyncio
async def test_blocking_refuses_a_function_that_waits():
    """Nobody could run the loop meanwhile."""
    with ag.blocking(), pytest.raises(RuntimeError, match="use await"):
        F.jacobian(_slow_cubes, _x(ag, 2))


def test_plain_results_can_be_awaited():
    """A library need not know whether a loop runs."""
    x = _x(ag, 2)

    async def main():
        with ag.blocking():
            return await F.jacobian(_cubes, x), await F.vjp(_cubes, x)

    row, (value, product) = asyncio.run(main())
    assert row.tolist() == product.tolist() == (3 * x * x).tolist()
    assert value.item() == pytest.approx(_cubes(x).item())


@pytest.mark.asyncio
async def test_sync_blocks_on_a_running_loop():
    """Plain results, though a loop runs."""
    x = _x(ag, 3)
    assert ag.sync.hessian(_cubes, x).tolist() == (await F.hessian(_cubes, x)).tolist()
    for name in ("vjp", "jvp", "vhp", "hvp"):
        v = () if name == "vjp" else (x,)
        assert isinstance(getattr(ag.sync, name)(_cubes, x, *v)[1], ag.Tensor)
    assert isinstance(ag.sync.jacobian(_cubes, x), ag.Tensor)
