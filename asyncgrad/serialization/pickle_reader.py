"""An interpreter for the pickles in PyTorch's files, and for nothing more.

Rule 1: a pickle names functions; the interpreter calls only those in `pickle_calls`, which build
tensors and ordered dictionaries.
Rule 2: only new objects are changed; the only attributes set are `_metadata` of a dictionary, and
those that a user has given to a parameter.
Rule 3: time and memory are proportional to the file's size. Keys are strings and numbers, because
hashing nested tuples that share parts would take exponential time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from io import BytesIO
from pickle import UnpicklingError
from pickletools import opcodes
from typing import Any

from asyncgrad.serialization.pickle_calls import (
    KEYS,
    Name,
    Storage,
    call,
    expect,
    made_set,
    refused,
    size,
)
from asyncgrad.serialization.storages import dtype_named, is_storage

#: The operations that push their argument.
_PUSHES = {
    "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "SHORT_BINUNICODE",
    "BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8",
}  # fmt: skip
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_CONTAINERS = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": set}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
#: All that are supported, by their codes; those not named above are in `_Machine._do`.
_OPERATIONS = {
    operation.code: operation
    for operation in opcodes
    if operation.name in {
        *_PUSHES, *_CONSTANTS, *_CONTAINERS, *_TUPLES, "PROTO", "FRAME", "STOP", "BINPUT",
        "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET", "MARK", "TUPLE", "APPEND", "APPENDS",
        "ADDITEMS", "SETITEM", "SETITEMS", "GLOBAL", "STACK_GLOBAL", "BINPERSID", "REDUCE",
        "NEWOBJ", "BUILD",
    }
}  # fmt: skip


def read_pickle(
    data: bytes, storage: Callable[[str, str, int, str], Storage], start: int = 0
) -> tuple[Any, int]:
    """The object in a pickle, and the position where the pickle ends.

    Args:
        data: the pickle, with other bytes before and after it.
        storage: a function that gives memory, from a storage's dtype name, key, number of elements
            and location.
        start: the position of the pickle.

    Raises:
        UnpicklingError: if the pickle is damaged, or has anything but tensors, numbers, strings and
            plain containers.
    """
    try:
        return _Machine(storage).run(data, start)
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UnpicklingError(f"load: the file's pickle is damaged: {error}") from error


class _Machine:
    """The interpreter's state while it reads a pickle."""

    def __init__(self, storage: Callable[[str, str, int, str], Storage]) -> None:
        self._storage = storage
        self._stack: list[Any] = []
        #: The stack positions where lists of operands start.
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        #: Tuples already checked by `_plain`, by id; parts may be shared many times.
        self._checked: dict[int, Any] = {}

    def run(self, data: bytes, start: int) -> tuple[Any, int]:
        """Run all operations; returns the object and the position of the end."""
        stream = BytesIO(data)
        stream.seek(start)
        name = ""
        while name != "STOP":
            code = stream.read(1).decode("latin-1")
            if code not in _OPERATIONS:
                place = stream.tell() - len(code)
                known = f"operation {code!r} at byte {place} is not supported"
                raise ValueError(known if code else "it has no end")
            name, form = _OPERATIONS[code].name, _OPERATIONS[code].arg
            if name == "GLOBAL":
                # `pickletools` would take backslashes for the beginning of escapes.
                self._do(name, [stream.readline().rstrip(b"\n").decode() for _ in range(2)])
            else:
                self._do(name, form and form.reader(stream))
        return self._plain(self._stack.pop()), stream.tell()

    def _do(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in _PUSHES:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _TUPLES:
            stack.append(tuple(self._pop(_TUPLES[name])))
        elif name in {"BINPUT", "LONG_BINPUT"}:
            self._memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name in {"BINGET", "LONG_BINGET"}:
            stack.append(self._memo[argument])
        elif name == "MARK":
            self._marks.append(len(stack))
        elif name == "TUPLE":
            stack.append(tuple(self._pop_marked()))
        elif name in _CONTAINERS:
            stack.append(_CONTAINERS[name]())
        elif name in {"APPEND", "APPENDS"}:
            items = self._pop(1) if name == "APPEND" else self._pop_marked()
            expect(stack[-1], list).extend(map(self._plain, items))
        elif name == "ADDITEMS":
            items = self._pop_marked()
            expect(stack[-1], set).update(made_set(items))
        elif name in {"SETITEM", "SETITEMS"}:
            items = self._pop(2) if name == "SETITEM" else self._pop_marked()
            self._set_items(expect(stack[-1], dict), items)
        elif name == "GLOBAL":
            stack.append(_named(*argument))
        elif name == "STACK_GLOBAL":
            module, attribute = self._pop(2)
            stack.append(_named(expect(module, str), expect(attribute, str)))
        elif name == "BINPERSID":
            stack.append(self._persistent(*stack.pop()))
        elif name == "REDUCE":
            function, arguments = self._pop(2)
            stack.append(call(function, expect(arguments, tuple)))
        elif name == "NEWOBJ":
            # No loadable object is made this way; the name is read for the error message.
            raise refused(expect(self._pop(2)[0], Name))
        elif name == "BUILD":
            state = stack.pop()
            _build(stack[-1], state)

    def _pop(self, count: int) -> list[Any]:
        if count > len(self._stack):
            raise ValueError("an operand is missing")
        popped = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        return popped

    def _pop_marked(self) -> list[Any]:
        """Pop the operands since the last mark."""
        start = self._marks.pop()
        popped = self._stack[start:]
        del self._stack[start:]
        return popped

    def _plain(self, value: object) -> Any:
        """Check that a value can be part of the result: it holds no `Name` and no `Storage`."""
        waiting = [value]
        while waiting:
            part = waiting.pop()
            if isinstance(part, Name):
                raise refused(part)
            if isinstance(part, Storage):
                raise UnpicklingError("load: the file holds a storage that is no tensor's")
            if isinstance(part, tuple) and id(part) not in self._checked:
                self._checked[id(part)] = part
                waiting += part
        return value

    def _set_items(self, target: dict[Any, Any], items: list[Any]) -> None:
        if len(items) % 2:
            raise ValueError("a key has no value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, KEYS):
                raise UnpicklingError(
                    f"load: keys are strings or numbers, got one of type {type(key).__name__}"
                )
            target[key] = self._plain(value)

    def _persistent(
        self, kind: str, name: Any, key: str, location: str, count: int | None = None,
        view: object = None,
    ) -> Storage:  # fmt: skip
        """Resolve a persistent id, which refers to a tensor's memory outside the pickle."""
        if kind == "module":
            # Before 1.6, files held the source code of modules' classes.
            raise refused(expect(name, Name))
        if kind != "storage" or view is not None:
            raise UnpicklingError(f"load: unknown reference to {kind!r} outside the pickle")
        expect(name, Name)
        if not is_storage(name.module, name.name):
            raise refused(name)
        return self._storage(name.name, expect(key, str), size(count), expect(location, str))


def _named(module: str, name: str) -> Any:
    """The meaning of a name: a dtype, or a `Name` that is looked up when it is used."""
    dtype = dtype_named(name) if module == "torch" else None
    return Name(module, name) if dtype is None else dtype


def _build(target: object, state: object) -> None:
    """Set `_metadata`, the modules' versions, of a state dict."""
    if not (
        isinstance(target, OrderedDict) and isinstance(state, dict) and [*state] == ["_metadata"]
    ):
        raise UnpicklingError(
            f"load: the file sets attributes of a {type(target).__name__}, which is not supported"
        )
    target._metadata = state["_metadata"]  # type: ignore[attr-defined]
