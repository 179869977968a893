"""Convolutions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from asyncgrad.choices import ConvPadding, ConvPaddingMode, words
from asyncgrad.nn import functional as F
from asyncgrad.nn.function_module import unusual
from asyncgrad.nn.linear import _Weighted
from asyncgrad.nn.parameter import Parameter
from asyncgrad.types import DeviceLike, DTypeLike, Ints, Tensor

_Value = TypeVar("_Value")
_PADDING_MODES = words(ConvPaddingMode)


def for_each(value: _Value | Sequence[_Value], ndim: int) -> tuple[_Value, ...]:
    """Expand an option to one number for each axis of the image."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * ndim  # type: ignore[return-value]


class _ConvNd(_Weighted):
    """The base of convolutions and transposed convolutions."""

    #: The number of axes of the image.
    _ndim: int
    #: The function of `nn.functional`.
    _convolve: Callable[..., Tensor]
    transposed: bool
    in_channels: int
    out_channels: int
    weight: Parameter
    bias: Any
    #: A tuple, or a string with which `conv1d` and its kin choose it.
    padding: Any

    def _keep(self, given: Mapping[str, Any]) -> None:
        """Check and keep the options, and create the parameters."""
        given = {"output_padding": 0, **given}
        groups, padding = given["groups"], given["padding"]
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        for name in ("in_channels", "out_channels"):
            if given[name] % groups:
                raise ValueError(f"{name} ({given[name]}) must be divisible by groups ({groups})")
        for name in ("kernel_size", "stride", "padding", "dilation", "output_padding"):
            if not isinstance(given[name], str):
                given[name] = for_each(given[name], self._ndim)
        if isinstance(padding, str):
            if padding not in words(ConvPadding):
                raise ValueError(
                    f"Invalid padding string {padding!r}, should be one of 'same', 'valid'"
                )
            if padding == "same" and any(s != 1 for s in given["stride"]):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if given["padding_mode"] not in _PADDING_MODES:
            raise ValueError(
                f"padding_mode must be one of {_PADDING_MODES}, but got padding_mode="
                f"'{given['padding_mode']}'"
            )
        super()._keep(given)
        self.output_padding = given["output_padding"]
        channels = self.out_channels, self.in_channels
        first, second = reversed(channels) if self.transposed else channels
        weight = first, second // groups, *self.kernel_size
        shapes = {"weight": weight, "bias": (self.out_channels,) if given["bias"] else None}
        self._add_parameters(shapes, given["device"], given["dtype"])
        self.reset_parameters()

    def extra_repr(self) -> str:
        """The sizes, and the options that differ from the defaults."""
        ndim = self._ndim
        usual = {
            "padding": (0,) * ndim, "dilation": (1,) * ndim, "output_padding": (0,) * ndim,
            "groups": 1, "bias": True, "padding_mode": "zeros",
        }  # fmt: skip
        size, stride = self.kernel_size, self.stride
        sizes = f"{self.in_channels}, {self.out_channels}, kernel_size={size}, stride={stride}"
        return ", ".join([sizes, *unusual(self, usual)])


