"""Follows what a function can read, and the attributes of it that code names, until nothing is new.

What is followed gives names, and names give more to follow: attributes of modules, classes and
instances, and of this package's classes. `replay.reach` says how each kind of value is followed.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from asyncgrad.nn import functional
from asyncgrad.nn.module import Module
from asyncgrad.replay.known import HOLDERS, IN_C, PURE
from asyncgrad.replay.names import (
    ANY,
    ASKED,
    CONSTRUCTORS,
    INSIDE,
    MADE_BY,
    NAMING,
    OPEN,
    PACKAGE,
    SHOWN,
    function_in,
    is_own,
    names_in,
    names_of_methods,
)
from asyncgrad.replay.owners import InstanceOf, Owners
from asyncgrad.replay.steps import UnrepeatableError
from asyncgrad.replay.unchanged import VALUES, Unchanged
from asyncgrad.tensor import Tensor

#: What layers call.
_FUNCTIONS = vars(functional)
#: A module's hooks in passes.
BACKWARD = frozenset({"_backward_hooks", "_backward_pre_hooks"})


class Follower:
    """Follows values by `takes`, and notes what is to be compared at each call."""

    def __init__(
        self, compared: Unchanged, takes: Mapping[type, Callable[[Follower, Any, str], None]]
    ) -> None:
        """Note by what values are followed: by type, `object` for all other types."""
        self.compared = compared
        self._takes = takes
        self.owners = Owners()
        #: By identity: what was followed.
        self.seen: dict[int, Any] = {}
        #: What is still to be followed: see `follow`.
        self._work: list[tuple[Any, str, Sequence[Any]]] = []
        #: Strings that are met: `getattr` may get them.
        self.strings: set[str] = set()
        #: Python modules and classes, whose attributes are followed by the names in the code.
        self.spaces: list[tuple[Any, str]] = []
        self._taken: set[tuple[int, str]] = set()
        #: Classes of which instances are met.
        self.bare: dict[int, Any] = {}
        #: The slots of the classes of instances; None if they keep what can't be followed.
        self.slots: dict[type, list[str] | None] = {}
        #: What a program's classes override of this package's classes, by name, with these classes.
        self.overriding: list[tuple[set[str], list[Any]]] = []
        #: The tables of instances of which only attributes that the code names are followed.
        self.partly: list[tuple[dict[str, Any], str]] = []
        #: Those that are read as a whole where an instance is shown or compared.
        self.shown: list[tuple[dict[str, Any], str]] = []
        self.optimizers: list[Any] = []
        #: Classes of this package, of which instances are met, or which are met themselves.
        self.own_classes: list[Any] = [Tensor]
        self._known = 0, 0
        #: Objects of this package that may get further attributes, which the code names.
        self.growing: list[Any] = []
        #: The `Function`s that are met.
        self.anew: list[Any] = []

    def follow(self, value: Any, where: str, arguments: Sequence[Any] = ()) -> None:
        """Have a value followed, which errors call `where`, and which gets arguments if called."""
        self._work.append((value, where, arguments))

    def follow_attribute(self, value: Any, name: str, where: str) -> None:
        """Follow an attribute, which is compared at each call; there may be none."""
        self.compared.attributes.append((value, name))
        self.follow(getattr(value, name, None), where)

    def parts(self, value: Any, where: str) -> None:
        """Follow what does not change itself, but may hold what does; tensors lead nowhere."""
        self._work += [(part, where, ()) for part in value if part.__class__ is not Tensor]
        self.seen.update({id(part): part for part in value if part.__class__ is Tensor})

    def follow_list(self, value: Any, where: str) -> None:
        """Follow a list or a set."""
        self.compared.lists.append(value)
        self.compared.access_paths[id(value)] = where
        self.parts(value, where)

    def follow_dict(self, value: Any, where: str, anew: Any = ()) -> None:
        """Follow a dictionary, but not what is under the keys `anew`: a replay calls that anew."""
        self.compared.dicts.append(value)
        self.compared.access_paths[id(value)] = where
        if not value:
            # Most of a module's are for hooks.
            return
        self.compared.dicts += [value[key] for key in anew]
        for key, part in value.items():
            if key not in anew:
                self.follow(key, where)
                self.follow(part, f"{where}.{key}" if isinstance(key, str) else where)

    def finish(self) -> None:
        """Follow everything, and then attributes by names, until nothing is new."""
        work, seen, takes = self._work, self.seen, self._takes
        others = takes[object]
        while work or self._follow_spaces() or self._open() or self._find_owners():
            while work:
                value, where, arguments = work.pop()
                kind = type(value)
                if kind is types.FunctionType:
                    self.owners.arguments[id(value)].append(arguments)
                # Python's own names are met, too: `dataclasses` keeps some in globals.
                if kind is str and value[:2] != "__":
                    self.strings.add(value)
                if kind in VALUES or id(value) in seen:
                    continue
                seen[id(value)] = value
                try:
                    takes.get(kind, others)(self, value, where)
                except UnrepeatableError as error:
                    name = error.name or where.rpartition(".")[2]
                    raise UnrepeatableError(f"{error}{self._place(value, where)}", name) from None
        tables = [*[held for held, _ in self.partly], *map(vars, self.growing)]
        # `hasattr` may ask a module for what it doesn't have.
        tables += [vars(x) for x, _ in self.spaces if isinstance(x, types.ModuleType)]
        named = self.owners.all() | self.strings | {"__getattr__"} if tables else ()
        for held in tables:
            self.compared.lacks(held, named)

    def _place(self, value: Any, where: str) -> str:
        """In which function a value is read, or which it is, in words; nothing for the first."""
        functions = self.compared.functions
        found = [x for x in functions if x is value] or [x for x in functions if _reads(x, where)]
        if not found or functions[0] in found:
            return ""
        made_by = sorted(MADE_BY & self.owners.free - CONSTRUCTORS)
        by_name = found[0].__name__ in CONSTRUCTORS and made_by
        way = f", by way of {made_by[0]}" if by_name else ""
        return f" (in {found[0].__qualname__}{way})"

    def _follow_spaces(self) -> bool:
        """Follow the attributes of modules and classes that the code names; whether any is new."""
        self._own_methods()
        if not (self.spaces or self.partly):
            return bool(self._work)
        computed, free = self._computed(), self.owners.free | self.strings
        for space, where in self.spaces:
            table = vars(space)
            is_class = isinstance(space, type)
            # Calling a module calls its `forward`.
            owned = self.owners.by_owner.get(id(space), set()) | {"__getattr__", "forward"}
            if space.__name__ == PACKAGE[:-1] and not is_class:
                for name in table["_ON_USE"].keys() & (self.owners.free | owned):
                    # The call would import it, and so change the module.
                    getattr(space, name)
            names = table.keys() & (free | owned)
            if computed and not (is_own(space.__name__) or space in PURE):
                names |= {x for x in table if x[:2] != "__" and x.startswith(computed)}
                if not is_class and self._is_new(space, ANY):
                    self.compared.dicts.append(table)
            for name in names:
                if self._is_new(space, name):
                    self.compared.reads(table, name)
                    named = is_class and name + NAMING in self.owners.free
                    if named and not isinstance(table[name], str):
                        # A property may compute it.
                        self.owners.free.add(ANY)
                    self.follow_member(space, table[name], f"{where}.{name}")
        for held, where in self.partly:
            names = held.keys() & (free | self.owners.by_owner.get(id(held), set()))
            if computed:
                names |= {x for x in held if x.startswith(computed) and x not in BACKWARD}
                if self._is_new(held, ANY):
                    # It may get others of such names.
                    self.compared.classes.append(held)
            for name in names:
                if self._is_new(held, name):
                    self.compared.reads(held, name)
                    self.follow(held[name], f"{where}.{name}")
        return bool(self._work)

    def _is_new(self, owner: Any, name: str) -> bool:
        """Whether an attribute was not asked for before."""
        key = id(owner), name
        known = key in self._taken
        self._taken.add(key)
        return not known

    def _find_owners(self) -> bool:
        """Find the owners of attributes among all that was followed; whether any is new."""
        if not (self.owners.owned and (self.bare or self.partly or self.optimizers or self.anew)):
            # Nothing was followed whose attributes may change with the names.
            self.owners.free |= self.owners.all()
            # What is named now may be an attribute of a module or class.
            self.owners.owned, new = {}, bool(self.owners.owned and self.spaces)
            return new
        known = self.compared
        tables = [
            *[held for held in known.dicts if held and isinstance(held, dict)],
            *known.classes,
            *map(vars, self.own_classes),
            *[{name: table[name] for name in read} for table, read, _ in known.tables.values()],
            *[{name: cell.cell_contents} for cell, name in known.cells],
        ]
        spaces = [space for space, _ in self.spaces]
        kinds = [(kind, id(kind) in self.seen) for kind in spaces if isinstance(kind, type)]
        return self.owners.find(tables, known.instances, kinds)

    def follow_member(self, space: Any, part: Any, where: str) -> None:
        """Follow an attribute of a module or class."""
        name = where.rpartition(".")[2]
        arguments = (InstanceOf(space, name),) if isinstance(space, type) else ()
        for one in (part.fget, part.fset, part.fdel) if type(part) is property else (part,):
            self.follow(one, where, arguments)

    def _computed(self) -> tuple[str, ...]:
        """With what the names begin that the code computes."""
        found = {name[:-1] for name in self.owners.free if name[-1:] == ANY}
        return ("",) if not OPEN.isdisjoint(self.owners.free) else tuple(found)

    def _open(self) -> bool:
        """Follow what instances have that the code doesn't name, if it may use that, too."""
        if self.bare and not MADE_BY.isdisjoint(self.owners.free):
            for kind in self.bare.values():
                self.follow(kind, kind.__name__)
            self.bare.clear()
        if self.partly and "" in self._computed():
            for held, where in self.partly:
                self.follow_dict(held, where, held.keys() & BACKWARD)
            self.partly.clear()
        if self.shown and not SHOWN.isdisjoint(self.owners.all()):
            while self.shown:
                self.follow_dict(*self.shown.pop())
        known = len(self.owners.free)
        for overridden, own in self.overriding:
            if not overridden <= self.owners.free:
                called = names_of_methods(own, {*self.owners.all(), "__call__", "__repr__"})
                self.owners.free |= overridden & called
        inside = self.owners.free & INSIDE
        if inside:
            for value in [*self.seen.values(), *self.bare.values(), *self.own_classes]:
                if isinstance(value, (type, types.FunctionType)):
                    for name in inside:
                        if self._is_new(value, name):
                            self.follow_attribute(value, name, name)
        return bool(self._work) or len(self.owners.free) > known

    def own_class(self, kind: Any) -> None:
        """A class of this package, in which a program may have replaced methods."""
        if kind not in self.own_classes:
            self.own_classes.append(kind)
            if kind.__module__.startswith(HOLDERS):
                self.compared.attributes.append((kind, "_validate_args"))

    def _own_methods(self) -> None:
        """Compare what this package's classes have of the names in the code; follow a program's."""
        names = self.owners.all() | self.strings | {"forward", "__call__"}
        known = len(names), len(self.own_classes)
        if known == self._known:
            return
        self._known = known
        asked = {name[:-1] for name in names if name[-1:] == ASKED}
        for kind in self.own_classes:
            for name in asked:
                if not hasattr(kind, name) and self._is_new(kind, name):
                    for base in kind.__mro__[:-1]:
                        self.compared.lacks(vars(base), [name])
            for base in kind.__mro__[:-1]:
                if base is Module and kind is not Module:
                    break
                table = vars(base)
                for name in names & table.keys():
                    if self._is_new(kind, name):
                        part = table[name]
                        if name.isidentifier() and getattr(kind, name, None) is part:
                            self.compared.attributes.append((kind, name))
                        else:
                            self.compared.reads(table, name)
                        self._replaced(part, f"{kind.__name__}.{name}")
                        if name == "forward" and type(part) is types.FunctionType:
                            # A layer looks for its function when it is called.
                            for called in _FUNCTIONS.keys() & part.__code__.co_names:
                                self.compared.reads(_FUNCTIONS, called)
                                self._replaced(_FUNCTIONS[called], called)

    def _replaced(self, part: Any, where: str) -> None:
        """Follow an attribute of this package if a program has put it there."""
        if type(part) is not types.FunctionType:
            part = function_in(part)
        scope = getattr(part, "__globals__", None)
        module = type(part).__module__ if scope is None else scope.get("__name__") or ""
        if not is_own(module) and not isinstance(part, IN_C):
            self.follow(part, where)


def _reads(function: types.FunctionType, where: str) -> bool:
    """Whether the code of a function names a global, or what is below it."""
    found = names_in(function.__code__, function.__code__.co_freevars)
    return any(f"{'.'.join(names)}.".startswith(f"{where}.") for names in found.globals)
