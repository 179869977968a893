"""How an op, a row of the table of derivatives, is written.

An op says how a function is computed from arrays and how its gradient is pulled back. The parameter
names of a rule say which values it needs:

    x, y, ...        an input's values, as named by the forward function
    out              the output's values
    x_shape, x_dtype the shape or dtype of an input; none of its values are saved
    out_shape        the shape of the output
    any other name   the attribute of the forward function with that name

Other values are not saved. Nothing is saved or computed for an input that needs no gradient.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from asyncgrad.ops import batch_rules
from asyncgrad.ops.fused import compiled
from asyncgrad.ops.widening import rounding_once
from asyncgrad.records import NamedTuple

#: Flags of functions with `*args` or `**kwargs`.
_OPEN_ENDED = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


class Part(NamedTuple):
    """A pull or push: the names of the values it needs, and `function(F, gradient, *values)`."""

    names: tuple[str, ...]
    function: Callable[..., Any]
    #: The local derivative `local(F, *values)`, if the function multiplies the gradient by it.
    local: Callable[..., Any] | None = None
    #: For arrays of real dtypes `kernel(xp, gradient, *values)` is called instead of the function.
    kernel: Callable[..., Any] | None = None


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
    #: Inputs are broadcast against one another; the engine sums gradients back to their shapes.
    broadcasts: bool = False
    #: The output shares the input's memory, and its gradient is a view of the output's.
    view: bool = False
    #: Whether pulls return new arrays that nothing else refers to.
    fresh: bool = True
    #: With one pull: whether it returns the gradient itself or a writeable view of all of it.
    passes: bool = False
    #: The node's number of inputs, numbers included; None means those of `inputs`.
    arity: int | None = None
    #: PyTorch's name of the node; empty if it follows from the op's name.
    node: str = ""
    #: The attribute that decides the node's name, and the function that maps it to the name.
    variant: tuple[str, Callable[[Any], str]] | None = None
    #: Inputs that PyTorch's node could save, although no gradient here needs them.
    keepable: tuple[str, ...] = ()
    #: Attributes and inputs that PyTorch's node saves as tensors, where this one saves no arrays.
    #: The node frees them when it has run, so it can't run again.
    frees: tuple[str, ...] = ()
    #: The output is saved but may change in place: it is then computed again for the gradient. The
    #: op has one pull: two could run in two threads, and each would replace what is saved.
    renews: bool = False
    #: A faster pull for arrays of real dtypes: `kernel(xp, g, saved)`.
    kernel: Callable[..., Any] | None = None
    #: `leaving_slope(xp, x)` returns what `forward` does, and leaves in x what `kernel` multiplies
    #: the gradient by, bit for bit; for contiguous arrays of at least single precision.
    leaving_slope: Callable[..., Any] | None = None
    #: All gradients in one call, `together(F, g, wanted, ...)`: gets the names of the inputs that
    #: require grad and all values that the pulls need, and returns a tuple.
    together: Callable[..., Any] | None = None
    #: Nanoseconds that the gradients are expected to take: for four bytes of the result, for those
    #: of real and of complex results, or for all, computed from the inputs and attributes.
    cost: int | tuple[int, int] | Callable[..., int] = 1
    #: How `vmap` computes it: a rule of `batch_rules`; None means one example at a time. For a row
    #: without this field, the names of its attributes decide (`by_attributes`).
    batch: Callable[..., Any] | None = None
    #: What operands are promoted to: "floating" (integers become the default dtype), "integer"
    #: (booleans become int64) or "any".
    promotes: Literal["floating", "integer", "any"] = "floating"
    #: Which of two operands may be Python numbers; operators take a number on either side, unless
    #: it is "none".
    numbers: Literal["none", "second", "either", "both"] = "second"
    #: Raises for operands that the function refuses.
    check: Callable[..., None] | None = None
    #: The operands may be exchanged.
    commutes: bool = False
    #: Numbers are compared as they are, whether or not they fit the tensor's dtype.
    exact: bool = False
    #: The result of floating operands may have another dtype than they.
    changes_dtype: bool = False
    #: Complex arrays are refused, although the library's function takes them.
    of_real: bool = False
    #: On a device, indices among the arguments may be in host memory.
    host_indices: bool = False
    #: `compile` may replay the op: the public function that calls it reads no values of tensors
    #: without reporting that, and the op changes no memory.
    repeats: bool = True
    #: The function may raise for some values: `compile` calls it even if nothing uses the result.
    raises: bool = False
    #: The docstring of the public function that is made from the row; empty if there is none, or
    #: it is written out in `ops.api`.
    doc: str = ""
    #: Where users find that function: its names below `asyncgrad`, separated by blanks. Empty means
    #: the op's name. A function without a dot is also a method of tensors.
    public: str = ""
    #: The method has an in-place form, such as `exp_`.
    in_place: bool = True
    #: The function has an argument `out`, which must have the result's dtype if `exact_out`.
    out: bool = True
    exact_out: bool = False
    #: Half precision is computed in float32 and rounded once; with "host" so on the CPU alone.
    wide: bool | Literal["host"] = False

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    @property
    def node_name(self) -> str:
        """The node's name: PyTorch's, or derived from the op's name."""
        return self.node or "".join(p.capitalize() for p in self.name.split("_")) + "Backward0"


