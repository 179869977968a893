"""Which objects may be the owners of the attributes that code names.

In `self.optimizer.step()` the owner of `step` is what is found under the name `optimizer`. So a
method `step` of the class of `self` is not followed for it, if nothing of that class has that name.
"""

from __future__ import annotations

import enum
import functools
import types
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from asyncgrad.nn.module import Module
from asyncgrad.replay.names import ANY, ARGUMENT, UNBOUND, Names, is_own

#: What a class has that gives the same for each instance, or is bound to it.
_METHODS = (types.FunctionType, types.BuiltinFunctionType, classmethod, staticmethod)
#: Classes written in C whose instances hold others.
_HOLDERS: tuple[type, ...] = (
    BaseException, classmethod, defaultdict, enum.Enum, functools.partial,
    functools.cached_property, functools.partialmethod, property, slice, staticmethod, super,
    type, types.FunctionType, types.MethodType,
)  # fmt: skip
#: With these, code may put something under any name.
_SETTING = frozenset({"setattr", "type"})
#: With these, code may call a method with anything.
_UNBOUND = frozenset({"__func__", "__get__"})
#: Under these names they give what they hold.
_GIVEN = frozenset({
    name
    for kind in _HOLDERS
    for base in kind.__mro__
    for name, part in vars(base).items()
    if hasattr(type(part), "__get__") and not callable(part)
})  # fmt: skip


@dataclass(eq=False, repr=False)
class InstanceOf:
    """Stands for an argument that is an instance of a class."""

    kind: type
    #: The name under which the class has the method that gets it.
    method: str = ""


class Owners:
    """The names of attributes, and their owners; `Follower` finds what there is."""

    def __init__(self) -> None:
        #: The names of attributes that may be read off anything.
        self.free: set[str] = set()
        #: Others, by the name under which their owners are found.
        self.owned: dict[str, set[str]] = {}
        #: These, by the identity of an owner, of its class or of its table of attributes.
        self.by_owner: defaultdict[int, set[str]] = defaultdict(set)
        #: The names of owners, the identities of what is under them, and the attributes, so far.
        self._done: set[tuple[str, int, frozenset[str]]] = set()
        #: The names under which code puts something: what it finds there is not known.
        self.stored: set[str] = set()
        #: By the identity of a function: the first of the arguments that it may get, for each way
        #: in which it is found.
        self.arguments: defaultdict[int, list[Sequence[Any]]] = defaultdict(list)

    def take(self, found: Names, function: Any) -> None:
        """Add the names in a function."""
        self.stored |= found.set
        self.free |= found.free
        for by, name in found.owned:
            owner = f"{by}{ARGUMENT}{id(function)}" if by[0] == ARGUMENT else by
            self.owned.setdefault(owner, set()).add(name)

    def all(self) -> set[str]:
        """All names."""
        return self.free.union(*self.owned.values())

    def of(self, owner: Any) -> set[str]:
        """The names that may be read off an object, or off a class and its instances."""
        return self.free | self.by_owner.get(id(owner), set())

    def find(self, tables: list[Any], instances: list[Any], kinds: list[Any]) -> bool:
        """Find out whose attributes are named; whether that is new.

        All that is known by name is in `tables`, and `kinds` are the user's classes, each with
        whether the code may use the class itself.
        """
        computed = [table["__getattr__"] for table in tables if "__getattr__" in table]
        is_open = (
            ANY in self.stored
            or not _SETTING.isdisjoint(self.free)
            or not all(is_own(getattr(one, "__module__", "")) for one in computed)
        )
        if is_open:
            # Anything may be found under any name.
            self.stored |= {name for name in self.owned if name[0] != ARGUMENT}
        new, missing = False, list[str]()
        found = defaultdict[str, list[Any]](list)
        for table in tables:
            for name in self.owned.keys() & table.keys():
                found[name].append(table[name])
        for name, attributes in [*self.owned.items()]:
            if name[0] == ARGUMENT:
                held, unsure = self._held_by(name, instances, kinds), False
            else:
                held = found[name]
                unsure = name in self.stored or name in _GIVEN or any(map(_gives_others, held))
            if unsure:
                self.free |= self.owned.pop(name)
                new = True
            elif not held:
                missing.append(name)
            for value in held:
                step = name, id(value), frozenset(attributes)
                if step not in self._done:
                    self._done.add(step)
                    for key in _identities(value):
                        if not attributes <= self.by_owner[key]:
                            self.by_owner[key] |= attributes
                            new = True
        if not new:
            # What is under these names is not known, and nothing more will be found.
            for name in missing:
                self.free |= self.owned.pop(name)
        return new or bool(missing)

    def _held_by(self, name: str, instances: list[Any], kinds: list[Any]) -> list[Any]:
        """What an argument of a function may be; nothing if that is not known."""
        number, function = map(int, name[1:].split(ARGUMENT))
        found: list[Any] = []
        for arguments in self.arguments[function]:
            if number >= len(arguments) or not _UNBOUND.isdisjoint(self.free):
                return []
            value = arguments[number]
            if value.__class__ is not InstanceOf:
                found.append(value)
                continue
            if f"{value.method}{UNBOUND}" in self.free:
                return []
            derived = [(kind, used) for kind, used in kinds if issubclass(kind, value.kind)]
            if any(used for _, used in derived):
                # The class may be asked for the function, which then gets anything.
                return []
            found += [x for x in instances if isinstance(x, value.kind)]
            found += [kind for kind, _ in derived]
        return found


def _gives_others(value: Any) -> bool:
    """Whether an attribute of this value, or itself as an attribute, may be anything."""
    kind = type(value)
    return (hasattr(kind, "__get__") and not isinstance(value, _METHODS)) or (
        getattr(kind, "__getattr__", None) not in (None, Module.__getattr__)
    )


def _identities(value: Any) -> list[int]:
    kinds = (*type(value).__mro__, *(value.__mro__ if isinstance(value, type) else ()))
    return [id(value), id(getattr(value, "__dict__", None)), *map(id, kinds)]
