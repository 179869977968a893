"""Programs within `allow_mutation_on_saved_tensors`, the same in PyTorch and here."""

import pytest
from functions import function_of
from plain_parity import attempted, numbers, plainly

import asyncgrad as ag


@plainly
def test_what_was_saved_is_cloned_before_it_changes(T, log):
    def through_a_view(b):
        b[0].sin_()

    def through_data(b):
        b.data.zero_()

    def through_detach(b):
        b.detach().mul_(2)

    def twice(b):
        b.mul_(b)
        b.mul_(b)

    def by_out(b):
        with T.no_grad():
            T.mul(b, 2, out=b)

    for change in (lambda b: b.sin_(), through_a_view, through_data, through_detach, twice, by_out):
        with T.autograd.graph.allow_mutation_on_saved_tensors():
            leaf = numbers(T, 3, 2, leaf=True)
            base = leaf * 1
            loss = (base**2).sum()
            change(base)
            loss.backward(retain_graph=True)
            log(leaf.grad)
            base.zero_()
            loss.backward()
            log(leaf.grad)


@plainly
def test_results_leaves_and_values_kept_by_functions(T, log):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    Square = function_of(T, forward, lambda ctx, gradient: 2 * ctx.saved_tensors[0] * gradient)
    with T.autograd.graph.allow_mutation_on_saved_tensors():
        leaf = numbers(T, 3, leaf=True)
        result = leaf.exp()
        loss = result.sum() + Square.apply(leaf).sum()
        result.zero_()
        with T.no_grad():
            leaf.mul_(3)
        loss.backward()
        log(leaf.grad)


@plainly
def test_its_limits(T, log):
    G = T.autograd.graph

    def nested():
        with G.allow_mutation_on_saved_tensors():
            pass

    leaf = numbers(T, 3, leaf=True)
    with G.allow_mutation_on_saved_tensors():
        attempted(log, "cannot be nested", nested)
        base = leaf * 1
        loss = (base * base).sum()
        base.zero_()
    attempted(log, "outside of", loss.backward)
    base = leaf * 1
    loss = (base * base).sum()
    with G.allow_mutation_on_saved_tensors():
        base.zero_()
    attempted(log, "modified by an inplace operation", loss.backward)


@pytest.mark.parametrize(
    "part", [lambda b: b[1:], lambda b: b[:, 1:], lambda b: b.t()[1:], lambda b: b[1, 1]]
)
def test_parts_that_begin_elsewhere_in_memory(part):
    """PyTorch looks for the address of the first element, and gives wrong gradients."""
    with ag.autograd.graph.allow_mutation_on_saved_tensors():
        leaf = ag.ones(3, 2, requires_grad=True)
        base = leaf * 3
        loss = (base * base).sum()
        part(base).zero_()
        loss.backward()
    assert leaf.grad.tolist() == [[18.0, 18.0]] * 3
