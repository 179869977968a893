"""Padding of the last axes of lines, images and volumes."""

from __future__ import annotations

from asyncgrad.choices import PadMode
from asyncgrad.nn import functional as F
from asyncgrad.nn.conv import for_each
from asyncgrad.nn.function_module import FunctionModule
from asyncgrad.types import Ints, Tensor


class _Pad(FunctionModule, shown=(), unnamed=("padding",)):
    """The base of padding modules for the last axes.

    Args:
        padding: the widths: a number, or one for each side, the last axis first.
    """

    #: The number of axes that are padded, and how, in the words of `nn.functional.pad`.
    _axes: int
    _mode: PadMode

    def __init__(self, padding: Ints) -> None:
        padding = for_each(padding, 2 * self._axes)
        self._keep(locals())

    def forward(self, input: Tensor) -> Tensor:
        """The padded input."""
        return F.pad(input, self.padding, self._mode)


class ReflectionPad1d(_Pad, axes=1, mode="reflect"):
    """Reflection padding of a line. The argument is that of `ZeroPad1d`."""


class ReflectionPad2d(_Pad, axes=2, mode="reflect"):
    """Reflection padding of an image. The argument is that of `ZeroPad2d`."""


class ReflectionPad3d(_Pad, axes=3, mode="reflect"):
    """Reflection padding of a volume. The argument is that of `ZeroPad3d`."""


class ReplicationPad1d(_Pad, axes=1, mode="replicate"):
    """Replication padding of a line, by its ends. The argument is that of `ZeroPad1d`."""


class ReplicationPad2d(_Pad, axes=2, mode="replicate"):
    """Replication padding of an image, by its edges. The argument is that of `ZeroPad2d`."""


class ReplicationPad3d(_Pad, axes=3, mode="replicate"):
    """Replication padding of a volume, by its faces. The argument is that of `ZeroPad3d`."""


class _CircularPad(_Pad, mode="circular"):
    """Circular padding: the input continues at its other end."""

    def forward(self, input: Tensor) -> Tensor:
        """The padded input."""
        least = self._axes + 1
        if input.ndim not in {least, least + 1}:
            raise ValueError(f"expected {least}D or {least + 1}D input (got {input.ndim}D input)")
        return super().forward(input)


class CircularPad1d(_CircularPad, axes=1):
    """Circular padding of a line. The argument is that of `ZeroPad1d`."""


class CircularPad2d(_CircularPad, axes=2):
    """Circular padding of an image. The argument is that of `ZeroPad2d`."""


class CircularPad3d(_CircularPad, axes=3):
    """Circular padding of a volume. The argument is that of `ZeroPad3d`."""


class _ConstantPad(_Pad, mode="constant"):
    """Padding with the number `value`."""

    def __init__(self, padding: Ints, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """The padded input."""
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        """The widths and the number."""
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad, axes=1):
    """Padding with one number for a line."""


class ConstantPad2d(_ConstantPad, axes=2):
    """Padding with one number for an image."""


class ConstantPad3d(_ConstantPad, axes=3):
    """Padding with one number for a volume."""


class _ZeroPad(_ConstantPad):
    """Padding with zeros."""

    def __init__(self, padding: Ints) -> None:
        super().__init__(padding, 0.0)

    extra_repr = _Pad.extra_repr


class ZeroPad1d(_ZeroPad, axes=1):
    """Zero padding of a line."""


class ZeroPad2d(_ZeroPad, axes=2):
    """Zero padding of an image."""


class ZeroPad3d(_ZeroPad, axes=3):
    """Zero padding of a volume."""
