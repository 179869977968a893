"""Functions on all ranks, what they say to one another, and models that all of them train."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import random
import threading
import weakref
from contextlib import nullcontext, suppress
from pprint import pformat
from typing import Any

import numpy as np
import pytest
from deterministic import Engine, world_of
from hypothesis import given, settings
from hypothesis import strategies as st
from models import Affine, refuses

import asyncgrad as ag
from asyncgrad import distributed as dist
from asyncgrad.distributed.averages import Voting
from asyncgrad.distributed.standstill import Standstill

DDP = dist.nn.parallel.DistributedDataParallel


def tensor(*values: float) -> ag.Tensor:
    return ag.tensor(np.array(values))


class Net(ag.nn.Module):
    """Two layers, the second's weight shared with nothing, one parameter that may stay unused."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        generator = np.random.default_rng(seed)
        make = lambda *shape: ag.nn.Parameter(ag.tensor(generator.normal(size=shape)))  # noqa: E731
        self.first, self.second, self.unused = make(3, 4), make(4, 2), make(5)
        self.rarely = make(2)
        self.register_buffer("mean", ag.tensor(generator.normal(size=2)))

    def forward(self, x: Any, rarely: bool = False) -> Any:
        y = ag.tanh(x @ self.first) @ self.second + (ag.tanh(x) @ self.first) @ self.second
        return y * self.rarely if rarely else y


def batch(rows: int = 7) -> Any:
    return ag.tensor(np.random.default_rng(1).normal(size=(rows, 3)))


def mean_square(model: Any, x: Any) -> Any:
    return (model(x) ** 2).mean()


# -- collectives --------------------------------------------------------------


async def collectives(size: int) -> Any:
    rank = dist.get_rank()
    assert dist.get_world_size() == size
    own = tensor(rank, rank + 0.1)
    found = [await dist.all_reduce(own, op) for op in dist.ReduceOp]
    large = ag.tensor(np.arange(40_000.0) * (rank + 1))
    found.append(await dist.all_reduce(large))
    found.append(await dist.all_gather({"rank": rank}))
    found.append(await dist.all_gather(own))
    found.append(await dist.broadcast(own, src=size - 1))
    await dist.barrier()
    assert own.tolist() == [rank, rank + 0.1]
    return found


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [1, 2, 3])
async def test_collectives_combine_in_the_order_of_the_ranks(size: int) -> None:
    async with world_of(Engine(size)) as world:
        results = await world.run(collectives, size)
        own = [np.array([r, r + 0.1]) for r in range(size)]
        total, product = own[0].copy(), own[0].copy()
        for other in own[1:]:
            total += other
            product *= other
        for found in results:
            sums, means, products, least, most, large, ranks, gathered, last = found
            assert sums.tolist() == total.tolist()
            assert means.tolist() == (total / size).tolist()
            assert products.tolist() == product.tolist()
            assert (least.tolist(), most.tolist()) == (own[0].tolist(), own[-1].tolist())
            np.testing.assert_allclose(
                large.numpy(), np.arange(40_000.0) * (size * (size + 1) / 2), rtol=1e-14
            )
            assert large.tolist() == results[0][5].tolist()
            assert ranks == [{"rank": rank} for rank in range(size)]
            assert [g.tolist() for g in gathered] == [o.tolist() for o in own]
            assert last.tolist() == own[-1].tolist()
        assert all(one["runs"] == one["working"] == 0 for one in await world.statistics())


async def own_copies() -> Any:
    own = {"x": ag.ones(2, requires_grad=True), "data": np.ones(2)}
    found = [(await dist.all_gather(own))[dist.get_rank()], await dist.broadcast(own)]
    requires = [one["x"].requires_grad for one in found]
    for one in found:
        one["x"].requires_grad_(False).mul_(3)
        one["data"] *= 3
    return own["x"].tolist(), own["data"].tolist(), requires


async def several_at_once() -> Any:
    rank = dist.get_rank()
    calls = [call(rank) for _ in range(5) for call in (dist.all_gather, dist.broadcast)]
    return await asyncio.gather(*calls, dist.barrier())


@pytest.mark.asyncio
async def test_collectives_that_are_called_at_once_are_numbered_in_the_order_of_the_calls() -> None:
    """Not in the order in which copies of what they give are ready: some give nothing."""
    async with world_of(Engine(2)) as world:
        assert await world.run(several_at_once) == [[[0, 1], 0] * 5 + [None]] * 2


@pytest.mark.asyncio
async def test_what_collectives_give_is_a_copy_without_a_graph_also_of_ones_own() -> None:
    async with world_of(Engine(2)) as world:
        assert await world.run(own_copies) == [([1.0, 1.0], [1.0, 1.0], [False, False])] * 2


async def share(length: int) -> list[int]:
    sampler = ag.utils.data.DistributedSampler(range(length), shuffle=False)
    assert (sampler.rank, sampler.num_replicas) == (dist.get_rank(), dist.get_world_size())
    loader = ag.utils.data.DataLoader(range(length), batch_size=2, sampler=sampler)
    return [index async for batch in loader for index in batch.tolist()]


@pytest.mark.asyncio
async def test_each_rank_loads_its_share_of_a_dataset() -> None:
    async with world_of(Engine(3)) as world:
        assert await world.run(share, 7) == [[0, 3, 6], [1, 4, 0], [2, 5, 1]]


async def unlike() -> None:
    await dist.all_reduce(ag.zeros(dist.get_rank() + 1))


async def another_shape() -> None:
    await dist.all_reduce(ag.ones(2, 3) if dist.get_rank() else ag.ones(3, 2))


async def another_operation() -> None:
    await dist.all_reduce(ag.ones(2), dist.ReduceOp.MAX if dist.get_rank() else dist.ReduceOp.SUM)


async def a_pass_that_nobody_awaits() -> None:
    model = await DDP(Net())
    first = mean_square(model, batch()).backward()
    first.add_done_callback(lambda done: done.cancelled() or done.exception())
    if dist.get_rank() == 0:
        raise KeyError("planned")
    await first


async def recorded_pass() -> None:
    model = await DDP(Net())
    (grad,) = await ag.autograd.grad(
        mean_square(model, batch()), [model.module.first], create_graph=True
    )
    assert grad.requires_grad
    await mean_square(model, batch()).backward(create_graph=True)


async def not_a_tensor() -> None:
    await dist.all_reduce(3)


async def from_nobody() -> None:
    await dist.broadcast(3, src=5)


async def extremum_of_complex() -> None:
    await dist.all_reduce(ag.ones(1, dtype=ag.complex64), dist.ReduceOp.MAX)


async def another_bucket_size() -> None:
    await DDP(Net(), bucket_cap_mb=25.0 / (1 + dist.get_rank()))


async def other_shares() -> None:
    parameters = list(Net().parameters())[dist.get_rank() :]
    await dist.optim.ZeroRedundancyOptimizer(parameters, ag.optim.SGD, lr=0.1).step_async()


async def no_operation() -> None:
    await dist.all_reduce(ag.ones(1), "sum")  # type: ignore[arg-type]


async def average_of_integers() -> None:
    await dist.all_reduce(ag.tensor([1, 2]), dist.ReduceOp.AVG)


async def one_leaves() -> None:
    await dist.barrier()
    if dist.get_rank() == 0:
        await dist.all_gather(1)


async def one_leaves_a_pass() -> None:
    model = await DDP(Net(), find_unused_parameters=True)
    if dist.get_rank() == 0:
        await mean_square(model, batch()).backward()


async def another_collective() -> None:
    await (dist.barrier() if dist.get_rank() == 0 else dist.all_gather(1))
    await asyncio.Event().wait()


async def another_broadcast() -> None:
    await (dist.barrier() if dist.get_rank() == 0 else dist.broadcast(1))
    await asyncio.Event().wait()


async def another_source() -> None:
    await dist.broadcast(1, src=dist.get_rank() % 2)
    await asyncio.Event().wait()


async def another_size() -> None:
    """That of rank 0 is as large as a share of what rank 1 gives."""
    await dist.all_reduce(ag.ones(10_000 * (1 + dist.get_rank())))
    await asyncio.Event().wait()


async def one_fails() -> None:
    if dist.get_rank() == 1:
        raise KeyError("planned")
    await dist.barrier()


async def average_of_bfloat16() -> list[float]:
    own = ag.full((3,), 2.0 + 2.0 * dist.get_rank()).to(ag.bfloat16)
    found = await dist.all_reduce(own, dist.ReduceOp.AVG)
    assert found.dtype == ag.bfloat16
    return found.tolist()


@pytest.mark.asyncio
async def test_an_average_of_bfloat16_is_one() -> None:
    pytest.importorskip("ml_dtypes")
    async with world_of(Engine(2)) as world:
        assert await world.run(average_of_bfloat16) == [[3.0] * 3] * 2


async def large_numbers() -> list[float]:
    half = ag.tensor([60_000.0], dtype=ag.float16)
    found = [await dist.all_reduce(half, op) for op in (dist.ReduceOp.AVG, dist.ReduceOp.SUM)]
    infinite = ag.tensor([float("inf") if dist.get_rank() else float("-inf")])
    found.append(await dist.all_reduce(infinite))
    return [one.item() for one in found]


@pytest.mark.asyncio
async def test_an_average_overflows_as_a_mean_does_and_no_collective_warns() -> None:
    # Warnings are errors here.
    mean = ag.tensor([60_000.0] * 2, dtype=ag.float16).mean().item()
    async with world_of(Engine(2)) as world:
        for found in await world.run(large_numbers):
            assert found == pytest.approx([mean, float("inf"), float("nan")], nan_ok=True)


