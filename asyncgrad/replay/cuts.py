"""Where a compiled function is divided, and why. `replay.division` says how."""

from __future__ import annotations

from functools import partial
from types import CodeType
from typing import TYPE_CHECKING, Any

from asyncgrad.nn.module import Module
from asyncgrad.replay.division import Divider, Division
from asyncgrad.replay.reach import Reached
from asyncgrad.replay.signature import Signature
from asyncgrad.replay.steps import UnrepeatableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PLAIN_VALUES = frozenset({int, float, complex, str})


class Cuts:
    """What divides a function, and the parts that are called instead."""

    def __init__(
        self, function: Any, part: Callable[..., Any], most_values: int, *, divides: bool
    ) -> None:
        """Keep the function; it is not divided yet.

        Args:
            function: what is divided.
            part: makes a compiled function of these cuts, a part, the variables that the part
                takes, and the point at which it begins.
            most_values: with how many values of a variable, global or attribute the function is
                recorded before it is divided where it reads these.
            divides: False if it is never divided.
        """
        self._function = function
        self._part = part
        self._most_values = most_values
        self.divides = divides
        #: The function's byte code.
        self.code = _code_of(function)
        self._divider: Divider | None = None
        #: By what is read: the plain values that calls were recorded with.
        self._seen: dict[Any, set[str]] = {}
        #: The parts that are called, once there are some, and why.
        self.division: Division | None = None
        self.reasons: list[str] = []

    def forget(self) -> None:
        """Start anew: tools that load code again have given the function other code."""
        self.division = self._divider = None
        self.code = _code_of(self._function)

    def divide(self, why: str, places: list[int], reached: Reached | None = None) -> bool:
        """Divide the function; whether later calls are made in other parts than before.

        Where Python looks, as `places` say, is cut, and so is what can't be followed, and what has
        `reached` something that has changed.
        """
        if not self.divides:
            return False
        divided = self.divider().at(places)
        if reached is not None and not divided:
            divided = self.divider().where_changing(reached.changed(), reached.functions)
        self.take(why)
        return divided

    def divide_beside(self, error: UnrepeatableError, args: Any, kwargs: Any) -> bool:
        """Divide the function where it reads what can't be followed, arguments among that.

        So a line that makes a tensor of a NumPy array is called, and the rest is replayed.
        """
        if not self.divides:
            return False
        held, start = self._variables(args, kwargs)
        unknown = {name for name, value in held if not _is_followed(value)}
        divider = self.divider()
        read = bool(unknown) and divider.where_read(unknown, start)
        named = error.name is not None and divider.where_named(error.name)
        return self.divide(str(error), []) or read or named

    def _variables(self, args: Any, kwargs: Any) -> tuple[list[tuple[str, Any]], int | None]:
        """The variables that get the arguments, with these; and at which point of the code."""
        code = self.code
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

    def note_values(self, args: Any, kwargs: Any, reached: Reached) -> None:
        """Divide the function where it reads a number that is another at each call."""
        variables, start = self._variables(args, kwargs)
        for name, value in variables:
            if type(value) not in _PLAIN_VALUES:
                continue
            if self._has_varied(name, value) and self.divider().where_read({name}, start):
                self.take(f"{name} is another at each call")
        for key, name, value in reached.named(_PLAIN_VALUES):
            if self._has_varied(key, value) and self.divider().where_named(name):
                self.take(f"{name} is another at each call")

    def _has_varied(self, key: Any, value: Any) -> bool:
        """Note a plain value; whether calls were recorded with many others."""
        seen = self._seen.setdefault(key, set())
        seen.add(repr(value))
        return len(seen) > self._most_values

    def divider(self) -> Divider:
        """What divides the function."""
        if self._divider is None:
            self._divider = Divider(self._function, partial(self._part, self))
        return self._divider

    def take(self, why: str) -> None:
        """Take the parts that there are now."""
        assert self._divider is not None
        self.division = self._divider.division
        if why not in self.reasons:
            self.reasons.append(why)


class CutsOfPart(Cuts):
    """Those of a part, which are cuts of the whole function."""

    def __init__(self, whole: Cuts, function: Any, takes: Sequence[str], start: int) -> None:
        """Keep the part, the variables that it takes, and the point at which it begins."""
        super().__init__(function, whole._part, 2, divides=True)
        self._whole = whole
        self._takes = takes
        self._start = start
        self._divider = whole._divider

    @property
    def parts(self) -> list[Any]:
        """All parts of the function that are compiled."""
        return [] if self._whole.division is None else self._whole.division.compiled_parts()

    def take(self, why: str) -> None:
        """Have the whole function divided; what runs now stays as it is."""
        self._whole.take(why)

    def without(self, why: str, *others: CutsOfPart) -> None:
        """Call this part and others from now on."""
        self.divider().without([cuts._start for cuts in (self, *others)])
        self.take(why)

    def _variables(self, args: Any, kwargs: Any) -> tuple[list[tuple[str, Any]], int | None]:
        return [*zip(self._takes, args, strict=True)], self._start


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
