"""Programs on a simulated device: the operations, streams, waits and bits of eager calls."""

import asyncio
from collections import Counter
from contextlib import contextmanager, nullcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_counts import replays
from tree_bits import bits

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.errors import AcceleratorError, AutogradError, RaceError
from asyncgrad.testing import simulate

F = nn.functional


@pytest.fixture(autouse=True)
def machine():
    """A machine on which time passes only while somebody waits."""
    with simulate(devices=2) as machine:
        yield machine


class Log(list):
    """The operations of a machine: their names, streams, and what streams have waited for."""


@contextmanager
def logged(machine):
    """Note what is put into the machine's streams."""
    log = Log()
    put = machine._put

    def noted(name, stream, *seconds, **waits):
        # A replay copies what the first call has filled with zeros.
        log.append((name.replace("zeros", "array"), stream.number))
        return put(name, stream, *seconds, **waits)

    machine._put = noted
    try:
        yield log
    finally:
        del machine._put


def check_log(found, wanted):
    """Compare the operations of a replay with those of an eager call."""
    found, wanted = Counter(found), Counter(wanted)
    assert not found - wanted
    # A loss of which only gradients are wanted is not computed.
    assert {name for name, _ in wanted - found} <= {"reduce", "__truediv__", "square"}


def inputs(count, shape=(4, 3)):
    ag.manual_seed(3)
    return [ag.randn(*shape).to("sim:0") for _ in range(count)]


def weights(*shapes):
    ag.manual_seed(1)
    return [ag.randn(*shape).to("sim:0").requires_grad_() for shape in shapes]


def layers(x, w, v):
    return ag.tanh(x @ w) @ v + ag.zeros(2, device="sim:0")


def forward(x, w, v):
    with ag.no_grad():
        return layers(x, w, v) * 2


def slopes(x, w, v):
    return ag.grad((layers(x, w, v) ** 2).mean(), (w, v))


def accumulated(x, w, v):
    loss = (layers(x, w, v) ** 2).sum() + (w * w).sum()
    loss.backward()
    return loss.detach()


def from_the_host(x, w, v):
    """The batch comes from the host, and the number goes there."""
    host = ag.ones(4, 3) * 2
    with ag.no_grad():
        return layers(x + host.to("sim:0"), w, v).cpu() + 1


def changed_in_place(x, w, v):
    y = x * 1
    y.add_(2)
    y[ag.tensor([0, 2], device="sim:0")] = x[:2]
    return ag.grad((y @ w).sum(), w)[0]


PROGRAMS = [forward, slopes, accumulated, from_the_host, changed_in_place]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("aside", [False, True])
def test_a_replay_puts_the_same_operations_into_the_same_streams(machine, program, aside):
    """Also in a stream of the caller's."""
    stream = ag.Stream(device="sim:0")
    batches = inputs(4)
    eager, replayed = weights((3, 5), (5, 2)), weights((3, 5), (5, 2))
    step = ag.compile(program)
    stream.wait_stream(ag.accelerator.current_stream("sim:0"))
    for count, x in enumerate(batches):
        with stream if aside else nullcontext():
            with logged(machine) as wanted:
                expected = program(x, *eager)
            with logged(machine) as found:
                result = step(x, *replayed)
            assert bits(result) == bits(expected)
            assert bits([w.grad for w in replayed if w.grad is not None]) == bits(
                [w.grad for w in eager if w.grad is not None]
            )
        assert replays(step) == count, step.explain()
        # What changes in place is a copy in a replay.
        if count and program is not changed_in_place:
            check_log(found, wanted)
    assert "on sim:0" in step.explain()


