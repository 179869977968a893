"""Ranks that wait for one another, because they do the same in another order, all raise."""

from __future__ import annotations

import asyncio
import pickle
import random
import re
from itertools import chain
from traceback import format_exception
from typing import Any

import pytest
from deterministic import Engine, world_of
from models import Affine

import asyncgrad as ag
from asyncgrad import distributed as dist
from asyncgrad.scheduler.segments import retrieve

DDP = dist.nn.parallel.DistributedDataParallel


def rows() -> Any:
    return ag.ones(2, 3, dtype=ag.float64)


async def after_turns(turns: int, work: Any) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
    await work


async def steps_of(orders: list[str]) -> list[str]:
    """Make the steps of this rank, one after another; say how each has ended."""
    first, second = await DDP(Affine()), await DDP(Affine(0.5))
    optimizer = dist.optim.ZeroRedundancyOptimizer(first.parameters(), ag.optim.SGD, lr=0.1)

    async def step(word: str) -> None:
        if word == "reduce":
            await dist.all_reduce(rows())
        elif word == "optimize":
            await optimizer.step_async()
        elif word == "both":
            await (first(rows()) + second(rows())).sum().backward()
        elif word == "side by side":
            await asyncio.gather(step("second"), step("first"))
        elif word == "first beside a late second":
            late = asyncio.ensure_future(after_turns(50, step("second")))
            await step("first")
            await late
        elif word == "started":
            running = [model(rows()).sum().backward() for model in (second, first)]
            for one in running:
                await one
        else:
            await {"first": first, "second": second}[word](rows()).sum().backward()

    found = []
    for word in orders[dist.get_rank()].split(", "):
        try:
            await step(word)
        except RuntimeError as error:
            found.append(str(error))
        else:
            found.append("done")
    return found


FIRST, SECOND = r"one pass of model 0 \(Affine\)", r"one pass of model 1 \(Affine\)"
REDUCE, OPTIMIZE = r"all_reduce\(sum of .*\)", r"ZeroRedundancyOptimizer\.step_async"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("orders", "awaited"),
    [
        (["first, second", "second, first"], [FIRST, SECOND]),
        (["first, second", "second, first", "first, second"], [FIRST, SECOND]),
        (["first, reduce", "reduce, first"], [FIRST, REDUCE]),
        (["first, reduce", "reduce, first", "reduce, first"], [FIRST, REDUCE]),
        (["first, optimize", "optimize, first"], [FIRST, OPTIMIZE]),
        (["both", "second, first", "first, second"], [f"{FIRST} and model 1.*", SECOND, FIRST]),
    ],
)
async def test_ranks_that_wait_for_one_another_all_raise(
    orders: list[str], awaited: list[str]
) -> None:
    """The error says what two of them wait for; they can't go on, as they are out of step."""
    rng = random.Random(0)
    async with world_of(Engine(len(orders), lambda most: rng.randint(0, most))) as world:
        found = await world.run(steps_of, orders)
    one = f"({'|'.join(awaited)})"
    for end in chain.from_iterable(found):
        assert re.search(
            f"ranks . and . wait for one another: rank . in {one}, rank . in {one}", end
        )


async def beside_a_sum() -> None:
    model = await DDP(Affine())
    other = dist.barrier() if dist.get_rank() else model(rows()).sum().backward()
    await asyncio.gather(dist.all_reduce(rows()), other)


@pytest.mark.asyncio
async def test_who_has_said_what_it_awaits_says_so_again_when_a_part_of_that_has_come() -> None:
    engine, told, both = Engine(2), set[int](), asyncio.Event()
    take = engine._arrive

    async def hold(rank: int, message: Any) -> None:
        if message.method == "mail" and message.args[1][0].startswith("all_reduce"):
            await both.wait()

    async def arrive(rank: int, sent: bytes, copy: int) -> bytes:
        answer = await take(rank, sent, copy)
        if pickle.loads(sent).method == "awaits":
            told.add(rank)
            if len(told) == 2:
                both.set()
        return answer

    engine.on_message = hold
    engine._arrive = arrive  # type: ignore[method-assign]
    async with world_of(engine) as world, asyncio.timeout(60):
        one = f"in (barrier|{FIRST})"
        with pytest.raises(RuntimeError, match=rf"rank . {one}, rank . {one}\."):
            await world.run(beside_a_sum)


