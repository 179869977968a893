"""Whole models beside PyTorch: from the same weights, the same losses for fifty steps."""

import numpy as np
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

from benchmarks.networks import Training, networks  # noqa: E402  needs PyTorch's presence no more

STEPS = 50
NETWORKS = {network.name: network for network in networks(small=True)}


def both(name):
    """The same network of both libraries, and its batches."""
    network = NETWORKS[name]
    torch.manual_seed(0)
    mine, other = (Training(network, library, "float64") for library in (ag, torch))
    mine.take_weights(other)
    return mine, other, network.batches(np.random.default_rng(0))


@pytest.mark.parametrize("name", NETWORKS)
def test_losses_are_pytorchs(name):
    mine, other, batches = both(name)
    ours, theirs = [], []
    for _ in range(STEPS):
        batch = next(batches)
        ours.append(mine.step(*mine.tensors(batch)).item())
        theirs.append(other.step(*other.tensors(batch)).item())
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)
    assert np.mean(theirs[-5:]) < 0.9 * theirs[0], "nothing was learnt"
    state = other.model.state_dict()
    for key, tensor in mine.model.state_dict().items():
        np.testing.assert_allclose(tensor.numpy(), state[key].numpy(), rtol=1e-6, atol=1e-8)


@pytest.mark.asyncio
@pytest.mark.parametrize("name", NETWORKS)
async def test_awaited_training_gives_the_same_bits(name):
    mine, other, batches = both(name)
    again = Training(NETWORKS[name], ag, "float64")
    again.take_weights(other)
    functional = ag.nn.functional
    for _ in range(3):
        inputs, targets = mine.tensors(next(batches))
        with ag.blocking():
            expected = mine.step(inputs, targets)
        again.optimizer.zero_grad()
        scores = again.model(inputs)
        loss = functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), targets.reshape(-1))
        await loss.backward()
        await again.optimizer.step_async()
        assert loss.item() == expected.item()
