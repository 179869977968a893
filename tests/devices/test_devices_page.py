"""What docs/devices.md shows is so, from its first line to a device of one's own."""

import ast
import asyncio
import inspect
import itertools
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncgrad as ag
from asyncgrad.devices import discovery
from asyncgrad.devices.pool import Pool
from asyncgrad.testing import simulate

PAGE = (Path(__file__).parents[2] / "docs" / "devices.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def block(start):
    """The one block of the page that begins with some words."""
    (found,) = [text for text in BLOCKS if text.startswith(start)]
    return found


async def run(text, names):
    """Run a block that may await; there is no GPU."""
    # No file's name: hypothesis would take the page for the source.
    code = compile(
        text.replace("cuda:0", "sim:0"), "<page>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    )
    coroutine = eval(code, names)
    if inspect.iscoroutine(coroutine):
        await coroutine
    return names


@pytest.mark.asyncio
async def test_the_first_example():
    names = await run(block("import asyncgrad as ag"), {})
    assert names["value"] == 6.0
    assert names["x"].grad.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.asyncio
async def test_the_hosts_memory(monkeypatch):
    pool = Pool()
    monkeypatch.setattr("asyncgrad.devices.cpu.POOL", pool)
    pool.take((1 << 20,), np.dtype("f4"))
    assert pool.unused
    await run(block('ag.device("cpu")'), {"ag": ag})
    assert (pool.limit, pool.unused) == (64 << 20, 0)


@pytest.mark.asyncio
async def test_streams_and_events():
    streams = []

    async def something():
        await asyncio.sleep(0)
        streams.append(ag.accelerator.current_stream())

    x = ag.arange(3.0, device="sim:0")
    names = {"ag": ag, "x": x, "heavy": lambda x: x.exp().log() * 2, "something": something}
    await run(block("side = ag.Stream"), names)
    assert streams == [names["side"]]
    assert ag.accelerator.current_stream() is x.device.default_stream
    assert (names["y"] + 0).tolist() == pytest.approx([0.0, 2.0, 4.0])
    names["other"] = ag.Stream(device="sim:0")
    await run(block("event = side"), names)
    assert names["event"].query() is True
    assert names["event"].status() == 0


@pytest.mark.asyncio
async def test_the_machine():
    text = block("from asyncgrad.testing import simulate").replace(
        "    ...\n", "    y = ag.ones(2, device='sim:1') + 1\n    y.cpu()\n"
    )
    names = await run(text, {"ag": ag})
    assert names["machine"].clock.now() > 2e-3
    assert (names["machine"].launched, names["machine"].blocked) == (3, 1)


def test_schedules_are_drawn():
    runs = []

    async def my_pipeline():
        x = ag.ones(3, device="sim:0", requires_grad=True)
        await (x * 2).sum().backward()
        runs.append(x.grad.tolist())

    names = {"given": given, "st": st, "itertools": itertools, "simulate": simulate}
    names |= {"asyncio": asyncio, "my_pipeline": my_pipeline}
    asyncio.run(run(block("@given"), names))
    names["test_in_any_order"]()
    assert len(runs) > 1
    assert all(found == [2.0, 2.0, 2.0] for found in runs)


@pytest.mark.asyncio
async def test_a_device_of_ones_own(tmp_path, monkeypatch):
    """Written by the page alone."""
    (tmp_path / "toy_device.py").write_text(block("# toy_device.py"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(discovery, "_HOMES", dict(discovery._HOMES))
    monkeypatch.setattr(discovery, "_loaded", dict(discovery._loaded))
    try:
        names = await run(block("ag.devices.register"), {"ag": ag})
    finally:
        module = sys.modules.pop("toy_device", None)
    x = names["x"]
    assert repr(x.grad) == "tensor([2., 2., 2.], device='toy:1')"
    assert x.device is ag.device("toy", 1) is module.find(1)
    assert module.present()[0] in ag.devices.available()
    assert "toy" in ag.devices.kinds()
    with pytest.raises(RuntimeError, match="there are 2 toys"):
        ag.device("toy:2")
    with pytest.raises(RuntimeError, match="same device"):
        x + ag.ones(3)
    await x.sum().backward()
    assert await x.grad.sum().item_async() == 9.0


@pytest.mark.parametrize("name", ["cpu", "sim", "Toy", "toy:0", ""])
def test_names_that_are_taken_or_none_are_refused(name):
    with pytest.raises(ValueError, match="register"):
        ag.devices.register(name, "toy_device")


def test_no_block_is_forgotten():
    assert len(BLOCKS) == 8
