"""Tensors from data: numbers, nested sequences, arrays and buffers."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.core.frames import warn
from asyncgrad.core.recording import note_result, recorders
from asyncgrad.core.size import Size
from asyncgrad.core.variable import Variable
from asyncgrad.core.variable import requires_grad as requires_grad_of
from asyncgrad.devices import CPU, Device
from asyncgrad.devices.discovery import find
from asyncgrad.devices.fp_errors import call_without_fp_errors
from asyncgrad.errors import class_of
from asyncgrad.ops import promotion
from asyncgrad.ops.api.conversion import to
from asyncgrad.ops.api.shape import clone, view
from asyncgrad.ops.dtype_device import as_device, is_dtype
from asyncgrad.ops.node_names import renamed
from asyncgrad.ops.requirements import unmet
from asyncgrad.ops.tensors.new_tensors import fitting, from_host, leaf, new_shape, place_of
from asyncgrad.ops.tensors.transfer import made_pinned, on_host
from asyncgrad.types import DeviceLike, DTypeLike, Ints, Number, Tensor

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["as_tensor", "asarray", "detach", "from_numpy", "frombuffer", "scalar_tensor", "tensor"]
METHODS = ("new", "new_tensor")

_NUMBERS = frozenset({bool, int, float, complex})
#: What DLPack calls CUDA devices.
DLPACK_CUDA = 2


def tensor(
    data: object, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Copy numbers, nested sequences of them, an array or a tensor into a new tensor; see `zeros`.

    Args:
        data: the values. Python floats become the default dtype, arrays keep theirs.
        dtype: the dtype; taken from the data if None.
        pin_memory: use pinned memory, from which the accelerator copies asynchronously.

    Raises:
        ValueError: if nested sequences are ragged, or an integer has more than 64 bits.
        RuntimeError: if values do not fit the dtype, or a dtype without gradients is to require
            them.

    Example:
        >>> ag.tensor([[1.0, 2.0]])
        tensor([[1., 2.]])
    """
    made = _made("tensor", data, dtype, device, requires_grad)
    return made_pinned(made) if pin_memory else made


def _is_on_cuda(data: Any) -> bool:
    """Whether data is another library's array on a CUDA device, such as CuPy's."""
    # PyTorch's class has the attribute for tensors in host memory, too.
    on_class = hasattr(type(data), "__cuda_array_interface__")
    return on_class and data.__dlpack_device__()[0] == DLPACK_CUDA


def _borrowed(name: str, array: Any) -> Any:
    """A tensor that shares such an array's memory, ordered after its library's current stream."""
    place: Any = as_device(name, find("cuda", array.__dlpack_device__()[1]))
    return leaf(name, place.borrow(array), place)


def _made(
    name: str, data: object, dtype: DTypeLike | None, device: DeviceLike | None, requires_grad: bool
) -> Any:
    if _is_on_cuda(data):
        data = _borrowed(name, data)
    place = place_of(name, device)
    wanted: Any = dtype
    if isinstance(data, Variable):
        found = data.detach()  # type: ignore[attr-defined]
        if device is not None:
            found = to(found, place)
        metadata = found._metadata
        copied = call_without_fp_errors(metadata.F.xp.array, found._array, wanted)
        if recorders:
            note_result(copied, metadata.F.xp.array, found._array, wanted)
        return leaf(name, copied, metadata.device, requires_grad)
    array = _array_of(name, data, wanted)
    return from_host(name, array, place, requires_grad)