def parameters(function: Any) -> tuple[str, ...]:
    """A function's parameter names, read off its code where possible: `inspect` is slow."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or code.co_flags & _OPEN_ENDED:
        return tuple(inspect.signature(function).parameters)
    return tuple(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def _attributes(forward: Any, inputs: tuple[str, ...]) -> tuple[str, ...]:
    """The names of a raw function's arguments that follow its inputs and have no default."""
    forward = inspect.unwrap(forward)
    code = getattr(forward, "__code__", None)
    if code is None or code.co_flags & _OPEN_ENDED:
        return ()
    names = code.co_varnames[: code.co_argcount - len(forward.__defaults__ or ())]
    return tuple(names[names.index(inputs[-1]) + 1 :]) if inputs[-1] in names else ()


def part(rule: Callable[..., Any] | Part) -> Part:
    """Wrap a rule `rule(F, g, ...)` with the names of the values it needs."""
    return rule if isinstance(rule, Part) else Part(parameters(rule)[2:], rule)


def _parts(rules: Mapping[str, Callable[..., Any] | Part]) -> dict[str, Part]:
    return {key: part(rule) for key, rule in rules.items()}


def fused(kernel: Callable[..., Any], rule: Callable[..., Any]) -> Part:
    """A pull that calls `kernel(xp, g, ...)` for real dtypes and the rule for everything else."""
    return Part(parameters(rule)[2:], rounding_once(rule), kernel=kernel)


def fused_together(
    kernel: Callable[..., Any], rule: Callable[..., Any] | Mapping[str, Callable[..., Any]]
) -> Callable[..., Any]:
    """Like `fused`, for all gradients in one call.

    Args:
        kernel: `kernel(xp, g, wanted, ...)`, whose parameters say what is saved.
        rule: `rule(F, g, wanted, ...)`, or a rule `(F, g, ...)` for each input.
    """

    def by_rules(F: Any, g: Any, wanted: tuple[str, ...], *values: Any) -> Any:
        return tuple([rule[name](F, g, *values) for name in wanted])  # type: ignore[index]

    follow = rounding_once(by_rules if isinstance(rule, Mapping) else rule)

    def together(F: Any, g: Any, wanted: tuple[str, ...], *values: Any) -> Any:
        return kernel(F.xp, g, wanted, *values) if F.fused else follow(F, g, wanted, *values)

    together.__wrapped__ = kernel  # type: ignore[attr-defined]  # for `parameters`
    return together


def compiled_or(name: str, rule: Callable[..., Any]) -> Part:
    """A pull that calls a compiled kernel where there is one, and the rule elsewhere."""
    follow = rounding_once(rule)

    def pull(F: Any, g: Any, *values: Any) -> Any:
        if F.fused and F.xp.compiled:
            made = compiled(F.xp, name, g, *values)
            if made is not NotImplemented:
                return made
        return follow(F, g, *values)

    return Part(parameters(rule)[2:], pull)


class Reciprocal(NamedTuple):
    """A local derivative `1 / d(F, ...)`: gradients are divided by `d`.

    Where `d` is denormal, `1 / d` is infinite, and its product with a gradient of 0 is NaN.
    """

    d: Callable[..., Any]


def factor(d: Callable[..., Any] | Reciprocal) -> Part:
    """The pull of a local derivative `d(F, ...)`: the gradient times the derivative's conjugate."""
    if isinstance(d, Reciprocal):
        below = d.d
        return Part(parameters(below)[1:], lambda F, g, *values: _divided(F, g, below(F, *values)))
    return Part(parameters(d)[1:], lambda F, g, *values: F.chain(g, d(F, *values)), d)


def _divided(F: Any, g: Any, divisor: Any) -> Any:
    return F.div(g, F.conj(divisor) if divisor.dtype.kind == "c" else divisor)


def tangent(d: Callable[..., Any] | Reciprocal) -> Part:
    """The push of a local derivative: the tangent times the derivative."""
    if isinstance(d, Reciprocal):
        below = d.d
        return Part(parameters(below)[1:], lambda F, t, *values: F.div(t, below(F, *values)))
    names = parameters(d)[1:]
    return Part(names, lambda F, t, *values: t * d(F, *values))


def unary(
    name: str, d: Callable[..., Any] | Reciprocal | None = None, forward: Any = None, **more: Any
) -> Op:
    """An elementwise op with one input.

    Args:
        name: PyTorch's name.
        d: the local derivative `d(F, x or out)`, or a `Reciprocal`; None for an op
            without one.
        forward: the raw function `forward(xp, x)`, or the library's name of it, if not `name`.
        more: fields of `Op`; `linear=True` pushes tangents by the rules that pull gradients.
    """
    return _elementwise(name, {"x": d}, forward, **more)


