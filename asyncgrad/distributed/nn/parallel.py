"""Data parallelism: every rank computes with its share of a batch, and gradients are averaged."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.autograd.modes import is_grad_enabled, no_grad
from asyncgrad.core.hooks import RemovableHandle
from asyncgrad.core.variable import hooks_of
from asyncgrad.creation import zeros
from asyncgrad.distributed.averages import unlike
from asyncgrad.distributed.group import current_group
from asyncgrad.distributed.reduction import Reducer, unsynced
from asyncgrad.distributed.waiting import begins
from asyncgrad.errors import AutogradError
from asyncgrad.nn.alone import SyncBatchNorm
from asyncgrad.nn.module import Module
from asyncgrad.remedies import remedies

if not TYPE_CHECKING:
    __getattr__ = remedies(__name__, {
        "`await world.replicate(make_model)` makes a model on every worker": (
            "DataParallel data_parallel replicate parallel_apply"
        ),
    })  # fmt: skip


class DistributedDataParallel(Module):
    """A module of which every rank has a copy, with gradients averaged over the ranks.

    Make it within `World.run`, on all ranks in the same order, and await it once: it then has rank
    0's parameters and buffers. If it is not awaited, its first pass compares the ranks' parameters,
    and fails unless they are equal. Every pass reduces its gradients while it goes on, in buckets;
    they have the same bits on all ranks. A pass succeeds on all ranks, or on none. Passes of one
    model follow one another. A parameter that no rank has used gets no gradient. Buffers that a
    forward changes later, running statistics for example, are each rank's own.

    Args:
        module: this rank's copy, of the same structure on all.
        bucket_cap_mb: the size of a bucket in megabytes; None for 25.
        find_unused_parameters: taken as in PyTorch, and not needed: a parameter that a rank has
            not used counts as zero there.
        broadcast_buffers: False; PyTorch's True is refused.
        gradient_as_bucket_view: taken as in PyTorch, and changes nothing.
        static_graph: taken as in PyTorch, and changes nothing.

    Raises:
        RuntimeError: outside of `World.run`, if no parameter requires grad, or if one is not on
            the CPU.
        ValueError: if buckets would be empty, `broadcast_buffers` is True, or there is such a model
            or, with several ranks, a `SyncBatchNorm` in the module.

    Example:
        >>> from asyncgrad import distributed as dist
        >>> async def train(batches):
        ...     model = await dist.nn.parallel.DistributedDataParallel(ag.nn.Linear(4, 1))
        ...     optimizer = ag.optim.SGD(model.parameters(), lr=0.1)
        ...     for x in batches[dist.get_rank()]:
        ...         optimizer.zero_grad()
        ...         await model(x).square().mean().backward()
        ...         optimizer.step()
    """

    def __init__(
        self, module: Module, *, bucket_cap_mb: float | None = 25.0,
        find_unused_parameters: bool = True, broadcast_buffers: bool = False,
        gradient_as_bucket_view: bool = False, static_graph: bool = False,
    ) -> None:  # fmt: skip
        """Make the buckets, in the order in which gradients will come: from the last on."""
        super().__init__()
        if broadcast_buffers:
            raise ValueError(
                "DistributedDataParallel: broadcast_buffers=True: a forward does not wait for rank "
                "0's buffers. Give all ranks the same where they matter, before an evaluation for "
                "example: buffer.copy_(await broadcast(buffer))"
            )
        if bucket_cap_mb is None:
            bucket_cap_mb = 25.0
        if not bucket_cap_mb > 0:
            raise ValueError(f"DistributedDataParallel: bucket_cap_mb={bucket_cap_mb}: no bucket")
        if not isinstance(module, Module):
            raise TypeError(
                f"DistributedDataParallel: expected a Module, not {type(module).__name__}"
            )
        if any(isinstance(one, DistributedDataParallel) for one in module.modules()):
            raise ValueError(
                "DistributedDataParallel: the module is or holds such a model already, and its "
                "gradients would be averaged twice: give the module itself, model.module"
            )
        self.module = module
        group = current_group("DistributedDataParallel")
        if group.others and any(isinstance(one, SyncBatchNorm) for one in module.modules()):
            raise ValueError(
                "DistributedDataParallel: the module has a SyncBatchNorm, whose forward does not "
                "wait for the inputs of other ranks: use BatchNorm, with each rank's own "
                "statistics, or GroupNorm"
            )
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        parameters = [p for _, p in named]
        if not parameters:
            raise AutogradError(
                "DistributedDataParallel: no parameter of the module requires grad, so there is "
                "nothing to average"
            )
        for p in parameters:
            if not isinstance(p._array, np.ndarray):
                raise AutogradError(
                    f"DistributedDataParallel: a parameter is on {p.device}: the parameters have "
                    f"to be dense and on the CPU"
                )
        owners = [name.rpartition(".")[0] for name, _ in named]
        buckets = _buckets(parameters, owners, bucket_cap_mb * 1e6)
        self._state = Reducer(group, parameters, buckets, module)
        self._cap_mb = bucket_cap_mb
        for place, parameter in enumerate(parameters):
            # A hook of the node comes after those of the parameter, whenever these are registered.
            extras, _ = hooks_of(parameter, "average the gradient of")
            hook = partial(self._state.arrived, place)
            self._state.hooks.append(RemovableHandle(extras.pre, hook))

    def __await__(self) -> Generator[Any, None, DistributedDataParallel]:
        """Take rank 0's parameters and buffers."""
        return self._open().__await__()

    @begins
    async def _open(self) -> DistributedDataParallel:
        group = self._state.group
        named = (*self.module.named_parameters(), *self.module.named_buffers())
        own = [tensor.detach() for _, tensor in named]
        facts = [
            f"{name} {tensor.dtype} {tuple(tensor.shape)}" + " requires_grad" * tensor.requires_grad
            for name, tensor in named
        ]
        given = facts, own if group.rank == 0 else None
        name = f"DistributedDataParallel(bucket_cap_mb={self._cap_mb:g})"
        with group.collective(name, next(group.numbers)) as tag:
            found = await group.exchange(tag, dict.fromkeys(range(group.size), given), None)
        if group.rank:
            theirs, values = found[0]
            if theirs != facts:
                raise AutogradError(
                    f"DistributedDataParallel: rank 0's module has tensors {theirs}, that of rank "
                    f"{group.rank} {facts}: make the same module on all ranks"
                )
            with no_grad():
                for tensor, value in zip(own, values, strict=True):
                    tensor.copy_(value)
        self._state.compared = None
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module."""
        self._state.check()
        if is_grad_enabled():
            self._state.check_parameters(self.module.parameters())
        elif self._state.compared is not None:
            # No pass follows that would compare them.
            raise unlike("may differ")
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Passes started in the block are not reduced: their gradients are this rank's own.

        The next pass outside of it averages all that is in `.grad` by then, as in PyTorch.
        """
        before = unsynced.get()
        unsynced.set(before | {id(self._state)})
        try:
            yield
        finally:
            unsynced.set(before)

    @begins
    async def skip(self) -> None:
        """Take part in a pass of the other ranks without a batch: with gradients of zero."""
        self._state.check()
        start = zeros(1).requires_grad_()
        end = start * 1

        def enter(gradient: Any) -> None:
            self._state.enter()

        end.register_hook(enter)
        await end.sum().backward()


def _buckets(parameters: Sequence[Any], owners: Sequence[str], cap: float) -> list[list[int]]:
    """Numbers of parameters, from the last on, in buckets of one dtype.

    Gradients of one module come together. So its parameters share a bucket if they fit into one:
    otherwise a bucket of a late module's weight would wait for the bias of an earlier one.

    Args:
        parameters: the parameters.
        owners: the names of their modules.
        cap: the size of a bucket in bytes.
    """
    buckets: list[list[int]] = []
    room, dtype = 0.0, None
    for _, places in groupby(reversed(range(len(parameters))), owners.__getitem__):
        arrays = [(place, parameters[place]._array) for place in places]
        if sum(array.nbytes for _, array in arrays) > room:
            room = 0.0
        for place, array in arrays:
            if array.dtype != dtype or array.nbytes > room:
                buckets.append([])
                room, dtype = cap, array.dtype
            buckets[-1].append(place)
            room -= array.nbytes
    return buckets
