"""A trace shows every node and every wait, and opens in the usual viewers."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

import asyncgrad as ag

if TYPE_CHECKING:
    from pathlib import Path


def chain(x: ag.Tensor, nodes: int) -> ag.Tensor:
    for _ in range(nodes):
        x = x * 1.0
    return x.sum()


def of_kind(events: list[dict[str, Any]], phase: str) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == phase]


def test_every_node_is_there_with_its_thread_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "pass.json"
    x = ag.ones(4, requires_grad=True)
    loss = chain(x, 3)
    with ag.trace_passes(path) as recorder:
        loss.backward()
    events = json.loads(path.read_text())["traceEvents"]
    nodes = of_kind(events, "X")
    assert [node["name"][:-1] for node in nodes] == ["SumBackward", *["MulBackward"] * 3]
    assert [node["args"]["bytes"] for node in nodes] == [4, 16, 16, 16]
    assert {node["tid"] for node in nodes} == {threading.get_native_id()}
    assert all(node["dur"] >= 0 for node in nodes)
    names = [event["args"]["name"] for event in of_kind(events, "M")]
    assert threading.current_thread().name in names
    assert len(of_kind(events, "C")) == len(nodes)
    assert recorder.events == [event for event in events if event["ph"] != "M"]


@pytest.mark.asyncio
async def test_waits_are_there_and_end_before_the_next_node(tmp_path: Path) -> None:
    """A long pass gives the loop its turns in between."""
    x = ag.ones(4, requires_grad=True)
    loss = chain(x, 2_000)
    waits_before = ag.engine().statistics().queue_waits
    with ag.trace_passes(tmp_path / "pass.json") as recorder:
        await loss.backward()
    begun, ended = of_kind(recorder.events, "b"), of_kind(recorder.events, "e")
    assert len(begun) == len(ended) == ag.engine().statistics().queue_waits - waits_before
    assert len(begun) >= 4
    nodes = of_kind(recorder.events, "X")
    for begin, end in zip(begun, ended, strict=True):
        assert begin["ts"] <= end["ts"]
        assert not any(begin["ts"] < node["ts"] < end["ts"] for node in nodes)


@pytest.mark.asyncio
async def test_nodes_that_wait_have_rows_of_their_own(tmp_path: Path) -> None:
    """Two that wait together, of which the first to begin is the first to end, would overlap."""
    entered: list[asyncio.Event] = []

    class Waits(ag.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: ag.Tensor) -> ag.Tensor:
            return x * 1.0

        @staticmethod
        async def backward(ctx: Any, gradient: ag.Tensor) -> ag.Tensor:
            entered.append(asyncio.Event())
            await entered[-1].wait()
            return gradient

    x = ag.ones(4, requires_grad=True)
    with ag.trace_passes(tmp_path / "pass.json") as recorder:
        future = (Waits.apply(x) + Waits.apply(x)).sum().backward()
        while len(entered) < 2:  # noqa: ASYNC110  turns are what is waited for
            await asyncio.sleep(0)
        for event in entered:
            event.set()
            for _ in range(5):
                await asyncio.sleep(0)
        await future
    assert "WaitsBackward" not in [node["name"] for node in of_kind(recorder.events, "X")]
    nodes = [event for event in recorder.events if event["name"] == "WaitsBackward"]
    assert [event["ph"] for event in nodes] == ["b", "e", "b", "e"]
    first, its_end, second, end = nodes
    assert first["ts"] < second["ts"] < its_end["ts"] < end["ts"]
    assert first["id"] == its_end["id"] != second["id"] == end["id"]


@pytest.mark.asyncio
@pytest.mark.parametrize("waits", [False, True])
async def test_a_node_that_fails_is_there_and_one_that_is_given_up_is_not(
    tmp_path: Path, waits: bool
) -> None:
    """Which node had taken how long when the pass failed is what the trace is read for."""
    entered: list[None] = []

    class Fails(ag.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: ag.Tensor) -> ag.Tensor:
            return x * 1.0

        @staticmethod
        def backward(ctx: Any, gradient: ag.Tensor) -> Any:
            async def later() -> None:
                entered.append(None)
                await asyncio.Event().wait()

            if waits:
                return later()
            raise ValueError("no")

    x = ag.ones(4, requires_grad=True)
    with ag.trace_passes(tmp_path / "pass.json") as recorder:
        future = Fails.apply(x).sum().backward()
        while waits and not entered:  # noqa: ASYNC110  turns are what is waited for
            await asyncio.sleep(0)
        if waits:
            future.cancel()
        with pytest.raises(asyncio.CancelledError if waits else ValueError):
            await future
    names = [event["name"] for event in recorder.events if event.get("cat") == "node"]
    assert names == ["SumBackward0", "FailsBackward"][: 1 if waits else 2]


@pytest.mark.asyncio
async def test_what_runs_elsewhere_is_not(tmp_path: Path) -> None:
    """A trace follows the context that it was begun in."""
    x = ag.ones(4, requires_grad=True)
    loss = chain(x, 2_000)
    with ag.trace_passes(tmp_path / "pass.json") as recorder:
        pass
    await loss.backward()
    assert recorder.events == []


@pytest.mark.asyncio
async def test_each_pass_has_a_number_of_its_own(tmp_path: Path) -> None:
    """Where one was in memory the next one is."""
    x = ag.ones(4, requires_grad=True)
    with ag.trace_passes(tmp_path / "pass.json") as recorder:
        for _ in range(3):
            await chain(x, 2_000).backward()
    nodes = of_kind(recorder.events, "X")
    assert [node["args"]["pass"] for node in nodes] == [1] * 2_001 + [2] * 2_001 + [3] * 2_001
    waits = [wait["id"] for wait in of_kind(recorder.events, "b")]
    assert set(waits) == {1, 2, 3}
    assert waits == sorted(waits)


def test_its_older_name_is_the_trace_of_what_it_is_given(tmp_path: Path) -> None:
    """A path begins a trace of passes; a matrix has one, as in PyTorch."""
    for name in (str, type(tmp_path)):
        path = tmp_path / f"{name.__name__}.json"
        with ag.trace(name(path)):
            ag.ones(1, requires_grad=True).sum().backward()
        assert json.loads(path.read_text())["traceEvents"]
    matrix = ag.eye(3, requires_grad=True)
    total = ag.trace(matrix)
    total.backward()
    assert total.grad_fn.name() == "TraceBackward0"
    assert total.item() == 3
    assert ag.equal(matrix.grad, ag.eye(3))
    with pytest.raises(TypeError):
        ag.trace(3.0)
    with pytest.raises(NotImplementedError):
        ag.trace(ag.ones(2, 2, dtype=ag.bool))
