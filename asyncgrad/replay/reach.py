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
from asyncgrad.replay.followed_code import (
    BY_CLASS,
    class_of_instance,
    follow_class,
    follow_function,
)
from asyncgrad.replay.follower import BACKWARD, Follower
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
from asyncgrad.replay.names import MADE_BY, MOVING, OPEN, SHOWING, SHOWING_BUILTINS, is_own
from asyncgrad.replay.owners import InstanceOf
from asyncgrad.replay.steps import UnrepeatableError
from asyncgrad.replay.unchanged import VALUES, Unchanged, is_value
from asyncgrad.tensor import Tensor

#: Why a call that may reach a function written in C is not replayed.
_UNKNOWN = "{} is {}(), which is not known to depend on its arguments alone"
#: What may be called of optimisers, schedules and scalers of losses: these methods are called anew.
_CALLED_ANEW = frozenset({"step", "zero_grad"})
_OF_SCALERS = frozenset({"scale", "step", "unscale_", "update"})
#: `Module` without what is derived from it, and the attributes that its own methods read.
_MODULE = frozenset(Module.__mro__)
_OF_MODULES = frozenset({*dir(Module), *vars(Module()), "forward"})


class Reached(Unchanged):
    """What a function can read."""

    def __init__(
        self,
        function: Any,
        arguments: tuple[Any, ...],
        records: Sequence[type] = (),
        given: Sequence[Any] = (),
    ) -> None:
        """Follow a function and those of its arguments that are no plain values.

        Some `arguments` are compared as a whole; of others, which are compared field by field,
        `records` has the classes. `given` is what the function gets by place.
        """
        super().__init__()
        #: Where this started: see `start_of`.
        self.start = start_of(arguments, records, given)
        follower = Follower(self, _BY_TYPE)
        follower.follow(function, "the function", given)
        for argument in arguments:
            follower.follow(argument, "an argument")
            if argument.__class__ is str:
                # It may name an attribute that the code sets.
                follower.owners.stored.add(argument)
        for kind in records:
            class_of_instance(follower, kind)
        follower.finish()
        _refuse_moving(follower)
        self._seen = follower.seen
        self.tensors = [t for t in self._seen.values() if isinstance(t, Variable)]
        for tensor in self.tensors:
            check_tensor(tensor)
        self.snapshot()

    def has_met(self, value: Any) -> bool:
        """Whether the function has reached a value, or a cell, before the call."""
        return id(value) in self._seen or any(value is cell for cell, _ in self.cells)


def _refuse_moving(follower: Follower) -> None:
    """Raise if code names what changes without a trace in what is compared."""
    owners = follower.owners
    moving = owners.free & MOVING
    for value in follower.optimizers:
        attributes = {name for name in (*vars(value), *dir(type(value))) if name[:2] != "__"}
        # One of them may refer to another.
        others = {k for k, v in vars(value).items() if isinstance(v, (Optimizer, LRScheduler))}
        anew = _OF_SCALERS if type(value) is GradScaler else _CALLED_ANEW
        moving |= (owners.of(value) & attributes) - anew - others
    for kind in follower.anew:
        own = {x for base in kind.__mro__ if base is not object for x in vars(base)}
        # `backward` is a method of tensors, too.
        named = owners.of(kind) - {"apply", "backward"}
        named |= owners.by_owner.get(id(kind), set()) & {"backward"}
        moving |= {x for x in named & own if x[:2] != "__"}
    if moving:
        raise UnrepeatableError(f"its code uses .{min(moving)}", min(moving))


def _other(follower: Follower, value: Any, where: str) -> None:
    """Follow a value of none of the types in `_BY_TYPE`."""
    kind = type(value)
    if is_value(kind):
        return
    check_class(kind, where)
    if is_named_tuple(kind):
        class_of_instance(follower, kind)
        follower.parts(value, where)
    elif issubclass(kind, Variable):
        if not is_own(kind.__module__):
            raise UnrepeatableError(f"{where} is a {kind.__name__}")
        if kind.__dictoffset__:
            _extras(follower, vars(value), where)
    elif issubclass(kind, type):
        follow_class(follower, value, where)
    elif issubclass(kind, (Optimizer, LRScheduler)) or kind is GradScaler:
        _optimizer(follower, value)
    elif issubclass(kind, Module):
        follower.own_class(Module)
        _instance(follower, value, where)
        follower.follow(EVERYWHERE, "hooks of all modules")
    elif issubclass(kind, enum.Enum):
        if not is_own(kind.__module__):
            follower.follow(kind, kind.__name__)
            follower.follow_dict(vars(value), where)
    elif is_own(kind.__module__):
        _own(follower, value, where)
    else:
        _instance(follower, value, where)


