"""What a function can read besides its tensors, and whether that is as it was.

A call can be repeated only if Python would run the same lines again. Which lines it runs depends on
what it reads: arguments, globals, outer variables, attributes. So the code of the function, and of
all functions of the user's that it can reach, is read for names, and what these names lead to is
followed: containers and instances into their contents, modules of this package into their tables.
`Reached.holds` says whether all of it is as it was. What can't be followed, such as a file, a
random generator or an array, makes the function unrepeatable. So does code that sets globals or
outer variables; other effects show as a change of what can be reached.

This file is long because each kind of object is followed in its own way, by one class.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import gc
import types
import typing
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable, Sequence
from typing import Any

from asyncgrad.amp import GradScaler
from asyncgrad.autograd.function import FunctionMeta
from asyncgrad.core.modes import Mode
from asyncgrad.core.variable import Variable
from asyncgrad.devices import Device
from asyncgrad.nn import functional
from asyncgrad.nn.hooks import EVERYWHERE
from asyncgrad.nn.module import Module
from asyncgrad.optim.lr_scheduler import LRScheduler
from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.replay.known import (
    ANY_MAKE,
    BUILTINS,
    BY_STATEMENT,
    HOLDERS,
    IN_C,
    NUMBERS,
    PURE,
    PURE_NAMES,
    check_class,
    check_reporting,
    check_tensor,
    is_generated,
    is_named_tuple,
    is_plain,
    is_read_where_shown,
    reads_all,
    slots_of,
)
from asyncgrad.replay.names import (
    ANY,
    ASKED,
    CONSTRUCTORS,
    INSIDE,
    MADE_BY,
    MOVING,
    NAMING,
    OPEN,
    SHOWING,
    SHOWING_BUILTINS,
    SHOWN,
    function_in,
    is_own,
    names_in,
    names_of_methods,
)
from asyncgrad.replay.owners import InstanceOf, Owners
from asyncgrad.replay.steps import UnrepeatableError
from asyncgrad.replay.unchanged import VALUES, Unchanged, is_value
from asyncgrad.tensor import Tensor

#: Programs add functions to those that are known there.
_DIVERGENCES = f"{HOLDERS}.kl"
#: What layers call.
_FUNCTIONS = vars(functional)
#: What may be called of optimisers, schedules and scalers of losses: these methods are called anew.
_CALLED_ANEW = frozenset({"step", "zero_grad"})
_OF_SCALERS = frozenset({"scale", "step", "unscale_", "update"})
#: A module's hooks in passes.
_BACKWARD = frozenset({"_backward_hooks", "_backward_pre_hooks"})
#: `Module` without what is derived from it, and the attributes that its own methods read.
_MODULE = frozenset(Module.__mro__)
_OF_MODULES = frozenset({*dir(Module), *vars(Module()), "forward"})
#: What a class statement puts into a class by itself.
_ITS_OWN = frozenset({"__dict__", "__weakref__"})


class Reached(Unchanged, Owners):
    """What a function can read."""

    def __init__(
        self,
        function: Any,
        arguments: tuple[Any, ...],
        records: Sequence[type] = (),
        given: Sequence[Any] = (),
    ) -> None:
        """Follow a function and those of its arguments that are no plain values.

        Args:
            function: what is called.
            arguments: those that are compared as a whole.
            records: the classes of those that are compared field by field.
            given: what it gets by place.

        Raises:
            UnrepeatableError: if something can't be followed.
        """
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
        #: The slots of the classes of instances; None if they keep what can't be followed.
        self._slots: dict[type, list[str] | None] = {}
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
        #: Where this started: see `start_of`.
        self.start = start_of(arguments, records, given)
        self._follow(function, "the function", given)
        for argument in arguments:
            self._follow(argument, "an argument")
            if argument.__class__ is str:
                # It may be the name of a field.
                self._set.add(argument)
        for kind in records:
            self._class_of_instance(kind)
        self._finish()
        self._snapshot()

    def has_met(self, value: Any) -> bool:
        """Whether the function has reached a value, or a cell, before the call."""
        return id(value) in self._seen or any(value is cell for cell in self._cells)

    # -- the walk ---------------------------------------------------------------------------------

    def _follow(self, value: Any, where: str, arguments: Sequence[Any] = ()) -> None:
        self._work.append((value, where, arguments))

    def _finish(self) -> None:
        """Follow everything, and then attributes by names, until nothing is new."""
        while self._work or self._name_spaces() or self._open() or self._owners():
            while self._work:
                value, where, arguments = self._work.pop()
                kind = type(value)
                if kind is types.FunctionType:
                    self._arguments[id(value)].append(arguments)
                # Python's own names are met, too: `dataclasses` keeps some in globals.
                if kind is str and value[:2] != "__":
                    self._strings.add(value)
                if kind in VALUES or id(value) in self._seen:
                    continue
                self._seen[id(value)] = value
                try:
                    self._take(value, where)
                except UnrepeatableError as error:
                    error.name = error.name or where.rpartition(".")[2]
                    raise
        tables = [*[held for held, _ in self._partly], *map(vars, self._growing)]
        # `hasattr` may ask a module for what it doesn't have.
        tables += [vars(x) for x, _ in self._spaces if isinstance(x, types.ModuleType)]
        if tables:
            named = self._all_names() | self._strings | {"__getattr__"}
        for held in tables:
            *_, absent = self._globals.setdefault(id(held), (held, set(), set()))
            absent |= named.difference(held)
        moving = set(self._names & MOVING)
        for value in self._optimizers:
            attributes = {name for name in (*vars(value), *dir(type(value))) if name[:2] != "__"}
            # One of them may refer to another.
            others = {k for k, v in vars(value).items() if isinstance(v, (Optimizer, LRScheduler))}
            anew = _OF_SCALERS if type(value) is GradScaler else _CALLED_ANEW
            moving |= (self._named_of(value) & attributes) - anew - others
        for kind in self._anew:
            own = {x for base in kind.__mro__ if base is not object for x in vars(base)}
            # `backward` is a method of tensors, too.
            named = self._named_of(kind) - {"apply", "backward"}
            named |= self._by_owner.get(id(kind), set()) & {"backward"}
            moving |= {x for x in named & own if x[:2] != "__"}
        if moving:
            raise UnrepeatableError(f"its code uses .{min(moving)}", min(moving))
        self._arguments.clear()
        self.tensors = [t for t in self._seen.values() if isinstance(t, Variable)]
        for tensor in self.tensors:
            check_tensor(tensor)

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
                names |= {x for x in held if x.startswith(computed) and x not in _BACKWARD}
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
                self._dict(held, where, held.keys() & _BACKWARD)
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

    def _take(self, value: Any, where: str) -> None:
        """Follow one value, by its type."""
        kind = type(value)
        take = _BY_TYPE.get(kind)
        if take is not None:
            take(self, value, where)
            return
        if is_value(kind):
            return
        check_class(kind, where)
        if is_named_tuple(kind):
            self._follow(kind, kind.__name__)
            self._parts(value, where)
        elif issubclass(kind, Variable):
            if not is_own(kind.__module__):
                raise UnrepeatableError(f"{where} is a {kind.__name__}")
            if kind.__dictoffset__:
                self._extras(vars(value), where)
        elif issubclass(kind, type):
            self._class(value, where)
        elif issubclass(kind, (Optimizer, LRScheduler)) or kind is GradScaler:
            self._optimizer(value)
        elif issubclass(kind, Module):
            self._own_class(Module)
            self._instance(value, where)
            self._follow(EVERYWHERE, "hooks of all modules")
        elif issubclass(kind, enum.Enum):
            if not is_own(kind.__module__):
                self._follow(kind, kind.__name__)
                self._dict(vars(value), where)
        elif is_own(kind.__module__):
            self._own(value, where)
        else:
            self._instance(value, where)

    def _parts(self, value: Any, where: str) -> None:
        """Follow what does not change itself, but may hold what does."""
        self._work += [(part, where, ()) for part in value]

    def _list(self, value: Any, where: str) -> None:
        self._lists.append(value)
        self._access_paths[id(value)] = where
        self._parts(value, where)

    def _method(self, value: Any, where: str) -> None:
        owner = value.__self__
        self._follow(value.__func__, where, (owner,))
        self._follow(owner, where)

    def _partial(self, value: Any, where: str) -> None:
        self._attributes += [(value, name) for name in ("func", "args", "keywords")]
        self._parts((value.func, value.args), where)
        self._dict(value.keywords, where)
        self._dict(vars(value), where)

    def _proxy(self, value: Any, where: str) -> None:
        """Follow what a read-only view of a dictionary refers to."""
        self._parts(gc.get_referents(value), where)

    def _default_dict(self, value: Any, where: str) -> None:
        self._attributes.append((value, "default_factory"))
        self._follow(value.default_factory, where)
        self._dict(value, where)

    def _ordered_dict(self, value: Any, where: str) -> None:
        self._extras(vars(value), where)
        self._dict(value, where)

    def _cached_property(self, value: Any, where: str) -> None:
        self._attributes.append((value, "func"))
        self._follow(value.func, where)

    def _wrapped(self, value: Any, where: str) -> None:
        if isinstance(value, classmethod):
            # It gets the class, and may make an instance of it.
            self._names.add("__class__")
        self._follow(value.__func__, where)

    def _builtin(self, value: Any, where: str) -> None:
        if (
            value not in BUILTINS
            and value.__self__ is not tuple
            and value.__module__ not in PURE_NAMES
        ):
            raise UnrepeatableError(f"{where} is {value.__qualname__}(), which is not known")
        self._names.update((OPEN | MADE_BY) & {value.__name__})
        if value.__name__ in SHOWING_BUILTINS or value.__module__ in {"_operator", "_functools"}:
            self._names.add(SHOWING)

    def _of_c(self, value: Any, where: str) -> None:
        """A method of a class written in C, which depends on its arguments."""
        if value.__objclass__ not in BUILTINS and not issubclass(value.__objclass__, Exception):
            raise UnrepeatableError(f"{where} is {value.__qualname__}(), which is not known")
        self._names.add(value.__name__)

    def _extras(self, held: dict[str, Any], where: str) -> None:
        """Follow what users have set on a parameter, which is nothing in most cases."""
        if held:
            self._partly.append((held, where))
        else:
            self._dicts.append(held)

    def _optimizer(self, value: Any) -> None:
        """Its methods are called anew, so its state may change."""
        kind = type(value)
        self._optimizers.append(value)
        self._growing.append(value)
        self._attributes += [(value, "__class__"), (value, "__dict__")]
        for base in kind.__mro__[:-1]:
            if is_own(base.__module__):
                self._own_class(base)
            else:
                table = vars(base)
                self._classes.append(table)
                self._members += [(table, name) for name, part in table.items() if callable(part)]
        for name, part in vars(value).items():
            # What is set on the instance may stand for a method.
            is_method = callable(part) and hasattr(kind, name)
            if is_method or isinstance(part, (Optimizer, LRScheduler)):
                self._attributes.append((value, name))
                self._follow(part, name)

    def _own(self, value: Any, where: str) -> None:
        """An object of this package that is neither a module nor an optimiser."""
        function = getattr(value, "__compiled__", None)
        if function is not None:
            self._follow(function, where)
            self._spaces.append((value, where))
            self._growing.append(value)
        elif isinstance(value, Mode) or type(value).__module__.startswith(HOLDERS):
            self._dict(vars(value), where)
        elif isinstance(value, dict):
            self._dict(value, where)
        elif not (isinstance(value, Device) or type(value).__name__ in {"Size", "Generator"}):
            raise UnrepeatableError(f"{where} is a {type(value).__name__}, which may change")

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

    def _module(self, module: Any, where: str) -> None:
        self._spaces.append((module, module.__name__))
        self._attributes.append((module, "__class__"))

    def _class(self, kind: Any, where: str) -> None:
        self._take_class(kind, where, self._seen)

    def _take_class(self, kind: Any, where: str, seen: dict[int, Any]) -> None:
        """Follow a class.

        What makes instances is followed only if the class itself is met (`seen` is `self._seen`),
        and not if there is merely an instance.
        """
        check_class(kind, where)
        constructors = CONSTRUCTORS if seen is self._bare else frozenset()
        self._names.update((OPEN | MADE_BY) & {kind.__name__})
        if not constructors and (kind is types.SimpleNamespace or issubclass(kind, Module)):
            # Instances may get attributes of any name.
            self._set.add(ANY)
        if kind is str or kind.__module__ in PURE_NAMES or issubclass(type(kind), enum.EnumMeta):
            self._names.add(SHOWING)
        if kind in BUILTINS:
            return
        module = kind.__module__
        if is_own(module):
            check_reporting(module, kind.__name__, where)
            self._own_class(kind)
            return
        if module in PURE_NAMES:
            return
        if kind in {types.SimpleNamespace, contextlib.nullcontext} or kind in NUMBERS:
            return
        if module.startswith("numpy") or not isinstance(kind, type):
            raise UnrepeatableError(f"{where} is {kind.__name__}")
        if type(kind) is not type and not issubclass(type(kind), (enum.EnumMeta,)):
            raise UnrepeatableError(f"{where} is a class with a metaclass")
        for base in kind.__mro__:
            known = base is not kind and id(base) in seen
            if base is object or known or base.__module__ in PURE_NAMES:
                continue
            if is_own(base.__module__):
                self._own_class(base)
            elif base.__flags__ & ANY_MAKE == BY_STATEMENT:
                seen[id(base)] = base
                self._users_class(base, where, constructors)
            elif not (base in BUILTINS or issubclass(base, BaseException)):
                raise UnrepeatableError(f"{where} is derived from {base.__name__}")

    def _users_class(self, kind: Any, where: str, constructors: frozenset[str]) -> None:
        """Follow a class without those that it is derived from."""
        self._spaces.append((kind, kind.__name__))
        self._attributes.append((kind, "__mro__"))
        table = vars(kind)
        self._classes.append(table)
        if not {"__exit__", "__aexit__"}.isdisjoint(table):
            raise UnrepeatableError(f"{where} may catch errors")
        if "__getattribute__" in table or "__class__" in table:
            raise UnrepeatableError(f"{where} decides what its attributes are")
        self._special(kind, table, constructors)
        own = [base for base in kind.__mro__ if is_own(base.__module__)]
        names = {x for base in own for x in table.keys() & vars(base).keys() if x[:2] != "__"}
        if names:
            self._overriding.append((names, own))

    def _special(self, base: type, table: Any, constructors: frozenset[str]) -> None:
        """Follow what Python calls without naming it; other attributes are followed if named."""
        for name, part in table.items():
            if (
                name.startswith("__")
                and name not in constructors
                and name not in _ITS_OWN
                and (callable(part) or hasattr(type(part), "__get__"))
                and not is_generated(base, name, part)
            ):
                self._members.append((table, name))
                self._follow_member(base, part, f"{base.__name__}.{name}")
                if name == "__get__":
                    # It gets the class.
                    self._names.add("__class__")

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

    def _class_of_instance(self, kind: Any) -> None:
        """Follow a class of which there is an instance."""
        if is_own(kind.__module__):
            self._own_class(kind)
        elif kind is not types.SimpleNamespace and id(kind) not in self._bare:
            self._take_class(kind, kind.__name__, self._bare)

    def _function_class(self, kind: Any, where: str) -> None:
        """A `Function`, which is called anew if it is called by `apply`."""
        self._anew.append(kind)

    def _instance(self, value: Any, where: str) -> None:
        kind = type(value)
        if kind not in self._slots:
            is_known = issubclass(kind, types.SimpleNamespace) or is_plain(kind)
            self._slots[kind] = slots_of(kind) if is_known else None
        slots = self._slots[kind]
        if slots is None:
            raise UnrepeatableError(f"{where} is a {kind.__name__}, which may change unseen")
        self._class_of_instance(kind)
        for name in slots:
            self._attributes.append((value, name))
            if hasattr(value, name):
                self._follow(getattr(value, name), f"{where}.{name}")
        if not kind.__dictoffset__:
            self._attributes.append((value, "__class__"))
            return
        self._instances.append(value)
        held = vars(value)
        reads_whole = kind is types.SimpleNamespace or any(map(reads_all, kind.__mro__))
        if isinstance(value, Module):
            self._table_of_module(kind, held, where)
        elif not reads_whole or is_read_where_shown(kind):
            self._partly.append((held, where))
            self._shown += [(held, where)] if reads_whole else []
        else:
            self._dict(held, where)

    def _table_of_module(self, kind: Any, held: dict[str, Any], where: str) -> None:
        """Follow what a module holds: all of it if classes other than `Module` may read it."""
        anew = held.keys() & _BACKWARD
        if any(reads_all(base) for base in kind.__mro__ if base not in _MODULE):
            self._dict(held, where, anew)
            return
        self._dicts += [held[key] for key in anew]
        for name in held.keys() & _OF_MODULES:
            self._reads(held, name)
            if name not in anew:
                self._follow(held[name], f"{where}.{name}")
        self._globals[id(held)][2].update(_OF_MODULES - held.keys())
        self._partly.append((held, where))

    def _function(self, function: Any, where: str) -> None:
        # A transform takes over `__module__` of the function that it is made around.
        module = function.__globals__.get("__name__") or ""
        if is_own(module):
            check_reporting(module, function.__name__, where)
            # A transform, or another function made around the user's.
            for cell in function.__closure__ or ():
                self._captured(cell, where)
            if module == _DIVERGENCES:
                self._dict(function.__globals__["_KNOWN"], where)
            return
        if module.partition(".")[0] in PURE_NAMES:
            if function.__name__ in {"namedtuple", "NamedTuple"}:
                self._set.add(ANY)
            if hasattr(function, "registry"):
                _by_class(self, function, where)
            return
        self._names.update({SHOWING} if module == dataclasses.__name__ else ())
        self.functions.append(function)
        for cell, name in zip(
            function.__closure__ or (), function.__code__.co_freevars, strict=True
        ):
            self._cells.append(cell)
            self._outer.append(name)
            try:
                if name == "__class__" and isinstance(cell.cell_contents, type):
                    # `super()` needs it. Code that names it otherwise may make an instance of it.
                    self._class_of_instance(cell.cell_contents)
                else:
                    self._follow(cell.cell_contents, name)
            except ValueError:
                raise UnrepeatableError(f"{name} is not set yet") from None
        self._follow(function.__defaults__ or (), where)
        if function.__kwdefaults__:
            self._dict(function.__kwdefaults__, where)
        self._dict(vars(function), where)
        table, known = function.__globals__, function.__builtins__
        *_, absent = self._globals.setdefault(id(table), (table, set(), set()))
        found = names_in(function.__code__, function.__code__.co_freevars)
        self._take_names(found, function)
        for name, *chain_of_names in found.globals:
            if name in table:
                self._reads(table, name)
                self._chain(table[name], name, chain_of_names)
            elif name in known:
                absent.add(name)
                self._reads(known, name)
                self._names.update({SHOWING} if name in SHOWING_BUILTINS else MADE_BY & {name})
                builtin = known[name]
                if not (
                    builtin in BUILTINS
                    or name in {"NotImplemented", "Ellipsis"}
                    or (isinstance(builtin, type) and issubclass(builtin, BaseException))
                ):
                    raise UnrepeatableError(f"its code uses {name}()")
            else:
                absent.add(name)

    def _chain(self, value: Any, where: str, names: list[str]) -> None:
        """Follow attributes of modules, as in `package.module.function`, to their end."""
        while type(value) is types.ModuleType and names:
            name = names[0]
            if name not in vars(value):
                # The module's own `__getattr__` is followed.
                break
            self._reads(vars(value), name)
            where = f"{where}.{names.pop(0)}"
            value = vars(value)[name]
        self._follow(value, where)

    def _captured(self, cell: Any, where: str) -> None:
        """Follow the user's functions that a function of this package was made around."""
        try:
            value = cell.cell_contents
        except ValueError:
            return
        if isinstance(value, types.FunctionType):
            if not is_own(value.__globals__.get("__name__") or "") or value.__closure__:
                self._follow(value, where)
            return
        if type(value) in {tuple, list, dict}:
            self._follow(value, where)
            return
        own = is_own(type(value).__module__) or isinstance(value, IN_C)
        is_users = callable(value) and not own
        if is_users or isinstance(value, (Module, Variable)) or hasattr(value, "__compiled__"):
            self._follow(value, where)


