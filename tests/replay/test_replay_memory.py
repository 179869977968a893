"""What is held between the calls of a compiled function."""

import asyncgrad as ag
from asyncgrad.devices.pool import POOL
from asyncgrad.replay.steps import Compute


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
        return ag.tanh(x @ w)

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