@pytest.mark.asyncio
async def test_what_goes_wrong_on_one_rank_ends_the_run_on_all() -> None:
    async with world_of(Engine(2)) as world:
        for function, kind, words in (
            (unlike, RuntimeError, r"float32 \(.,\)\) where this .* float32 \(.,\)\)"),
            (another_shape, RuntimeError, r"\(2, 3\)\) where this .* \(3, 2\)|\(3, 2\)\) where"),
            (another_operation, RuntimeError, r"(max|sum) of .* where this .*(max|sum) of"),
            (not_a_tensor, TypeError, "expected a Tensor, not int"),
            (from_nobody, ValueError, "no rank 5 among 2"),
            (one_fails, KeyError, "planned"),
            (no_operation, TypeError, "expected a ReduceOp"),
            (average_of_integers, TypeError, "average of int64"),
            (extremum_of_complex, TypeError, "complex64 has no order"),
            (another_bucket_size, RuntimeError, r"bucket_cap_mb=(25|12.5)\) where this rank"),
            (other_shares, RuntimeError, "parameter 0 is .* on rank . and"),
            (one_leaves, RuntimeError, "returned on rank 1, which has not taken part"),
            (one_leaves_a_pass, RuntimeError, "returned on rank 1, which has not taken part"),
            (another_collective, RuntimeError, "has called (barrier|all_gather) where this rank"),
            (another_broadcast, RuntimeError, "has called (barrier|broadcast.*) where this"),
            (another_source, RuntimeError, r"rank . has called broadcast\(src=.\) where this rank"),
            (another_size, RuntimeError, "has called all_reduce.* where this rank"),
            (a_pass_that_nobody_awaits, KeyError, "planned"),
        ):
            with pytest.raises(kind, match=words) as caught:
                await world.run(function)
            assert any("on worker" in note for note in caught.value.__notes__)
        with pytest.raises(TypeError, match="no coroutine function"):
            await world.run(mean_square)
        with pytest.raises(RuntimeError, match="requires grad"):
            await world.run(collectives, {"x": ag.ones(1, requires_grad=True)})
        with pytest.raises(RuntimeError, match=r"world\.run"):
            dist.get_rank()
        for _ in range(200):
            await asyncio.sleep(0)
        assert all(one["runs"] == one["working"] == 0 for one in await world.statistics())


async def sources(of: list[int]) -> str:
    with pytest.raises(RuntimeError) as caught:
        await dist.broadcast(1, src=of[dist.get_rank()])
    return str(caught.value).partition(":")[0]


@pytest.mark.asyncio
async def test_every_rank_names_the_others_that_do_not_agree_with_it() -> None:
    async with world_of(Engine(3)) as world:
        assert await world.run(sources, [0, 1, 1]) == [
            "rank 1 has called broadcast(src=1), rank 2 has called broadcast(src=1) where this "
            "rank, 0, has called broadcast(src=0)",
            "rank 0 has called broadcast(src=0) where this rank, 1, has called broadcast(src=1)",
            "rank 0 has called broadcast(src=0) where this rank, 2, has called broadcast(src=1)",
        ]


async def goes_on_after(what: str) -> str:
    """Rank 0 gives up a collective that the others are to make, too, and then goes on."""
    model = await DDP(Net())
    optimizer = dist.optim.ZeroRedundancyOptimizer(model.parameters(), ag.optim.SGD, lr=0.1)
    if dist.get_rank() == 1:
        await _seen["given up"].wait()
        await (dist.barrier() if what == "barrier" else optimizer.step_async())
        return "went on"
    waiting = asyncio.ensure_future(dist.barrier() if what == "barrier" else optimizer.step_async())
    await _seen["sent"].wait()
    waiting.cancel()
    await asyncio.wait([waiting])
    _seen["given up"].set()
    for following in (dist.barrier, optimizer.step_async, mean_square(model, batch()).backward):
        with pytest.raises(RuntimeError, match=f"given up a?.*{what}"):
            await following()
    return await dist.all_gather("reached nobody")


@pytest.mark.asyncio
@pytest.mark.parametrize("what", ["barrier", "ZeroRedundancyOptimizer"])
async def test_a_rank_that_has_given_up_a_collective_can_not_go_on(what: str) -> None:
    """It would wait for the others in the next, and they for it in this one."""
    engine = Engine(2)
    _seen.update({"sent": asyncio.Event(), "given up": asyncio.Event()})

    async def hold(rank: int, message: Any) -> None:
        collective = message.args[1][0] if message.method == "mail" else ""
        if message.sender == 0 and str(collective).startswith(what):
            _seen["sent"].set()
            # It never arrives.
            await asyncio.Event().wait()

    engine.on_message = hold
    async with world_of(engine) as world:
        with pytest.raises(RuntimeError, match=f"given up a?.*{what}"):
            await world.run(goes_on_after, what)


class OpensOnce:
    """Can be unpickled by its sender, which tries it, and not by the next."""

    opened = False

    def __setstate__(self, state: Any) -> None:
        if OpensOnce.opened:
            raise ValueError("planned")
        OpensOnce.opened = True

    def __getstate__(self) -> Any:
        return "some state"


class WithTensor:
    def __init__(self) -> None:
        self.x = ag.ones(2, requires_grad=True)


async def gathers_and_goes_on(kind: Any, ranks: set[int]) -> str:
    rank = dist.get_rank()
    with pytest.raises((TypeError, RuntimeError, ValueError)) if rank in ranks else nullcontext():
        await dist.all_gather(kind() if rank in ranks else None)
    await dist.barrier()
    return "went on"


@pytest.mark.asyncio
async def test_a_rank_that_has_sent_what_another_can_not_read_can_not_go_on() -> None:
    """The other waits for it in this one."""
    OpensOnce.opened = False
    async with world_of(Engine(2)) as world:
        with pytest.raises(RuntimeError, match="given up all_gather"):
            await world.run(gathers_and_goes_on, OpensOnce, {1})


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", [threading.Lock, WithTensor])
async def test_ranks_go_on_after_data_that_can_not_be_sent_if_all_do(kind: Any) -> None:
    async with world_of(Engine(2)) as world:
        assert await world.run(gathers_and_goes_on, kind, {0, 1}) == ["went on"] * 2
        with pytest.raises(RuntimeError, match=r"wait for one another: .*in barrier"):
            await world.run(gathers_and_goes_on, kind, {1})


async def consolidates_and_goes_on(ranks: set[int], to: int) -> str:
    model = Affine()
    optimizer = dist.optim.ZeroRedundancyOptimizer(model.parameters(), ag.optim.SGD, lr=0.5)
    if dist.get_rank() in ranks:
        optimizer.optim.state["held"] = {"lock": threading.Lock()}
    fails = dist.get_rank() in ranks and dist.get_rank() != to
    with pytest.raises(TypeError, match="a lock in its") if fails else nullcontext():
        await optimizer.consolidate_state_dict(to)
    await dist.barrier()
    return "went on"


@pytest.mark.asyncio
async def test_a_state_that_can_not_be_sent_is_noticed_before_anything_is_sent() -> None:
    """The rank that gets all states does not send its own."""
    async with world_of(Engine(2)) as world:
        assert await world.run(consolidates_and_goes_on, {0}, 0) == ["went on"] * 2
        with pytest.raises(RuntimeError, match=r"wait for one another: .*in barrier"):
            await world.run(consolidates_and_goes_on, {1}, 0)


async def steps_and_goes_on(ranks: set[int], *, again: bool) -> list[float]:
    x = ag.zeros(2, requires_grad=True)
    x.grad = ag.ones(2)
    optimizer = dist.optim.ZeroRedundancyOptimizer([x], ag.optim.SGD, lr=0.5)
    if dist.get_rank() in ranks:
        hook = optimizer.optim.register_step_pre_hook(refuses)
        with pytest.raises(ValueError, match="planned"):
            await optimizer.step_async()
        hook.remove()
    await (optimizer.step_async() if again else dist.barrier())
    return x.tolist()


@pytest.mark.asyncio
async def test_ranks_go_on_after_a_step_that_has_failed_before_anything_was_sent() -> None:
    async with world_of(Engine(2)) as world:
        assert await world.run(steps_and_goes_on, {0, 1}, again=False) == [[0.0, 0.0]] * 2
        assert await world.run(steps_and_goes_on, {0, 1}, again=True) == [[-0.5, -0.5]] * 2
        # The other waits for a rank that has failed alone.
        assert await world.run(steps_and_goes_on, {1}, again=True) == [[-0.5, -0.5]] * 2
        with pytest.raises(RuntimeError, match="wait for one another"):
            await world.run(steps_and_goes_on, {1}, again=False)


async def told_before_a_model() -> int:
    """Rank 1 comes to both when rank 0 has sent what belongs to both."""
    if dist.get_rank() == 1:
        for _ in range(200):
            await asyncio.sleep(0)
    seed = await dist.broadcast(3)
    await DDP(Net(seed=seed + dist.get_rank()))
    await dist.barrier()
    return seed


@pytest.mark.asyncio
async def test_a_rank_that_comes_late_finds_all_that_was_sent() -> None:
    async with world_of(Engine(2)) as world:
        assert await world.run(told_before_a_model) == [3, 3]


async def waits() -> None:
    await dist.barrier()
    if dist.get_rank() == 0:
        await asyncio.Event().wait()
    await dist.barrier()


@pytest.mark.asyncio
async def test_a_run_ends_when_it_is_cancelled_or_a_rank_is_lost() -> None:
    engine = Engine(3)
    async with world_of(engine) as world:
        for how in ("cancel", "kill"):
            begun = asyncio.Event()
            engine.on_message = lambda rank, message, begun=begun: (
                begun.set() if message.method == "mail" else None
            )
            run = asyncio.create_task(world.run(waits))
            await begun.wait()
            if how == "cancel":
                run.cancel()
            else:
                engine.kill(2)
            with pytest.raises(asyncio.CancelledError if how == "cancel" else dist.WorkerLostError):
                await run
            living = [one for one in await world.statistics() if one is not None]
            assert all(one["runs"] == one["working"] == 0 for one in living)