def _instance(follower: Follower, value: Any, where: str) -> None:
    kind = type(value)
    if kind not in follower.slots:
        is_known = issubclass(kind, types.SimpleNamespace) or is_plain(kind)
        follower.slots[kind] = slots_of(kind) if is_known else None
    slots = follower.slots[kind]
    if slots is None:
        raise UnrepeatableError(f"{where} is a {kind.__name__}, which may change unseen")
    class_of_instance(follower, kind)
    for name in slots:
        follower.follow_attribute(value, name, f"{where}.{name}")
    if not kind.__dictoffset__:
        follower.compared.attributes.append((value, "__class__"))
        return
    follower.compared.instances.append(value)
    held = vars(value)
    reads_whole = kind is types.SimpleNamespace or any(map(reads_all, kind.__mro__))
    if isinstance(value, Module):
        _table_of_module(follower, kind, held, where)
    elif not reads_whole or is_read_where_shown(kind):
        follower.partly.append((held, where))
        follower.shown += [(held, where)] if reads_whole else []
    else:
        follower.follow_dict(held, where)


def _table_of_module(follower: Follower, kind: Any, held: dict[str, Any], where: str) -> None:
    """Follow what a module holds: all of it if classes other than `Module` may read it."""
    anew = held.keys() & BACKWARD
    if any(reads_all(base) for base in kind.__mro__ if base not in _MODULE):
        follower.follow_dict(held, where, anew)
        return
    follower.compared.dicts += [held[key] for key in anew]
    for name in held.keys() & _OF_MODULES:
        follower.compared.reads(held, name)
        if name not in anew:
            follower.follow(held[name], f"{where}.{name}")
    follower.compared.lacks(held, _OF_MODULES)
    follower.partly.append((held, where))


def _extras(follower: Follower, held: dict[str, Any], where: str) -> None:
    """Follow what users have set on a parameter, which is nothing in most cases."""
    if held:
        follower.partly.append((held, where))
    else:
        follower.compared.dicts.append(held)


def _method(follower: Follower, value: Any, where: str) -> None:
    owner = value.__self__
    follower.follow(value.__func__, where, (owner,))
    follower.follow(owner, where)


def _partial(follower: Follower, value: Any, where: str) -> None:
    for name in ("func", "args", "keywords"):
        follower.follow_attribute(value, name, where)
    follower.follow_dict(vars(value), where)


def _default_dict(follower: Follower, value: Any, where: str) -> None:
    follower.follow_attribute(value, "default_factory", where)
    follower.follow_dict(value, where)


def _ordered_dict(follower: Follower, value: Any, where: str) -> None:
    _extras(follower, vars(value), where)
    follower.follow_dict(value, where)


def _wrapped(follower: Follower, value: Any, where: str) -> None:
    if isinstance(value, classmethod):
        # It gets the class, and may make an instance of it.
        follower.owners.free.add("__class__")
    follower.follow(value.__func__, where)


def _builtin(follower: Follower, value: Any, where: str) -> None:
    if value.__self__ is tuple:
        # What makes named tuples calls no constructor of theirs.
        return
    if value not in BUILTINS and value.__module__ not in PURE_NAMES:
        raise UnrepeatableError(_UNKNOWN.format(where, value.__qualname__))
    follower.owners.free.update((OPEN | MADE_BY) & {value.__name__})
    if value.__name__ in SHOWING_BUILTINS or value.__module__ in {"_operator", "_functools"}:
        follower.owners.free.add(SHOWING)


def _of_c(follower: Follower, value: Any, where: str) -> None:
    """A method of a class written in C, which depends on its arguments."""
    if value.__objclass__ not in BUILTINS and not issubclass(value.__objclass__, Exception):
        raise UnrepeatableError(_UNKNOWN.format(where, value.__qualname__))
    follower.owners.free.add(value.__name__)


