"""Functions that look at values between programs, beside the same functions made eagerly."""

import asyncio
import contextlib
import inspect
import logging
import re
import traceback
import types
from types import SimpleNamespace

import pytest

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.errors import AutogradError
from asyncgrad.replay import flow

log = logging.getLogger(__name__)
EVENTS = SimpleNamespace()


class Training:
    """A model, its optimiser and what is written down."""

    def __init__(self):
        self.model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        with ag.no_grad():
            for p in self.model.parameters():
                p.copy_(ag.arange(float(p.numel())).reshape(p.shape) / 7)
        self.update = ag.optim.Adam(self.model.parameters(), lr=0.1)
        self.seen = []

    def learn(self, x):
        self.update.zero_grad()
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        self.update.step()
        return loss

    def prints(self, x):
        self.update.zero_grad()
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        self.update.step()
        print(loss.item(), float(loss), loss.tolist(), bool(loss > 1), loss.detach().numpy())

    def prints_tensors(self, x):
        self.update.zero_grad()
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        self.update.step()
        print(self.model[0].weight.detach(), f"{loss:.3f}", repr(x), format(loss.item(), ".2f"))

    def appends(self, x):
        self.update.zero_grad()
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        self.update.step()
        self.seen.append(loss.item())

    def logs(self, x):
        self.update.zero_grad()
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        self.update.step()
        log.info("%s", loss.item())
        self.seen.append(1)

    def branches(self, x):
        self.update.zero_grad()
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        self.update.step()
        if loss.item() > 1:
            return "large"
        print(loss.item())
        return loss.detach().numpy()

    def twice(self, x, *, verbose=True, **more):
        for _ in range(2):
            x = x / 2
        self.update.zero_grad()
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        self.update.step()
        value = loss.item()
        if verbose:
            print(value, more)
        self.update.zero_grad()
        other = (self.model(x + 1) ** 2).mean()
        other.backward()
        self.update.step()
        return value, other.item(), "done"

    def until(self, x):
        rounds = 0
        while True:
            self.update.zero_grad()
            loss = (self.model(x) ** 2).mean()
            loss.backward()
            self.update.step()
            self.seen.append(loss.item())
            rounds += 1
            if loss.item() < 0.5 or rounds == 3:
                break
        return rounds, [p.sum() for p in self.model.parameters()]

    def helped(self, x):
        self.update.zero_grad()
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        self.update.step()
        self.tell(loss)

    def tell(self, loss):
        self.seen.append(loss.item())
        print(self.seen)

    def in_a_block(self, x):
        self.update.zero_grad()
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        self.update.step()
        with ag.no_grad():
            norms = [p.norm().item() for p in self.model.parameters()]
        return sum(norms)

    def in_a_block_with_a_loop(self, x):
        self.update.zero_grad()
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        self.update.step()
        self.seen.append(loss.item())
        with ag.no_grad():
            for p, q in zip(self.model[0].parameters(), self.model[2].parameters(), strict=True):
                p.mul_(q.mean())
        return loss.item()


STEPS = [
    Training.prints, Training.prints_tensors, Training.appends, Training.logs, Training.branches,
    Training.twice, Training.until, Training.helped, Training.in_a_block,
    Training.in_a_block_with_a_loop,
]  # fmt: skip


def plain(value):
    """What is compared: nodes of programs have names of their own."""
    return re.sub(r", grad_fn=<\w+>", "", repr(value))