# -- models -------------------------------------------------------------------


class Given:
    """Plain data that is pickled anew."""

    def __reduce__(self) -> Any:
        return Given, ()


async def fails_with(given: Given) -> None:
    raise ValueError("planned")


@pytest.mark.usefixtures("no_collector")
@pytest.mark.asyncio
async def test_a_failed_run_frees_what_it_was_given_without_a_collection() -> None:
    async with world_of(Engine(2)) as world:
        given = Given()
        alive = weakref.ref(given)
        gc.collect()
        with suppress(ValueError):
            await world.run(fails_with, given)
        del given
        for _ in range(50):
            await asyncio.sleep(0)
        assert alive() is None


#: The parameters of models, on all ranks.
_parameters: list[weakref.ref[Any]] = []


def watched_net() -> Any:
    module = Affine()
    _parameters.extend(map(weakref.ref, module.parameters()))
    return module


async def steps(how: str) -> None:
    model, other = await DDP(watched_net()), await DDP(watched_net())
    optimizer = dist.optim.ZeroRedundancyOptimizer(model.parameters(), ag.optim.SGD, lr=0.1)
    rows, rank = ag.ones(2, 3, dtype=ag.float64), dist.get_rank()
    if how == "standstill" and rank == 1:
        model, other = other, model
    if how == "failed pass" and rank == 1:
        model.module.scale.register_hook(refuses)
    await model(rows).sum().backward()
    await other(rows).sum().backward()
    await optimizer.step_async()
    if how == "failed run" and rank == 1:
        raise ValueError("planned")
    await dist.barrier()


async def copies(world: Any, how: str) -> None:
    model = await world.replicate(watched_net)
    loss = refuses if how == "failed step" else mean_square
    await model.forward_backward(loss, [(ag.ones(2, 3, dtype=ag.float64),)] * 2)


WAYS_TO_END = ["run", "failed run", "failed pass", "standstill", "step", "failed step"]


@pytest.mark.usefixtures("no_collector")
@pytest.mark.asyncio
@pytest.mark.parametrize("how", WAYS_TO_END)
async def test_models_are_freed_with_their_run_without_a_collection(how: str) -> None:
    """Hooks on parameters know the model, which has the parameters."""
    _parameters.clear()
    async with world_of(Engine(2)) as world:
        gc.collect()
        with suppress(ValueError, RuntimeError):
            await (copies(world, how) if "step" in how else world.run(steps, how))
        for _ in range(50):
            await asyncio.sleep(0)
        assert [one() for one in _parameters] == [None] * len(_parameters) != []


async def train(bucket: float, rarely: bool = False) -> Any:
    rank, size = dist.get_rank(), dist.get_world_size()
    model = await DDP(Net(seed=rank), bucket_cap_mb=bucket)
    optimizer = ag.optim.SGD(model.parameters(), lr=0.1)
    rows = batch(4 * size)[rank * 4 : rank * 4 + 4]
    for _ in range(3):
        optimizer.zero_grad()
        await (model(rows, rarely=rarely and rank == 0) ** 2).mean().backward()
        optimizer.step()
    return {
        name: (p.detach(), p.grad) for name, p in model.module.named_parameters()
    }, model.module.mean


@pytest.mark.asyncio
@pytest.mark.parametrize("bucket", [25.0, 1e-6, 1e-4], ids=["one", "each its own", "some"])
async def test_all_ranks_get_the_bits_of_the_sum_in_rank_order(bucket: float) -> None:
    async with world_of(Engine(2)) as world:
        results = await world.run(train, bucket, True)
    nets = [Net(), Net()]
    for _ in range(3):
        losses = []
        for rank, net in enumerate(nets):
            net.zero_grad()
            x = batch(8)[rank * 4 : rank * 4 + 4]
            losses.append((net(x, rarely=rank == 0) ** 2).mean())
            await losses[-1].backward()
        for name, first in nets[0].named_parameters():
            second = nets[1].get_parameter(name)
            if first.grad is None and second.grad is None:
                continue
            zero = ag.zeros_like(first)
            a, b = (zero if p.grad is None else p.grad for p in (first, second))
            mean = (a + b) / 2
            for p in (first, second):
                p.grad = mean.clone()
        for net in nets:
            ag.optim.SGD(net.parameters(), lr=0.1).step()
    for found, mean in results:
        assert mean.tolist() == nets[0].mean.tolist()
        for name, (value, gradient) in found.items():
            assert value.tolist() == nets[0].get_parameter(name).tolist(), name
            assert (gradient is None) == (name == "unused")


async def row_sparse() -> Any:
    ag.manual_seed(0)
    model = await DDP(ag.nn.Embedding(5, 2, sparse=True))
    with model.no_sync():
        await model(ag.tensor([dist.get_rank(), 3])).sum().backward()
    await model(ag.tensor([4 - dist.get_rank()])).sum().backward()
    return model.module.weight.grad


@pytest.mark.asyncio
async def test_row_sparse_gradients_are_averaged_as_dense_ones() -> None:
    async with world_of(Engine(2)) as world:
        for found in await world.run(row_sparse):
            assert found.tolist() == [[0.5] * 2, [0.5] * 2, [0.0] * 2, [1.5] * 2, [0.5] * 2]


async def unsynced() -> Any:
    rank = dist.get_rank()
    model, alone = await DDP(Net()), Net()
    x = batch(8)[rank * 4 : rank * 4 + 4]
    found = []
    for _ in range(2):
        # From the second time on, `.grad` has an average already.
        with model.no_sync():
            for _ in range(2):
                await mean_square(model, x).backward()
                await mean_square(alone, x).backward()
        if not found:
            assert model.module.first.grad.tolist() == alone.first.grad.tolist()
        await mean_square(model, x * 2).backward()
        found.append(model.module.first.grad.tolist())
    with model.no_sync():
        await mean_square(model, x).backward()
        model.zero_grad()
        # No rank has added to it, so it stays as it is.
        model.module.unused.grad = ag.full_like(model.module.unused, rank)
        if rank:
            # The other rank has added nothing, and a pass that fails changes nothing.
            await (model.module.second * 3).sum().backward()
    failing = mean_square(model, x)
    failing.register_hook(refuse)
    with suppress(ValueError, dist.PassEndedError):
        await failing.backward()
    assert (model.module.second.grad is None) == (rank == 0)
    held = model.module.second.grad
    await mean_square(model, x * 2).backward()
    assert held is None or held is model.module.second.grad
    assert model.module.unused.grad.unique().tolist() == [rank]
    return [*found, model.module.first.grad.tolist()], model.module.second.grad.tolist()


@pytest.mark.asyncio
async def test_a_pass_averages_what_others_have_added_without_synchronisation() -> None:
    async with world_of(Engine(2)) as world:
        results = await world.run(unsynced)
    net = Net()
    x = batch(8)
    assert results[0] == results[1]
    for found in results[0][0]:
        if found is results[0][0][-1]:
            net.zero_grad()
        else:
            for _ in range(2):
                await mean_square(net, x).backward()
        await mean_square(net, x * 2).backward()
        np.testing.assert_allclose(found, net.first.grad.numpy(), rtol=1e-12)
    np.testing.assert_allclose(results[0][1], net.second.grad.numpy() + 1.5, rtol=1e-12)


async def frozen_later() -> Any:
    model, x = await DDP(Affine()), ag.full((3,), 0.1 * (dist.get_rank() + 1), dtype=ag.float64)
    for frozen_by in ({0, 1}, {1}):
        model.module.scale.requires_grad_(True)
        model.zero_grad()
        with model.no_sync():
            await model(x).sum().backward()
        own = model.module.scale.grad.numpy().copy()
        model.module.scale.requires_grad_(dist.get_rank() not in frozen_by)
        await model(x).sum().backward()
        everyone = await dist.all_gather(ag.tensor(own))
        if len(frozen_by) == 2:
            mean = sum(everyone) / 2
            np.testing.assert_allclose(model.module.scale.grad.numpy(), mean.numpy(), rtol=1e-12)
    return gradients(model.module)


@pytest.mark.asyncio
async def test_what_is_frozen_after_it_was_used_without_synchronisation_is_averaged() -> None:
    """Otherwise the ranks would have other gradients, with which optimizers step."""
    async with world_of(Engine(2)) as world:
        first, second = await world.run(frozen_later)
        assert first == second


async def two_models() -> Any:
    rank = dist.get_rank()
    models = [await DDP(Net(seed)) for seed in range(2)]
    for step in range(3):
        x = batch(8)[rank * 4 : rank * 4 + 4] * (step + 1)
        await sum(mean_square(model, x) for model in models).backward()
    return [model.module.first.grad.tolist() for model in models]


@pytest.mark.asyncio
async def test_a_pass_through_two_models_averages_both_once() -> None:
    """Asking the second model must not have the average of the first added to its `.grad`."""
    async with world_of(Engine(2)) as world:
        results = await world.run(two_models)
    assert results[0] == results[1]
    nets = [Net(seed) for seed in range(2)]
    for net, found in zip(nets, results[0], strict=True):
        for step in range(3):
            await mean_square(net, batch(8) * (step + 1)).backward()
        np.testing.assert_allclose(found, net.first.grad.numpy(), rtol=1e-12)


async def one_gives_up_late() -> Any:
    model = await DDP(Net())
    with pytest.raises((ValueError, dist.PassEndedError)) as caught:
        await mean_square(model, batch()).backward()
    return str(caught.value), model.module.first.grad


