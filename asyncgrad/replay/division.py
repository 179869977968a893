"""Divides a compiled function into parts, between which Python looks at values.

The parts that look, or do something else that a replay could not, are called. Those between them
are compiled, each as a function of the variables that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, partial
from itertools import zip_longest
from types import CodeType, FunctionType
from typing import Any

from asyncgrad.nn.module import Module
from asyncgrad.replay.flow import Exit, Flow
from asyncgrad.replay.names import is_own
from asyncgrad.replay.reach import Reached
from asyncgrad.replay.signature import Signature
from asyncgrad.replay.steps import UnrepeatableError

_PLAIN_VALUES = frozenset({int, float, complex, str})


class Division:
    """Which parts there are. It is never changed: other cuts make another division."""

    def __init__(self, flow: Flow, cuts: set[int], compiled: Callable[..., Any]) -> None:
        """Choose the points from which the function is called as it is, `cuts` among them.

        `compiled` makes a compiled function of a part, the variables that it takes and its first
        point.
        """
        self.flow = flow
        self.cuts = cuts
        idle = {p for p in flow.points - cuts if not flow.works(flow.reach(p, cuts))}
        self._called = frozenset(cuts | idle)
        self._others = flow.points - self._called
        if not self._others:
            raise UnrepeatableError("nothing is left between its looks")
        #: The exits of all parts, each with the variables that were set, and their numbers.
        numbers: dict[Any, int] = {}
        #: By point: the part that starts there, and the variables that it takes.
        self._parts: dict[int, tuple[Any, Any]] = {}
        self._begin, _ = flow.part(None, frozenset(), numbers)
        done = 0
        while done < len(numbers):
            # All are made now, as one of them may turn out to be impossible.
            point, _ = list(numbers)[done]
            done += 1
            if point not in self._parts:
                called = point in self._called
                part, takes = flow.part(point, self._others if called else self._called, numbers)
                self._parts[point] = (part if called else compiled(part, takes, point)), takes
        self._exits = list(numbers)

    def call(self, args: Any, kwargs: Any) -> Any:
        """Call one part after the other."""
        found = self._begin(*args, **kwargs)
        held: dict[Any, Any] = {None: None}
        while is_exit(found):
            found = self._following(found, held)
        return found

    async def call_awaited(self, args: Any, kwargs: Any) -> Any:
        """`call` for a coroutine function."""
        found = await self._begin(*args, **kwargs)
        held: dict[Any, Any] = {None: None}
        while is_exit(found):
            found = await self._following(found, held)
        return found

    def _following(self, found: Any, held: dict[Any, Any]) -> Any:
        """Call the part at an exit; `held` has the variables so far."""
        point, names = self._exits[found[1]]
        held.update(zip(names, found[2:], strict=True))
        part, takes = self._parts[point]
        return part(*[held[name] for name in takes])

    def points_of(self, start: int) -> set[int]:
        """The points of a compiled part."""
        return {*self.flow.reach(start, self._called)} & self.flow.points

    def compiled_parts(self) -> list[Any]:
        """The parts that are replayed, in the order of the function."""
        return [self._parts[point][0] for point in sorted(self._parts) if point in self._others]

    def lines(self) -> str:
        """The lines that are called as they are, in words."""
        return self.flow.lines(self.cuts)


class Cuts:
    """Where a compiled function is divided, and why: further at each look that turns up."""

    def __init__(
        self, function: Any, part: Callable[..., Any], most_values: int, *, divides: bool
    ) -> None:
        """Keep the function, which is not divided yet, and never without `divides`.

        `part` makes a compiled function of these cuts, a part, the variables that the part takes,
        and the point at which it begins. With more than `most_values` values of a variable, global
        or attribute, the function is divided where it reads that.
        """
        self._function = function
        self._part = part
        self._most_values = most_values
        self.divides = divides
        #: The function's byte code.
        self.code = code_of(function)
        #: By what is read: the plain values that calls were recorded with.
        self._seen: dict[Any, set[str]] = {}
        #: The points whose lines are called, and those for which a division was tried last.
        self._cuts: set[int] = set()
        self._tried: set[int] = set()
        #: The parts that are called, once there are some that bring something, and why.
        self.division: Division | None = None
        self.reasons: list[str] = []

    @cached_property
    def _flow(self) -> Flow | None:
        """Which instructions follow which; None if parts can't be taken out of the function."""
        plain = getattr(self._function, "__func__", self._function)
        if type(plain) is not FunctionType or is_own(plain.__globals__.get("__name__") or ""):
            return None
        try:
            flow = Flow(plain)
        except UnrepeatableError:
            return None
        # The first cuts, so they are read after this.
        self._cuts = _not_followed(flow, getattr(self._function, "__self__", None))
        return flow

    def forget(self) -> None:
        """Start anew: tools that load code again have given the function other code."""
        self.division = None
        self._tried = set()
        vars(self).pop("_flow", None)
        self.code = code_of(self._function)

    # -- reasons to divide it ---------------------------------------------------------------------

    def divide(self, why: str, places: list[int], reached: Reached | None = None) -> bool:
        """Divide the function; whether later calls are made in other parts than before.

        Where Python looks, as `places` of the byte code say, is cut, and so is what can't be
        followed, and what has `reached` something that has changed.
        """
        if not self.divides:
            return False
        divided = self._divide(
            lambda flow: {point for x in places if (point := flow.point_of(x)) is not None}
        )
        if reached is not None and not divided:
            divided = self._where_changing(reached.changed(), reached.functions)
        self._note(why)
        return divided

    def divide_beside(self, error: UnrepeatableError, args: Any, kwargs: Any) -> bool:
        """Divide the function where it reads what can't be followed, arguments among that.

        So a line that makes a tensor of a NumPy array is called, and the rest is replayed.
        """
        if not self.divides:
            return False
        held, start = self._variables(args, kwargs)
        unknown = {name for name, value in held if not _is_followed(value)}
        read = bool(unknown) and self._divide(lambda flow: flow.reading(unknown, start))
        named = error.name is not None and self._divide(partial(Flow.naming, names=[error.name]))
        return self.divide(str(error), []) or read or named

    def note_values(self, args: Any, kwargs: Any, reached: Reached) -> None:
        """Divide the function where it reads a number that is another at each call."""
        given = map(type, (*args, *kwargs.values()))
        variables, start = self._variables(args, kwargs) if _PLAIN_VALUES & {*given} else ((), None)
        for name, value in variables:
            if type(value) in _PLAIN_VALUES:
                self._note_value(
                    name, name, value, partial(Flow.reading, names={name}, start=start)
                )
        for key, name, value in reached.named(_PLAIN_VALUES):
            self._note_value(key, name, value, partial(Flow.naming, names=[name]))

    def _note_value(
        self, key: Any, name: str, value: Any, points: Callable[[Flow], set[int]]
    ) -> None:
        """Note a plain value; divide the function if calls were recorded with many others."""
        seen = self._seen.setdefault(key, set())
        seen.add(repr(value))
        # If nothing would be left, the values may come again.
        if len(seen) > self._most_values and self._divide(points, needed=False):
            self._note(f"{name} is another at each call")

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

    def _note(self, why: str) -> None:
        """Note why the function is divided."""
        if why not in self.reasons:
            self.reasons.append(why)

    # -- where ------------------------------------------------------------------------------------

    def _divide(self, points: Callable[[Flow], set[int]], *, needed: bool = True) -> bool:
        """Divide the function at further points; whether that brings something new.

        If nothing is left between them, it is not divided, or as before if they are not `needed`.
        """
        flow = self._flow
        if flow is None:
            return False
        cuts = self._cuts | points(flow)
        if cuts == self._tried:
            return False
        division: Division | None = None
        with suppress(UnrepeatableError):
            division = Division(flow, cuts, partial(self._part, self))
        if division is not None or needed:
            self._cuts = self._tried = cuts
            self.division = division
        return division is not None

    def _where_changing(self, paths: list[str], functions: list[Any]) -> bool:
        """Divide the function where it names what has changed, or else seems to change an object.

        What has changed has access paths such as `self.scale`, and `functions` may be called there.
        """
        names = [path.split(".")[::-1] for path in paths]
        for named in zip_longest(*names, fillvalue=""):
            if self._divide(partial(Flow.naming, names=named)):
                return True
        changed = {name for path in names for name in path}
        return self._divide(Flow.changing) or self._divide(
            lambda flow: flow.calling(functions, changed)
        )

    # -- words ------------------------------------------------------------------------------------

    def lines(self) -> str:
        """The lines that must be called, in words; nothing if there are none."""
        return f" ({self._flow.lines(self._cuts)})" if self._flow and self._cuts else ""

    def changes(self, paths: list[str], functions: list[Any]) -> str:
        """The lines that seem to change an object, in words; see `_where_changing`."""
        flow = self._flow
        changed = {name for path in paths for name in path.split(".")}
        found = flow and (flow.changing() or flow.calling(functions, changed))
        return f" ({flow.lines(found)})" if flow and found else ""