def replays(function):
    """How many calls of parts were replayed."""
    return [int(n) for n in re.findall(r"^    \S.* (\d+) replayed$", function.explain(), re.M)]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_steps_that_show_what_they_have_learned(step, capsys):
    """What is printed, logged, returned and learned is as without `compile`."""
    ours, theirs = Training(), Training()
    fast = ag.compile(step.__get__(ours))
    for n in range(24):
        x = ag.arange(6.0).reshape(2, 3) * ((n % 5 + 1) / 3)
        found, printed = fast(x), capsys.readouterr().out
        assert plain(found) == plain(step(theirs, x))
        assert plain(printed) == plain(capsys.readouterr().out)
        assert ours.seen == theirs.seen
        for p, q in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
            assert p.tolist() == q.tolist()
    assert max(replays(fast)) >= 10, fast.explain()
    assert "test_divided.py:" in fast.explain()


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_versions_whose_code_is_not_known(step, capsys, monkeypatch):
    """There nothing is divided, and calls are eager."""
    monkeypatch.setattr(flow, "_KNOWN", ())
    ours, theirs = Training(), Training()
    fast = ag.compile(step.__get__(ours))
    for n in range(8):
        x = ag.arange(6.0).reshape(2, 3) * ((n % 5 + 1) / 3)
        found, printed = fast(x), capsys.readouterr().out
        assert plain(found) == plain(step(theirs, x))
        assert plain(printed) == plain(capsys.readouterr().out)
        assert ours.seen == theirs.seen
    assert "programs before" not in fast.explain()


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_one_program_or_an_error(step):
    """With `fullgraph=True` a look is an error that names the line."""
    with pytest.raises(RuntimeError, match=r"fullgraph.*test_divided\.py:\d+"):
        ag.compile(step.__get__(Training()), fullgraph=True)(ag.ones(2, 3))


def test_code_that_is_loaded_anew():
    """The parts are those of the present code, with its present defaults."""

    def step(x, scale=2):
        y = ag.tanh(x) * scale + ag.exp(x) * ag.sin(x) + ag.cos(x)
        print(end="")
        return y

    def other(x, scale=2):
        y = ag.tanh(x) / scale - ag.exp(x) * ag.sin(x) - ag.cos(x)
        print(end="")
        return y

    fast, x = ag.compile(step), ag.arange(3.0)
    for _ in range(2):
        for _ in range(3):
            assert fast(x).tolist() == step(x).tolist()
        step.__defaults__ = (5,)
        for _ in range(3):
            assert fast(x).tolist() == step(x).tolist()
        step.__code__ = other.__code__


def test_code_that_is_loaded_anew_before_there_are_parts():
    """What was read of the old code is forgotten: the new code is divided, and alone is called."""

    def nothing_left(x, a, b):
        print(end=str(x.sum().item())[:0])

    def step(x, a, b):
        y = ag.tanh(x) * 2 + ag.exp(x) * ag.sin(x) + ag.cos(x)
        z = ag.as_tensor(a)
        return y * z

    def other(x, a, b):
        y = ag.tanh(x) / 2 - ag.exp(x) * ag.sin(x) - ag.cos(x)
        z = ag.as_tensor(a)
        return y - z

    for first in (nothing_left, step):
        function = types.FunctionType(first.__code__, globals())
        fast, x, array = ag.compile(function), ag.arange(3.0), ag.ones(3).numpy()
        fast(x, ag.ones(3), array)
        function.__code__ = other.__code__
        for _ in range(3):
            assert fast(x, array, None).tolist() == other(x, array, None).tolist()
        assert "programs before" in fast.explain()


def test_code_that_is_loaded_anew_returns_a_number():
    """As one that is only returned, it is read anew by each replay."""

    def step(x):
        return ag.tanh(x).sum().item()

    def other(x):
        return ag.sin(x).sum().item()

    fast = ag.compile(step)
    for code in (step.__code__, other.__code__):
        step.__code__ = code
        for n in range(3):
            assert fast(ag.ones(3) * n) == step(ag.ones(3) * n)
    assert "2 recorded, 4 replayed" in fast.explain()


@pytest.mark.asyncio
async def test_code_that_is_loaded_anew_is_divided_while_a_part_waits():
    """The part that waits then divides nothing: its points are those of the old code."""
    EVENTS.begun, EVENTS.gate = asyncio.Event(), asyncio.Event()

    w = ag.ones(3, requires_grad=True)

    async def hook(_):
        EVENTS.begun.set()
        await EVENTS.gate.wait()

    async def step(x):
        print(end=(str(len("a") + len("b") + len("c")) + str(len("d") + len("e") + len("f")))[:0])
        await w.sum().backward()  # Too short to be replayed.
        print(end="")
        return x

    async def other(x):
        y = ag.tanh(x) / 2 - ag.exp(x) * ag.sin(x) - ag.cos(x)
        print(end="")
        return y - ag.tanh(x) / 2 - w * 0 - ag.exp(x) * ag.sin(x) - ag.cos(x)

    w.register_hook(hook)
    fast, x = ag.compile(step), ag.arange(3.0)
    waiting = asyncio.ensure_future(fast(x))
    await EVENTS.begun.wait()
    step.__code__ = other.__code__
    for _ in range(3):
        assert (await fast(x)).tolist() == (await other(x)).tolist()
    EVENTS.gate.set()
    assert await waiting is x
    assert w.grad.tolist() == [1, 1, 1]
    assert (await fast(x)).tolist() == (await other(x)).tolist()
    assert "programs before" in fast.explain()


