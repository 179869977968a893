"""Errors, cancellations, deadlines and deaths at every message: all or nothing, nothing left."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from deterministic import Engine, world_of
from hypothesis import given, settings
from hypothesis import strategies as st
from models import Affine, Held, Outer, gradients

import asyncgrad as ag
from asyncgrad import distributed as dist
from asyncgrad.distributed.host import Host
from asyncgrad.distributed.messages import MESSAGES, Message, Place
from asyncgrad.distributed.runs import Runs
from asyncgrad.distributed.staging import PassRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.distributed import World

#: What steps send from the first forward to the commit.
PROTOCOL = {"forward", "hand_over", "fetch", "backward", "deposit", "prepare", "commit"}
PROTOCOL |= {"forward_backward", "mail"}


def test_the_list_of_messages_is_complete() -> None:
    taken = {name for kind in (Host, Runs) for name in dir(kind) if name.startswith("on_")}
    assert {f"on_{method}" for method in MESSAGES} == taken


def leaf() -> ag.Tensor:
    return ag.tensor(np.array([0.1, -0.2, 0.3]), requires_grad=True)


class Model:
    """Three parts on three workers, one of which calls another, and a leaf of the caller's."""

    keeps = frozenset({"parts"})

    def __init__(self, engine: Engine, world: World) -> None:
        self.engine, self.world = engine, world
        self.x = leaf()
        self.started: Any = None

    async def make(self) -> Model:
        remote = self.world.remote
        self.inner = await remote(2, Affine, 3.0)
        self.parts = [await remote(0, Affine), await remote(1, Outer, self.inner), self.inner]
        return self

    async def step(self, deadline: float | None = None) -> None:
        loss = (await self.parts[1](self.parts[0](self.x))).sum()
        self.started = loss.backward(deadline=deadline)
        del loss
        await self.started

    def committed(self) -> bool:
        return self.started is not None and self.started.committed()

    def changed(self) -> list[bool]:
        """Whether the caller and each living worker have gradients."""
        hosts = [
            any(p.grad is not None for p in self.engine.part(part).parameters())
            for part in self.parts
            if part.rank not in self.engine.dead
        ]
        return [self.x.grad is not None, *hosts]

    async def nothing_is_left(self) -> None:
        """Wait until no task, graph, mail or staged gradient is left on those that live."""
        while await self.left():
            # Errors have tracebacks, which lead to calls.
            gc.collect()
            for _ in range(20):
                await asyncio.sleep(0)

    async def left(self) -> bool:
        """Whether anything is left."""
        living = [h for rank, h in enumerate(self.engine.hosts) if rank not in self.engine.dead]
        kept = [(await host.on_statistics()).items() for host in living]
        return any(v for items in kept for k, v in items if k not in self.keeps) or any(
            group.mail._boxes for host in living for group in host.runs.groups.values()
        )

    async def messages(self) -> int:
        """How many messages a step sends."""
        count = len(self.sent())
        await self.step()
        number = len(self.sent()) - count
        self.x.grad = self.started = None
        for part in self.parts:
            for p in self.engine.part(part).parameters():
                p.grad = None
        return number

    def sent(self) -> list[Any]:
        return [entry for entry in self.engine.log if entry[1] in PROTOCOL]


def make_affine() -> Affine:
    return Affine()


def sum_of(model: Any, x: Any) -> Any:
    return model(x).sum()


class Replicated(Model):
    """A model of which three workers have a copy each."""

    keeps = frozenset({"parts", "runs"})

    async def make(self) -> Model:
        self.copies = await self.world.replicate(make_affine, bucket_cap_mb=1e-6)
        self.parts = self.copies.parts
        return self

    async def step(self, deadline: float | None = None) -> None:
        shards = [(ag.ones(1, 3, dtype=ag.float64),)] * 3
        await self.copies.forward_backward(sum_of, shards, deadline=deadline)

    def committed(self) -> bool:
        return any(self.changed())

    def changed(self) -> list[bool]:
        return super().changed()[1:]


