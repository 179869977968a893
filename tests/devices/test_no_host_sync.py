"""Functions are put into streams without a look at what is there: that would hold the loop."""

import pytest

import asyncgrad as ag
from asyncgrad.testing import simulate
from benchmarks.functions import CASES, Sizes, arguments

#: Functions of a float tensor of shape (4, 4), two places and a mask.
QUIET = {
    "take": lambda x, at, mask: ag.take(x, at - 2),
    "index_fill": lambda x, at, mask: x.index_fill(0, at, 9.0),
    "index_copy": lambda x, at, mask: x.index_copy(0, at, x[2:]),
    "index_add": lambda x, at, mask: x.index_add(0, at, x[2:]),
    "index_select": lambda x, at, mask: x.index_select(1, at),
    "gather": lambda x, at, mask: x.gather(1, at[None]),
    "masked_scatter": lambda x, at, mask: x.masked_scatter(mask, x.flip(0)),
    "masked_fill": lambda x, at, mask: x.masked_fill(mask, 3.0),
    "a number at a mask": lambda x, at, mask: changed(x, mask, 3.5),
    "a number at a mask of integers": lambda x, at, mask: changed((x * 4).long(), mask, 3.5),
    "a number at a mask of a row": lambda x, at, mask: changed(x[1], mask[1], 0),
    "a number at places": lambda x, at, mask: changed(x, at, 0.5),
    "division of integers": lambda x, at, mask: (at + 5) // (at + 1) + (at + 5) % (at + 1),
    "where": lambda x, at, mask: ag.where(mask, x, 0.0),
    "one_hot": lambda x, at, mask: ag.nn.functional.one_hot(at, 4),
    "bernoulli": lambda x, at, mask: seeded(lambda: ag.bernoulli(x)),
    "multinomial": lambda x, at, mask: seeded(lambda: ag.multinomial(x + 0.1, 3)),
    "multinomial of a vector": lambda x, at, mask: seeded(lambda: ag.multinomial(x[1], 2)),
    "multinomial with replacement": lambda x, at, mask: seeded(
        lambda: ag.multinomial(ag.where(mask, x, 0.0)[1:], 9, replacement=True)
    ),
    "clip_grad_norm_": lambda x, at, mask: clipped(x),
}


def changed(x, at, value):
    x = x.clone()
    x[at] = value
    return x


def seeded(draw):
    ag.manual_seed(3)
    return draw()


def clipped(x):
    leaf = x.clone().requires_grad_()
    leaf.grad = x * 100
    ag.nn.utils.clip_grad_norm_([leaf], 1.0)
    return leaf.grad


@pytest.mark.parametrize("name", QUIET)
def test_nobody_looks(name):
    x = ag.arange(16.0).reshape(4, 4) / 16
    arguments = (x, ag.tensor([2, 0]), x > 0.3)
    with simulate(devices=1, latency=1.0) as machine:
        there = [a.to("sim:0") for a in arguments]
        ag.accelerator.synchronize()
        before = machine.blocked
        found = QUIET[name](*there)
        assert machine.blocked == before
        expected = QUIET[name](*arguments)
        assert found.dtype == expected.dtype
        assert ag.allclose(found.cpu().double(), expected.double())


def test_a_division_by_zero_that_needs_no_look_is_refused():
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        ag.tensor([5], device="sim:0") % 0


def test_gradients_of_what_a_mask_scatters():
    found = []
    for device in ("cpu", "sim:0"):
        x = ag.zeros(2, 3, device=device, requires_grad=True)
        values = ag.arange(1.0, 5.0, device=device).requires_grad_()
        mask = ag.tensor([[True, False, True], [False, True, False]]).to(device)
        (x.masked_scatter(mask, values) ** 2).sum().backward()
        found.append((x.grad.tolist(), values.grad.tolist()))
    assert found[0] == found[1]


def test_counts_on_a_device_say_how_often():
    x = ag.arange(3.0, device="sim:0")
    assert x.repeat_interleave(ag.tensor([1, 0, 2], device="sim:0")).tolist() == [0.0, 2.0, 2.0]
    assert ag.repeat_interleave(ag.tensor([1, 2], device="sim:0")).tolist() == [0, 1, 1]


#: Functions of benchmarks that have to look, as they say.
_LOOKS = {
    "scatter (multiply)", "normal (tensors)", "poisson", "binomial", "item", "tolist", "numpy",
}  # fmt: skip
#: Layers, whose parameters are on the CPU.
_LAYERS = {"nn.RNN", "nn.LSTM", "nn.GRU", "nn.RNN (relu)"}
_SIZES = Sizes(512, 128, 2, (2, 2, 256, 64), (4, 8, 64, 64), (4, 4, 4096))


def test_large_arrays_are_not_looked_at_either():
    """What is done block by block on the host is not done so here, forward and backward."""
    for case in CASES:
        if case.name in _LOOKS | _LAYERS:
            continue
        given, others = arguments(case, _SIZES)
        with simulate(devices=1, latency=1.0) as machine:
            there = [ag.tensor(array, device="sim:0") for array in given + others]
            leaves = [x.requires_grad_() for x in there[: len(given)]]
            before = machine.blocked
            made = case.call(ag, ag.nn.functional, *there)
            made = made if isinstance(made, (tuple, list)) else [made]
            made = [x for x in made if getattr(x, "requires_grad", False)]
            if made:
                ones = [ag.ones_like(x) for x in made]
                ag.grad(made, leaves, ones, allow_unused=True)
            # The pass itself waits, once.
            assert machine.blocked - before <= bool(made), case.name
