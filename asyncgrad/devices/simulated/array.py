"""Arrays in simulated memory, and how functions on them are put into streams.

The functions are NumPy's. Their values are computed when they are put into a stream, but the host
can see them only by copying them. Like in CuPy, host arrays are refused as operands, and there is
no implicit conversion to NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import numpy as np

from asyncgrad.aliases import Array, Device, DType, Stream, Value
from asyncgrad.devices.fp_errors import without_fp_errors
from asyncgrad.devices.simulated.memory import Access, Storage
from asyncgrad.devices.simulated.streams import learn

#: Functions that write to their first argument.
_WRITES_FIRST = frozenset({
    "copyto", "put_along_axis", "place", "putmask", "fill_diagonal", "at", "put", "__setitem__",
    "fill", "sort", "partition", "__iadd__", "__isub__", "__imul__", "__itruediv__",
    "__ifloordiv__", "__imod__", "__ipow__", "__iand__", "__ior__", "__ixor__", "__ilshift__",
    "__irshift__",
})  # fmt: skip
#: Functions that accept host arrays, like CuPy's: as indices, or as a number.
_TAKES_HOST_ARRAYS = frozenset({
    "__getitem__", "__setitem__", "take", "at", "put_along_axis", "full", "full_like", "fill",
})  # fmt: skip
#: For each ufunc method, the functions that have it in CuPy.
_METHODS = {
    "reduce": frozenset({"add", "multiply"}),
    "accumulate": frozenset({"add", "multiply"}),
    "reduceat": frozenset({"add"}),
    "at": frozenset({
        "add", "subtract", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor",
    }),
}  # fmt: skip


#: The dtypes of which all versions of CuPy since 14.0 change elements at places.
_CHANGED_AT = "iILQfd"
#: The keyword arguments that CuPy's elementwise functions accept.
_OPTIONS = frozenset({"out", "dtype", "casting"})
#: Functions for which NumPy alone accepts any integers of Python's.
_COMPARISONS = frozenset({
    *(f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge")),
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
})  # fmt: skip
#: How many arguments of CuPy's `matmul` may have no name.
_OPERANDS = 2


def _flags(array: SimArray) -> SimpleNamespace:
    """The flags of a CuPy array, which have no `writeable`."""
    names = ("c_contiguous", "f_contiguous", "owndata")
    return SimpleNamespace(**{name: getattr(array._values.flags, name) for name in names})


class SimArray:
    """An array on a simulated device, like `cupy.ndarray`."""

    __slots__ = ("__weakref__", "_values", "base", "device", "storage")

    def __init__(
        self, values: Array, device: Device, storage: Storage, base: SimArray | None
    ) -> None:
        """Wrap values in a storage, which `base` owns, or this array if it is None."""
        self._values = values
        self.device = device
        self.storage = storage
        self.base = base

    # -- facts ------------------------------------------------------------------------------------

    flags = property(_flags)
    data = property(lambda self: SimpleNamespace(ptr=self._values.__array_interface__["data"][0]))
    T = property(lambda self: launch(self.device, "T", np.transpose, (self,)))
    real = property(
        lambda self: launch(self.device, "real", np.real, (self,)),
        lambda self, value: self.real.__setitem__(..., value),
    )
    imag = property(
        lambda self: launch(self.device, "imag", np.imag, (self,)),
        lambda self, value: self.imag.__setitem__(..., value),
    )

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[SimArray]:
        return (self[i] for i in range(len(self)))

    # -- to the host ------------------------------------------------------------------------------

    def get(self) -> np.ndarray[Any, Any]:
        """Copy the array to host memory; blocks until the copy is done."""
        device = self.device
        values = device.to_host(self)
        event = device.new_event(timing=False)
        device.record(event, device.current_raw())
        device.synchronize(event)
        return values  # type: ignore[no-any-return]

    def item(self, *place: Any) -> Any:
        """Return one element as a Python number; blocks until it is computed."""
        return self.get().item(*place)

    def __array__(self, dtype: DType = None, copy: bool | None = None) -> Any:
        """Refuse the conversion: the host can't see a device's memory."""
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed: the array is in the memory of "
            f"{self.device}. Copy it with .get(), or the tensor with .cpu()."
        )

    # -- functions --------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Value, method: str, *inputs: Value, **kwargs: Value) -> Any:
        """Run NumPy's elementwise functions on this device."""
        check_method(ufunc.__name__, method)
        if method == "__call__":
            return launch(self.device, ufunc.__name__, ufunc, inputs, kwargs)
        return launch(self.device, method, getattr(ufunc, method), inputs, kwargs)

    def __array_function__(
        self, function: Callable[..., Any], types: Value, args: Value, kwargs: Value
    ) -> Any:
        """Run NumPy's other functions on this device."""
        return launch(self.device, function.__name__, function, args, kwargs)

    def __getitem__(self, index: Value) -> Any:
        return launch(self.device, "__getitem__", np.ndarray.__getitem__, (self, index))

    def __setitem__(self, index: Value, value: Value) -> None:
        launch(self.device, "__setitem__", np.ndarray.__setitem__, (self, index, value))

    def __getattr__(self, name: str) -> Any:
        """NumPy's methods, run on this device."""
        method = getattr(np.ndarray, name, None)
        if not callable(method) or name.startswith("__"):
            raise AttributeError(f"'SimArray' object has no attribute {name!r}")
        return lambda *args, **kwargs: launch(self.device, name, method, (self, *args), kwargs)

    def __repr__(self) -> str:
        return f"<SimArray {self.dtype}{list(self.shape)} on {self.device}>"


