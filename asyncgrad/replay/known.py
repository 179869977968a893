"""What is known to depend on its arguments alone, and what instances keep.

All that is not listed here, and that `replay.reach` can't follow, makes a call eager.
"""

from __future__ import annotations

import builtins
import cmath
import dataclasses
import enum
import functools
import itertools
import math
import operator
import types
import typing
from typing import Any

import numpy as np

from asyncgrad.core.variable import requires_grad
from asyncgrad.nn.module import Module
from asyncgrad.optim.lr_scheduler import LRScheduler
from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.replay.names import PACKAGE, is_own
from asyncgrad.replay.steps import UnrepeatableError
from asyncgrad.replay.unchanged import hooked

#: Modules whose functions depend on their arguments alone.
PURE = (math, cmath, operator, itertools, functools, typing, enum)
PURE_NAMES = frozenset(module.__name__ for module in PURE) | {
    "_functools", "_operator", "collections",
}  # fmt: skip
BUILTINS = frozenset(
    getattr(builtins, name)
    for name in (
        "abs", "all", "any", "ascii", "bin", "bool", "bytes", "callable", "chr", "classmethod",
        "complex", "dict", "divmod", "enumerate", "filter", "float", "format", "frozenset",
        "getattr", "hasattr", "hex", "int", "isinstance", "issubclass", "iter", "len", "list",
        "map", "max", "min", "next", "object", "oct", "ord", "pow", "property", "range", "repr",
        "reversed", "round", "set", "setattr", "slice", "sorted", "staticmethod", "str", "sum",
        "super", "tuple", "type", "zip",
    )
)  # fmt: skip
#: Parts of this package whose functions depend on their arguments alone, or report to recorders
#: what else they depend on.
_REPORTING = frozenset({
    "autograd", "core", "devices", "distributions", "errors", "fft", "func", "linalg", "native",
    "nn", "ops", "optim", "records", "remedies", "replay", "special", "sync", "tensor", "types",
})  # fmt: skip
#: Modules of these parts whose functions have effects that they do not report.
_EFFECTS = tuple(
    f"{PACKAGE}{name}"
    for name in (
        "devices.streams", "nn.init", "nn.snapshot", "ops.tensors.rng", "ops.tensors.printing",
    )
)  # fmt: skip
#: Functions of other parts that report all that they do.
_FOLLOWED = frozenset({
    f"{PACKAGE}_top_level.trace", f"{PACKAGE}amp.autocast",
    f"{PACKAGE}utils.checkpoint.checkpoint",
    f"{PACKAGE}utils.checkpoint.checkpoint_sequential", f"{PACKAGE}utils.__getattr__",
})  # fmt: skip
#: Parts of this package whose objects hold values, and nothing that changes unseen.
HOLDERS = f"{PACKAGE}distributions"
#: Of these flags of classes, class statements set the first alone: Py_TPFLAGS_HEAPTYPE and, which
#: classes in C may have, Py_TPFLAGS_IMMUTABLETYPE.
BY_STATEMENT = 1 << 9
ANY_MAKE = BY_STATEMENT | 1 << 8
#: Methods that `dataclasses` makes.
_GENERATED = frozenset({
    "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__getstate__", "__setstate__",
    "__replace__",
})  # fmt: skip
#: The parts of code that say what it does.
_COMPARED = ("co_code", "co_consts", "co_freevars", "co_names", "co_varnames")
#: The most bytes that such an instance takes beside its table of attributes, and those of a slot.
_BARE_SIZE = type("_Bare", (), {}).__basicsize__
_SLOT = np.dtype(np.intp).itemsize
#: What is not written in Python, among what functions are made around.
IN_C = (
    np.ufunc, type, types.BuiltinFunctionType, types.ClassMethodDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.MethodDescriptorType,
    types.WrapperDescriptorType,
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (np.float16, np.float32, np.float64, np.int32, np.int64, np.bool_)


def check_reporting(module: str, name: str, where: str) -> None:
    """Raise for a part of this package that has effects which it does not report to recorders."""
    part = f"{module}.".split(".")[1]
    if (part in _REPORTING or not part) and not module.startswith(_EFFECTS):
        return
    if f"{module}.{name}" not in _FOLLOWED:
        raise UnrepeatableError(f"{where} is {module}.{name}, whose effects are not recorded")


def slots_of(kind: Any) -> list[str]:
    """The attributes for which instances have slots."""
    if not any(vars(base).get("__slots__") for base in kind.__mro__):
        return []
    parts = [item for base in kind.__mro__ for item in vars(base).items()]
    return [name for name, part in parts if type(part) is types.MemberDescriptorType]


def is_plain(kind: Any) -> bool:
    """Whether instances keep all of their state in `__dict__`, and in slots of their names."""
    slots = slots_of(kind)
    return (
        kind.__basicsize__ <= _BARE_SIZE + _SLOT * len(slots)
        and all(type(getattr(kind, name, None)) is types.MemberDescriptorType for name in slots)
        and len(set(slots)) == len(slots)
        and all(
            base is object or base.__flags__ & ANY_MAKE == BY_STATEMENT for base in kind.__mro__
        )
    )


def is_named_tuple(kind: Any) -> bool:
    """Whether instances hold nothing but the items of a tuple, some of which have names."""
    return (
        issubclass(kind, tuple)
        and hasattr(kind, "_fields")
        and not kind.__dictoffset__
        and all(
            getattr(kind, x) is getattr(tuple, x) for x in ("__getitem__", "__iter__", "__len__")
        )
    )


def is_record(kind: Any) -> bool:
    """Whether instances are mainly there to hold fields."""
    return kind is types.SimpleNamespace or (
        is_plain(kind)
        and kind.__dictoffset__
        and not slots_of(kind)
        and (dataclasses.is_dataclass(kind) or hasattr(kind, "__attrs_attrs__"))
        and not is_own(kind.__module__)
        and not issubclass(kind, (Module, Optimizer, LRScheduler))
    )


def reads_all(kind: type) -> bool:
    """Whether functions that are not followed may read attributes that the code doesn't name."""
    return (
        "__dataclass_fields__" in vars(kind)
        or kind.__module__ in PURE_NAMES - {"typing"}
        or is_own(kind.__module__)
    )


def is_read_where_shown(kind: Any) -> bool:
    """Whether all attributes of an instance are read only where it is shown or compared."""
    return kind.__hash__ is None and all(
        "__dataclass_fields__" in vars(base) or not reads_all(base) for base in kind.__mro__
    )


def is_generated(kind: type, name: str, function: Any) -> bool:
    """Whether a method only shows, copies or compares fields, or refuses changes.

    `dataclasses` makes such methods, and `collections` those of named tuples.
    """
    if is_named_tuple(kind) and _module_of(function) == "collections":
        return True
    if name not in _GENERATED or not dataclasses.is_dataclass(kind):
        return False
    if _module_of(function) in {"dataclasses", "reprlib"}:
        # A generated `__repr__` is wrapped, by one module or the other, against endless recursion.
        function = getattr(function, "__wrapped__", function)
    if _module_of(function) == "dataclasses":
        return True
    # `dataclasses` executes text. So do programs, but theirs may read more than fields.
    code = getattr(function, "__code__", None)
    if code is None or code.co_filename != "<string>" or function.__defaults__:
        return False
    fields = tuple([(x.name, x.repr, x.hash, x.compare) for x in dataclasses.fields(kind)])
    frozen = name in {"__setattr__", "__delattr__"}
    made = getattr(_with_fields(fields, frozen=frozen), name)
    own = getattr(made, "__wrapped__", made).__code__
    return all(getattr(code, part) == getattr(own, part) for part in _COMPARED)


def _module_of(function: Any) -> Any:
    """The module in which a function was written: wrappers take over `__module__`."""
    return getattr(function, "__globals__", {}).get("__name__")


@functools.lru_cache(64)
def _with_fields(fields: tuple[Any, ...], *, frozen: bool) -> type:
    """A data class with such fields, and with all methods that `dataclasses` makes for them."""
    parts = [
        (name, object, dataclasses.field(repr=shown, hash=hashed, compare=compared))
        for name, shown, hashed, compared in fields
    ]
    return dataclasses.make_dataclass("_WithFields", parts, unsafe_hash=True, frozen=frozen)


def check_class(kind: type, where: str) -> None:
    """Raise for a class that names no module, as one that code without a `__name__` has made."""
    if not isinstance(getattr(kind, "__module__", None), str):
        raise UnrepeatableError(f"{where} has a class of no module")


def check_tensor(tensor: Any, *, argument: bool = False) -> None:
    """Raise for a tensor that a program can't start from; an argument may have a graph."""
    meta = tensor._autograd
    if tensor._edge is not None and not argument:
        raise UnrepeatableError("it reaches a tensor that was computed with a graph")
    if tensor._array.__class__ is not tensor._metadata.device.array_type:
        raise UnrepeatableError("it uses a sparse tensor")
    if meta is None or tensor._edge is not None:
        return
    if meta.retains_grad or (argument and hooked(meta)):
        raise UnrepeatableError("it uses a tensor with hooks")
    if meta.view is not None and requires_grad(tensor):
        raise UnrepeatableError("it uses a view of a tensor that requires grad")
