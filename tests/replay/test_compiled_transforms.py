"""Replays of what `ag.func` makes: the results and errors of eager calls, awaited, too."""

import asyncio

import pytest

import asyncgrad as ag
from asyncgrad import func, nn
from asyncgrad.errors import AutogradError

MODEL = nn.Linear(3, 3)
WEIGHTS = {name: part.detach() for name, part in MODEL.named_parameters()}


def energy(x):
    return (ag.tanh(x * 1.5) ** 2).sum()


def curve(x):
    return ag.tanh(x) * ag.exp(x)


def both(x):
    return energy(x), curve(x)


def loss(weights, x):
    return (func.functional_call(MODEL, weights, (x,)) ** 2).sum()


async def later(x):
    await asyncio.sleep(0)
    return energy(x)


async def awaited(x):
    return energy(x)


def pulled(x):
    out, pull = func.vjp(curve, x)
    return out, *pull(x)


def tangent(x):
    return func.jvp(curve, (x,), (x,))


MADE = {
    "grad": (func.grad(energy), 1),
    "grad_and_value": (func.grad_and_value(both, has_aux=True), 1),
    "grad_twice": (func.grad(lambda x: func.grad(energy)(x).sum()), 1),
    "vmap": (func.vmap(curve, in_dims=1, out_dims=1), 1),
    "vmap_of_grad": (func.vmap(func.grad(energy)), 1),
    "grad_of_weights": (func.grad(loss), 2),
    "per_sample": (func.vmap(func.grad(loss), in_dims=(None, 0)), 2),
    "jacrev": (func.jacrev(curve), 1),
    "jacfwd": (func.jacfwd(curve), 1),
    "hessian": (func.hessian(energy), 1),
    "jvp": (tangent, 1),
    "vjp": (pulled, 1),
    "coroutine": (func.grad(awaited), 1),
}


def leaves(value):
    """The tensors of a result, as bytes."""
    if isinstance(value, ag.Tensor):
        return [value.detach().numpy().tobytes(), value.shape, value.requires_grad]
    parts = value.values() if isinstance(value, dict) else value
    return [leaves(part) for part in parts]


def arguments(name, number):
    x = ag.randn(3, 3, generator=ag.Generator().manual_seed(number))
    return (WEIGHTS, x) if MADE[name][1] == 2 else (x,)


def check(fast):
    assert fast.explain().splitlines()[0].endswith("1 recorded, 4 replayed"), fast.explain()


@pytest.mark.parametrize("name", MADE)
def test_a_transform_is_replayed(name):
    """Bit for bit; what an eager call returns without a loop can be awaited, too."""
    made = MADE[name][0]
    fast = ag.compile(made)
    for number in range(5):
        given = arguments(name, number)
        found, wanted = fast(*given), made(*given)
        assert type(found) is type(wanted)
        assert leaves(found) == leaves(wanted)
    check(fast)


@pytest.mark.asyncio
@pytest.mark.parametrize("name", sorted(set(MADE) - {"vmap", "jvp", "vjp"}))
async def test_a_transform_is_awaited(name):
    """On an event loop it returns a future, as eagerly."""
    made = MADE[name][0]
    fast = ag.compile(made)
    for number in range(5):
        given = arguments(name, number)
        running = fast(*given)
        assert type(running) is type(eager := made(*given))
        assert leaves(await running) == leaves(await eager)
    check(fast)


@pytest.mark.asyncio
async def test_vmap_of_a_plain_function_is_not_awaited():
    """It behaves as any operation."""
    fast = ag.compile(func.vmap(curve))
    for _ in range(3):
        assert leaves(fast(ag.ones(2))) == leaves(curve(ag.ones(2)))
    assert "2 replayed" in fast.explain()


def test_a_coroutine_that_waits_is_recorded_on_the_portal():
    """Without a loop of the caller's it runs there, as eagerly."""
    made = func.grad(later)
    fast = ag.compile(made)
    for number in range(3):
        assert leaves(fast(ag.ones(3) * number)) == leaves(made(ag.ones(3) * number))