def _array_of(name: str, data: object, wanted: np.dtype[Any] | None) -> Any:
    """Copy numbers, sequences or an array into a new array of dtype `wanted`, or their own."""
    if not isinstance(data, (np.ndarray, np.generic)) and hasattr(data, "__array__"):
        data = np.asarray(data)
    if isinstance(data, (np.ndarray, np.generic)):
        _check_numbers(name, data)
        return call_without_fp_errors(np.array, data, wanted)
    found: set[Any] = set()
    first = _first(name, data)
    if first is not data and isinstance(first, str):
        # As in PyTorch: it descends into first elements to count axes, and strings never end.
        raise ValueError(f"{name}: too many dimensions 'str'. Numbers are needed.")
    plain = _plain(name, data, found)
    try:
        array = np.array(plain)
    except ValueError:
        raise ValueError(
            f"{name}: expected sequences of one length at each dim. Make the nested sequences "
            f"equally long."
        ) from None
    if wanted is None:
        # Without elements, the dtype is the default one, as for floats.
        types = list(found) or [promotion.number_dtype(0.0)]
        wanted = types[0]
        for other in types[1:]:
            wanted = promotion.promote_dtypes(wanted, other)
    if array.dtype.kind == "O" or array.dtype == np.uint64:
        return _of_large_integers(name, plain, wanted)
    if array.dtype.kind == "f" and wanted.kind in "iu" and all(one.kind in "biu" for one in found):
        # NumPy takes float64 for integers that fit no integer dtype together, such as 2**63 and 1.
        return _of_large_integers(name, plain, wanted)
    if array.dtype.kind == "c" and promotion.category(wanted) < 3:
        raise TypeError(f"{name}: must be real number, not complex, for dtype {wanted}")
    return fitting(name, array, wanted)


def _of_large_integers(name: str, numbers: Any, wanted: np.dtype[Any]) -> Any:
    """An array of numbers among which are integers that int64 can't hold."""
    try:
        return np.array(numbers, wanted)
    except OverflowError:
        if promotion.category(wanted) > 1:
            raise
        raise ValueError(
            f"{name}: Overflow when unpacking long long: an integer has more than 64 bits"
        ) from None
    except ValueError:
        raise RuntimeError(
            f"{name}: value cannot be converted to type {wanted} without overflow: NaN"
        ) from None


def _first(name: str, data: object) -> Any:
    """The first innermost element of nested sequences, which may hold themselves."""
    for _ in range(_MOST_AXES + 1):
        if not isinstance(data, Sequence) or isinstance(data, str) or not data:
            return data
        data = data[0]
    kind = type(data).__name__
    raise ValueError(f"{name}: too many dimensions {kind!r}: there may be {_MOST_AXES} at most.")


#: NumPy's arrays have no more.
_MOST_AXES = 64


def _plain(name: str, data: Any, found: set[Any]) -> Any:
    """Replace tensors in nested data by Python numbers, and collect all dtypes in `found`."""
    if type(data) in _NUMBERS:
        found.add(promotion.number_dtype(data))
        return data
    if isinstance(data, Variable):
        if data._metadata.size != 1:
            raise unmet(name, "only one element tensors can be converted to Python scalars. Use "
                        "asyncgrad.stack()", ValueError, data=data)  # fmt: skip
        found.add(data._metadata.dtype)
        return on_host(data).item()
    if isinstance(data, (np.ndarray, np.generic)):
        _check_numbers(name, data)
        found.add(data.dtype)
        return data
    if isinstance(data, (str, bytes)):
        raise TypeError(f"{name}: invalid data type '{class_of(data)}'. Numbers are needed.")
    if (number := promotion.as_number(data)) is not None:
        found.add(promotion.number_dtype(number))
        return number
    if not isinstance(data, Sequence):
        raise RuntimeError(
            f"{name}: Could not infer dtype of {class_of(data)}. Numbers are needed."
        )
    kinds = set(map(type, data))
    if kinds <= _NUMBERS:
        found.update(promotion.number_dtype(kind()) for kind in kinds)
        return data
    return [_plain(name, part, found) for part in data]


