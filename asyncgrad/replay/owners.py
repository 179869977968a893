"""Which objects may be the owners of the attributes that code names.

In `self.optimizer.step()` the owner of `step` is what is found under the name `optimizer`. So a
method `step` of the class of `self` is not followed for it, if nothing of that class has that name.
"""

from __future__ import annotations

import enum
import functools
import types
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from asyncgrad.nn.module import Module
from asyncgrad.replay.names import ANY, FIRST, NAMING, Names, is_own

#: What a class has that gives the same for each instance, or is bound to it.
_METHODS = (types.FunctionType, types.BuiltinFunctionType, classmethod, staticmethod)
#: Classes written in C whose instances hold others.
_HOLDERS: tuple[type, ...] = (
    BaseException, classmethod, defaultdict, enum.Enum, functools.partial,
    functools.cached_property, functools.partialmethod, property, slice, staticmethod, super,
    type, types.FunctionType, types.MethodType,
)  # fmt: skip
#: Under these names they give what they hold.
_GIVEN = frozenset({
    name
    for kind in _HOLDERS
    for base in kind.__mro__
    for name, part in vars(base).items()
    if hasattr(type(part), "__get__") and not callable(part)
})  # fmt: skip


class Owners:
    """The names of attributes, and their owners. Abstract: `Reached` finds what there is."""

    def __init__(self) -> None:
        #: The names of attributes that may be read off anything.
        self._names: set[str] = set()
        #: Others, by the name under which their owners are found.
        self._owned: dict[str, set[str]] = {}
        #: These, by the identity of an owner, of its class or of its table of attributes.
        self._by_owner: defaultdict[int, set[str]] = defaultdict(set)
        #: The names under which code puts something: what it finds there is not known.
        self._set: set[str] = set()
        #: By function: whose method it is, an object, or a class whose instances call it. None if
        #: its first argument may be anything.
        self._receivers: defaultdict[str, list[Any]] = defaultdict(list)

    def _take_names(self, found: Names, special: frozenset[str], function: Any) -> None:
        """Add the names in a function; `special` are attributes that concern not only owners."""
        self._set |= found.set
        for by, name in found.attributes:
            owner = key_of(function) if by == FIRST else by
            if (
                owner
                and name[:2] != "__"
                and not (name in special or ANY in name or NAMING in name)
            ):
                self._owned.setdefault(owner, set()).add(name)
            else:
                self._names.add(name)

    def _all_names(self) -> set[str]:
        return self._names.union(*self._owned.values())

    def _named_of(self, owner: Any) -> set[str]:
        """The names that may be read off an object, or off a class and its instances."""
        return self._names | self._by_owner.get(id(owner), set())

    def _find_owners(self, tables: list[Any], held_by: Callable[[str], list[Any]]) -> bool:
        """Find out whose attributes are named; whether that is new.

        Args:
            tables: dictionaries of all that is known, by name.
            held_by: finds what may be the first argument of a function.
        """
        computed = [table["__getattr__"] for table in tables if "__getattr__" in table]
        if not all(is_own(getattr(one, "__module__", "")) for one in computed):
            # Anything may be found under any name.
            self._set |= {name for name in self._owned if name[0] != FIRST}
        new, missing = False, list[str]()
        for name, attributes in [*self._owned.items()]:
            is_first = name[0] == FIRST
            held = held_by(name) if is_first else [table[name] for table in tables if name in table]
            if (
                name in self._set
                or name in _GIVEN
                or (not is_first and any(map(_gives_others, held)))
            ):
                self._names |= self._owned.pop(name)
                new = True
            elif not held:
                missing.append(name)
            for key in {key for value in held for key in _identities(value)}:
                if not attributes <= self._by_owner[key]:
                    self._by_owner[key] |= attributes
                    new = True
        if not new:
            # What is under these names is not known, and nothing more will be found.
            for name in missing:
                self._names |= self._owned.pop(name)
        return new or bool(missing)


def key_of(function: Any) -> str:
    """What stands for the first argument of a function."""
    return f"{FIRST}{id(function)}"


def _gives_others(value: Any) -> bool:
    """Whether an attribute of this value, or itself as an attribute, may be anything."""
    kind = type(value)
    return (hasattr(kind, "__get__") and not isinstance(value, _METHODS)) or (
        getattr(kind, "__getattr__", None) not in (None, Module.__getattr__)
    )


def _identities(value: Any) -> list[int]:
    kinds = (*type(value).__mro__, *(value.__mro__ if isinstance(value, type) else ()))
    return [id(value), id(getattr(value, "__dict__", None)), *map(id, kinds)]
