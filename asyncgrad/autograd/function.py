"""Custom functions: `Function`, whose subclasses define their own backward.

`apply` runs `forward` without recording and makes a node that runs `backward`. The node is also the
`ctx` argument of both. `apply` returns new tensors: the tensors that `forward` saw or kept on `ctx`
do not lead into the graph. So a graph never holds itself, and no reference cycle arises.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from inspect import isawaitable
from typing import Any, ClassVar, TypeVar, cast

from asyncgrad.aliases import Value
from asyncgrad.autograd.function_modes import apply_to_examples
from asyncgrad.autograd.function_node import Error, FunctionCtx, FunctionNode
from asyncgrad.autograd.function_results import connected
from asyncgrad.core.frames import warn
from asyncgrad.core.modes import Mode, current, install
from asyncgrad.core.node import Edge, as_stored, next_sequence_nr, renumber
from asyncgrad.core.variable import Variable, autograd_meta, gradient_edge, requires_grad, wrap
from asyncgrad.errors import AutogradError
from asyncgrad.ops.batching import level_of
from asyncgrad.ops.mode_hooks import tracking
from asyncgrad.ops.promotion import category
from asyncgrad.ops.tensors.pytree import flatten

__all__ = [
    "BackwardCFunction", "Function", "FunctionCtx", "InplaceFunction", "once_differentiable",
]  # fmt: skip

#: PyTorch's name of the base class of all `Function` nodes.
BackwardCFunction = FunctionNode


class FunctionMeta(type):
    """Gives each `Function` a node class of its own."""

    def __init__(cls, name: str, bases: tuple[type, ...], attributes: dict[str, Any]) -> None:
        super().__init__(name, bases, attributes)
        cls._backward_cls = type(f"{name}Backward", (FunctionNode,), {"_forward_cls": cls})
        cls._signature: inspect.Signature | None = None


def _overridable(method: Callable[..., Any]) -> Callable[..., Any]:
    """Tell type checkers that subclasses take arguments of their own."""
    return method


class Function(metaclass=FunctionMeta):
    """A function with its own backward: subclass it, and call `apply`.

    `forward`, `setup_context` and `backward` are static methods; `forward` and `backward` may be
    coroutine functions. With an `async def forward`, `apply` has to be awaited. While a pass waits
    for an `async def backward`, everything else that is ready runs.

    Example:
        >>> class Cube(ag.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_backward(x)
        ...         return x * x * x
        ...     @staticmethod
        ...     def backward(ctx, gradient):
        ...         (x,) = ctx.saved_tensors
        ...         return 3 * x * x * gradient
        >>> x = ag.tensor(2.0, requires_grad=True)
        >>> _ = Cube.apply(x).backward()
        >>> x.grad.item()
        12.0
    """

    #: The node class of this Function.
    _backward_cls: ClassVar[Any]
    _signature: ClassVar[inspect.Signature | None]

    #: Release the saved tensors as soon as `ctx.saved_tensors` has been read once.
    clear_saved_tensors_on_access = False
    #: `backward(ctx, gradients)` receives one list, which it may empty.
    boxed_grads_call = False
    #: Let `vmap` call `forward` for each example of the batch.
    generate_vmap_rule = False
    #: `backward` returns new arrays that nothing else refers to.
    fresh_gradients = False
    #: Tensors that `forward` computes and keeps on ctx are meant to be constants.
    constants_on_ctx = False

    def __init__(self, *args: Value, **kwargs: Value) -> None:
        warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all "
            f"static, so you should invoke them on the class itself. Instantiating an autograd "
            f"function will raise an error in a future version.",
            DeprecationWarning,
        )

    def __call__(self, *args: Value, **kwargs: Value) -> Any:
        """Refuse: call `apply` instead."""
        raise AutogradError(
            "Legacy autograd function with non-static forward method is deprecated. Please use "
            "new-style autograd function with static forward method, and call its apply()."
        )

    @staticmethod
    @_overridable
    def forward(*args: Value, **kwargs: Value) -> Any:
        """Compute the results: `forward(ctx, ...)`, or `forward(...)` beside `setup_context`."""
        raise NotImplementedError(
            "You must implement the forward function for custom autograd.Function."
        )

    @staticmethod
    @_overridable
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Value) -> Any:
        """Save on ctx what `backward` needs; called after a `forward` that takes no ctx."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    @_overridable
    def backward(ctx: Any, *grad_outputs: Value) -> Any:
        """The gradients of the arguments of `forward`, from the gradients of its results."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom "
            "autograd.Function to use it with backward mode AD."
        )

    vjp = backward

    @staticmethod
    @_overridable
    def jvp(ctx: Any, *grad_inputs: Value) -> Any:
        """The tangents of the results, from the tangents of the arguments of `forward`."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with "
            "forward mode AD."
        )

    @staticmethod
    @_overridable
    def vmap(info: Any, in_dims: Any, *args: Value) -> Any:
        """The results for a batch of arguments, and the batch axis of each result."""
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod "
            "or set generate_vmap_rule=True."
        )

    @classmethod
    def apply(cls, *args: Value, **kwargs: Value) -> Any:
        """Run `forward`, and record the node for `backward`.

        Args:
            args: the arguments of `forward` after `ctx`; gradients are computed for tensors.
            kwargs: arguments by the names they have in `forward`.

        Returns:
            What `forward` returns, with its tensors connected to the graph; an awaitable of it if
            `forward` is a coroutine function.
        """
        separate = cls.setup_context is not Function.setup_context
        if kwargs or separate:
            args = cls._bound(args, kwargs, separate)
        found = current()
        if found.batch is not None and (level := level_of(flatten(args)[0])) is not None:
            rule = None if cls.vmap is Function.vmap else cls.vmap
            return apply_to_examples(cls, rule, level, args, separate=separate)
        if found.recorder is not None:
            return found.recorder.function(cls, args)
        ctx = cls._backward_cls()
        ctx.needs_input_grad = tuple(
            [isinstance(value, Variable) and requires_grad(value) for value in args]
        )
        recording = found.grad and True in ctx.needs_input_grad
        seen = None
        if recording and not cls.constants_on_ctx:
            seen = [a for a in args if isinstance(a, Variable) and requires_grad(a)]
        install(found.replace(grad=False, forward=False, tracking=seen is not None))
        try:
            with tracking(seen) as computed:
                output = cls.forward(*args) if separate else cls.forward(ctx, *args)
                if isawaitable(output) and not isinstance(output, Variable):
                    waiting = cast("Any", output)
                    number = next_sequence_nr()
                    return cls._apply_later(ctx, args, waiting, recording, seen, number)
                if separate:
                    cls.setup_context(ctx, args, output)
        finally:
            install(found)
        return connected(ctx, args, output, computed, recording=recording, separate=separate)

    @classmethod
    async def _apply_later(
        cls, ctx: FunctionNode, args: tuple[Any, ...], waiting: Coroutine[Any, Any, Any],
        recording: bool, seen: list[Any] | None, number: int,
    ) -> Any:  # fmt: skip
        """The second half of `apply`, for a `forward` that is a coroutine function.

        The node is numbered by the call. Else gradients of calls that wait at the same time would
        be summed in the order in which these end.
        """
        separate = cls.setup_context is not Function.setup_context
        unrecorded = Mode(grad=False, forward=False, tracking=seen is not None)
        # The mode is set in the context of the task that awaits: no other task sees it.
        with unrecorded, tracking(seen) as computed:
            output = await waiting
            if separate:
                cls.setup_context(ctx, args, output)
        results = connected(ctx, args, output, computed, recording=recording, separate=separate)
        if recording:
            renumber(ctx, number)
        return results

    @classmethod
    def _chosen_backward(cls) -> Callable[..., Any]:
        if cls.vjp is Function.vjp:
            return cls.backward
        if cls.backward is not Function.backward:
            raise AutogradError(
                "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. "
                "You should only implement one of them."
            )
        return cls.vjp

    @classmethod
    def _bound(
        cls, args: tuple[Any, ...], kwargs: dict[str, Any], separate: bool
    ) -> tuple[Any, ...]:
        signature = cls._signature
        if signature is None:
            signature = cls._signature = inspect.signature(cls.forward)
        bound = (
            signature.bind(*args, **kwargs) if separate else signature.bind(None, *args, **kwargs)
        )
        if separate:
            bound.apply_defaults()
        if bound.kwargs:
            raise TypeError(
                f"{cls.__name__}.apply() got an unexpected keyword argument "
                f"'{next(iter(bound.kwargs))}': forward()'s parameters have to be positional"
            )
        return bound.args if separate else bound.args[1:]


