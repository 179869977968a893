"""Training steps on CUDA devices that are captured into one CUDA graph."""

import asyncio
import threading

import numpy as np
import pytest
from cupy_stand_in import installed
from tree_bits import bits

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.errors import AcceleratorError

F = nn.functional
optim = ag.optim


def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))


class Training:
    """A model on a device, its optimiser, and a step over them."""

    def __init__(self, device, make, model=mlp, loss=None, schedule=None):
        ag.manual_seed(5)
        self.model = model().to(device)
        self.optimizer = make(self.model.parameters())
        self.schedule = None if schedule is None else schedule(self.optimizer)
        self.loss = loss or (lambda model, x, y: F.cross_entropy(model(x), y))

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(self.model, x, y)
        loss.backward()
        self.optimizer.step()
        return loss

    def state(self):
        """All that a step may change."""
        own = list(self.model.parameters())
        return bits([
            own, [p.grad for p in own], [p._version for p in own],
            [p.grad._version for p in own if p.grad is not None],
            self.optimizer.state_dict(), self.optimizer.steps_taken, list(self.model.buffers()),
        ])  # fmt: skip


def is_whole(fast):
    """Whether the whole call is one graph, and no smaller parts are."""
    text = fast.explain()
    others = ("can be one CUDA graph", "no CUDA graph", "not one CUDA graph")
    return "are one CUDA graph" in text and not any(words in text for words in others)


def batches(device, count=8):
    ag.manual_seed(7)
    return [(ag.randn(5, 6).to(device), ag.randint(0, 4, (5,)).to(device)) for _ in range(count)]


def compare(device, *what, step=Training.step, count=8, graph=True, keeps=True, **options):
    """Steps give the bits of eager ones, and nothing that they give is overwritten later."""
    eager, captured = (Training(device, *what, **options) for _ in range(2))
    fast = ag.compile(lambda x, y: step(captured, x, y))
    kept = []
    for x, y in batches(device, count):
        expected = step(eager, x, y)
        found = fast(x, y)
        assert bits(found) == bits(expected)
        assert captured.state() == eager.state()
        grads = [p.grad for p in captured.model.parameters()]
        kept.append(([found, grads], bits([expected, [p.grad for p in eager.model.parameters()]])))
        for one in (eager, captured):
            if one.schedule is not None:
                one.schedule.step()
    for found, expected in kept if keeps else ():
        assert bits(found) == expected
    assert is_whole(fast) is graph, fast.explain()
    assert f"{count - 1} replayed" in fast.explain(), fast.explain()
    return fast