def binary(
    name: str, dx: Callable[..., Any] | Reciprocal | None = None,
    dy: Callable[..., Any] | None = None, forward: Any = None, **more: Any,
) -> Op:  # fmt: skip
    """An elementwise op with two inputs, broadcast against one another.

    The arguments are those of `unary`, with the local derivatives by the first and second input.
    """
    return _elementwise(name, {"x": dx, "y": dy}, forward, broadcasts=True, **more)


def _elementwise(name: str, locals_: dict[str, Any], forward: Any, **more: Any) -> Op:
    known = {key: d for key, d in locals_.items() if d is not None}
    more.setdefault("batch", batch_rules.broadcast if len(locals_) > 1 else batch_rules.same)
    pulls = more.setdefault("pulls", {key: factor(d) for key, d in known.items()})
    more.setdefault("pushes", {key: tangent(d) for key, d in known.items()})
    if not pulls:
        more.setdefault("promotes", "any")
    if "kernel" in more and known:
        # The rule rounds half precision once, as the kernel does.
        more["pulls"] = {
            key: each._replace(function=rounding_once(each.function), local=None)
            for key, each in pulls.items()
        }
    return operation(name, forward or name, " ".join(locals_), **more)


def linear(name: str, forward: Any, adjoint: Callable[..., Any], **more: Any) -> Op:
    """A linear op with one input and its adjoint `adjoint(F, g, ...)`.

    Its push is the function itself. If no attributes are given, `forward` names them.
    """
    return operation(name, forward, pulls={"x": adjoint}, multilinear=True, **more)


def _multilinear_pushes(
    name: str, inputs: tuple[str, ...], attributes: tuple[str, ...], wanted: Iterable[str]
) -> dict[str, Part]:
    """The pushes of a function that is linear in some inputs: a tangent takes its input's place."""

    def push(place: int) -> Part:
        names = (*inputs[:place], *inputs[place + 1 :], *attributes)
        return Part(names, lambda F, t, *values: getattr(F, name)(
            *values[:place], t, *values[place:]
        ))  # fmt: skip

    return {key: push(inputs.index(key)) for key in wanted}


def operation(
    name: str, forward: Any, inputs: str = "x", attributes: str | Iterable[str] | None = None, *,
    pulls: Mapping[str, Callable[..., Any] | Part] | None = None,
    pushes: Mapping[str, Callable[..., Any] | Part] | None = None,
    together: Callable[..., Any] | None = None, linear: bool = False, multilinear: bool = False,
    **more: Any,
) -> Op:  # fmt: skip
    """An op with explicit pulls `pull(F, g, ...)` and pushes `push(F, t, ...)` by input.

    Args:
        name: PyTorch's name.
        forward: the raw function `forward(xp, inputs..., attributes...)`, or a library's name of
            it.
        inputs: the names of the tensor inputs, separated by blanks.
        attributes: the names of the attributes that follow them, in a sequence or separated by
            blanks; if None, those of `forward`.
        pulls: the pull of each differentiable input.
        pushes: the push of each differentiable input.
        linear: tangents are pushed by the same rules as gradients are pulled.
        multilinear: the function is linear in each input that has a pull, so its pushes are the
            function itself with the tangent in the input's place.
        together: computes all gradients in one call. If there are `pulls`, too, these compute
            some of them, and what they need together is what this function needs.
        more: fields of `Op`.
    """
    names = tuple(inputs.split())
    if attributes is None:
        attributes = _attributes(forward, names)
    options = tuple(attributes.split() if isinstance(attributes, str) else attributes)
    more.setdefault("batch", batch_rules.by_attributes(options))
    # What passes a gradient on makes no new array.
    more.setdefault("fresh", not more.get("passes"))
    parts = _parts(pulls or {})
    if more.get("renews") and len(parts) > 1:
        raise ValueError(f"{name}: an op that renews its output has one pull, not {list(parts)}")
    pushed = parts if linear else _parts(pushes or {})
    if together is not None or any(each.kernel is not None for each in parts.values()):
        pushed = {
            key: each._replace(function=rounding_once(each.function))
            for key, each in pushed.items()
        }
    return Op(
        name,
        forward,
        names,
        options,
        pulls=parts if together is None or parts else {key: _alone(together, key) for key in names},
        pushes=_multilinear_pushes(name, names, options, parts) if multilinear else pushed,
        together=together,
        **more,
    )


class Refused:
    """The pull of an op that has no derivative in PyTorch: it raises when it is called."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, F: Any, g: Any) -> Any:
        """Raise NotImplementedError."""
        raise NotImplementedError(
            f"the derivative for '{self._name}' is not implemented. Detach what it is called with."
        )


def _alone(together: Callable[..., Any], key: str) -> Part:
    """The pull of one input, made of the function that computes all gradients."""
    names = parameters(together)[3:]
    return Part(names, lambda F, g, *values: together(F, g, (key,), *values)[0])
