"""Functions that run on all workers at once, and the messages that they exchange.

The key of a collective's messages is its number among the collectives of its run, so all ranks have
to call collectives in the same order. A reduction of gradients has a key of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import partial
from itertools import count
from operator import index
from typing import Any

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.creation import from_numpy
from asyncgrad.devices.fp_errors import without_fp_errors
from asyncgrad.distributed.engine import copied, sent
from asyncgrad.distributed.errors import dumps, late
from asyncgrad.distributed.lifetimes import all_of
from asyncgrad.distributed.mail import Mail
from asyncgrad.distributed.messages import Message
from asyncgrad.distributed.site import Site
from asyncgrad.distributed.standstill import Standstill
from asyncgrad.distributed.starts import Starts
from asyncgrad.distributed.values import without_graphs
from asyncgrad.distributed.waiting import begins
from asyncgrad.errors import AutogradError
from asyncgrad.ops.float32_compute import computing_dtype
from asyncgrad.scheduler import offload
from asyncgrad.types import Tensor
from asyncgrad.utils.data import sampler

#: Sums of fewer elements are made by every rank; of more, each rank sums a share of them.
_SMALL = 1 << 14


class ReduceOp(Enum):
    """How `all_reduce` combines the ranks' tensors, in the order of the ranks."""

    SUM = "sum"
    AVG = "avg"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"


_COMBINE: dict[ReduceOp, Callable[..., Any]] = {
    ReduceOp.SUM: np.add,
    ReduceOp.AVG: np.add,
    ReduceOp.PRODUCT: np.multiply,
    ReduceOp.MIN: np.minimum,
    ReduceOp.MAX: np.maximum,
}