@pytest.mark.asyncio
async def test_a_rank_that_has_all_it_needs_does_not_vote_for_a_pass_that_was_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would wait for decisions on the pass's other models, while the others wait for it."""
    averages = Voting._averages

    async def then_end(self: Voting) -> Any:
        found = await averages(self)
        if self._group.rank == 0:
            raise ValueError("planned")
        with suppress(dist.PassEndedError):
            await self._group.mail.receive(0, self._mail("nothing"))
        return found

    monkeypatch.setattr(Voting, "_averages", then_end)
    engine, sent = Engine(2), set()

    def note(rank: int, message: Any) -> None:
        sent.add(message.args[1][-1] if message.method == "mail" else message.method)

    engine.on_message = note
    async with world_of(engine) as world:
        results = await world.run(one_gives_up_late)
    assert results == [("planned", None), ("rank 0 has given this pass up", None)]
    assert "gave_up" in sent
    assert "vote" not in sent


class Scalars(ag.nn.Module):
    """Uses those of its parameters that are asked for."""

    def __init__(self) -> None:
        super().__init__()
        for name in "abc":
            setattr(self, name, ag.nn.Parameter(ag.ones(1)))

    def forward(self, x: float, used: str) -> Any:
        return sum(getattr(self, name) for name in used) * x


async def some_used() -> Any:
    rank, found = dist.get_rank(), []
    model = await DDP(Scalars())

    async def step(x: float, used: str) -> None:
        await model(x, used).sum().backward()
        found.append([p.grad and p.grad.item() for p in model.parameters()])

    with model.no_sync():
        await step(1.0 + rank, "ab")
    await step(10.0 * (1 + rank), "a")
    await step(1.0 + rank, "a")
    with model.no_sync():
        if rank:
            await model(1.0, "c").sum().backward()
    await step(1.0, "a")
    model.zero_grad()
    if rank:
        model.module.c.grad = ag.full((1,), 4.0)
    await step(1.0, "b")
    return found


@pytest.mark.asyncio
async def test_what_a_pass_averages_is_what_pytorch_averages() -> None:
    """Measured with PyTorch 2.13, gloo and find_unused_parameters=True."""
    found = [[16.5, 1.5, None], [18.0, 1.5, None], [19.0, 1.5, 0.5]]
    async with world_of(Engine(2)) as world:
        assert await world.run(some_used) == [
            [[1.0, 1.0, None], *found, [None, 1.0, None]],
            [[2.0, 2.0, None], *found, [None, 1.0, 4.0]],
        ]


async def equal_gradients(dtype: str, scale: float) -> Any:
    model = await DDP(ag.nn.Linear(1, 1, bias=False, dtype=getattr(ag, dtype)))
    x = ag.full((1, 1), scale, dtype=getattr(ag, dtype))
    await model(x).sum().backward()
    return model.module.weight.grad.item()


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [2, 3])
async def test_gradients_are_divided_before_they_are_added_up(size: int) -> None:
    """Their sum overflows. PyTorch 2.13 gives the same numbers, with gloo."""
    large = 3e38 if size == 2 else 3.0000002083218518e38
    async with world_of(Engine(size)) as world:
        assert await world.run(equal_gradients, "float16", 40_000.0) == [40_000.0] * size
        # A third in float16, by which they would be multiplied, is too small.
        assert await world.run(equal_gradients, "float16", 100.0) == [100.0] * size
        found = await world.run(equal_gradients, "float32", 3e38)
        assert found == [np.float32(large).item()] * size


async def hooks_registered_later() -> Any:
    model = await DDP(Net())
    model.module.first.register_hook(lambda gradient: gradient * (1 + dist.get_rank()))

    async def doubled(gradient: Any) -> Any:
        await asyncio.sleep(0)
        return gradient * 2

    model.module.second.register_hook(doubled)
    await mean_square(model, batch()).backward()
    return [p.grad for p in (model.module.first, model.module.second)]


@pytest.mark.asyncio
async def test_hooks_on_parameters_come_before_the_reduction_whenever_they_were_registered() -> (
    None
):
    net = Net()
    await mean_square(net, batch()).backward()
    async with world_of(Engine(2)) as world:
        for first, second in await world.run(hooks_registered_later):
            assert first.tolist() == (net.first.grad * 1.5).tolist()
            assert second.tolist() == (net.second.grad * 2).tolist()


async def misuse() -> None:
    with pytest.raises(RuntimeError, match="no parameter"):
        DDP(ag.nn.Tanh())
    with pytest.raises(ValueError, match="no bucket"):
        DDP(Net(), bucket_cap_mb=0)
    with pytest.raises(TypeError, match="expected a Module"):
        DDP(mean_square)
    model = DDP(Net())
    with ag.no_grad(), pytest.raises(RuntimeError, match="await the model once"):
        model(batch())
    await model
    with pytest.raises(RuntimeError, match="not reduced"):
        await mean_square(model, batch()).backward(inputs=[model.module.first])
    (found,) = await ag.grad(mean_square(model, batch()), model.module.first)
    assert found.shape == (3, 4)
    # Its gradient would be this rank's own.
    handle = model.module.first.register_post_accumulate_grad_hook(lambda leaf: None)
    with pytest.raises(RuntimeError, match="post-accumulate hook"):
        await mean_square(model, batch()).backward()
    handle.remove()
    with pytest.raises(RuntimeError, match="at the same time"):
        await asyncio.gather(*[mean_square(model, batch()).backward() for _ in range(2)])
    # Nothing of these passes is left in the way.
    await dist.barrier()


async def one_asks_for_gradients() -> Any:
    model = await DDP(Net())
    if dist.get_rank() == 0:
        loss = mean_square(model, batch())
        loss.retain_grad()
        await ag.grad(loss, model.module.first)
    await mean_square(model, batch()).backward()
    return model.module.first.grad


@pytest.mark.asyncio
async def test_a_pass_of_grad_concerns_one_rank() -> None:
    net = Net()
    await mean_square(net, batch()).backward()
    async with world_of(Engine(2)) as world:
        for found in await world.run(one_asks_for_gradients):
            assert found.tolist() == net.first.grad.tolist()


async def bucketed(cap: int) -> Any:
    layers = [ag.nn.Linear(10, 10), ag.nn.Linear(10, 10), ag.nn.Linear(10, 20)]
    model = await DDP(ag.nn.Sequential(*layers), bucket_cap_mb=cap / 1e6)
    return model._state.buckets


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("cap", "expected"),
    [
        (1000, [[5, 4], [3, 2, 1, 0]]),
        (500, [[5], [4], [3, 2], [1, 0]]),
        (900, [[5, 4], [3, 2, 1, 0]]),
        (879, [[5], [4], [3, 2], [1, 0]]),
        (1, [[5], [4], [3], [2], [1], [0]]),
    ],
)
async def test_parameters_of_a_module_share_a_bucket(cap: int, expected: list[list[int]]) -> None:
    """Of 440, 440 and 880 bytes: no bucket waits for the first gradient of the module before."""
    async with world_of(Engine(1)) as world:
        assert await world.run(bucketed, cap) == [expected]


def refuse(gradient: Any) -> None:
    raise ValueError("planned")


async def fails_again_and_again() -> None:
    model = await DDP(Net(), bucket_cap_mb=1e-6)
    for _ in range(3):
        loss = mean_square(model, batch())
        handle = model.module.first.register_hook(refuse) if dist.get_rank() else None
        with suppress(ValueError, dist.PassEndedError):
            await loss.backward()
        if handle is not None:
            handle.remove()
    await mean_square(model, batch()).backward()
    await dist.barrier()


@pytest.mark.asyncio
async def test_what_was_sent_for_a_failed_pass_is_not_kept() -> None:
    engine = Engine(2)
    kept = []

    def count(rank: int, message: Any) -> None:
        if message.method == "returned":
            groups = engine.site(rank).host.runs.groups.values()
            kept.append(sum(len(group.mail._boxes) for group in groups))

    engine.on_message = count
    async with world_of(engine) as world:
        await world.run(fails_again_and_again)
    assert kept == [0, 0]


async def not_awaited(factor: float) -> Any:
    """A model that differs by a factor on rank 1."""
    module = Net()
    with ag.no_grad():
        module.second.mul_(factor if dist.get_rank() else 1.0)
    model = DDP(module, bucket_cap_mb=1e-6)
    try:
        for _ in range(2):
            await mean_square(model, batch() * dist.get_rank()).backward()
    except RuntimeError as error:
        assert module.first.grad is None
        return str(error)
    with ag.no_grad():
        return model(batch()).tolist(), module.first.grad.tolist()


@pytest.mark.asyncio
async def test_the_first_pass_of_a_model_that_was_not_awaited_compares_parameters() -> None:
    """PyTorch's users write no `await` there, and mostly make the same model on all ranks."""
    async with world_of(Engine(3)) as world:
        first, *others = await world.run(not_awaited, 1.0)
        assert others == [first] * 2
        for found in await world.run(not_awaited, 2.0):
            assert found.startswith("DistributedDataParallel: the ranks' parameters differ: await")


async def unlike_models() -> None:
    await DDP(ag.nn.Linear(2, 2 + dist.get_rank()))


async def models_in_another_order() -> None:
    model = ag.nn.Module()
    for name in ("ab", "ba")[dist.get_rank()]:
        setattr(model, name, ag.nn.Parameter(ag.ones(2)))
    await DDP(model)


async def models_with_other_leaves() -> None:
    model = ag.nn.Linear(2, 2)
    model.bias.requires_grad_(dist.get_rank() == 0)
    await DDP(model)


@pytest.mark.asyncio
async def test_misuse_is_an_error_before_the_ranks_wait_for_one_another() -> None:
    async with world_of(Engine(1)) as world:
        await world.run(misuse)
    async with world_of(Engine(2)) as world:
        for function in (unlike_models, models_in_another_order, models_with_other_leaves):
            with pytest.raises(RuntimeError, match="make the same module on all ranks"):
                await world.run(function)
        with pytest.raises(RuntimeError, match="create_graph=True can't be recorded"):
            await world.run(recorded_pass)


