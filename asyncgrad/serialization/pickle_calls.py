"""What PyTorch's pickles may refer to: the functions that they call, and what these make."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from pickle import UnpicklingError
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
from asyncgrad.types import Shape, Tensor

#: The types of keys.
KEYS = (str, int, float, bool, type(None))


class Name(NamedTuple):
    """A function or class named in a pickle."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Storage(NamedTuple):
    """The memory of tensors, and its device."""

    array: Any
    device: Device


def expect(value: object, kind: Any) -> Any:
    """The value; raises if it is of another kind."""
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
    return value


def size(value: object) -> int:
    """The value; raises if it is no size."""
    if type(value) is not int or value < 0:
        raise ValueError(f"expected a size, got {value!r}")
    return value


def refused(name: Name) -> UnpicklingError:
    """The error for a name that is not known."""
    return UnpicklingError(
        f"load: the file asks for {name}, and only tensors, numbers, strings, lists, tuples and "
        f"dictionaries are loaded. Save a state dict instead of an object: "
        f"torch.save(model.state_dict(), path)."
    )


def call(name: Any, arguments: tuple[Any, ...]) -> Any:
    """Call a named function, if it is in `_CALLS`."""
    function = _CALLS.get(str(expect(name, Name)))
    if function is None:
        raise refused(name)
    return function(*arguments)


def _ordered(items: Shape = ()) -> OrderedDict[Any, Any]:
    """An ordered dictionary, empty or from pairs."""
    made: OrderedDict[Any, Any] = OrderedDict()
    for key, value in expect(items, (list, tuple)):
        if not isinstance(key, KEYS) or isinstance(value, tuple):
            raise UnpicklingError("load: an ordered dictionary holds what is not supported")
        made[key] = value
    return made


def _tensor(
    storage: Storage, offset: int, shape: Shape, strides: Shape, requires_grad: bool = False,
    hooks: object | None = None, metadata: object | None = None,
) -> Any:  # fmt: skip
    """A tensor over part of a storage."""
    memory, device = expect(storage, Storage)
    shape = tuple(map(size, expect(shape, tuple)))
    strides = tuple(map(size, expect(strides, tuple)))
    offset = size(offset)
    if len(shape) != len(strides):
        raise ValueError(f"a tensor has shape {shape} and strides {strides}")
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if 0 not in shape and last >= memory.size:
        raise UnpicklingError(
            f"load: a tensor of shape {shape}, strides {strides} and offset {offset} reaches "
            f"beyond its storage of {memory.size} elements"
        )
    lazy = dict(expect(metadata or {}, dict))
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
    memory, device = expect(storage, Storage)
    if isinstance(dtype, Name):
        raise UnpicklingError(f"load: a tensor has dtype {dtype}, which asyncgrad lacks")
    whole = memory.size - memory.size % expect(dtype, DType).itemsize
    typed = Storage(memory[:whole].view(dtype.dtype), device)
    return _tensor(typed, offset, shape, strides, requires_grad, hooks, metadata)


def _layout(name: str) -> str:
    """The layout of a tensor that is not strided."""
    if name != "torch.sparse_coo":
        raise UnpicklingError(f"load: a tensor has the layout {name}, which is not supported")
    return name


def _rows(layout: str, data: tuple[Any, ...]) -> Any:
    """A row-sparse tensor from its indices and values."""
    indices, values, shape, *coalesced = expect(data, tuple)
    places, rows = expect(indices, Variable)._array, expect(values, Variable)._array
    shape = tuple(map(size, expect(shape, tuple)))
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
    vars(made).update(expect(state or {}, dict))
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
    return Buffer(call(function, expect(arguments, tuple)), persistent=bool(state["persistent"]))


def _bytes(text: str, encoding: str) -> bytes:
    """Bytes, in the form that protocol 2 stores them."""
    if encoding != "latin1":
        raise UnpicklingError(f"load: bytes are encoded as {encoding!r}, which is not supported")
    return expect(text, str).encode("latin1")  # type: ignore[no-any-return]


def made_set(members: Iterable[Any]) -> set[Any]:
    """A set of strings and numbers."""
    if not all(isinstance(member, KEYS) for member in expect(members, list)):
        raise UnpicklingError("load: a set holds what is neither a string nor a number")
    return set(members)


def _complex(real: float, imag: float) -> complex:
    return complex(expect(real, float), expect(imag, float))


def _device(kind: str, index: int | None = None) -> Device:
    return Device(expect(kind, str), None if index is None else expect(index, int))


#: All functions that a pickle can call.
_CALLS: dict[str, Callable[..., Any]] = {
    "collections.Counter": lambda counts: Counter(expect(counts, dict)),
    "collections.OrderedDict": _ordered,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_of_bytes,
    "torch._utils._rebuild_sparse_tensor": _rows,
    "torch.serialization._get_layout": _layout,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch._tensor._rebuild_from_type_v2": _with_attributes,
    "torch.Size": lambda sizes: Size(map(size, sizes)),
    "torch.device": _device,
    "_codecs.encode": _bytes,
    # Pickles of protocol 2 use the names of Python 2.
    **{
        f"{module}.{name}": function
        for module in ("builtins", "__builtin__")
        for name, function in (("set", made_set), ("complex", _complex), ("bytes", lambda: b""))
    },
}