@pytest.mark.asyncio
@pytest.mark.parametrize("program", [slopes, accumulated])
async def test_an_awaited_replay_does_the_same_and_never_blocks(machine, program):
    batches = inputs(4)
    eager, replayed = weights((3, 5), (5, 2)), weights((3, 5), (5, 2))

    async def plain(x, w, v):
        if program is slopes:
            return await ag.grad((layers(x, w, v) ** 2).mean(), (w, v))
        loss = (layers(x, w, v) ** 2).sum() + (w * w).sum()
        await loss.backward()
        return loss.detach()

    step = ag.compile(plain)
    for count, x in enumerate(batches):
        with logged(machine) as wanted:
            expected = await plain(x, *eager)
        blocked = machine.blocked
        with logged(machine) as found:
            result = await step(x, *replayed)
        assert machine.blocked == blocked
        assert replays(step) == count, step.explain()
        assert bits(result) == bits(expected)
        # What changes in place is a copy in a replay.
        if count and program is not changed_in_place:
            check_log(found, wanted)
    assert bits([w.grad for w in replayed if w.grad is not None]) == bits(
        [w.grad for w in eager if w.grad is not None]
    )


OPTIMIZERS = {
    "sgd": lambda ps: ag.optim.SGD(ps, lr=0.1, momentum=0.9),
    "adam": lambda ps: ag.optim.Adam(ps, lr=0.01),
    "adagrad": lambda ps: ag.optim.Adagrad(ps, lr=0.1),
}


class Training:
    """A model on the device, its optimiser, a schedule, and a step over them."""

    def __init__(self, optimizer, *, to_none=True, accumulate=1):
        ag.manual_seed(5)
        self.model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3))
        self.model.to("sim:0")
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        schedule = ag.optim.lr_scheduler.StepLR(self.optimizer, 2, gamma=0.5)
        model, update = self.model, self.optimizer

        def step(x, target):
            update.zero_grad(set_to_none=to_none)
            for _ in range(accumulate):
                loss = F.cross_entropy(model(x), target)
                loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            update.step()
            schedule.step()
            return loss.detach(), norm

        async def awaited(x, target):
            update.zero_grad(set_to_none=to_none)
            for _ in range(accumulate):
                loss = F.cross_entropy(model(x), target)
                await loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            update.step()
            schedule.step()
            return loss.detach(), norm

        self.step, self.awaited = step, awaited

    def state(self):
        """All that a step may change."""
        return bits([
            list(self.model.parameters()),
            [p.grad for p in self.model.parameters()],
            self.optimizer.state_dict(),
        ])  # fmt: skip


def batches(count):
    ag.manual_seed(7)
    return [(ag.randn(4, 3).to("sim:0"), ag.randint(0, 3, (4,)).to("sim:0")) for _ in range(count)]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("options", [{}, {"to_none": False, "accumulate": 2}])
def test_training_steps_are_replayed(machine, optimizer, options):
    eager, replayed = Training(optimizer, **options), Training(optimizer, **options)
    step = ag.compile(replayed.step)
    for x, target in batches(7):
        assert bits(step(x, target)) == bits(eager.step(x, target))
        assert replayed.state() == eager.state()
    assert replays(step) >= 4, step.explain()


@pytest.mark.asyncio
@pytest.mark.parametrize("aside", [False, True])
async def test_awaited_training_steps_are_replayed(machine, aside):
    eager, replayed = Training("adam", accumulate=2), Training("adam", accumulate=2)
    step = ag.compile(replayed.awaited)
    data = batches(6)
    stream = ag.Stream(device="sim:0")
    stream.wait_stream(ag.accelerator.current_stream("sim:0"))
    for x, target in data:
        with stream if aside else nullcontext():
            blocked = machine.blocked
            result = await step(x, target)
            assert machine.blocked == blocked
            assert bits(result) == bits(await eager.awaited(x, target))
            assert replayed.state() == eager.state()
    assert replays(step) >= 3, step.explain()