async def one_gives_up(how: str) -> Any:
    rank = dist.get_rank()
    model = await DDP(Net(), bucket_cap_mb=1e-6)
    loss = mean_square(model, batch())
    handle: Any = None
    joined = asyncio.Event()

    async def hook(gradient: Any) -> None:
        joined.set()
        if how == "error":
            raise ValueError("planned")
        await asyncio.Event().wait()

    deadline = None
    if rank == 1:
        # The last that gets its gradient.
        handle = model.module.first.register_hook(hook)
        if how == "deadline":
            deadline = asyncio.get_running_loop().time() + 0.05
    future = loss.backward(deadline=deadline)
    if rank == 1 and how == "cancel":
        await joined.wait()
        future.cancel()
    await asyncio.wait([future])
    kind = "cancelled" if future.cancelled() else type(future.exception()).__name__
    untouched = all(p.grad is None for p in model.parameters())
    # The next pass is served.
    model.zero_grad()
    if handle is not None:
        handle.remove()
    await mean_square(model, batch()).backward()
    return kind, untouched, model.module.first.grad is not None


@pytest.mark.asyncio
@pytest.mark.parametrize("how", ["error", "cancel", "deadline"])
async def test_a_rank_that_gives_up_a_pass_ends_it_on_all(how: str) -> None:
    async with world_of(Engine(3)) as world:
        results = await world.run(one_gives_up, how)
    own = {"error": "ValueError", "cancel": "cancelled", "deadline": "TimeoutError"}[how]
    assert [kind for kind, *_ in results] == ["PassEndedError", own, "PassEndedError"]
    assert all(untouched and again for _, untouched, again in results)


class Refuses:
    """Takes part in a pass, and lets it fail when a message about it has arrived."""

    def __init__(self, arrived: str) -> None:
        self.arrived = arrived

    async def prepare(self, gradients: Any) -> None:
        await _seen[self.arrived].wait()
        for _ in range(100):
            await asyncio.sleep(0)
        raise ValueError("planned")

    async def commit(self) -> None: ...

    async def abort(self) -> None: ...


#: Set when a message of that name is sent.
_seen: dict[str, asyncio.Event] = {}


async def refuses_late(rank: int, arrived: str) -> Any:
    model = await DDP(Net())
    y = model(batch())
    if dist.get_rank() == rank:
        y.register_hook(lambda gradient: ag.autograd.graph.join(Refuses(arrived)))
    with suppress(ValueError, dist.PassEndedError):
        await y.sum().backward()
    committed = model.module.first.grad is not None
    try:
        model(batch())
    except dist.PassEndedError:
        return committed, "refuses to go on"
    return committed, "goes on"


@pytest.mark.asyncio
async def test_a_rank_that_refuses_late_ends_the_pass_on_all() -> None:
    """It votes only when nothing on its side can end the pass any more."""
    engine = Engine(2)

    def notice(rank: int, message: Any) -> None:
        if message.method == "mail" and message.args[1][-1] in _seen:
            _seen[message.args[1][-1]].set()

    engine.on_message = notice
    async with world_of(engine, grace=60.0) as world:
        for rank, arrived in ((0, "vote"), (1, "used")):
            _seen[arrived] = asyncio.Event()
            assert await world.run(refuses_late, rank, arrived) == [(False, "goes on")] * 2


async def one_pass() -> None:
    await mean_square(await DDP(Net()), batch()).backward()


@pytest.mark.asyncio
async def test_a_death_during_a_pass_leaves_no_error_that_nobody_asks_for() -> None:
    """The loop would complain of it."""
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, facts: complaints.append(facts["message"])
    )
    engine = Engine(3)

    def kill(rank: int, message: Any) -> None:
        if message.method == "succeeds":
            engine.kill(0)

    engine.on_message = kill
    async with world_of(engine) as world:
        with pytest.raises(dist.WorkerLostError):
            await world.run(one_pass)
    gc.collect()
    assert "Task exception was never retrieved" not in complaints


async def cannot_commit() -> Any:
    model = await DDP(Net())
    own = tensor(1.0, 2.0).requires_grad_()
    if dist.get_rank() == 1:
        array = np.zeros(2)
        array.setflags(write=False)
        own.grad = ag.from_numpy(array)
    with pytest.raises(RuntimeError, match=r"read-only|given this pass up"):
        await (mean_square(model, batch()) + own.sum()).backward()
    model(batch())
    return model.module.first.grad is None


@pytest.mark.asyncio
async def test_a_rank_that_could_not_commit_does_not_vote() -> None:
    async with world_of(Engine(2)) as world:
        assert await world.run(cannot_commit) == [True, True]


async def cancelled_after_its_vote() -> Any:
    model = await DDP(Net())
    running = mean_square(model, batch()).backward()
    if dist.get_rank() == 1:
        await _seen["vote"].wait()
        assert not running.cancel()
        _seen["too late"].set()
    await running
    return model.module.first.grad is not None


@pytest.mark.asyncio
async def test_a_rank_that_has_voted_can_not_be_cancelled() -> None:
    """While rank 0's decision is on its way, cancellation comes too late."""
    engine = Engine(2)
    _seen.update({"vote": asyncio.Event(), "too late": asyncio.Event()})

    async def hold(rank: int, message: Any) -> None:
        if message.method == "mail" and message.args[1][-1] == "vote":
            _seen["vote"].set()
        elif message.method == "succeeds":
            await _seen["too late"].wait()

    engine.on_message = hold
    async with world_of(engine) as world:
        assert await world.run(cancelled_after_its_vote) == [True, True]


async def not_answered_in_time() -> None:
    model = await DDP(Net())
    loss = mean_square(model, batch())
    if dist.get_rank() == 0:
        await loss.backward()
    now = asyncio.get_running_loop().time()

    def impatient(gradient: Any) -> None:
        voting = model._state.running
        assert voting._deadline == now + 1_000
        voting._deadline = now

    # Its gradient comes after that of `second`, with which the model has begun to take part.
    model.module.first.register_hook(impatient)
    with pytest.raises(dist.PassEndedError, match="could not learn in time"):
        await loss.backward(deadline=now + 1_000)
    assert model.module.first.grad is None
    model(batch())


@pytest.mark.asyncio
async def test_a_rank_that_gets_no_decision_in_time_does_not_go_on() -> None:
    """It waits for the grace after the deadline."""
    engine = Engine(2)

    def stop(rank: int, message: Any) -> None:
        if message.method == "mail" and message.args[1][-1] == "vote":
            engine.stop(0)

    engine.on_message = stop
    async with world_of(engine, grace=0.1) as world:
        with pytest.raises(dist.PassEndedError, match="parameters may differ"):
            await world.run(not_answered_in_time)
        if engine.stopped:
            engine.wake(0)


@pytest.mark.asyncio
async def test_a_rank_whose_run_has_ended_before_the_decision_is_not_lost() -> None:
    engine = Engine(2)
    decided = asyncio.Event()

    async def end_first(rank: int, message: Any) -> None:
        if message.method == "succeeds":
            decided.set()
            while message.args[0] not in engine.hosts[1]._lives.ended:  # noqa: ASYNC110
                await asyncio.sleep(0)

    engine.on_message = end_first
    async with world_of(engine, grace=0.1) as world:
        running = asyncio.create_task(world.run(one_pass))
        await decided.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert [one for one in await world.statistics() if one is None] == []
        while any(one.get_name() != "watch" for one in engine.tasks):  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert not any(engine.site(rank).lost for rank in range(2))


@pytest.mark.asyncio
async def test_the_decision_of_a_pass_does_not_wait_for_other_messages() -> None:
    """A rank that does not confirm it in time is lost, and rank 0 may have much to send."""
    engine = Engine(2)
    decided = asyncio.Event()

    async def hold(gate: asyncio.Lock) -> None:
        async with gate:
            await asyncio.wait_for(decided.wait(), 10)

    def crowd(rank: int, message: Any) -> None:
        if message.method == "mail" and message.args[1][-1] == "vote":
            holding.append(asyncio.create_task(hold(engine.site(0)._gate)))
        elif message.method == "succeeds":
            decided.set()

    holding: list[Any] = []
    engine.on_message = crowd
    async with world_of(engine) as world:
        await world.run(one_pass)
        await asyncio.gather(*holding)
    assert holding


_of_rank: dict[int, Any] = {}


async def notes_its_model() -> None:
    model = _of_rank[dist.get_rank()] = await DDP(Net())
    await mean_square(model, batch()).backward()


def has_committed(rank: int) -> bool:
    return _of_rank[rank].module.first.grad is not None


@pytest.mark.asyncio
@pytest.mark.parametrize("told", [None, 1, 2])
async def test_ranks_that_rank_0_leaves_without_a_decision_ask_one_another(
    told: int | None,
) -> None:
    """If it dies when it has told only some, these have committed, so all do."""
    engine = Engine(4)

    async def kill(rank: int, message: Any) -> None:
        if message.method == "succeeds" and rank != told:
            while told is not None and not engine.hosts[told]._runs.succeeded:  # noqa: ASYNC110
                await asyncio.sleep(0)
            engine.kill(0)

    engine.on_message = kill
    async with world_of(engine) as world:
        with pytest.raises(dist.WorkerLostError, match="worker 0 was lost"):
            await world.run(notes_its_model)
        have = [has_committed(rank) for rank in (1, 2, 3)]
        assert have == [told is not None] * 3
    _of_rank.clear()


class Unanswered(Engine):
    """Rank 0 dies before rank 1 reads that its vote has come, and when its decision has come."""

    async def call(self, rank: int, message: Any) -> Any:
        answer = await super().call(rank, message)
        if message.method == "mail" and message.args[1][-1] == "vote" and message.sender == 1:
            while not self.hosts[1]._runs.succeeded:  # noqa: ASYNC110
                await asyncio.sleep(0)
            self.kill(0)
            self._check(rank)
        return answer


