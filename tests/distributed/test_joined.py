"""Participants and callbacks that hooks add on workers, and in a `context()`."""

from __future__ import annotations

import asyncio
import gc
import random
from contextlib import nullcontext
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from deterministic import Engine, world_of
from models import Affine, gradients
from worlds import leaf

import asyncgrad as ag
from asyncgrad import distributed as dist
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.last_steps import Member
from asyncgrad.distributed.calls import Promise, StagedPass
from asyncgrad.distributed.sums import Held

if TYPE_CHECKING:
    from asyncgrad.distributed import World

#: What participants and callbacks have been called for, by name.
_told: list[tuple[str, str]] = []
#: What is done at a step of one of them.
_planned: dict[tuple[str, str], Any] = {}


@pytest.fixture(autouse=True)
def nobody_told() -> None:
    _told.clear()
    _planned.clear()


async def told(name: str, step: str) -> None:
    _told.append((name, step))
    if (name, step) in _planned:
        await _planned[name, step]()


async def fails() -> None:
    raise ValueError("planned")


async def waits() -> None:
    await asyncio.Event().wait()


class Auditor:
    """Takes part in a pass, and notes what it is told."""

    #: An attribute of the user's own, which means nothing to the package.
    stays = True

    def __init__(self, name: str) -> None:
        self.name = name

    async def prepare(self, gradients: Any) -> Any:
        await told(self.name, "prepare")

    async def commit(self) -> None:
        await told(self.name, "commit")

    async def abort(self) -> None:
        await told(self.name, "abort")


class Deciding(Auditor):
    async def decide(self) -> None:
        await told(self.name, "decide")


def joined(y: Any, participant: Any) -> Any:
    y.register_hook(lambda gradient: ag.autograd.graph.join(participant))
    return y


def called_back(y: Any, name: str) -> Any:
    callback = partial(told, name, "call back")
    y.register_hook(lambda gradient: ag.autograd.graph.queue_callback(callback))
    return y


class Audited(Affine):
    """Has a participant of its passes."""

    def __init__(self, name: str, kind: type[Auditor] = Auditor) -> None:
        super().__init__()
        self.auditor = kind(name)

    def forward(self, x: Any) -> Any:
        return joined(super().forward(x), self.auditor)


class CalledBack(Audited):
    """Has a callback, too."""

    def forward(self, x: Any) -> Any:
        return called_back(super().forward(x), self.auditor.name)


class Doubling(Auditor):
    """Gives other gradients."""

    async def prepare(self, gradients: Any) -> Any:
        await super().prepare(gradients)
        return {leaf: gradient * 2 for leaf, gradient in gradients.items()}


class Model:
    """Parts on two workers, and a participant of the caller's."""

    def __init__(self, engine: Engine, world: World) -> None:
        self.engine, self.world, self.x = engine, world, leaf()

    async def make(self) -> Model:
        remote = self.world.remote
        self.parts = [await remote(0, Audited, "a"), await remote(1, CalledBack, "b")]
        return self

    async def loss(self) -> Any:
        y = await self.parts[1](await self.parts[0](self.x))
        return joined(y, Auditor("caller")).sum()

    async def passes(self, *losses: Any, together: bool) -> None:
        async with dist.autograd.context() if together else nullcontext():
            for loss in losses:
                await loss.backward()

    def changed(self) -> list[bool]:
        """Whether each leaf of the caller's, and of workers that live, has a gradient."""
        living = [part for part in self.parts if part.rank not in self.engine.dead]
        leaves = [leaf for part in living for leaf in self.engine.part(part).parameters()]
        return [leaf.grad is not None for leaf in (self.x, *leaves)]

    async def nothing_is_left(self) -> None:
        """Wait until workers keep nothing but the parts."""
        while any(  # noqa: ASYNC110  each question takes turns
            kept
            for found in await self.world.statistics()
            for what, kept in (found or {}).items()
            if what != "parts"
        ):
            await asyncio.sleep(0)


def steps(name: str) -> list[str]:
    return [step for whose, step in _told if whose == name]


def before(first: str, second: str) -> bool:
    """Whether everybody's first steps came before anybody's second ones."""
    places = {step: [i for i, (_, s) in enumerate(_told) if s == step] for step in (first, second)}
    return max(places[first]) < min(places[second])


