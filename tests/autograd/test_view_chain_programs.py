"""Random chains of views, changed in place through each of their links, in PyTorch and here.

What is compared after each step: values, versions, bases, who needs a gradient, and classes of
errors; at the end the gradients by all leaves, and those of a pass that is itself differentiated.
"""

import pytest
from functions import function_of
from hypothesis import given, settings
from hypothesis import strategies as st
from parity import _logger, torch

import asyncgrad as ag

#: What looks into a tensor, if it has the axes.
VIEWS = (
    lambda x: x[0],
    lambda x: x[-1:],
    lambda x: x[..., ::2],
    lambda x: x.transpose(0, -1),
    lambda x: x.reshape(-1),
    lambda x: x.view(-1),
    lambda x: x.unsqueeze(1),
    lambda x: x.squeeze(),
    lambda x: x.narrow(-1, 0, 1),
    lambda x: x.diagonal(),
    lambda x: x.expand(1, *x.shape),
    lambda x: x.unbind(-1)[0],
    lambda x: x.split(1)[0],
    lambda x: x.detach(),
    lambda x: x[:],
    lambda x: x.as_strided((2,), (1,)),
    lambda x: x.as_strided((2, 1), (2, 1), x.storage_offset()),
    lambda x: x.flatten(),
    lambda x: x.real,
    lambda x: x[None],
)
#: What changes a tensor in place, given one number of the graph.
CHANGES = (
    lambda x, s: x.mul_(2),
    lambda x, s: x.mul_(s),
    lambda x, s: x.add_(s),
    lambda x, s: x.sin_(),
    lambda x, s: x.exp_().mul_(0.1),
    lambda x, s: x.mul_(0),
    lambda x, s: x.copy_(s.detach()),
    lambda x, s: x.copy_(s),
    lambda x, s: x.copy_((x * x).detach()),
    lambda x, s: x.add_(x.clone()),
    lambda x, s: x.__setitem__(0, s),
    lambda x, s: x.__setitem__(0, 0.5),
    lambda x, s: x.clamp_(-0.5, 0.5),
    lambda x, s: x.neg_(),
    lambda x, s: x.tanh_(),
    lambda x, s: x.clamp_(min=0),
)


def _functions(T):
    Same = function_of(T, lambda ctx, x: x, lambda ctx, g: g * 3)

    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    Doubled = function_of(T, forward, lambda ctx, g: g * 2)
    return (Same.apply, Doubled.apply, lambda x: x * 1.5, lambda x: x.clone())


def _base(T, kind, leaf):
    return (
        lambda: leaf * 1,
        lambda: leaf,
        lambda: T.ones((3, 4), dtype=T.float64),
        lambda: (leaf * 2)[:],
        lambda: leaf.detach(),
    )[kind]()


def _facts(x, tensors):
    place = next((i for i, y in enumerate(tensors) if y is x._base), None)
    return (x.detach(), x.requires_grad, x.is_leaf, x._is_view(), place, x._version)


def program(T, log, kind, statements, selected):
    """Run statements over a growing list of tensors, then a pass over some of them."""
    leaf = T.tensor(
        [[0.1, -0.2, 0.3, 0.4], [0.5, 0.6, -0.7, 0.8], [-0.9, 1.0, 1.1, -1.2]],
        dtype=T.float64,
        requires_grad=True,
    )
    number = T.tensor(0.7, dtype=T.float64, requires_grad=True)
    functions = _functions(T)
    tensors = [_base(T, kind, leaf)]

    for what, which, place, mode in statements:
        x = tensors[-1 - place % len(tensors)]
        if what == "function" and which % len(functions) == 1 and mode == "no_grad":
            # PyTorch makes what a Function changes there a constant.
            continue
        try:
            if what != "change" and x.requires_grad and x.is_leaf and x._is_view():
                # Made in no_grad: what PyTorch computes of it requires grad and leads nowhere.
                continue
            with getattr(T, mode)():
                if what == "view":
                    tensors.append(VIEWS[which % len(VIEWS)](x))
                elif what == "change":
                    CHANGES[which % len(CHANGES)](x, number)
                else:
                    tensors.append(functions[which % len(functions)](x))
        except (RuntimeError, IndexError, TypeError) as error:
            log(error)
            if what == "function":
                return  # How far it got before it was refused, nobody promises.
        for y in tensors:
            try:
                log(_facts(y, tensors))
            except RuntimeError as error:
                log(error)
    total = number * 0
    for place in selected:
        try:
            y = tensors[place % len(tensors)]
            total = total + (y * y).sum()
        except RuntimeError as error:
            log(error)
    try:
        found = T.autograd.grad(total, [leaf, number], create_graph=True, allow_unused=True)
        log(found)
        again = sum((g * g).sum() for g in found if g is not None)
        if again.requires_grad:
            log(T.autograd.grad(again, [leaf, number], allow_unused=True))
    except RuntimeError as error:
        log(error)


