"""How an entry of the table of derivatives is written down.

An entry says how a function is computed from arrays and how its gradient is pulled back. What a
rule needs is said by the names of its parameters, read once:

    x, y, ...        an input's values, as named by the forward function
    out              the output's values
    x_shape, x_dtype the shape or dtype of an input; nothing of its values is kept
    out_shape        the shape of the output
    any other name   the attribute of the forward function with that name

What is not named is not kept, and nothing is kept or computed for an input that needs no gradient.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from asyncgrad.records import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Of functions that take whatever they are given.
_OPEN_ENDED = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


class Part(NamedTuple):
    """A pull or push: the names of what it needs, and `function(F, gradient, *values)`."""

    names: tuple[str, ...]
    function: Callable[..., Any]


#: Of functions without derivatives.
_NO_PARTS: Mapping[str, Part] = {}


class Op(NamedTuple):
    """One function of the table."""

    name: str
    #: The raw function: the name of a library function, or `forward(xp, inputs..., attributes...)`.
    forward: Any
    #: The names of the tensor inputs. A star marks one sequence of tensors.
    inputs: tuple[str, ...]
    #: The names of the attributes that follow the inputs.
    attributes: tuple[str, ...] = ()
    #: For each differentiable input: `pull(F, g, ...)` gives its gradient.
    pulls: Mapping[str, Part] = _NO_PARTS
    #: For each differentiable input: `push(F, t, ...)` gives the output's tangent.
    pushes: Mapping[str, Part] = _NO_PARTS
    #: The inputs are broadcast against one another; the engine undoes it in the gradients.
    broadcasts: bool = False
    #: The output shares the input's memory, and its gradient is a view of the output's.
    view: bool = False
    #: What pulls return is new and nobody else's.
    fresh: bool = True
    #: With one pull: what it returns is the gradient itself or a writeable view of all of it.
    passes: bool = False
    #: Numbers of outputs: 1, or None where it depends on the call.
    outputs: int | None = 1
    #: How many inputs the node has, where numbers count as such; None for those of `inputs`.
    arity: int | None = None
    #: PyTorch's name of the node.
    node: str = ""
    #: The attribute that the node's name depends on, and how.
    variant: tuple[str, Callable[[Any], str]] | None = None
    #: Inputs that PyTorch's node has a place for, although no gradient ever needs them.
    keepable: tuple[str, ...] = ()
    #: Attributes and inputs that PyTorch's node keeps as tensors, where this one keeps no arrays:
    #: they are gone when it has run, and it can't run again.
    frees: tuple[str, ...] = ()
    #: The output is saved, but may change in place: it is then computed again for the gradient.
    renews: bool = False
    #: A faster way to the gradient on arrays alone: `kernel(xp, g, saved)`.
    kernel: Callable[..., Any] | None = None
    #: The gradients by several inputs in one call, `together(F, g, wanted, ...)` with the names of
    #: the wanted inputs and all that the pulls need; it answers with a tuple.
    together: Callable[..., Any] | None = None
    #: Nanoseconds of a call, from the shapes of the inputs; None for an elementwise function.
    cost: Callable[..., int] | None = None

    def __eq__(self, other: object) -> bool:
        """An entry is equal to itself alone."""
        return self is other

    def __hash__(self) -> int:
        """As it is compared."""
        return id(self)

    @property
    def node_name(self) -> str:
        """The node's name: PyTorch's, or made of the function's name."""
        return self.node or "".join(p.capitalize() for p in self.name.split("_")) + "Backward0"


