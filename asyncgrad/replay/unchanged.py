"""Whether what a function can read is as it was when a call of it was recorded.

Everything is compared by identity. A plain value that is another object is compared by value.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice
from operator import attrgetter, is_
from types import CodeType
from typing import Any, cast

import numpy as np

from asyncgrad.ops.dtype import DType
from asyncgrad.ops.generated import compiled, function_of
from asyncgrad.ops.promotion import default_dtype

#: The types of values that never change. Others of these types are compared by value.
VALUES = frozenset({
    type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented),
    DType, range,
})  # fmt: skip
_KIND_OF_DTYPES = type(np.dtype)
_ABSENT: Any = object()
_TENSOR = ("_metadata", "_edge", "_autograd")
_tensor_state = attrgetter(*_TENSOR, "_array.strides")
#: What is compared of a leaf.
_META = ("requires_grad", "extras", "post_accumulate", "retains_grad", "grad_dtype", "inference")
meta_state = attrgetter(*_META)
#: Code is made of the checks when they have held so often, if they are so few.
_WRITTEN = 4
_FEW = 320
#: What tools that reload code replace in a function.
_FUNCTION = ("__code__", "__defaults__", "__kwdefaults__")
function_state = attrgetter(*_FUNCTION)


class Comparison:
    """Code that compares, and the objects that it names. Abstract."""

    def __init__(self, **named: Any) -> None:
        self._constants = named
        #: By identity, the names of objects. A call copies each name's object.
        self._known_as: dict[int, str] = {}

    def _constant(self, value: Any) -> str:
        name = self._known_as.setdefault(id(value), f"c{len(self._constants)}")
        self._constants[name] = value
        return name

    def _function(self, given: str, body: str) -> Any:
        """The function with these parameters, and the objects, and this body."""
        text = f"def compared({given}{', '.join(self._constants)}):\n{body}"
        return function_of(_code_of(text), self._constants.values())


@lru_cache(256)
def _code_of(text: str) -> CodeType:
    """The code of a function that compares: many differ in the objects alone."""
    return compiled(text, "<asyncgrad comparison>")


class _Checks(Comparison):
    """Conditions, which become the code of one function."""

    def __init__(self) -> None:
        super().__init__()
        self._conditions: list[str] = []

    def add(self, condition: str, *objects: Any) -> None:
        """Add a condition, in which braces stand for objects."""
        self._conditions.append(condition.format(*map(self._constant, objects)))

    def same(self, held: Any, part: str, value: Any) -> None:
        """Add that a part of an object is a value; a name in the part may have braces."""
        self._conditions.append(f"{self._constant(held)}{part} is {self._constant(value)}")

    def function(self) -> Callable[[], bool] | None:
        """A function that says whether all hold; None if they are many."""
        if len(self._conditions) > _FEW:
            return None
        body = (
            f" try:\n  return {' and '.join(self._conditions) or True}\n"
            " except (AttributeError, LookupError, RuntimeError, ValueError):\n  return False\n"
        )
        return cast("Callable[[], bool]", self._function("", body))


class Unchanged:
    """What is compared. Abstract: `Reached` finds it."""

    def __init__(self) -> None:
        #: All tensors, each once.
        self.tensors: list[Any] = []
        self.dicts: list[Any] = []
        #: Lists and sets. A set's items come in an order that stays the same while it is unchanged.
        self.lists: list[Any] = []
        #: By the identity of one of these: its access path, such as `self.scale`.
        self.access_paths: dict[int, str] = {}
        #: The cells of outer variables, each with its name.
        self.cells: list[tuple[Any, str]] = []
        #: By table of globals, of a module or of a class: the names that are read there, and those
        #: that must be absent there, such as those under which builtins are used.
        self.tables: dict[int, tuple[Any, set[str], set[str]]] = {}
        self.attributes: list[tuple[Any, str]] = []
        #: The tables of classes: a class that gets a new attribute may hide one of a base class.
        self.classes: list[Any] = []
        #: The functions of the user's.
        self.functions: list[Any] = []
        self.instances: list[Any] = []
        #: Code of the checks of `holds`, made when they have held a few times: it takes a sixth of
        #: their time, and half of it where the function reads modules.
        self._code_of_checks: Callable[[], bool] | None = None
        self._left = _WRITTEN

    def reads(self, table: Any, name: str) -> None:
        """Note a name that is read in a table."""
        self.tables.setdefault(id(table), (table, set(), set()))[1].add(name)

    def lacks(self, table: Any, names: Iterable[str]) -> None:
        """Note those of some names that are absent from a table."""
        *_, absent = self.tables.setdefault(id(table), (table, set(), set()))
        absent.update(set(names).difference(table))

    def snapshot(self) -> None:
        """Note how everything is now."""
        self._tables = [
            (table, sorted(names), frozenset(absent))
            for table, names, absent in self.tables.values()
        ]
        containers = [*self.dicts, *self.lists]
        #: Most containers of modules are for hooks, and are empty.
        self._empty = [held for held in containers if not held]
        self._sized = [held for held in containers if held]
        self._lengths = list(map(len, self._sized))
        self._class_names = list(map(tuple, self.classes))
        self._full = [held for held in self.dicts if held]
        self._values = self._present()
        self._metas = [m for t in self.tensors if (m := t._autograd) is not None]
        self._hooked = [*filter(hooked, self._metas)]
        self._tensor_states, self._meta_states = self._states()

    def _states(self) -> tuple[list[Any], list[Any]]:
        """The present state of tensors: what is compared by value, and what by identity."""
        parts = chain(map(meta_state, self._metas), map(_hooks_state, self._hooked))
        return list(map(_tensor_state, self.tensors)), [*chain.from_iterable(parts)]

    def _present(self) -> list[Any]:
        values: list[Any] = []
        for table, names, absent in self._tables:
            values.extend(map(table.__getitem__, names))
            if absent and not table.keys().isdisjoint(absent):
                raise KeyError
        if self.cells:
            values.extend([cell.cell_contents for cell, _ in self.cells])
        for owner, name in self.attributes:
            values.append(getattr(owner, name, _ABSENT))
        for held in self._full:
            values.extend(held.values())
            values.extend(held)
        for held in self.lists:
            values.extend(held)
        if self.instances:
            values.extend(map(type, self.instances))
            # A program may give an instance another table of attributes.
            values.extend(map(vars, self.instances))
        values.extend(chain.from_iterable(map(function_state, self.functions)))
        return values

    def _read_by_name(self) -> Iterator[tuple[Any, str, str, Any]]:
        """What is read by its name, in the order of `_present`.

        Each with the object that holds it, a template for code that reads it there, the name, and
        the present value.
        """
        for table, names, _ in self._tables:
            for name in names:
                yield table, "[{!r}]", name, table.get(name)
        for cell, name in self.cells:
            yield cell, ".cell_contents", name, cell.cell_contents
        for owner, name in self.attributes:
            yield owner, ".{}", name, getattr(owner, name, _ABSENT)

    def named(self, kinds: frozenset[type]) -> Iterator[tuple[Any, str, Any]]:
        """Values of some types that are read by name, or in dictionaries: identity, name, value."""
        if kinds.isdisjoint(map(type, self._values)):
            return
        for owner, _, name, value in self._read_by_name():
            if type(value) in kinds:
                yield (id(owner), name), name, value
        for held in self._full:
            name = self.access_paths.get(id(held), "").rpartition(".")[2]
            for key, value in held.items():
                if type(value) in kinds:
                    yield (id(held), key), name, value

    def changed(self) -> list[str]:
        """The access paths of what is not as it was."""
        values = iter(self._values)
        found = [name for *_, name, value in self._read_by_name() if value is not next(values)]
        for place, (held, length) in enumerate(zip(self._sized, self._lengths, strict=True)):
            path = self.access_paths.get(id(held), "")
            known = list(islice(values, length))
            is_dict = place < len(self._full)
            if len(held) != length:
                found.append(path)
            elif is_dict:
                now = zip(held.items(), known, strict=True)
                found += [f"{path}.{key}" for (key, value), old in now if value is not old]
            elif not all(map(is_, held, known)):
                found.append(path)
            if is_dict:
                values = islice(values, length, None)
        return found + [self.access_paths.get(id(held), "") for held in self._empty if held]

    def seen(self) -> tuple[list[Any], ...]:
        """All that is compared, and the default dtype, as they are now: by identity, by value."""
        try:
            objects = self._present()
        except (KeyError, ValueError):
            objects = []
        tensors, parts = self._states()
        sizes = [*map(len, self._sized), *map(len, self._empty), *map(tuple, self.classes)]
        return [default_dtype(), *objects, *parts], sizes + tensors

    def holds(self) -> bool:
        """Whether all that the function can read is as it was."""
        code = self._code_of_checks
        if code is not None and code():
            return True
        if not self.values_hold():
            return False
        tensors, parts = self._states()
        if tensors != self._tensor_states or not same_objects(parts, self._meta_states):
            return False
        self._left -= 1
        if not self._left:
            self._code_of_checks = self._written(merged=False) or self._written(merged=True)
        elif code is not None:
            # A value is another object now, and perhaps at each call.
            self._code_of_checks = None
        return True

    def _written(self, *, merged: bool) -> Callable[[], bool] | None:
        """Code that makes the same checks by identity alone, if they are few and of usual kinds.

        With `merged` all values of a dictionary are checked at once: fewer checks, each slower.
        """
        if self._hooked:
            return None
        code = _Checks()
        # In the order of `_present`, and as it was recorded: another thread may change it now.
        values = iter(self._values)
        for owner, part, name, _ in self._read_by_name():
            code.same(owner, part.format(name), next(values))
        for table, _, absent in self._tables:
            if absent:
                code.add("{}.keys().isdisjoint({})", table, absent)
        if self._empty:
            code.add("not any({})", tuple(self._empty))
        for held, names in zip(self.classes, self._class_names, strict=True):
            code.add("tuple({}) == {}", held, names)
        if not self._add_parts(code, values, merged):
            return None
        for owners, names, found in (
            (self.functions, _FUNCTION, values),
            (self._metas, _META, iter(self._meta_states)),
        ):
            for owner in owners:
                for name in names:
                    code.same(owner, f".{name}", next(found))
        for tensor, (*state, strides) in zip(self.tensors, self._tensor_states, strict=True):
            for name, value in zip(_TENSOR, state, strict=True):
                code.same(tensor, f".{name}", value)
            code.add("{}._array.strides == {}", tensor, strides)
        return code.function()

    def _add_parts(self, code: _Checks, values: Iterator[Any], merged: bool) -> bool:
        """Add checks of containers and instances; whether all are of usual kinds."""
        lists = self._sized[len(self._full) :]
        if any(held.__class__ is not list for held in lists):
            return False
        for held, length in zip(self._full, self._lengths, strict=False):
            parts, keys = list(islice(values, length)), list(islice(values, length))
            if any(key.__class__ is not str for key in keys):
                return False
            if merged:
                code.add("all(map({}, {}.values(), {}))", is_, held, parts)
            else:
                for key, value in zip(keys, parts, strict=True):
                    code.same(held, f"[{key!r}]", value)
            code.add("[*{}] == {}", held, keys)
        for held, length in zip(lists, self._lengths[len(self._full) :], strict=True):
            code.add(f"len({{}}) == {length}", held)
            for place in range(length):
                code.same(held, f"[{place}]", next(values))
        for name in ("__class__", "__dict__"):
            for instance in self.instances:
                code.same(instance, f".{name}", next(values))
        return True

    def values_hold(self) -> bool:
        """Whether all but the state of tensors is as it was."""
        try:
            # Most functions read few kinds of things. The comparison of the others is skipped,
            # because an empty loop takes time, too.
            if self._empty and any(self._empty):
                return False
            if self._sized and list(map(len, self._sized)) != self._lengths:
                return False
            if self.classes and list(map(tuple, self.classes)) != self._class_names:
                return False
            values, known = self._present(), self._values
            if not same_objects(values, known):
                if len(values) != len(known) or not all(map(_alike, values, known)):
                    return False
                self._values = values
            return True
        except (KeyError, ValueError, RuntimeError):
            # A name or cell is gone, or another thread changes a dictionary now.
            return False


def same_objects(values: Sequence[Any], known: Sequence[Any]) -> bool:
    """Whether two sequences hold the same objects."""
    return len(values) == len(known) and all(map(is_, values, known))


def is_value(kind: type) -> bool:
    """Whether instances of a type never change; those of a derived class may have attributes."""
    return kind in VALUES or is_number(kind) or type(kind) is _KIND_OF_DTYPES


def is_number(kind: type) -> bool:
    """Whether values of a type are NumPy's scalars, which are compared by value."""
    return issubclass(kind, (np.number, np.bool_)) and kind.__module__ == "numpy"


def same_value(value: Any, known: Any) -> bool:
    """Whether two plain values, or lists of them, have the same bits: NaN and zero have signs."""
    # Later versions than 2 of the format note which objects are shared.
    return type(value) is type(known) and marshal.dumps(value, 2) == marshal.dumps(known, 2)


def hooked(meta: Any) -> bool:
    """Whether a leaf has hooks."""
    return meta.extras is not None or meta.post_accumulate is not None


def _hooks_state(meta: Any) -> tuple[Any, ...]:
    """The hooks of a leaf, with None after each kind, and whether it retains its gradient."""
    extras = meta.extras
    kinds = () if extras is None else (*extras.tensor.values(), extras.pre, extras.post)
    held = [x for hooks in (meta.post_accumulate or {}, *kinds) for x in (*hooks.values(), None)]
    return (*held, extras is not None and bool(extras.retain))


def _alike(value: Any, known: Any) -> bool:
    """Whether two values are one, or equal numbers, strings or dtypes."""
    if value is known:
        return True
    kind = type(value)
    if kind is not type(known) or not (kind in VALUES or is_number(kind)):
        return False
    return bool(value == known) and repr(value) == repr(known)