def _operator(name: str) -> Callable[..., Any]:
    method = getattr(np.ndarray, name)

    def operator(self: SimArray, *others: Array) -> Any:
        result = launch(self.device, name, method, (self, *others))
        return self if name in _WRITES_FIRST and result is not NotImplemented else result

    operator.__name__ = name
    return operator


def _on_host(name: str) -> Callable[..., Any]:
    """A method that gives Python numbers; blocks until they are computed."""
    return lambda self: getattr(self.get(), name)()


for _name in ("shape", "dtype", "ndim", "size", "nbytes", "itemsize", "strides"):
    setattr(SimArray, _name, property(attrgetter(f"_values.{_name}")))
for _name in ("tolist", "__bool__", "__int__", "__float__", "__complex__", "__index__"):
    setattr(SimArray, _name, _on_host(_name))
for _stem in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or",
              "xor", "lshift", "rshift"):  # fmt: skip
    for _form in ("__{}__", "__r{}__", "__i{}__"):
        if _form.format(_stem) != "__imatmul__":
            setattr(SimArray, _form.format(_stem), _operator(_form.format(_stem)))
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert", "divmod"):
    setattr(SimArray, f"__{_name}__", _operator(f"__{_name}__"))
SimArray.__hash__ = object.__hash__  # type: ignore[method-assign]


# -- putting functions into streams --------------------------------------------------------------


def launch(
    device: Device, name: str, function: Callable[..., Any], args: Value, kwargs: Value = None
) -> Any:
    """Put a NumPy function on arrays of one device into the current stream.

    Raises:
        RuntimeError: if an array of another device is among the arguments.
        TypeError: if a host array is, and for arguments that CuPy's functions don't take.
        RaceError: if an access to memory is not ordered against one in another stream.
    """
    if kwargs and isinstance(function, np.ufunc) and function.signature is None:
        unknown = {key: value for key, value in kwargs.items() if key not in _OPTIONS}
        if unknown:
            raise TypeError(f"Wrong arguments {unknown}")
    if kwargs and "initial" in kwargs:
        raise TypeError(f"{name}() got an unexpected keyword argument 'initial'")
    if name == "at" and args[0].dtype.char not in _CHANGED_AT:
        raise TypeError(f"cupy's .at does not support {args[0].dtype}")
    if name == "matmul" and len(args) > _OPERANDS:
        raise TypeError("matmul() takes its output by name alone: out=...")
    found: dict[int, SimArray] = {}
    indexing = name in _TAKES_HOST_ARRAYS
    if name in _COMPARISONS:
        _check_fits(*args)
    values = [_plain(value, device, found, indexing) for value in args]
    named = {key: _plain(value, device, found, False) for key, value in (kwargs or {}).items()}
    written = _written(name, function, args, kwargs or {})
    overwrites = name == "fill" or (name == "__setitem__" and args[1] is Ellipsis)
    stream = device.current_raw()
    machine = device.machine
    accesses = [
        Access(
            array,
            write=any(array is w for w in written),
            overwrites=overwrites and array is args[0],
        )
        for array in found.values()
    ]
    with machine.lock:
        if written and machine.detect_races:
            learn(stream.clock, machine.known)
            for access in accesses:
                access.check(name, stream)
        result = _computed(function, values, named)
        if result is NotImplemented:
            return result
        fresh: list[SimArray] = []
        wrapped = _wrapped(result, device, stream, found, fresh)
        if fresh or written:
            accesses += [Access(a, write=True) for a in fresh]
            machine.launch(name, stream, accesses)
        return wrapped