OPTIMIZERS = {
    "SGD": lambda ps: optim.SGD(ps, lr=0.1),
    "SGD with momentum": lambda ps: optim.SGD(
        ps, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01
    ),
    "SGD by Nesterov": lambda ps: optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda ps: optim.Adam(ps, lr=0.01),
    "Adam without momentum": lambda ps: optim.Adam(ps, lr=0.01, betas=(0.0, 0.9)),
    "Adam with options": lambda ps: optim.Adam(
        ps, lr=0.01, amsgrad=True, weight_decay=0.01, maximize=True
    ),
    "AdamW": lambda ps: optim.AdamW(ps, lr=0.01, weight_decay=0.1),
    "Adamax": lambda ps: optim.Adamax(ps, lr=0.01),
    "NAdam": lambda ps: optim.NAdam(ps, lr=0.01),
    "RAdam": lambda ps: optim.RAdam(ps, lr=0.01),
    "ASGD": lambda ps: optim.ASGD(ps, lr=0.1, t0=4),
    "Adagrad": lambda ps: optim.Adagrad(ps, lr=0.1, lr_decay=0.1),
    "Adadelta": lambda ps: optim.Adadelta(ps),
    "RMSprop": lambda ps: optim.RMSprop(ps, lr=0.01, momentum=0.9, centered=True),
    "Rprop": lambda ps: optim.Rprop(ps, lr=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_one_launch(device, name):
    """Rates, counts and moments change from step to step, and nothing is captured anew."""
    compare(device, OPTIMIZERS[name])


def test_what_a_step_launches(monkeypatch):
    """Copies in, numbers that have changed, the graph, and copies out."""
    machine = installed(monkeypatch, devices=2).machine
    training = Training("cuda:1", OPTIMIZERS["Adam"])
    fast = ag.compile(training.step)
    data = batches("cuda:1", 5)
    for x, y in data[:3]:
        fast(x, y)
    names = []
    launch = machine.launch
    monkeypatch.setattr(
        machine, "launch", lambda name, *rest: names.append(name) or launch(name, *rest)
    )
    for x, y in data[3:]:
        names.clear()
        fast(x, y)
        assert [name for name in names if name != "empty_like"] == [
            "copyto", "copyto", "fill", "fill", "graph", *["copyto"] * 7
        ]  # fmt: skip


@pytest.mark.parametrize("name", ["SGD with momentum", "Adam with options"])
def test_a_schedule_of_momenta_captures_nothing_anew(device, name):
    captures = []
    kind = type(ag.device(device))
    capture = kind.capture
    kind.capture = lambda self, *what: captures.append(what) or capture(self, *what)
    try:
        compare(
            device, OPTIMIZERS[name],
            schedule=lambda o: optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=10),
        )  # fmt: skip
    finally:
        kind.capture = capture
    assert len(captures) == 1


@pytest.mark.parametrize("name", ["SGD with momentum", "AdamW"])
def test_a_schedule_captures_nothing_anew(device, name):
    """Also one within the step, and one that ends far below where it began."""
    captures = []
    kind = type(ag.device(device))
    capture = kind.capture

    def counted(self, *what):
        captures.append(what)
        return capture(self, *what)

    def step(self, x, y):
        loss = self.step(x, y)
        inner.step()
        return loss

    kind.capture = counted
    try:
        compare(
            device, OPTIMIZERS[name], count=12,
            schedule=lambda o: optim.lr_scheduler.ExponentialLR(o, 0.7),
        )  # fmt: skip
        assert len(captures) == 1
        eager, captured = (Training(device, OPTIMIZERS[name]) for _ in range(2))
        schedules = [optim.lr_scheduler.StepLR(t.optimizer, 2) for t in (eager, captured)]
        inner = schedules[1]
        fast = ag.compile(lambda x, y: step(captured, x, y))
        for x, y in batches(device):
            inner = schedules[0]
            expected = step(eager, x, y)
            inner = schedules[1]
            assert bits(fast(x, y)) == bits(expected)
            assert captured.state() == eager.state()
    finally:
        kind.capture = capture


def groups(parameters):
    """Two groups of other rates and decays, of which one has a parameter without a gradient."""
    own = list(parameters)
    return optim.AdamW(
        [
            {"params": own[:2], "lr": 0.1},
            {"params": [*own[2:], ag.ones(2).to(own[0].device).requires_grad_()]},
            {"params": ag.ones(2).to(own[0].device)},
        ],
        lr=0.01, weight_decay=0.2,
    )  # fmt: skip


def test_groups_and_parameters_without_gradients(device):
    compare(device, groups)


CLIPS = {
    "norm": lambda ps: nn.utils.clip_grad_norm_(ps, 0.1),
    "largest": lambda ps: nn.utils.clip_grad_norm_(ps, 0.1, float("inf")),
    "values": lambda ps: nn.utils.clip_grad_value_(ps, 0.01),
}


@pytest.mark.parametrize("clip", CLIPS)
def test_clipping_is_captured(device, clip):
    """With the norm that it returns."""

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(self.model, x, y)
        loss.backward()
        norm = CLIPS[clip](self.model.parameters())
        self.optimizer.step()
        return loss.detach(), norm

    compare(device, OPTIMIZERS["Adam"], step=step)


def test_clipping_of_many_gradients(device):
    """CuPy would join their norms in a way that can't be captured."""

    def model():
        return nn.Sequential(nn.Linear(6, 8), *[nn.Linear(8, 8) for _ in range(4)], nn.Linear(8, 4))

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(self.model, x, y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
        self.optimizer.step()
        return loss.detach(), norm

    compare(device, OPTIMIZERS["SGD"], model, step=step)


def test_other_functions_follow_the_graph(device):
    """An average of the weights, and an optimiser that can't be captured."""

    class Averaged(Training):
        def __init__(self, *what):
            super().__init__(*what)
            self.average = optim.swa_utils.AveragedModel(self.model)

        def state(self):
            return [super().state(), bits(self.average.state_dict())]

    def step(self, x, y):
        loss = self.step(x, y)
        self.average.update_parameters(self.model)
        return loss

    for made in (OPTIMIZERS["Adam"], lambda ps: optim.Adafactor(ps, lr=0.1)):
        eager, captured = (Averaged(device, made) for _ in range(2))
        fast = ag.compile(lambda x, y: step(captured, x, y))  # noqa: B023
        for x, y in batches(device):
            assert bits(fast(x, y)) == bits(step(eager, x, y))
            assert captured.state() == eager.state()
        assert is_whole(fast), fast.explain()
        assert "AveragedModel.update_parameters" in fast.explain()


def test_a_result_that_is_a_view(device):
    """It is taken of the copy of its base, which is a result, too."""

    def step(training, x, y):
        training.optimizer.zero_grad()
        losses = training.model(x).square().mean(1)
        losses.sum().backward()
        training.optimizer.step()
        return losses.unsqueeze(1)

    compare(device, OPTIMIZERS["SGD"], step=step)


def test_several_passes_of_one_step(device):
    """Their gradients are added."""

    def step(self, x, y):
        self.optimizer.zero_grad()
        for part in (x, -x):
            loss = self.loss(self.model, part, y)
            loss.backward()
        self.optimizer.step()
        return loss.detach()

    compare(device, OPTIMIZERS["SGD"], step=step)


def test_gradients_that_are_dropped_at_the_end(device):
    def step(self, x, y):
        loss = self.loss(self.model, x, y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    compare(device, OPTIMIZERS["Adam"], step=step)


def test_two_models_that_step_in_turn(device):
    """Each pass gives gradients to both, and one model drops them."""

    class Pair(Training):
        def __init__(self, *what):
            super().__init__(*what)
            ag.manual_seed(6)
            self.other = nn.Sequential(nn.Linear(6, 6), nn.Tanh()).to(device)
            self.second = optim.Adam(self.other.parameters(), lr=0.01)

        def step(self, x, y):
            self.optimizer.zero_grad()
            made = self.other(x)
            first = self.loss(self.model, x, y) - self.loss(self.model, made, y)
            first.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
            self.optimizer.step()
            self.second.zero_grad()
            second = self.loss(self.model, self.other(x), y)
            second.backward()
            self.second.step()
            return first.detach(), second.detach()

        def state(self):
            own = list(self.other.parameters())
            return [
                super().state(), *bits([own, [p.grad for p in own], self.second.state_dict()]),
                [p._version for p in own],
            ]  # fmt: skip

    eager, captured = (Pair(device, OPTIMIZERS["AdamW"]) for _ in range(2))
    fast = ag.compile(captured.step)
    for x, y in batches(device):
        assert bits(fast(x, y)) == bits(eager.step(x, y))
        assert captured.state() == eager.state()
    assert is_whole(fast), fast.explain()


def test_a_pass_alone(device):
    """The optimiser steps outside."""

    def step(self, x, y):
        self.model.zero_grad()
        loss = self.loss(self.model, x, y)
        loss.backward()
        return loss.detach()

    compare(device, OPTIMIZERS["Adam"], step=step)


def test_gradients_that_are_there_already(device):
    """They are added to, where they are."""

    def step(self, x, y):
        loss = self.loss(self.model, x, y)
        loss.backward()
        return loss.detach()

    compare(device, OPTIMIZERS["SGD"], step=step, keeps=False)


def test_gradients_that_are_read(device):
    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(self.model, x, y)
        loss.backward()
        weight = self.model[0].weight
        before = (weight.grad * 2).sum()
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
        self.optimizer.step()
        return loss.detach(), before, weight.grad

    compare(device, OPTIMIZERS["Adam"], step=step)


def test_norms_of_layers_divide_nothing(device):
    def model():
        return nn.Sequential(
            nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 8), nn.LayerNorm(8),
            nn.Linear(8, 4),
        )  # fmt: skip

    compare(device, OPTIMIZERS["AdamW"], model)


class Last(nn.Module):
    """Classes from the last state of a layer that goes along a sequence."""

    def __init__(self, kind):
        super().__init__()
        self.layer = kind(3, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        out, _ = self.layer(x.reshape(5, 2, 3).transpose(0, 1))
        return self.head(out[-1])


@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN])
def test_sequences_are_captured(device, kind):
    compare(device, OPTIMIZERS["Adam"], lambda: Last(kind))


def test_copies_from_the_host_are_not_captured(device):
    """They would be copied from memory that has other contents by then."""

    numbers = np.arange(3.0)
    device_xp = ag.device(device).xp

    def capture():
        with pytest.raises(NotImplementedError, match="from the host"):
            device_xp.asarray(numbers)

    ag.device(device).capture(capture)
    assert device_xp.asarray(numbers).shape == (3,)


def test_running_moments_and_dropout(device):
    """The moments change within the graph. Masks are drawn before it."""

    def model():
        return nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 4)
        )

    eager, captured = (Training(device, OPTIMIZERS["Adam"], model) for _ in range(2))
    fast = ag.compile(captured.step)
    for number, (x, y) in enumerate(batches(device)):
        ag.manual_seed(number)
        expected = eager.step(x, y)
        ag.manual_seed(number)
        assert bits(fast(x, y)) == bits(expected)
        assert captured.state() == eager.state()
        assert [b._version for b in captured.model.buffers()] == [
            b._version for b in eager.model.buffers()
        ]
    assert is_whole(fast), fast.explain()