@pytest.mark.asyncio
async def test_a_rank_that_was_told_commits_though_its_vote_was_not_answered() -> None:
    engine = Unanswered(3)

    async def only_to_1(rank: int, message: Any) -> None:
        if message.method == "succeeds" and rank != 1:
            await asyncio.Event().wait()

    engine.on_message = only_to_1
    async with world_of(engine) as world:
        with pytest.raises(dist.WorkerLostError, match="worker 0 was lost"):
            await world.run(notes_its_model)
        have = [has_committed(rank) for rank in (1, 2)]
        assert have == [True] * 2
    _of_rank.clear()


class ToldByTheDead(Engine):
    """Rank 0 tells rank 3 alone and dies. Rank 3 tells rank 1 alone and dies.

    It dies when rank 1 has committed, too, or, unless `in_time`, while rank 1 still waits for an
    answer of rank 2.
    """

    def __init__(self, *, in_time: bool) -> None:
        super().__init__(4)
        self.in_time = in_time

    async def call(self, rank: int, message: Any) -> Any:
        asked = (message.sender, rank) if message.method == "has_succeeded" else None
        if message.method == "succeeds" and rank != 3:
            while not self.hosts[3]._runs.succeeded:  # noqa: ASYNC110
                await asyncio.sleep(0)
            self.kill(0)
        if asked == (2, 3):
            while self.in_time and not has_committed(1):  # noqa: ASYNC110
                await asyncio.sleep(0)
            while not self.in_time and 3 not in self.dead:  # noqa: ASYNC110
                await asyncio.sleep(0)
            self.kill(3)
        answer = await super().call(rank, message)
        if asked == (1, 3):
            assert answer == (True, True)
            if not self.in_time:
                self.kill(3)
        while asked == (1, 2) and not (self.in_time or self.site(1).has_lost(3)):  # noqa: ASYNC110
            await asyncio.sleep(0)
        return answer


@pytest.mark.asyncio
@pytest.mark.parametrize("in_time", [True, False])
async def test_ranks_agree_though_one_that_has_committed_dies_while_they_ask(
    in_time: bool,
) -> None:
    engine = ToldByTheDead(in_time=in_time)
    async with world_of(engine) as world:
        with pytest.raises(dist.WorkerLostError, match="worker 0 was lost"):
            await world.run(notes_its_model)
        have = [has_committed(rank) for rank in (1, 2)]
        assert have == [in_time] * 2
    _of_rank.clear()


@pytest.mark.asyncio
async def test_a_rank_that_rank_0_has_lost_does_not_have_others_lose_rank_0() -> None:
    """It is the one that everybody loses."""
    engine = Engine(3)

    def cut_off(rank: int, message: Any) -> None:
        if message.method == "mail" and message.args[1][-1] == "vote" and message.sender == 1:
            engine.site(0).fence(1, "planned")

    engine.on_message = cut_off
    async with world_of(engine) as world:
        with pytest.raises(dist.WorkerLostError, match="worker 1 was lost"):
            await world.run(one_pass)
        assert list(world.lost) == [1]


_broken: dict[int, str | None] = {}


async def notes_what_is_broken() -> None:
    model = await DDP(Net())
    try:
        await mean_square(model, batch()).backward()
    finally:
        _broken[dist.get_rank()] = model._state.broken


@pytest.mark.asyncio
async def test_a_rank_that_gets_no_answer_from_another_does_not_go_on() -> None:
    """The one that hangs may have committed."""
    engine = Engine(3)

    def hang(rank: int, message: Any) -> None:
        if message.method == "succeeds":
            engine.kill(0)
        elif message.method == "has_succeeded" and rank == 2 and not engine.stopped:
            engine.stop(2)

    engine.on_message = hang
    async with world_of(engine, grace=0.1) as world:
        with pytest.raises(dist.WorkerLostError, match="worker 0 was lost"):
            await world.run(notes_what_is_broken)
        while 1 not in _broken:  # noqa: ASYNC110  the run does not wait for it
            await asyncio.sleep(0)
        assert "parameters may differ" in str(_broken[1])
        engine.wake(2)
    _broken.clear()


_models: list[Any] = []


async def keeps_its_model() -> None:
    model = await DDP(Net())
    _models.append(model.module)
    await mean_square(model, batch()).backward()


@pytest.mark.asyncio
@pytest.mark.parametrize("unconfirmed", [False, True])
async def test_what_rank_0_has_decided_is_done_also_if_the_run_ends_meanwhile(
    unconfirmed: bool,
) -> None:
    engine = Engine(3)
    decided, stopped = asyncio.Event(), asyncio.Event()
    call = engine.call

    async def confirm_late(rank: int, message: Any) -> Any:
        answer = await call(rank, message)
        if message.method == "mail" and message.args[1][-1] == "vote":
            await stopped.wait()
        return answer

    if unconfirmed:
        engine.call = confirm_late  # type: ignore[method-assign]

    async def hold(rank: int, message: Any) -> None:
        if message.method == "succeeds":
            decided.set()
            await stopped.wait()

    engine.on_message = hold
    _models.clear()
    async with world_of(engine) as world:
        running = asyncio.create_task(world.run(keeps_its_model))
        await decided.wait()
        running.cancel()
        while sum(method == "stop" for _, method, _ in engine.log) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0)
        stopped.set()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert [model.first.grad is not None for model in _models] == [True] * 3
    _models.clear()


_held: dict[str, Any] = {}


async def goes_on_after_its_end() -> None:
    model = await DDP(Net())
    _held["begun"].set_result(None)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        with pytest.raises(dist.PassEndedError) as caught:
            model(batch())
        _held["error"] = caught.value
        raise


@pytest.mark.asyncio
async def test_a_model_is_refused_when_its_run_has_ended() -> None:
    """Its gradients would not be averaged any more."""
    _held.clear()
    async with world_of(Engine(1)) as world:
        _held["begun"] = asyncio.get_running_loop().create_future()
        running = asyncio.create_task(world.run(goes_on_after_its_end))
        await _held["begun"]
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert "the run has ended" in str(_held["error"])


async def does_not_confirm() -> bool:
    model = await DDP(Net())
    await mean_square(model, batch()).backward()
    return model.module.first.grad is not None


@pytest.mark.asyncio
async def test_a_rank_that_does_not_confirm_the_decision_is_lost() -> None:
    """Rank 0 sends it nothing more, so it fails when it has no more to do."""
    engine = Engine(2)

    def stop(rank: int, message: Any) -> None:
        if message.method == "succeeds":
            engine.stop(1)

    engine.on_message = stop
    async with world_of(engine, grace=0.1) as world:
        with pytest.raises(dist.WorkerLostError, match="has not confirmed a commit"):
            await world.run(does_not_confirm)
        assert list(world.lost) == [1]
        engine.wake(1)


@pytest.mark.asyncio
async def test_a_run_whose_rank_0_hangs_ends_on_those_that_have_voted() -> None:
    engine = Engine(2)
    voted = asyncio.Event()

    async def stop(rank: int, message: Any) -> None:
        if message.method == "succeeds":
            engine.stop(0)
            voted.set()
            await asyncio.Event().wait()

    engine.on_message = stop
    async with world_of(engine, grace=0.1) as world:
        running = asyncio.create_task(world.run(one_pass))
        await voted.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        while (await engine.hosts[1].on_statistics())["working"]:  # noqa: ASYNC110
            await asyncio.sleep(0)
        engine.wake(0)


async def meets_faults(seed: int) -> list[list[bool]]:
    """Whether each rank has committed each of some passes, one of which gives up at any turn."""
    rng = random.Random(seed)
    model = await DDP(Net(), bucket_cap_mb=1e-6)
    found = []
    for _ in range(4):
        rank, how = rng.randrange(3), rng.choice(["cancel", "error", "early error", "nothing"])
        turns = rng.randint(0, 80)
        faulty = rank == dist.get_rank()
        handles = []
        if faulty and how == "error":
            handles.append(model.module.first.register_hook(refuse))
        loss = mean_square(model, batch())
        if faulty and how == "early error":
            loss.register_hook(refuse)
        running = loss.backward()
        if faulty and how == "cancel":
            for _ in range(turns):
                await asyncio.sleep(0)
            running.cancel()
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()
        for handle in handles:
            handle.remove()
        assert running.committed() == (model.module.first.grad is not None)
        found.append(await dist.all_gather(running.committed()))
        model.zero_grad()
    return found


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_a_rank_that_gives_up_at_any_turn_commits_as_all_do(seed: int) -> None:
    rng = random.Random(seed)

    async def main() -> list[list[list[bool]]]:
        async with world_of(Engine(3, lambda most: rng.randint(0, most))) as world:
            return await world.run(meets_faults, seed)

    for rank in asyncio.run(main()):
        assert all(len(set(committed)) == 1 for committed in rank)


#: Set when a rank has told the others that it gives a pass up; threads wait for it.
_given_up = threading.Event()


class RefusesAtOnce(Refuses):
    """Takes part in a pass, and lets it fail."""

    def __init__(self) -> None: ...

    async def prepare(self, gradients: Any) -> None:
        raise ValueError("planned")


async def blocks_a_thread() -> Any:
    model = await DDP(Net(), bucket_cap_mb=1e-4)
    await asyncio.to_thread(lambda: mean_square(model, batch()).backward())
    y = mean_square(model, batch())
    if dist.get_rank() == 1:
        y.register_hook(lambda gradient: ag.autograd.graph.join(RefusesAtOnce()))
        expected: type[Exception] = ValueError
    else:
        # Rank 1 can't have voted before: it needs what rank 0 sends at the end of its pass.
        y.register_hook(lambda gradient: None if _given_up.wait(60) else gradient)
        expected = dist.PassEndedError
    with pytest.raises(expected):
        await asyncio.to_thread(y.backward)
    return model.module.first.grad.tolist()


