"""Takes parts out of a function's byte code, which begin and end where nothing is on the stack.

A line at which the stack is empty is a *point*: all that the function knows there is in its
variables. A part has the code of the whole function, but a jump at the start leads to its first
point, jumps at its exits lead out of it, and NOP replaces instructions that it does not reach. No
instruction moves, so line numbers and errors are those of the function.
"""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Callable, Container, Iterable
from typing import Any

from asyncgrad.replay.instructions import Instruction, loads, units
from asyncgrad.replay.names import makes_manager
from asyncgrad.replay.steps import UnrepeatableError
from asyncgrad.replay.unchanged import function_state, same_objects

#: The versions of Python whose byte code is known here.
_KNOWN = (3, 11), (3, 12), (3, 13)
#: What changes containers, and attributes other than gradients.
_STORES = frozenset({"STORE_SUBSCR", "DELETE_SUBSCR", "STORE_ATTR", "DELETE_ATTR"})
_CHANGING = frozenset({
    "add", "append", "appendleft", "clear", "discard", "eval", "extend", "insert", "pop", "popitem",
    "popleft", "remove", "setdefault", "train", "update",
})  # fmt: skip
#: What may compute.
_METHODS = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_WORK = frozenset({"BINARY_OP", "CALL", "CALL_FUNCTION_EX", "CALL_KW", "FOR_ITER"})
#: What reads the variables of the function that calls it, of which a part has others: as a
#: function, and as an attribute of a module. `eval` and `stack` may be methods, too.
_READS_FRAMES = frozenset({
    "_getframe", "currentframe", "dir", "eval", "exec", "inspect", "locals", "stack", "vars",
})  # fmt: skip
_FRAMES = frozenset({"_getframe", "currentframe"})
#: Bytes of a unit of code.
_UNIT = 2


class Exit:
    """The first of the values that a part returns if it doesn't end with the function.

    The number of the exit and the variables that the part has set follow.
    """


