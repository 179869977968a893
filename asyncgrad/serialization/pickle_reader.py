"""An interpreter for the pickles in PyTorch's files, and for nothing more.

Rule 1: a pickle names functions; the interpreter calls only those in `_CALLS`, which build tensors
and ordered dictionaries.
Rule 2: only new objects are changed; the only attributes set are `_metadata` of a dictionary, and
those that a user has given to a parameter.
Rule 3: time and memory are proportional to the file's size. Keys are strings and numbers, because
hashing nested tuples that share parts would take exponential time.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from io import BytesIO
from pickle import UnpicklingError
from pickletools import opcodes
from typing import Any

import numpy as np

from asyncgrad.core.size import Size
from asyncgrad.core.variable import Variable, autograd_meta
from asyncgrad.creation import from_numpy
from asyncgrad.devices import CPU, Device
from asyncgrad.nn.parameter import Buffer, Parameter
from asyncgrad.ops.dtype import DType
from asyncgrad.ops.promotion import category
from asyncgrad.ops.tensors.new_tensors import leaf
from asyncgrad.ops.tensors.sparse_rows import Rows
from asyncgrad.records import NamedTuple
from asyncgrad.serialization.storages import dtype_named, is_storage
from asyncgrad.types import Shape, Tensor

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
#: The types of keys.
KEYS = (str, int, float, bool, type(None))


class _Name(NamedTuple):
    """A function or class named in a pickle."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Storage(NamedTuple):
    """The memory of tensors, and its device."""

    array: Any
    device: Device


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
            _expect(stack[-1], list).extend(map(self._plain, items))
        elif name == "ADDITEMS":
            items = self._pop_marked()
            _expect(stack[-1], set).update(_set(items))
        elif name in {"SETITEM", "SETITEMS"}:
            items = self._pop(2) if name == "SETITEM" else self._pop_marked()
            self._set_items(_expect(stack[-1], dict), items)
        elif name == "GLOBAL":
            stack.append(_named(*argument))
        elif name == "STACK_GLOBAL":
            module, attribute = self._pop(2)
            stack.append(_named(_expect(module, str), _expect(attribute, str)))
        elif name == "BINPERSID":
            stack.append(self._persistent(*stack.pop()))
        elif name == "REDUCE":
            function, arguments = self._pop(2)
            stack.append(_call(function, _expect(arguments, tuple)))
        elif name == "NEWOBJ":
            # No loadable object is made this way; the name is read for the error message.
            raise _refused(_expect(self._pop(2)[0], _Name))
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
        """Check that a value can be part of the result: it holds no `_Name` and no `Storage`."""
        waiting = [value]
        while waiting:
            part = waiting.pop()
            if isinstance(part, _Name):
                raise _refused(part)
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
            raise _refused(_expect(name, _Name))
        if kind != "storage" or view is not None:
            raise UnpicklingError(f"load: unknown reference to {kind!r} outside the pickle")
        _expect(name, _Name)
        if not is_storage(name.module, name.name):
            raise _refused(name)
        return self._storage(name.name, _expect(key, str), _size(count), _expect(location, str))


def _named(module: str, name: str) -> Any:
    """The meaning of a name: a dtype, or a `_Name` that is looked up when it is used."""
    dtype = dtype_named(name) if module == "torch" else None
    return _Name(module, name) if dtype is None else dtype


