"""Checkpoints: recompute what a function saves for backward instead of keeping it.

`checkpoint(function, ...)` runs the function and keeps its arguments, not what its operations save.
When backward first asks for a saved tensor, the function runs again.

Non-reentrant checkpoints use saved-tensor hooks: a `Frame` represents the call and puts a `Holder`
in the place of each tensor. With `use_reentrant=True` the call is a `Function` whose backward runs
the function again and starts a pass of its own (`utils/reentrant.py`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial, reduce
from typing import Any, TypeVar

from asyncgrad.choices import DeterminismCheck, words
from asyncgrad.core.frames import warn
from asyncgrad.core.modes import Mode, current
from asyncgrad.core.recording import made_anew
from asyncgrad.core.variable import Variable
from asyncgrad.errors import AutogradError
from asyncgrad.ops.tensors.rng import generator_in_force
from asyncgrad.scheduler import waits
from asyncgrad.types import Tensor
from asyncgrad.utils.recomputation import CheckpointError, Frame
from asyncgrad.utils.reentrant import (
    CheckpointFunction,
    check_backward_validity,
    detach_variable,
)
from asyncgrad.utils.selection import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)

__all__ = [
    "CheckpointError", "CheckpointFunction", "CheckpointPolicy", "GraphExecGroup",
    "SelectiveCheckpointContext", "check_backward_validity", "checkpoint", "checkpoint_sequential",
    "create_selective_checkpoint_contexts", "detach_variable", "noop_context_fn",
    "set_checkpoint_debug_enabled", "set_checkpoint_early_stop",
]  # fmt: skip

_Result = TypeVar("_Result")
_PASS_IT = (
    "the use_reentrant parameter should be passed explicitly. use_reentrant=False is recommended; "
    "without it the default is True, as it always was."
)


def noop_context_fn() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """The default `context_fn`: empty contexts for both runs."""
    return nullcontext(), nullcontext()


def checkpoint(
    function: Callable[..., _Result], *args: object, use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
    determinism_check: DeterminismCheck = "default", debug: bool = False, early_stop: bool = True,
    preserve_rng_state: bool = True, **kwargs: object,
) -> _Result:  # fmt: skip
    """Call a function, and let backward run it again instead of keeping what it saves.

    Args:
        function: a function or module; or a coroutine function, whose result is then awaited.
        args: its arguments; tensors among them are kept.
        use_reentrant: run it again in a pass of its own. Then `grad()` and `inputs=` can't be
            used, one of the arguments has to require grad, and keyword arguments are refused.
        context_fn: returns two contexts, for the first and for the second run.
        determinism_check: "default" compares shape, dtype and device of the tensors that both
            runs save; "none" compares only their number.
        debug: show in a `CheckpointError` where both runs saved tensors.
        early_stop: stop the second run once it has computed everything needed.
        preserve_rng_state: let the second run draw the same random numbers. This never affects
            random numbers outside.
        kwargs: the function's keyword arguments.

    Returns:
        What the function returns; for a coroutine function, a coroutine.

    Raises:
        ValueError: if arguments exclude one another.
        CheckpointError: from the pass, if the second run saved other tensors than the first.

    Example:
        >>> from asyncgrad.utils.checkpoint import checkpoint
        >>> x = ag.tensor([2.0], requires_grad=True)
        >>> y = checkpoint(lambda x: ag.exp(x * x), x, use_reentrant=False)
        >>> _ = y.sum().backward()
        >>> round(x.grad.item(), 2)
        218.39
    """
    if use_reentrant is None:
        warn(f"asyncgrad.utils.checkpoint: {_PASS_IT}")
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
        result: _Result = CheckpointFunction.apply(function, preserve_rng_state, *args)
        return result
    settings = current().checkpoints or {}
    if settings.get("debug") is not None:
        debug = settings["debug"]
    if settings.get("early_stop") is not None:
        early_stop = settings["early_stop"]
    if debug and context_fn is not noop_context_fn:
        raise ValueError("debug=True is incompatible with non-default context_fn")
    if determinism_check not in words(DeterminismCheck):
        raise ValueError(
            f"determinism_check should be one of ['default', 'none'], but got {determinism_check}"
        )
    later = waits(function)
    if not current().grad:
        return function(*args, **kwargs)
    within, again = context_fn()
    frame = Frame(
        function,
        args,
        kwargs,
        again,
        made_anew(current().recorder, _source) if preserve_rng_state else None,
        early_stop=early_stop,
        compare=determinism_check == "default",
        places=[] if debug else None,
        later=later,
    )
    run: Any = _run_later if later else _run
    returned: _Result = run(frame, within)
    return returned


def _source() -> Any:
    """A copy of the random generator in force."""
    return generator_in_force().clone_state()


def _run(frame: Frame, within: AbstractContextManager[Any]) -> Any:
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


async def _run_later(frame: Frame, within: AbstractContextManager[Any]) -> Any:
    with Mode(saved_hooks=frame), within:
        # The mode is set in the context of the task that awaits: no other task sees it.
        result = await frame.function(*frame.given, **frame.kwargs)
        frame.complete()
        return result
    raise AutogradError(_SUPPRESSED)


_SUPPRESSED = (
    "checkpoint: the forward context provided by context_fn suppressed an exception raised during "
    "the checkpointed forward. This is not supported because checkpoint cannot return a value for "
    "a failed forward."
)


# -- settings -------------------------------------------------------------------------------------


class _Setting(Mode):
    """Overrides an argument of `checkpoint`, or says whom second runs serve, within a block."""

    def __init__(self, **setting: Any) -> None:
        super().__init__()
        self._setting = setting

    def __enter__(self) -> Any:
        """Override the argument; other overrides stay in force."""
        self._put({"checkpoints": {**(current().checkpoints or {}), **self._setting}})
        return self


class _Group:
    """Identifies passes that share second runs."""


class GraphExecGroup(_Setting):
    """Let all passes started within a block share recomputation: a checkpoint runs again only once.

    The passes have to use different parts of the graph: no two may need the same saved tensor, even
    with `retain_graph=True`. Checkpoints with `use_reentrant=True` ignore the group.

    Example:
        >>> from asyncgrad.utils.checkpoint import GraphExecGroup, checkpoint
        >>> x = ag.tensor(1.0, requires_grad=True)
        >>> y, z = checkpoint(lambda x: (x.sin(), x.sin().cos()), x, use_reentrant=False)
        >>> with GraphExecGroup():
        ...     _ = z.backward()
        ...     _ = y.backward()
    """

    def __init__(self) -> None:
        super().__init__()

    def __enter__(self) -> Any:
        """Enter a new group; raises RuntimeError inside of another one."""
        if "group" in (current().checkpoints or {}):
            raise AutogradError("GraphExecGroup contexts cannot be nested. Leave the outer one.")
        self._setting = {"group": _Group()}
        return super().__enter__()


def set_checkpoint_early_stop(enable: bool) -> Mode:
    """Override `early_stop` for all checkpoints made in this context, whatever the calls say."""
    return _Setting(early_stop=enable)


def set_checkpoint_debug_enabled(enabled: bool | None) -> Mode:
    """Override `debug` for all checkpoints made in this context; None leaves it to the calls."""
    return _Setting(debug=enabled)


# -- a sequence of functions ----------------------------------------------------------------------


def checkpoint_sequential(
    functions: Any, segments: int, input: Tensor, use_reentrant: bool | None = None, *,
    preserve_rng_state: bool = True, **kwargs: object,
) -> Any:  # fmt: skip
    """Call functions one after another in segments; all but the last are checkpoints.

    Args:
        functions: a `Sequential`, or a sequence of functions of one argument. If some are
            coroutine functions, the call returns a coroutine.
        input: the argument of the first function.
        use_reentrant, preserve_rng_state: as for `checkpoint`.
        kwargs: refused.
    """
    if use_reentrant is None:
        warn(f"asyncgrad.utils.checkpoint.checkpoint_sequential: {_PASS_IT}")
        use_reentrant = True
    if kwargs:
        raise ValueError(f"Unexpected keyword arguments: {','.join(kwargs)}")
    chain = tuple(functions)
    size = len(chain) // segments
    starts = range(0, size * (segments - 1), size) if size else range(0)
    parts = [_in_a_row(chain[start : start + size]) for start in starts]
    last = _in_a_row(chain[len(parts) * size :])
    checkpointed = partial(
        checkpoint, use_reentrant=use_reentrant, preserve_rng_state=preserve_rng_state
    )
    steps = [partial(checkpointed, part) for part in parts]
    return _in_a_row((*steps, last), awaits=any(map(waits, chain)))(input)


def _in_a_row(functions: tuple[Any, ...], *, awaits: bool = False) -> Callable[[Any], Any]:
    """One function that calls several; a coroutine function if one of them is, or `awaits`."""
    if awaits or any(map(waits, functions)):

        async def later(value: object) -> Any:
            for function in functions:
                value = function(value)
                if inspect.isawaitable(value) and not isinstance(value, Variable):
                    value = await value
            return value

        return later

    return lambda value: reduce(lambda result, function: function(result), functions, value)
