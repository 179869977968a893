"""Follows functions and classes: what they name, and what Python calls without naming it."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import types
from typing import Any

from asyncgrad.core.variable import Variable
from asyncgrad.nn.module import Module
from asyncgrad.replay.follower import Follower
from asyncgrad.replay.known import (
    ANY_MAKE,
    BUILTINS,
    BY_STATEMENT,
    HOLDERS,
    IN_C,
    NUMBERS,
    PURE_NAMES,
    check_class,
    check_reporting,
    is_generated,
)
from asyncgrad.replay.names import (
    ANY,
    ASKING,
    CONSTRUCTORS,
    MADE_BY,
    OPEN,
    SHOWING,
    SHOWING_BUILTINS,
    is_own,
    names_in,
)
from asyncgrad.replay.owners import InstanceOf
from asyncgrad.replay.steps import UnrepeatableError
from asyncgrad.replay.unchanged import VALUES

#: Why `functools.singledispatch` can't be followed.
BY_CLASS = "chooses a function by the class of its argument"
#: Programs add functions to those that are known there.
_DIVERGENCES = f"{HOLDERS}.kl"
#: Classes that are as they are.
_LASTING = BUILTINS.union(NUMBERS, [types.SimpleNamespace, contextlib.nullcontext])
#: What a class statement puts into a class by itself.
_ITS_OWN = frozenset({"__dict__", "__weakref__"})


def follow_function(follower: Follower, function: Any, where: str) -> None:
    """Follow what the code of a function names, its defaults and its outer variables."""
    # A transform takes over `__module__` of the function that it is made around.
    module = function.__globals__.get("__name__") or ""
    if is_own(module):
        check_reporting(module, function.__name__, where)
        # A transform, or another function made around the user's.
        for cell in function.__closure__ or ():
            _captured(follower, cell, where)
        if module == _DIVERGENCES:
            follower.follow_dict(function.__globals__["_KNOWN"], where)
        return
    if module.partition(".")[0] in PURE_NAMES:
        if function.__name__ in {"namedtuple", "NamedTuple"}:
            follower.owners.stored.add(ANY)
        if hasattr(function, "registry"):
            raise UnrepeatableError(f"{where} {BY_CLASS}")
        return
    follower.owners.free.update({SHOWING} if module == dataclasses.__name__ else ())
    follower.compared.functions.append(function)
    for cell, name in zip(function.__closure__ or (), function.__code__.co_freevars, strict=True):
        follower.compared.cells.append((cell, name))
        try:
            if name == "__class__" and isinstance(cell.cell_contents, type):
                # `super()` needs it. Code that names it otherwise may make an instance of it.
                class_of_instance(follower, cell.cell_contents)
            else:
                follower.follow(cell.cell_contents, name)
        except ValueError:
            raise UnrepeatableError(f"{name} is not set yet") from None
    follower.follow(function.__defaults__ or (), where)
    if function.__kwdefaults__:
        follower.follow_dict(function.__kwdefaults__, where)
    follower.follow_dict(vars(function), where)
    table, known = function.__globals__, function.__builtins__
    found = names_in(function.__code__, function.__code__.co_freevars)
    follower.owners.take(found, function)
    # A program may have functions of its own under these names.
    asked = () if ASKING & table.keys() else found.asked
    for names in found.globals:
        name, *chain_of_names = names
        is_asked = names in asked
        if name in table:
            follower.compared.reads(table, name)
            _chain(follower, table[name], name, chain_of_names, is_asked=is_asked)
            continue
        follower.compared.lacks(table, [name])
        if name in known:
            follower.compared.reads(known, name)
            made_by = () if is_asked else MADE_BY & {name}
            follower.owners.free.update({SHOWING} if name in SHOWING_BUILTINS else made_by)
            builtin = known[name]
            if not (
                builtin in BUILTINS
                or name in {"NotImplemented", "Ellipsis"}
                or (isinstance(builtin, type) and issubclass(builtin, BaseException))
            ):
                raise UnrepeatableError(f"its code uses {name}()")


def _chain(follower: Follower, value: Any, where: str, names: list[str], *, is_asked: bool) -> None:
    """Follow attributes of modules, as in `package.module.function`, to their end.

    If the code only asks whether something is a class, there may be no more than instances of it.
    """
    while type(value) is types.ModuleType and names:
        name = names[0]
        if name not in vars(value):
            # The module's own `__getattr__` is followed.
            break
        follower.compared.reads(vars(value), name)
        where = f"{where}.{names.pop(0)}"
        value = vars(value)[name]
    if is_asked and not names and type(value) is type:
        value = InstanceOf(value)
    follower.follow(value, where)


def _captured(follower: Follower, cell: Any, where: str) -> None:
    """Follow the user's functions that a function of this package was made around."""
    try:
        value = cell.cell_contents
    except ValueError:
        return
    if isinstance(value, types.FunctionType):
        if not is_own(value.__globals__.get("__name__") or "") or value.__closure__:
            follower.follow(value, where)
        return
    if type(value) in {tuple, list, dict}:
        follower.follow(value, where)
        return
    if type(value) in VALUES:
        return
    own = is_own(type(value).__module__) or isinstance(value, IN_C)
    is_users = callable(value) and not own
    if is_users or isinstance(value, (Module, Variable)) or hasattr(value, "__compiled__"):
        follower.follow(value, where)


