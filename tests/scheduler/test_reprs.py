"""What passes, engines and recorders say of themselves."""

import asyncio
import re

import asyncgrad as ag


async def passes():
    x = ag.ones(2, requires_grad=True)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def wait(gradient):
        begun.set()
        await go_on.wait()

    y = ag.exp(x)
    y.register_hook(wait)
    deadline = asyncio.get_running_loop().time() + 1_000
    future = y.sum().backward(priority=3, deadline=deadline)
    await begun.wait()
    said = "<BackwardFuture pending: pass of SumBackward0, priority 3, "
    match = re.fullmatch(said + r"(\d+\.\d+) s before its deadline>", repr(future))
    assert match is not None
    assert 0 < float(match[1]) <= 1_000
    assert repr(ag.engine()).startswith("<Engine of <")
    assert repr(ag.engine()).endswith(": 1 passes, 1 in flight>")
    go_on.set()
    await future
    assert repr(future) == "<BackwardFuture finished result=None>"
    assert repr(ag.engine()).endswith(": 1 passes, 0 in flight>")
    await ag.exp(x).sum().backward()


def test_passes_engines_and_recorders_say_what_they_are(tmp_path):
    with ag.trace_passes(tmp_path / "trace.json") as recorder:
        asyncio.run(passes())
        assert repr(recorder) == "<Recorder: 4 nodes of 2 passes>"