def at_message(model: Model, number: int, act: Callable[[int], Any]) -> None:
    """Act when a message of the protocol arrives."""
    seen = 0

    def notice(rank: int, message: Message) -> Any:
        nonlocal seen
        if message.method in PROTOCOL:
            seen += 1
            if seen == number + 1:
                return act(rank)
        return None

    model.engine.on_message = notice


async def attempt(kind: type[Model], number: int, how: str) -> tuple[bool, int]:
    """A step with a fault at one message; whether it was committed, and how many there are."""
    engine = Engine(3)
    async with world_of(engine, grace=0.1 if how == "stop" else 5.0) as world:
        model = await kind(engine, world).make()
        total = await model.messages()
        step: Any = None

        async def error(rank: int) -> None:
            raise OSError("planned")

        def cancel(rank: int) -> None:
            step.cancel()

        def stop(rank: int) -> None:
            engine.stop(rank)
            step.cancel()

        actions = {"error": error, "cancel": cancel, "kill": engine.kill, "stop": stop}
        at_message(model, number, actions[how])
        step = asyncio.create_task(model.step())
        outcome: BaseException | None = None
        try:
            await step
        except BaseException as caught:
            outcome = caught
        engine.on_message = lambda rank, message: None
        committed = model.committed()
        for rank in tuple(engine.stopped):
            engine.wake(rank)
        if how in {"cancel", "stop"}:
            assert isinstance(outcome, asyncio.CancelledError) or committed
        else:
            assert (outcome is None) == committed
        if how in {"kill", "error"} and not committed:
            assert isinstance(outcome, dist.WorkerLostError), outcome
        # They would hold the graph.
        outcome = step = model.started = None
        lost = world.lost
        # If it lives, nobody listens to it any more, and it keeps what it has until the end.
        engine.dead |= lost.keys()
        await model.nothing_is_left()
        assert set(model.changed()) == {committed}, (model.changed(), committed, lost)
        if not lost and how != "stop":
            await model.step()
    return committed, total


@pytest.mark.parametrize("how", ["error", "cancel", "kill", "stop"])
@pytest.mark.parametrize("kind", [Model, Replicated])
def test_a_fault_at_every_message_changes_all_or_nothing(kind: type[Model], how: str) -> None:
    outcomes = []
    number, total = 0, 1
    while number < total:
        committed, total = asyncio.run(attempt(kind, number, how))
        outcomes.append(committed)
        number += 1
    # Up to the last that prepares nothing has happened; then it is too late for anything else.
    assert outcomes == sorted(outcomes)
    assert outcomes.count(True) == 3
    assert total >= 13


@pytest.mark.asyncio
async def test_a_deadline_ends_what_runs_on_workers() -> None:
    engine = Engine(2)
    async with world_of(engine) as world:
        held = await world.remote(1, Held)
        x = leaf()
        loss = (await held(x)).sum()
        with pytest.raises(TimeoutError):
            await loss.backward(deadline=asyncio.get_running_loop().time() + 0.02)
        assert engine.part(held).ended == engine.part(held).begun
        assert (x.grad, await held.apply(gradients)) == (None, [None])
        assert (await world.statistics())[1]["working"] == 0


@pytest.mark.asyncio
async def test_others_on_the_loop_get_a_turn_between_two_messages() -> None:
    engine = Engine(4)
    async with world_of(engine) as world:
        turn, sent = 0, []

        async def count() -> None:
            nonlocal turn
            while True:
                turn += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())

        def notice(rank: int, message: Message) -> None:
            if message.method == "statistics":
                sent.append(turn)

        engine.on_message = notice
        assert (await world._site.tell_all(range(4), "statistics"))[1] == {}
        assert len(set(sent)) == 4
        # One that is cancelled while it waits for its turn leaves the way free.
        first, second, third = (world._site.tell(rank, "statistics") for rank in range(3))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([first, second, third])
        assert (first.done(), second.cancelled(), third.exception()) == (True, True, None)
        counting.cancel()


