"""Add functions of your own to the table of derivatives.

An entry says how a function is computed from arrays, how gradients go back and how tangents go
forward; `register` makes a function on tensors from it. The function then supports double backward,
forward mode, hooks, checkpoints and all devices. The parameters of a rule say what is saved:

    F               the namespace: functions of arrays; of tensors in a pass with create_graph
    g, t            the incoming gradient, or tangent
    x, y, ...       the value of an input, as `inputs` names it
    out             the value of the result
    x_shape, x_dtype, out_shape
    any other name  an attribute of the call

Docs: docs/extend.md. For a function whose backward waits for something, use
`asyncgrad.autograd.Function`. A composition of other functions needs neither.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from asyncgrad.ops import op as _entry
from asyncgrad.ops.op import Op as Entry
from asyncgrad.ops.op import binary, unary
from asyncgrad.ops.promotion import (
    as_tensor_operand,
    cast,
    category,
    check_device,
    default_dtype,
    result_dtype,
)
from asyncgrad.ops.registry import add_op

__all__ = ["Entry", "binary", "linear", "operation", "register", "unary"]


def linear(
    name: str, forward: Callable[..., Any], adjoint: Callable[..., Any], *,
    attributes: tuple[str, ...] = (), fresh: bool = False, **more: Any,
) -> Entry:  # fmt: skip
    """An entry for a linear function of one tensor; its tangent is the function of the tangent.

    Args:
        name: its name; other rules call it as `F.name(...)`.
        forward: `forward(xp, x, attributes...)` on arrays of the array library `xp`.
        adjoint: `adjoint(F, g, ...)`, the gradient of `x`.
        attributes: the names of the arguments that follow `x`.
        fresh: `adjoint` always returns a new array that nothing else refers to, so that it may
            become a `.grad` without a copy.
        more: further fields of `Entry`.
    """
    # What the names of its attributes mean is not known.
    more.setdefault("batch", None)
    return _entry.linear(name, forward, adjoint, attributes=attributes, fresh=fresh, **more)


def operation(
    name: str, forward: Callable[..., Any], inputs: str, attributes: str = "", *,
    pulls: Mapping[str, Callable[..., Any]] | None = None,
    pushes: Mapping[str, Callable[..., Any]] | None = None, fresh: bool = False, **more: Any,
) -> Entry:  # fmt: skip
    """An entry for any function, with its derivatives written out.

    Args:
        name: its name; other rules call it as `F.name(...)`.
        forward: `forward(xp, inputs..., attributes...)` on arrays of the array library `xp`.
        inputs: the names of the tensors, separated by blanks.
        attributes: the names of the arguments that follow them.
        pulls: for each differentiable input `pull(F, g, ...)`, which gives its gradient.
        pushes: for each differentiable input `push(F, t, ...)`, which gives the result's tangent.
        fresh: pulls always return new arrays that nothing else refers to.
        more: further fields of `Entry`.
    """
    # What the names of its attributes mean is not known.
    more.setdefault("batch", None)
    return _entry.operation(
        name, forward, inputs, attributes, pulls=pulls, pushes=pushes, fresh=fresh, **more
    )


def register(entry: Entry, doc: str = "") -> Callable[..., Any]:
    """Add an entry to the table, and make a function on tensors from it.

    Args:
        entry: made by `unary`, `binary`, `linear` or `operation`.
        doc: the function's docstring.

    Returns:
        A function of the inputs and the attributes, by position or name. Integers among the
        differentiable inputs become floating-point, and these inputs get their common dtype.

    Raises:
        ValueError: if the name is taken, or a rule has an unknown parameter.

    Example:
        >>> from asyncgrad import extend
        >>> cube = extend.register(
        ...     extend.unary("cube", lambda F, x: 3 * x * x, lambda xp, x: x * x * x)
        ... )
        >>> x = ag.tensor(2.0, requires_grad=True)
        >>> _ = cube(x).backward()
        >>> x.grad.item()
        12.0
    """
    dispatch = add_op(entry)
    function = (
        dispatch if entry.inputs == ("*xs",) or entry.broadcasts else _checked(entry, dispatch)
    )
    function.__name__ = function.__qualname__ = entry.name
    function.__doc__ = doc or f"The function `{entry.name}` of {', '.join(entry.inputs)}."
    return function


def _checked(entry: Entry, dispatch: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with a wrapper that binds arguments and gives its tensors a common dtype."""
    signature = _signature(entry)
    name = entry.name
    arity = len(entry.inputs)
    places = [place for place, key in enumerate(entry.inputs) if key in entry.pulls]

    def function(*args: object, **kwargs: object) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}(): {error}") from None
        bound.apply_defaults()
        values = list(bound.args)
        tensors = [as_tensor_operand(x, name, n) for n, x in enumerate(values[:arity], 1)]
        check_device(name, *tensors)
        if places:
            dtype = result_dtype(*(tensors[place] for place in places))
            if category(dtype) < 2:
                dtype = default_dtype()
            for place in places:
                tensors[place] = cast(tensors[place], dtype)
        try:
            return dispatch(*tensors, *values[arity:])
        except ValueError as error:
            given = ", ".join(
                f"{key} is {x._metadata!r}" for key, x in zip(entry.inputs, tensors, strict=True)
            )
            raise RuntimeError(f"{name}: {error} ({given})") from error

    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _signature(entry: Entry) -> inspect.Signature:
    """The inputs as parameters, then the attributes with their defaults in `forward`."""
    known: Mapping[str, inspect.Parameter] = {}
    if callable(entry.forward):
        known = inspect.signature(entry.forward).parameters
    parameters = [
        inspect.Parameter(key, inspect.Parameter.POSITIONAL_OR_KEYWORD) for key in entry.inputs
    ]
    for key in entry.attributes:
        default = known[key].default if key in known else inspect.Parameter.empty
        parameters.append(
            inspect.Parameter(key, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)
        )
    return inspect.Signature(parameters)
