"""Modules that are a function of `nn.functional` and its options.

Such a module declares its function and, as the arguments of `__init__`, its options. The options
become attributes, are shown by `repr`, and are passed on by `forward` to the arguments of their
names. `forward` is compiled at its first call, from a line of source that tracebacks and
`inspect.getsource` show. It takes the first argument of the function. If the class, or a base, has
a `forward` without statements, it takes that one's arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from asyncgrad.core.variable import Variable
from asyncgrad.nn import functional as F
from asyncgrad.nn.module import Module
from asyncgrad.ops.generated import compiled, postponed, show
from asyncgrad.types import Tensor

#: Arguments of `__init__` that are not kept: about the parameters, or deprecated.
_NOT_KEPT = {
    "device", "dtype", "bias", "_weight", "_freeze", "size_average", "reduce", "min_value",
    "max_value",
}  # fmt: skip


class FunctionModule(Module):
    """The base of modules that are a function of `nn.functional` and its options.

    Class arguments; those that a subclass does not give are inherited:
        function: what `forward` calls; without it, the class or a subclass has a `forward`.
        members: parameters and buffers that are passed on, as the options are.
        shown: the options that `repr` shows; all if None, but `inplace` only if it is True. Of a
            parameter it shows whether there is one.
        unnamed: the options that it shows without their names, before the others.
        buffers: the options that become buffers.
    """

    if TYPE_CHECKING:

        def forward(self, input: Tensor) -> Tensor:
            """Made for each subclass that names a function, which may take others."""

        def __getattr__(self, name: str) -> Any:
            """The options, too, are attributes, of any type."""

    #: The arguments of `__init__` that become attributes.
    _options: tuple[str, ...] = ()
    #: Those of `forward`; others than the first ones of the function are None if left out.
    _inputs: tuple[str, ...] = ("input",)
    _members: tuple[str, ...] = ()
    _shown: tuple[str, ...] | None = None
    _unnamed: tuple[str, ...] = ()
    _option_buffers: tuple[str, ...] = ()

    def __init_subclass__(
        cls, function: Callable[..., Any] | None = None, members: tuple[str, ...] | None = None,
        shown: tuple[str, ...] | None = None, unnamed: tuple[str, ...] | None = None,
        buffers: tuple[str, ...] | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        """Read the declaration, and make `forward` and `extra_repr`."""
        super().__init_subclass__(**kwargs)
        cls._members = cls._members if members is None else members
        cls._shown = cls._shown if shown is None else shown
        cls._unnamed = cls._unnamed if unnamed is None else unnamed
        cls._option_buffers = cls._option_buffers if buffers is None else buffers
        if function is None and shown is None:
            return
        if "forward" in vars(cls):
            _, *names = _arguments(cls.forward)[0]
            needed = len(names) - len(cls.forward.__defaults__ or ())
            cls._inputs = (*names[:needed], *(f"{name}=None" for name in names[needed:]))
        if cls.__init__ is not Module.__init__:
            _, *names = sum(_arguments(cls.__init__), ())
            cls._options = tuple(name for name in names if name not in _NOT_KEPT)
        shows = cls._unnamed or (cls._options if cls._shown is None else cls._shown)
        if shows and cls.extra_repr is Module.extra_repr:
            cls.extra_repr = _extra_repr  # type: ignore[assignment]
        if function is not None:
            cls.forward = _forward(cls, function)  # type: ignore[method-assign]

    def _keep(self, given: Mapping[str, Any]) -> None:
        """Initialise, and keep the options; `given` are the local names of `__init__`."""
        Module.__init__(self)
        buffers = self._option_buffers
        for name in self._options:
            if name in buffers:
                self.register_buffer(name, given[name])
            else:
                setattr(self, name, given[name])


def _extra_repr(self: FunctionModule) -> str:
    """The options, as `repr` shows them."""
    parts = [f"{getattr(self, name)}" for name in self._unnamed]
    for name in self._options if self._shown is None else self._shown:
        value = getattr(self, name)
        if name in self._parameters or isinstance(value, Variable):
            value = value is not None
        if name == "inplace" and self._shown is None and not value:
            continue
        parts.append(f"{name}={value!r}" if isinstance(value, str) else f"{name}={value}")
    return ", ".join(parts)


def _arguments(function: Callable[..., Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of a function's arguments: those that may be positional, and the others."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        known = inspect.signature(function).parameters.values()
        named = [p.name for p in known if p.kind is not p.KEYWORD_ONLY]
        return tuple(named), tuple(p.name for p in known if p.kind is p.KEYWORD_ONLY)
    # `inspect.signature` would take 20 times as long, and the package longer to import.
    count = code.co_argcount
    return code.co_varnames[:count], code.co_varnames[count : count + code.co_kwonlyargcount]


def _forward(cls: type[FunctionModule], function: Callable[..., Any]) -> Callable[..., Any]:
    """A class's `forward`, which is compiled at its first call."""
    positional, keywords = _arguments(function)
    given = [name.partition("=")[0] for name in cls._inputs]
    inputs = [name for name in cls._inputs if "=" not in name]
    more = given[len(inputs) :]
    passed = {name: name for name in more} | {
        name: f"self.{name}" for name in (*cls._options, *cls._members, "training")
    }
    values = [*inputs]
    rest = positional[len(inputs) :]
    while rest and rest[0] in passed:
        values.append(passed[rest[0]])
        rest = rest[1:]
    values += [f"{name}={passed[name]}" for name in (*rest, *keywords) if name in passed]
    source = (
        f"def forward(self, {', '.join(cls._inputs)}):\n"
        f"    return F.{function.__name__}({', '.join(values)})\n"
    )
    file = f"<forward of {cls.__module__}.{cls.__qualname__}>"
    show(source, file)
    names: dict[str, Any] = {"F": F, "__name__": cls.__module__}
    made = postponed("forward", ("self", *given), file, names, lambda _: compiled(source, file))
    # So that it can be found out before the first call which function is called.
    made.__code__ = made.__code__.replace(co_names=(*made.__code__.co_names, function.__name__))
    made.__defaults__ = (None,) * len(more)
    made.__qualname__ = f"{cls.__qualname__}.forward"
    hints = getattr(inspect.unwrap(function), "__annotations__", {})
    made.__annotations__ = {
        name: hints.get(known, "Tensor") for name, known in zip(given, positional, strict=False)
    } | {"return": "Tensor"}
    made.__doc__ = f"Call `nn.functional.{function.__name__}` with the options."
    return made  # type: ignore[no-any-return]
