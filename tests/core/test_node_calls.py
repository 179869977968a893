"""Nodes called by hand, and gradients that can be differentiated reaching `.grad`."""

from __future__ import annotations

import warnings

import pytest

import asyncgrad as ag


def test_a_node_called_by_hand_gives_its_inputs_gradients() -> None:
    """Outside of any pass; an accumulator adds to the leaf."""
    x = ag.tensor([2.0], requires_grad=True)
    w = ag.tensor([3.0], requires_grad=True)
    node = (x * w).grad_fn
    assert node is not None
    given = node(ag.tensor([10.0]))
    assert [gradient.tolist() for gradient in given] == [[30.0], [20.0]]
    accumulator = node.next_functions[0][0]
    assert accumulator is not None
    accumulator(ag.tensor([5.0]))
    assert x.grad is not None
    assert x.grad.tolist() == [5.0]
    assert repr(node).startswith("<MulBackward0")
    assert node.metadata == {}


def test_create_graph_accumulates_out_of_place() -> None:
    """Each pass makes a new `.grad`, which leads into the graph."""
    x = ag.tensor([2.0], requires_grad=True)
    loss = (x * x * x).sum()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        loss.backward(create_graph=True)
        first = x.grad
        loss.backward(create_graph=True)
    assert first is not None
    assert x.grad is not None
    assert first.item() == 12.0
    assert x.grad is not first
    assert x.grad.item() == 24.0
    (second,) = ag.grad(x.grad.sum(), [x])
    assert second.item() == 24.0


def test_data_replaced_after_the_forward_pass_is_refused() -> None:
    """The gradient no longer fits; nothing is accumulated."""
    x = ag.tensor([2.0, 3.0], requires_grad=True)
    loss = (x * 2.0).sum()
    x.data = ag.tensor([1.0])
    with pytest.raises(RuntimeError, match="data was replaced"):
        loss.backward()
    assert x.grad is None


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.filterwarnings("ignore:Using backward")
def test_a_grad_that_data_of_another_shape_left_is_refused(create_graph) -> None:
    """No other leaf gets a gradient."""
    leaves = [ag.ones(2, requires_grad=True) for _ in range(3)]
    sum(leaves).sum().backward()
    leaves[1].data = ag.ones(1)
    with pytest.raises(RuntimeError, match=r"\.grad of shape \(2,\)"):
        sum(leaves).sum().backward(create_graph=create_graph)
    assert [x.grad.tolist() for x in leaves] == [[1.0, 1.0]] * 3