def _parameters(function: Any) -> tuple[str, ...]:
    """The names of a function's parameters; plain functions are not worth `inspect`'s time."""
    plain = function
    while hasattr(plain, "__wrapped__"):
        plain = plain.__wrapped__
    code = getattr(plain, "__code__", None)
    if code is None or code.co_flags & _OPEN_ENDED:
        return tuple(inspect.signature(function).parameters)
    return tuple(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def part(rule: Callable[..., Any]) -> Part:
    """A rule `rule(F, g, ...)` with the names of what it needs."""
    return Part(_parameters(rule)[2:], rule)


def factor(d: Callable[..., Any]) -> Part:
    """The pull of a local derivative `d(F, ...)`: the gradient times its conjugate."""
    names = _parameters(d)[1:]
    if len(names) == 1:
        return Part(names, lambda F, g, value: F.chain(g, d(F, value)))
    if len(names) == 2:
        return Part(names, lambda F, g, value, other: F.chain(g, d(F, value, other)))
    return Part(names, lambda F, g, *values: F.chain(g, d(F, *values)))


def tangent(d: Callable[..., Any]) -> Part:
    """The push of a local derivative: the tangent times it."""
    names = _parameters(d)[1:]
    return Part(names, lambda F, t, *values: t * d(F, *values))


def unary(name: str, d: Callable[..., Any] | None = None, forward: Any = None, **more: Any) -> Op:
    """An elementwise function of one input.

    Args:
        name: PyTorch's name.
        d: the local derivative `d(F, x or out)`; None for a function without one.
        forward: the raw function, if the library's is not called `name`.
        more: fields of `Entry`.
    """
    return _elementwise(name, {"x": d}, forward, **more)


def binary(
    name: str,
    dx: Callable[..., Any] | None = None,
    dy: Callable[..., Any] | None = None,
    forward: Any = None,
    **more: Any,
) -> Op:
    """An elementwise function of two inputs, broadcast against one another.

    Args:
        name: PyTorch's name.
        dx: the local derivative by the first input, from any of `x`, `y` and `out`.
        dy: the same by the second.
        forward: the raw function, if the library's is not called `name`.
        more: fields of `Entry`.
    """
    return _elementwise(name, {"x": dx, "y": dy}, forward, broadcasts=True, **more)


def _elementwise(name: str, locals_: dict[str, Any], forward: Any, **more: Any) -> Op:
    known = {key: d for key, d in locals_.items() if d is not None}
    more.setdefault("pulls", {key: factor(d) for key, d in known.items()})
    more.setdefault("pushes", {key: tangent(d) for key, d in known.items()})
    return Op(name, forward or name, tuple(locals_), **more)


def linear(
    name: str,
    forward: Any,
    adjoint: Callable[..., Any],
    *,
    attributes: tuple[str, ...] = (),
    **more: Any,
) -> Op:
    """A linear function of one input, with its adjoint `adjoint(F, g, ...)`.

    Its forward-mode derivative is the function itself.
    """
    push = Part(attributes, lambda F, t, *values: getattr(F, name)(t, *values))
    return Op(
        name, forward, ("x",), attributes, pulls={"x": part(adjoint)}, pushes={"x": push}, **more
    )


def operation(
    name: str,
    forward: Any,
    inputs: str,
    attributes: str = "",
    *,
    pulls: Mapping[str, Callable[..., Any]] | None = None,
    pushes: Mapping[str, Callable[..., Any]] | None = None,
    together: Callable[..., Any] | None = None,
    **more: Any,
) -> Op:
    """A function written out: pulls `pull(F, g, ...)` and pushes `push(F, t, ...)` by input.

    Args:
        name: PyTorch's name.
        forward: the raw function, `forward(xp, inputs..., attributes...)` or a library's name.
        inputs: the names of the tensor inputs, separated by blanks.
        attributes: the names of the attributes that follow them.
        pulls: how the gradient goes back, for each differentiable input.
        pushes: how a tangent goes forward.
        together: takes the place of `pulls`: the gradients by all inputs.
        more: fields of `Entry`.
    """
    names = tuple(inputs.split())
    parts = {key: part(rule) for key, rule in (pulls or {}).items()}
    return Op(
        name,
        forward,
        names,
        tuple(attributes.split()),
        pulls=parts if together is None else {key: _alone(together, key) for key in names},
        pushes={key: part(rule) for key, rule in (pushes or {}).items()},
        together=together,
        **more,
    )


class Refused:
    """The pull of a function that PyTorch has no derivative of: it raises when it is needed."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        """Name the function."""
        self._name = name

    def __call__(self, F: Any, g: Any) -> Any:
        """Raise."""
        raise NotImplementedError(
            f"the derivative for '{self._name}' is not implemented. Detach what it is called with."
        )


def _alone(together: Callable[..., Any], key: str) -> Part:
    """The pull of one input, made of that of all."""
    names = _parameters(together)[3:]
    return Part(names, lambda F, g, *values: together(F, g, (key,), *values)[0])
