"""NumPy's functions on arrays in simulated memory, as a library like CuPy."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from asyncgrad.aliases import Device, DType, Value
from asyncgrad.devices import library as base
from asyncgrad.devices.simulated.array import SimArray, check_method, launch

#: Functions of shapes and dtypes, which access no memory.
_FACTS = frozenset({
    "broadcast_shapes", "promote_types", "can_cast", "min_scalar_type", "isscalar", "ndindex",
    "issubdtype", "iterable", "ndim", "shape", "size", "normalize_axis_index",
})  # fmt: skip
#: Functions of NumPy that CuPy lacks; they are absent here, too.
_ABSENT = frozenset({"errstate", "seterr", "geterr", "nditer", "vectorize"})


class Function(base.Function):
    """A NumPy function on a device's arrays."""

    __slots__ = ()

    def __call__(self, *args: Value, **kwargs: Value) -> Any:
        """Put the function into the current stream."""
        return launch(self._device, self._name, self._function, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        check_method(self._name, name)
        return super().__getattr__(name)


class Library(base.Library):
    """NumPy's array functions on a simulated device, which has no compiled kernels."""

    def __init__(self, device: Device, module: ModuleType = np) -> None:
        super().__init__(device, module)
        if module is np:
            self.ndarray = SimArray

    def _bound(self, name: str, function: Callable[..., Any]) -> Any:
        return function if name in _FACTS else Function(self._device, name, function)

    def __getattr__(self, name: str) -> Any:
        """What the module has, unless CuPy lacks it."""
        if name in _ABSENT:
            raise AttributeError(f"module 'cupy' has no attribute {name!r}, nor has {self._device}")
        return super().__getattr__(name)

    def asarray(self, value: Value, dtype: DType = None, **options: Value) -> Any:
        """Convert to an array of the device; host arrays and numbers are copied to it."""
        if isinstance(value, SimArray):
            return value if dtype in {None, value.dtype} else value.astype(dtype)
        return self.array(value, dtype=dtype, **options)

    def array(self, value: Value, dtype: DType = None, **options: Value) -> Any:
        """Make a new array of the device."""
        if isinstance(value, SimArray):
            return launch(self._device, "array", np.array, (value,), {"dtype": dtype, **options})
        if isinstance(value, (list, tuple)) and any(isinstance(part, SimArray) for part in value):
            return self.stack([self.asarray(part, dtype) for part in value])
        return self._device.from_host(np.array(value, dtype=dtype, **options), pinned=False)

    def ascontiguousarray(self, value: Value, dtype: DType = None) -> Any:
        """Return the array if it is C-contiguous, otherwise a copy that is."""
        return launch(self._device, "copy", np.ascontiguousarray, (self.asarray(value, dtype),))