class _PlainConvNd(_ConvNd, shown=()):
    """A convolution that is not transposed, of images with any number of axes."""

    transposed = False

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Ints, stride: Ints = 1,
        padding: Ints | ConvPadding = 0, dilation: Ints = 1, groups: int = 1, bias: bool = True,
        padding_mode: ConvPaddingMode = "zeros", device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        self._keep(locals())

    def forward(self, input: Tensor) -> Tensor:
        """The convolution of an input of shape (n, in_channels, *image), or without n."""
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Convolve with other weights, as subclasses of users do."""
        convolve, padding = type(self)._convolve, self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._sides(), mode=self.padding_mode)
            padding = 0
        return convolve(input, weight, bias, self.stride, padding, self.dilation, self.groups)

    def _sides(self) -> list[int]:
        """The padding before and after each axis, the last axis first."""
        if isinstance(self.padding, str):
            reach = [
                d * (k - 1) if self.padding == "same" else 0
                for d, k in zip(self.dilation, self.kernel_size, strict=True)
            ]
            pairs = [(r // 2, r - r // 2) for r in reach]
        else:
            pairs = [(p, p) for p in self.padding]
        return [side for pair in reversed(pairs) for side in pair]


class _ConvTransposeNd(_ConvNd, shown=()):
    """The adjoint of a convolution of images with any number of axes."""

    transposed = True

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Ints, stride: Ints = 1,
        padding: Ints | ConvPadding = 0, output_padding: Ints = 0, groups: int = 1,
        bias: bool = True, dilation: Ints = 1, padding_mode: ConvPaddingMode = "zeros",
        device: DeviceLike | None = None, dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        if padding_mode != "zeros":
            raise ValueError(
                f'Only "zeros" padding mode is supported for {type(self).__name__}, got '
                f"{padding_mode!r}"
            )
        self._keep(locals())

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """The adjoint, of an input of shape (n, in_channels, *image), or without n.

        Args:
            output_size: the size of the output; determines `output_padding`.
        """
        extra = self.output_padding if output_size is None else self._extra(input, output_size)
        convolve = type(self)._convolve
        return convolve(
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups,
            self.dilation,
        )  # fmt: skip

    def _extra(self, input: Tensor, output_size: Sequence[int]) -> tuple[int, ...]:
        """The `output_padding` that gives `output_size`."""
        ndim = self._ndim
        wanted = tuple(output_size)
        if len(wanted) == input.ndim and len(wanted) > ndim:
            wanted = wanted[-ndim:]
        if len(wanted) != ndim:
            raise ValueError(
                f"{type(self).__name__}: for {input.ndim}D input, output_size must have {ndim} or "
                f"{input.ndim} elements (got {len(wanted)})"
            )
        image = input.shape[-ndim:]
        options = image, self.stride, self.padding, self.dilation, self.kernel_size
        least = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1 for n, s, p, d, k in zip(*options, strict=True)
        ]
        for size, low, s in zip(wanted, least, self.stride, strict=True):
            if not low <= size < low + s:
                raise ValueError(
                    f"requested an output size of {list(wanted)}, but valid sizes range from "
                    f"{least} to {[m + s - 1 for m, s in zip(least, self.stride, strict=True)]} "
                    f"(for an input of {list(image)})"
                )
        return tuple(size - low for size, low in zip(wanted, least, strict=True))


class Conv1d(_PlainConvNd, ndim=1, convolve=F.conv1d):
    """A convolution of lines.

    Args:
        kernel_size: the size of the kernel, a number or one for each axis.
        stride: the step of the kernel, likewise.
        padding: the padding on both sides, likewise; "same" for an output of the input's size,
            "valid" for nothing.
        dilation: the distance between the kernel's elements.
        groups: each group of outputs depends only on its group of input channels.
        padding_mode: "zeros", "reflect", "replicate" or "circular".
    """


class Conv2d(_PlainConvNd, ndim=2, convolve=F.conv2d):
    """A convolution of images. The arguments are those of `Conv1d`."""


class Conv3d(_PlainConvNd, ndim=3, convolve=F.conv3d):
    """A convolution of volumes. The arguments are those of `Conv1d`."""


class ConvTranspose1d(_ConvTransposeNd, ndim=1, convolve=F.conv_transpose1d):
    """The adjoint of a convolution of lines.

    Args:
        stride: the distance between kernels in the output, a number or one for each axis.
        padding: the width that is cut off the output on both sides, likewise.
        output_padding: the width that is added to the output at its end, likewise.
        padding_mode: "zeros".

    The other arguments are those of `Conv1d`.
    """


class ConvTranspose2d(_ConvTransposeNd, ndim=2, convolve=F.conv_transpose2d):
    """The adjoint of a convolution of images. The arguments are those of `ConvTranspose1d`."""


class ConvTranspose3d(_ConvTransposeNd, ndim=3, convolve=F.conv_transpose3d):
    """The adjoint of a convolution of volumes. The arguments are those of `ConvTranspose1d`."""
