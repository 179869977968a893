"""A compiled function in parts, between which Python looks at values.

The parts that look, or do something else that a replay could not, are called. Those between them
are compiled, each as a function of the variables that it reads.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from types import FunctionType
from typing import Any

from asyncgrad.replay.flow import Exit, Flow
from asyncgrad.replay.names import is_own
from asyncgrad.replay.reach import Reached
from asyncgrad.replay.steps import UnrepeatableError


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


class Divider:
    """Divides one function, further at each look that turns up."""

    def __init__(self, function: Any, compiled: Callable[..., Any]) -> None:
        """Note the function, which may be a method; `compiled` is that of `Division`."""
        self._compiled = compiled
        self._flow: Flow | None = None
        #: The points whose lines are called, and those for which a division was tried last.
        self._cuts: set[int] = set()
        self._tried: set[int] = set()
        #: The present division, None if there is none that brings something.
        self.division: Division | None = None
        plain = getattr(function, "__func__", function)
        if type(plain) is FunctionType and not is_own(plain.__globals__.get("__name__") or ""):
            try:
                self._flow = Flow(plain)
                self._cuts = _not_followed(self._flow, getattr(function, "__self__", None))
            except UnrepeatableError:
                pass

    def lines(self) -> str:
        """The lines that must be called, in words; nothing if there are none."""
        return f" ({self._flow.lines(self._cuts)})" if self._flow and self._cuts else ""

    def changes(self, paths: list[str], functions: list[Any]) -> str:
        """The lines that seem to change an object, in words; see `where_changing`."""
        flow = self._flow
        changed = {name for path in paths for name in path.split(".")}
        found = flow and (flow.changing() or flow.calling(functions, changed))
        return f" ({flow.lines(found)})" if flow and found else ""

    def at(self, places: list[int]) -> bool:
        """Divide the function at places of its byte code; whether that brings something new."""
        flow = self._flow
        return flow is not None and self._divide(
            {point for x in places if (point := flow.point_of(x)) is not None}
        )

    def where_changing(self, paths: list[str], functions: list[Any]) -> bool:
        """Divide the function where it names what has changed, or else seems to change an object.

        Whether that brings something new. What has changed has access paths such as `self.scale`,
        and `functions` may be called there.
        """
        flow = self._flow
        if flow is None:
            return False
        names = [path.split(".")[::-1] for path in paths]
        for named in zip_longest(*names, fillvalue=""):
            if self._divide({point for name in named for point in flow.naming(name)}):
                return True
        changed = {name for path in names for name in path}
        return self._divide(flow.changing()) or self._divide(flow.calling(functions, changed))

    def where_named(self, name: str) -> bool:
        """Divide it where it reads a global, outer variable or attribute; whether that is new."""
        return self._flow is not None and self._divide(self._flow.naming(name))

    def where_read(self, names: set[str], start: int | None) -> bool:
        """Divide it where it reads what variables hold at a point; whether that is new."""
        flow = self._flow
        return flow is not None and self._divide(
            {point for name in names for point in flow.reading(start, name)}
        )

    def without(self, starts: list[int]) -> None:
        """Call parts that start at some points, as it brings nothing to replay them."""
        division = self.division
        if division is not None:
            self._divide({point for start in starts for point in division.points_of(start)})

    def _divide(self, points: set[int]) -> bool:
        self._cuts |= points
        if self._flow is None or self._cuts == self._tried:
            return False
        self._tried = set(self._cuts)
        try:
            self.division = Division(self._flow, self._tried, self._compiled)
        except UnrepeatableError:
            self.division = None
            return False
        return True


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