async def steps_before_or_after_a_barrier() -> None:
    parameter = ag.zeros(3, requires_grad=True)
    parameter.grad = ag.ones(3)
    optimizer = dist.optim.ZeroRedundancyOptimizer([parameter], ag.optim.SGD, lr=0.1)
    if dist.get_rank():
        await dist.barrier()
    await optimizer.step_async()
    await dist.barrier()


@pytest.mark.asyncio
async def test_what_comes_before_a_function_begins_counts() -> None:
    """The other rank has begun a step when the function of this one begins."""
    engine, has_come = Engine(2), asyncio.Event()
    take = engine._arrive

    async def hold(rank: int, message: Any) -> None:
        if message.method == "run" and rank == 1:
            await has_come.wait()

    async def arrive(rank: int, sent: bytes, copy: int) -> bytes:
        answer = await take(rank, sent, copy)
        if pickle.loads(sent).method == "mail" and rank == 1:
            has_come.set()
        return answer

    engine.on_message = hold
    engine._arrive = arrive  # type: ignore[method-assign]
    async with world_of(engine) as world, asyncio.timeout(60):
        with pytest.raises(RuntimeError, match=r"wait for one another.*step_async.*barrier"):
            await world.run(steps_before_or_after_a_barrier)


@pytest.mark.asyncio
async def test_who_hears_first_that_another_has_returned_is_told_why() -> None:
    """The words about the standstill come after those about the end of the other function."""
    engine = Engine(2)
    returned = [asyncio.Event(), asyncio.Event()]
    held = []

    async def hold(rank: int, message: Any) -> None:
        if message.method == "stop_waiting":
            held.append(rank)
            await returned[rank].wait()

    take = engine._arrive

    async def arrive(rank: int, sent: bytes, copy: int) -> bytes:
        answer = await take(rank, sent, copy)
        if pickle.loads(sent).method == "returned":
            returned[rank].set()
        return answer

    engine.on_message = hold
    engine._arrive = arrive  # type: ignore[method-assign]
    async with world_of(engine) as world:
        ends = await world.run(steps_of, ["first, reduce", "reduce, first"])
    assert held
    for end in chain.from_iterable(ends):
        assert "wait for one another" in end


@pytest.mark.asyncio
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("place", [0, 1])
async def test_ranks_that_put_unlike_models_into_a_pass_raise(ranks: int, place: int) -> None:
    orders = ["first, second"] * ranks
    orders[place] = "both"
    async with world_of(Engine(ranks)) as world:
        found = await world.run(steps_of, orders)
    both = "one pass of model 0 (Affine) and model 1 (Affine)"
    for rank, (first, *rest) in enumerate(found):
        own = both if rank == place else "one pass of model 0 (Affine)"
        assert f"where this rank, {rank}, has called {own}:" in first
        assert all(f"rank {place} has given this pass up" in end for end in rest)


@pytest.mark.asyncio
@pytest.mark.parametrize("other", ["side by side", "started", "first beside a late second"])
async def test_passes_that_run_beside_one_another_have_no_order(other: str) -> None:
    async with world_of(Engine(3)) as world:
        found = await world.run(steps_of, ["first, second", other, other])
    assert [set(ends) for ends in found] == [{"done"}] * 3


# -- waits through other tasks ------------------------------------------------

#: Blocks of a rank's function: how it waits for chains of passes, and the models of each chain.
Program = list[tuple[str, list[list[int]]]]


