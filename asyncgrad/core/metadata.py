"""What the graph knows about an array: shape, dtype, device, and the namespace to compute with."""

from __future__ import annotations

from typing import Any

from asyncgrad.aliases import Device, DType, Namespace
from asyncgrad.core.size import Size

#: Expected nanoseconds of a call with few elements.
CALL_NS = 1_350


class Metadata:
    """Immutable and shared: arrays of one shape, dtype and device have the same record."""

    __slots__ = (
        "F", "cost", "device", "dtype", "is_complex", "kernels", "line_cost", "needs_checks",
        "scalar", "shape", "size", "user_dtype", "user_shape",
    )  # fmt: skip

    def __init__(
        self, shape: tuple[int, ...], dtype: DType, device: Device, F: Namespace, *,
        user_dtype: DType = None, size: int, cost: int, line_cost: int, is_complex: bool,
        is_float: bool,
    ) -> None:  # fmt: skip
        """Store the facts; use `ops.namespace.metadata_of` to get a record."""
        self.shape = shape
        self.dtype = dtype
        #: Shape and dtype as users see them, made once for all tensors of the record.
        self.user_shape = Size(shape)
        self.user_dtype = user_dtype
        self.device = device
        #: The raw namespace of the device for this kind of dtype, and the same as a dictionary.
        self.F = F
        self.kernels: dict[str, Any] = F.__dict__
        self.size = size
        #: Expected nanoseconds of one elementwise pass over the array.
        self.cost = cost
        #: The same if it goes line by line, as where something is broadcast.
        self.line_cost = line_cost
        self.is_complex = is_complex
        #: 0-d: NumPy returns scalars for 0-d arrays, which must be converted back to arrays.
        self.scalar = not shape
        #: Operations can't take their fast paths: those are for floating arrays with axes, and not
        #: for examples of a batch, for which this is set later.
        self.needs_checks = self.scalar or not (is_float or is_complex)

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)} on {self.device}"