@pytest.mark.asyncio
async def test_code_that_is_loaded_anew_while_a_part_waits():
    """The call that waits ends with the parts of the old code; the new code is left as it is."""
    EVENTS.begun, EVENTS.gate = asyncio.Event(), asyncio.Event()

    async def step(x):
        EVENTS.begun.set()
        await EVENTS.gate.wait()
        return ag.tanh(x)

    async def other(x):
        return ag.sin(x)

    fast, x = ag.compile(step), ag.arange(3.0)
    old = ag.tanh(x).tolist()
    waiting = asyncio.ensure_future(fast(x))
    await EVENTS.begun.wait()
    step.__code__ = other.__code__
    assert (await fast(x)).tolist() == ag.sin(x).tolist()
    EVENTS.gate.set()
    assert (await waiting).tolist() == old
    for _ in range(3):
        assert (await fast(x)).tolist() == ag.sin(x).tolist()


def test_functions_with_outer_variables_and_defaults(capsys):
    """Parts share the cells of the function, and take its arguments in any form."""
    w = ag.ones(3, requires_grad=True)
    seen = []

    def step(x, *rest, scale=2.0, **named):
        w.grad = None
        y = ag.tanh(x * w).sum() * scale
        y = y + ag.exp(-(w * w).sum()) + ag.sin(x).sum()
        y.backward()
        seen.append((y.item(), rest, named))
        z = ag.cos(w.grad) * ag.sin(w.grad)
        z = ag.tanh(z) + ag.exp(z) * scale
        z = ag.tanh(z) + ag.exp(z) * ag.sigmoid(z)
        print(seen[-1])
        return z

    fast = ag.compile(step)
    for n in range(12):
        x = ag.arange(3.0) * n
        found, printed = fast(x, 1, named=n), capsys.readouterr().out
        assert found.tolist() == step(x, 1, named=n).tolist()
        assert printed == capsys.readouterr().out
        assert seen[-1] == seen[-2]
        with ag.no_grad():
            w.mul_(1.5)
        if n == 2:
            w = w.detach().clone().requires_grad_()
    assert len(replays(fast)) == 2
    assert min(replays(fast)) >= 8, fast.explain()
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        fast()


def test_functions_that_others_made_there_share_cells_with():
    """A function that a part defines reads the outer variables of the whole."""
    scale = 2.0
    seen = []

    def step(x):
        y = ag.tanh(x) * 3 + ag.exp(x) * ag.sin(x) + ag.cos(x)
        seen.append((lambda z: z.sum().item() * scale)(y))
        z = ag.tanh(y) * 3 + ag.exp(y) * ag.sin(y) + ag.cos(y)
        return (lambda: scale)(), z

    fast = ag.compile(step)
    for n in range(12):
        x = ag.arange(3.0) / (n + 1)
        assert plain(fast(x)) == plain(step(x))
        assert seen[-1] == seen[-2]
        scale += n // 6
    assert max(replays(fast)) >= 6, fast.explain()


