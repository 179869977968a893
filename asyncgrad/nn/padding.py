"""Padding of the last axes of lines, images and volumes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncgrad.nn import functional as F
from asyncgrad.nn.conv import for_each
from asyncgrad.nn.module import Module

if TYPE_CHECKING:
    from asyncgrad.choices import PadMode
    from asyncgrad.tensor import Tensor
    from asyncgrad.types import Ints


class _Pad(Module):
    """The base of padding modules for the last axes.

    Args:
        padding: the widths: a number, or one for each side, the last axis first.
    """

    #: The number of axes that are padded, and the padding mode.
    _axes: int
    _mode: PadMode

    def __init__(self, padding: Ints) -> None:
        super().__init__()
        self.padding = for_each(padding, 2 * self._axes)

    def forward(self, input: Tensor) -> Tensor:
        """The padded input."""
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        """The widths, as `repr` shows them."""
        return f"{self.padding}"


class ReflectionPad1d(_Pad):
    """Reflection padding of a line. The argument is that of `ZeroPad1d`."""

    _axes, _mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """Reflection padding of an image. The argument is that of `ZeroPad2d`."""

    _axes, _mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """Reflection padding of a volume. The argument is that of `ZeroPad3d`."""

    _axes, _mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """Replication padding of a line, by its ends. The argument is that of `ZeroPad1d`."""

    _axes, _mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """Replication padding of an image, by its edges. The argument is that of `ZeroPad2d`."""

    _axes, _mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """Replication padding of a volume, by its faces. The argument is that of `ZeroPad3d`."""

    _axes, _mode = 3, "replicate"


class _CircularPad(_Pad):
    """Circular padding: the input continues at its other end."""

    _mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        """The padded input."""
        least = self._axes + 1
        if input.ndim not in {least, least + 1}:
            raise ValueError(f"expected {least}D or {least + 1}D input (got {input.ndim}D input)")
        return super().forward(input)


class CircularPad1d(_CircularPad):
    """Circular padding of a line. The argument is that of `ZeroPad1d`."""

    _axes = 1


class CircularPad2d(_CircularPad):
    """Circular padding of an image. The argument is that of `ZeroPad2d`."""

    _axes = 2


class CircularPad3d(_CircularPad):
    """Circular padding of a volume. The argument is that of `ZeroPad3d`."""

    _axes = 3


class _ConstantPad(_Pad):
    """Padding with one number.

    Args:
        padding: the widths: a number, or one for each side, the last axis first.
        value: the number.
    """

    _mode = "constant"

    def __init__(self, padding: Ints, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """The padded input."""
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        """The widths and the number."""
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """Padding with one number for a line."""

    _axes = 1


class ConstantPad2d(_ConstantPad):
    """Padding with one number for an image."""

    _axes = 2


class ConstantPad3d(_ConstantPad):
    """Padding with one number for a volume."""

    _axes = 3


class _ZeroPad(_ConstantPad):
    """Padding with zeros.

    Args:
        padding: the widths: a number, or one for each side, the last axis first.
    """

    def __init__(self, padding: Ints) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        """The widths, as `repr` shows them."""
        return f"{self.padding}"


class ZeroPad1d(_ZeroPad):
    """Zero padding of a line."""

    _axes = 1


class ZeroPad2d(_ZeroPad):
    """Zero padding of an image."""

    _axes = 2


class ZeroPad3d(_ZeroPad):
    """Zero padding of a volume."""

    _axes = 3
