"""Pruned parameters beside PyTorch's: the same masks, states and errors, one after the other."""

import numpy as np
import pytest
from module_parity import assert_close, layers, refusal

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

pruning = pytest.importorskip("torch.nn.utils.prune", reason="PyTorch is not installed")

X = np.random.default_rng(0).standard_normal((2, 5))
SCORES = np.random.default_rng(1).standard_normal((6, 5))


def net(nn):
    return nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 4, bias=False))


MASK = (np.arange(30).reshape(6, 5) % 3 > 0).astype("float64")
#: What is done with a model; `T` makes a tensor.
STEPS = {
    "identity": lambda p, m, T: p.identity(m[0], "weight"),
    "l1": lambda p, m, T: p.l1_unstructured(m[0], "weight", 0.4),
    "l1_some": lambda p, m, T: p.l1_unstructured(m[0], "weight", 7),
    "l1_scores": lambda p, m, T: p.l1_unstructured(m[0], "weight", 9, T(SCORES)),
    "l1_bias": lambda p, m, T: p.l1_unstructured(m[0], "bias", 2),
    "ln": lambda p, m, T: p.ln_structured(m[0], "weight", 0.5, 2, 0),
    "ln_columns": lambda p, m, T: p.ln_structured(m[0], "weight", 1, float("inf"), -1),
    "ln_none": lambda p, m, T: p.ln_structured(m[0], "weight", 0, 1, 1),
    "random_all": lambda p, m, T: p.random_unstructured(m[0], "weight", 1.0),
    "channels_none": lambda p, m, T: p.random_structured(m[0], "weight", 0.0, 0),
    "mask": lambda p, m, T: p.custom_from_mask(m[0], "weight", T(MASK)),
    "global": lambda p, m, T: p.global_unstructured(
        [(m[0], "weight"), (m[1], "weight")], p.L1Unstructured, amount=0.5
    ),
    "global_scores": lambda p, m, T: p.global_unstructured(
        [(m[0], "weight"), (m[1], "weight")],
        p.L1Unstructured,
        {(m[0], "weight"): T(SCORES)},
        amount=20,
    ),
    "remove": lambda p, m, T: p.remove(m[0], "weight"),
}
PROGRAMS = [
    *((name,) for name in STEPS if name != "remove"),
    ("l1", "l1_some"),
    ("l1", "ln"),
    ("ln", "ln_columns", "l1"),
    ("mask", "l1_scores", "l1_bias"),
    ("ln", "global"),
    ("l1", "global_scores", "remove"),
    ("l1", "remove", "ln"),
]


@pytest.mark.parametrize("program", PROGRAMS, ids="+".join)
def test_what_is_pruned_is_pytorchs(program):
    mine, other = layers(net)
    for step in program:
        STEPS[step](ag.nn.utils.prune, mine, lambda a: ag.tensor(a))
        STEPS[step](pruning, other, lambda a: torch.tensor(a))
    assert ag.nn.utils.prune.is_pruned(mine) == pruning.is_pruned(other)
    assert [*mine.state_dict()] == [*other.state_dict()]
    for a, b in zip(mine.state_dict().values(), other.state_dict().values(), strict=True):
        assert_close(a, b)
    out, known = mine(ag.tensor(X)), other(torch.tensor(X))
    assert_close(out, known)
    (out * out).sum().backward()
    (known * known).sum().backward()
    for a, b in zip(mine.parameters(), other.parameters(), strict=True):
        assert_close(a.grad, b.grad)


@pytest.mark.parametrize("number", [0, 3, 30])
def test_as_many_elements_and_channels_as_asked_for_are_pruned_at_random(number):
    prune = ag.nn.utils.prune
    layer = prune.random_unstructured(ag.nn.Linear(5, 6), "weight", number)
    assert (layer.weight_mask == 0).sum().item() == number
    layer = prune.random_structured(ag.nn.Linear(5, 30), "weight", number, dim=0)
    assert (layer.weight_mask.sum(1) == 0).sum().item() == number
    assert prune.RandomUnstructured(number).prune(ag.ones(30)).sum().item() == 30 - number


@pytest.mark.parametrize(
    "call",
    [
        lambda p, m, T: p.l1_unstructured(m[0], "weight", -1),
        lambda p, m, T: p.l1_unstructured(m[0], "weight", 1.5),
        lambda p, m, T: p.l1_unstructured(m[0], "weight", "all"),
        lambda p, m, T: p.l1_unstructured(m[0], "weight", 31),
        lambda p, m, T: p.l1_unstructured(m[0], "absent", 1),
        lambda p, m, T: p.l1_unstructured(m[1], "weight", 1, T(SCORES)),
        lambda p, m, T: p.ln_structured(m[0], "bias", 1, 2, 0),
        lambda p, m, T: p.ln_structured(m[0], "weight", 1, 2, 2),
        lambda p, m, T: p.custom_from_mask(m[1], "weight", T(MASK)),
        lambda p, m, T: p.remove(m[0], "weight"),
        lambda p, m, T: p.global_unstructured(3, p.L1Unstructured, amount=1),
        lambda p, m, T: p.global_unstructured([(m[0], "weight")], p.LnStructured, amount=1, n=1),
        lambda p, m, T: p.global_unstructured([(m[0], "weight")], p.L1Unstructured, [], amount=1),
        lambda p, m, T: p.PruningContainer().add_pruning_method(3),
        lambda p, m, T: p.L1Unstructured(1).prune(T(MASK), importance_scores=T(X)),
    ],
)
def test_what_can_not_be_pruned_is_refused_and_stays(call):
    mine, other = layers(net)
    expected = refusal(lambda: call(pruning, other, lambda a: torch.tensor(a)))
    assert refusal(lambda: call(ag.nn.utils.prune, mine, lambda a: ag.tensor(a))) == expected
    assert [*mine.state_dict()] == ["0.weight", "0.bias", "1.weight"]
    assert not ag.nn.utils.prune.is_pruned(mine)


def test_hooks_without_options_are_found_among_a_modules_own():
    """PyTorch's tutorial of pruning reads a parameter's history this way."""
    layer = ag.nn.Linear(3, 2)
    hook = layer.register_forward_hook(print)
    assert [*layer._forward_hooks.values()] == [print]
    hook.remove()
    ag.nn.utils.prune.l1_unstructured(layer, "weight", 1)
    ag.nn.utils.prune.ln_structured(layer, "weight", 1, n=2, dim=0)
    (found,) = [h for h in layer._forward_pre_hooks.values() if h._tensor_name == "weight"]
    assert [type(part).__name__ for part in found] == ["L1Unstructured", "LnStructured"]
