"""Reentrant checkpoints: a `Function` whose backward starts a pass of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from asyncgrad import autograd
from asyncgrad.core.frames import warn
from asyncgrad.core.modes import Mode, current
from asyncgrad.core.variable import Variable, requires_grad
from asyncgrad.errors import AutogradError
from asyncgrad.ops.tensors.rng import generator_in_force
from asyncgrad.scheduler import awaits, offload, waits


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copy a tuple of inputs; tensors become leaves that require grad if the originals do."""
    if not isinstance(inputs, tuple):
        raise AutogradError(
            f"Only tuple of tensors is supported. Got Unsupported input type: "
            f"{type(inputs).__name__}"
        )
    return tuple(
        [
            x.detach().requires_grad_(requires_grad(x)) if isinstance(x, Variable) else x  # type: ignore[attr-defined]
            for x in inputs
        ]
    )


def check_backward_validity(inputs: Sequence[Any]) -> None:
    """Warn if no gradient can flow to the inputs."""
    tensors = [value for value in inputs if isinstance(value, Variable)]
    if not any(requires_grad(tensor) for tensor in tensors):
        warn("None of the inputs have requires_grad=True. Gradients will be None")


class CheckpointFunction(autograd.Function):
    """A call that backward runs again, in a pass of its own."""

    #: Intermediate results kept on ctx may be constants: backward computes them anew.
    constants_on_ctx = True

    @staticmethod
    def forward(
        ctx: Any, run_function: Callable[..., Any], preserve_rng_state: bool, *args: object
    ) -> Any:
        """Call the function without recording."""
        check_backward_validity(args)
        ctx.run_function = run_function
        ctx.source = generator_in_force().clone_state() if preserve_rng_state else None
        ctx.inputs = tuple([None if isinstance(a, Variable) else a for a in args])
        ctx.places = tuple([i for i, a in enumerate(args) if isinstance(a, Variable)])
        ctx.save_for_backward(*[args[place] for place in ctx.places])
        return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *gradients: object) -> Any:
        """Run the function again, recorded, and differentiate it."""
        task = current().graph_task
        while task is not None:
            if task.exec_info is not None:
                raise AutogradError(
                    "When use_reentrant=True, asyncgrad.utils.checkpoint is incompatible with "
                    ".grad() or passing an `inputs` parameter to .backward(). To resolve this "
                    "error, you can either set use_reentrant=False, or call .backward() without "
                    "passing the `inputs` argument."
                )
            task = task.parent
        inputs = list(ctx.inputs)
        for place, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            inputs[place] = tensor
        leaves = detach_variable(tuple(inputs))
        if waits(ctx.run_function):
            return _differentiate_later(_repeat_later, ctx, leaves, gradients)
        if awaits(current().graph_task):
            # Worker threads run the function and its pass, so that they do not block the loop.
            in_thread: Any = partial(offload, _repeat)  # type: ignore[call-arg]
            return _differentiate_later(in_thread, ctx, leaves, gradients)
        roots, given = _roots(_repeat(ctx, leaves), gradients)
        autograd.backward(roots, given)
        return _gradients(leaves)


def _again(ctx: Any) -> Mode:
    """The mode of the second run."""
    source = {} if ctx.source is None else {"generator": ctx.source.clone_state()}
    return Mode(grad=True, inference=False, **source)


def _repeat(ctx: Any, leaves: tuple[Any, ...]) -> Any:
    with _again(ctx):
        return ctx.run_function(*leaves)


async def _repeat_later(ctx: Any, leaves: tuple[Any, ...]) -> Any:
    with _again(ctx):
        return await ctx.run_function(*leaves)


async def _differentiate_later(
    repeat: Callable[..., Any], ctx: Any, leaves: tuple[Any, ...], gradients: tuple[Any, ...]
) -> Any:
    """The gradients of leaves, after the function and its pass have run.

    `repeat` is called only here: a cancelled pass may end before this coroutine starts.
    """
    roots, given = _roots(await repeat(ctx, leaves), gradients)
    await autograd.backward(roots, given)
    return _gradients(leaves)


def _roots(outputs: Any, gradients: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """The outputs that require grad, with their gradients."""
    if isinstance(outputs, Variable):
        outputs = (outputs,)
    if len(outputs) > len(gradients):
        raise IndexError(
            f"checkpoint: the function returned {len(gradients)} values at first, and "
            f"{len(outputs)} when it was run again"
        )
    pairs = [
        (output, gradient)
        for output, gradient in zip(outputs, gradients, strict=False)
        if isinstance(output, Variable) and requires_grad(output)
    ]
    if not pairs:
        raise AutogradError(
            "none of output has requires_grad=True, this checkpoint() is not necessary"
        )
    return [output for output, _ in pairs], [gradient for _, gradient in pairs]


def _gradients(leaves: tuple[Any, ...]) -> tuple[Any, ...]:
    return (None, None, *[x.grad if isinstance(x, Variable) else None for x in leaves])  # type: ignore[attr-defined]
