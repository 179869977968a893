"""Where a compiled function is divided, and what turns that up. See `replay.division`."""

from __future__ import annotations

from types import CodeType
from typing import TYPE_CHECKING, Any

from asyncgrad.nn.module import Module
from asyncgrad.replay.division import Divider, Division
from asyncgrad.replay.reach import Reached
from asyncgrad.replay.signature import Signature
from asyncgrad.replay.steps import UnrepeatableError
from asyncgrad.scheduler import waits

if TYPE_CHECKING:
    from collections.abc import Callable

_PLAIN_VALUES = frozenset({int, float, complex, str})


class Divided:
    """The part of a compiled function that divides it. Abstract: `Compiled` calls the parts."""

    #: With how many values of a variable, global or attribute it is recorded before it is divided
    #: where it reads these.
    _most_values: int
    #: Makes a compiled function of a part: see `Division`.
    _part: Callable[..., Any]

    def __init__(self, function: Any, *, fullgraph: bool) -> None:
        """Keep the function; with `fullgraph` it is never divided."""
        self._function = function
        self._fullgraph = fullgraph
        #: Calls are awaited.
        self._waits = waits(function)
        #: What `ag.func` has made: its calls are several passes, awaited on an event loop.
        self._passing = getattr(function, "_passing", False)
        self._divides = not (fullgraph or self._passing)
        self._code = _code_of(function)
        self._divider: Divider | None = None
        #: By what is read: the plain values that calls were recorded with.
        self._seen: dict[Any, set[str]] = {}
        #: The parts that are called instead, once there are some, and why.
        self._division: Division | None = None
        self._cuts: list[str] = []

    def _forget_division(self) -> None:
        """Start anew: tools that load code again have given the function other code."""
        self._division = self._divider = None
        self._code = _code_of(self._function)

    def _in_parts(self, division: Division, args: Any, kwargs: Any) -> Any:
        """Call the function in parts, or return what is to be awaited."""
        owner = getattr(self._function, "__self__", None)
        if owner is not None:
            args = owner, *args
        return division.call_awaited(args, kwargs) if self._waits else division.call(args, kwargs)

    def _divide(self, why: str, places: list[int], reached: Reached | None = None) -> bool:
        """Divide the function; whether later calls are made in other parts than before.

        Where Python looks, as `places` say, is cut, and so is what can't be followed, and what has
        `reached` something that has changed.
        """
        if not self._divides:
            return False
        divided = self._divider_of().at(places)
        if reached is not None and not divided:
            divided = self._divider_of().where_changing(reached.changed(), reached.functions)
        self._take(why)
        return divided

    def _divide_beside(self, error: UnrepeatableError, args: Any, kwargs: Any) -> bool:
        """Divide the function where it reads what can't be followed, arguments among that.

        So a line that makes a tensor of a NumPy array is called, and the rest is replayed.
        """
        if not self._divides:
            return False
        held, start = self._variables(args, kwargs)
        unknown = {name for name, value in held if not _is_followed(value)}
        divider = self._divider_of()
        read = bool(unknown) and divider.where_read(unknown, start)
        named = error.name is not None and divider.where_named(error.name)
        return self._divide(str(error), []) or read or named

    def _variables(self, args: Any, kwargs: Any) -> tuple[list[tuple[str, Any]], int | None]:
        """The variables that get the arguments, with these; and at which point of the code."""
        code = self._code
        if not isinstance(code, CodeType):
            return [], None
        count = code.co_argcount + code.co_kwonlyargcount
        names = code.co_varnames[hasattr(self._function, "__self__") : code.co_argcount]
        held = [*zip(names, args, strict=False), *kwargs.items()]
        # What is left is in `*args` and `**kwargs`.
        rest = (
            *args[len(names) :],
            *[kwargs[k] for k in kwargs if k not in code.co_varnames[:count]],
        )
        return [*held, *[(name, rest) for name in code.co_varnames[count : count + 2]]], None

    def _note_values(self, args: Any, kwargs: Any, reached: Reached) -> None:
        """Divide the function where it reads a number that is another at each call."""
        variables, start = self._variables(args, kwargs)
        for name, value in variables:
            if type(value) not in _PLAIN_VALUES:
                continue
            if self._has_varied(name, value) and self._divider_of().where_read({name}, start):
                self._take(f"{name} is another at each call")
        for key, name, value in reached.named(_PLAIN_VALUES):
            if self._has_varied(key, value) and self._divider_of().where_named(name):
                self._take(f"{name} is another at each call")

    def _has_varied(self, key: Any, value: Any) -> bool:
        """Note a plain value; whether calls were recorded with many others."""
        seen = self._seen.setdefault(key, set())
        seen.add(repr(value))
        return len(seen) > self._most_values

    def _divider_of(self) -> Divider:
        if self._divider is None:
            self._divider = Divider(self._function, self._part)
        return self._divider

    def _take(self, why: str) -> None:
        """Take the parts that there are now."""
        assert self._divider is not None
        self._division = self._divider.division
        if why not in self._cuts:
            self._cuts.append(why)


def _code_of(function: Any) -> Any:
    """The byte code of a function, or of what a module does."""
    own = type(function).forward if isinstance(function, Module) else function
    return getattr(getattr(own, "__func__", own), "__code__", None)


def _is_followed(value: Any) -> bool:
    """Whether an argument can be compared at each call."""
    try:
        signature = Signature((value,), {})
        Reached(_is_followed, tuple(signature.others), signature.records)
    except UnrepeatableError:
        return False
    return True
