"""A model's layers in a table."""

import pytest

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.nn import summary


def model():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5),
        nn.Linear(4 * 36, 5),
    )  # fmt: skip


def test_it_counts_parameters_bytes_and_shapes_and_leaves_the_model_as_it_was():
    net = model()
    net[4].eval()
    modes = [module.training for module in net.modules()]
    before = {name: value.clone() for name, value in net.state_dict().items()}
    generator = ag.get_rng_state()
    found = summary(net, ag.ones(2, 3, 8, 8))
    assert [layer.output for layer in found.layers] == [
        (2, 5), (2, 4, 6, 6), (2, 4, 6, 6), (2, 4, 6, 6), (2, 144), (2, 144), (2, 5),
    ]  # fmt: skip
    assert [layer.depth for layer in found.layers] == [0] + [1] * 6
    assert found.parameters == sum(p.numel() for p in net.parameters()) == found.trainable
    tensors = [*net.parameters(), *net.buffers()]
    assert found.nbytes == sum(tensor.nbytes for tensor in tensors)
    assert repr(found) == str(found)  # so a prompt shows the table, too
    assert [module.training for module in net.modules()] == modes
    for name, value in net.state_dict().items():
        assert ag.equal(value, before[name])
    assert ag.equal(ag.get_rng_state(), generator)
    assert not any(module._forward_hooks for module in net.modules())


def test_shared_parameters_count_once_and_frozen_ones_are_told():
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    first.bias.requires_grad_(False)
    found = summary(nn.Sequential(first, second, first))
    assert (found.parameters, found.trainable) == (15, 12)
    assert all(layer.output is None for layer in found.layers)
    assert str(found).endswith("3 parameters do not require grad")


def test_it_is_a_table_in_text_and_in_notebooks():
    class Pair(nn.Module):
        def forward(self, x):
            return x, [x + 1, "text"]

    found = summary(nn.Sequential(nn.Linear(2, 2), Pair()), ag.ones(1, 2))
    lines = str(found).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert "((1, 2), ((1, 2), None))" in lines[3]
    html = found._repr_html_()
    assert html.count("<tr>") == len(lines)
    assert "&nbsp;&nbsp;1: Pair" in html


def test_what_it_can_not_do_is_said():
    class Awaited(nn.Module):
        async def forward(self, x):
            return x

    with pytest.raises(TypeError, match=r"Awaited\.forward is a coroutine function"):
        summary(nn.Sequential(Awaited()), ag.ones(1))
    with pytest.raises(TypeError, match="int is not a Module"):
        summary(3)
    with pytest.raises(ValueError, match="no shape yet"):
        summary(nn.Sequential(nn.LazyLinear(3)))
    failing = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(RuntimeError):
        summary(failing, ag.ones(3))
    assert failing.training
    assert not failing[0]._forward_hooks
