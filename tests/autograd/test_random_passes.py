"""Random passes over random graphs with hooks everywhere: the order of calls is PyTorch's."""

import asyncio

import pytest
from functions import function_of
from hypothesis import given, settings
from hypothesis import strategies as st
from parity import _drive, _drive_awaiting, _logger, torch

import asyncgrad as ag

PLACES = st.integers(0, 20)
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "mul", "exp", "split", "drop", "number"]), PLACES, PLACES),
    min_size=1,
    max_size=10,
)
HOOKS = st.lists(
    st.tuples(
        st.sampled_from(["tensor", "scale", "pre", "prescale", "post", "retain", "accumulated"]),
        PLACES,
    ),
    max_size=10,
)
PASSES = st.lists(
    st.tuples(
        st.sampled_from(["backward", "inputs", "grad", "create"]),
        st.lists(PLACES, min_size=1, max_size=2),
        st.lists(PLACES, min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=3,
)


def functions(T):
    """A Function of two results, and one that gives no gradient."""

    Split = function_of(T, lambda ctx, x: (x * 2, x * 3), lambda ctx, a, b: a * 2 + b * 3)
    Drop = function_of(T, backward=lambda ctx, gradient: None)
    return Split, Drop


def program(T, log, steps, hooks, passes):
    """Build a graph, put hooks on it, and run passes over it."""
    Split, Drop = functions(T)
    tensors = [T.tensor(value, dtype=T.float64, requires_grad=True) for value in (0.5, -0.3, 0.2)]
    for kind, a, b in steps:
        x, y = tensors[a % len(tensors)], tensors[b % len(tensors)]
        if kind == "add":
            tensors.append(x + y)
        elif kind == "mul":
            tensors.append(x * y)
        elif kind == "exp":
            tensors.append(x.sin())
        elif kind == "number":
            tensors.append(x * 0.5)
        elif kind == "split":
            tensors += Split.apply(x)
        else:
            tensors.append(Drop.apply(x))
    for kind, place in hooks:
        t = tensors[place % len(tensors)]
        label = (kind, place % len(tensors))
        node = t.grad_fn
        if kind == "tensor":
            t.register_hook(lambda g, label=label: log(label, g))
        elif kind == "scale":
            t.register_hook(lambda g, label=label: log(label, g) or (g and g * 2))
        elif kind == "retain":
            t.retain_grad()
        elif kind == "accumulated":
            if node is None:
                t.register_post_accumulate_grad_hook(lambda p, label=label: log(label, p.grad))
        elif node is None:
            continue
        elif kind == "pre":
            node.register_prehook(lambda g, label=label: log(label, g))
        elif kind == "prescale":
            node.register_prehook(
                lambda g, label=label: log(label, g) or tuple(x and x * 3 for x in g)
            )
        else:
            node.register_hook(lambda i, o, label=label: log(label, i, o))
    for kind, roots, inputs in passes:
        log(kind)
        roots = [tensors[place % len(tensors)] for place in roots]
        inputs = [tensors[place % len(tensors)] for place in inputs]
        try:
            if kind == "backward":
                yield T.autograd.backward(roots, retain_graph=True)
            elif kind == "inputs":
                yield T.autograd.backward(roots, inputs=inputs, retain_graph=True)
            else:
                log(
                    (
                        yield T.autograd.grad(
                            roots,
                            inputs,
                            retain_graph=True,
                            allow_unused=True,
                            create_graph=kind == "create",
                        )
                    )
                )
        except RuntimeError as error:
            log(error)
        log([t.grad if t.is_leaf or t.retains_grad else None for t in tensors])
    # A gradient with a graph leads back to its leaf.
    for t in tensors:
        t.grad = None


@pytest.mark.torch
@settings(max_examples=50)
@given(steps=STEPS, hooks=HOOKS, passes=PASSES)
def test_random_passes_call_the_same_in_the_same_order(steps, hooks, passes):
    theirs, ours = [], []
    _drive(program(torch, _logger(theirs), steps, hooks, passes))
    _drive(program(ag, _logger(ours), steps, hooks, passes))
    assert ours == theirs


@pytest.mark.torch
@settings(max_examples=20)
@given(steps=STEPS, hooks=HOOKS, passes=PASSES)
def test_awaited_random_passes_call_the_same_in_the_same_order(steps, hooks, passes):
    theirs, ours = [], []
    _drive(program(torch, _logger(theirs), steps, hooks, passes))
    asyncio.run(_drive_awaiting(program(ag, _logger(ours), steps, hooks, passes)))
    assert ours == theirs
