"""What is held between the calls of a compiled function."""

import asyncio
import gc
import tracemalloc
import types

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.devices.pool import POOL
from asyncgrad.ops.fused import Once
from asyncgrad.ops.namespace import RECORDED
from asyncgrad.ops.table import linalg
from asyncgrad.replay import inlined
from asyncgrad.replay.steps import Compute, Place, Same

#: So many float32 numbers are in the pool's memory.
LARGE = 1 << 17


def test_a_recording_leaves_no_memory_in_the_pool():
    x = ag.ones(1 << 17)

    @ag.compile
    def chain(x):
        for _ in range(20):
            x = ag.sin(x) + 1
        return x.sum()

    POOL.shrink(0)
    chain(x)
    assert POOL.unused <= 1 << 20
    assert chain(x).item() == chain.__compiled__(x).item()
    assert "replayed 1 times" in chain.explain()


def test_a_result_takes_the_memory_of_an_operand_that_nothing_else_reads():
    """Also one that the caller gets: the operand is new in each replay."""
    w = ag.ones(4, 4)

    @ag.compile
    def layer(x):
        return ag.tanh(ag.cat([x, w]))

    inputs = [ag.ones(2, 4) * n for n in range(4)]
    found = [layer(x) for x in inputs]
    plan = layer._entries[0].program._plan
    assert len(plan.taken) == 1
    assert plan.kinds == []
    assert [y.tolist() for y in found] == [layer.__compiled__(x).tolist() for x in inputs]


def test_the_memory_of_a_weight_is_never_taken():
    """Not even if all else that shares it is left out, as here the values kept for a gradient."""
    w = ag.randn(4, 4, requires_grad=True)
    values = w.tolist()

    @ag.compile
    def scaled(x):
        ag.nn.functional.layer_norm(w, (4,))
        return (w * x).sin().detach()

    for _ in range(4):
        scaled(ag.ones(4, 4) * 2)
    assert w.tolist() == values
    assert "replayed 3 times" in scaled.explain()


def test_gradients_are_summed_as_soon_as_both_are_there():
    """Otherwise all of them would wait for the last."""
    x = ag.ones(3, requires_grad=True)

    @ag.compile
    def slope(y):
        return ag.grad((x.sin() + x.cos() + x.exp() + y).sum(), x)[0]

    found = [slope(ag.ones(3)).tolist() for _ in range(2)]
    assert found[0] == found[1]
    steps = [step.name for step in computations(slope)]
    sums = [number for number, name in enumerate(steps) if name == "add"]
    assert sums[-1] - sums[-2] > 1


def computations(function):
    """The computations of the one program of a function, in their order."""
    steps = function._entries[0].program._steps
    return [step for step in steps if step.__class__ is Compute]


def test_one_complex_number_is_not_multiplied_in_its_own_memory():
    """NumPy rounds such a product otherwise."""

    def products(x, y):
        return (x + 1) * y + 1, (x + 1).square() + 1, ag.conj(x) * (y + 1) + 1

    fast = ag.compile(products)
    random = ag.Generator()
    random.manual_seed(0)
    for _ in range(20):
        x, y = ag.randn(2, 1, 1, dtype=ag.complex128, generator=random)
        for found, wanted in zip(fast(x, y), products(x, y), strict=True):
            assert found.numpy().tobytes() == wanted.numpy().tobytes()
    assert "19 replayed" in fast.explain()


def same(found, wanted):
    """Whether results have the same bits."""
    if isinstance(found, ag.Tensor):
        return found.detach().numpy().tobytes() == wanted.detach().numpy().tobytes()
    return all(same(x, y) for x, y in zip(found, wanted, strict=True))


def test_large_arrays_of_a_replay_are_in_one_block():
    """Nothing else is held between the calls, and arrays of other sizes have the same place."""
    w = ag.randn(LARGE, requires_grad=True)

    def slope(x):
        long = ag.cat([w, x, w.sin()]).softmax(0)
        return ag.grad((long * long).sum() + (w * x).softmax(0).square().sum(), w)[0].sum()

    fast = ag.compile(slope)
    inputs = [ag.randn(LARGE) for _ in range(5)]
    POOL.shrink(0)
    found = [fast(x) for x in inputs]
    plan = fast._entries[0].program._block_plan
    assert POOL.unused == plan.size
    assert len(plan.turns) > 1
    assert same(found, [slope(x) for x in inputs])


