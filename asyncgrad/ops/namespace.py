"""The namespaces that rules compute with.

A rule is written once over an argument `F`. In an ordinary pass `F` is the device's raw namespace,
whose functions take and return arrays. In a pass that records itself it is `RECORDED`, whose
functions have the same names and parameters and take and return tensors. Operators work on both.
Complex dtypes have a raw namespace of their own, in which `F.chain` conjugates.
"""

from __future__ import annotations

from operator import attrgetter, methodcaller
from sys import getrefcount
from types import MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.core.locks import lasting_lock
from asyncgrad.core.metadata import CALL_NS, Metadata
from asyncgrad.devices import Device
from asyncgrad.devices.fp_errors import without_fp_errors
from asyncgrad.errors import AutogradError
from asyncgrad.ops.bfloat16 import BFLOAT16
from asyncgrad.ops.device_check import on_one_device, register_device
from asyncgrad.ops.dtype import DType, refuse
from asyncgrad.ops.fused import PART, assign, parts_of
from asyncgrad.ops.memory import is_dense, repeats, unlocked
from asyncgrad.ops.op import Op
from asyncgrad.ops.recorded import RECORDED as RECORDED
from asyncgrad.ops.tensors.sparse_rows import Rows
from asyncgrad.ops.widening import widening
from asyncgrad.records import NamedTuple

#: Metadata is shared so that operands can be compared by identity. When the cache has so many
#: records, those go that nobody holds.
_CACHE_LIMIT = 4096
#: The cost of a byte, by kind of dtype; in float32 four bytes cost 1. NumPy converts numbers in
#: half precision to float32 and back, and complex numbers take it more operations.
_BYTE_COSTS = {"small": 0.25, "large": 0.25, "complex": 0.5, "float16": 4.0, "bfloat16": 4.0}
#: Nanoseconds that NumPy takes to begin a line.
_LINE_NS = 20


class IgnoringFpErrors(NamedTuple):
    """A function of the device's library to call without floating-point warnings."""

    name: str


class Raw:
    """The table's functions on a device's arrays, and helpers that a pass needs."""

    def __init__(self, device: Device, xp: Any, *, is_complex: bool) -> None:
        """Bind the device's library; `_space` adds the functions."""
        self.device = device
        self.xp = xp
        #: Whether kernels for arrays of real dtypes may be used.
        self.fused = not is_complex
        self.array_type: Any = device.array_type
        #: The conjugate transpose of the last two axes, and of a matrix.
        self.adjoint: Any = None
        self.mh: Any = None
        #: Multiply a gradient by the conjugate of a local derivative.
        self.chain: Any = None

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The functions of the table."""

    def as_array(self, value: Any) -> Any:
        """Convert the scalars that NumPy returns for 0-d arrays back to arrays."""
        if value.__class__ is self.array_type or value.__class__ is Rows:
            return value
        return self.xp.asarray(value)

    def metadata_of(self, array: Any) -> Metadata:
        """The metadata of an array's shape and dtype on this device."""
        return metadata_of(array, self.device)

    def accumulate(self, value: Any, owned: bool, gradient: Any, gradient_owned: bool) -> Any:
        """Add two gradients, into the memory of one that the pass owns if possible."""
        add = self.xp.add
        if owned and value.__class__ is self.array_type and value.dtype == gradient.dtype:
            return add(value, gradient, value), True
        if (
            gradient_owned
            and gradient.__class__ is self.array_type
            and value.dtype == gradient.dtype
        ):
            return add(value, gradient, gradient), True
        return add(value, gradient), True

    @without_fp_errors
    def add_into(self, target: Any, gradient: Any, done: list[int]) -> None:
        """Add a gradient to an array in place, from where an interrupted call stopped.

        Args:
            gradient: what is added; may be `Rows`.
            done: how far calls have got, [0] at first. It is right after any interrupt: Python
                handles signals after the call that adds, and not between it and this note.
        """
        # On the host NumPy's own `add`: a Python function would handle signals before it adds.
        add = self.xp.add if self.device.streamed else np.add
        if target.size > PART and gradient.__class__ is np.ndarray:
            for part in parts_of(target, done[0]):
                into, values = target[part], gradient[part]
                if done[0] != part.start:
                    # A commit within this one, in a signal handler or `__del__`, has gone on.
                    break
                done[0] = part.stop
                add(into, values, into)
        elif not done[0]:
            if gradient.__class__ is Rows:
                at, indices, values = np.add.at, gradient.indices, gradient.values
                done[0] = 1
                at(target, indices, values)
            else:
                done[0] = 1
                add(target, gradient, target)

    def make_writeable(self, array: Any) -> bool:
        """Make each element of an array writeable by itself; False if that is impossible."""
        if not self.device.streamed and array.flags.writeable:
            return True
        # A device's arrays are never read-only, but their elements may share memory, too.
        if repeats(array) or unlocked(array) is None:
            return False
        if not self.device.streamed:
            array.flags.writeable = True
        return True

    def assign(self, target: Any, values: Any) -> None:
        """Put values into an array in place."""
        target[...] = values

    def check_writeable(self, array: Any) -> None:
        """Raise if gradients can't be added into an array in place."""
        # The common case is tested without a call.
        is_open = not self.device.streamed and array.flags.writeable
        if not is_open and not self.make_writeable(array):
            raise AutogradError(
                "a gradient can't be accumulated: the array behind .grad is read-only. Set .grad "
                "to None or to a tensor that owns its memory."
            )

    def keep_gradient(self, gradient: Any, like: Any, owned: bool, dtype: Any) -> Any:
        """The array that becomes a leaf's `.grad`.

        A gradient that the pass owns and that is laid out like the leaf is kept. Any other is
        copied into the leaf's layout, or a contiguous one if that has gaps or overlaps.
        """
        if gradient.dtype != dtype:
            gradient, owned = self.in_dtype(gradient, dtype), True
        if owned and gradient.strides == like.strides:
            return gradient
        if gradient.__class__ is Rows:
            return gradient if owned else gradient.copy()
        order = "K" if like.flags.c_contiguous or is_dense(like) else "C"
        kept = self.xp.empty_like(like, dtype=dtype, order=order)
        assign(kept, gradient)
        return kept

    def own_copy(self, gradient: Any) -> Any:
        """A copy of a gradient that shares memory with no other array."""
        return self.keep_gradient(gradient, gradient, False, gradient.dtype)

    def in_own_dtype(self, gradient: Any, dtype: Any) -> Any:
        """Cast a gradient to its input's dtype if its rule returned another."""
        return gradient if gradient.dtype == dtype else self.in_dtype(gradient, dtype)

    @without_fp_errors
    def in_dtype(self, gradient: Any, dtype: Any) -> Any:
        """Cast a gradient; to a real dtype, take the real part."""
        if gradient.dtype.kind == "c" and dtype.kind != "c":
            gradient = gradient.real
        return gradient.astype(dtype)


