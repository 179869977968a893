"""Checkpoints: what a function saves for backward is computed again when it is needed.

`checkpoint(function, ...)` runs the function and keeps its arguments instead of what its operations
save. The first of them that asks for something saved has the function run again.

Without reentrant passes this is done by saved-tensor hooks: a `Frame` stands for the call and hands
out a `Holder` in the place of each tensor. With `use_reentrant=True` the call is a `Function` whose
backward runs the function again and starts a pass of its own.
"""

from __future__ import annotations

import inspect
import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from asyncgrad import autograd
from asyncgrad.core.modes import Mode, current
from asyncgrad.core.variable import Variable, requires_grad
from asyncgrad.errors import AutogradError
from asyncgrad.ops.generator import source_of
from asyncgrad.scheduler import awaits, offload
from asyncgrad.utils.recomputation import CheckpointError, Frame
from asyncgrad.utils.selection import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "CheckpointError", "CheckpointFunction", "CheckpointPolicy", "GraphExecGroup",
    "SelectiveCheckpointContext", "check_backward_validity", "checkpoint", "checkpoint_sequential",
    "create_selective_checkpoint_contexts", "detach_variable", "noop_context_fn",
    "set_checkpoint_debug_enabled", "set_checkpoint_early_stop",
]  # fmt: skip

_PASS_IT = (
    "the use_reentrant parameter should be passed explicitly. use_reentrant=False is recommended; "
    "without it the default is True, as it always was."
)