def _check_numbers(name: str, array: np.ndarray[Any, Any] | np.generic) -> None:
    """Raise for an array whose dtype tensors do not support."""
    if not is_dtype(array.dtype):
        raise unmet(name, f"can't convert np.ndarray of type {array.dtype}. The supported kinds "
                    "are bool, integer, floating and complex", TypeError)  # fmt: skip
    if not array.dtype.isnative:
        raise ValueError(
            f"{name}: given numpy array has byte order different from the native byte order. "
            f"Convert it with .astype({array.dtype.newbyteorder('=')!r})."
        )


def as_tensor(
    data: object, dtype: DTypeLike | None = None, device: DeviceLike | None = None
) -> Tensor:
    """A tensor of some data; an array of the right dtype shares its memory.

    Args:
        data: see `tensor`. A tensor is returned unchanged, or its conversion is recorded.
        dtype: the dtype; taken from the data if None.
        device: the device; if None, tensors stay on their device.
    """
    if _is_on_cuda(data):
        data = _borrowed("as_tensor", data)
    if isinstance(data, Variable):
        if dtype is None and device is None:
            return data  # type: ignore[return-value]
        wanted = data._metadata.dtype if dtype is None else dtype
        return to(data, device, wanted)  # type: ignore[call-overload]
    place = place_of("as_tensor", device)
    if isinstance(data, np.ndarray) and place is CPU and (dtype is None or data.dtype == dtype):
        return from_numpy(data)
    return _made("as_tensor", data, dtype, device, False)


def asarray(
    obj: object, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None,
    copy: bool | None = None, requires_grad: bool | None = None,
) -> Tensor:  # fmt: skip
    """A tensor of an object, which shares its memory if possible and allowed.

    Args:
        obj: a tensor, an array of NumPy's or CuPy's, a buffer (of the default dtype if none is
            given), or data as for `tensor`.
        dtype: the dtype; taken from the object if None.
        device: the device; unchanged if None.
        copy: True always copies, False never does.
        requires_grad: make a result without history require gradients; False detaches a tensor,
            None leaves it its history.

    Raises:
        ValueError: if `copy` is False and the memory can't be shared.
    """
    wanted: Any = dtype
    if _is_on_cuda(obj):
        obj = _borrowed("asarray", obj)
    if isinstance(obj, Variable):
        out = as_tensor(obj, wanted, device)
        if copy is False and out is not obj:
            raise ValueError(
                f"asarray: can't alias tensor with dtype '{obj._metadata.dtype}' on "
                f"{obj._metadata.device} as '{out._metadata.dtype}' on {out._metadata.device}."
            )
        out = clone(out) if copy and out is obj else out
        if requires_grad and not requires_grad_of(out):
            out = out.detach().requires_grad_()
        return out.detach() if requires_grad is False else out
    if isinstance(obj, (bytes, bytearray, memoryview)):
        obj = np.frombuffer(obj, wanted or promotion.number_dtype(0.0))
        copy = True if copy is None and not obj.flags.writeable else copy
    if not isinstance(obj, np.ndarray):
        if copy is False:
            raise ValueError("asarray: can't alias arbitrary sequence into a tensor.")
        return _made("asarray", obj, wanted, device, bool(requires_grad))
    out = _made("asarray", obj, wanted, device, False) if copy else as_tensor(obj, wanted, device)
    if copy is False and not np.shares_memory(out._array, obj) and obj.size:
        raise ValueError(
            f"asarray: can't alias tensor with dtype '{obj.dtype}' into dtype '{wanted}'."
        )
    return out.requires_grad_() if requires_grad else out


def from_numpy(ndarray: np.ndarray[Any, Any]) -> Tensor:
    """A tensor that shares an array's memory.

    Raises:
        ValueError: if its bytes are in foreign order.
    """
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {class_of(ndarray)})")
    _check_numbers("from_numpy", ndarray)
    return leaf("from_numpy", ndarray.view(np.ndarray), CPU)