def run(T, *arguments):
    notes = []
    program(T, _logger(notes), *arguments)
    return notes


def alike(ours, theirs):
    """Whether notes are the same, but for the last digits."""
    if isinstance(ours, (list, tuple)) and isinstance(theirs, (list, tuple)):
        return len(ours) == len(theirs) and all(map(alike, ours, theirs))
    if isinstance(ours, complex) and isinstance(theirs, complex):
        return ours == theirs or abs(ours - theirs) <= 1e-4 * (1 + abs(theirs)) or ours != ours
    return ours == theirs


STATEMENTS = st.tuples(
    st.sampled_from(["view", "view", "view", "change", "change", "function"]),
    st.integers(0, 19),
    st.integers(0, 3),
    st.sampled_from(["enable_grad", "enable_grad", "no_grad"]),
)


@pytest.mark.torch
@settings(max_examples=100)
@given(
    kind=st.integers(0, 4),
    statements=st.lists(STATEMENTS, min_size=2, max_size=9),
    selected=st.lists(st.integers(0, 9), min_size=1, max_size=3),
)
def test_chains_of_views_are_pytorchs(kind, statements, selected):
    ours, theirs = (run(T, kind, statements, selected) for T in (ag, torch))
    assert alike(ours, theirs), f"{ours}\n{theirs}"


def tangents(T, log, kind, statements):
    """The same statements within a level: the tangents of all tensors."""
    F = T.autograd.forward_ad
    values = T.tensor(
        [[0.1, -0.2, 0.3, 0.4], [0.5, 0.6, -0.7, 0.8], [-0.9, 1.0, 1.1, -1.2]], dtype=T.float64
    )
    with F.dual_level():
        dual = F.make_dual(values, values * values + 1)
        number = F.make_dual(T.tensor(0.7, dtype=T.float64), T.tensor(2.0, dtype=T.float64))
        tensors = [_base(T, kind, dual) if kind != 4 else values.clone()]
        for what, which, place, mode in statements:
            x = tensors[-1 - place % len(tensors)]
            try:
                with getattr(T, mode)():
                    if what == "view":
                        tensors.append(VIEWS[which % len(VIEWS)](x))
                    elif what == "change":
                        CHANGES[which % len(CHANGES)](x, number)
                    else:
                        tensors.append(x.sin() * number if which % 2 else x.clone())
            except (RuntimeError, IndexError, TypeError) as error:
                log(error)
        for x in tensors:
            primal, tangent = F.unpack_dual(x)
            # Whether nothing is said or zero is nobody's concern.
            log(primal, T.zeros_like(primal) if tangent is None else tangent)


@pytest.mark.torch
@settings(max_examples=100)
@given(kind=st.integers(0, 4), statements=st.lists(STATEMENTS, min_size=2, max_size=9))
@pytest.mark.filterwarnings("ignore")
def test_tangents_follow_chains_of_views(kind, statements):
    notes = []
    for T in (ag, torch):
        found = []
        tangents(T, _logger(found), kind, statements)
        notes.append(found)
    assert alike(*notes), f"{notes[0]}\n{notes[1]}"
