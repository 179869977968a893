"""Pipelines: the stages of a model on different workers, and micro-batches on their way through."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from operator import index
from typing import TYPE_CHECKING, Any

from asyncgrad.autograd.passes import backward
from asyncgrad.choices import Schedule, words
from asyncgrad.core.modes import current
from asyncgrad.core.variable import Variable
from asyncgrad.creation import full_like
from asyncgrad.distributed.errors import PassEndedError
from asyncgrad.distributed.lifetimes import all_of
from asyncgrad.distributed.messages import Place
from asyncgrad.distributed.remote import RemoteCall, RemoteModule
from asyncgrad.distributed.staging import limited_context, turn_of_passes
from asyncgrad.distributed.values import as_loss, called
from asyncgrad.errors import AutogradError
from asyncgrad.nn.module import Module
from asyncgrad.ops.tensors.pytree import flatten
from asyncgrad.remedies import remedies
from asyncgrad.types import Tensor, Tree

__all__ = ["Pipeline"]

if not TYPE_CHECKING:
    __getattr__ = remedies(__name__, {
        'use Pipeline(stages, schedule="gpipe")': "ScheduleGPipe",
        'use Pipeline(stages, schedule="1f1b")': "Schedule1F1B",
        "`await world.remote(rank, factory)` makes a stage, and Pipeline(stages) joins them": (
            "Pipe PipelineStage SplitPoint build_stage pipe_split pipeline"
        ),
    })  # fmt: skip


class Pipeline:
    """Stages on workers, each of which computes one micro-batch at a time, forwards in order.

    Args:
        stages: parts, in order; each takes what the one before it gives. Activations and gradients
            go from worker to worker.
        microbatches: into how many a batch is divided.
        schedule: "1f1b" lets one more micro-batch into the pipeline than it has stages, the one
            that is on its way: each worker keeps that many graphs at most, and the last one's runs
            a micro-batch's backward right after its forward. "gpipe" runs all forwards first, and
            keeps all graphs.

    Raises:
        ValueError: for another schedule, or without stages or micro-batches.

    Example:
        >>> from asyncgrad import distributed as dist
        >>> async def train(world, batches):
        ...     stages = [await world.remote(rank, ag.nn.Linear, 8, 8) for rank in range(2)]
        ...     pipeline = dist.pipelining.Pipeline(stages, microbatches=4)
        ...     optimizer = await world.optimizer(ag.optim.SGD, stages, lr=0.1)
        ...     for x, target in batches:
        ...         await pipeline.step(x, target, ag.nn.functional.mse_loss)
        ...         await optimizer.step_async()
        ...         await optimizer.zero_grad()
    """

    def __init__(
        self, stages: Sequence[RemoteModule], *, microbatches: int = 8, schedule: Schedule = "1f1b"
    ) -> None:
        if schedule not in words(Schedule):
            raise ValueError(f"Pipeline: schedule={schedule!r}: it is '1f1b' or 'gpipe'")
        microbatches = index(microbatches)
        if microbatches < 1 or not stages:
            raise ValueError(
                f"Pipeline: {len(stages)} stages, {microbatches} micro-batches: at least one each"
            )
        for stage in stages:
            if not isinstance(stage, RemoteModule):
                raise TypeError(
                    f"Pipeline: a stage is a part, which `await world.remote(...)` gives, not "
                    f"{type(stage).__name__}"
                )
        self._stages = tuple(stages)
        self._microbatches = microbatches
        self._schedule = schedule
        self._loss: tuple[Any, RemoteModule] | None = None

    async def step(
        self, x: Tree, target: Tree, loss_fn: Callable[[Any, Any], Any], *,
        deadline: float | None = None,
    ) -> Tensor:  # fmt: skip
        """Compute the loss of a batch and its gradients, committed at the end, or never.

        Args:
            x: the batch: a tensor of shape (N, ...) with N examples, or a tuple, list or dictionary
                of such tensors, of which the first stage takes a micro-batch.
            target: what the loss function compares with: one tensor of shape (N, ...) or several.
            loss_fn: gives the mean loss of a micro-batch, in which all its examples count the same,
                from the last stage's result and the targets; or the sum, if it is a loss module or
                a `functools.partial` with `reduction="sum"`. It can be pickled, and runs on the
                last stage's worker.
            deadline: a time of the loop's clock, at which the step is given up; None for that of
                `asyncgrad.request`.

        Raises:
            ValueError: if there are fewer examples than micro-batches, or not as many targets.
            TypeError: if x or the target is, or has in it, something else than tensors.
            RuntimeError: if x or the target is no leaf and requires grad, or the loss function is a
                module whose parameters require grad.
            TimeoutError: if the deadline has passed.
            WorkerLostError: if a worker is lost.
        """
        batch, structure = flatten((x, target))
        for given in batch:
            if not isinstance(given, Variable):
                raise TypeError(
                    f"Pipeline.step: x and the target are Tensors, not {type(given).__name__}, or "
                    f"lists, tuples and dictionaries of Tensors"
                )
        shapes = [given._metadata.shape for given in batch]
        sizes = {shape[0] if shape else 0 for shape in shapes}
        rows = min(sizes, default=0)
        if rows < self._microbatches or len(sizes) > 1:
            raise ValueError(
                f"Pipeline.step: x and the target have the shapes {', '.join(map(str, shapes))}, "
                f"for {self._microbatches} micro-batches: give as many examples at least, and as "
                f"many targets as examples"
            )
        for given in batch:
            if given.requires_grad and not given.is_leaf:
                raise AutogradError(
                    "Pipeline.step: x or the target has been computed from what requires grad, and "
                    "each micro-batch's pass would go through that graph: compute it in the first "
                    "stage, or give x.detach()"
                )
        if isinstance(loss_fn, Module) and any(p.requires_grad for p in loss_fn.parameters()):
            raise AutogradError(
                f"Pipeline.step: the parameters of the loss function, a {type(loss_fn).__name__}, "
                f"require grad, but a copy of it runs on the worker of the last stage, and their "
                f"gradients would stay there: make it a part of the last stage, or call its "
                f"requires_grad_(False)"
            )
        async with limited_context("Pipeline.step", deadline, nullcontext()) as shared:
            last = await self._prepare(loss_fn)
            bounds = [rows * i // self._microbatches for i in range(self._microbatches + 1)]
            in_flight = len(self._stages) + 1 if self._schedule == "1f1b" else self._microbatches
            window = asyncio.Semaphore(in_flight)
            filled = asyncio.Barrier(self._microbatches)
            within = shared._place(last.site)
            # Also those that stage no gradients, as they keep what the step has begun there.
            within.touched.update(stage.rank for stage in self._stages)
            step = next(last.site.numbers)
            is_sum = _is_sum(loss_fn)

            async def run(number: int) -> Any:
                turn_of_passes.set(number)
                start, stop = bounds[number], bounds[number + 1]
                async with window:
                    value, own_target = structure.build(one[start:stop] for one in batch)
                    for i, stage in enumerate(self._stages[:-1]):
                        call = stage(value)
                        call.place = Place(within.key, step, i, stage.number, number)
                        value = await call.sent()
                    call = last(value, own_target)
                    end = self._stages[-1].number
                    call.place = Place(within.key, step, len(self._stages) - 1, end, number)
                    share = 1.0 if is_sum else (stop - start) / rows
                    if self._schedule == "1f1b":
                        own = shared._place(last.site)
                        call.at_once = own, share, call.deadline, current().priority
                    # The step gives it up.
                    call.deadline = None
                    loss = await call
                    if self._schedule == "gpipe":
                        await filled.wait()
                    await backward(loss, full_like(loss, share))
                    return loss.detach() * share

            passes = (run(number) for number in range(self._microbatches))
            # If one fails, the context fails, and then the others, too.
            losses = await all_of(passes, follow=(PassEndedError,))
        total: Tensor = sum(losses[1:], start=losses[0])
        return total

    async def _prepare(self, loss_fn: Any) -> RemoteModule:
        """Make a part of the last stage and the loss function."""
        if self._loss is None or self._loss[0] is not loss_fn:
            stage = self._stages[-1]
            site = stage.site
            number = -1 - next(site.numbers)
            part = RemoteModule(site, stage.rank, number)
            await site.call(stage.rank, "remote", number, _with_loss, (stage, loss_fn), {})
            self._loss = loss_fn, part
        return self._loss[1]


def _is_sum(loss_fn: Any) -> bool:
    """Whether a loss function says that it adds up, and does not average."""
    if isinstance(loss_fn, partial):
        given = loss_fn.keywords
        return given["reduction"] == "sum" if "reduction" in given else _is_sum(loss_fn.func)
    # A method, such as the `forward` of a module, does as its object says.
    return getattr(getattr(loss_fn, "__self__", loss_fn), "reduction", None) == "sum"


def _with_loss(stage: RemoteModule, loss_fn: Callable[..., Any]) -> Any:
    """Make, on the last stage's worker, a function that computes the stage and then the loss."""
    module = stage.site.host.part(stage.number)

    async def last(value: Any, target: Any) -> Any:
        found = await called(module, value)
        if isinstance(found, RemoteCall):
            found = await found
        return as_loss("Pipeline.step", await called(loss_fn, found, target))

    return last
