"""One text for Prometheus about all of a world's processes."""

from __future__ import annotations

import re

import pytest
from deterministic import Engine, world_of
from models import Affine

import asyncgrad as ag


def read(text: str) -> dict[tuple[str, str], float]:
    """The figures by name and worker; each line is one, or says of what type the next are."""
    found = {}
    for line in text.splitlines():
        if not re.fullmatch(r"# TYPE \w+ gauge", line):
            match = re.fullmatch(r'(\w+)\{worker="(\w+)"\} (\S+)', line)
            assert match is not None, line
            assert (match[1], match[2]) not in found
            found[match[1], match[2]] = float(match[3])
    return found


@pytest.mark.asyncio
async def test_the_figures_of_all_workers_are_one_text(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(3)
    async with world_of(engine, grace=60.0) as world:
        part = await world.remote(1, Affine)
        loss = (await part(ag.ones(3, dtype=ag.float64, requires_grad=True))).sum()
        found = read(await world.metrics())
        assert [found["asyncgrad_world_parts", str(rank)] for rank in range(3)] == [0, 1, 0]
        assert [found["asyncgrad_world_calls", str(rank)] for rank in range(3)] == [0, 1, 0]
        await loss.backward()
        # One that is dead, and one that does not answer.
        engine.kill(0)
        engine.stop(2)
        with monkeypatch.context() as impatient:
            impatient.setattr(world._site, "grace", 0.3)
            found = read(await world.metrics())
        up = {worker: found["asyncgrad_world_up", worker] for worker in ("caller", "0", "1", "2")}
        assert up == {"caller": 1, "0": 0, "1": 1, "2": 0}
        assert found["asyncgrad_world_calls", "1"] == 0
        assert ("asyncgrad_world_calls", "2") not in found
        passes = ag.engine().statistics().passes
        assert found["asyncgrad_engine_passes", "1"] == passes
        assert found["asyncgrad_engine_passes", "caller"] == passes
        engine.wake(2)
        assert read(await world.metrics())["asyncgrad_world_up", "2"] == 1
