"""What a function can read besides its tensors, and whether that is as it was.

A call can be repeated only if Python would run the same lines again. Which lines it runs depends on
what it reads: arguments, globals, outer variables, attributes. So the code of the function, and of
all functions of the user's that it can reach, is read for names, and what these names lead to is
followed: containers and instances into their contents, modules of this package into their tables.
`Reached.holds` says whether all of it is as it was. What can't be followed, such as a file, a
random generator or an array, makes the function unrepeatable. So does code that sets globals or
outer variables; other effects show as a change of what can be reached.
"""

from __future__ import annotations

import contextlib
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
from asyncgrad.nn.hooks import EVERYWHERE
from asyncgrad.nn.module import Module
from asyncgrad.optim.lr_scheduler import LRScheduler
from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.replay.followed_code import BY_CLASS, FollowedCode
from asyncgrad.replay.known import (
    BUILTINS,
    HOLDERS,
    PURE_NAMES,
    check_class,
    check_tensor,
    is_named_tuple,
    is_plain,
    is_read_where_shown,
    reads_all,
    slots_of,
)
from asyncgrad.replay.named_attributes import BACKWARD
from asyncgrad.replay.names import (
    MADE_BY,
    MOVING,
    OPEN,
    SHOWING,
    SHOWING_BUILTINS,
    is_own,
)
from asyncgrad.replay.steps import UnrepeatableError
from asyncgrad.replay.unchanged import VALUES, is_value
from asyncgrad.tensor import Tensor

#: What may be called of optimisers, schedules and scalers of losses: these methods are called anew.
_CALLED_ANEW = frozenset({"step", "zero_grad"})
_OF_SCALERS = frozenset({"scale", "step", "unscale_", "update"})
#: `Module` without what is derived from it, and the attributes that its own methods read.
_MODULE = frozenset(Module.__mro__)
_OF_MODULES = frozenset({*dir(Module), *vars(Module()), "forward"})


class Reached(FollowedCode):
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
        super().__init__()
        #: The slots of the classes of instances; None if they keep what can't be followed.
        self._slots: dict[type, list[str] | None] = {}
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
        anew = held.keys() & BACKWARD
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

    def _extras(self, held: dict[str, Any], where: str) -> None:
        """Follow what users have set on a parameter, which is nothing in most cases."""
        if held:
            self._partly.append((held, where))
        else:
            self._dicts.append(held)

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

    def _module(self, module: Any, where: str) -> None:
        self._spaces.append((module, module.__name__))
        self._attributes.append((module, "__class__"))


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


_by_class = _refusing(BY_CLASS)
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