class Swallowing:
    """A manager after whose block a variable may have no value."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return True


def test_later_lines_read_what_a_block_sets():
    """The managers of this package swallow no errors, so that variables have values behind them."""
    w, seen = nn.Parameter(ag.ones(3)), []

    def known(x):
        with contextlib.nullcontext(), ag.set_grad_enabled(bool(seen)):
            y = ag.tanh(x) * 3 + ag.exp(x) * ag.sin(x)
            other = y + ag.cos(y) * ag.sin(x)
        seen.append(other.sum().item())
        with ag.no_grad():
            z = ag.tanh(y) * w + ag.exp(y) * ag.sin(y) + ag.cos(other)
        seen.append(z.sum().item())
        return (ag.tanh(z) + ag.exp(z) * ag.sigmoid(z) - ag.cos(z)) * ag.sin(other)

    def unknown(x):
        with Swallowing():
            y = ag.tanh(x) * 3 + ag.exp(x) * ag.sin(x) + ag.cos(x) * ag.cos(x)
        seen.append(y.sum().item())
        return ag.tanh(y) * w + ag.exp(y) * ag.sin(y) + ag.cos(y) * ag.cos(y)

    for step in (known, unknown):
        fast = ag.compile(step)
        for n in range(12):
            x = ag.arange(3.0) / (n + 1)
            assert plain(fast(x)) == plain(step(x))
            half = len(seen) // 2
            assert seen[half:] == seen[:half]
            seen.clear()
        used = [count for count in replays(fast) if count >= 8]
        assert len(used) == (3 if step is known else 0), fast.explain()


def test_errors_come_from_their_lines():
    """What a part raises has the line of the function, and nothing is made twice."""
    training = Training()
    known = []

    @ag.compile
    def step(x, last):
        loss = training.learn(x)
        known.append(loss.item())
        known.append(1 / last)
        return training.learn(x)

    for last in (1, 1, 1):
        step(ag.ones(2, 3), last)
    with pytest.raises(ZeroDivisionError) as caught:
        step(ag.ones(2, 3), 0)
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert last.line == "known.append(1 / last)"
    assert len(known) == 7


def test_a_variable_that_has_no_value_is_not_deleted():
    """`del` raises the error of the function at the start of a part, too."""

    def step(x, known):
        y = ag.tanh(x) * 2 + 1
        print(y[0].item(), end="")
        if known:
            z = y * 3
        print(y[1].item(), end="")
        del z
        return ag.tanh(ag.sin(ag.tanh(ag.sin(ag.tanh(ag.sin(ag.tanh(y) * 2) + 1)) * 2) + 1) * 2)

    fast = ag.compile(step)
    for known in (True, True, True, False, True, False):
        for call in (step, fast):
            error = pytest.raises(UnboundLocalError, match="'z'")
            with contextlib.nullcontext() if known else error:
                call(ag.ones(2), known)
    assert sum(part._replays for part in fast._cuts.division.compiled_parts()) > 1, fast.explain()


def test_what_parts_are_not_taken_out_of():
    """Looks in loops over items, or in functions whose variables others share, are eager."""

    def loops(xs):
        found = []
        for x in xs:
            y = ag.tanh(x * 2).sum()
            found.append(y.item())
        return found, y

    def shares(x):
        y = ag.tanh(x) * 2
        print(y.item(), end="")
        return (lambda: y * 3)()

    def maybe(x):
        if x.sum() > 0:
            y = ag.tanh(x) * 2
        print(x.item(), end="")
        return y * 2

    for function, x in ((loops, [ag.ones(2)] * 2), (shares, ag.ones(())), (maybe, ag.ones(()))):
        fast = ag.compile(function)
        for n in range(1, 5):
            given = [x[0] * n, x[1]] if isinstance(x, list) else x * n
            found = function(given)
            assert plain(fast(given)) == plain(found)
        assert replays(fast) == []
    fast = ag.compile(maybe)
    fast(ag.ones(()))
    with pytest.raises(UnboundLocalError):
        fast(-ag.ones(()))


def test_functions_that_read_their_own_frame_keep_all_variables(capsys):
    """A part has others: those of the function that it doesn't read have no value there."""

    def shows_its_variables(x):
        y = ag.tanh(x) * 2
        print(sorted(locals()))
        z = ((y * 3).exp() + 1).sum() * 2 - y.tanh().sum() + y.mean() * 3
        return z, sorted(locals())

    def evaluates(x):
        y = ag.tanh(x) * 2
        found = eval("y + 1")
        print(found.sum().item(), y.mean().item())
        z = ((found * 3).exp() + 1).sum() * 2 - found.tanh().sum() + found.mean() * 3
        return z, eval("x is not None and y.mean()")

    for function in (shows_its_variables, evaluates):
        fast = ag.compile(function)
        for n in range(1, 5):
            x = ag.tensor([0.5, 2.0]) * n
            expected = function(x)
            said = capsys.readouterr().out
            assert plain(fast(x)) == plain(expected)
            assert capsys.readouterr().out == said