def frombuffer(
    buffer: Buffer, *, dtype: DTypeLike, count: int = -1, offset: int = 0,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A vector that shares the memory of a buffer; see `zeros`.

    Args:
        buffer: an object with Python's buffer protocol.
        count: the number of elements; -1 for all.
        offset: the number of bytes to skip.
    """
    try:
        length = memoryview(buffer).nbytes
    except TypeError:
        raise ValueError("frombuffer: object does not implement Python buffer protocol.") from None
    if not length or not count:
        raise ValueError("frombuffer: both buffer length and count must not be 0")
    if not 0 <= offset < length:
        raise unmet("frombuffer", f"offset ({offset} bytes) must be non-negative and no greater "
                    f"than buffer length ({length} bytes) minus 1", ValueError)  # fmt: skip
    array = np.frombuffer(memoryview(buffer), dtype, count, offset)
    if not array.flags.writeable:
        warn("The given buffer is not writable. Do not change the tensor.")
    return leaf("frombuffer", array, CPU, requires_grad)


def detach(input: Tensor) -> Tensor:
    """A tensor with the same memory, but without history."""
    return input.detach()


def scalar_tensor(
    s: Number, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor without dimensions of a number; of the default dtype if none is given."""
    dtype = (
        promotion.number_dtype(0.0 if not isinstance(s, complex) else s) if dtype is None else dtype
    )
    return _made("scalar_tensor", s, dtype, device, requires_grad)


def new_tensor(
    input: Tensor, data: object, *, dtype: DTypeLike | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor with a copy of some data, of this tensor's dtype and on its device."""
    dtype = input._metadata.dtype if dtype is None else dtype
    return _made("new_tensor", data, dtype, place_of("new_tensor", device, input), requires_grad)


def new(input: Tensor, *args: Any, device: DeviceLike | None = None, **kwargs: Any) -> Tensor:
    """A tensor of this tensor's dtype and device; the arguments are those of `Tensor`."""
    metadata = promotion.as_tensor_operand(input, "new", 1)._metadata
    place = metadata.device if device is None else as_device("new", device)
    return by_size_or_data("new", metadata.dtype, place, args, **kwargs)


def by_size_or_data(
    name: str, dtype: DTypeLike, place: Device, args: tuple[Any, ...], *, size: Ints | None = None,
    data: object | None = None, other: Tensor | Number | None = None, any_dtype: bool = False,
) -> Any:  # fmt: skip
    """The result of older constructors such as `Tensor(2, 3)` or `Tensor([1, 2])`.

    Args:
        args: a shape, as numbers or as one `Size`, or else data: a sequence, an array, a tensor.
        data: the data, by name.
        other: a tensor, by name.
        any_dtype: a tensor may have another dtype.
    """
    named = [value for value in (size, data, other) if value is not None]
    if len(args) + len(named) > 1 and (named or not all(map(_is_length, args))):
        raise TypeError(
            f"{name}() received an invalid combination of arguments. Give the length of each axis, "
            f"or one sequence of numbers."
        )
    given = args[0] if args else named[0] if named else Size([0])
    if len(args) > 1 or size is not None or isinstance(given, Size) or _is_length(given):
        shape = new_shape(name, args if len(args) > 1 else (given,))
        return leaf(name, place.xp.empty(shape, dtype=dtype), place)
    if isinstance(given, Variable):
        if not any_dtype and given._metadata.dtype != dtype:
            raise unmet(
                name, f"expected a tensor of {dtype}", TypeError, data=given._metadata.dtype
            )
        seen = view(given, given._metadata.shape)  # type: ignore[arg-type]
        return renamed(seen, "AliasBackward0")
    if isinstance(given, (str, bytes)):
        raise TypeError(
            f"{name}(): invalid data type '{type(given).__name__}'. Numbers are needed."
        )
    if not isinstance(given, Sequence) and not hasattr(given, "__array__"):
        raise TypeError(f"{name}(): data must be a sequence (got {type(given).__name__})")
    return as_tensor(given, dtype, place)


def _is_length(value: object) -> bool:
    """Whether an argument is the length of an axis, not data."""
    return isinstance(value, Integral) and not isinstance(value, bool)
