"""The namespaces that rules compute with.

A rule is written once over an argument `F`. In an ordinary pass `F` is the raw namespace of the
device, whose functions take and return arrays; in a pass that records itself it is `RECORDED`,
whose functions have the same names and arguments and take and return tensors. Operators work on
both. A dtype that is complex has a raw namespace of its own: `F.chain` conjugates there.
"""

from __future__ import annotations

from operator import attrgetter, methodcaller
from types import MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.core.locks import lasting_lock
from asyncgrad.core.metadata import Metadata
from asyncgrad.devices.fp_errors import without_fp_errors
from asyncgrad.errors import AutogradError
from asyncgrad.ops.bfloat16 import BFLOAT16
from asyncgrad.ops.device_check import in_one_place, know
from asyncgrad.ops.dtype import DType
from asyncgrad.ops.fused import PART, assign, parts_of
from asyncgrad.ops.memory import is_dense, repeats, unlocked
from asyncgrad.ops.tensors.sparse_rows import Rows
from asyncgrad.records import NamedTuple

if TYPE_CHECKING:
    from asyncgrad.devices import Device

#: Records are shared, so that operands can be compared by identity; the oldest go first.
_CACHE_LIMIT = 4096


class IgnoringFpErrors(NamedTuple):
    """A function of the device's library that says nothing about infinities and NaN."""

    name: str


class Recorded:
    """The functions of the table on tensors, recorded. Filled by `table`."""

    fused = False
    chain: Any = None
    mh: Any = None

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The functions of the table."""

    def rdiv_scalar(self, x: Any, number: Any) -> Any:
        """A number over a tensor. As PyTorch: it may change in place, the reciprocal is kept."""
        if x._metadata.is_complex:
            # A reciprocal times a number has NaN where the quotient has infinities.
            return self.div(self.add_scalar(self.zeros_of(x), number), x)
        return self.mul_scalar(self.reciprocal(x), number)

    def accumulate(self, value: Any, owned: bool, gradient: Any, gradient_owned: bool) -> Any:
        """The sum of two gradients, a new tensor."""
        return self.add(value, gradient), True

    def own_copy(self, gradient: Any) -> Any:
        """A gradient that nobody else can change."""
        return self.clone(gradient)


class Raw:
    """The functions of the table on a device's arrays, and what a pass needs beside them."""

    def __init__(self, device: Device, xp: Any, *, is_complex: bool) -> None:
        """Bind the device's library; `table` adds the functions."""
        self.device = device
        self.xp = xp
        #: Kernels for arrays of real dtypes may be used.
        self.fused = not is_complex
        self.array_type: Any = device.array_type
        #: The conjugate transpose of the last two axes, and that of a matrix.
        self.adjoint: Any = None
        self.mh: Any = None
        #: A gradient through a local derivative: the gradient times its conjugate.
        self.chain: Any = None

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The functions of the table."""

    def as_array(self, value: Any) -> Any:
        """NumPy answers 0-d arrays with scalars: make them arrays again."""
        if value.__class__ is self.array_type or value.__class__ is Rows:
            return value
        return self.xp.asarray(value)

    def metadata_of(self, array: Any) -> Metadata:
        """The record of an array's shape and dtype on this device."""
        return metadata_of(array, self.device)

    def accumulate(self, value: Any, owned: bool, gradient: Any, gradient_owned: bool) -> Any:
        """The sum of two gradients, in the place of one of them if it is this pass's own."""
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
        """Add to an array in place what has not been added.

        Args:
            target: the array.
            gradient: what is added; may be made of rows.
            done: how far it has been, [0] at first. Python looks for signals after the calls that
                add, and not between this note and those: it is right wherever an interrupt comes.
        """
        # On the host NumPy's own: functions in Python look for signals before they do anything.
        add = self.xp.add if self.device.streamed else np.add
        if target.size > PART and gradient.__class__ is np.ndarray:
            for part in parts_of(target, done[0]):
                into, values = target[part], gradient[part]
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
        """See to it that each element of an array can be changed by itself; False if it can't."""
        if not self.device.streamed and array.flags.writeable:
            return True
        # Arrays of devices are never read-only. Elements that lie in one place are no less shared.
        if repeats(array) or unlocked(array) is None:
            return False
        if not self.device.streamed:
            array.flags.writeable = True
        return True

    def assign(self, target: Any, values: Any) -> None:
        """Put values into an array in place."""
        target[...] = values

    def check_writeable(self, array: Any) -> None:
        """Raise if gradients can't be added into an array."""
        # Mostly it is as it has to be, which takes no call to see.
        is_open = not self.device.streamed and array.flags.writeable
        if not is_open and not self.make_writeable(array):
            raise AutogradError(
                "a gradient can't be accumulated: the array behind .grad is read-only. Set .grad "
                "to None or to a tensor that owns its memory."
            )

    def keep_gradient(self, gradient: Any, like: Any, owned: bool, dtype: Any) -> Any:
        """The array of a dtype that becomes a leaf's `.grad`.

        A gradient that the pass owns is kept as it is if it is laid out like the leaf; anything
        else is copied into the leaf's layout, or in rows where that has gaps or overlaps.
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
        """A gradient that nobody else can change."""
        return self.keep_gradient(gradient, gradient, False, gradient.dtype)

    def in_own_dtype(self, gradient: Any, dtype: Any) -> Any:
        """A gradient in the dtype of what it is the gradient of, where its rule gave another."""
        return gradient if gradient.dtype == dtype else self.in_dtype(gradient, dtype)

    @without_fp_errors
    def in_dtype(self, gradient: Any, dtype: Any) -> Any:
        """A gradient in another dtype; a real one takes the real part."""
        if gradient.dtype.kind == "c" and dtype.kind != "c":
            gradient = gradient.real
        return gradient.astype(dtype)


#: What a pass asks of a namespace beside the table's functions, and what computes there.
_HELPERS = ("accumulate", "add_into", "as_array", "in_dtype", "keep_gradient", "assign")
RECORDED = Recorded()
#: By device: the raw functions of the table, and the namespaces that have been asked for.
_raw: dict[Device, tuple[dict[str, Any], dict[str, Raw]]] = {}
_making = lasting_lock()
_WIDER = ("float32", "float64")
_records: dict[Any, Metadata] = {}


def add_raw_namespaces(device: Device, functions: dict[str, Any]) -> None:
    """Make a device known: every raw function of the table will be bound to its library."""
    _raw[device] = functions, {}
    know(device)


def _space(device: Device, kind: str) -> Raw:
    """The namespace of a kind of arrays: `small`, `large`, `complex` or `narrow` (bfloat16)."""
    functions, spaces = _raw[device]
    known = spaces.get(kind)
    if known is not None:
        return known
    with _making:
        xp = device.pooled_xp if kind == "large" else device.xp
        F = Raw(device, xp, is_complex=kind == "complex")
        for name, function in functions.items():
            setattr(F, name, _bound(name, function, xp, kind))
        if F.fused:
            # Real numbers: nothing to conjugate, nothing to ask.
            F.adjoint = methodcaller("swapaxes", -1, -2)
            F.mh = attrgetter("T")
            F.chain = xp.multiply
        else:
            F.mh = F.adjoint
            F.chain = lambda g, d: g * d.conj()
        if device.streamed:
            for name in functions:
                setattr(F, name, _launched(name, getattr(F, name), device))
            for name in _HELPERS:
                setattr(F, name, device.launching(getattr(F, name)))
        # Threads may have made it at the same time; all go on with the first.
        return spaces.setdefault(kind, F)


def add_raw_function(name: str, function: Any) -> None:
    """Bind one more raw function to the libraries of all devices."""
    with _making:
        for functions, spaces in _raw.values():
            functions[name] = function
            for kind, F in spaces.items():
                bound = _bound(name, function, F.xp, kind)
                setattr(F, name, _launched(name, bound, F.device) if F.device.streamed else bound)


def _launched(name: str, function: Any, device: Device) -> Any:
    """A raw function that puts its work into a device's current stream."""
    return device.launching(in_one_place(name, function, device))