class InplaceFunction(Function):
    """An old name of `Function`, which behaves the same."""


_F = TypeVar("_F", bound="Callable[..., Any]")


# -- backwards that can't be differentiated again ------------------------------------------------


def once_differentiable(fn: _F) -> _F:
    """Decorate a `backward` whose result can't be differentiated again.

    The decorated function runs unrecorded. A pass that reaches its result raises an error.
    """
    unrecorded: Any = Mode(grad=False)(fn)
    wrapper: Any
    if inspect.iscoroutinefunction(fn):

        async def wrapper(ctx: Any, *args: Value, **kwargs: Value) -> Any:
            recording = current().grad
            return _refusing(await unrecorded(ctx, *args, **kwargs), args, recording)

    else:

        def wrapper(ctx: Any, *args: Value, **kwargs: Value) -> Any:
            recording = current().grad
            return _refusing(unrecorded(ctx, *args, **kwargs), args, recording)

    wrapper._once = True
    return cast("_F", functools.wraps(fn)(wrapper))


def _refusing(outputs: Value, args: tuple[Any, ...], recording: bool) -> Any:
    """The gradients; connected to an `Error` node if they would be recorded."""
    if not (recording and any(isinstance(a, Variable) and requires_grad(a) for a in args)):
        return outputs
    values = outputs if isinstance(outputs, tuple) else (outputs,)
    metadata = tuple([value._metadata for value in values if isinstance(value, Variable)])
    if not metadata:
        return outputs
    error = Error(
        tuple(map(_new_edge, values)),
        metadata if len(metadata) > 1 else metadata[0],
        "trying to differentiate twice a function that was marked with @once_differentiable",
    )
    edges = (as_stored(Edge(error, number)) for number in range(error.num_inputs))
    refusing = tuple(
        wrap(value._array, value._metadata, next(edges)) if isinstance(value, Variable) else value
        for value in values
    )
    return refusing if isinstance(outputs, tuple) else refusing[0]


def _new_edge(value: Value) -> Any:
    """The edge of a new leaf in the place of a tensor."""
    if not isinstance(value, Variable) or category(value._metadata.dtype) < 2:
        return None
    leaf = wrap(value._array, value._metadata)
    autograd_meta(leaf).requires_grad = True
    return gradient_edge(leaf)