def start_of(arguments: Sequence[Any], records: Sequence[type], given: Sequence[Any]) -> list[Any]:
    """The objects from which others are reached, as for `Reached`, apart from tensors.

    If something among them may be a new object in each call, what is returned is one.
    """
    known = {*map(id, arguments)}
    others = [None if isinstance(x, Variable) else x for x in given]
    same = not records and all(type(x) in VALUES or id(x) in known for x in others)
    return [*arguments, *others] if same else [object()]


def _named_parts(*names: str) -> Callable[[Reached, Any, str], None]:
    """What follows some attributes of a value."""
    return lambda self, value, where: self._parts([getattr(value, x) for x in names], where)


def _refusing(why: str) -> Callable[[Reached, Any, str], None]:
    """What raises for a value that can't be followed."""

    def refuse(_: Reached, __: Any, where: str) -> None:
        raise UnrepeatableError(f"{where} {why}")

    return refuse


_by_class = _refusing("chooses a function by the class of its argument")
#: How values of some types are followed.
_BY_TYPE: dict[type, Any] = {
    Tensor: lambda *_: None,
    tuple: Reached._parts,
    frozenset: Reached._parts,
    list: Reached._list,
    set: Reached._list,
    slice: _named_parts("start", "stop", "step"),
    dict: Reached._dict,
    OrderedDict: Reached._ordered_dict,
    defaultdict: Reached._default_dict,
    types.MappingProxyType: Reached._proxy,
    FunctionMeta: Reached._function_class,
    types.FunctionType: Reached._function,
    types.MethodType: Reached._method,
    types.BuiltinFunctionType: Reached._builtin,
    types.ModuleType: Reached._module,
    types.MemberDescriptorType: lambda *_: None,
    types.MethodDescriptorType: Reached._of_c,
    types.WrapperDescriptorType: Reached._of_c,
    type(typing.Optional): lambda *_: None,
    functools.partial: Reached._partial,
    contextlib.nullcontext: lambda self, value, where: self._dict(vars(value), where),
    functools.partialmethod: Reached._partial,
    functools.cached_property: Reached._cached_property,
    functools.singledispatchmethod: _by_class,
    type(functools.lru_cache(len)): _refusing("keeps earlier results"),
    staticmethod: Reached._wrapped,
    classmethod: Reached._wrapped,
    property: _named_parts("fget", "fset", "fdel"),
    # A field of a named tuple is an item, which has been followed.
    type(vars(namedtuple("_Pair", "first"))["first"]): lambda *_: None,
}