async def runs_program(programs: list[Program], count: int) -> None:
    """Run the blocks of this rank one after another, and the chains of a block side by side."""
    models = [await DDP(Affine()) for _ in range(count)]

    async def passes(chain: list[int]) -> None:
        for number in chain:
            await after_turns(random.Random(number).randint(0, 30), asyncio.sleep(0))
            await models[number](rows()).sum().backward()

    for how, chains in programs[dist.get_rank()]:
        await WAYS[how](*map(passes, chains))


async def in_a_group(*chains: Any) -> None:
    async with asyncio.TaskGroup() as group:
        for one in chains:
            group.create_task(one)


def started(chains: Any) -> list[asyncio.Task[None]]:
    tasks = [asyncio.ensure_future(one) for one in chains]
    for task in tasks:
        # The error of the first ends the run.
        task.add_done_callback(retrieve)
    return tasks


async def by_wait(*chains: Any) -> None:
    done, _ = await asyncio.wait(started(chains))
    for one in done:
        await one


async def by_wait_for(*chains: Any) -> None:
    for one in started(chains):
        await asyncio.wait_for(one, 1e6)


async def beside_itself(first: Any, *others: Any) -> None:
    tasks = started(others)
    await first
    await asyncio.gather(asyncio.gather(*tasks))


WAYS: dict[str, Any] = {
    "gather": asyncio.gather, "group": in_a_group, "wait": by_wait, "wait_for": by_wait_for,
    "beside": beside_itself,
}  # fmt: skip


def made(rng: random.Random, count: int) -> Program:
    """A program of one pass of each model."""
    numbers = rng.sample(range(count), count)
    blocks: Program = []
    while numbers:
        taken = [numbers.pop() for _ in range(rng.randint(1, min(3, len(numbers))))]
        chains: list[list[int]] = [[] for _ in range(rng.randint(1, len(taken)))]
        for place, number in enumerate(taken):
            chains[place % len(chains)].append(number)
        blocks.append((rng.choice(list(WAYS)), chains))
    return blocks


def ends(programs: list[Program]) -> bool:
    """Whether all passes of some programs end, if each waits for all ranks."""
    done: set[int] = set()
    while True:
        begun = []
        for program in programs:
            pending = [
                [[one for one in chain if one not in done] for chain in chains]
                for _, chains in program
            ]
            block: list[list[int]] = next((one for one in pending if any(one)), [])
            begun.append({chain[0] for chain in block if chain})
        common = set.intersection(*begun)
        if not common:
            return not any(begun)
        done |= common


@pytest.mark.parametrize("seed", range(30))
def test_waits_through_other_tasks_are_followed(seed: int) -> None:
    """Ranks raise if, and only if, none of them can go on, whatever their functions wait with."""
    rng = random.Random(seed)
    ranks, count = rng.randint(2, 4), rng.randint(2, 5)
    programs = [made(rng, count) for _ in range(ranks)]
    if seed % 3 == 0:
        # All have the same blocks, but wait for them in their own ways.
        programs = [[(rng.choice(list(WAYS)), one) for _, one in programs[0]] for _ in programs]

    async def run() -> Any:
        async with world_of(Engine(ranks, lambda most: rng.randint(0, most))) as world:
            try:
                # A standstill that is not noticed would last for ever.
                async with asyncio.timeout(60):
                    await world.run(runs_program, programs, count)
            except (RuntimeError, ExceptionGroup) as error:
                return "".join(format_exception(error))
        return "done"

    found = asyncio.run(run())
    assert ("done" if ends(programs) else "wait for one another") in found


@pytest.mark.asyncio
async def test_three_ranks_each_of_which_waits_for_another_raise() -> None:
    """Each two of them have something in which both take part."""
    programs: list[Program] = [
        [("gather", [[0], [1]]), ("gather", [[2]])],
        [("group", [[1], [2]]), ("gather", [[0]])],
        [("wait", [[2], [0]]), ("gather", [[1]])],
    ]
    assert not ends(programs)
    async with world_of(Engine(3)) as world:
        with pytest.raises((RuntimeError, ExceptionGroup)) as caught:
            await world.run(runs_program, programs, 3)
    assert "wait for one another" in "".join(format_exception(caught.value))