def test_what_a_caller_keeps_is_written_to_by_no_later_replay():
    """Results, gradients, and what a hook has got now and then."""
    w = ag.randn(LARGE, requires_grad=True)
    kept = []

    def run(x, w, keep):
        hidden = ag.tanh(x * w)
        hidden.register_hook(lambda g: kept.append(g) if keep() else None)
        (hidden * hidden).softmax(0).sum().backward()
        return hidden.detach() * 2

    calls = iter([True, False, False, True, False, True, False])
    fast = ag.compile(lambda x: run(x, w, lambda: next(calls)))
    inputs = [ag.randn(LARGE) for _ in range(7)]
    results = []
    for x in inputs:
        w.grad = None
        results.append((fast(x), w.grad))
    wanted = []
    for x in inputs:
        other = w.detach().requires_grad_()
        wanted.append((run(x, other, lambda: True), other.grad))
    assert same(results, wanted)
    assert same(kept[:3], [kept[3], kept[6], kept[8]])


def test_replays_in_flight_have_blocks_of_their_own():
    """They wait for one another between their parts."""
    w = ag.randn(512, 512)

    async def slope(x):
        leaf = x.detach().requires_grad_()
        hidden = leaf
        for _ in range(4):
            hidden = ag.tanh(hidden @ w)
        return (await ag.grad(hidden.sum(), leaf))[0]

    fast = ag.compile(slope)
    inputs = [ag.randn(256, 512) for _ in range(6)]

    async def main():
        await fast(inputs[0])
        await fast(inputs[0])
        found = await asyncio.gather(*[fast(x) for x in inputs])
        return found, [await slope(x) for x in inputs]

    assert same(*asyncio.run(main()))
    assert "7 replayed" in fast.explain()


def test_the_gradient_by_the_input_comes_after_that_by_the_weight():
    """By then the input is free."""
    weights = [ag.randn(512, 512, requires_grad=True) for _ in range(2)]

    def slopes(x):
        first, second = weights
        return ag.grad(((x @ first).tanh() @ second).sum(), weights)

    fast = ag.compile(slopes)
    inputs = [ag.randn(256, 512) for _ in range(3)]
    found = [fast(x) for x in inputs]
    assert same(found, [slopes(x) for x in inputs])
    products = [step for step in computations(fast) if step.name == "MmBackward0"]
    assert [step.outs.shape for step in products[:2]] == [(512, 512), (256, 512)]


@pytest.mark.parametrize("seen", [False, True])
def test_a_gradient_that_nothing_else_reads_is_overwritten(seen):
    """By a kernel that says that it may; not where the caller gets the gradient, too."""

    def slopes(x):
        leaf = x.detach().requires_grad_()
        out = nn.functional.gelu(leaf)
        return ag.grad(out.square().sum(), [leaf, out] if seen else [leaf])

    fast = ag.compile(slopes)
    inputs = [ag.randn(3, LARGE) for _ in range(3)]
    found = [fast(x) for x in inputs]
    assert same(found, [slopes(x) for x in inputs])
    plan = fast._entries[0].program._plan
    (step,) = [step for step in computations(fast) if step.name == "GeluBackward0"]
    assert (step.outs in plan.taken) is not seen


@pytest.mark.parametrize("dtype", [ag.float32, ag.float64], ids=str)
@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("passes", [1, 2])
def test_a_kernel_leaves_what_its_gradient_is_multiplied_by(dtype, approximate, passes):
    """In its operand, if one rule alone reads that later; for numbers of all kinds."""

    def slopes(x, w):
        out = nn.functional.gelu(x * w, approximate=approximate)
        loss = (out * x).sum()
        found = [out.detach()]
        for number in range(passes):
            found += ag.grad(loss, w, retain_graph=number + 1 < passes)
        return found

    fast = ag.compile(slopes)
    x = ag.randn(2, LARGE, dtype=dtype)
    x[0, :6] = ag.tensor([0.0, -0.0, ag.inf, -ag.inf, ag.nan, 1e30])
    w = ag.ones(2, LARGE, dtype=dtype, requires_grad=True)
    for _ in range(4):
        assert same(fast(x, w), slopes(x, w))
    names = [step.name for step in computations(fast)]
    assert names.count("GeluBackward0") == passes
    rules = [step for step in computations(fast) if step.name == "GeluBackward0"]
    assert all((rule.function is np.multiply) is (passes == 1) for rule in rules)


@pytest.mark.parametrize("kind", ["seen", "strided", "half", "two formulas", "its own gradient"])
def test_a_rule_stays_that_no_kernel_can_replace(kind):
    def slopes(x, w):
        mid = x * w
        out = nn.functional.gelu(mid)
        if kind == "two formulas":
            # The kernel of the first one's rule is not needed for its value.
            nn.functional.gelu(mid, approximate="tanh").sum().backward()
            return out.detach(), w.grad
        if kind == "its own gradient":
            return *ag.grad(out, w, mid.detach()), out.detach()
        g = ag.ones_like(out).t().contiguous().t() if kind == "strided" else None
        loss = out if kind == "strided" else out.sum()
        (grad,) = ag.grad(loss, w, g)
        return (grad, mid.detach()) if kind == "seen" else grad

    def call(function):
        w.grad = None
        return function(x, w)

    fast = ag.compile(slopes)
    dtype = ag.float16 if kind == "half" else ag.float32
    x = ag.randn(1024, 512).to(dtype)
    w = ag.ones(1024, 512, dtype=dtype, requires_grad=True)
    for _ in range(4):
        assert same(call(fast), call(slopes))
    (rule,) = [step for step in computations(fast) if step.name == "GeluBackward0"]
    assert rule.function is not np.multiply


