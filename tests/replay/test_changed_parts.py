"""Tensors that a compiled call makes, changed in place: whole, in part, and by mask or index."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay_counts import replays

import asyncgrad as ag
from asyncgrad import nn

ROWS, COLUMNS = 4, 6


def bits(result):
    """Results that can be compared bit by bit."""
    return [(part.detach().numpy().tobytes(), tuple(part.shape)) for part in result]


def outcome(function, x):
    """What a call with a copy returns, or its error."""
    try:
        return bits(function(x.clone()))
    except RuntimeError as error:
        return str(error)


def rows_of_states(x, net):
    state, out = x[0], ag.empty(ROWS, COLUMNS)
    for step in range(ROWS):
        state = ag.tanh(net(state + x[step]))
        out[step] = state
    return out, out.sum()


def positions(x, net):
    table, places = ag.zeros(ROWS, COLUMNS), ag.arange(ROWS).float()[:, None]
    table[:, 0::2], table[:, 1::2] = ag.sin(places), ag.cos(places)
    return (net(x + table),)


def masks(x, net):
    mask = ag.ones(ROWS, ROWS, dtype=ag.bool)
    for row in range(ROWS):
        mask[row, : row + 1] = False
    scores = net(x) @ x.T
    scores[mask] = float("-inf")
    return (scores.softmax(-1),)


def swapped(x, net):
    y = net(x)
    first = y[0]
    y[0], y[1] = y[1].clone(), first.clone()
    y[[2, 3]] = x[:2]
    y.T[1].mul_(3)
    return first * 1, y


def picked(x, net):
    y = net(x) * 1
    y[1, ag.tensor([0, 2, 4])] = x[0, :3]
    y[ag.arange(3), ag.arange(3)] += 1
    return (y * y,)


def normed(x, net):
    """The norms return views of what their kernels make."""
    y = net(x).reshape(2, 2, COLUMNS)
    y = nn.functional.leaky_relu(nn.functional.instance_norm(y), 0.2, inplace=True)
    y = nn.functional.batch_norm(y, None, None, training=True).reshape(ROWS, COLUMNS)
    y[0].mul_(2)
    return (y * y,)


PROGRAMS = [rows_of_states, positions, masks, swapped, picked, normed]


@pytest.mark.parametrize("program", PROGRAMS)
def test_usual_programs(program):
    """With the gradients of what they return, in one program."""
    ag.manual_seed(1)
    net = nn.Linear(COLUMNS, COLUMNS)

    def function(x):
        out = program(x, net)
        found = [part for part in out if part.requires_grad]
        total = sum((part * part).nan_to_num(0, 0, 0).sum() for part in found)
        gradients = ag.grad(total, tuple(net.parameters()))
        return *[part.detach() for part in out], *gradients

    fast = ag.compile(function, fullgraph=True)
    for number in range(3):
        x = ag.randn(ROWS, COLUMNS) * (number + 1)
        assert bits(fast(x)) == bits(function(x))
    assert replays(fast) == 2


def test_what_the_caller_gets_is_not_changed_by_later_replays():
    def function(x):
        out = ag.zeros(2, 3)
        row = out[0]
        out[0] = x
        return out, row * 1

    fast = ag.compile(function, fullgraph=True)
    held = [fast(ag.full((3,), float(number))) for number in range(4)]
    for number, (out, row) in enumerate(held):
        assert out.tolist() == [[number] * 3, [0] * 3]
        assert row.tolist() == [number] * 3
        out[0] = 9.0
    assert fast(ag.ones(3))[0].tolist() == [[1] * 3, [0] * 3]


def test_the_result_of_a_pool_that_was_changed_is_computed_again():
    """Its gradient asks where each maximum was, and so needs the values before the change."""

    def function(x):
        y = nn.functional.max_pool2d(x[None], 2).mul_(x.mean())
        return ag.grad((y * y).sum(), x)

    fast = ag.compile(function, fullgraph=True)
    for number in range(3):
        x = (ag.randn(ROWS, COLUMNS) + number).requires_grad_()
        assert bits(fast(x)) == bits(function(x))
    assert replays(fast) == 2


INDICES = st.one_of(
    st.integers(0, ROWS - 1),
    st.tuples(st.integers(0, ROWS - 1), st.integers(0, COLUMNS - 1)),
    st.sampled_from([
        slice(None), slice(1, 3), slice(0, 4, 2), (slice(None), 1), (slice(1, 3), slice(0, 5, 3)),
        (Ellipsis, slice(2, 4)), None,
    ]),
)  # fmt: skip
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["view", "fill", "copy", "add", "scale", "mask", "put", "read", "turn"]),
        st.integers(0, 30),
        INDICES,
        st.integers(0, 30),
    ),
    min_size=1,
    max_size=12,
)


def run(steps, start, x, net):
    """Do random steps with a list of tensors; what can't be done is left out."""
    base = {"zeros": ag.zeros(ROWS, COLUMNS), "clone": x.clone(), "layer": net(x)}[start]
    known = [base, x]
    for name, which, index, other in steps:
        tensor, second = known[which % len(known)], known[other % len(known)]
        fits = tensor.ndim == 2 and tensor.shape == (ROWS, COLUMNS)
        if name == "turn":
            known.append(tensor.T if tensor.ndim == 2 else tensor.reshape(-1))
        elif name == "scale":
            tensor.mul_(1.5)
        elif name == "add":
            tensor.add_(second.detach().clone().sum())
        elif name == "read":
            known.append(tensor * 2 + second.sum())
        elif not fits:
            continue
        elif name == "view":
            known.append(tensor[index])
        elif name == "fill":
            tensor[index] = 0.25 * which
        elif name == "copy":
            part = tensor[index]
            tensor[index] = (second.sum() + part).clone()
        elif name == "mask":
            tensor[x > 0.1 * which] = 2.0
        else:
            tensor[ag.tensor([which % ROWS, 0])] = second.sum()
    return known


@given(STEPS, st.sampled_from(["zeros", "clone", "layer"]), st.booleans())
def test_random_steps(steps, start, grad):
    """Any order of views, changes and reads, with gradients or without."""
    ag.manual_seed(1)
    net = nn.Linear(COLUMNS, COLUMNS)

    def function(x):
        with ag.set_grad_enabled(grad):
            known = run(steps, start, x, net)
            made = [part.detach() * 1 for part in known]
            total = sum((part * part).sum() for part in known)
            if total.requires_grad:
                made += ag.grad(total, (net.weight, net.bias), allow_unused=True)
        return [part for part in made if part is not None]

    fast = ag.compile(function)
    inputs = [ag.from_numpy(np.random.default_rng(seed).normal(size=(ROWS, COLUMNS)).astype("f4"))
              for seed in range(3)]  # fmt: skip
    for x in inputs:
        assert outcome(fast, x) == outcome(function, x)