def test_a_weight_whose_old_values_are_needed(device):
    """A graph that is there before keeps them, and the weight gets new memory."""
    eager, captured = (Training(device, OPTIMIZERS["SGD"]) for _ in range(2))
    fast = ag.compile(captured.step)
    slopes = []
    for number, (x, y) in enumerate(batches(device, 10)):
        models = (eager.model, captured.model)
        graphs = [model(x).sum() if number in {4, 6} else None for model in models]
        assert bits(fast(x, y)) == bits(eager.step(x, y))
        assert captured.state() == eager.state()
        for model, graph in zip(models, graphs, strict=True):
            if graph is not None:
                slopes.append(bits(ag.grad(graph, model[4].weight)[0]))
    assert slopes[::2] == slopes[1::2]
    assert "9 replayed" in fast.explain()
    assert "are one CUDA graph" in fast.explain()


@pytest.mark.parametrize("name", ["SGD with momentum", "Adam", "NAdam", "ASGD"])
def test_what_is_loaded_or_changed_between_steps(device, name):
    """Weights, states, options and gradients."""
    eager, captured = (Training(device, OPTIMIZERS[name]) for _ in range(2))
    fast = ag.compile(captured.step)
    saved = None
    for number, (x, y) in enumerate(batches(device, 14)):
        for training in (eager, captured):
            group = training.optimizer.param_groups[0]
            if number == 4:
                training.model[0].weight.data = training.model[0].weight.data * 2
            if number == 5:
                group["weight_decay"] = 0.3
            if number == 6:
                with ag.no_grad():
                    training.model[0].weight.mul_(0.5)
            if number == 7:
                weight = training.model[2].weight
                weight.data = weight.data.t()
            if number == 8:
                training.optimizer.load_state_dict(saved)
            if number == 9:
                training.model[0].bias.requires_grad_(False)
            if number == 10:
                training.model[0].bias.requires_grad_(True)
                training.optimizer.state.clear()
        assert bits(fast(x, y)) == bits(eager.step(x, y))
        assert captured.state() == eager.state()
        if number == 2:
            saved = eager.optimizer.state_dict()
    assert "replayed" in fast.explain()