@pytest.mark.asyncio
async def test_a_pass_that_blocks_a_thread_of_a_rank_is_reduced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = set()
    begin = Standstill.begin

    def noted(self: Standstill, key: Any) -> None:
        threads.add(threading.current_thread())
        begin(self, key)

    # What is compared with messages, which come on the loop, changes there.
    monkeypatch.setattr(Standstill, "begin", noted)
    engine = Engine(2)
    _given_up.clear()

    def notice(rank: int, message: Any) -> None:
        if message.method == "gave_up":
            _given_up.set()

    engine.on_message = notice
    async with world_of(engine) as world:
        results = await world.run(blocks_a_thread)
    net = Net()
    await mean_square(net, batch()).backward()
    assert results == [net.first.grad.tolist()] * 2
    assert threads == {threading.current_thread()}


# -- the caller's view --------------------------------------------------------


def make_net() -> Net:
    return Net()


def gradients(model: Any) -> Any:
    return [None if p.grad is None else p.grad.tolist() for p in model.parameters()]


def broken_loss(model: Any, x: Any) -> Any:
    if dist.get_rank() == 1:
        raise ValueError("planned")
    return mean_square(model, x)


@pytest.mark.asyncio
async def test_a_replicated_model_has_the_gradients_of_the_whole_batch() -> None:
    """With shards of unequal lengths, one of them empty."""
    engine = Engine(3)
    async with world_of(engine) as world:
        model = await world.replicate(make_net, bucket_cap_mb=1e-4)
        optimizer = await world.optimizer(ag.optim.SGD, model.parts, lr=0.1)
        net = Net()
        local = ag.optim.SGD(net.parameters(), lr=0.1)
        x = batch(7)
        for shards in ([(x[:5],), (x[5:],), None], [(x[:1],), (x[1:1],), (x[1:],)]):
            loss = await model.forward_backward(mean_square, shards)
            expected = mean_square(net, x)
            await expected.backward()
            np.testing.assert_allclose(loss.item(), expected.item(), rtol=1e-13)
            found = [await part.apply(gradients) for part in model.parts]
            assert found[0] == found[1] == found[2]
            for mine, theirs in zip(net.parameters(), found[0], strict=True):
                if mine.grad is not None:
                    np.testing.assert_allclose(mine.grad.numpy(), theirs, rtol=1e-12)
            await optimizer.step_async()
            local.step()
            await optimizer.zero_grad()
            local.zero_grad()
        with pytest.raises(ValueError, match="planned"):
            await model.forward_backward(broken_loss, [(x,)] * 3)
        assert [await p.apply(gradients) for p in model.parts] == [[None] * 4] * 3
        await model.forward_backward(mean_square, [(x,)] * 3)
        # Rank 1, which has not begun the pass that failed, keeps nothing that was sent for it.
        for rank in range(3):
            groups = engine.site(rank).host.runs.groups.values()
            assert not any(group.mail._boxes for group in groups)
        for shards, kind, words in (
            ([(x,)], ValueError, "1 shards for 3 workers"),
            ([x, None, None], TypeError, "a shard is a Tensor: give a tuple"),
            ([None] * 3, ValueError, "no examples"),
            ([(3,)] * 3, ValueError, "no tensor"),
            ([(x.clone().requires_grad_(),)] * 3, RuntimeError, "requires grad"),
        ):
            with pytest.raises(kind, match=words):
                await model.forward_backward(mean_square, shards)


@pytest.mark.asyncio
async def test_steps_of_a_replicated_model_in_a_context_are_committed_together() -> None:
    async with world_of(Engine(2)) as world:
        model, part = await world.replicate(make_net), await world.remote(1, make_net)
        net, other, x = Net(), Net(), batch()

        async def steps(fails: bool) -> None:
            async with dist.autograd.context():
                for _ in range(2):
                    await model.forward_backward(mean_square, [(x,), (x,)])
                    await mean_square_of(await part(x)).backward()
                assert [await p.apply(gradients) for p in (*model.parts, part)] == [[None] * 4] * 3
                if fails:
                    raise ValueError("planned")

        with pytest.raises(ValueError, match="planned"):
            await steps(fails=True)
        await steps(fails=False)
        for _ in range(2):
            await mean_square(net, x).backward()
            await mean_square(other, x).backward()
        assert [await p.apply(gradients) for p in model.parts] == [gradients(net)] * 2
        assert await part.apply(gradients) == gradients(other)


def mean_square_of(y: Any) -> Any:
    return (y**2).mean()


async def sharded(kind: str) -> Any:
    model = await DDP(Net())
    if kind == "sharded":
        optimizer: Any = dist.optim.ZeroRedundancyOptimizer(
            model.parameters(), ag.optim.Adam, lr=0.1
        )
    else:
        optimizer = ag.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        await mean_square(model, batch()).backward()
        await optimizer.step_async()
    held = 0
    if kind == "sharded":
        optimizer.load_state_dict(optimizer.state_dict())
        optimizer.zero_grad(set_to_none=False)
        held = sum(p.numel() for g in optimizer.optim.param_groups for p in g["params"])
    return [p.detach().tolist() for p in model.parameters()], held


@pytest.mark.asyncio
async def test_a_divided_optimizer_gives_the_parameters_of_a_whole_one() -> None:
    async with world_of(Engine(2)) as world:
        divided = await world.run(sharded, "sharded")
        whole = await world.run(sharded, "whole")
    assert divided[0][0] == divided[1][0] == whole[0][0]
    assert [held for _, held in divided] == [14, 13]


async def made_anew() -> list[Any]:
    module = Affine()
    module.shift.requires_grad_(False)
    old = model = await DDP(module)
    await model(batch()).sum().backward()
    module.shift.requires_grad_()
    with pytest.raises(RuntimeError, match="make the model anew"):
        model(batch())
    module.zero_grad()
    model = await DDP(module)
    with pytest.raises(RuntimeError, match="made anew from its module"):
        old(batch())
    for holder in (model, ag.nn.Sequential(model)):
        with pytest.raises(ValueError, match="averaged twice"):
            DDP(holder)
    await model(batch() * dist.get_rank()).sum().backward()
    return gradients(module)


@pytest.mark.asyncio
async def test_a_model_made_anew_takes_the_place_of_the_old_one() -> None:
    async with world_of(Engine(2)) as world:
        found = await world.run(made_anew)
    here = Affine()
    for rank in range(2):
        await (here(batch() * rank).sum() / 2).backward()
    assert found == [gradients(here)] * 2


async def with_pytorchs_options(options: dict[str, Any]) -> list[str]:
    model = await DDP(Affine(), **options)
    await model(batch()[:, :3]).sum().backward()
    return list(model.state_dict())


async def with_synchronised_statistics() -> None:
    await DDP(ag.nn.SyncBatchNorm.convert_sync_batchnorm(ag.nn.BatchNorm1d(3)))


@pytest.mark.asyncio
async def test_statistics_of_all_ranks_are_refused_where_there_are_several() -> None:
    async with world_of(Engine(1)) as world:
        await world.run(with_synchronised_statistics)
    async with world_of(Engine(2)) as world:
        with pytest.raises(ValueError, match=r"a SyncBatchNorm, .*: use BatchNorm"):
            await world.run(with_synchronised_statistics)


@pytest.mark.asyncio
async def test_options_and_functions_of_pytorchs_are_taken_or_refused_with_a_remedy() -> None:
    options = {"find_unused_parameters": True, "gradient_as_bucket_view": True}
    options |= {"static_graph": True, "broadcast_buffers": False, "bucket_cap_mb": None}
    async with world_of(Engine(2)) as world:
        found = await world.run(with_pytorchs_options, options)
        assert found == [["module.scale", "module.shift"]] * 2
        with pytest.raises(ValueError, match=r"await broadcast\(buffer\)"):
            await world.run(with_pytorchs_options, {"broadcast_buffers": True})
    for module, name, remedy in [
        (dist, "gather", "use all_gather"),
        (dist.autograd, "backward", r"`await loss\.backward"),
        (dist.nn.parallel, "DataParallel", r"`await world\.replicate"),
        (dist.optim, "DistributedOptimizer", r"`await world\.optimizer"),
        (dist.pipelining, "ScheduleGPipe", "use Pipeline"),
    ]:
        with pytest.raises(AttributeError, match=f"no '{name}', as PyTorch has: {remedy}"):
            getattr(module, name)
        with pytest.raises(AttributeError, match=r"no 'nothing'$"):
            _ = module.nothing


async def steps_without_await() -> None:
    optimizer = dist.optim.ZeroRedundancyOptimizer(
        params=Affine().parameters(), optimizer_class=ag.optim.SGD, lr=0.1
    )
    with pytest.raises(AttributeError, match=r"no 'step': `await optimizer\.step_async"):
        optimizer.step()


@pytest.mark.asyncio
async def test_a_step_that_nobody_can_await_names_the_one_that_is_awaited() -> None:
    async with world_of(Engine(2)) as world:
        await world.run(steps_without_await)


async def resumed(kind: str, saved: Any = None) -> Any:
    """Two steps with two groups of named parameters, perhaps from a checkpoint; what follows."""
    model = await DDP(Net())
    named = [*model.named_parameters()]
    groups: Any = [{"params": named[:1], "lr": 0.5}, {"params": named[1:]}]
    if kind == "sharded":
        optimizer: Any = dist.optim.ZeroRedundancyOptimizer(groups, ag.optim.Adam, lr=0.1)
    else:
        optimizer = ag.optim.Adam(groups, lr=0.1)
    if saved is not None:
        model.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
        with pytest.raises(ValueError, match=r"groups of \[1\] parameters|1 instead of 2"):
            optimizer.load_state_dict({"state": {}, "param_groups": [{"params": [0]}]})
    x = ag.arange(6, dtype=ag.float64).reshape(2, 3)
    for _ in range(2):
        optimizer.zero_grad()
        await model(x).square().mean().backward()
        await optimizer.step_async()
    if kind == "whole":
        return model.state_dict(), optimizer.state_dict()
    last = dist.get_world_size() - 1
    with pytest.raises(ValueError, match="there is no rank -1"):
        await optimizer.consolidate_state_dict(-1)
    return model.state_dict(), await optimizer.consolidate_state_dict(to=last)