class CutsOfPart(Cuts):
    """Those of a part, which are cuts of the whole function; what runs now stays as it is."""

    def __init__(self, whole: Cuts, function: Any, takes: Sequence[str], start: int) -> None:
        """Keep the part, the variables that it takes, and the point at which it begins."""
        super().__init__(function, whole._part, 2, divides=True)
        self._whole = whole
        self._takes = takes
        self._start = start
        self._flow = whole._flow

    @property
    def parts(self) -> list[Any]:
        """All parts of the function that are compiled."""
        return [] if self._whole.division is None else self._whole.division.compiled_parts()

    def without(self, why: str, *others: CutsOfPart) -> None:
        """Call this part and others from now on, as it brings nothing to replay them."""
        starts = [cuts._start for cuts in (self, *others)]
        division = self._whole.division
        if division is not None:
            self._divide(lambda _: {x for start in starts for x in division.points_of(start)})
        self._note(why)

    def _note(self, why: str) -> None:
        self._whole._note(why)

    def _divide(self, points: Callable[[Flow], set[int]], *, needed: bool = True) -> bool:
        # The whole function may have got other code while a part was awaited.
        whole = self._whole
        return self._flow is whole._flow and whole._divide(points, needed=needed)

    def _variables(self, args: Any, kwargs: Any) -> tuple[list[tuple[str, Any]], int | None]:
        return [*zip(self._takes, args, strict=True)], self._start


def is_exit(found: Any) -> bool:
    """Whether a part has ended before the function."""
    return found.__class__ is tuple and len(found) > 1 and found[0] is Exit


def _not_followed(flow: Flow, owner: Any) -> set[int]:
    """The points from which the code, up to the next points, uses what can't be followed."""
    found = set()
    for point in flow.points:
        try:
            part, _ = flow.part(point, flow.points - {point}, {})
        except UnrepeatableError:
            continue
        try:
            Reached(part, (owner,), given=(owner,))
        except UnrepeatableError:
            found.add(point)
    return found


def code_of(function: Any) -> Any:
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