@pytest.mark.parametrize("waits", [False, True])
def test_errors_are_those_of_the_transform(waits):
    """Another output than a single number, a wrong argument."""
    fast = ag.compile(func.grad(lambda x: x * 2))
    right = ag.compile(func.grad(energy))

    async def main(function, *args):
        return await function(*args)

    def call(function, *args):
        return asyncio.run(main(function, *args)) if waits else function(*args)

    for _ in range(3):
        call(right, ag.ones(3))
        with pytest.raises(RuntimeError, match="scalar"):
            call(fast, ag.ones(3))
        with pytest.raises(AutogradError, match="only Tensors of floating point"):
            call(right, ag.ones(3, dtype=ag.int64))


def test_a_compiled_transform_within_transforms():
    """Other transforms see through it."""
    slope = ag.compile(func.grad(energy))
    x = ag.randn(4)
    for _ in range(3):
        assert leaves(func.vmap(slope)(x)) == leaves(func.vmap(func.grad(energy))(x))
        assert leaves(func.jacfwd(slope)(x)) == leaves(func.hessian(energy)(x))
        slope(x)


def test_a_change_of_what_a_transform_reads_is_followed():
    """Of a weight, in place, and of an outer variable."""
    scale = 2.0
    w = ag.ones(3)

    def scaled(x):
        return (x * w * scale).sum()

    made = func.grad(scaled)
    fast = ag.compile(made)
    for number in range(8):
        if number == 3:
            w.add_(1)
        if number == 6:
            scale = 3.0
        assert leaves(fast(ag.ones(3))) == leaves(made(ag.ones(3)))
    assert "2 recorded, 6 replayed" in fast.explain()


@pytest.mark.parametrize(
    "transform",
    [func.grad, func.hessian, lambda f: lambda x: func.vmap(func.grad(f))(x.expand(2, 3))],
)
@pytest.mark.parametrize("create_graph", [False, True])
def test_results_of_transforms_have_a_graph_to_weights(transform, create_graph):
    """Where the function reads weights that require grad, and x by a leaf that nobody sees."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    made = transform(lambda x: (model(x) ** 2).sum())
    fast = ag.compile(made)
    for number in range(4):
        found = []
        for call in (made, fast):
            x = (ag.arange(3.0) / (number + 1)).requires_grad_()
            loss = (call(x) ** 2).sum()
            if create_graph:
                slopes = ag.grad(loss, [x, *model.parameters()], create_graph=True)
                loss = sum((slope**2).sum() for slope in slopes)
            model.zero_grad()
            loss.backward()
            found.append(leaves([loss.detach(), x.grad, *[p.grad for p in model.parameters()]]))
        assert found[0] == found[1]
    assert "1 recorded, 3 replayed" in fast.explain(), fast.explain()


def test_tensors_that_share_an_array_are_told_apart():
    """A weight and what `detach` of it has returned; later they are two arrays."""
    model = nn.Linear(3, 3)
    kept = {name: part.detach() for name, part in model.named_parameters()}

    def against(weights, x):
        new = func.functional_call(model, weights, (x,))
        return (new - model.weight.detach().sum()).sum()

    def alone(weights, x):
        return func.functional_call(model, weights, (x,)).sum()

    for function in (against, alone):
        made = func.grad(function)
        fast = ag.compile(made)
        for number in range(6):
            if number == 3:
                kept = {name: part * 2 for name, part in kept.items()}
            x = ag.ones(2, 3) * number
            assert leaves(fast(kept, x)) == leaves(made(kept, x))
            assert leaves(ag.compile(function)(kept, x)) == leaves(function(kept, x))


@pytest.mark.parametrize("draw", [ag.rand_like, ag.randn_like, nn.functional.dropout])
def test_random_numbers_within_vmap(draw):
    """One draw for all items, of an argument that is a batch."""
    made = func.vmap(draw, randomness="same")
    fast = ag.compile(made)
    x = ag.ones(4, 3) / 2
    for seed in range(3):
        results = []
        for call in (made, fast):
            ag.manual_seed(seed)
            results.append(leaves(call(x)))
        assert results[0] == results[1]