def _optimizer(follower: Follower, value: Any) -> None:
    """Its methods are called anew, so its state may change."""
    kind = type(value)
    follower.optimizers.append(value)
    follower.growing.append(value)
    follower.compared.attributes += [(value, "__class__"), (value, "__dict__")]
    for base in kind.__mro__[:-1]:
        if is_own(base.__module__):
            follower.own_class(base)
        else:
            table = vars(base)
            follower.compared.classes.append(table)
            for name, part in table.items():
                if callable(part):
                    follower.compared.reads(table, name)
    for name, part in vars(value).items():
        # What is set on the instance may stand for a method.
        is_method = callable(part) and hasattr(kind, name)
        if is_method or isinstance(part, (Optimizer, LRScheduler)):
            follower.follow_attribute(value, name, name)


def _own(follower: Follower, value: Any, where: str) -> None:
    """An object of this package that is neither a module nor an optimiser."""
    function = getattr(value, "__compiled__", None)
    if function is not None:
        follower.follow(function, where)
        follower.spaces.append((value, where))
        follower.growing.append(value)
    elif isinstance(value, Mode) or type(value).__module__.startswith(HOLDERS):
        follower.follow_dict(vars(value), where)
    elif isinstance(value, dict):
        follower.follow_dict(value, where)
    elif not (isinstance(value, Device) or type(value).__name__ in {"Size", "Generator"}):
        raise UnrepeatableError(f"{where} is a {type(value).__name__}, which may change")


def _module(follower: Follower, module: Any, where: str) -> None:
    follower.spaces.append((module, module.__name__))
    follower.compared.attributes.append((module, "__class__"))


def start_of(arguments: Sequence[Any], records: Sequence[type], given: Sequence[Any]) -> list[Any]:
    """The objects from which others are reached, as for `Reached`, apart from tensors.

    If something among them may be a new object in each call, what is returned is one.
    """
    known = {*map(id, arguments)}
    others = [None if isinstance(x, Variable) else x for x in given]
    same = not records and all(type(x) in VALUES or id(x) in known for x in others)
    return [*arguments, *others] if same else [object()]


def _named_parts(*names: str) -> Callable[[Follower, Any, str], None]:
    """What follows some attributes of a value."""
    return lambda follower, value, where: follower.parts([getattr(value, x) for x in names], where)


def _refusing(why: str) -> Callable[[Follower, Any, str], None]:
    """What raises for a value that can't be followed."""

    def refuse(_: Follower, __: Any, where: str) -> None:
        raise UnrepeatableError(f"{where} {why}")

    return refuse


#: How values of some types are followed.
_BY_TYPE: dict[type, Any] = {
    object: _other,
    Tensor: lambda *_: None,
    InstanceOf: lambda follower, value, _: class_of_instance(follower, value.kind),
    tuple: Follower.parts,
    frozenset: Follower.parts,
    list: Follower.follow_list,
    set: Follower.follow_list,
    slice: _named_parts("start", "stop", "step"),
    dict: Follower.follow_dict,
    OrderedDict: _ordered_dict,
    defaultdict: _default_dict,
    # The dictionary of which it is a read-only view.
    types.MappingProxyType: lambda follower, value, where: follower.parts(
        gc.get_referents(value), where
    ),
    # A `Function`, which is called anew if it is called by `apply`.
    FunctionMeta: lambda follower, kind, _: follower.anew.append(kind),
    types.FunctionType: follow_function,
    types.MethodType: _method,
    types.BuiltinFunctionType: _builtin,
    types.ModuleType: _module,
    types.MemberDescriptorType: lambda *_: None,
    types.MethodDescriptorType: _of_c,
    types.WrapperDescriptorType: _of_c,
    type(typing.Optional): lambda *_: None,
    functools.partial: _partial,
    contextlib.nullcontext: lambda follower, value, where: follower.follow_dict(vars(value), where),
    functools.partialmethod: _partial,
    functools.cached_property: lambda follower, value, where: follower.follow_attribute(
        value, "func", where
    ),
    functools.singledispatchmethod: _refusing(BY_CLASS),
    type(functools.lru_cache(len)): _refusing("keeps earlier results"),
    staticmethod: _wrapped,
    classmethod: _wrapped,
    property: _named_parts("fget", "fset", "fdel"),
    # A field of a named tuple is an item, which has been followed.
    type(vars(namedtuple("_Pair", "first"))["first"]): lambda *_: None,
}