#: Methods of `Raw` that launch work on a device with streams.
_HELPERS = ("accumulate", "add_into", "as_array", "in_dtype", "keep_gradient", "assign")
#: All functions of the table, by name; `registry` adds them.
OPS: dict[str, Op] = {}
#: By device: the namespaces made so far.
_raw: dict[Device, dict[str, Raw]] = {}
_making = lasting_lock()
_WIDER = ("float32", "float64")
_HALF = frozenset({"float16", "bfloat16"})
_records: dict[Any, Metadata] = {}
_limit = _CACHE_LIMIT


def _space(device: Device, kind: str) -> Raw:
    """The namespace for `small`, `large`, `complex`, `float16` or `bfloat16` arrays."""
    spaces = _raw.get(device)
    if spaces is None:
        spaces = _raw.setdefault(device, {})
        register_device(device)
    known = spaces.get(kind)
    if known is not None:
        return known
    with _making:
        own = {"large": device.pooled_xp, "float16": device.half_xp, "bfloat16": device.half_xp}
        xp = own.get(kind, device.xp)
        F = Raw(device, xp, is_complex=kind == "complex")
        for op in OPS.values():
            _bind(op, F, kind)
        if F.fused:
            # Real numbers need no conjugation, so plain functions are enough.
            F.adjoint = methodcaller("swapaxes", -1, -2)
            if device.streamed:
                F.adjoint = device.launching(on_one_device(OPS["adjoint"], F.adjoint, device))
            F.mh = attrgetter("T")
            F.chain = xp.multiply
        else:
            F.mh = F.adjoint
            F.chain = lambda g, d: g * d.conj()
        if device.streamed:
            for name in _HELPERS:
                setattr(F, name, device.launching(getattr(F, name)))
        # Another thread may have made the namespace first; every thread uses the first one.
        return spaces.setdefault(kind, F)


def add_raw_function(op: Op) -> None:
    """Add an op to the table, and bind its raw function to the libraries of all devices."""
    with _making:
        OPS[op.name] = op
        for spaces in tuple(_raw.values()):
            for kind, F in tuple(spaces.items()):
                _bind(op, F, kind)