def _expect(value: object, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
    return value


def _size(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"expected a size, got {value!r}")
    return value


def _refused(name: _Name) -> UnpicklingError:
    return UnpicklingError(
        f"load: the file asks for {name}, and only tensors, numbers, strings, lists, tuples and "
        f"dictionaries are loaded. Save a state dict instead of an object: "
        f"torch.save(model.state_dict(), path)."
    )


def _call(name: Any, arguments: tuple[Any, ...]) -> Any:
    """Call a named function, if it is in `_CALLS`."""
    function = _CALLS.get(str(_expect(name, _Name)))
    if function is None:
        raise _refused(name)
    return function(*arguments)


def _build(target: object, state: object) -> None:
    """Set `_metadata`, the modules' versions, of a state dict."""
    if not (
        isinstance(target, OrderedDict) and isinstance(state, dict) and [*state] == ["_metadata"]
    ):
        raise UnpicklingError(
            f"load: the file sets attributes of a {type(target).__name__}, which is not supported"
        )
    target._metadata = state["_metadata"]  # type: ignore[attr-defined]


def _ordered(items: Shape = ()) -> OrderedDict[Any, Any]:
    """An ordered dictionary, empty or from pairs."""
    made: OrderedDict[Any, Any] = OrderedDict()
    for key, value in _expect(items, (list, tuple)):
        if not isinstance(key, KEYS) or isinstance(value, tuple):
            raise UnpicklingError("load: an ordered dictionary holds what is not supported")
        made[key] = value
    return made


def _tensor(
    storage: Storage, offset: int, shape: Shape, strides: Shape, requires_grad: bool = False,
    hooks: object | None = None, metadata: object | None = None,
) -> Any:  # fmt: skip
    """A tensor over part of a storage."""
    memory, device = _expect(storage, Storage)
    shape = tuple(map(_size, _expect(shape, tuple)))
    strides = tuple(map(_size, _expect(strides, tuple)))
    offset = _size(offset)
    if len(shape) != len(strides):
        raise ValueError(f"a tensor has shape {shape} and strides {strides}")
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if 0 not in shape and last >= memory.size:
        raise UnpicklingError(
            f"load: a tensor of shape {shape}, strides {strides} and offset {offset} reaches "
            f"beyond its storage of {memory.size} elements"
        )
    lazy = dict(_expect(metadata or {}, dict))
    conjugated, negated = lazy.pop("conj", False), lazy.pop("neg", False)
    if lazy:
        raise UnpicklingError(f"load: a tensor carries metadata {[*lazy]}, which is not supported")
    part = memory[offset:] if 0 not in shape else memory[:0]
    steps = tuple(step * memory.itemsize for step in strides)
    if device is CPU:
        array = np.lib.stride_tricks.as_strided(
            part,
            shape,
            steps,
            # Elements that share memory can't be changed one by one.
            writeable=all(step or n <= 1 for n, step in zip(shape, strides, strict=True)),
        )
    else:
        array = device.xp.lib.stride_tricks.as_strided(part, shape, steps)
    if conjugated:
        array = np.conjugate(array)
    if negated:
        array = np.negative(array)
    out = from_numpy(array) if device is CPU else leaf("load", array, device)
    if requires_grad and category(array.dtype) >= 2:
        autograd_meta(out).requires_grad = True
    return out


def _tensor_of_bytes(
    storage: Storage, offset: int, shape: Shape, strides: Shape, requires_grad: bool, hooks: object,
    dtype: DType, metadata: object | None = None,
) -> Any:  # fmt: skip
    """A tensor over part of a storage of bytes."""
    memory, device = _expect(storage, Storage)
    if isinstance(dtype, _Name):
        raise UnpicklingError(f"load: a tensor has dtype {dtype}, which asyncgrad lacks")
    whole = memory.size - memory.size % _expect(dtype, DType).itemsize
    typed = Storage(memory[:whole].view(dtype.dtype), device)
    return _tensor(typed, offset, shape, strides, requires_grad, hooks, metadata)


def _layout(name: str) -> str:
    """The layout of a tensor that is not strided."""
    if name != "torch.sparse_coo":
        raise UnpicklingError(f"load: a tensor has the layout {name}, which is not supported")
    return name


def _rows(layout: str, data: tuple[Any, ...]) -> Any:
    """A row-sparse tensor from its indices and values."""
    indices, values, shape, *coalesced = _expect(data, tuple)
    places, rows = _expect(indices, Variable)._array, _expect(values, Variable)._array
    shape = tuple(map(_size, _expect(shape, tuple)))
    if (
        (places.ndim, len(places), places.dtype) != (2, 1, np.int64)
        or rows.shape != (places.size, *shape[1:])
        or (places.size and not 0 <= places.min() <= places.max() < shape[0])
    ):
        raise UnpicklingError(
            f"load: the indices and values of a sparse tensor do not fit its shape, {shape}, or it "
            f"has several sparse axes, which is not supported"
        )
    is_coalesced = bool(coalesced and coalesced[0] and (np.diff(places) > 0).all())
    array = Rows(places[0], rows, shape, coalesced=is_coalesced)
    return leaf("load", array, values._metadata.device)


def _parameter(
    data: Tensor, requires_grad: bool, hooks: object | None = None, state: object | None = None
) -> Parameter:
    """A parameter with the attributes that a user has given it."""
    made = Parameter(data, bool(requires_grad))
    vars(made).update(_expect(state or {}, dict))
    return made


def _with_attributes(
    function: object, kind: object, arguments: tuple[Any, ...], state: object
) -> Buffer:
    """A tensor with attributes; only `Buffer` is known to be one."""
    known = {"persistent", "_is_buffer"}
    if str(kind) != "torch.Tensor" or not isinstance(state, dict) or state.keys() != known:
        raise UnpicklingError(
            "load: the file has a tensor of another class or with attributes, which is not "
            "supported"
        )
    return Buffer(_call(function, _expect(arguments, tuple)), persistent=bool(state["persistent"]))


def _bytes(text: str, encoding: str) -> bytes:
    """Bytes, in the form that protocol 2 stores them."""
    if encoding != "latin1":
        raise UnpicklingError(f"load: bytes are encoded as {encoding!r}, which is not supported")
    return _expect(text, str).encode("latin1")  # type: ignore[no-any-return]


def _set(members: Iterable[Any]) -> set[Any]:
    if not all(isinstance(member, KEYS) for member in _expect(members, list)):
        raise UnpicklingError("load: a set holds what is neither a string nor a number")
    return set(members)


def _complex(real: float, imag: float) -> complex:
    return complex(_expect(real, float), _expect(imag, float))


def _device(kind: str, index: int | None = None) -> Device:
    return Device(_expect(kind, str), None if index is None else _expect(index, int))


#: All functions that a pickle can call.
_CALLS: dict[str, Callable[..., Any]] = {
    "collections.Counter": lambda counts: Counter(_expect(counts, dict)),
    "collections.OrderedDict": _ordered,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_of_bytes,
    "torch._utils._rebuild_sparse_tensor": _rows,
    "torch.serialization._get_layout": _layout,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch._tensor._rebuild_from_type_v2": _with_attributes,
    "torch.Size": lambda sizes: Size(map(_size, sizes)),
    "torch.device": _device,
    "_codecs.encode": _bytes,
    # Pickles of protocol 2 use the names of Python 2.
    **{
        f"{module}.{name}": function
        for module in ("builtins", "__builtin__")
        for name, function in (("set", _set), ("complex", _complex), ("bytes", lambda: b""))
    },
}