@pytest.mark.parametrize("aside", [False, True])
def test_results_have_a_graph_on_the_device(machine, aside):
    """Passes come later, from outside: plain ones, in another stream, and with graphs."""
    stream = ag.Stream(device="sim:0")
    eager, replayed = weights((3, 5), (5, 2)), weights((3, 5), (5, 2))
    step = ag.compile(layers)

    def passes(function, own, x):
        out = function(x, *own)
        (out * out).sum().backward()
        first = ag.grad((function(x, *own) ** 2).sum(), own, create_graph=True)
        second = ag.grad(sum((g * g).sum() for g in first), own)
        return out, *first, *second

    data = inputs(4)
    stream.wait_stream(ag.accelerator.current_stream("sim:0"))
    for x in data:
        with stream if aside else nullcontext():
            assert bits(passes(step, replayed, x)) == bits(passes(layers, eager, x))
    ag.accelerator.current_stream("sim:0").wait_stream(stream)
    assert bits([w.grad for w in replayed]) == bits([w.grad for w in eager])
    assert replays(step) == 7, step.explain()


def test_gradients_are_summed_in_the_first_pass_through_a_result(machine):
    """Also while that pass is recorded, where the engine does not add them."""

    def loss(x, w):
        y = ag.tanh(x * w)
        return ((y * y + ag.exp(-y)) * ag.sigmoid(y)).sum()

    (weight,) = weights((3,))
    step = ag.compile(loss)
    for x in inputs(3):
        expected = ag.grad(loss(x, weight), weight)
        assert bits(ag.grad(step(x, weight), weight)) == bits(expected)
    assert replays(step) == 2


def test_a_missing_wait_is_found_in_a_replay(machine):
    """What another stream computes has to be waited for, as in eager calls."""
    own = weights((3, 5), (5, 2))
    step = ag.compile(slopes)
    (x,) = inputs(1)
    step(x, *own)
    step(x, *own)
    x = x * 2
    stream = ag.Stream(device="sim:0")
    for function in (slopes, step):
        with stream, pytest.raises(RaceError, match="in no certain order"):
            function(x, *own)
    stream.wait_stream(stream.device.default_stream)
    with stream:
        expected = slopes(x, *own)
        assert bits(step(x, *own)) == bits(expected)
    assert replays(step) == 2, step.explain()


def test_memory_of_a_replay_is_kept_until_other_streams_have_read_it(machine):
    """The caller drops its arrays at once; leaves are accumulated in the stream that used them."""
    side = ag.Stream(device="sim:0")
    default = side.device.default_stream
    eager, replayed = weights((3, 5), (5, 2)), weights((3, 5), (5, 2))
    for own in (eager, replayed):
        # Their gradients are added on `side`, which used them first, as long as this graph lives.
        side.wait_stream(default)
        with side:
            own.append((own[0] * own[0]).sum() + (own[1] * own[1]).sum())
    step = ag.compile(accumulated)
    for x in inputs(5):
        for function, own in ((accumulated, eager), (step, replayed)):
            function(x * 1, *own[:2])
            # They may be read here, and their memory is used again.
            ag.zeros(4, 3, device="sim:0").add_(1)
    assert replays(step) == 4, step.explain()
    assert bits([w.grad for w in replayed[:2]]) == bits([w.grad for w in eager[:2]])


@pytest.mark.parametrize("ahead", range(12))
def test_a_fault_of_the_device_leaves_every_grad_as_it_was(machine, ahead):
    own = weights((3, 5), (5, 2))
    step = ag.compile(accumulated)
    first, *others = inputs(4)
    step(first, *own)
    step(others[0], *own)
    before = bits([w.grad for w in own])
    machine.fail(ahead)
    with pytest.raises(AcceleratorError, match="simulated fault"):
        step(others[1], *own)
    assert bits([w.grad for w in own]) == before
    step(others[2], *own)
    assert bits([w.grad for w in own]) != before
    assert replays(step) >= 2


