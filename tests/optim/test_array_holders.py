"""Steps meet graphs that have not run yet: they keep the values they were built with."""

import asyncio
import copy
import pickle
import threading

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.core.array_holders import rebind
from asyncgrad.optim import SGD, Adagrad, Adam, AdamW, RMSprop, turns

# Who holds what does not depend on when cycles are collected.
pytestmark = pytest.mark.usefixtures("no_collector")

OPTIMIZERS = {
    "sgd": lambda params: SGD(params, lr=0.5, momentum=0.9),
    "adam": lambda params: Adam(params, lr=0.5, amsgrad=True),
    "adamw": lambda params: AdamW(params, lr=0.5),
    "rmsprop": lambda params: RMSprop(params, lr=0.5),
    "adagrad": lambda params: Adagrad(params, lr=0.5),
}


def parameter(*values):
    return nn.Parameter(ag.tensor(values or (1.0, 2.0)))


def memory(p):
    return p._array.__array_interface__["data"][0]


def step(optimizer, p):
    p.grad = ag.ones(p.shape, dtype=p.dtype)
    optimizer.step()


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_graph_keeps_its_values(make):
    p, x = parameter(), ag.tensor([3.0, 4.0], requires_grad=True)
    loss = (p * p * x).sum()
    optimizer = make([p])
    before = p.tolist()
    array = p._array
    step(optimizer, p)
    assert p._array is not array
    assert array.tolist() == before != p.tolist()
    p.grad = None
    loss.backward()
    assert p.grad.tolist() == [6.0, 16.0]
    assert x.grad.tolist() == [1.0, 4.0]


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_both_ways_of_a_step_give_the_same(make):
    held, free = parameter(), parameter()
    first, second = make([held]), make([free])
    for _ in range(4):
        loss = (held * held).sum()
        step(first, held)
        step(second, free)
        del loss
    assert held.tolist() == free.tolist()
    assert held._version == free._version == 4


