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
from asyncgrad.ops.generated import compiled, lazy_function, show
from asyncgrad.types import Tensor

#: Arguments of `__init__` that are not kept: about the parameters, or deprecated.
_NOT_KEPT = {
    "device", "dtype", "bias", "add_bias_kv", "_weight", "_freeze", "size_average", "reduce",
    "min_value", "max_value",
}  # fmt: skip


class FunctionModule(Module):
    """The base of modules that differ in what their classes declare as arguments.

    `class Conv1d(_PlainConvNd, ndim=1)` has the attribute `_ndim`, which a base class annotates and
    subclasses inherit. Other arguments go on to other bases.

    Class arguments:
        function: what `forward` calls; without it, the class or a subclass has a `forward`.
        members: parameters and buffers that are passed on, as the options are.
        shown: the options that `repr` shows; all if None, but `inplace` only if it is True. Of a
            parameter it shows whether there is one.
        unnamed: the options that it shows without their names, before the others.
        buffer_options: the options that become buffers.
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
    _buffer_options: tuple[str, ...] = ()

    def __init_subclass__(cls, function: Callable[..., Any] | None = None, **declared: Any) -> None:
        """Keep what the class declares, and make `forward` and `extra_repr`."""
        bases = [base for base in cls.__mro__[1:] if issubclass(base, FunctionModule)]
        known = {name for base in bases for name in vars(base).get("__annotations__", ())}
        others = {name: value for name, value in declared.items() if f"_{name}" not in known}
        super().__init_subclass__(**others)
        for name in declared.keys() - others.keys():
            setattr(cls, f"_{name}", declared[name])
        if function is None and "shown" not in declared:
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
        super().__init__()
        for name in self._options:
            if name in self._buffer_options:
                self.register_buffer(name, given[name])
            else:
                setattr(self, name, given[name])


def unusual(module: Module, usual: Mapping[str, Any]) -> list[str]:
    """What `repr` shows of those options of a module that differ from their usual values."""
    values = {name: _value(module, name, value) for name, value in usual.items()}
    return [f"{name}={value}" for name, value in values.items() if value != usual[name]]


def _value(module: Module, name: str, *default: Any) -> Any:
    """The value of an option; of a parameter, whether there is one."""
    value = getattr(module, name, *default)
    is_parameter = name in module._parameters or isinstance(value, Variable)
    return value is not None if is_parameter else value


def _extra_repr(self: FunctionModule) -> str:
    """The options, as `repr` shows them."""
    parts = [f"{getattr(self, name)}" for name in self._unnamed]
    for name in self._options if self._shown is None else self._shown:
        value = _value(self, name)
        if name == "inplace" and self._shown is None and not value:
            continue
        parts.append(f"{name}={value!r}" if isinstance(value, str) else f"{name}={value}")
    return ", ".join(parts)


def _arguments(function: Callable[..., Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of a function's arguments: those that may be positional, and the others."""
    code = inspect.unwrap(function).__code__
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
    made = lazy_function("forward", ("self", *given), file, names, lambda _: compiled(source, file))
    # Code that reads `co_names`, such as `compile`, finds the function before the first call.
    made.__code__ = made.__code__.replace(co_names=(*made.__code__.co_names, function.__name__))
    made.__defaults__ = (None,) * len(more)
    made.__qualname__ = f"{cls.__qualname__}.forward"
    hints = getattr(inspect.unwrap(function), "__annotations__", {})
    made.__annotations__ = {
        name: hints.get(known, "Tensor") for name, known in zip(given, positional, strict=False)
    } | {"return": "Tensor"}
    made.__doc__ = f"Call `nn.functional.{function.__name__}` with the options."
    return made  # type: ignore[no-any-return]