def test_steps_in_another_stream(device):
    """The race detector is on."""
    eager, captured = (Training(device, OPTIMIZERS["Adam"]) for _ in range(2))
    fast = ag.compile(captured.step)
    default = ag.device(device).default_stream
    stream = ag.Stream(device=device)
    for number, (x, y) in enumerate(batches(device)):
        expected = bits(eager.step(x, y))
        if number % 2:
            assert bits(fast(x, y)) == expected
        else:
            stream.wait_stream(default)
            with stream:
                found = fast(x, y)
            default.wait_stream(stream)
            assert bits(found) == expected
        assert captured.state() == eager.state()
    assert "are one CUDA graph" in fast.explain()


def test_steps_in_threads(device):
    """One after the other."""
    eager, captured = (Training(device, OPTIMIZERS["Adam"]) for _ in range(2))
    fast = ag.compile(captured.step)
    for x, y in batches(device):
        expected = bits(eager.step(x, y))
        found = []
        thread = threading.Thread(target=lambda: found.append(bits(fast(x, y))))  # noqa: B023
        thread.start()
        thread.join()
        assert found == [expected]
        assert captured.state() == eager.state()


def awaiting(training):
    """The same step as a coroutine function."""

    async def step(x, y):
        training.optimizer.zero_grad()
        loss = training.loss(training.model, x, y)
        await loss.backward()
        training.optimizer.step()
        return loss

    return step


async def prepare(device, name):
    """Have kernels compiled, for which a loop does not wait, and make turns of the loop long."""
    ag.engine().slice_ns = 10**12
    training = Training(device, OPTIMIZERS[name])
    for x, y in batches(device, 2):
        await asyncio.to_thread(training.step, x, y)


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["SGD with momentum", "AdamW"])
async def test_awaited_steps(device, name):
    """On a loop without debugging they are one launch."""
    await prepare(device, name)
    eager, captured = (Training(device, OPTIMIZERS[name]) for _ in range(2))
    plain, fast = awaiting(eager), ag.compile(awaiting(captured))
    for x, y in batches(device):
        expected = await plain(x, y)
        found = await fast(x, y)
        assert bits(found) == bits(expected)
        assert captured.state() == eager.state()
    assert "7 replayed" in fast.explain()
    assert asyncio.get_running_loop().get_debug() or is_whole(fast), fast.explain()