def test_a_step_that_calls_itself():
    """A look in an inner call is a look in the line of the outer one that calls it."""
    training = Training()
    known = []

    def step(x, depth):
        loss = training.learn(x)
        known.append(loss.item())
        if depth:
            fast(x * 2, depth - 1)
        return training.learn(x)

    fast = ag.compile(step)
    other = Training()
    for n in range(6):
        x = ag.arange(6.0).reshape(2, 3) * (n + 1)
        found = fast(x, 2)
        losses = [other.learn(x * 2**k).item() for k in range(3)]
        results = [other.learn(x * 2**k).item() for k in (2, 1, 0)]
        assert known[-3:] == losses
        assert found.item() == results[-1]


def test_looks_under_modes_and_in_hooks():
    """A divided function called under `no_grad`, `vmap` and in a hook."""
    seen = []

    def step(x):
        y = ag.tanh(x) * 2 + ag.exp(x)
        y = ag.sin(y) * ag.cos(y) + ag.tanh(y) * ag.sigmoid(y)
        seen.append(1)
        z = ag.tanh(y) * 2 + ag.exp(-y)
        z = ag.sin(z) * ag.cos(z) + ag.tanh(z) * ag.sigmoid(z)
        print(end="")
        return z

    fast = ag.compile(step)
    x = ag.arange(3.0).requires_grad_()
    for _ in range(6):
        for mode in (ag.no_grad, ag.inference_mode, ag.enable_grad):
            with mode():
                ours, theirs = fast(x), step(x)
                assert ours.tolist() == theirs.tolist()
                assert ours.requires_grad == theirs.requires_grad
        ours, theirs = (ag.grad(one(x).sum(), x)[0].tolist() for one in (fast, step))
        assert ours == theirs
        both = [ag.func.vmap(one)(ag.ones(2, 3)).tolist() for one in (fast, step)]
        assert both[0] == both[1]
        handle = x.register_hook(lambda g: g + fast(g.detach()))
        ours = ag.grad((x * x).sum(), x)[0].tolist()
        handle.remove()
        assert ours == (2 * x + step(2 * x.detach())).tolist()
    assert max(replays(fast)) >= 3


def test_counters_and_other_values_that_change():
    """A number that is another at each call belongs to no program."""
    training, other = Training(), Training()
    count = 0

    def step(training, x, number):
        loss = training.learn(x)
        if number % 3 == 0:
            print(end="")
        training.seen.append(loss.item())
        value = training.seen[-1] * number
        training.learn(x)
        return value

    fast = ag.compile(step)
    for count in range(40):
        x = ag.arange(6.0).reshape(2, 3) / (count + 1)
        assert fast(training, x, count) == step(other, x, count)
    assert max(replays(fast)) > 20, fast.explain()


def test_values_that_come_again_where_nothing_else_is_left():
    """The only part is recorded with each of them, as it can't be divided further."""

    def step(x, number):
        print(end="")
        y = ((x * number).sin().cos().tanh().exp() + x).sin().cos().tanh().exp()
        print(end="")
        return y

    fast, x = ag.compile(step), ag.arange(3.0)
    for n in range(12):
        assert fast(x, n % 3).tolist() == step(x, n % 3).tolist()
    assert replays(fast) == [9]


class Counting(Training):
    """Accumulates gradients over three calls, which it counts."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def step(self, x):
        self.calls += 1
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        if self.calls % 3 == 0:
            self.update.step()
            self.update.zero_grad()
        self.seen.append(loss.item())
        return loss.detach()


def test_an_attribute_that_counts():
    """Only the lines that read it are called, and those that set it."""
    ours, theirs = Counting(), Counting()
    fast = ag.compile(ours.step)
    for number in range(30):
        x = ag.arange(6.0).reshape(2, 3) / (number + 1)
        assert fast(x).tolist() == theirs.step(x).tolist()
        for p, q in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
            assert p.tolist() == q.tolist()
    assert (ours.calls, ours.seen) == (30, theirs.seen)
    assert max(replays(fast)) > 20, fast.explain()
    assert fast.explain().startswith("Counting.step: 1 recorded")


class Network(nn.Module):
    """Layers, with attributes that a program sets."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, x):
        return self.layers(x)