def _of_real(name: str, function: Any) -> Any:
    def call(x: Any, *others: Any) -> Any:
        if x.dtype.kind == "c":
            refuse(name, x.dtype)
        return function(x, *others)

    return call


def _bind(op: Op, F: Raw, kind: str) -> None:
    """Bind a raw function to a library: the library's own function if it is given by name.

    On a device with streams, calls launch the work on the current one.
    """
    name, function, xp = op.name, op.forward, F.xp
    if kind in _HALF and (op.wide is True or (op.wide and not F.device.streamed)):
        function = widening(function)
    if isinstance(function, str):
        bound = getattr(xp, function)
    elif isinstance(function, IgnoringFpErrors):
        bound = without_fp_errors(getattr(xp, function.name))
    else:
        # A method, not a `partial`: Python's interpreter loop calls methods without a C call.
        bound = MethodType(function, xp)
    if kind == "complex" and op.of_real:
        bound = _of_real(name, bound)
    elif kind == "bfloat16" and name != "to":
        bound = _in_bfloat16(_of_bfloat16(bound) if _rounds_number(op) else bound)
    elif kind == "float16" and "scalar" in op.frees:
        # NumPy rounds a factor or divisor to float16 first, PyTorch no more than the result.
        bound = _rounded_after(bound)
    if F.device.streamed:
        bound = F.device.launching(on_one_device(op, bound, F.device))
    setattr(F, name, bound)


def _rounds_number(op: Op) -> bool:
    """Whether a number beside bfloat16 is rounded first, as in PyTorch all but factors are."""
    if not op.attributes:
        return op.inputs == ("x", "y")
    return op.attributes == ("scalar",) and not op.frees


def _of_bfloat16(function: Any) -> Any:
    """Round Python numbers to bfloat16 first."""
    number = BFLOAT16.type

    def call(*args: Any) -> Any:
        return function(*[number(a) if a.__class__ in {float, int} else a for a in args])

    return call


def _in_bfloat16(function: Any) -> Any:
    """Round results back to bfloat16 where a Python float promoted them."""

    def call(*args: Any, **kwargs: Any) -> Any:
        out = function(*args, **kwargs)
        return out.astype(BFLOAT16) if getattr(out, "dtype", None) in _WIDER else out

    return call


def _rounded_after(function: Any) -> Any:
    """Compute with a float16 array and a number in float32, and round the result."""

    def call(x: Any, number: Any) -> Any:
        return function(x.astype(np.float32), number).astype(x.dtype)

    return call


def forget_records() -> None:
    """Clear the metadata cache, because a changed limit decides anew which arrays are large."""
    _records.clear()


def _references(table: dict[Any, Any]) -> dict[Any, int]:
    """How many references there are to each value, with the few that this function has."""
    return {key: getrefcount(value) for key, value in list(table.items())}


_OF_UNHELD = _references({0: object()})[0]


def _drop_unheld() -> None:
    """Drop records that nobody holds, and wait longer if most are held."""
    global _limit
    for key, count in _references(_records).items():
        if count <= _OF_UNHELD:
            _records.pop(key, None)
    _limit = max(_CACHE_LIMIT, 2 * len(_records))


def metadata_of(array: Any, device: Device) -> Metadata:
    """The shared metadata of an array's shape and dtype on a device."""
    key = (array.shape, array.dtype, device)
    record = _records.get(key)
    if record is None:
        if len(_records) >= _limit:
            _drop_unheld()
        kind = array.dtype.kind
        is_complex = kind == "c"
        if is_complex:
            space = "complex"
        elif kind == "V":
            space = "bfloat16"
        elif kind == "f" and array.dtype.itemsize == 2:
            space = "float16"
        else:
            space = "small" if array.nbytes < device.large else "large"
        each = device.element_cost * _BYTE_COSTS[space]
        size, cost = int(array.size), CALL_NS + int(array.nbytes * each)
        lines = size // array.shape[-1] if size and array.shape else 0
        # Copies of NumPy dtypes are equal but not identical; metadata always has the original.
        dtype = np.dtype(array.dtype.type)
        record = _records[key] = Metadata(
            array.shape,
            dtype,
            device,
            _space(device, space),
            user_dtype=DType(dtype),
            size=size,
            cost=cost,
            line_cost=cost + int(_LINE_NS * device.element_cost * lines),
            is_complex=is_complex,
            is_float=kind == "f",
        )
    return record