@pytest.mark.asyncio
async def test_a_cancelled_replay_commits_nothing(machine):
    """At each turn of the loop: either nothing has happened, or all of it."""
    own = weights((3, 5), (5, 2))

    @ag.compile
    async def step(x):
        loss = (layers(x, *own) ** 2).sum()
        await loss.backward()
        return loss.detach()

    (x,) = inputs(1)
    await step(x)
    await step(x)
    gradients = await ag.grad((layers(x, *own) ** 2).sum(), own)
    cancelled = 0
    # A replay takes some 50 turns; on a busy machine its slices are shorter, and it takes more.
    for turns in range(1_000):
        before = bits([w.grad.clone() for w in own])
        after = bits([w.grad + g for w, g in zip(own, gradients, strict=True)])
        task = asyncio.ensure_future(step(x))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            cancelled += bits([w.grad.clone() for w in own]) == before
            assert bits([w.grad.clone() for w in own]) in (before, after)
        else:
            assert bits([w.grad.clone() for w in own]) == after
            break
    assert cancelled
    assert replays(step) >= 2


@pytest.mark.asyncio
async def test_many_replays_in_flight_on_one_device(machine):
    own = weights((3, 5), (5, 2))

    async def plain(x):
        return await ag.grad((layers(x, *own) ** 2).sum(), own)

    step = ag.compile(plain)
    data = inputs(8)
    await step(data[0])
    found = await asyncio.gather(*[step(x) for x in data])
    wanted = [await plain(x) for x in data]
    assert bits(found) == bits(wanted)
    assert replays(step) == len(data), step.explain()


def test_one_program_serves_every_stream(machine):
    own = weights((3, 5), (5, 2))
    step = ag.compile(forward)
    (x,) = inputs(1)
    expected = bits(forward(x, *own))
    for _ in range(4):
        stream = ag.Stream(device="sim:0")
        stream.wait_stream(stream.device.default_stream)
        with stream, logged(machine) as found:
            result = step(x, *own)
        assert {number for _, number in found} == {stream.raw.number}
        with stream:
            assert bits(result) == expected
    assert replays(step) == 3, step.explain()


def test_another_simulation_makes_another_recording():
    step = ag.compile(lambda x: x + ag.ones(2, device="sim:0"))
    for _ in range(2):
        with simulate():
            x = ag.ones(2).to("sim:0")
            assert [step(x).tolist() for _ in range(2)] == [[2, 2]] * 2
    assert "2 recorded, 2 replayed" in step.explain()


@pytest.mark.parametrize("device", ["cpu", "sim:0"])
@pytest.mark.parametrize("weighted", [False, True])
def test_smoothed_labels_are_replayed(device, weighted):
    weight = ag.rand(3).to(device) if weighted else None
    loss = nn.CrossEntropyLoss(weight, label_smoothing=0.1, ignore_index=1)
    step = ag.compile(lambda x, y: ag.grad(loss(x, y), x)[0])
    for x in inputs(3):
        x = x.to(device).requires_grad_()
        y = ag.tensor([0, 2, 1, 2], device=device)
        assert bits(step(x, y)) == bits(ag.grad(loss(x, y), x)[0])
    assert replays(step) == 2, step.explain()


def many_devices(x):
    return (x * 2).to("sim:1") + 1


def another_stream(x):
    with ag.Stream(device="sim:0"):
        return x + 1


def a_look(x):
    return x * 2 if x.sum() > 0 else x


def there_and_back(x):
    w = ag.ones(3).requires_grad_()
    return ag.grad((w.to("sim:0") * x).sum(), w)[0]


def a_hook(x):
    w = x.detach().requires_grad_()
    y = w * x
    y.register_hook(lambda grad: grad * 2)
    y.sum().backward()
    return w.grad


class Squared(ag.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0] * 2