class Flow:
    """Which instructions of a function follow which, and where it can be divided."""

    def __init__(self, function: types.FunctionType) -> None:
        """Follow the code, or raise if parts can't be taken out of it."""
        code = self.code = function.__code__
        self.function = function
        self._state = function_state(function)
        unknown = sys.version_info[:2] not in _KNOWN or sys.implementation.name != "cpython"
        others = code.co_flags & (0x20 | 0x200)
        found = list(dis.get_instructions(code))
        names = {one.argval for one in found if one.opname == "LOAD_GLOBAL"}
        frames = names & _READS_FRAMES or not _FRAMES.isdisjoint(code.co_names)
        if unknown or others or code.co_cellvars or frames:
            raise UnrepeatableError("its byte code can't be divided")
        ends = [one.offset for one in found[1:]] + [len(code.co_code)]
        self._all = {
            one.offset: Instruction(one, end, code) for one, end in zip(found, ends, strict=True)
        }
        self._handlers = [
            (entry.start, entry.end, entry.target, entry.depth + 1 + entry.lasti)
            for entry in dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
        ]
        #: Where the arguments are in their places.
        self._first = next(x.end for x in self._all.values() if x.it.opname == "RESUME")
        self._depths = self._measured()
        self._check_comprehensions(found)
        self._never = self._never_swallowed(found)
        self._set = self._assigned(surely=True)
        perhaps = self._assigned(surely=False)
        self._live = self.live(set(self._depths), {})
        #: Where nothing is on the stack, and it is known which variables have a value.
        self.points = frozenset(
            place
            for place, one in self._all.items()
            if self._depths.get(place) == 0
            # Otherwise it is reached only if an error is swallowed, which never happens.
            and place in self._set
            and (place == self._first or one.pushes)
            and self._live[place] & perhaps[place] <= self._set[place]
        )

    def holds(self) -> bool:
        """Whether the function has the code and defaults that were followed."""
        # `True` and 1 are equal.
        return same_objects(function_state(self.function), self._state)

    def _measured(self) -> dict[int, int]:
        """How many values are on the stack before each instruction that is reached."""
        depths: dict[int, int] = {}
        todo = [(self._first, 0)]
        while todo:
            place, depth = todo.pop()
            if place in depths:
                if depths[place] != depth:
                    raise UnrepeatableError("its byte code is not understood")
                continue
            depths[place] = depth
            todo += [(after, depth + more) for after, more in self._all[place].nexts]
            todo += [(to, at) for start, end, to, at in self._handlers if start <= place < end]
        return depths

    def _check_comprehensions(self, found: list[dis.Instruction]) -> None:
        """Raise if a comprehension shares a variable with the function: both keep it there."""
        shared = [one.argval for one in found if one.opname == "LOAD_FAST_AND_CLEAR"]
        for name in shared:
            stores = sum(x.writes.count(name) for x in self._all.values())
            arguments = self.code.co_varnames[: self.arguments]
            if name in arguments or stores != 3 * shared.count(name):
                raise UnrepeatableError("a comprehension shares a variable")

    def _never_swallowed(self, found: list[dis.Instruction]) -> set[tuple[int, int]]:
        """The jumps by which `with` blocks of this package's managers would swallow errors."""
        never = set()
        for number, one in enumerate(found):
            if one.opname == "BEFORE_WITH" and one.offset in self._depths:
                start = number - 1
                while self._depths[found[start].offset] >= self._depths[one.offset]:
                    start -= 1
                handlers = [to for at, _, to, _ in self._handlers if at == found[number + 1].offset]
                if handlers and makes_manager(self.function, found[start:number]):
                    behind = (x for x in found if x.offset > handlers[0])
                    jump = next(x for x in behind if x.opname.startswith("POP_JUMP"))
                    never.add((jump.offset, jump.argval))
        return never

    def _nexts(self, place: int) -> list[int]:
        """The instructions that may follow one, its handlers included."""
        after = [to for to, _ in self._all[place].nexts]
        return after + [to for start, end, to, _ in self._handlers if start <= place < end]

    def _assigned(self, *, surely: bool) -> dict[int, frozenset[str]]:
        """Which variables have a value before each instruction, on all paths to it or on one."""
        held = {self._first: frozenset(self.code.co_varnames[: self.arguments])}
        todo = [self._first]
        while todo:
            place = todo.pop()
            one = self._all[place]
            after = held[place].union(one.writes)
            if one.it.opname in {"DELETE_FAST", "LOAD_FAST_AND_CLEAR"}:
                after -= {one.it.argval}
            for to in self._nexts(place):
                if surely and (place, to) in self._never:
                    continue
                known = held.get(to, after)
                both = after & known if surely else after | known
                if both != held.get(to):
                    held[to] = both
                    todo.append(to)
        return held

    @property
    def arguments(self) -> int:
        """How many variables are arguments."""
        code = self.code
        packed = bool(code.co_flags & 4) + bool(code.co_flags & 8)
        return code.co_argcount + code.co_kwonlyargcount + packed

    def point_of(self, place: int) -> int | None:
        """The point from which an instruction is reached without another one between."""
        # Python may show a place behind the start of the instruction.
        start = max(x for x in self._all if x <= place)
        before = [p for p in self.points if start in self.reach(p, self.points - {p})]
        return before[0] if len(before) == 1 else None

    def reach(self, start: int, exits: Container[int]) -> set[int]:
        """The instructions that are run from a point on, up to exits."""
        found: set[int] = set()
        todo = [start]
        while todo:
            place = todo.pop()
            if place not in found and place not in exits:
                found.add(place)
                todo += self._nexts(place)
        return found

    def works(self, places: Iterable[int]) -> bool:
        """Whether instructions may compute something, and do more than to move values."""
        return any(self._all[place].it.opname in _WORK for place in places)

    def changing(self) -> set[int]:
        """The points from which the code, up to the next points, seems to change an object."""
        return self._before(lambda one: _changes(one.it))

    def calling(self, functions: Iterable[Any], changed: set[str]) -> set[int]:
        """The points from which code names those of some functions that change something.

        And those that name such functions themselves; `changed` has names of what has changed.
        """
        mine = self.code.co_filename, self.code.co_firstlineno
        codes = [one.__code__ for one in functions]
        codes = [one for one in codes if (one.co_filename, one.co_firstlineno) != mine]
        changing = [
            one
            for one in codes
            if not changed.isdisjoint(one.co_names)
            and any(map(_changes, dis.get_instructions(one)))
        ]
        names: set[str] = set()
        while changing:
            names.update(one.co_name for one in changing)
            codes = [one for one in codes if one not in changing]
            changing = [one for one in codes if not names.isdisjoint(one.co_names)]
        return self.naming(names)

    def lines(self, points: Iterable[int]) -> str:
        """The lines at which points are, in words."""
        numbers = {start: line for start, _, line in self.code.co_lines()}
        found = {numbers[max(s for s in numbers if s <= point)] for point in points}
        return f"{self.code.co_filename}:{', '.join(map(str, sorted(x for x in found if x)))}"

    def naming(self, names: Container[str]) -> set[int]:
        """The points from which code reads globals, outer variables or attributes of some names."""
        return self._before(
            lambda one: (
                one.it.opname[:5] == "LOAD_"
                and one.it.argval in names
                and one.it.argval not in one.reads
            )
        )

    def reading(self, names: Iterable[str], start: int | None) -> set[int]:
        """The points from which code reads what variables hold at a point, None for the start."""
        return {point for name in names for point in self._reading(name, start)}

    def _reading(self, name: str, start: int | None) -> set[int]:
        setting = {place for place, one in self._all.items() if name in one.writes}
        found = self.reach(self._first if start is None else start, setting)
        return self._before(lambda one: name in one.reads and one.it.offset in found)

    def _before(self, wanted: Callable[[Instruction], bool]) -> set[int]:
        """The points from which code comes to some instructions before it comes to other points."""
        places = {place for place, one in self._all.items() if wanted(one)}
        points = self.points
        return {p for p in points if not places.isdisjoint(self.reach(p, points - {p}))}

    def live(self, places: set[int], at_exit: dict[int, set[str]]) -> dict[int, set[str]]:
        """Which variables are read after each instruction's start, before they are set.

        `at_exit` says what is read where the instructions are left.
        """
        held: dict[int, set[str]] = {place: set() for place in places}
        changed = True
        order = sorted(places, reverse=True)
        while changed:
            changed = False
            for place in order:
                one = self._all[place]
                after: set[str] = set()
                for to in self._nexts(place):
                    if (place, to) not in self._never:
                        after |= held[to] if to in held else at_exit.get(to, set())
                before = (after - set(one.writes)) | set(one.reads)
                if before != held[place]:
                    held[place] = before
                    changed = True
        return held

    def part(self, start: int | None, exits: frozenset[int], exit_numbers: dict[Any, int]) -> Any:
        """A part of the function, from its first point, None for the arguments alone, to `exits`.

        `exit_numbers` gets the numbers of exits, by point and variables. With the part comes the
        variable for each of its parameters, None for no value.
        """
        code = self.code
        body, read = set[int](), set[str]()
        left = {self._first: set(code.co_varnames[: self.arguments])}
        if start is not None:
            body = self.reach(start, exits)
            written = {name for place in body for name in self._all[place].writes}
            left = {
                to: self._live[to] & written & self._set[to]
                for place in body
                for to in self._nexts(place)
                if to in exits
            }
            read = self.live(body, left)[start]
        inputs = read & self._set[self._first if start is None else start]
        takes = [name if name in inputs else None for name in code.co_varnames]
        while takes and takes[-1] is None:
            # What is no argument has no value.
            takes.pop()
        if not (read - inputs).isdisjoint(code.co_varnames[: len(takes)]):
            # Nothing is left of the function but its error.
            raise UnrepeatableError("it reads a variable that has no value")
        text = bytearray(bytes([dis.opmap["NOP"], 0]) * (len(code.co_code) // _UNIT))
        text[: self._first] = code.co_code[: self._first]
        for place in body:
            end = self._all[place].end
            text[place:end] = code.co_code[place:end]
        occupied = {x for place in body for x in range(place, self._all[place].end)}
        constants = self._constants(body)
        jumps: list[tuple[int, int]] = []
        if start is not None and start != self._first:
            jumps.append((self._first, start))
        for point, names in left.items():
            ordered = tuple(sorted(names))
            number = exit_numbers.setdefault((point, ordered), len(exit_numbers))
            jumps.append((point, len(text)))
            text += loads(code, (Exit, number), ordered, constants)
        for place, target in jumps:
            if target < place + 2 * _UNIT and occupied.isdisjoint(range(place, target)):
                # There is nothing between but no operations.
                continue
            jump = units("JUMP_FORWARD", (target - place - 2 * _UNIT) // _UNIT)
            if len(jump) < 2 * _UNIT:
                jump = bytes([dis.opmap["EXTENDED_ARG"], 0]) + jump
            span = range(place, place + len(jump))
            taken = {x for other, _ in jumps if other != place for x in range(other, other + 4)}
            if len(jump) != 2 * _UNIT or not occupied.isdisjoint(span) or taken & set(span):
                raise UnrepeatableError("there is no room for a jump")
            text[place : place + len(jump)] = jump
        most = max((len(names) for names in left.values()), default=0) + 2
        made = code.replace(
            co_code=bytes(text),
            co_consts=tuple(constants),
            co_stacksize=max(code.co_stacksize, most),
        )
        if start is not None:
            made = made.replace(
                co_argcount=len(takes),
                co_posonlyargcount=0,
                co_kwonlyargcount=0,
                co_flags=code.co_flags & ~(4 | 8),
            )
        return self._function(made, body, defaults=start is None), takes

    def _constants(self, body: set[int]) -> list[Any]:
        """The constants, without those that a part doesn't use: what they name is followed."""
        used = {
            self._all[place].it.arg for place in body if self._all[place].it.opcode in dis.hasconst
        }
        return [value if n in used else None for n, value in enumerate(self.code.co_consts)]

    def _function(self, code: types.CodeType, body: set[int], *, defaults: bool) -> Any:
        """A function of a part's code; it shares the cells of the outer variables it uses."""
        whole = self.function
        named = {name for place in body for name in self._all[place].variables}
        cells = tuple(
            [
                cell if name in named else types.CellType(None)
                for name, cell in zip(code.co_freevars, whole.__closure__ or (), strict=True)
            ]
        )
        made = types.FunctionType(
            code, whole.__globals__, whole.__name__, whole.__defaults__ if defaults else None, cells
        )
        made.__qualname__ = whole.__qualname__
        made.__module__ = whole.__module__
        if defaults:
            made.__kwdefaults__ = whole.__kwdefaults__
        return made


def _changes(one: dis.Instruction) -> bool:
    """Whether an instruction seems to change an object."""
    is_method = one.opname == "LOAD_METHOD" or "NULL" in one.argrepr
    return (one.opname in _STORES and one.argval != "grad") or (
        is_method and one.opname in _METHODS and one.argval in _CHANGING
    )