def noop_context_fn() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Contexts for the forward run and for the one that repeats it: none."""
    return nullcontext(), nullcontext()


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """Call a function, and let backward call it again instead of keeping what it saves.

    Args:
        function: a function, a module, or a coroutine function, which is then awaited.
        args: its arguments; tensors among them are kept.
        use_reentrant: run it again in a pass of its own. Then `grad()` and `inputs=` can't be
            used, one of the arguments has to require grad, and there are no keyword arguments.
        context_fn: gives two contexts: one to run the function in, one to run it again in.
        determinism_check: "default" compares shape, dtype and device of what is saved when it
            runs again, "none" only how much it is.
        debug: say in a `CheckpointError` where everything was saved.
        early_stop: end the second run as soon as it has computed everything that is needed.
        preserve_rng_state: the second run draws the same random numbers. Others never notice.
        kwargs: the function's keyword arguments.

    Returns:
        What the function returns; a coroutine of that for a coroutine function.

    Raises:
        ValueError: if arguments exclude one another.
        CheckpointError: from the pass, if the function did something else when it ran again.

    Example:
        >>> import asyncgrad as ag
        >>> from asyncgrad.utils.checkpoint import checkpoint
        >>> x = ag.tensor([2.0], requires_grad=True)
        >>> y = checkpoint(lambda x: ag.exp(x * x), x, use_reentrant=False)
        >>> _ = y.sum().backward()
        >>> round(x.grad.item(), 2)
        218.39
    """
    if use_reentrant is None:
        warnings.warn(f"asyncgrad.utils.checkpoint: {_PASS_IT}", UserWarning, stacklevel=2)
        use_reentrant = True
    if use_reentrant:
        if kwargs:
            raise ValueError(
                f"Unexpected keyword arguments: {','.join(kwargs)}. They need use_reentrant=False."
            )
        if context_fn is not noop_context_fn or debug:
            raise ValueError(
                "Passing `context_fn` or `debug` is only supported when use_reentrant=False."
            )
        return CheckpointFunction.apply(function, preserve_rng_state, *args)
    settings = current().checkpoints or _UNSET
    if settings.debug is not None:
        debug = settings.debug
    if debug and context_fn is not noop_context_fn:
        raise ValueError("debug=True is incompatible with non-default context_fn")
    if determinism_check not in {"default", "none"}:
        raise ValueError(
            f"determinism_check should be one of ['default', 'none'], but got {determinism_check}"
        )
    later = is_coroutine_function(function)
    if not current().grad:
        return function(*args, **kwargs)
    within, again = context_fn()
    frame = Frame(
        function,
        args,
        kwargs,
        again,
        source_of().clone_state() if preserve_rng_state else None,
        early_stop=early_stop if settings.early_stop is None else settings.early_stop,
        compare=determinism_check == "default",
        debug=bool(debug),
        later=later,
    )
    return _run_later(frame, within) if later else _run(frame, within)


def _run(frame: Frame, within: Any) -> Any:
    """The first run."""
    with Mode(saved_hooks=frame), within:
        result = frame.function(*frame.given, **frame.kwargs)
        if inspect.iscoroutine(result):
            result.close()
            raise TypeError(
                "checkpoint: the function has returned a coroutine and is no coroutine function: "
                "make it one with `async def`"
            )
        frame.complete()
        return result
    raise AutogradError(_SUPPRESSED)


async def _run_later(frame: Frame, within: Any) -> Any:
    """The first run of a coroutine function."""
    with Mode(saved_hooks=frame), within:
        # The mode is seen by whoever awaits, and by nobody else.
        result = await frame.function(*frame.given, **frame.kwargs)
        frame.complete()
        return result
    raise AutogradError(_SUPPRESSED)


_SUPPRESSED = (
    "checkpoint: the forward context provided by context_fn suppressed an exception raised during "
    "the checkpointed forward. This is not supported because checkpoint cannot return a value for "
    "a failed forward."
)


def is_coroutine_function(function: Any) -> bool:
    """Whether calls have to be awaited: also those of modules with an `async def forward`."""
    return any(
        inspect.iscoroutinefunction(one)
        for one in (function, getattr(function, "forward", None), type(function).__call__)
    )


# -- settings -------------------------------------------------------------------------------------


class _Settings(NamedTuple):
    """What overrides the arguments of checkpoints."""

    early_stop: bool | None = None
    debug: bool | None = None
    #: What passes that compute a checkpoint again only once have in common, or None.
    group: Any = None


_UNSET = _Settings()


class _Setting(Mode):
    """Overrides one argument."""

    def __init__(self, **setting: Any) -> None:
        """Keep it; it is in force from `__enter__` on."""
        super().__init__()
        self._setting = setting

    def __enter__(self) -> Any:
        """Override the argument, beside others."""
        found = current().checkpoints or _UNSET
        self._changes = {"checkpoints": found._replace(**self._setting)}
        return super().__enter__()

    def _again(self) -> Mode:
        return _Setting(**self._setting)


class _Group:
    """Passes that share what is computed again."""


class GraphExecGroup(_Setting):
    """Passes started within compute each checkpoint again at most once, all of them together.

    They have to be about different parts of the graph: no two may need the same saved tensor, even
    with `retain_graph=True`. Checkpoints with `use_reentrant=True` take no notice.

    Example:
        >>> import asyncgrad as ag
        >>> from asyncgrad.utils.checkpoint import GraphExecGroup, checkpoint
        >>> x = ag.tensor(1.0, requires_grad=True)
        >>> y, z = checkpoint(lambda x: (x.sin(), x.sin().cos()), x, use_reentrant=False)
        >>> with GraphExecGroup():
        ...     _ = z.backward()
        ...     _ = y.backward()
    """

    def __init__(self) -> None:
        """Make a group of its own."""
        super().__init__(group=_Group())

    def __enter__(self) -> Any:
        """Begin the group.

        Raises:
            RuntimeError: within another.
        """
        settings = current().checkpoints
        if settings is not None and settings.group is not None:
            raise AutogradError("GraphExecGroup contexts cannot be nested. Leave the outer one.")
        return super().__enter__()

    def _again(self) -> Mode:
        return GraphExecGroup()


def set_checkpoint_early_stop(enable: bool) -> Mode:
    """Say for all checkpoints made in this context whether their second run ends early.

    Args:
        enable: the value of `early_stop`, whatever the calls say.
    """
    return _Setting(early_stop=enable)


def set_checkpoint_debug_enabled(enabled: bool | None) -> Mode:
    """Say for all checkpoints made in this context whether they are debugged.

    Args:
        enabled: the value of `debug`; None leaves it to the calls.
    """
    return _Setting(debug=enabled)


# -- in a pass of its own -------------------------------------------------------------------------


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs, tensors among them as leaves that require grad where these do.

    Raises:
        RuntimeError: if they are no tuple.
    """
    if not isinstance(inputs, tuple):
        raise AutogradError(
            f"Only tuple of tensors is supported. Got Unsupported input type: "
            f"{type(inputs).__name__}"
        )
    return tuple([_detached(value) for value in inputs])


def _detached(value: Any) -> Any:
    if not isinstance(value, Variable):
        return value
    leaf: Any = value.detach()  # type: ignore[attr-defined]
    return leaf.requires_grad_() if requires_grad(value) else leaf


def check_backward_validity(inputs: Sequence[Any]) -> None:
    """Warn if no gradient can flow to the inputs."""
    tensors = [value for value in inputs if isinstance(value, Variable)]
    if not any(requires_grad(tensor) for tensor in tensors):
        warnings.warn(
            "None of the inputs have requires_grad=True. Gradients will be None",
            UserWarning,
            stacklevel=2,
        )