def graph_of(p):
    """Graphs that hold a parameter's values, each in another way."""
    x = ag.ones(2, 2, requires_grad=True)

    class Square(ag.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * x * g

    return {
        "product": lambda: (x @ p).sum(),
        "pair": lambda: (x * p).sum(),
        "power": lambda: (p**3).sum(),
        "transposed": lambda: (x @ p.reshape(1, 2).T).sum(),
        "linear": lambda: nn.functional.linear(x, p.reshape(1, 2)).sum(),
        "part": lambda: (p[:1] * x).sum(),
        "function": lambda: Square.apply(p).sum(),
        "detached": lambda: (x * p.detach()).sum(),
    }


@pytest.mark.parametrize("name", graph_of(None))
def test_who_saves_holds_until_it_has_run(name):
    p = parameter()
    optimizer = SGD([p], lr=0.5)
    loss = graph_of(p)[name]()
    at = p._array.copy()
    expected = None if name == "detached" else ag.grad(loss, p, retain_graph=True)[0].tolist()
    array = p._array
    step(optimizer, p)
    assert p._array is not array
    np.testing.assert_array_equal(array, at)
    p.grad = None
    loss.backward()
    if expected is not None:
        assert p.grad.tolist() == expected
    # The loss is still there, and with it the nodes, which have given up what they had saved.
    array = p._array
    step(optimizer, p)
    assert p._array is array


def test_nobody_who_needs_the_old_values_makes_a_copy():
    p = parameter()
    optimizer = Adam([p])
    alias, view, array = p.detach(), p.view(2, 1), p.detach().numpy()
    with ag.no_grad():
        other = p[:1]
        p.add_(1)
    further = [alias.detach(), alias.view(2, 1), view.detach(), view.detach()[:1]]
    total = (p + 1).sum()
    where = memory(p)
    step(optimizer, p)
    assert memory(p) == where
    assert alias.tolist() == p.tolist() == array.tolist()
    assert other.tolist() == p.tolist()[:1]
    assert view.tolist() == [[v] for v in p.tolist()]
    for one in further:
        assert one.flatten().tolist() == p.tolist()[: one.numel()]
    total.backward()


def test_memory_that_is_given_to_a_parameter_is_shared():
    data = ag.tensor([1.0, 2.0])
    p = nn.Parameter(data)
    other, buffer = nn.Parameter(p.detach()), nn.Buffer(p.detach())
    step(SGD([p], lr=1.0), p)
    assert data.tolist() == p.tolist() == other.tolist() == buffer.tolist() == [0.0, 1.0]


def test_a_training_loop_works_in_place():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = Adam(model.parameters())
    arrays = [p._array for p in model.parameters()]
    state = model.state_dict()
    for _ in range(3):
        optimizer.zero_grad()
        loss = (model(ag.ones(2, 3)) ** 2).sum()
        loss.backward()
        optimizer.step()
    assert all(p._array is a for p, a in zip(model.parameters(), arrays, strict=True))
    assert all((state[n] == p).all() for n, p in model.named_parameters())


def test_a_leaf_that_is_a_view_is_changed_in_place():
    base = ag.zeros(2, 2)
    row = base[0].requires_grad_()
    loss = (row * row).sum()
    step(SGD([row], lr=1.0), row)
    assert base.tolist() == [[-1.0, -1.0], [0.0, 0.0]]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_retained_graphs_go_on_holding():
    p = parameter()
    optimizer = SGD([p], lr=0.5)
    loss = (p * p).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    p.grad = None
    loss.backward()
    assert p.grad.tolist() == [2.0, 4.0]


def test_changes_by_hand_are_refused_as_ever():
    p = parameter()
    loss = (p * p).sum()
    with ag.no_grad():
        p.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_second_derivatives_are_taken_at_the_old_values():
    p = parameter()
    (g,) = ag.grad((p**3).sum(), p, create_graph=True)
    step(SGD([p], lr=0.5), p)
    assert ag.grad(g.sum(), p)[0].tolist() == [6.0, 12.0]


def test_second_derivatives_notice_changes_by_hand():
    """What a recorded pass saves is watched as what was saved before it."""
    x = ag.tensor([1.0, 2.0], requires_grad=True)
    y = x * 1
    (g,) = ag.grad((y**3).sum(), x, create_graph=True)
    y.detach().mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        ag.grad(g.sum(), x)


@pytest.mark.asyncio
async def test_a_step_meets_the_queued_pass_of_another_task():
    p = parameter()
    optimizer = SGD([p], lr=0.5)
    built, stepped = asyncio.Event(), asyncio.Event()

    async def slow():
        loss = (p * p).sum()
        built.set()
        await stepped.wait()
        return await ag.grad(loss, p)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(slow())
        await built.wait()
        step(optimizer, p)
        stepped.set()
    assert task.result()[0].tolist() == [2.0, 4.0]
    assert p.tolist() == [0.5, 1.5]


@pytest.mark.asyncio
async def test_a_step_in_a_thread_shows_when_it_is_complete():
    """Until then other tasks see the old values, and no mixture."""
    large = [nn.Parameter(ag.ones(300, 300)) for _ in range(3)]
    optimizer = SGD(large, lr=1.0)
    for p in large:
        p.grad = ag.ones(300, 300)
    seen = []
    update = optimizer._update

    def watched(group, p, gradient):
        update(group, p, gradient)
        seen.append([q._array[0, 0] for q in large])

    optimizer._update = watched
    await optimizer.step_async()
    assert seen == [[1.0] * 3] * 3
    assert [p._array[0, 0] for p in large] == [0.0] * 3
    assert [p._version for p in large] == [1] * 3


@pytest.mark.asyncio
async def test_a_step_in_a_thread_is_shown_by_the_loop(monkeypatch):
    """Whose other tasks would see a mixture if it came in the middle of one of theirs."""
    p = nn.Parameter(ag.ones(1_000_000))
    p.grad = ag.ones(1_000_000)
    where = []

    def noting(arrays):
        where.append(threading.get_ident())
        rebind(arrays)

    monkeypatch.setattr(turns, "rebind", noting)
    await SGD([p], lr=1.0).step_async()
    assert where == [threading.get_ident()]
    assert p._array[0] == 0.0


# -- snapshots ------------------------------------------------------------------------------------


class Slow(nn.Module):
    """Uses its weights before and after something it waits for."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(1, 1, bias=False)
        self.second = nn.Linear(1, 1, bias=False)
        for layer in (self.first, self.second):
            nn.init.ones_(layer.weight)

    async def forward(self, x, before, after):
        hidden = self.first(x)
        before.set()
        await after.wait()
        return self.second(hidden)


async def run(snapshot):
    """The output and gradients of a forward pass that another task's step comes between."""
    model = Slow()
    optimizer = SGD(model.parameters(), lr=0.5)
    before, after = asyncio.Event(), asyncio.Event()

    async def forward():
        x = ag.ones(1, 1)
        if snapshot:
            with model.snapshot():
                out = await model(x, before, after)
        else:
            out = await model(x, before, after)
        for p in model.parameters():
            p.grad = None
        await out.sum().backward()
        return out.item()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(forward())
        await before.wait()
        for p in model.parameters():
            p.grad = ag.ones(1, 1)
        optimizer.step()
        after.set()
    return task.result(), [p.grad.item() for p in model.parameters()], model


@pytest.mark.asyncio
async def test_a_forward_pass_sees_one_set_of_weights():
    out, grads, model = await run(snapshot=True)
    assert (out, grads) == (1.0, [1.0, 1.0])
    assert [p.item() for p in model.parameters()] == [0.5, 0.5]
    mixed, grads, _ = await run(snapshot=False)
    assert (mixed, grads) == (0.5, [0.5, 1.0])


@pytest.mark.asyncio
async def test_snapshots_belong_to_tasks():
    model = nn.Linear(1, 1, bias=False)
    entered, stepped = asyncio.Event(), asyncio.Event()
    nn.init.ones_(model.weight)

    async def child():
        return model.weight.item()

    async def other():
        with model.snapshot():
            entered.set()
            await stepped.wait()
            inner = await asyncio.create_task(child())
            return model.weight.item(), inner

    task = asyncio.create_task(other())
    await entered.wait()
    step(SGD(model.parameters(), lr=0.5), model.weight)
    assert model.weight.item() == 0.5
    stepped.set()
    assert await task == (1.0, 1.0)
    assert model.weight.item() == 0.5


def test_the_parameters_of_a_snapshot_stand_for_the_real_ones():
    model = nn.Linear(2, 1)
    model.weight.note = "mine"
    real = model.weight
    accumulator = ag.autograd.graph.get_gradient_edge(real).node
    with model.snapshot():
        taken = model.weight
        assert isinstance(taken, nn.Parameter)
        assert taken is not real
        assert taken.note == "mine"
        assert taken.requires_grad
        assert taken.is_leaf
        assert next(model.parameters()) is real
        loss = model(ag.ones(1, 2)).sum()
    assert model.weight is real
    loss.backward()
    assert real.grad.tolist() == [[1.0, 1.0]]
    assert accumulator.variable is real


def test_outer_snapshots_hold_within_inner_ones():
    model = nn.Sequential(nn.Linear(1, 1, bias=False))
    nn.init.ones_(model[0].weight)
    optimizer = SGD(model.parameters(), lr=0.5)
    with model.snapshot():
        step(optimizer, next(model.parameters()))
        with model[0].snapshot():
            assert model[0].weight.item() == 1.0
        assert model[0].weight.item() == 1.0
    assert model[0].weight.item() == 0.5


def test_after_a_snapshot_nobody_holds():
    model = nn.Linear(1, 1)
    optimizer = SGD(model.parameters(), lr=0.5)
    with model.snapshot():
        model.weight  # noqa: B018  looked up
    array = model.weight._array
    step(optimizer, model.weight)
    assert model.weight._array is array


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_modules_are_copied_after_a_snapshot_and_within(duplicate):
    model = nn.Linear(1, 1)
    with model.snapshot():
        other = duplicate(model)
    for twin in (other, duplicate(model)):
        assert twin.weight is not model.weight
        assert twin.weight.item() == model.weight.item()