@pytest.mark.asyncio
@pytest.mark.parametrize(("passes", "together"), [(1, False), (1, True), (2, True)])
async def test_all_are_asked_before_any_is_told(together: bool, passes: int) -> None:
    engine = Engine(2)
    async with world_of(engine) as world:
        model = await Model(engine, world).make()
        begun: list[int] = []
        for name in ("caller", "a", "b"):

            async def note() -> None:
                begun.append(sum(model.changed()))

            _planned[name, "prepare"] = _planned[name, "commit"] = note
        await model.passes(*[await model.loss() for _ in range(passes)], together=together)
        assert before("prepare", "commit")
        for name in ("a", "b", "caller"):
            asked = [step for step in steps(name) if step != "call back"]
            # The caller's are several, those of a part one.
            times = passes if name == "caller" else 1
            assert asked == ["prepare"] * times + ["commit"] * times
        assert steps("b").count("call back") == passes
        assert all(model.changed())
        # At the commits of the caller's, its own gradients are there.
        assert min(begun[len(begun) // 2 :]) >= 1
        assert set(begun[: len(begun) // 2]) == {0}


@pytest.mark.asyncio
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("name", ["a", "b", "caller"])
@pytest.mark.parametrize("step", ["prepare", "call back"])
async def test_whoever_refuses_ends_the_pass_everywhere(
    step: str, name: str, together: bool
) -> None:
    if step == "call back" and name != "b":
        return
    _planned[name, step] = fails
    engine = Engine(2)
    async with world_of(engine) as world:
        model = await Model(engine, world).make()
        with pytest.raises(ValueError, match="planned"):
            await model.passes(await model.loss(), together=together)
        for name in ("a", "b", "caller"):
            assert steps(name)[-1] == "abort"
            assert steps(name).count("abort") == 1
            assert "commit" not in steps(name)
        assert not any(model.changed())
        await model.nothing_is_left()
        _planned.clear()
        _told.clear()
        await (await model.loss()).backward()
        assert before("prepare", "commit")


@pytest.mark.asyncio
@pytest.mark.parametrize("how", ["cancel", "deadline", "kill", "fail", "leave"])
async def test_what_ends_a_pass_while_a_worker_asks_has_it_tell_all(how: str) -> None:
    engine, asked = Engine(2), asyncio.Event()

    async def hold() -> None:
        asked.set()
        await waits()

    _planned["a", "prepare"] = hold
    async with world_of(engine) as world:
        model = await Model(engine, world).make()
        loop, limit = asyncio.get_running_loop(), 0.05
        if how == "fail":

            async def fails_later() -> None:
                await asked.wait()
                raise ValueError("planned")

            _planned["caller", "prepare"] = fails_later
        while not asked.is_set():
            # On a busy machine the time may be over before the worker is asked.
            _told.clear()
            deadline = loop.time() + limit if how == "deadline" else None
            running = (await model.loss()).backward(deadline=deadline)
            waiting = asyncio.ensure_future(asked.wait())
            await asyncio.wait([waiting, running], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            limit *= 2
        if how == "cancel":
            running.cancel()
        elif how == "kill":
            engine.kill(0)
        elif how == "leave":
            await model.world._site.tell_all(range(2), "close")
        with pytest.raises(
            (asyncio.CancelledError, TimeoutError, ValueError, dist.WorkerLostError, RuntimeError)
        ):
            await running
        assert steps("caller")[-1] == steps("b")[-1] == "abort"
        if how != "kill":
            assert steps("a") == ["prepare", "abort"]
        assert "commit" not in {step for _, step in _told}
        if how != "leave":
            assert not any(model.changed())


@pytest.mark.asyncio
@pytest.mark.parametrize("together", [False, True])
async def test_a_pass_that_fails_on_the_way_has_told_those_who_have_joined(together: bool) -> None:
    engine = Engine(2)
    async with world_of(engine) as world:
        model = await Model(engine, world).make()
        z = model.x * 1
        z.register_hook(lambda gradient: 1 / 0)
        y = await model.parts[1](await model.parts[0](z))
        losses = [await model.loss()] * together + [y.sum()]
        with pytest.raises(ZeroDivisionError):
            await model.passes(*losses, together=together)
        # What they keep on workers.
        del y, losses
        assert sorted(_told) == sorted(
            [("a", "abort"), ("b", "abort")] + together * [("caller", "abort")]
        )
        assert not any(model.changed())
        await model.nothing_is_left()


@pytest.mark.asyncio
async def test_what_a_participant_on_a_worker_gives_is_added() -> None:
    async with world_of(Engine(1)) as world:
        plain, part = await world.remote(0, Affine), await world.remote(0, Audited, "a", Doubling)
        for one in (plain, part):
            await (await one(leaf())).sum().backward()
        doubled = [[2 * value for value in grad] for grad in await plain.apply(gradients)]
        assert await part.apply(gradients) == doubled


@pytest.mark.asyncio
async def test_a_worker_that_dies_at_the_commit_has_not_changed_what_others_are_told() -> None:
    engine = Engine(2)

    def kill(rank: int, message: Any) -> None:
        if message.method == "commit" and rank == 0:
            engine.kill(0)

    engine.on_message = kill
    async with world_of(engine) as world:
        model = await Model(engine, world).make()
        running = (await model.loss()).backward()
        await running
        assert running.committed()
        assert steps("caller") == ["prepare", "commit"]
        assert [step for step in steps("b") if step != "call back"] == ["prepare", "commit"]
        assert "commit" not in steps("a")
        assert all(model.changed())


@pytest.mark.asyncio
async def test_a_worker_confirms_a_commit_before_what_its_participants_do_for_long() -> None:
    ended = asyncio.Event()
    _planned["a", "commit"] = ended.wait
    engine = Engine(2)
    async with world_of(engine, grace=0.2) as world:
        model = await Model(engine, world).make()
        await (await model.loss()).backward()
        assert not world.lost
        ended.set()
        await model.nothing_is_left()


@pytest.mark.asyncio
async def test_who_has_to_decide_can_not_join_on_a_worker() -> None:
    async with world_of(Engine(2)) as world:
        part = await world.remote(0, Audited, "a", Deciding)
        x = leaf()
        with pytest.raises(RuntimeError, match="join a pass of the caller's"):
            await (await part(x)).sum().backward()
        assert steps("a")[-1] == "abort"
        assert (x.grad, await part.apply(gradients)) == (None, [None, None])
        # In a context all decide at its end.
        y = leaf()
        async with dist.autograd.context():
            await joined((y * 2), Deciding("caller")).sum().backward()
            assert steps("caller") == []
        assert steps("caller") == ["prepare", "decide", "commit"]


def audited_sum(model: Any, x: Any) -> Any:
    return joined(called_back(model(x).sum() * 1, "copy"), Auditor("copy"))


@pytest.mark.asyncio
@pytest.mark.parametrize("refuses", [False, True])
async def test_hooks_of_replicated_models_join(refuses: bool) -> None:
    if refuses:
        _planned["copy", "prepare"] = fails
    async with world_of(Engine(2)) as world:
        model = await world.replicate(Affine)
        shards = [(leaf().detach(),)] * 2
        if refuses:
            with pytest.raises(ValueError, match="planned"):
                await model.forward_backward(audited_sum, shards)
            assert steps("copy").count("abort") == 2
            assert "commit" not in steps("copy")
        else:
            await model.forward_backward(audited_sum, shards)
            assert before("prepare", "commit")
            assert before("call back", "commit")
            assert sorted(steps("copy")) == sorted(["call back", "commit", "prepare"] * 2)
        for copy in model.parts:
            assert [one is None for one in await copy.apply(gradients)] == [refuses] * 2


def sum_of_part(part: Any, model: Any, x: Any) -> Any:
    async def loss() -> Any:
        return (await part(model(x))).sum()

    return loss()


@pytest.mark.asyncio
async def test_a_copy_of_a_replicated_model_can_not_go_on_to_a_part() -> None:
    """The part's gradient would be that of the sum of the losses."""
    async with world_of(Engine(2)) as world:
        model, part = await world.replicate(Affine), await world.remote(0, Affine)
        with pytest.raises(RuntimeError, match="has come to a part"):
            await model.forward_backward(partial(sum_of_part, part), [(leaf().detach(),)] * 2)
        assert await part.apply(gradients) == [None, None]


@pytest.mark.asyncio
async def test_promises_of_passes_are_not_held_back_by_a_limit_of_passes() -> None:
    """Two passes would each wait for the other: on each of two workers one has promised."""
    engine = Engine(2)
    async with world_of(engine) as world:
        one, two = await Model(engine, world).make(), await Model(engine, world).make()
        losses = [await one.loss(), await two.loss()]
        ag.engine().limit(passes=3)
        promised: list[Any] = []
        both = asyncio.Event()

        async def hold(rank: int, message: Any) -> None:
            promised.append(message.args)
            if len(promised) == 4:
                both.set()
            await both.wait()

        engine.on_message = lambda rank, message: (
            hold(rank, message) if message.method == "prepare" else None
        )
        try:
            await asyncio.gather(*(loss.backward() for loss in losses))
        finally:
            ag.engine().limit(passes=None)


@pytest.mark.asyncio
async def test_a_limit_that_is_set_while_a_worker_keeps_its_promise_does_not_count_it() -> None:
    """It is kept until the rest of its pass has run, and that may wait for other passes."""
    async with world_of(Engine(1)) as world:
        part, x = await world.remote(0, Affine), leaf()
        another = leaf().sum()

        async def waits(gradient: Any) -> None:
            # Not nested in the pass of the hook, which is counted.
            other = Context().run(asyncio.ensure_future, backward_of(another))
            await asyncio.wait_for(other, 10)

        def limits(gradient: Any) -> None:
            ag.engine().limit(passes=2)

        y = x * 1
        y.register_hook(limits)
        y.register_hook(waits)
        loss = (await part(y)).sum()
        try:
            await loss.backward()
        finally:
            ag.engine().limit(passes=None)


async def backward_of(loss: Any) -> None:
    await loss.backward()


@pytest.mark.asyncio
@pytest.mark.parametrize("together", [False, True])
async def test_who_joins_several_passes_of_a_context_is_told_once(together: bool) -> None:
    """Also by a pass that fails when all others have been told."""
    failed = asyncio.Event()
    x, auditor = leaf(), Auditor("caller")

    async def late(gradient: Any) -> None:
        await failed.wait()

    y = joined(x * 1, auditor)
    y.register_hook(late)
    w = x * 1
    w.register_hook(lambda gradient: 1 / 0)

    async def passes() -> None:
        async with dist.autograd.context():
            await joined(x * 1, auditor).sum().backward()
            running = y.sum().backward() if together else None
            try:
                await joined(w * 1, auditor).sum().backward()
            finally:
                failed.set()
                if running is not None:
                    with pytest.raises(RuntimeError, match="has failed"):
                        await running

    with pytest.raises(ZeroDivisionError):
        await passes()
    assert steps("caller") == ["abort"]
    assert x.grad is None


@pytest.mark.asyncio
@pytest.mark.parametrize("together", [False, True])
async def test_errors_of_aborts_that_nobody_awaits_go_to_the_handler_of_the_loop(
    together: bool,
) -> None:
    found: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, facts: found.append(facts))
    _planned["a", "abort"] = _planned["caller", "abort"] = fails
    async with world_of(Engine(2)) as world:
        model = await Model(world._site._peers, world).make()
        _planned["b", "prepare"] = waits
        running = asyncio.ensure_future(model.passes(await model.loss(), together=together))
        while "prepare" not in steps("b"):  # noqa: ASYNC110  it takes turns
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert [str(facts["exception"]) for facts in found] == ["planned"] * (1 + together)
    assert {facts["message"] for facts in found} == {"Auditor.abort failed"}


@pytest.mark.asyncio
async def test_a_limit_of_passes_does_not_hold_back_what_tells_of_a_failure() -> None:
    """The failed pass would wait for it, and it for the failed pass."""
    found: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, facts: found.append(facts))
    x = leaf()
    y = x * 1
    y.register_hook(lambda gradient: 1 / 0)

    async def passes() -> None:
        async with dist.autograd.context():
            await joined(x * 1, Auditor("caller")).sum().backward()
            await y.sum().backward()

    ag.engine().limit(passes=1, grace=1.0)
    try:
        with pytest.raises(ZeroDivisionError):
            await passes()
    finally:
        ag.engine().limit()
    assert (steps("caller"), found) == (["abort"], [])


class Here(Auditor):
    """Notes the loop."""

    async def abort(self) -> None:
        await super().abort()
        self.loop = asyncio.get_running_loop()


@pytest.mark.asyncio
async def test_a_pass_of_a_context_that_fails_in_a_thread_has_all_told_here() -> None:
    """There it has a loop of its own."""
    async with world_of(Engine(2)) as world:
        model = await Model(world._site._peers, world).make()
        x, here = leaf(), Here("here")
        y = x * 1
        y.register_hook(lambda gradient: 1 / 0)
        loss = joined(y * 1, Auditor("thread")).sum()

        async def passes() -> None:
            async with dist.autograd.context():
                await joined(x * 1, here).sum().backward()
                await (await model.loss()).backward()
                await asyncio.to_thread(loss.backward)

        with pytest.raises(ZeroDivisionError):
            await passes()
        assert here.loop is asyncio.get_running_loop()
        assert sorted(_told) == [(name, "abort") for name in ("a", "b", "caller", "here", "thread")]
        await model.nothing_is_left()


@pytest.mark.asyncio
async def test_a_context_commits_where_passes_have_to_block() -> None:
    x = leaf()
    with ag.blocking():
        async with dist.autograd.context():
            await asyncio.to_thread(joined(x * 1, Auditor("thread")).sum().backward)
            assert steps("thread") == []
    assert steps("thread") == ["prepare", "commit"]
    assert x.grad is not None


@pytest.mark.asyncio
async def test_a_promise_that_has_failed_keeps_nothing_alive() -> None:
    """Its pass has the error, whose traceback has the frames that wait for the promise."""
    _planned["a", "prepare"] = fails
    engine = Engine(1)
    async with world_of(engine) as world:
        part, x = await world.remote(0, Audited, "a"), leaf()
        gc.collect()
        gc.disable()
        try:
            with pytest.raises(ValueError, match="planned"):
                await (await part(x)).sum().backward()
            kept = [one for one in gc.get_objects() if isinstance(one, (Promise, StagedPass))]
        finally:
            gc.enable()
        assert not kept


@pytest.mark.asyncio
async def test_who_joins_a_pass_that_ends_too_late_is_left_to_it() -> None:
    """So it is if the loop gives all up while a thread takes the last steps of a pass."""
    held, first, second = Held(), GraphTask((), ()), GraphTask((), ())
    known, late = Auditor("known"), Auditor("late")
    first.members = [Member(known)]
    held.take(first)
    assert first.members == []
    second.members = [Member(known), Member(late)]
    telling = held.give_up()
    assert telling is not None
    held.take(second)
    assert [member.participant for member in second.members] == [late]
    await asyncio.wait([telling])
    assert steps("known") == ["abort"]


async def step_with_a_fault(seed: int) -> None:
    """Cancel a step, or kill a worker, at a random message, in a random order of messages."""
    chance = random.Random(seed)
    engine = Engine(2, lambda most: chance.randint(0, most))
    async with world_of(engine) as world:
        model = await Model(engine, world).make()
        loss = await model.loss()
        step = [asyncio.ensure_future(model.passes(loss, together=chance.random() < 0.5))]
        cancels, doomed, left = chance.random() < 0.5, chance.randint(0, 1), chance.randint(1, 12)

        def strike(rank: int, message: Any) -> None:
            nonlocal left
            left -= message.method in {"backward", "prepare", "commit", "abort"}
            if left == 0:
                step[0].cancel() if cancels else engine.kill(doomed)

        engine.on_message = strike
        await asyncio.gather(*step, return_exceptions=True)
        engine.on_message = lambda rank, message: None
        step.clear()
        del loss
        await model.nothing_is_left()
        committed = model.x.grad is not None
        assert set(model.changed()) == {committed}
        for rank, name in enumerate(("a", "b")):
            ends = set(steps(name)) & {"commit", "abort"}
            # One that the pass has not come to has not joined.
            wanted = {"commit" if committed else "abort"} if steps(name) else set()
            assert rank in engine.dead or ends == wanted


@pytest.mark.asyncio
async def test_no_fault_has_some_told_of_a_success_and_others_of_a_failure() -> None:
    for seed in range(30):
        _told.clear()
        await step_with_a_fault(seed)
