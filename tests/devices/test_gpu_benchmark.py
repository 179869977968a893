"""What is to be measured on a GPU runs: here on the stand-in, where its figures say nothing."""

import math

import pytest
from cupy_stand_in import installed

import asyncgrad as ag
from benchmarks import devices


@pytest.fixture(autouse=True)
def cupy(monkeypatch):
    return installed(monkeypatch, devices=1)


def test_a_residual_network_is_differentiated():
    loss = devices.resnet(ag, 2)()
    assert loss.device is ag.device("cuda:0")
    loss.backward()
    assert math.isfinite(loss.item())


def test_nodes_are_launched_and_not_waited_for():
    assert devices.node(ag, 6, 1) > 0


def test_steps_are_timed():
    for loss in (devices.mlp(ag, 16), devices.gpt(ag, 64, 1, 4)):
        assert devices.seconds(ag, lambda loss=loss: loss().backward(), 1) > 0


def test_small_steps_are_replayed():
    gradients, x = devices.small(ag), ag.randn(8, 64).to("cuda")
    fast = ag.compile(gradients)
    assert devices.seconds(ag, lambda: fast(x), 1) > 0
    assert "one CUDA graph" in fast.explain()