@pytest.mark.asyncio
async def test_a_step_of_copies_ends_with_its_deadline_and_the_grace_if_all_hang() -> None:
    engine = Engine(1)
    async with world_of(engine, grace=0.05) as world:
        model = await world.replicate(make_affine)
        engine.stop(0)
        shards = [(ag.ones(1, 3, dtype=ag.float64),)]
        loop = asyncio.get_running_loop()
        with pytest.raises(TimeoutError):
            await model.forward_backward(sum_of, shards, deadline=loop.time() + 0.05)
        engine.wake(0)
        assert await model.parts[0].apply(gradients) == [None, None]
        await model.forward_backward(sum_of, shards)
        assert None not in await model.parts[0].apply(gradients)


@pytest.mark.asyncio
async def test_the_grace_does_not_pass_while_something_holds_the_loop() -> None:
    engine = Engine(1)
    async with world_of(engine, grace=0.05) as world:
        part = await world.remote(0, Affine)

        def hold(rank: int, message: Any) -> None:
            if message.method == "commit":
                end = time.monotonic() + 0.1
                while time.monotonic() < end:
                    pass

        engine.on_message = hold
        await (await part(leaf())).sum().backward()
        assert None not in await part.apply(gradients)


@pytest.mark.asyncio
async def test_what_comes_late_or_twice_is_refused() -> None:
    engine = Engine(2)
    async with world_of(engine) as world:
        part = await world.remote(0, Affine)
        host, site = engine.hosts[0], world._site
        x = leaf()
        call = part(x)
        loss = (await call).sum()
        key = (-1, 10**6)
        await site.call(0, "abort", key)
        asked = PassRequest(key, (0, 0), set(), True, set(), False, None, 0)
        late = ("backward", call.lease.call, [[ag.ones(3)], None], asked)
        forward = ("forward", (-1, 10**6), part.number, None, [], True, True)
        at_once = (*forward, Place(key, 0, 0, 0, 0), (1.0, asked))
        deposit = ("deposit", key, 0, 0, 0, [])
        for message in (late, at_once, ("prepare", key), ("commit", key), deposit):
            with pytest.raises(dist.PassEndedError):
                await site.call(0, *message)
        with pytest.raises(RuntimeError, match="not prepared here"):
            await site.call(0, "commit", (-1, 10**6 + 1))
        await loss.backward()
        done = host._lives.ended
        (committed,) = [k for k, word in done.items() if word == "committed"]
        before = await part.apply(gradients)
        await site.call(0, "commit", committed)
        await site.call(0, "abort", committed)
        assert await part.apply(gradients) == before
        message = Message(site.session, -1, next(site.numbers), "statistics", (), {})
        assert (await host.take(message))[0]
        succeeded, error = await host.take(message)
        assert not succeeded
        assert "taken before" in str(error)
        for session, words in (("other", "another world"), (site.session, "worker 1 was lost")):
            host.site.fence(1, "planned")
            succeeded, error = await host.take(Message(session, 1, 0, "statistics", (), {}))
            assert not succeeded
            assert words in str(error)
        await site.call(0, "release", [(-1, 10**6 + 2)])
        with pytest.raises(dist.PassEndedError):
            await site.call(0, "forward", (-1, 10**6 + 2), *forward[2:], None, None)
        succeeded, error = await type(host)(site.session, 0).take(message)
        assert isinstance(error, dist.WorkerLostError)
        assert (error.rank, error.during, error._session) == (0, "statistics", site.session)
        assert "made anew" in str(error)


@pytest.mark.asyncio
async def test_who_is_lost_for_one_worker_is_lost_for_all() -> None:
    """The caller learns it at the latest when the two have to do with each other."""
    engine = Engine(3)
    async with world_of(engine) as world:
        parts = [await world.remote(rank, Affine) for rank in range(3)]
        engine.site(0).fence(1, "planned")
        with pytest.raises(dist.WorkerLostError, match="planned"):
            await parts[1](parts[0](leaf()))
        assert world.lost == {1: "planned"}
        await parts[2](parts[0](leaf()))


@pytest.mark.asyncio
async def test_who_is_lost_while_he_waits_for_an_answer_is_told_and_so_is_the_caller() -> None:
    engine = Engine(2)
    async with world_of(engine) as world:
        inner = await world.remote(0, Affine)
        outer = await world.remote(0, Outer, await world.remote(1, Outer, inner))

        def fail(rank: int, message: Any) -> None:
            if (message.sender, message.method) == (1, "forward"):
                raise ConnectionResetError("planned")

        engine.on_message = fail
        with pytest.raises(dist.WorkerLostError, match="planned"):
            await outer(leaf())
        assert list(world.lost) == [0]


