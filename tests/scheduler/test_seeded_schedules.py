"""Larger traffic on thousands of seeded schedules: any order in which things may happen.

A seed that fails replays: `run(monkeypatch, seed)` is all that it takes.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from seeded import DeadlockError, seeded
from traffic import FATES, KINDS, Traffic

import asyncgrad as ag

#: How many passes a run has.
_PASSES = 14
#: So many seeds are one test of the long form.
_BATCH = 250


def run(monkeypatch: pytest.MonkeyPatch, seed: int) -> list[str]:
    """Passes of all kinds and fates, cancelled and too late here and there.

    Returns:
        What happened, in its order.
    """
    log: list[str] = []
    complaints: list[Any] = []

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        rng = loop.random
        ag.engine().limit(passes=rng.choice([None, None, 2]), coroutine_nodes=rng.choice([1, 128]))
        traffic = Traffic()
        for number in range(_PASSES):
            urgency: dict[str, Any] = {"priority": rng.choice([0, 0, 0, 1, 5])}
            if rng.random() < 0.3:
                urgency["deadline"] = loop.time() + rng.choice([0.000_5, 0.005, 0.05, 1e4])
            one = traffic.start(
                rng.choice(KINDS), rng.randrange(3), rng.randint(1, 9), rng.choice(FATES), **urgency
            )
            one.future.add_done_callback(lambda _, number=number: log.append(f"{number} has ended"))
            if rng.random() < 0.5:
                loop.call_later(rng.random() * 0.02, one.gate.set)
            if rng.random() < 0.4:
                # One of those that are on their way then.
                loop.call_later(rng.random() * 0.02, cancel_one, traffic, rng)
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            log.append(f"{number} is {one.machine is not None and one.machine.state.value}")
            traffic.check()
        await traffic.end()

    with seeded(monkeypatch, seed) as loop:
        loop.set_exception_handler(lambda loop, context: complaints.append(context))
        loop.run_until_complete(main())
        log.append(f"{loop.now:.6f}")
    assert complaints == []
    return log


def cancel_one(traffic: Traffic, rng: Any) -> None:
    pending = [one for one in traffic.passes if not one.future.done()]
    if pending:
        traffic.cancel(rng.choice(pending))
        traffic.check()


def test_a_seed_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, 7) == run(monkeypatch, 7)
    assert run(monkeypatch, 7) != run(monkeypatch, 8)


def test_a_loop_on_which_nothing_can_happen_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here a lost wake-up is an error and no hang."""
    with seeded(monkeypatch, 1) as loop:
        waiting = loop.create_future()
        with pytest.raises(DeadlockError):
            loop.run_until_complete(waiting)


def test_a_hundred_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(100):
        run(monkeypatch, seed)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(1_000, 6_000, _BATCH))
def test_thousands_of_schedules(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    for seed in range(first, first + _BATCH):
        run(monkeypatch, seed)
