"""Random functions that look at values and go on, beside eager calls."""

from __future__ import annotations

import asyncio
import linecache
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import asyncgrad as ag
from asyncgrad import nn

#: Lines, in which `W` waits in coroutine functions.
LINES = (
    "x = ag.tanh(x * model.scale) + x",
    "y = ag.exp(-x * x) * ag.sigmoid(x)",
    "x = ag.sin(x) * ag.cos(y) + x / 2",
    "y = model(x)",
    "loss = (model(x) ** 2).mean() + (y * y).sum()",
    "loss = (model(x.detach()) ** 2).mean()",
    "update.zero_grad()",
    "W loss.backward()",
    "update.step()",
    "log.append(x.sum().item())",
    "log.append(float(loss))",
    "log.append(f'{loss.item():.6f} {x.detach().tolist()}')",
    "log.append(x.detach())",
    "print(len(x), end='')",
    "n = int(x.sum()) % 3",
    "n = n + len(log)",
    "x = x * n",
    "v = loss.item()",
    "log.append((v, n))",
    "x = ag.ones(n + 1) + x.mean()",
    "x = ag.from_numpy(x.detach().numpy() * 2)",
    "k, (v, n) = ag.relu(x), (x.mean().item(), 2)",
    "y = y if x.sum() > 0 else -y",
    "y = [part * 2 for part in (x, y)][n % 2]",
    "with ag.no_grad(): log.append([(model(part).mean() + n).item() for part in (x, y)])",
    "if x.mean().item() > 0.25: return x, n",
    "if x.sum() > 1: y = y * 2",
    "if n == 1: del v; v = n",
    "while n < 3: n += 1; x = x / 2; log.append(x.mean().item())",
    "for k in (x, y): log.append(k.mean().item())",
    "model.scale = model.scale + 0.5",
    "model.calls += 1",
    "W pause()",
    "assert x.sum().item() < 3",
)
STARTS = [0.5, 1.0, -1.0, 0.25, 0.5, 1.0]
#: Functions of these lines have parts.
DIVIDED = (
    ["log.append(x.sum().item())", "x = ag.sin(x) * ag.cos(y) + x / 2"],
    ["y = model(x)", "v = loss.item()", "log.append((v, n))", "x = x * n"],
    ["for k in (x, y): log.append(k.mean().item())", "x = ag.tanh(x * model.scale) + x"],
    [
        "loss = (model(x) ** 2).mean()",
        "W loss.backward()",
        "log.append(float(loss))",
        "y = model(x)",
    ],
)
_numbers = count()


class Model:
    """What a function uses, and what it writes down."""

    def __init__(self) -> None:
        self.layer = nn.Linear(1, 1)
        with ag.no_grad():
            for p in self.layer.parameters():
                p.fill_(0.75)
        self.scale, self.calls = 1.5, 0
        self.log: list[Any] = []
        self.update = ag.optim.SGD(self.layer.parameters(), lr=0.1, momentum=0.9)

    def __call__(self, x: Any) -> Any:
        """Apply the layer to each number."""
        return self.layer(x.reshape(-1, 1)).reshape(-1)


NOW: Any = SimpleNamespace(pauses=-1)


async def pause() -> None:
    """Let others run; once the call is cancelled here."""
    NOW.pauses -= 1
    if not NOW.pauses:
        asyncio.current_task().cancel()
    await asyncio.sleep(0)


def function_of(model: Model, lines: list[str], *, awaited: bool) -> Any:
    """A function of some lines."""
    head = "async def step(x, n=1):" if awaited else "def step(x, n=1):"
    text = "\n    ".join((head, "y, v, loss = x, 0.5, x.sum() * model.layer.bias.sum()", *lines))
    wait = "await " if awaited else ""
    text = text.replace("W pause()", "await pause()" if awaited else "pass").replace("W ", wait)
    text += "\n    return x, y, n\n"
    file = f"<random looks {next(_numbers)}>"
    linecache.cache[file] = len(text), None, text.splitlines(True), file
    scope = {"ag": ag, "model": model, "update": model.update, "log": model.log, "pause": pause}
    exec(compile(text, file, "exec"), scope)
    return scope["step"]


def plain(value: Any) -> Any:
    """A value that can be compared bit by bit."""
    if isinstance(value, ag.Tensor):
        array = value.detach().numpy()
        return array.tobytes(), array.shape, array.dtype, value.requires_grad
    if isinstance(value, (tuple, list)):
        return type(value).__name__, [plain(part) for part in value]
    return repr(value)


def outcome(function: Any, model: Model, runner: Any, *args: Any, stop: int) -> Any:
    """What a call returns or raises, and what it leaves behind."""
    NOW.pauses = stop
    try:
        found = plain(function(*args) if runner is None else runner.run(_value_of(function(*args))))
    except ag.errors.AutogradError as error:
        # It names nodes, and programs have nodes of their own.
        found = type(error).__name__
    except (AssertionError, RuntimeError, ValueError, TypeError, asyncio.CancelledError) as error:
        found = type(error).__name__, str(error)
    left = [(plain(p), plain(p.grad)) for p in model.layer.parameters()]
    return found, left, plain(model.log), model.scale, model.calls


async def _value_of(coroutine: Any) -> Any:
    return await coroutine


@pytest.mark.parametrize("loop", ["none", "asyncio", "uvloop"])
def test_functions_that_look_are_as_eager_ones(
    loop: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, whatever is looked at, also cancelled; some have parts, however short."""
    monkeypatch.setattr("asyncgrad.replay.compiled._SHORT", 0)
    divided: list[list[str]] = []
    if loop == "none":
        _compare(divided, None)
    else:
        made = pytest.importorskip("uvloop").new_event_loop if loop == "uvloop" else None
        with asyncio.Runner(loop_factory=made) as runner:
            _compare(divided, runner)
    capsys.readouterr()
    assert all(lines in divided for lines in DIVIDED)


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    lines=st.lists(st.sampled_from(LINES), min_size=2, max_size=12),
    starts=st.lists(st.sampled_from((0.5, 1.0, -1.0, 0.25)), min_size=4, max_size=10),
    stops=st.lists(st.sampled_from((-1, -1, 1, 2)), min_size=10, max_size=10),
)
@example(lines=DIVIDED[0], starts=STARTS, stops=[-1] * 10)
@example(lines=DIVIDED[1], starts=STARTS, stops=[-1] * 10)
@example(lines=DIVIDED[2], starts=STARTS, stops=[-1] * 10)
@example(lines=DIVIDED[3], starts=STARTS, stops=[-1] * 10)
def _compare(
    divided: list[list[str]], runner: Any, lines: list[str], starts: list[float], stops: list[int]
) -> None:
    ours, theirs = Model(), Model()
    fast = ag.compile(function_of(ours, lines, awaited=runner is not None))
    slow = function_of(theirs, lines, awaited=runner is not None)
    for start, stop in zip(starts, stops, strict=False):
        x = ag.arange(3.0) * start / 2
        expected = outcome(slow, theirs, runner, x, stop=stop)
        assert outcome(fast, ours, runner, x, stop=stop) == expected
    if "programs before" in fast.explain():
        divided.append(lines)