@pytest.mark.parametrize(("first", "then"), [("sharded", "whole"), ("whole", "sharded")])
@pytest.mark.asyncio
async def test_the_state_of_a_divided_optimizer_goes_on_with_any_number_of_ranks(
    first: str, then: str
) -> None:
    saved: Any = None
    whole: Any = None
    for size, kind in ((3, first), (2, then), (1, "sharded")):
        async with world_of(Engine(size)) as world:
            found = await world.run(resumed, kind, saved)
            own = await world.run(resumed, "whole", whole)
        if kind == "sharded":
            assert all(state is None for _, state in found[:-1])
        saved, whole = found[-1], own[-1]
        assert pformat(saved) == pformat(whole)


async def state_of_another() -> None:
    model = await DDP(Net())
    optimizer = dist.optim.ZeroRedundancyOptimizer(model.parameters(), ag.optim.Adam, lr=0.1)
    await mean_square(model, batch()).backward()
    await optimizer.step_async()
    states = await dist.all_gather(optimizer.state_dict())
    optimizer.load_state_dict(states[dist.get_rank()])
    for wrong in (states[1 - dist.get_rank()], None, {}):
        with pytest.raises(ValueError, match="which this rank updates"):
            optimizer.load_state_dict(wrong)
    with pytest.raises(TypeError, match="load_state_dict: expected the dictionary"):
        optimizer.load_state_dict(3)
    with pytest.raises(TypeError, match=r"expected parameters, not int"):
        dist.optim.ZeroRedundancyOptimizer([3], ag.optim.Adam, lr=0.1)
    # Its two owners would each take the other's value.
    twice = [*model.parameters(), *model.parameters()]
    for given_ in (twice, [{"params": twice[:1]}, {"params": twice[:2]}]):
        with pytest.raises(ValueError, match="given twice"):
            dist.optim.ZeroRedundancyOptimizer(given_, ag.optim.Adam, lr=0.1)


async def in_groups(kind: str, state: Any = None) -> Any:
    """Steps with two groups of options and a schedule; the state that follows, and the rest."""
    model = await DDP(Affine())
    scale, shift = model.named_parameters()
    groups: Any = [{"params": [shift], "lr": 0.5, "betas": (0.5, 0.9)}, {"params": [scale]}]
    if kind == "sharded":
        optimizer: Any = dist.optim.ZeroRedundancyOptimizer(groups, ag.optim.Adam, lr=0.1)
        own = optimizer.optim
    else:
        optimizer = own = ag.optim.Adam(groups, lr=0.1)
    schedule = ag.optim.lr_scheduler.StepLR(own, step_size=1, gamma=0.5)
    if state is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"][dist.get_rank()])
        schedule.load_state_dict(state["schedule"])
    for _ in range(2):
        optimizer.zero_grad()
        await model(ag.ones(2, 3, dtype=ag.float64)).square().sum().backward()
        await optimizer.step_async()
        schedule.step()
    return {
        "model": model.state_dict(),
        "optimizer": await dist.all_gather(optimizer.state_dict()),
        "schedule": schedule.state_dict(),
        "lr": [group["lr"] for group in own.param_groups],
    }


@pytest.mark.asyncio
async def test_a_divided_optimizer_has_groups_and_a_schedule_also_where_it_has_no_share() -> None:
    """Three ranks divide two parameters, and go on from a checkpoint."""
    async with world_of(Engine(3)) as world:
        first = await world.run(in_groups, "sharded")
        divided = await world.run(in_groups, "sharded", first[0])
        start = (await world.run(in_groups, "whole"))[0]
        whole = (await world.run(in_groups, "whole", start))[0]
    for found in divided:
        assert found["lr"] == whole["lr"] == [0.5 / 16, 0.1 / 16]
        for name, value in whole["model"].items():
            assert found["model"][name].tolist() == value.tolist()


@pytest.mark.asyncio
async def test_a_divided_optimizer_takes_no_state_of_another_share() -> None:
    async with world_of(Engine(2)) as world:
        await world.run(state_of_another)


async def in_another_order(named: bool) -> Any:
    """Two parameters are alike but for their places."""
    model = await DDP(Affine())
    given_: Any = list(model.named_parameters() if named else model.parameters())
    if dist.get_rank() == 1:
        given_.reverse()
    optimizer = dist.optim.ZeroRedundancyOptimizer(given_, ag.optim.SGD, lr=0.1)
    await model(ag.ones(2, 3, dtype=ag.float64)).sum().backward()
    before = [p.detach().tolist() for p in model.parameters()]
    with pytest.raises(RuntimeError, match=r"ZeroRedundancyOptimizer: parameter 0 is") as caught:
        await optimizer.step_async()
    assert [p.detach().tolist() for p in model.parameters()] == before
    return str(caught.value)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("named", "words"), [(True, "module.scale"), (False, "(parameter 0 of model 0 (Affine))")]
)
async def test_a_divided_optimizer_refuses_parameters_in_another_order(
    named: bool, words: str
) -> None:
    """Shares of equal shapes would be taken for one another."""
    async with world_of(Engine(2)) as world:
        found = await world.run(in_another_order, named)
    assert all(words in text for text in found)


async def named_shares() -> Any:
    model = await DDP(Affine())
    optimizer = dist.optim.ZeroRedundancyOptimizer(model.named_parameters(), ag.optim.Adam, lr=0.1)
    await model(ag.ones(2, 3, dtype=ag.float64)).sum().backward()
    await optimizer.step_async()
    return optimizer.optim.param_groups[0]["param_names"]


@pytest.mark.asyncio
async def test_a_divided_optimizer_knows_the_names_of_its_share() -> None:
    async with world_of(Engine(2)) as world:
        assert await world.run(named_shares) == [["module.scale"], ["module.shift"]]


@pytest.mark.asyncio
async def test_a_world_of_one_worker_trains_as_any_other() -> None:
    async with world_of(Engine(1)) as world:
        (alone,) = await world.run(steps_of_one)
        model = await world.replicate(Affine)
        x = ag.full((2, 3), 0.5, dtype=ag.float64)
        for _ in range(2):
            await model.forward_backward(mean_square, [(x,)])
        assert await model.parts[0].apply(gradients) == alone


async def steps_of_one() -> Any:
    model = await DDP(Affine())
    for _ in range(2):
        await mean_square(model, ag.full((2, 3), 0.5, dtype=ag.float64)).backward()
    await model.skip()
    await dist.barrier()
    return gradients(model)


async def can_not_be_copied() -> Any:
    model = await DDP(Affine())
    optimizer = dist.optim.ZeroRedundancyOptimizer(model.parameters(), ag.optim.SGD, lr=0.1)
    for whole in (model, optimizer):
        for copied in (copy.deepcopy, pickle.dumps):
            with pytest.raises(RuntimeError, match=r"belongs to a run.*take model\.module"):
                copied(whole)
    await model(ag.ones(2, 3, dtype=ag.float64)).sum().backward()
    return copy.deepcopy(model.module)


@pytest.mark.asyncio
async def test_a_model_is_copied_and_sent_without_what_belongs_to_its_run() -> None:
    async with world_of(Engine(2)) as world:
        for module in await world.run(can_not_be_copied):
            module(ag.ones(2, 3, dtype=ag.float64)).sum().item()


async def with_another_parameter(how: str) -> None:
    module = Affine()
    module.scale.requires_grad_(how == "replaced")
    model = await DDP(module)
    x = ag.ones(2, 3, dtype=ag.float64)
    if how == "replaced":
        module.scale = ag.nn.Parameter(module.scale.detach())
    else:
        await model(x).sum().backward()
        module.scale.requires_grad_()
    with ag.no_grad():
        model(x)
    model(x)


@pytest.mark.asyncio
@pytest.mark.parametrize("how", ["replaced", "unfrozen"])
async def test_a_parameter_whose_gradient_would_not_be_averaged_is_refused(how: str) -> None:
    """The ranks' copies would differ from then on."""
    async with world_of(Engine(2)) as world:
        with pytest.raises(RuntimeError, match=r"shape \(3,\) was added or replaced, or requires"):
            await world.run(with_another_parameter, how)


async def within_a_context() -> Any:
    model = await DDP(Affine())
    with pytest.raises(RuntimeError, match="does not hold back what the ranks"):
        async with dist.autograd.context():
            await model(ag.ones(2, 3, dtype=ag.float64)).sum().backward()
    held = model.module.scale.grad
    async with dist.autograd.context():
        with model.no_sync():
            await model(ag.ones(2, 3, dtype=ag.float64)).sum().backward()
        held = held or model.module.scale.grad
    return held, model.module.scale.grad is not None


@pytest.mark.asyncio
async def test_a_context_refuses_what_ranks_decide_on() -> None:
    """It would end with half of its passes committed."""
    async with world_of(Engine(2)) as world:
        assert await world.run(within_a_context) == [(None, True)] * 2


@settings(max_examples=15)
@given(st.integers(0, 2**32))
def test_any_order_of_messages_gives_the_same_bits(seed: int) -> None:
    rng = random.Random(seed)

    async def main(engine: Engine) -> Any:
        async with world_of(engine) as world:
            return await world.run(train, 1e-6, True)

    def bits(results: Any) -> Any:
        return [[(n, v.tolist()) for n, (v, _) in found.items()] for found, _ in results]

    usual = bits(asyncio.run(main(Engine(3))))
    assert bits(asyncio.run(main(Engine(3, lambda most: rng.randint(0, most))))) == usual
