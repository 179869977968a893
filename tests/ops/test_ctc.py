"""The loss of labels that are not aligned with a sequence."""

import numpy as np
import oracle
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch


def test_losses_of_unaligned_labels_are_pytorchs():
    oracle.check("nn.functional.ctc_loss", dtypes=("float64",), limit=3, order=1, awkward=False)


def _ctc(T, logits, targets, ends, lengths, **more):
    numbers = [T.tensor(part, dtype=T.int64) for part in (targets, ends, lengths)]
    return T.nn.functional.ctc_loss(T.log_softmax(logits, -1), *numbers, **more)


CASES = {
    "a target longer than the input": ([[1, 2, 3], [1, 1, 2]], [2, 4], [3, 3]),
    "targets in a row": ([1, 2, 3, 3], [4, 5], [1, 3]),
    "an empty target": ([[1, 2], [0, 0]], [5, 3], [2, 0]),
    "repeated labels": ([[1, 1], [2, 2]], [3, 5], [2, 2]),
}


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("name", CASES)
def test_ends_of_alignments_are_pytorchs(name, reduction):
    array = np.random.default_rng(0).standard_normal((5, 2, 4))
    options = {"reduction": reduction, "zero_infinity": True}
    theirs = torch.tensor(array, requires_grad=True)
    ours = ag.tensor(array, requires_grad=True)
    expected = _ctc(torch, theirs, *CASES[name], **options)
    found = _ctc(ag, ours, *CASES[name], **options)
    oracle.compare(expected, found, 1e-9)
    if name != "a target longer than the input":
        oracle.compare_derivatives(expected, found, [(theirs, ours)], 1, 1e-9)


def test_a_target_that_does_not_fit_has_an_infinite_loss():
    array = np.random.default_rng(0).standard_normal((5, 2, 4))
    targets = CASES["a target longer than the input"]
    expected, found = (_ctc(T, T.tensor(array), *targets, reduction="none") for T in (torch, ag))
    assert np.isinf(found.numpy()[0])
    oracle.compare(expected, found, 1e-9)


@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("name", CASES)
def test_an_infinite_loss_shows_in_the_gradient(name, reduction, zero_infinity):
    array = np.random.default_rng(0).standard_normal((5, 2, 4))
    gradients = []
    for T in (torch, ag):
        logits = T.tensor(array, requires_grad=True)
        options = {"reduction": reduction, "zero_infinity": zero_infinity}
        _ctc(T, logits, *CASES[name], **options).sum().backward()
        gradients.append(logits.grad.numpy())
    np.testing.assert_allclose(*gradients, atol=1e-9)
    infinite = name == "a target longer than the input" and not zero_infinity
    assert np.isnan(gradients[1]).any() == infinite


def test_one_sequence_needs_no_batch():
    array = np.random.default_rng(0).standard_normal((6, 4))
    expected, found = (
        T.nn.functional.ctc_loss(
            T.log_softmax(T.tensor(array), -1), T.tensor([1, 3]), T.tensor(6), T.tensor(2)
        )
        for T in (torch, ag)
    )
    oracle.compare(expected, found, 1e-9)


BAD = {
    "a blank beyond the classes": lambda T: _ctc(T, T.ones(5, 1, 4), [[1]], [5], [1], blank=4),
    "inputs beyond the steps": lambda T: _ctc(T, T.ones(5, 1, 4), [[1]], [6], [1]),
    "lengths of others": lambda T: _ctc(T, T.ones(5, 2, 4), [[1], [1]], [5], [1, 1]),
    "another reduction": lambda T: _ctc(T, T.ones(5, 1, 4), [[1]], [5], [1], reduction="median"),
}


@pytest.mark.parametrize("name", BAD)
def test_refuses_what_pytorch_refuses(name):
    oracle.check_refused(BAD[name])