@pytest.mark.parametrize("passes", [1, 2])
def test_values_that_are_read_once_are_overwritten(passes):
    """Those of an LSTM's gates; not if a second pass reads them again."""
    lstm = nn.LSTM(16, 32)

    def slopes(x):
        loss = lstm(x)[0].square().sum()
        found = [ag.grad(loss, list(lstm.parameters()), retain_graph=passes > 1)]
        if passes > 1:
            found.append(ag.grad(loss, list(lstm.parameters())))
        return found

    fast = ag.compile(slopes)
    inputs = [ag.randn(20, 8, 16) for _ in range(3)]
    found = [fast(x) for x in inputs]
    assert same(found, [slopes(x) for x in inputs])
    makers = {step.function for step in computations(fast) if step.name == "list"}
    assert makers == {Once if passes == 1 else list}


def test_a_step_takes_less_memory_than_an_eager_one():
    """What is kept between the calls included."""
    ag.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))
    update = ag.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        update.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        update.step()
        return loss.detach()

    def peak(call):
        update.zero_grad()
        POOL.shrink(0)
        tracemalloc.start()
        for _ in range(4):
            call(x)
        tracemalloc.reset_peak()
        call(x)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    x = ag.randn(512, 256)
    assert peak(ag.compile(step)) < 0.75 * peak(step)


def test_small_arrays_of_constants_are_made_once():
    """The gradient of a sum is ones in each replay; larger arrays are not kept."""

    def slope(x):
        leaf = x.detach().requires_grad_()
        return ag.grad((leaf.tanh() * (ag.ones(1) * 2)).sum(), leaf)[0]

    fast = ag.compile(slope)
    for size, folds in ((8, True), (8, True), (5_000, False), (5_000, False)):
        x = ag.linspace(-1, 1, size)
        assert fast(x).tolist() == slope(x).tolist()
        if fast._entries[0].replays:
            names = [step.name for step in computations(fast)]
            assert ("SumBackward0" in names) is not folds


def test_constants_that_others_get_are_made_anew():
    """What the caller, a `.grad` or a function that is called anew has may be changed in place."""
    weight = nn.Parameter(ag.zeros(3))

    def step(x):
        weight.grad = None
        (weight * 2).sum().backward()
        twice = ag.ones(3) * 2
        weight.data = ag.ones(3) * 3
        return twice, twice.view(3, 1)[1:] * 1, weight.grad, (ag.ones(2) * 5)[:1], x + twice

    fast = ag.compile(step)
    for _ in range(4):
        found, expected = fast(ag.ones(3)), step(ag.ones(3))
        assert [part.tolist() for part in found] == [part.tolist() for part in expected]
        for part in (*found, weight.data):
            part.mul_(7)
    assert "1 recorded, 3 replayed" in fast.explain(), fast.explain()


def slope_of_layers(x, w):
    for _ in range(3):
        x = ag.tanh(x @ w) * 0.5
    return ag.grad(x.sum(), w)[0]


@pytest.fixture
def known(monkeypatch):
    """What programs share, empty at first."""
    monkeypatch.setattr(inlined, "_known", {})
    return inlined._known


def test_programs_share_what_rules_were_found_to_do(known, monkeypatch):
    """Those of other functions, too; what is known is bounded."""
    tried = []
    noted = inlined._noted
    monkeypatch.setattr(inlined, "_noted", lambda *args: tried.append(args) or noted(*args))
    x, w = ag.ones(2, 4), ag.full((4, 4), 0.1, requires_grad=True)
    counts = []
    for layers in (slope_of_layers, slope_of_layers, lambda x, w: slope_of_layers(x, w) * 2):
        fast = ag.compile(layers)
        for _ in range(2):
            assert fast(x, w).tolist() == layers(x, w).tolist()
        counts.append(len(tried))
    assert 0 < counts[0] == counts[1] < counts[2] < 2 * counts[0]
    monkeypatch.setattr(inlined, "_MOST", 2)
    fast = ag.compile(slope_of_layers)
    for rows in (3, 3, 4, 4):
        x = ag.ones(rows, 4)
        assert fast(x, w).tolist() == slope_of_layers(x, w).tolist()
        assert len(known) <= counts[2]
    assert len(known) <= 2