class Group:
    """The ranks of one run, as one of them sees them, and what they have sent to this one."""

    def __init__(self, site: Site, run: Any) -> None:
        """Make the group of a run, which may begin here only later; see `Runs.group`."""
        self.site = site
        self.run = run
        self.rank = site.rank
        self.size = site.size
        self.others = [rank for rank in range(site.size) if rank != site.rank]
        self.mail = Mail(site)
        #: Numbers the collectives as they are called: several may be on their way at the same time.
        self.numbers = count()
        #: Counts the models of this run whose gradients are reduced.
        self.models = count()
        self.starts = Starts(site)
        self.standstill = Standstill(site, run, self.mail)
        #: The passes for which this rank has voted, until they learn what rank 0 has decided.
        self.undecided = set[asyncio.Future[bool]]()
        #: What has failed on this rank while the others may wait for it, or None.
        self._given_up: str | None = None

    def __reduce__(self) -> Any:
        raise AutogradError(
            "what belongs to a run, such as a DistributedDataParallel model or a "
            "ZeroRedundancyOptimizer, can't be copied or sent: take model.module, or state_dict()"
        )

    async def send(self, rank: int, tag: Any, content: Any) -> None:
        """Send something to another rank."""
        await self.site.call(rank, "mail", self.run, tag, self.rank, content)

    def take(self, tag: Any, sender: int, content: Any) -> None:
        """Keep what has come, unless its pass has ended; the run may not have begun here."""
        if self.mail.take(tag, sender, content):
            self.standstill.came(sender, tag[1:3])

    def give_up(self, key: Any, sender: int, why: str | None) -> None:
        """Fail a pass that another rank has given up; it may not have begun here."""
        if self.mail.give_up(key, sender, why):
            self.standstill.came(sender, key)

    def end(self) -> None:
        """Drop all messages, and refuse what comes later."""
        self.starts.leave()
        self.mail.end()

    async def exchange(self, tag: Any, contents: dict[int, Any], own: Any) -> list[Any]:
        """Send each other rank something; return what they send, by rank, and `own` for this one.

        Raises:
            RuntimeError: if another has sent it by another name.
        """
        name = tag[0]
        self.standstill.begin(tag[1:3])
        waiting = set(self.others)

        async def receive(rank: int) -> Any:
            found = await self.mail.receive(rank, tag)
            waiting.discard(rank)
            return found

        try:
            # If this wait is cancelled, a collective or a pass is given up.
            with self.standstill.awaiting({tag[1:3]}, name, asyncio.current_task()):
                found = await all_of(
                    [receive(rank) for rank in self.others]
                    + [self.send(rank, tag, contents[rank]) for rank in self.others]
                )
        except TimeoutError as error:
            if not waiting:
                # Who has it already does not answer.
                raise
            raise TimeoutError(
                f"ranks {sorted(waiting)} have not taken part in {name} within "
                f"{self.site.timeout:g} s of rank {self.rank}, the timeout of the world"
            ) from error
        by_rank = dict(zip(self.others, found, strict=False))
        # All have been sent this rank's name by now, so that all of them notice.
        unlike = [
            f"rank {rank} has called {called}"
            for rank, (called, _) in by_rank.items()
            if called != name
        ]
        if unlike:
            raise AutogradError(
                f"{', '.join(unlike)} where this rank, {self.rank}, has called {name}: call the "
                f"same collectives in the same order, with like tensors, on all ranks"
            )
        by_rank[self.rank] = name, own
        return [by_rank[rank][1] for rank in range(self.size)]

    async def reduce(self, tag: Any, array: Any, op: ReduceOp = ReduceOp.SUM) -> Any:
        """The combination of all ranks' arrays, with the same bits on all of them."""
        combine, averages = _COMBINE[op], op is ReduceOp.AVG

        @without_fp_errors
        def combined(arrays: list[Any]) -> Any:
            # As in a mean, the sum of half precision is one of float32.
            dtype = computing_dtype(array.dtype) if averages else array.dtype
            total = arrays[0].astype(dtype)
            for other in arrays[1:]:
                combine(total, other, out=total)
            if averages:
                np.divide(total, self.size, out=total)
            return total.astype(array.dtype, copy=False)

        # The name says what is sent, so that the receiver of an unlike array raises an error.
        name, *key = tag
        tag = f"{name}({op.value} of {array.dtype} {array.shape})", *key
        flat = array.reshape(-1)
        if flat.size <= _SMALL or self.size == 1:
            arrays = await self.exchange(tag, dict.fromkeys(range(self.size), flat), flat)
            return combined(arrays).reshape(array.shape)
        shares = np.array_split(flat, self.size)
        arrays = await self.exchange(tag, dict(enumerate(shares)), shares[self.rank])
        share = await offload(combined, arrays)
        tag = *tag, "sums"
        shares = await self.exchange(tag, dict.fromkeys(range(self.size), share), share)
        return (await offload(np.concatenate, shares)).reshape(array.shape)

    def check(self) -> None:
        """Raise if the run has ended, or ranks wait for one another, or for this one."""
        if self.mail.ended:
            raise late("the run")
        if self.mail.stopped is not None:
            raise AutogradError(self.mail.stopped)
        self.check_whole()

    def check_whole(self) -> None:
        """Raise if this rank has left what the others wait for."""
        if self._given_up is not None:
            raise AutogradError(
                f"this rank has given up {self._given_up}, for which others may wait: let its "
                f"error, or the cancellation, end the run"
            )

    def checked(self, name: str, rank: Any) -> int:
        """A rank that was given to a function; raises if there is none of this number."""
        found: int = index(rank)
        if not 0 <= found < self.size:
            raise ValueError(f"{name}: there is no rank {found} among {self.size}")
        return found

    @contextmanager
    def whole(self, what: str) -> Iterator[None]:
        """Once the block has failed here alone, refuse what follows: the others may still wait.

        What can fail before anything is sent comes before the block.
        """
        self.check()
        try:
            yield
        except AutogradError:
            # The others raise one, too.
            raise
        except BaseException:
            self._given_up = what
            raise

    @contextmanager
    def collective(self, name: str, number: int) -> Iterator[Any]:
        """The tag of a collective, which is made in the block."""
        with self.whole(name.partition("(")[0]):
            yield (name, "collective", number)


