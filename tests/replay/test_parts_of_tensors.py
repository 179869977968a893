"""Results of `split`, `chunk` and `unbind` share a node, while a call is recorded, too."""

from __future__ import annotations

from typing import Any

import pytest

import asyncgrad as ag
from asyncgrad import nn


def bits(value):
    """A tensor or a tree of them, to compare bit by bit."""
    if isinstance(value, ag.Tensor):
        return value.detach().numpy().tobytes(), value.shape
    return [bits(part) for part in value] if isinstance(value, (list, tuple)) else value


def within(w):
    a, b = ag.split(w * 1.0, 2)
    c, d = (a * b).unbind()
    return ag.grad((c * -0.0).sum() + (d * 0.0).sum(), [w, a])


def accumulated(w):
    a, _, b = ag.split(w * 1.0, [1, 2, 1])
    (a * b).sum().backward(retain_graph=True)
    (a * -0.0).sum().backward()
    return w.grad


def of_itself(w):
    *_, c, d = ag.unbind(w * 1.0)
    return (*ag.grad(c, [c, w]), *ag.grad([d], [d], [d.detach() * 2.0]))


def twice(w):
    a, b = (w * 1.0).chunk(2)
    (g,) = ag.grad((a * b * b).sum(), w, create_graph=True)
    return ag.grad((g * g).sum(), w)


def transformed(w):
    return ag.func.grad(lambda x: (ag.split(x, 2)[0] * -0.0).sum())(w.detach())


def some_of_one(w):
    return (ag.split(w * 1.0, 2)[1] * -0.0).sum()


def several(w):
    a, b = (w * -0.0).reshape(2, 2).unbind(1)
    return (a * -0.0).sum(), a * b, b.sum() * -0.0


def attention(w):
    q, k, v = (w.reshape(4, 1) @ ag.ones(1, 6)).chunk(3, -1)
    return ag.softmax(q @ k.T, -1) @ v


FUNCTIONS = (
    within, accumulated, of_itself, twice, transformed, some_of_one, several, attention,
)  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("sign", "first", "create_graph"), [(1.0, 0, False), (-1.0, -1, False), (-1.0, 0, True)]
)
def test_gradients_of_parts_have_the_bits_of_eager_ones(function, sign, first, create_graph):
    """Sums of gradients that were padded with zeros would make 0.0 of -0.0."""
    fast = ag.compile(function)
    for _ in range(3):
        found = []
        for call in (function, fast):
            w = ag.tensor([1.0, -2.0, 3.0, -4.0], requires_grad=True)
            results = call(w)
            listed = results if isinstance(results, tuple) else (results,)
            roots = [(x * sign).sum() for x in listed[first:] if x.requires_grad]
            slopes = ag.grad(roots, w, create_graph=create_graph) if roots else ()
            found.append([bits(results), bits(slopes), bits(w.grad)])
        assert found[0] == found[1]
    assert "1 recorded, 2 replayed" in fast.explain()


def test_attention_of_a_compiled_model_passes_through_parts():
    """Its projections are made at once, and split."""
    ag.manual_seed(3)
    model = nn.MultiheadAttention(4, 2)
    fast = ag.compile(model)
    for _ in range(3):
        x = ag.randn(3, 1, 4)
        found = [ag.grad(call(x, x, x)[0].sum(), [*model.parameters()]) for call in (model, fast)]
        assert bits(found[0]) == bits(found[1])
    assert "2 replayed" in fast.explain()


def test_a_part_that_is_returned_is_that_of_an_eager_call():
    """It may not be changed in place, which a part of a replay could be."""
    fast = ag.compile(lambda w: ag.split(w * 1.0, 2)[1])
    for _ in range(2):
        part = fast(ag.ones(4, requires_grad=True))
        assert part.grad_fn.name() == "SplitBackward0"
        with pytest.raises(RuntimeError, match="returns multiple views"):
            part.add_(1)


def test_a_masked_part_has_the_node_of_any_other() -> None:
    """While a call is recorded the elements are not counted, but the node's name stays."""
    w = ag.tensor([1.0, 2.0, 3.0], requires_grad=True)

    def function(x: Any) -> Any:
        y = x * w
        y[x > 1] = 0
        return y * 2, y

    fast = ag.compile(function)
    for number in range(3):
        x = ag.arange(3.0) + number
        assert fast(x)[1].grad_fn.name() == function(x)[1].grad_fn.name() == "IndexPutBackward0"
