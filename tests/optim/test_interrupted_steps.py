"""KeyboardInterrupt anywhere in a step: a state that has counted it has been updated."""

import sys
from itertools import count

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.optim.optimizer import Optimizer
from tests.helpers.interrupts import interrupt

FILES = {
    module.__file__ for name, module in sys.modules.items() if name.startswith("asyncgrad.optim.")
}


def model_and_optimizer(kind, shapes):
    rng = np.random.default_rng(0)
    leaves = [ag.tensor(rng.standard_normal(shape), requires_grad=True) for shape in shapes]
    for leaf in leaves:
        leaf.grad = ag.tensor(rng.standard_normal(leaf.shape))
    optimizer = getattr(ag.optim, kind)(leaves, lr=0.1)
    for _ in range(2):
        optimizer.step()
    return leaves, optimizer


def bits(leaf, optimizer):
    """A parameter's values and state, except for the number of its steps."""
    state = {key: x for key, x in optimizer.state[leaf].items() if key != "step"}
    return [x.detach().numpy().tobytes() for x in (leaf, *state.values())]


@pytest.mark.parametrize("shapes", [[(4,)], [(4,), (2, 3), ()], [(4,), (130, 130)]])
@pytest.mark.parametrize("kind", ["Adam", "NAdam", "ASGD", "Adafactor"])
def test_a_step_is_counted_only_when_it_is_complete(kind, shapes):
    """A count without the update would make the next steps shorter or longer than due."""
    complete, stepped = model_and_optimizer(kind, shapes)
    stepped.step()
    counted = 0
    for at in count(1):
        leaves, optimizer = model_and_optimizer(kind, shapes)
        if not interrupt(at, optimizer.step, Optimizer._updates.__code__, FILES):
            break
        for leaf, updated in zip(leaves, complete, strict=True):
            if optimizer.state[leaf]["step"].item() == 3:
                assert bits(leaf, optimizer) == bits(updated, stepped)
                counted += 1
    assert 0 < counted < at * len(shapes)