def a_function(x):
    x = x.detach().requires_grad_()
    return ag.grad(Squared.apply(x).sum(), x)[0]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (a_hook, "MulBackward0: it gets gradients on a device with streams"),
        (a_function, "SquaredBackward: it gets gradients on a device with streams"),
        (many_devices, "it uses several devices with streams"),
        (another_stream, "devices.streams.Stream"),
        (a_look, "item"),
        (there_and_back, "ToCopyBackward0"),
    ],
)
def test_what_stays_eager_says_why(function, reason):
    step = ag.compile(function)
    data = inputs(3)
    ag.accelerator.synchronize("sim:0")
    for x in data:
        expected, found = function(x), step(x)
        ag.accelerator.synchronize("sim:0")
        assert bits(found) == bits(expected)
    assert replays(step) == 0
    assert reason in step.explain()
    with pytest.raises(AutogradError, match="fullgraph"):
        ag.compile(function, fullgraph=True)(x)


def test_results_with_a_graph_on_the_host_and_a_device_stay_eager():
    weights = [ag.ones(3, device=device, requires_grad=True) for device in ("cpu", "sim:0")]
    step = ag.compile(lambda x: (weights[0] * 2, weights[1] * x))
    x = ag.ones(3, device="sim:0")
    for _ in range(3):
        ag.autograd.backward([y.sum() for y in step(x)])
    assert [w.grad.tolist() for w in weights] == [[6.0] * 3, [3.0] * 3]
    assert replays(step) == 0
    assert "its results are on several devices" in step.explain()


STEPS = {
    "mul": lambda a, b: a * b,
    "add": lambda a, b: a + b * 2,
    "tanh": lambda a, b: ag.tanh(a),
    "matmul": lambda a, b: a @ b,
    "sum": lambda a, b: a.sum(0) + b,
    "cat": lambda a, b: ag.cat([a, b])[1:4],
    "where": lambda a, b: ag.where(a > 0, a, b),
    "clone": lambda a, b: a.clone(),
    "view": lambda a, b: a.T,
    "softmax": lambda a, b: ag.softmax(a, 1) * b,
    "norm": lambda a, b: F.layer_norm(a, (3,)),
}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(tuple(STEPS)), st.integers(0, 9), st.integers(0, 9)),
        min_size=1, max_size=10,
    ),
    st.booleans(),
    st.integers(0, 3),
)  # fmt: skip
def test_random_programs_equal_eager_calls(steps, backward, turn):
    """In any order in which the machine serves its streams."""

    chosen = [(STEPS[name], i, j) for name, i, j in steps]

    def program(x, w):
        values = [x, w]
        for made, i, j in chosen:
            a, b = values[i % len(values)], values[j % len(values)]
            values.append(made(a, b))
        loss = sum(value.sum() for value in values)
        if backward:
            loss.backward()
            return loss.detach()
        return ag.grad(loss, (x, w))

    with simulate(schedule=lambda heads: turn):
        ag.manual_seed(1)
        own = [[ag.randn(3, 3).to("sim:0").requires_grad_() for _ in range(2)] for _ in range(2)]
        for mine, source in zip(own[1], own[0], strict=True):
            mine.data.copy_(source.data)
        step = ag.compile(program)
        for _ in range(3):
            assert bits(step(*own[1])) == bits(program(*own[0]))
            assert bits([x.grad for x in own[1]]) == bits([x.grad for x in own[0]])
        assert replays(step) == 2, step.explain()


def of_gradients(p):
    p.grad.clamp_(-1, 1)
    p.grad[0] = 0
    p.grad /= 2


def of_memory(p):
    p.data.mul_(0.9)
    p.data = p.data * 0.5 + p.grad


@pytest.mark.parametrize("change", [of_gradients, of_memory])
def test_changes_by_hand(change):
    found = []
    for compiled in (False, True):
        ag.manual_seed(0)
        model = nn.Linear(4, 4).to("sim:0")
        optimizer = ag.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = model(x).pow(2).sum()
            loss.backward()
            for parameter in model.parameters():
                change(parameter)
            optimizer.step()
            return loss.detach()

        call = ag.compile(step, fullgraph=True) if compiled else step
        results = []
        for number in range(4):
            out = call(ag.full((2, 4), float(number)).to("sim:0"))
            results.append(bits([out, *model.parameters()]))
        found.append(results)
    assert found[0] == found[1]
    assert replays(call) == 3