@pytest.mark.asyncio
async def test_a_lost_worker_is_named_by_each_use_of_it_and_nobody_else_suffers() -> None:
    engine = Engine(3)
    async with world_of(engine) as world:
        parts = [await world.remote(rank, Affine) for rank in range(3)]
        optimizer = await world.optimizer(ag.optim.SGD, parts, lr=0.1)
        engine.kill(1)
        await asyncio.sleep(0)
        assert world.lost == {1: "killed"}
        for use in (
            lambda: parts[1](leaf()),
            lambda: parts[1].apply(gradients),
            optimizer.step_async,
            lambda: world.remote(1, Affine),
        ):
            with pytest.raises(dist.WorkerLostError, match="worker 1 was lost during") as caught:
                await use()
            assert caught.value.rank == 1
        await (await parts[2](parts[0](leaf()))).sum().backward()
        assert (await world.statistics())[1] is None


async def random_step(kind: type[Model], rng: random.Random) -> tuple[list[bool], bool]:
    engine = Engine(3, lambda most: rng.randint(0, most))
    async with world_of(engine, grace=0.05) as world:
        model = await kind(engine, world).make()
        faults = [rng.choice(["cancel", "kill", "deadline", "nothing"])]
        at = rng.randint(0, 20)
        step: Any = None

        def act(rank: int) -> None:
            if faults[0] == "cancel":
                step.cancel()
            elif faults[0] == "kill":
                engine.kill(rng.randrange(3))

        at_message(model, at, act)
        now = asyncio.get_running_loop().time()
        deadline = now + rng.random() * 0.01 if faults[0] == "deadline" else None
        step = asyncio.create_task(model.step(deadline))
        await asyncio.wait([step])
        if not step.cancelled():
            step.exception()
        engine.on_message = lambda rank, message: None
        committed = model.committed()
        step = model.started = None
        engine.dead |= world.lost.keys()
        await model.nothing_is_left()
        return model.changed(), committed


@settings(max_examples=80)
@given(st.sampled_from([Model, Replicated]), st.integers(0, 2**32))
def test_random_faults_order_and_copies_never_commit_a_half(kind: type[Model], seed: int) -> None:
    changed, committed = asyncio.run(random_step(kind, random.Random(seed)))
    assert set(changed) == {committed}


class Gated(Affine):
    """Its forward waits for an event."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    async def forward(self, x: Any) -> Any:
        self.begun.set()
        await self.go_on.wait()
        return super().forward(x)


@pytest.mark.asyncio
@pytest.mark.parametrize("turns", range(8))
async def test_a_call_that_ends_as_its_caller_is_lost_is_not_kept(turns: int) -> None:
    engine = Engine(2)
    async with world_of(engine) as world:
        gated = await world.remote(0, Gated)
        outer = await world.remote(1, Outer, gated)
        module = engine.part(gated)
        calling = asyncio.ensure_future(outer(leaf()).sent())
        await module.begun.wait()
        module.go_on.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        engine.site(0).fence(1, "planned")
        for _ in range(50):
            await asyncio.sleep(0)
        assert (await world.statistics())[0]["calls"] == 0
        # Who is ignored may hear that, or that its call has ended.
        with pytest.raises((dist.WorkerLostError, dist.PassEndedError)):
            await calling


@pytest.mark.asyncio
async def test_a_message_that_begins_after_its_sender_is_lost_is_refused() -> None:
    """Also if it has come before: what it would add was dropped with the sender's other things."""
    engine = Engine(2)
    async with world_of(engine) as world:
        host = engine.hosts[0]
        lose = Message(host._session, -1, 10**6, "fence", (1, "planned"), {})
        send = Message(host._session, 1, 10**6, "mail", (("run", 9), ("x", "y", 0), 1, None), {})
        _, (succeeded, error) = await asyncio.gather(host.take(lose), host.take(send))
        assert (succeeded, type(error)) == (False, dist.WorkerLostError)
        assert (await world.statistics())[0]["runs"] == 0