#: Functions of real numbers that libraries have for complex ones, too.
_OF_REAL = frozenset({"relu"})


def _of_real(name: str, function: Any) -> Any:
    """The function, which refuses complex numbers."""

    def call(x: Any) -> Any:
        if x.dtype.kind == "c":
            raise NotImplementedError(
                f'"{name}" not implemented for {x.dtype}. Take its real part.'
            )
        return function(x)

    return call


def _bound(name: str, function: Any, xp: Any, kind: str) -> Any:
    """A raw function of a library: the library's own of a name, or one that is given it."""
    if isinstance(function, str):
        bound = getattr(xp, function)
    elif isinstance(function, IgnoringFpErrors):
        bound = without_fp_errors(getattr(xp, function.name))
    else:
        # As a method of the library: Python calls one in its own loop, and `partial` not.
        bound = MethodType(function, xp)
    if kind == "complex" and name in _OF_REAL:
        return _of_real(name, bound)
    return _narrowed(bound) if kind == "narrow" and name != "to" else bound


def _narrowed(function: Any) -> Any:
    """The function, whose result is bfloat16 again where a Python float made it wider."""

    def call(*args: Any, **kwargs: Any) -> Any:
        out = function(*args, **kwargs)
        return out.astype(BFLOAT16) if getattr(out, "dtype", None) in _WIDER else out

    return call


def is_known(device: Device) -> bool:
    """Whether the table is bound to a device's library."""
    return device in _raw


def forget_records() -> None:
    """Look anew which arrays are large."""
    _records.clear()


def metadata_of(array: Any, device: Device) -> Metadata:
    """The record of an array's shape and dtype on a device."""
    key = (array.shape, array.dtype, device)
    record = _records.get(key)
    if record is None:
        if len(_records) >= _CACHE_LIMIT:
            _records.clear()
        kind = array.dtype.kind
        is_complex = kind == "c"
        if is_complex:
            space = "complex"
        elif kind == "V":
            space = "narrow"
        else:
            space = "small" if array.nbytes < device.large else "large"
        size = int(array.size)
        # Copies of NumPy's dtypes are equal to them; tensors have the very same.
        dtype = np.dtype(array.dtype.type)
        record = _records[key] = Metadata(
            array.shape,
            dtype,
            device,
            _space(device, space),
            user_dtype=DType(dtype),
            size=size,
            cost=1_350 + int(size * device.element_cost),
            is_complex=is_complex,
            is_float=kind == "f",
        )
    return record
