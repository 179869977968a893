"""Data parallelism as the caller of a world sees it: one model, of which each worker has a copy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from asyncgrad.autograd.passes import backward
from asyncgrad.core.modes import current
from asyncgrad.core.variable import Variable
from asyncgrad.creation import full_like
from asyncgrad.distributed.nn.parallel import DistributedDataParallel
from asyncgrad.distributed.remote import RemoteModule
from asyncgrad.distributed.site import Site
from asyncgrad.distributed.staging import limited_context
from asyncgrad.distributed.sums import Held
from asyncgrad.distributed.values import as_loss, awaited, check_plain
from asyncgrad.ops.tensors.pytree import flatten
from asyncgrad.types import Tensor


class ReplicatedModel:
    """A model of which every worker has a copy, with equal parameters.

    Attributes:
        parts: the copies, by rank: give them to `World.optimizer`, which steps each with the same
            gradients.
    """

    def __init__(self, site: Site, run: Any, parts: list[RemoteModule]) -> None:
        """Refer to the copies; `World.replicate` makes it."""
        self._site = site
        self._run = run
        self._steps = 0
        #: Passes of one model follow one another.
        self._turn = asyncio.Lock()
        self.parts = parts
        for rank in range(site.size):
            site.drop_with(self, rank, run)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"a replicated model has no {name!r} here: `await model.forward_backward(loss_fn, "
            f"shards)` trains it, and `model.parts` are its copies, which can be called and applied"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise: which of the copies is to be called?"""
        raise TypeError(
            "a replicated model can't be called: `await model.parts[rank](x)` calls a copy, and "
            "`await model.forward_backward(loss_fn, shards)` trains all"
        )

    async def forward_backward(
        self, loss_fn: Callable[..., Any], shards: Sequence[Any], *, deadline: float | None = None
    ) -> Tensor:
        """Compute the mean loss of a batch and its gradients, every worker with its share.

        The copies' gradients are those of the mean over the whole batch, also if shards differ in
        length. Either all copies have them, or none. Within an `autograd.context()` they are
        committed at its end. Calls that are made at the same time are made one after another.

        Args:
            loss_fn: `loss_fn(model, *shard)`, a function or coroutine function that can be
                pickled, gives the mean loss of a shard, in which all its examples count the same:
                a tensor of one element.
            shards: for each worker a tuple of arguments, whose first tensor has an example in each
                row; None, or no rows, for a worker without any.
            deadline: a time of the loop's clock, at which the passes are given up; None for that of
                `asyncgrad.request`.

        Raises:
            TypeError: if a shard is no tuple.
            ValueError: if there is not one shard for each worker, or no example at all.
            RuntimeError: if a tensor of a shard requires grad, or a loss does not depend on the
                model.
            TimeoutError: if the deadline has passed.
            WorkerLostError: if a worker is lost.
        """
        site = self._site
        site.check()
        if len(shards) != site.size:
            raise ValueError(
                f"forward_backward: {len(shards)} shards for {site.size} workers: give one each"
            )
        rows = [_rows(shard) for shard in shards]
        if not sum(rows):
            raise ValueError("forward_backward: the shards have no examples")
        async with limited_context("forward_backward", deadline, self._turn) as shared:
            self._steps += 1
            deadline = current().deadline
            within = shared._place(site)
            within.touched.update(range(site.size))
            left = None if deadline is None else deadline - site.loop.time()
            arguments = {}
            for rank, share in enumerate(rows):
                weight = share * site.size / sum(rows)
                shard = shards[rank] if share else None
                number = self.parts[rank].number
                given = self._steps, loss_fn, shard, weight, left, current().priority
                arguments[rank] = self._run, within.key, within.turn, number, *given
            losses = await site.call_each("forward_backward", arguments)
        total = sum(loss * n for loss, n in zip(losses, rows, strict=True) if n)
        return total / sum(rows)  # type: ignore[no-any-return]


def _rows(shard: Any) -> int:
    """How many examples a shard has."""
    if shard is None:
        return 0
    if not isinstance(shard, (tuple, list)):
        raise TypeError(
            f"forward_backward: a shard is a {type(shard).__name__}: give a tuple of what follows "
            f"the model in `loss_fn(model, *shard)`, `(x,)` for example, or None"
        )
    check_plain("forward_backward", shard)
    for leaf in flatten(shard)[0]:
        if isinstance(leaf, Variable):
            shape = leaf._metadata.shape
            return shape[0] if shape else 1
    raise ValueError("forward_backward: a shard has no tensor, and so no examples")


async def build(make: Callable[..., Any], bucket_cap_mb: float) -> DistributedDataParallel:
    """Make a copy, on its worker."""
    model = await DistributedDataParallel(await awaited(make()), bucket_cap_mb=bucket_cap_mb)
    model._state.is_replica = True
    return model


async def step(
    model: DistributedDataParallel, key: Any, held: Held, name: int, loss_fn: Callable[..., Any],
    shard: Any, weight: float, left: float | None, priority: int,
) -> tuple[Any, dict[Any, Any]]:  # fmt: skip
    """Compute with one copy, on its worker: the loss, and the gradients by leaf."""
    with model._state.staged_pass(name, key, held) as gradients:
        if shard is None:
            await model.skip()
            return None, gradients
        loss = as_loss("forward_backward", await awaited(loss_fn(model, *shard)))
        deadline = None if left is None else asyncio.get_running_loop().time() + left
        await backward(loss, full_like(loss, weight), priority=priority, deadline=deadline)
        return loss.detach(), gradients
