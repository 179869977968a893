"""Random programs of operations, views and changes in place, run in PyTorch and here."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parity import _drive, _logger, torch

import asyncgrad as ag

#: What gives a new tensor of a tensor of 2x3 elements and another.
FUNCTIONS = (
    lambda T, a, b: a * b,
    lambda T, a, b: a + b * 2,
    lambda T, a, b: a.sin(),
    lambda T, a, b: a.exp() * 0.1,
    lambda T, a, b: a.tanh() - b,
    lambda T, a, b: a.clone(),
    lambda T, a, b: a.detach(),
    lambda T, a, b: T.where(a > b, a, b * 3),
    lambda T, a, b: a[[1, 0]],
    lambda T, a, b: T.cat([a[:1], b[1:]]),
)
#: What looks into a tensor.
VIEWS = (
    lambda a: a,
    lambda a: a[0],
    lambda a: a[:, 1:],
    lambda a: a.t(),
    lambda a: a.view(3, 2)[1],
    lambda a: a[1:].t()[::2],
    lambda a: a.view(6)[1:5],
    lambda a: a.unbind(0)[1],
    lambda a: a.chunk(2)[0],
    lambda a: a.as_strided((2, 2), (2, 1)),
    lambda a: a[1:].as_strided((3,), (2,), a.storage_offset()),
)
#: What changes a view in place, by a number or the same view of another tensor.
CHANGES = (
    lambda v, w: v.mul_(2),
    lambda v, w: v.add_(w),
    lambda v, w: v.mul_(w),
    lambda v, w: v.sin_(),
    lambda v, w: v.zero_(),
    lambda v, w: v.copy_(w),
    lambda v, w: v.fill_(0.5),
    lambda v, w: v.neg_(),
)


def number(choices):
    return st.integers(0, len(choices) - 1)


TENSORS = st.integers(0, 30)
STATEMENTS = st.one_of(
    st.tuples(st.just("call"), number(FUNCTIONS), TENSORS, TENSORS),
    st.tuples(st.just("view"), number(VIEWS), TENSORS, TENSORS),
    st.tuples(st.just("change"), number(CHANGES), TENSORS, TENSORS, number(VIEWS)),
    st.tuples(st.just("unrecorded"), number(CHANGES), TENSORS, TENSORS, number(VIEWS)),
    st.tuples(st.just("retain"), TENSORS),
    st.tuples(st.just("hook"), TENSORS),
)


def program(T, log, statements, selected):
    """Run statements over a growing list of tensors, then a pass over the last of them."""
    leaves = [
        T.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], dtype=T.float64, requires_grad=True),
        T.tensor([[1.0, -2.0, 0.5], [0.3, 0.7, -1.5]], dtype=T.float64, requires_grad=True),
    ]
    tensors = [*leaves, leaves[0] * 1, T.ones((2, 3), dtype=T.float64)]
    views = []

    def pick(place):
        return tensors[place % len(tensors)]

    for kind, *arguments in statements:
        try:
            if kind == "call":
                which, a, b = arguments
                tensors.append(FUNCTIONS[which](T, pick(a), pick(b)))
            elif kind == "view":
                which, a, _ = arguments
                views.append(VIEWS[which](pick(a)))
            elif kind == "change":
                which, a, b, view = arguments
                CHANGES[which](VIEWS[view](pick(a)), VIEWS[view](pick(b)).clone())
            elif kind == "unrecorded":
                which, a, b, view = arguments
                with T.no_grad():
                    CHANGES[which](VIEWS[view](pick(a)), VIEWS[view](pick(b)).clone())
            elif kind == "retain":
                pick(arguments[0]).retain_grad()
            else:
                t = pick(arguments[0])
                t.register_hook(lambda g: log("hook", g))
        except RuntimeError as error:
            log(error)
    log([(t.detach(), t.requires_grad, t.is_leaf, t._version) for t in tensors])
    for view in views:
        try:
            log(view.detach(), view.requires_grad, view.grad_fn is None)
        except RuntimeError as error:
            log(error)
    total = 0
    for place in selected:
        total = total + pick(place).sum()
    for view in views[-2:]:
        try:
            total = total + (view * view).sum()
        except RuntimeError as error:
            log(error)
    if not total.requires_grad:
        return
    try:
        log((yield T.autograd.grad(total, leaves, retain_graph=True, allow_unused=True)))
    except RuntimeError as error:
        log(error)
    try:
        yield total.backward()
    except RuntimeError as error:
        log(error)
        return
    log([t.grad for t in tensors if t.is_leaf or t.retains_grad])


def run(T, *arguments):
    notes = []
    _drive(program(T, _logger(notes), *arguments))
    return notes


@pytest.mark.torch
@settings(max_examples=60)
@given(
    statements=st.lists(STATEMENTS, max_size=12),
    selected=st.lists(TENSORS, min_size=1, max_size=4),
)
def test_random_programs_run_as_in_pytorch(statements, selected):
    assert run(ag, statements, selected) == run(torch, statements, selected)
