"""What the graph knows of an array: shape, dtype, device, and the namespace to compute with."""

from __future__ import annotations

from typing import Any

from asyncgrad.core.size import Size


class Metadata:
    """Immutable and shared: arrays of one shape, dtype and device have the same record."""

    __slots__ = (
        "F",
        "cost",
        "device",
        "dtype",
        "is_complex",
        "kernels",
        "scalar",
        "shape",
        "size",
        "special",
        "user_dtype",
        "user_shape",
    )

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: Any,
        device: Any,
        F: Any,
        *,
        user_dtype: Any = None,
        size: int,
        cost: int,
        is_complex: bool,
        is_float: bool,
    ) -> None:
        """Keep the facts; `ops.namespace.metadata_of` is where records come from."""
        self.shape = shape
        self.dtype = dtype
        #: The same two as users see them, made once for all tensors of the record.
        self.user_shape = Size(shape)
        self.user_dtype = user_dtype
        self.device = device
        #: The raw namespace of the device for this kind of dtype, and the same as a dictionary.
        self.F = F
        self.kernels: dict[str, Any] = vars(F)
        self.size = size
        #: Expected nanoseconds of one elementwise pass over the array.
        self.cost = cost
        self.is_complex = is_complex
        #: NumPy answers 0-d arrays with scalars, which have to be made arrays again.
        self.scalar = not shape
        #: A function that keeps the dtype of floating arrays has to look twice.
        self.special = self.scalar or not (is_float or is_complex)

    def __repr__(self) -> str:
        """Shape, dtype and device."""
        return f"{self.dtype}{list(self.shape)} on {self.device}"
