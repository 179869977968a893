"""Layers and optimisers in compiled functions give what they give in eager calls."""

import numpy as np
import pytest
from test_layers_on_devices import CLASSES, LAYERS, OPTIMISERS, ROW, flat, model

import asyncgrad as ag

#: Layers of which no call is replayed, and why: a part of what `explain()` says.
REFUSED = {
    **dict.fromkeys(("Flatten", "Unflatten"), "it returns two tensors of the same memory"),
    **dict.fromkeys(
        ("MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d"), "values that no recorded operation has made"
    ),
    **dict.fromkeys(
        ("AdaptiveLogSoftmaxWithLoss", "EmbeddingBag", "GaussianNLLLoss"), "Python sees values"
    ),
}


def given(arguments, number):
    """Arguments with other values in each call."""
    random = np.random.default_rng(number)
    return [
        ag.tensor(x * random.uniform(0.5, 1, x.shape) if x.dtype.kind == "f" else x)
        for x in arguments
    ]


def plain(value):
    return [(x.detach().numpy().tobytes(), x.shape) for x in flat(value) if x is not None]


@pytest.mark.parametrize("name", [name for name, case in LAYERS.items() if case])
def test_layers(name):
    """Forward passes, with what is drawn, and what running averages become."""
    make, *arguments = LAYERS[name]
    results = []
    for compiles in (lambda layer: layer, ag.compile):
        ag.manual_seed(0)
        layer = make().double()
        call, found = compiles(layer), []
        for number in range(4):
            outputs = call(*given(arguments, number))
            found.append((plain([x * 1 for x in flat(outputs)]), plain([*layer.buffers()])))
        results.append(found)
    assert results[1] == results[0]
    words = call.explain()
    assert REFUSED[name] in words if name in REFUSED else "3 replayed" in words, words


@pytest.mark.parametrize("name", OPTIMISERS)
def test_steps(name):
    """Whole training steps, of which rates and states change."""
    results = []
    x, target = ag.tensor(ROW), ag.tensor(CLASSES)
    for compiles in (lambda step: step, ag.compile):
        layers = model()
        optimizer = OPTIMISERS[name](layers.parameters())
        schedule = ag.optim.lr_scheduler.StepLR(optimizer, 2)

        def step(layers=layers, optimizer=optimizer, schedule=schedule):
            optimizer.zero_grad()
            loss = ag.nn.functional.cross_entropy(layers(x), target)
            loss.backward()
            norm = ag.nn.utils.clip_grad_norm_(layers.parameters(), 0.5)
            optimizer.step()
            schedule.step()
            return loss.detach(), norm

        call = compiles(step)
        results.append([plain([*call(), *layers.parameters()]) for _ in range(5)])
    assert results[1] == results[0]
    assert "1 recorded, 4 replayed" in call.explain(), call.explain()