@without_fp_errors
def _computed(function: Callable[..., Any], values: Array, named: dict[str, Any]) -> Any:
    return function(*values, **named)


def _check_fits(x: Value, y: Value, *rest: Value) -> None:
    """Refuse to compare integers with a number of Python's that their dtype can't hold."""
    for array, number in ((x, y), (y, x)):
        if isinstance(array, SimArray) and array.dtype.kind in "iu" and number.__class__ is int:
            array.dtype.type(number)


def _plain(value: Value, device: Device, found: dict[int, SimArray], indexing: bool) -> Any:
    """Replace a device's arrays in an argument by NumPy's, and note them in `found`."""
    if isinstance(value, SimArray):
        if value.device is not device:
            raise RuntimeError(
                f"an array of {value.device} is used on {device}. Move one with .to()."
            )
        found[id(value._values)] = value
        return value._values
    if isinstance(value, (tuple, list)):
        parts = [_plain(part, device, found, indexing) for part in value]
        # A tuple subclass may need other arguments than its parts: it is kept if unchanged.
        same = all(part is given for part, given in zip(parts, value, strict=True))
        return value if same else type(value)(parts)
    if isinstance(value, np.ndarray) and not indexing:
        raise TypeError(
            f"Unsupported type {type(value)}: a host array is used with arrays of {device}. Copy "
            f"it to the device with .to({str(device)!r})."
        )
    return value


def _written(
    name: str, function: Callable[..., Any], args: Value, kwargs: dict[str, Any]
) -> list[SimArray]:
    """The arrays that a call writes to."""
    out = kwargs.get("out")
    targets = list(out) if isinstance(out, tuple) else [out]
    owner = getattr(function, "__self__", function)
    if isinstance(owner, np.ufunc) and function is owner:
        targets += args[owner.nin :]
    elif name in _WRITES_FIRST:
        targets.append(args[0])
    elif name == "dot":
        targets += args[2:]
    return [target for target in targets if isinstance(target, SimArray)]


def _root(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    while isinstance(values.base, np.ndarray):
        values = values.base
    return values


def _wrapped(
    result: Value, device: Device, stream: Stream, found: dict[int, SimArray], fresh: list[SimArray]
) -> Any:
    """Replace NumPy's arrays in a result by the device's, and note new ones in `fresh`."""
    if isinstance(result, np.generic):
        result = np.asarray(result)
    if isinstance(result, np.ndarray):
        if not result.flags.writeable and (all(result.strides) or not result.size):
            # As with CuPy's diagonals, the result is writeable if its memory is, empty ones too.
            result.flags.writeable = _root(result).flags.writeable
        same = found.get(id(result))
        if same is not None:
            return same
        root = _root(result)
        for owner in found.values():
            if owner.storage.root is root:
                base = owner if owner.base is None else owner.base
                return device.array_type(result, device, owner.storage, base)
        if root is not result:
            # The result is a view of a temporary array of NumPy's.
            result = result.copy()
        fresh.append(adopt(result, device, stream))
        return fresh[-1]
    if isinstance(result, (tuple, list)):
        parts = [_wrapped(part, device, stream, found, fresh) for part in result]
        if hasattr(result, "_fields"):
            return type(result)(*parts)
        return type(result)(parts)
    return result


def adopt(values: Array, device: Device, stream: Stream) -> Any:
    """Make a new array of the device from values that nothing else refers to."""
    return device.array_type(values, device, Storage(device.machine, values, stream), None)


def check_method(function: str, method: str) -> None:
    """Raise if CuPy's elementwise function lacks a method."""
    if function not in _METHODS.get(method, (function,)):
        raise NotImplementedError(f"`cupy_{function}.{method}` is not supported yet")