@pytest.mark.parametrize("rows", [0, 1, 5])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_layers_and_their_rules_become_products(rows, turned, bias):
    """And a sum of rows, if the arrays are matrices, of whatever layout."""
    weight, b = ag.randn(3, 4), ag.randn(3, requires_grad=True) if bias else None
    weight = (weight.t().contiguous().t().clone() if turned else weight).requires_grad_()

    def slopes(x):
        leaf = x.detach().requires_grad_()
        out = nn.functional.linear(leaf, weight, b)
        wanted = [leaf, weight] if b is None else [leaf, weight, b]
        return out.detach(), *ag.grad((out @ weight).square().sum(), wanted)

    fast = ag.compile(slopes)
    inputs = [ag.randn(rows, 4) for _ in range(3)]
    assert same([fast(x) for x in inputs], [slopes(x) for x in inputs])
    products = [step for step in computations(fast) if step.name == "mm"]
    # Forward two, and backward two of each; the bias's gradient.
    assert len(products) == 6 + bias
    buffers = fast._entries[0].program._plan.buffers
    # Without a bias the first is returned. Of an empty array any strides may be recorded.
    assert [x.outs in buffers for x in products[:2]] == [bias and rows > 0, rows > 0]
    x = ag.randn(2, rows, 4)
    assert same([fast(x) for _ in range(3)], [slopes(x) for _ in range(3)])


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("shape", [(128, 64), (256, 256)], ids=["turned", "first"])
def test_layers_whose_weight_goes_first_become_products_in_that_order(
    shape, columns, known, monkeypatch
):
    """With copies that are transposed in buffers of the program; a weight in columns goes second.

    The order of a product decides its bits. Of small products both operands are transposed.
    """
    monkeypatch.setattr(linalg, "_SMALL", 1 << 12)
    weight, bias = ag.randn(shape), ag.randn(shape[0])
    weight = weight.t().contiguous().t() if columns else weight

    def layer(x):
        return ag.tanh(nn.functional.linear(x, weight, bias)).sum()

    fast = ag.compile(layer)
    inputs = [ag.randn(16, shape[1]) for _ in range(3)]
    assert same([[fast(x)] for x in inputs], [[layer(x)] for x in inputs])
    steps = [step.name for step in computations(fast)]
    first = not columns and shape == (256, 256)
    copies = [] if columns else ["turned"]
    assert steps == [*copies, "mm", *(["turned"] if first else []), "add", "tanh", "sum"]
    (product,) = [step for step in computations(fast) if step.name == "mm"]
    assert product.arguments[not first].shape == shape


def test_a_rule_that_writes_to_its_argument_stays(known):
    """What is read there later would differ. A rule may overwrite what it has made itself."""
    argument, out = Place(np.ones(3)), Place(np.ones(3))
    argument.sample = out.sample = None

    def step(rule):
        return Compute("rule", rule, (Same(RECORDED), argument), out, 0)

    to_own = step(lambda F, g: np.negative(y := np.exp(g), y))
    assert [one.function for one in inlined.inlined([to_own])] == [np.exp, np.negative]
    to_argument = step(lambda F, g: np.negative(g, g))
    assert inlined.inlined([to_argument]) == [to_argument]


def test_programs_of_other_numbers_are_told_apart():
    """By type and sign, also if the numbers are equal."""
    nan = float("nan")
    x = ag.tensor([1.0, -2.0], requires_grad=True)
    for number in (0.0, -0.0, 0, False, 1, 1.0, True, nan, -nan):

        def product(x):
            y = x * number  # noqa: B023
            return y.detach(), *ag.grad(y.sum(), x)

        fast = ag.compile(product)
        for _ in range(2):
            for found, wanted in zip(fast(x), product(x), strict=True):
                assert found.numpy().tobytes() == wanted.numpy().tobytes()
        assert "replayed 1 times" in fast.explain()


def test_what_programs_share_holds_nothing_of_one_program(known):
    """Neither arrays nor what puts values into arrays, which each program has its own of."""

    def change(x, at):
        y = x * 2
        y[at] = 1.0
        y[1:].mul_(3)
        return ag.tanh(y)

    counts = []
    for _ in range(2):
        fast = ag.compile(change)
        for _ in range(2):
            fast(ag.ones(3), ag.tensor([0, 2]))
        assert "replayed 1 times" in fast.explain()
        counts.append(len(known))
    assert 0 < counts[0] == counts[1]
    todo, seen = [known], {}
    while todo:
        one = todo.pop()
        leads_on = isinstance(one, types.FunctionType | types.ModuleType | type)
        if id(one) not in seen and not leads_on:
            assert not isinstance(one, np.ndarray)
            seen[id(one)] = one
            todo += gc.get_referents(one)