@pytest.mark.asyncio
async def test_an_awaited_step_does_not_block(monkeypatch):
    """Only the thread that waits for events does."""
    installed(monkeypatch, devices=2)
    training = Training("cuda:1", OPTIMIZERS["Adam"])
    fast = ag.compile(awaiting(training))
    data = batches("cuda:1")
    for x, y in data[:3]:
        await fast(x, y)
    monkeypatch.setattr(ag.Event, "synchronize", None)
    for x, y in data[3:]:
        await fast(x, y)
    assert "7 replayed" in fast.explain()


@pytest.mark.asyncio
@pytest.mark.parametrize("ahead", [0, 8])
async def test_an_awaited_step_on_a_failing_device(monkeypatch, ahead):
    """Every `.grad` is restored."""
    machine = installed(monkeypatch, devices=2).machine
    await prepare("cuda:1", "Adam")
    training = Training("cuda:1", OPTIMIZERS["Adam"])
    fast = ag.compile(awaiting(training))
    data = batches("cuda:1", 5)
    for x, y in data[:4]:
        await fast(x, y)
    training.optimizer.zero_grad()
    machine.fail(ahead)
    with pytest.raises(AcceleratorError):
        await fast(*data[4])
    assert all(p.grad is None for p in training.model.parameters())


@pytest.mark.asyncio
async def test_a_cancelled_step_has_been_taken_or_not_at_all(device):
    """A launch is not undone, and what it changes changes at once."""
    await prepare(device, "Adam")
    eager, captured = (Training(device, OPTIMIZERS["Adam"]) for _ in range(2))
    plain, fast = awaiting(eager), ag.compile(awaiting(captured))
    data = batches(device, 40)
    for x, y in data[:4]:
        await fast(x, y)
        await plain(x, y)
    cancelled = 0
    for turns, (x, y) in enumerate(data[4:]):
        steps = captured.optimizer.steps_taken
        task = asyncio.ensure_future(fast(x, y))
        for _ in range(turns % 4):
            await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            cancelled += 1
        if captured.optimizer.steps_taken > steps:
            await plain(x, y)
            assert captured.state() == eager.state()
        else:
            assert bits(list(captured.model.parameters())) == bits(list(eager.model.parameters()))
    assert cancelled


@pytest.mark.parametrize("ahead", range(12))
def test_a_failing_device_leaves_every_grad_as_it_was(monkeypatch, ahead):
    """And counts no step."""
    machine = installed(monkeypatch, devices=2).machine
    training = Training("cuda:1", OPTIMIZERS["Adam"])
    fast = ag.compile(training.step)
    data = batches("cuda:1", 5)
    for x, y in data[:4]:
        fast(x, y)
    training.optimizer.zero_grad()
    counts = [int(state["step"]) for state in training.optimizer.state.values()]
    machine.fail(ahead)
    with pytest.raises(AcceleratorError):
        fast(*data[4])
    assert all(p.grad is None for p in training.model.parameters())
    assert [int(state["step"]) for state in training.optimizer.state.values()] == counts


def test_hooks_of_optimisers_and_optimisers_of_users(device):
    """They are called as always."""
    calls = []

    class Own(optim.SGD):
        def _update(self, group, parameter, gradient):
            calls.append(parameter)
            super()._update(group, parameter, gradient)

    compare(device, lambda ps: Own(ps, lr=0.1))
    assert len(calls) == 6 * 8 * 2

    def hooked(parameters):
        made = OPTIMIZERS["SGD"](parameters)
        made.register_step_post_hook(lambda *what: calls.append(what))
        return made

    calls.clear()
    compare(device, hooked, graph=False)
    assert len(calls) == 8 * 2


def changing_gradients(training):
    for parameter in training.model.parameters():
        parameter.grad.clamp_(-0.01, 0.01)


def changing_parts_of_weights(training):
    with ag.no_grad():
        training.model[0].weight[0] = 1.0
        training.model[2].weight[1:].mul_(0.5)


def changing_a_shared_array(training):
    with ag.no_grad():
        training.model[0].weight.detach().mul_(0.5)


@pytest.mark.parametrize(
    ("change", "graph"),
    [(changing_gradients, False), (changing_parts_of_weights, True),
     (changing_a_shared_array, True)],
)  # fmt: skip
def test_changes_in_place_between(change, graph, device):
    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(self.model, x, y)
        loss.backward()
        change(self)
        self.optimizer.step()
        return loss

    compare(device, OPTIMIZERS["Adam"], step=step, graph=graph)
