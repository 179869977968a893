"""Losses as modules beside PyTorch."""

import numpy as np
import pytest
from module_parity import X, check, with_buffers

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch


LOSSES = {
    "l1": lambda nn: nn.L1Loss(),
    "mse": lambda nn: nn.MSELoss(),
    "mse_sum": lambda nn: nn.MSELoss(reduction="sum"),
    "mse_none": lambda nn: nn.MSELoss(reduction="none"),
    "smooth_l1": lambda nn: nn.SmoothL1Loss(beta=0.5),
    "huber": lambda nn: nn.HuberLoss(delta=0.7, reduction="sum"),
}


@pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)
def test_losses_of_numbers(make):
    check(make, X((5, 3)), X((5, 3)))


CLASS_LOSSES = {
    "cross_entropy": lambda nn, made: nn.CrossEntropyLoss(),
    "cross_entropy_options": lambda nn, made: nn.CrossEntropyLoss(
        made(np.array([1.0, 2.0, 0.5, 1.0])), ignore_index=1, label_smoothing=0.1
    ),
    "nll": lambda nn, made: nn.NLLLoss(),
    "nll_options": lambda nn, made: nn.NLLLoss(
        made(np.array([1.0, 2.0, 0.5, 1.0])), ignore_index=2, reduction="sum"
    ),
}


@pytest.mark.parametrize("make", CLASS_LOSSES.values(), ids=CLASS_LOSSES)
def test_losses_of_classes(make):
    check(with_buffers(make), X((5, 4)), np.array([0, 3, 1, 2, 2]))


YES_NO_LOSSES = {
    "bce": lambda nn, made: nn.BCELoss(),
    "bce_weights": lambda nn, made: nn.BCELoss(made(np.array([1.0, 2.0, 3.0]))),
    "bce_logits": lambda nn, made: nn.BCEWithLogitsLoss(),
    "bce_logits_options": lambda nn, made: nn.BCEWithLogitsLoss(
        made(np.array([1.0, 2.0, 3.0])), pos_weight=made(np.array([2.0, 1.0, 0.5]))
    ),
}


@pytest.mark.parametrize("make", YES_NO_LOSSES.values(), ids=YES_NO_LOSSES)
def test_losses_of_yes_and_no(make):
    random = np.random.default_rng(3)
    check(with_buffers(make), random.uniform(0.1, 0.9, (4, 3)), random.uniform(0, 1, (4, 3)))


def test_divergence_and_similarity():
    random = np.random.default_rng(3)
    check(lambda nn: nn.KLDivLoss(reduction="batchmean"), X((4, 3)), random.uniform(0, 1, (4, 3)))
    check(lambda nn: nn.KLDivLoss(reduction="sum", log_target=True), X((4, 3)), X((4, 3)))
    check(lambda nn: nn.CosineSimilarity(dim=0), X((4, 3)), X((4, 3)))


@pytest.mark.parametrize("ignored", [-100, 1])
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (3,)])
@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_a_batch_that_does_not_count_has_no_mean_and_no_gradient(name, shape, ignored):
    found = []
    for m in (ag, torch):
        x = m.ones(*shape, requires_grad=True)
        target = m.full((*shape[:1], *shape[2:])[: len(shape) - 1], ignored, dtype=m.int64)
        loss = getattr(m.nn.functional, name)(x, target, ignore_index=ignored)
        loss.backward()
        found.append((str(loss.item()), x.grad.tolist()))
    assert found[0] == found[1]


def test_losses_refuse_numbers_that_are_none_and_classes_that_are_probabilities():
    for m in (ag, torch):
        with pytest.raises(TypeError, match="delta must be a float or int"):
            m.nn.HuberLoss(delta=1j)
        with pytest.raises(RuntimeError, match="ignore_index is not supported"):
            m.nn.functional.cross_entropy(m.ones(2, 3), m.ones(2, 3), ignore_index=1)


def test_the_distance_of_a_triplet_loss_is_a_module_of_it():
    found, expected = (
        [repr(layer) for layer in m.nn.TripletMarginWithDistanceLoss(margin=0.5).modules()]
        for m in (ag, torch)
    )
    assert found == expected