def follow_class(follower: Follower, kind: Any, where: str, *, itself: bool = True) -> None:
    """Follow a class.

    What makes instances is followed only if the class `itself` is met, and not if there is merely
    an instance.
    """
    check_class(kind, where)
    seen, constructors = (follower.seen, frozenset()) if itself else (follower.bare, CONSTRUCTORS)
    follower.owners.free.update((OPEN | MADE_BY) & {kind.__name__})
    if itself and (kind is types.SimpleNamespace or issubclass(kind, Module)):
        # Instances may get attributes of any name.
        follower.owners.stored.add(ANY)
    if kind is str or kind.__module__ in PURE_NAMES or issubclass(type(kind), enum.EnumMeta):
        follower.owners.free.add(SHOWING)
    if is_own(kind.__module__):
        check_reporting(kind.__module__, kind.__name__, where)
        follower.own_class(kind)
        return
    if kind in _LASTING or kind.__module__ in PURE_NAMES:
        return
    if kind.__module__.startswith("numpy"):
        raise UnrepeatableError(f"{where} is {kind.__name__}")
    if type(kind) is not type and not issubclass(type(kind), enum.EnumMeta):
        raise UnrepeatableError(f"{where} is a class with a metaclass")
    for base in kind.__mro__:
        known = base is not kind and id(base) in seen
        if base is object or known or base.__module__ in PURE_NAMES:
            continue
        if is_own(base.__module__):
            follower.own_class(base)
        elif base.__flags__ & ANY_MAKE == BY_STATEMENT:
            seen[id(base)] = base
            _users_class(follower, base, where, constructors)
        elif not (base in BUILTINS or issubclass(base, BaseException)):
            raise UnrepeatableError(f"{where} is derived from {base.__name__}")


def _users_class(follower: Follower, kind: Any, where: str, constructors: frozenset[str]) -> None:
    """Follow a class without those that it is derived from."""
    follower.spaces.append((kind, kind.__name__))
    follower.compared.attributes.append((kind, "__mro__"))
    table = vars(kind)
    follower.compared.classes.append(table)
    if not {"__exit__", "__aexit__"}.isdisjoint(table):
        raise UnrepeatableError(f"{where} may catch errors")
    if "__getattribute__" in table or "__class__" in table:
        raise UnrepeatableError(f"{where} decides what its attributes are")
    _special(follower, kind, table, constructors)
    own = [base for base in kind.__mro__ if is_own(base.__module__)]
    names = {x for base in own for x in table.keys() & vars(base).keys() if x[:2] != "__"}
    if names:
        follower.overriding.append((names, own))


def _special(follower: Follower, base: type, table: Any, constructors: frozenset[str]) -> None:
    """Follow what Python calls without naming it; other attributes are followed if named."""
    for name, part in table.items():
        if (
            name.startswith("__")
            and name not in constructors
            and name not in _ITS_OWN
            and (callable(part) or hasattr(type(part), "__get__"))
        ):
            follower.compared.reads(table, name)
            if is_generated(base, name, part):
                continue
            follower.follow_member(base, part, f"{base.__name__}.{name}")
            if name == "__get__":
                # It gets the class.
                follower.owners.free.add("__class__")


def class_of_instance(follower: Follower, kind: Any) -> None:
    """Follow a class of which there is an instance."""
    if is_own(kind.__module__):
        follower.own_class(kind)
    elif kind is not types.SimpleNamespace and id(kind) not in follower.bare:
        follow_class(follower, kind, kind.__name__, itself=False)