class Noting(Training):
    """Does what training classes do around a step, each in a method of its own."""

    def __init__(self):
        super().__init__()
        self.model = Network(self.model)
        self.settings = {"steps": 0, "best": 9.0}
        self.model.calls = 0

    def before(self):
        self.settings["steps"] += 1
        self.model.calls += 1

    def after(self, loss):
        self.note(loss.item())

    def note(self, loss):
        self.seen.append(loss)
        if loss < self.settings["best"]:
            self.settings["best"] = loss

    def loss(self, x):
        return (self.model(x) ** 2).mean()

    def by_methods(self, x):
        self.before()
        loss = self.learn(x)
        self.after(loss)

    def with_containers(self, x):
        settings = self.settings
        parts, outs = {}, []
        for n in range(2):
            outs.append(self.model(x + n))  # noqa: PERF401
        parts["mean"] = (outs[0] ** 2).mean()
        parts["next"] = outs[1].mean()
        self.update.zero_grad()
        (parts["mean"] + parts["next"]).backward()
        self.update.step()
        settings["steps"] += 1
        self.model.calls += 1
        self.seen.append({name: part.item() for name, part in parts.items()})

    def with_variables(self, x):
        self.settings["steps"] += 1
        update = self.update
        model = self.model
        update.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        update.step()
        return loss.item()

    def step(self, x):
        """Is as long as a part must be, and steps no optimiser of that name."""
        return self.with_variables(x), self.settings


class Derived(Noting):
    def loss(self, x):
        return super().loss(x) * 2

    def with_super(self, x):
        super().before()
        self.update.zero_grad()
        loss = super().loss(x) + self.loss(x + 1)
        loss.backward()
        self.update.step()
        super().note(loss.item())
        return self.settings["steps"]


@pytest.mark.parametrize("step", ["by_methods", "with_containers", "with_variables", "with_super"])
def test_what_changes_is_named_by_the_lines_that_are_called(step):
    """Other lines, which change what the call itself has made, stay in one program."""
    ours, theirs = Derived(), Derived()
    fast = ag.compile(getattr(ours, step))
    for number in range(20):
        x = ag.arange(6.0).reshape(2, 3) / (number + 1)
        assert plain(fast(x)) == plain(getattr(theirs, step)(x))
        assert (ours.settings, ours.seen) == (theirs.settings, theirs.seen)
        assert plain([*ours.model.parameters()]) == plain([*theirs.model.parameters()])
    assert ours.model.calls == theirs.model.calls
    assert max(replays(fast)) > 12, fast.explain()


def test_a_method_that_changes_is_named_by_the_error():
    training = Noting()

    def step(x):
        y = training.model(x)
        training.before()
        return y

    line = inspect.getsourcelines(step)[1] + 2
    with pytest.raises(AutogradError, match=rf"changed.*{__file__}:{line}\)"):
        ag.compile(step, fullgraph=True)(ag.ones(2, 3))

    def evaluates(x):
        return eval("x")

    line = inspect.getsourcelines(evaluates)[1]
    with pytest.raises(AutogradError, match=rf"eval\(\) \({__file__}:{line}\)"):
        ag.compile(evaluates, fullgraph=True)(ag.ones(2, 3))


def test_a_method_that_optimisers_have_too():
    """The name alone doesn't say whose it is, so the line is called; here it is the model's."""
    ours, theirs = Training(), Training()

    def step_of(training, best):
        def step(x):
            training.update.zero_grad()
            loss = (training.model(x) ** 2).mean()
            loss.backward()
            training.update.step()
            if loss.item() < best.get("loss", 9.0):
                best["loss"] = loss.item()
                best["state"] = {k: v.tolist() for k, v in training.model.state_dict().items()}
            return loss.detach()

        return step

    found, expected = {}, {}
    fast, slow = ag.compile(step_of(ours, found)), step_of(theirs, expected)
    for number in range(12):
        x = ag.arange(6.0).reshape(2, 3) / (number % 4 + 1)
        assert fast(x).tolist() == slow(x).tolist()
        assert found == expected
    assert max(replays(fast)) > 8, fast.explain()


def losses_and_replays(kind, *, compiled):
    """Sixty steps that do something else each third time, by a number that the loop sets."""
    training, settings, number = Training(), SimpleNamespace(), 0

    def step(x, given):
        loss = (training.model(x) ** 2).mean()
        loss.backward()
        at = given if kind == "argument" else number if kind == "outer" else settings.number
        if at % 3 == 2:
            training.update.step()
            training.update.zero_grad()
        return loss.detach()

    fast = ag.compile(step) if compiled else step
    for number in range(60):
        settings.number = number
        x = ag.arange(6.0).reshape(2, 3) / (number + 1)
        training.seen.append(fast(x, number if kind == "argument" else 0).item())
    weights = [p.tolist() for p in training.model.parameters()]
    return training.seen, weights, max(replays(fast)) if compiled else 0


