"""Bags of embeddings beside PyTorch's."""

import numpy as np
import pytest
from module_parity import X, check

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

FLAT = np.array([1, 2, 4, 2, 0, 1, 1])
STARTS = np.array([0, 2, 2, 6])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize(
    ("options", "args"),
    [
        ({}, (np.array([[1, 2], [2, 4], [0, 2]]),)),
        ({}, (FLAT, STARTS)),
        ({"padding_idx": -4}, (FLAT, STARTS)),
        ({"include_last_offset": True}, (FLAT, np.array([0, 2, 2, 7]))),
        ({"max_norm": 0.5, "norm_type": 1.0}, (FLAT, STARTS)),
        ({}, (FLAT[:0], STARTS[:0])),
        ({}, (FLAT.astype(np.int32), STARTS.astype(np.int32))),
    ],
)
def test_outputs_and_gradients(options, args, mode):
    def make(nn):
        return nn.EmbeddingBag(5, 3, mode=mode, **options)

    check(make, *args)
    assert repr(make(ag.nn)) == repr(make(torch.nn))


def test_options_of_sums():
    check(lambda nn: nn.EmbeddingBag(5, 3, mode="sum"), FLAT, STARTS, per_sample_weights=X(7))
    check(
        lambda nn: nn.EmbeddingBag(5, 3, mode="sum", padding_idx=1),
        np.array([[1, 2], [2, 4]]),
        per_sample_weights=X((2, 2)),
    )


def test_gradients_by_frequency():
    """PyTorch 2.13 divides some rows by the frequencies of others."""
    table = ag.tensor(X((5, 3)), requires_grad=True)
    index = ag.tensor(FLAT)
    bags = ag.nn.functional.embedding_bag(
        index, table, ag.tensor(STARTS), scale_grad_by_freq=True, mode="sum"
    )
    rows = ag.nn.functional.embedding(index, table, scale_grad_by_freq=True)
    weight = ag.tensor(X((4, 3)))
    places = ag.tensor([0, 0, 2, 2, 2, 2, 3])
    (found,) = ag.grad((bags * weight).sum(), table)
    (known,) = ag.grad((rows * weight[places]).sum(), table)
    np.testing.assert_allclose(found.numpy(), known.numpy())


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_sparse_gradients_hold_the_rows_that_were_used(mode):
    dense = ag.nn.EmbeddingBag(5, 3, mode=mode)
    sparse = ag.nn.EmbeddingBag.from_pretrained(
        dense.weight.detach().clone(), freeze=False, mode=mode, sparse=True
    )
    for layer in (dense, sparse):
        (layer(ag.tensor(FLAT), ag.tensor(STARTS)) ** 2).sum().backward()
    assert sparse.weight.grad.is_sparse
    np.testing.assert_allclose(
        sparse.weight.grad.to_dense().numpy(), dense.weight.grad.numpy(), rtol=1e-6
    )


@pytest.mark.parametrize(
    ("args", "options"),
    [
        (([[1]], [0]), {}),
        (([1], None), {}),
        (([1], [[0]]), {}),
        (([[[1]]], None), {}),
        (([1, 2], [1]), {}),
        (([1, 2], [0, 3]), {}),
        (([1, 9], [0]), {}),
        (([1, -1], [0]), {}),
        (([1.0, 2.0], [0]), {}),
        (([1, 2], [0.0]), {}),
        (([1, 2], [0]), {"mode": "min"}),
        (([1, 2], [0]), {"mode": "max", "sparse": True}),
        (([1, 2], [0]), {"mode": "max", "scale_grad_by_freq": True}),
        (([1, 2], [0]), {"padding_idx": 7}),
        (([1, 2], [0]), {"per_sample_weights": [1.0]}),
        (([1, 2], [0]), {"per_sample_weights": [1.0, 1.0]}),
        (([1, 2], [0]), {"per_sample_weights": [1, 1], "mode": "sum"}),
    ],
)
def test_what_pytorch_refuses_is_refused(args, options):
    errors = []
    for library in (torch, ag):
        given = dict(options)
        if "per_sample_weights" in given:
            given["per_sample_weights"] = library.tensor(given["per_sample_weights"])
        index, offsets = (None if a is None else library.tensor(a) for a in args)
        with pytest.raises((ValueError, RuntimeError)) as caught:
            library.nn.functional.embedding_bag(index, library.ones(5, 2), offsets, **given)
        errors.append(caught.value)
    assert isinstance(errors[1], type(errors[0]))


def test_the_older_order_of_arguments_is_taken():
    """With a warning, as in PyTorch."""
    table = ag.arange(10.0).reshape(5, 2)
    with pytest.warns(UserWarning, match="Argument order .* was changed"):
        found = ag.nn.functional.embedding_bag(table, ag.tensor([0, 1]), ag.tensor([0]))
    assert found.tolist() == [[1.0, 2.0]]