class CheckpointFunction(autograd.Function):
    """A call that backward repeats in a pass of its own."""

    #: Its intermediate results are meant to be forgotten.
    constants_on_ctx = True

    @staticmethod
    def forward(ctx: Any, run_function: Any, preserve_rng_state: bool, *args: Any) -> Any:
        """Call the function, unrecorded."""
        check_backward_validity(args)
        ctx.run_function = run_function
        ctx.source = source_of().clone_state() if preserve_rng_state else None
        ctx.inputs = tuple([None if isinstance(a, Variable) else a for a in args])
        ctx.places = tuple([i for i, a in enumerate(args) if isinstance(a, Variable)])
        ctx.save_for_backward(*[args[place] for place in ctx.places])
        return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Call it again, recorded, and differentiate it."""
        task = current().graph_task
        while task is not None:
            if task.partial:
                raise AutogradError(
                    "When use_reentrant=True, checkpoint is incompatible with .grad() or passing "
                    "an `inputs` parameter to .backward(). To resolve this error, you can either "
                    "set use_reentrant=False, or call .backward() without passing the `inputs` "
                    "argument."
                )
            task = task.parent
        inputs = list(ctx.inputs)
        for place, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            inputs[place] = tensor
        leaves = detach_variable(tuple(inputs))
        if is_coroutine_function(ctx.run_function):
            return _differentiate_later(_repeat_later(ctx, leaves), leaves, gradients)
        if awaits(current().graph_task):
            # Neither the function nor its pass holds the loop.
            return _differentiate_later(offload(_repeat, ctx, leaves), leaves, gradients)
        roots, given = _roots(_repeat(ctx, leaves), gradients)
        autograd.backward(roots, given)
        return _gradients(leaves)


def _again(ctx: Any) -> Mode:
    """What the function runs in when it runs again."""
    if ctx.source is None:
        return Mode(grad=True, inference=False)
    return Mode(grad=True, inference=False, generator=ctx.source.clone_state())


def _repeat(ctx: Any, leaves: tuple[Any, ...]) -> Any:
    with _again(ctx):
        return ctx.run_function(*leaves)


async def _repeat_later(ctx: Any, leaves: tuple[Any, ...]) -> Any:
    with _again(ctx):
        return await ctx.run_function(*leaves)


async def _differentiate_later(
    outputs: Any, leaves: tuple[Any, ...], gradients: tuple[Any, ...]
) -> Any:
    """The gradients of leaves, when the function and its pass have run."""
    roots, given = _roots(await outputs, gradients)
    await autograd.backward(roots, given)
    return _gradients(leaves)


def _roots(outputs: Any, gradients: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """The outputs that gradients flow from, with those gradients."""
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


# -- several in a row -----------------------------------------------------------------------------


def checkpoint_sequential(
    functions: Any,
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    *,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """Call functions one after another, in segments of which all but the last are checkpoints.

    Args:
        functions: a `Sequential`, or a sequence of functions of one argument. If some of them are
            coroutine functions, the call is awaited.
        segments: into how many parts they are divided.
        input: the argument of the first.
        use_reentrant: as for `checkpoint`.
        preserve_rng_state: as for `checkpoint`.
        kwargs: none; they are an error.

    Returns:
        What the last function returns; a coroutine of that if one of them is a coroutine function.

    Raises:
        ValueError: for other arguments.
    """
    if use_reentrant is None:
        warnings.warn(
            f"asyncgrad.utils.checkpoint.checkpoint_sequential: {_PASS_IT}",
            UserWarning,
            stacklevel=2,
        )
        use_reentrant = True
    if kwargs:
        raise ValueError(f"Unexpected keyword arguments: {','.join(kwargs)}")
    chain = tuple(functions)
    size = len(chain) // segments
    starts = range(0, size * (segments - 1), size) if size else range(0)
    parts = [_in_a_row(chain[start : start + size]) for start in starts]
    last = _in_a_row(chain[len(parts) * size :])

    def call(part: Any, value: Any) -> Any:
        return checkpoint(
            part, value, use_reentrant=use_reentrant, preserve_rng_state=preserve_rng_state
        )

    if any(map(is_coroutine_function, chain)):
        return _sequential_later(parts, last, call, input)
    for part in parts:
        input = call(part, input)
    return last(input)


async def _sequential_later(parts: Any, last: Any, call: Any, value: Any) -> Any:
    for part in parts:
        value = call(part, value)
        if inspect.isawaitable(value) and not isinstance(value, Variable):
            value = await value
    value = last(value)
    return await value if inspect.iscoroutine(value) else value


def _in_a_row(functions: tuple[Any, ...]) -> Callable[[Any], Any]:
    """Functions as one, a coroutine function if one of them is."""
    if any(map(is_coroutine_function, functions)):

        async def later(value: Any) -> Any:
            for function in functions:
                value = function(value)
                if inspect.isawaitable(value) and not isinstance(value, Variable):
                    value = await value
            return value

        return later

    def now(value: Any) -> Any:
        for function in functions:
            value = function(value)
        return value

    return now
