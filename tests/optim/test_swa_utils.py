"""Averages of models beside PyTorch's."""

import numpy as np
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

WAYS = {
    "mean": lambda swa: {},
    "function": lambda swa: {"avg_fn": swa.get_swa_avg_fn()},
    "forgetting": lambda swa: {"avg_fn": swa.get_ema_avg_fn(0.7)},
    "many": lambda swa: {"multi_avg_fn": swa.get_swa_multi_avg_fn()},
    "many_forgetting": lambda swa: {"multi_avg_fn": swa.get_ema_multi_avg_fn(0.7)},
    "buffers": lambda swa: {"multi_avg_fn": swa.get_ema_multi_avg_fn(0.7), "use_buffers": True},
}


def swa_of(library):
    return library.optim.swa_utils


def model_of(library):
    nn = library.nn
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()


def equal(mine, other):
    found, expected = mine.state_dict(), other.state_dict()
    assert list(found) == list(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name].numpy(), value.numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("way", WAYS)
def test_averages_are_pytorchs(way):
    random = np.random.default_rng(0)
    pairs = []
    for library in (ag, torch):
        model = model_of(library)
        pairs.append((model, swa_of(library).AveragedModel(model, **WAYS[way](swa_of(library)))))
    for _ in range(4):
        for mine, other in zip(*(model.state_dict().values() for model, _ in pairs), strict=True):
            value = random.standard_normal(tuple(other.shape)) * 5
            mine.copy_(ag.tensor(value))
            other.copy_(torch.tensor(value))
        for model, mean in pairs:
            mean.update_parameters(model)
    equal(pairs[0][1], pairs[1][1])
    x = random.standard_normal((5, 3))
    outputs = [mean.eval()(library.tensor(x)) for library, (_, mean) in
               zip((ag, torch), pairs, strict=True)]  # fmt: skip
    np.testing.assert_allclose(*(y.detach().numpy() for y in outputs), rtol=1e-5)


def test_averages_of_integers_are_rounded_as_in_pytorch():
    """2.7 + 1.3 was 3.9999998, and the average 3."""
    found = []
    for library in (ag, torch):
        found.append([])
        swa = swa_of(library)
        forget = swa.get_ema_multi_avg_fn(0.9)
        model = library.nn.Module()
        model.register_buffer("counts", library.tensor(0))
        mean = swa.AveragedModel(model, multi_avg_fn=forget, use_buffers=True)
        for step in range(40):
            model.counts.fill_(step * 7 % 31)
            mean.update_parameters(model)
            found[-1].append(mean.module.counts.item())
    assert found[0] == found[1]


@pytest.mark.parametrize("way", WAYS)
def test_averages_that_a_graph_needs_are_updated_in_new_memory(way):
    """A function of many averages changed those of the graph, and its pass failed."""
    model, other = (ag.nn.Linear(2, 2, bias=False) for _ in range(2))
    mean = ag.optim.swa_utils.AveragedModel(model, **WAYS[way](ag.optim.swa_utils))
    mean.update_parameters(model)
    old = model.weight.detach().clone()
    x = ag.ones(1, 2, requires_grad=True)
    y = mean(x).sum()
    mean.update_parameters(other)
    y.backward()
    np.testing.assert_array_equal(x.grad.numpy()[0], old.sum(0).numpy())
    assert not np.allclose(mean.module.weight.detach().numpy(), old.numpy())


def test_statistics_are_measured_anew():
    random = np.random.default_rng(0)
    batches = [random.standard_normal((6, 3)) for _ in range(3)]
    mine, other = model_of(ag), model_of(torch).eval()
    mine.load_state_dict({k: ag.tensor(v.numpy()) for k, v in other.state_dict().items()})
    mine.eval()
    ag.optim.swa_utils.update_bn([(ag.tensor(b), 0) for b in batches], mine)
    torch.optim.swa_utils.update_bn([torch.tensor(b) for b in batches], other)
    equal(mine, other)
    assert not mine.training
    assert mine[1].momentum == 0.1


def test_statistics_of_instance_norms_go_on():
    """They are no batch norms: PyTorch neither resets them nor takes their mean."""
    x, made = np.random.default_rng(0).standard_normal((4, 2, 5)), []
    for library in (ag, torch):
        norm = library.nn.InstanceNorm1d(2, track_running_stats=True)
        model = library.nn.Sequential(norm, library.nn.BatchNorm1d(2)).double()
        batches = [library.tensor(x * k) for k in (1.0, 2.0)]
        model(batches[0])
        library.optim.swa_utils.update_bn(batches, model)
        converted = library.nn.SyncBatchNorm.convert_sync_batchnorm(model)
        kinds = [type(layer).__name__ for layer in converted]
        made.append((model, norm.momentum, kinds, int(norm.num_batches_tracked)))
    equal(made[0][0], made[1][0])
    assert made[0][1:] == made[1][1:]


def test_statistics_of_models_that_wait_are_not_measured():
    """The statistics would be lost, because nothing awaits the model."""

    class Waiting(ag.nn.Module):
        async def forward(self, x):
            return x

    model = ag.nn.Sequential(Waiting(), ag.nn.BatchNorm1d(3))
    model[1].running_mean.fill_(2.0)
    with pytest.raises(TypeError, match="forward of Waiting is a coroutine function"):
        ag.optim.swa_utils.update_bn([ag.ones(2, 3)], model)
    assert model[1].running_mean.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    "options",
    [{}, {"anneal_epochs": 3, "anneal_strategy": "linear"}, {"anneal_epochs": 0}],
)
def test_rates_are_pytorchs(options):
    rates = []
    for library in (ag, torch):
        groups = [{"params": [library.zeros(1)], "lr": lr} for lr in (1.0, 0.5)]
        optimizer = library.optim.SGD(groups, lr=1.0)
        schedule = swa_of(library).SWALR(optimizer, [0.05, 0.1], **options)
        seen = []
        for step in range(14):
            optimizer.step()
            if step == 12:
                # Rates that are changed when all steps to the constant ones are done.
                optimizer.param_groups[0]["lr"] = 0.7
            schedule.step()
            seen.append(schedule.get_last_lr())
        rates.append(seen)
    np.testing.assert_allclose(*rates, rtol=1e-12)


def test_others_keep_the_average_they_have_begun_with():
    model = ag.nn.Linear(1, 1, bias=False)
    mean = ag.optim.swa_utils.AveragedModel(model)
    mean.update_parameters(model)
    before = mean.module.weight.item()
    with mean.snapshot():
        ag.nn.init.constant_(model.weight, before + 2.0)
        mean.update_parameters(model)
        assert mean.module.weight.item() == before
    assert mean.module.weight.item() == pytest.approx(before + 1.0)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda swa, o, m: swa.get_ema_avg_fn(1.5), ValueError),
        (lambda swa, o, m: swa.get_ema_multi_avg_fn(-0.5), ValueError),
        (lambda swa, o, m: swa.AveragedModel(m, avg_fn=max, multi_avg_fn=max), AssertionError),
        (lambda swa, o, m: swa.SWALR(o, 0.1, anneal_strategy="step"), ValueError),
        (lambda swa, o, m: swa.SWALR(o, 0.1, anneal_epochs=-1), ValueError),
        (lambda swa, o, m: swa.SWALR(o, [0.1, 0.2]), ValueError),
    ],
)
def test_what_pytorch_refuses_is_refused(make, error):
    for library in (torch, ag):
        model = library.nn.Linear(1, 1)
        with pytest.raises(error):
            make(swa_of(library), library.optim.SGD(model.parameters(), lr=1.0), model)
