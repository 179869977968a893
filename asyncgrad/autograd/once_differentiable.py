"""`once_differentiable`: a decorator for backwards that can't be differentiated again."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeVar, cast

from asyncgrad.core.modes import Mode, current
from asyncgrad.core.node import Edge, Node, init_node
from asyncgrad.core.variable import Variable, autograd_meta, gradient_edge, requires_grad, wrap
from asyncgrad.errors import AutogradError
from asyncgrad.ops.promotion import category

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncgrad.aliases import Value

_F = TypeVar("_F", bound="Callable[..., Any]")


class Error(Node):
    """A node that raises an error when a gradient reaches it."""

    __slots__ = ("_message",)

    def __init__(self, message: str, results: Sequence[Any]) -> None:
        """Make a node for results that can't be differentiated, with new leaves as its inputs."""
        leaves = [wrap(x._array, x._metadata) if isinstance(x, Variable) else None for x in results]
        for one in leaves:
            if one is not None and category(one._metadata.dtype) >= 2:
                autograd_meta(one).requires_grad = True
        metadata = tuple([one._metadata for one in leaves if one is not None])
        following = tuple([None if one is None else gradient_edge(one) for one in leaves])
        init_node(self, following, metadata if len(metadata) > 1 else metadata[0])
        self._message = message

    def apply(self, gradients: tuple[Any, ...], task: Any) -> Any:
        """Raise the error."""
        raise AutogradError(self._message)


def once_differentiable(fn: _F) -> _F:
    """Decorate a `backward` whose result can't be differentiated again.

    The decorated function runs unrecorded. A pass that reaches its result raises an error.
    """
    if inspect.iscoroutinefunction(fn):

        @functools.wraps(fn)
        async def later(ctx: Any, *args: Value, **kwargs: Value) -> Any:
            recording = current().grad
            with Mode(grad=False):
                outputs = await fn(ctx, *args, **kwargs)
            return _refusing(outputs, args) if recording else outputs

        wrapper: Any = later
    else:

        @functools.wraps(fn)
        def now(ctx: Any, *args: Value, **kwargs: Value) -> Any:
            recording = current().grad
            with Mode(grad=False):
                outputs = fn(ctx, *args, **kwargs)
            return _refusing(outputs, args) if recording else outputs

        wrapper = now
    wrapper._once = True
    return cast("_F", wrapper)


def _refusing(outputs: Value, args: tuple[Any, ...]) -> Any:
    """The gradients; connected to an `Error` node if an argument requires grad."""
    if not any(isinstance(a, Variable) and requires_grad(a) for a in args):
        return outputs
    values = outputs if isinstance(outputs, tuple) else (outputs,)
    count = sum(isinstance(value, Variable) for value in values)
    if not count:
        return outputs
    error = Error(
        "trying to differentiate twice a function that was marked with @once_differentiable", values
    )
    edges = iter([error, *[Edge(error, number) for number in range(1, count)]])
    refusing = tuple(
        wrap(value._array, value._metadata, next(edges)) if isinstance(value, Variable) else value
        for value in values
    )
    return refusing if isinstance(outputs, tuple) else refusing[0]
