"""The attributes that code names, of modules, classes and instances, and of this package's classes.

What is followed gives names, and names give more to follow, until nothing is new.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

from asyncgrad.nn import functional
from asyncgrad.nn.module import Module
from asyncgrad.replay.known import HOLDERS, IN_C, PURE
from asyncgrad.replay.names import (
    ANY,
    ASKED,
    INSIDE,
    MADE_BY,
    NAMING,
    OPEN,
    SHOWN,
    function_in,
    is_own,
    names_of_methods,
)
from asyncgrad.replay.owners import InstanceOf, Owners
from asyncgrad.replay.unchanged import Unchanged
from asyncgrad.tensor import Tensor

#: What layers call.
_FUNCTIONS = vars(functional)
#: A module's hooks in passes.
BACKWARD = frozenset({"_backward_hooks", "_backward_pre_hooks"})


class NamedAttributes(Unchanged, Owners):
    """What is followed, and the attributes of it that code names. Abstract, as `Owners` is."""

    def __init__(self) -> None:
        Unchanged.__init__(self)
        Owners.__init__(self)
        self._seen: dict[int, Any] = {}
        #: What is still to be followed, how errors call it, and what it gets if it is called.
        self._work: list[tuple[Any, str, Sequence[Any]]] = []
        #: Strings that are met: `getattr` may get them.
        self._strings: set[str] = set()
        #: Python modules and classes, whose attributes are followed by the names in the code.
        self._spaces: list[tuple[Any, str]] = []
        self._taken: set[tuple[int, str]] = set()
        #: Classes of which instances are met.
        self._bare: dict[int, Any] = {}
        #: What a program's classes override of this package's classes, by name, with these classes.
        self._overriding: list[tuple[set[str], list[Any]]] = []
        #: The tables of instances of which only attributes that the code names are followed.
        self._partly: list[tuple[dict[str, Any], str]] = []
        #: Those that are read as a whole where an instance is shown or compared.
        self._shown: list[tuple[dict[str, Any], str]] = []
        self._optimizers: list[Any] = []
        #: Classes of this package, of which instances are met, or which are met themselves.
        self._own_classes: list[Any] = [Tensor]
        self._known = 0, 0
        #: Objects of this package that may get further attributes, which the code names.
        self._growing: list[Any] = []
        self._anew: list[Any] = []

    def _follow(self, value: Any, where: str, arguments: Sequence[Any] = ()) -> None:
        self._work.append((value, where, arguments))

    def _parts(self, value: Any, where: str) -> None:
        """Follow what does not change itself, but may hold what does."""
        self._work += [(part, where, ()) for part in value]

    def _list(self, value: Any, where: str) -> None:
        self._lists.append(value)
        self._access_paths[id(value)] = where
        self._parts(value, where)

    def _dict(self, value: Any, where: str, anew: Any = ()) -> None:
        """Follow a dictionary, but not what is under the keys `anew`: a replay calls that anew."""
        self._dicts.append(value)
        self._access_paths[id(value)] = where
        if not value:
            # Most of a module's are for hooks.
            return
        self._dicts += [value[key] for key in anew]
        for key, part in value.items():
            if key not in anew:
                self._follow(key, where)
                self._follow(part, f"{where}.{key}" if isinstance(key, str) else where)

    def _name_spaces(self) -> bool:
        """Follow the attributes of modules and classes that the code names; whether any is new."""
        self._own_methods()
        computed, free = self._computed(), self._names | self._strings
        for space, where in self._spaces:
            table = vars(space)
            is_class = isinstance(space, type)
            # Calling a module calls its `forward`.
            owned = self._by_owner.get(id(space), set()) | {"__getattr__", "forward"}
            names = (free & table.keys()) | (owned & table.keys())
            if computed and not (is_own(space.__name__) or space in PURE):
                names |= {x for x in table if x[:2] != "__" and x.startswith(computed)}
                if not is_class and self._is_new(space, ANY):
                    self._dicts.append(table)
            for name in names:
                if self._is_new(space, name):
                    if is_class:
                        self._members.append((table, name))
                        if name + NAMING in self._names and not isinstance(table[name], str):
                            # A property may compute it.
                            self._names.add(ANY)
                    else:
                        self._reads(table, name)
                    self._follow_member(space, table[name], f"{where}.{name}")
        for held, where in self._partly:
            names = (free & held.keys()) | (self._by_owner.get(id(held), set()) & held.keys())
            if computed:
                names |= {x for x in held if x.startswith(computed) and x not in BACKWARD}
                if self._is_new(held, ANY):
                    # It may get others of such names.
                    self._classes.append(held)
            for name in names:
                if self._is_new(held, name):
                    self._reads(held, name)
                    self._follow(held[name], f"{where}.{name}")
        return bool(self._work)

    def _is_new(self, owner: Any, name: str) -> bool:
        """Whether an attribute was not asked for before."""
        key = id(owner), name
        known = key in self._taken
        self._taken.add(key)
        return not known

    def _owners(self) -> bool:
        """Find the owners of attributes among all that was followed; whether any is new."""
        if not (self._owned and (self._bare or self._partly or self._optimizers or self._anew)):
            # Nothing was followed whose attributes may change with the names.
            self._names |= self._all_names()
            # What is named now may be an attribute of a module or class.
            self._owned, new = {}, bool(self._owned and self._spaces)
            return new
        tables = [
            *[held for held in self._dicts if held and isinstance(held, dict)],
            *self._classes,
            *map(vars, self._own_classes),
            *[{name: table[name] for name in read} for table, read, _ in self._globals.values()],
            *[{n: c.cell_contents} for n, c in zip(self._outer, self._cells, strict=True)],
        ]
        spaces = [space for space, _ in self._spaces]
        kinds = [(kind, id(kind) in self._seen) for kind in spaces if isinstance(kind, type)]
        return self._find_owners(tables, self._instances, kinds)

    def _follow_member(self, space: Any, part: Any, where: str) -> None:
        """Follow an attribute of a module or class."""
        arguments = (InstanceOf(space),) if isinstance(space, type) else ()
        for one in (part.fget, part.fset, part.fdel) if type(part) is property else (part,):
            self._follow(one, where, arguments)

    def _computed(self) -> tuple[str, ...]:
        """With what the names begin that the code computes."""
        found = {name[:-1] for name in self._names if name[-1:] == ANY}
        return ("",) if not OPEN.isdisjoint(self._names) else tuple(found)

    def _open(self) -> bool:
        """Follow what instances have that the code doesn't name, if it may use that, too."""
        if self._bare and not MADE_BY.isdisjoint(self._names):
            for kind in self._bare.values():
                self._follow(kind, kind.__name__)
            self._bare.clear()
        if self._partly and "" in self._computed():
            for held, where in self._partly:
                self._dict(held, where, held.keys() & BACKWARD)
            self._partly.clear()
        if self._shown and not SHOWN.isdisjoint(self._all_names()):
            while self._shown:
                self._dict(*self._shown.pop())
        known = len(self._names)
        for overridden, own in self._overriding:
            if not overridden <= self._names:
                called = names_of_methods(own, {*self._all_names(), "__call__", "__repr__"})
                self._names |= overridden & called
        inside = self._names & INSIDE
        if inside:
            for value in [*self._seen.values(), *self._bare.values(), *self._own_classes]:
                if isinstance(value, (type, types.FunctionType)):
                    for name in inside:
                        if self._is_new(value, name):
                            self._attributes.append((value, name))
                            self._follow(getattr(value, name, None), name)
        return bool(self._work) or len(self._names) > known

    def _own_class(self, kind: Any) -> None:
        """A class of this package, in which a program may have replaced methods."""
        if kind not in self._own_classes:
            self._own_classes.append(kind)
            if kind.__module__.startswith(HOLDERS):
                self._attributes.append((kind, "_validate_args"))

    def _own_methods(self) -> None:
        """Compare what this package's classes have of the names in the code; follow a program's."""
        names = self._all_names() | self._strings | {"forward", "__call__"}
        known = len(names), len(self._own_classes)
        if known == self._known:
            return
        self._known = known
        asked = {name[:-1] for name in names if name[-1:] == ASKED}
        for kind in self._own_classes:
            for name in asked:
                if not hasattr(kind, name) and self._is_new(kind, name):
                    self._members += [(vars(base), name) for base in kind.__mro__[:-1]]
            for base in kind.__mro__[:-1]:
                if base is Module and kind is not Module:
                    break
                table = vars(base)
                for name in names & table.keys():
                    if self._is_new(kind, name):
                        part = table[name]
                        if name.isidentifier() and getattr(kind, name, None) is part:
                            self._attributes.append((kind, name))
                        else:
                            self._members.append((table, name))
                        self._replaced(part, f"{kind.__name__}.{name}")
                        if name == "forward" and type(part) is types.FunctionType:
                            # A layer looks for its function when it is called.
                            for called in _FUNCTIONS.keys() & part.__code__.co_names:
                                self._reads(_FUNCTIONS, called)
                                self._replaced(_FUNCTIONS[called], called)

    def _replaced(self, part: Any, where: str) -> None:
        """Follow an attribute of this package if a program has put it there."""
        if type(part) is not types.FunctionType:
            part = function_in(part)
        scope = getattr(part, "__globals__", None)
        module = type(part).__module__ if scope is None else scope.get("__name__") or ""
        if not is_own(module) and not isinstance(part, IN_C):
            self._follow(part, where)