#: The group of the running function, for one of a name, which raises outside of `World.run`.
current_group: Callable[[str], Group] = sampler.current_group


def get_rank() -> int:
    """The rank of this worker, 0 to `get_world_size() - 1`; within `World.run`."""
    return current_group("get_rank").rank


def get_world_size() -> int:
    """The number of workers; within `World.run`."""
    return current_group("get_world_size").size


def _array_of(name: str, tensor: Any) -> Any:
    if not isinstance(tensor, Variable):
        raise TypeError(f"{name}: expected a Tensor, not {type(tensor).__name__}")
    if not isinstance(tensor._array, np.ndarray):
        raise AutogradError(
            f"{name}: the tensor is on {tensor._metadata.device}: move it to the CPU first"
        )
    return tensor._array


@begins
async def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM) -> Tensor:
    """Combine the tensors of all ranks, in the order of the ranks, to the same bits on all of them.

    Unlike PyTorch's function it changes no tensor, and it is not recorded.

    Args:
        tensor: this rank's tensor, of the same shape and dtype on all ranks.
        op: how.

    Raises:
        RuntimeError: if shapes, dtypes or `op` differ, or a rank's function has returned.
        TypeError: if `op` is no `ReduceOp`, or an average of integers, or an extremum of complex
            numbers.
        WorkerLostError: if a rank is lost.
    """
    group = current_group("all_reduce")
    array = _array_of("all_reduce", tensor)
    if not isinstance(op, ReduceOp):
        raise TypeError(f"all_reduce: op={op!r}: expected a ReduceOp, such as ReduceOp.SUM")
    if op is ReduceOp.AVG and not (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
        raise TypeError(f"all_reduce: the average of {array.dtype} is none: convert it first")
    if op in {ReduceOp.MIN, ReduceOp.MAX} and array.dtype.kind == "c":
        raise TypeError(f"all_reduce: {array.dtype} has no order, so {op} is not defined")
    with group.collective("all_reduce", next(group.numbers)) as tag:
        return from_numpy(await group.reduce(tag, array, op))


def _copied(given: Any) -> Any:
    """A copy of what a rank gives, as the others get it; raises if it can't be sent."""
    return sent(_mail(without_graphs(given)), copied).args[0]


def check_sendable(given: Any) -> None:
    """Raise if something can't be sent; its arrays are not copied."""
    sent(_mail(given), partial(dumps, out_of_band=lambda buffer: None))


def _mail(given: Any) -> Message:
    return Message("", 0, 0, "mail", (given,), {})


@begins
async def all_gather(tensor: Any) -> list[Any]:
    """What each rank gives, in the order of the ranks: tensors or plain data, also unlike ones."""
    group = current_group("all_gather")
    # Drawn before the copy is made: that of a later call may be ready sooner.
    number = next(group.numbers)
    own = await offload(_copied, tensor)
    with group.collective("all_gather", number) as tag:
        return await group.exchange(tag, dict.fromkeys(range(group.size), own), own)


@begins
async def broadcast(tensor: Any, src: int = 0) -> Any:
    """What rank `src` gives, on all ranks: a tensor or plain data; that of others is ignored.

    All wait for all, so that ranks which don't agree on `src` notice.
    """
    group = current_group("broadcast")
    src = group.checked("broadcast", src)
    number = next(group.numbers)
    own = await offload(_copied, tensor) if group.rank == src else None
    with group.collective(f"broadcast(src={src})", number) as tag:
        return (await group.exchange(tag, dict.fromkeys(range(group.size), own), own))[src]


@begins
async def barrier() -> None:
    """Wait until all ranks have come here."""
    group = current_group("barrier")
    with group.collective("barrier", next(group.numbers)) as tag:
        await group.exchange(tag, dict.fromkeys(range(group.size)), None)
