"""The recurrent entries of the table."""

import sys

import adjoint
import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.devices import pieces
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.table import recurrent

STEPS, BATCH, SIZE, FEATURES = 4, 3, 2, 5
RANDOM = np.random.default_rng(0)
#: By entry, the shapes of the inputs after the first two.
LAYERS = {
    "rnn_tanh": lambda n, size: [(size, size)],
    "rnn_relu": lambda n, size: [(size, size)],
    "lstm": lambda n, size: [(n, size), (4 * size, FEATURES), (4 * size, size), (4 * size,)],
    "gru": lambda n, size: [(3 * size, size), (3 * size,)],
}


def inputs(name, steps=STEPS, batch=BATCH, size=SIZE):
    rest = LAYERS[name](batch, size)
    last = FEATURES if name == "lstm" else rest[0][0]
    shapes = [(steps, batch, last), (batch, size), *rest]
    return [RANDOM.standard_normal(shape) for shape in shapes]


def attributes(name):
    return ([],) if name in {"lstm", "gru"} else ()


@pytest.mark.parametrize("steps", [STEPS, 1])
@pytest.mark.parametrize("name", LAYERS)
def test_entries_keep_the_tables_promises(name, steps):
    """The kernels give what the rules give: `check_entry` computes both."""
    adjoint.check_entry(name, tuple(inputs(name, steps)), attributes(name))


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_do_not_depend_on_which_are_wanted(name):
    values = inputs(name)
    weight = None
    every = None
    for wanted in [None, *range(len(values))]:
        leaves = [
            ag.from_numpy(x).requires_grad_(wanted is None or place == wanted)
            for place, x in enumerate(values)
        ]
        out = getattr(R, name)(*leaves, *attributes(name))
        if weight is None:
            weight = ag.from_numpy(RANDOM.standard_normal(out.shape))
        (out * weight).sum().backward()
        if wanted is None:
            every = leaves
        else:
            np.testing.assert_array_equal(leaves[wanted].grad.numpy(), every[wanted].grad.numpy())


@pytest.mark.parametrize("name", LAYERS)
def test_inputs_may_lie_in_memory_in_any_order(name):
    values = inputs(name)
    found = []
    for order in "CF":
        leaves = [ag.from_numpy(np.array(x, order=order)).requires_grad_() for x in values]
        out = getattr(R, name)(*leaves, *attributes(name))
        (out**2).sum().backward()
        found.append([out.detach(), *[leaf.grad for leaf in leaves]])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)


@pytest.mark.parametrize("name", LAYERS)
def test_graphs_can_be_kept(name):
    """The kernels leave what they are given as it is."""
    leaves = [ag.from_numpy(x).requires_grad_() for x in inputs(name)]
    out = (getattr(R, name)(*leaves, *attributes(name)) ** 2).sum()
    first = ag.grad(out, leaves, retain_graph=True)
    second = ag.grad(out, leaves, retain_graph=True)
    recorded = ag.grad(out, leaves, create_graph=True)
    for a, b, c in zip(first, second, recorded, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
        np.testing.assert_allclose(a.numpy(), c.detach().numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", LAYERS)
def test_recorded_passes_take_time_in_proportion_to_the_steps(name):
    def calls(steps):
        leaves = [ag.from_numpy(x).requires_grad_() for x in inputs(name, steps)]
        out = getattr(R, name)(*leaves, *attributes(name)).sum()
        made = 0

        def count(frame, event, _):
            nonlocal made
            made += event.endswith("call")

        sys.setprofile(count)
        try:
            ag.grad(out, leaves, create_graph=True)
        finally:
            sys.setprofile(None)
        return made

    calls(2)
    assert calls(160) < 5 * calls(40)


@pytest.mark.parametrize("size", [(5, 2), (32, 128)])
def test_the_halves_of_a_batch_give_what_all_its_rows_give(size, monkeypatch):
    """An engine's threads share long sequences of an LSTM."""
    batch, width = size
    values = inputs("lstm", recurrent._LONG, batch, width)
    found = []
    for threads in (0, 2):
        monkeypatch.setattr(pieces, "threads", threads)
        monkeypatch.setattr(recurrent, "_LARGE", 1)
        leaves = [ag.from_numpy(x).requires_grad_() for x in values]
        out = R.lstm(*leaves, [])
        out.square().sum().backward()
        found.append([out.detach(), *(leaf.grad for leaf in leaves)])
    for whole, halves in zip(*found, strict=True):
        np.testing.assert_allclose(halves.numpy(), whole.numpy(), 1e-9, 1e-12)


def test_an_engine_changes_no_bits_of_gradients(monkeypatch):
    """Products of some steps are added up, whether another thread computes them or not."""
    monkeypatch.setattr(recurrent, "_PART", 1)
    monkeypatch.setattr(recurrent, "_ROWS", 1)
    values = inputs("lstm", 40, 5, 16)
    found = []
    for threads in (0, 2):
        monkeypatch.setattr(pieces, "threads", threads)
        leaves = [ag.from_numpy(x).requires_grad_() for x in values]
        R.lstm(*leaves, []).square().sum().backward()
        found.append([leaf.grad.numpy().tobytes() for leaf in leaves])
    assert found[0] == found[1]


@pytest.mark.parametrize("batch", [1, 7, 600])
def test_products_of_several_steps_have_many_rows(batch):
    """To add up products of a few rows took as long as to compute them."""
    *parts, _ = recurrent._parts(np, 2000, batch, 1 << 30)
    assert all(batch * (part.stop - part.start) >= recurrent._ROWS for part in parts)


@pytest.mark.parametrize("name", LAYERS)
def test_second_derivatives_fill_few_arrays_as_large_as_the_sequence(name):
    """Where each step is a part of the sequence itself, its gradient is put into one such array."""

    def elements(steps):
        leaves = [ag.from_numpy(x).requires_grad_() for x in inputs(name, steps)]
        out = getattr(R, name)(*leaves, *attributes(name))
        todo = [x.grad_fn for x in ag.autograd.grad(out.sum(), leaves, create_graph=True)]
        seen = set()
        while todo:
            node = todo.pop()
            if node is not None and node not in seen:
                seen.add(node)
                todo += [edge for edge, _ in node.next_functions]
        parts = [n for n in seen if n.name() in {"SelectBackward0", "SliceBackward0"}]
        return sum(np.prod(node._saved_self_sym_sizes) for node in parts)

    assert elements(160) < 6 * elements(40)