@pytest.mark.parametrize("kind", ["argument", "outer", "attribute"])
def test_a_number_of_the_step(kind):
    """It may be an argument, an outer variable or an attribute."""
    *expected, _ = losses_and_replays(kind, compiled=False)
    *found, count = losses_and_replays(kind, compiled=True)
    assert found == expected
    assert count > 30


def test_instances_whose_other_attributes_change():
    """Only attributes that the code names count, or all if it may name any."""
    state = SimpleNamespace(other=0)

    class Scaled:
        def __init__(self):
            self.scale = 2.0
            self.calls = 0

        def __call__(self, x):
            return ag.tanh(x) * self.scale

        def by_name(self, name, x):
            return ag.tanh(x) * getattr(self, name)

    model = Scaled()
    named = ag.compile(lambda x: model(x))
    computed = ag.compile(lambda x, name: model.by_name(name, x))
    for n in range(6):
        model.calls += 1
        state.other += 1
        x = ag.ones(2) * n
        assert named(x).tolist() == model(x).tolist()
        assert computed(x, "calls").tolist() == model.by_name("calls", x).tolist()
    assert "1 recorded, 5 replayed" in named.explain()
    assert "0 replayed" in computed.explain()
    model.scale = 3.0
    assert named(ag.ones(2)).tolist() == model(ag.ones(2)).tolist()
    Scaled.scale = 5.0
    del model.scale
    assert named(ag.ones(2)).tolist() == model(ag.ones(2)).tolist()


@pytest.mark.asyncio
async def test_others_see_what_a_step_changes_for_a_while():
    """Flags that are set around an awaited pass: the lines that change them are called."""
    w = ag.ones(64, 64, requires_grad=True)
    model = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5)).eval()
    knobs = SimpleNamespace(active=0)

    async def step(x):
        model.train()
        knobs.active += 1
        y = model(x)
        for _ in range(60):
            y = ag.tanh(y @ w * 0.01)
        await y.sum().backward()
        knobs.active -= 1
        model.eval()
        return ag.stack([ag.tanh(w.grad * 2).sum(), (w * 2).sum().exp(), y.mean().tanh()])

    async def watched(call):
        running = asyncio.ensure_future(call(ag.ones(64, 64)))
        seen = set()
        while not running.done():
            seen.add((knobs.active, model.training))
            await asyncio.sleep(0)
        return seen

    fast = ag.compile(step)
    for _ in range(3):
        assert await watched(fast) == await watched(step) == {(0, False), (1, True)}
    assert min(replays(fast)) >= 1


@pytest.mark.asyncio
async def test_awaited_steps_in_parts():
    """Coroutine functions: what waits at a look, and a cancellation there."""
    ours, theirs = Training(), Training()
    gate, arrived = asyncio.Event(), asyncio.Event()
    gate.set()

    def made(training):
        async def step(x):
            training.update.zero_grad()
            loss = (training.model(x) ** 2).mean()
            await loss.backward()
            training.update.step()
            training.seen.append(loss.item())
            arrived.set()
            await gate.wait()
            training.update.zero_grad()
            loss = (training.model(x) ** 2).mean()
            await loss.backward()
            training.update.step()
            training.seen.append(loss.item())
            return loss

        return step

    fast, slow = ag.compile(made(ours)), made(theirs)
    assert asyncio.iscoroutinefunction(fast)

    def alike():
        assert ours.seen == theirs.seen
        for p, q in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
            assert p.tolist() == q.tolist()
            assert p.grad.tolist() == q.grad.tolist()

    for n in range(8):
        x = ag.arange(6.0).reshape(2, 3) / (n + 1)
        assert (await fast(x)).item() == (await slow(x)).item()
        alike()
    assert len(replays(fast)) == 2
    assert min(replays(fast)) >= 5
    gate.clear()
    for step in (fast, slow):
        arrived.clear()
        task = asyncio.ensure_future(step(x))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    alike()
