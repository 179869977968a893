"""Fourier transforms: PyTorch's `torch.fft`."""

# Written by tools/make_stubs.py from the running package.

from asyncgrad.choices import FourierNorm
from asyncgrad.ops.api.fourier import fftshift as fftshift, ifftshift as ifftshift
from asyncgrad.ops.dtype_device import layout
from asyncgrad.tensor import Tensor
from asyncgrad.types import DTypeLike, DeviceLike, Ints

__all__ = ['fft', 'fft2', 'fftfreq', 'fftn', 'fftshift', 'hfft', 'hfft2', 'hfftn', 'ifft', 'ifft2', 'ifftn', 'ifftshift', 'ihfft', 'ihfft2', 'ihfftn', 'irfft', 'irfft2', 'irfftn', 'rfft', 'rfft2', 'rfftfreq', 'rfftn']

def fft(input: Tensor, n: int | None = None, dim: int = -1, norm: FourierNorm | None = None, *, out: Tensor | None = None) -> Tensor:
    """The Fourier transform along an axis.

    Args:
        n: the number of points, to which the input is cut or padded with zeros; all if None.
        dim: the axis.
        norm: which transform is divided by the number of points: "forward", "backward" (the
            inverse one; None, too), or "ortho" for both, by its square root.
    """
def fft2(input: Tensor, s: Ints | None = None, dim: Ints | None = (-2, -1), norm: FourierNorm | None = None, *, out: Tensor | None = None) -> Tensor:
    """The Fourier transform over two axes.

    Args:
        s: the number of points along each axis, to which the input is cut or padded with zeros;
            all if None.
        dim: the axes; if None, as many of the last as `s` has numbers, or all.
        norm: which transform is divided by the number of points: "forward", "backward" (the
            inverse one; None, too), or "ortho" for both, by its square root.
    """
def fftfreq(n: int, d: float = 1.0, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False, layout: layout | None = None, pin_memory: bool = False, out: Tensor | None = None) -> Tensor:
    """The frequencies of `fft`, in its order; see `zeros`.

    Args:
        n: the number of points.
        d: the distance between two of them.
        dtype: the dtype; the default one if None.
    """
def fftn(input: Tensor, s: Ints | None = None, dim: Ints | None = None, norm: FourierNorm | None = None, *, out: Tensor | None = None) -> Tensor:
    """The Fourier transform over some axes.

    Args:
        s: the number of points along each axis, to which the input is cut or padded with zeros;
            all if None.
        dim: the axes; if None, as many of the last as `s` has numbers, or all.
        norm: which transform is divided by the number of points: "forward", "backward" (the
            inverse one; None, too), or "ortho" for both, by its square root.
    """
def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: FourierNorm | None = None, *, out: Tensor | None = None) -> Tensor:
    """The real Fourier transform of Hermitian values given by a half, along an axis.

    Args:
        n: the number of points, to which the input is cut or padded with zeros; all if None.
        dim: the axis.
        norm: which transform is divided by the number of points: "forward", "backward" (the
            inverse one; None, too), or "ortho" for both, by its square root.
    """
def hfft2(input: Tensor, s: Ints | None = None, dim: Ints | None = (-2, -1), norm: FourierNorm | None = None, *, out: Tensor | None = None) -> Tensor:
    """The real Fourier transform of Hermitian values given by a half, over two axes.

    Args:
        s: the number of points along each axis, to which the input is cut or padded with zeros;
            all if None.
        dim: the axes; if None, as many of the last as `s` has numbers, or all.
        norm: which transform is divided by the number of points: "forward", "backward" (the
            inverse one; None, too), or "ortho" for both, by its square root.
    """
def hfftn(input: Tensor, s: Ints | None = None, dim: Ints | None = None, norm: FourierNorm | None = None, *, out: Tensor | None = None) -> Tensor:
    """The real Fourier transform of Hermitian values given by a half, over some axes.

    Args:
        s: the number of points along each axis, to which the input is cut or padded with zeros;
            all if None.
        dim: the axes; if None, as many of the last as `s` has numbers, or all.
        norm: which transform is divided by the number of points: "forward", "backward" (the
            inverse one; None, too), or "ortho" for both, by its square root.
    """
def ifft(input: Tensor, n: int | None = None, dim: int = -1, norm: FourierNorm | None = None, *, out: Tensor | None = None) -> Tensor:
    """The inverse Fourier transform along an axis.

    Args:
        n: the number of points, to which the input is cut or padded with zeros; all if None.
        dim: the axis.
        norm: which transform is divided by the number of points: "forward", "backward" (the
            inverse one; None, too), or "ortho" for both, by its square root.
    """
def ifft2(input: Tensor, s: Ints | None = None, dim: Ints | None = (-2, -1), norm: FourierNorm | None = None, *, out: Tensor | None = None) -> Tensor:
    """The inverse Fourier transform over two axes.

    Args:
        s: the number of points along each axis, to which the input is cut or padded with zeros;
            all if None.
        dim: the axes; if None, as many of the last as `s` has numbers, or all.
        norm: which transform is divided by the number of points: "forward", "backward" (the
            inverse one; None, too), or "ortho" for both, by its square root.
    """
def ifftn(input: Tensor, s: Ints | None = None, dim: Ints | None = None, norm: FourierNorm | None = None, *, out: Tensor | None = None) -> Tensor:
    """The inverse Fourier transform over some axes.

    Args:
        s: the number of points along each axis, to which the input is cut or padded with zeros;
            all if None.
        dim: the axes; if None, as many of the last as `s` has numbers, or all.
        norm: which transform is divided by the number of points: "forward", "backward" (the
            inverse one; None, too), or "ortho" for both, by its square root.
    """
def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: FourierNorm | None = None, *, out: Tensor | None = None) -> Tensor:
    """The inverse of `hfft` along an axis.

    Args:
        n: the number of points, to which the input is cut or padded with zeros; all if None.
        dim: the axis.
        norm: which transform is divided by the number of points: "forward", "backward" (the
            inverse one; None, too), or "ortho" for both, by its square root.
    """
def ihfft2(input: Tensor, s: Ints | None = None, dim: Ints | None = (-2, -1), norm: FourierNorm | None = None, *, out: Tensor | None = None) -> Tensor:
    """The inverse of `hfft` over two axes.

    Args:
        s: the number of points along each axis, to which the input is cut or padded with zeros;
            all if None.
        dim: the axes; if None, as many of the last as `s` has numbers, or all.
        norm: which transform is divided by the number of points: "forward", "backward" (the
            inverse one; None, too), or "ortho" for both, by its square root.
    """
def ihfftn(input: Tensor, s: Ints | None = None, dim: Ints | None = None, norm: FourierNorm | None = None, *, out: Tensor | None = None) -> Tensor:
    """The inverse of `hfft` over some axes.

    Args:
        s: the number of points along each axis, to which the input is cut or padded with zeros;
            all if None.
        dim: the axes; if None, as many of the last as `s` has numbers, or all.
        norm: which transform is divided by the number of points: "forward", "backward" (the
            inverse one; None, too), or "ortho" for both, by its square root.
    """
def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: FourierNorm | None = None, *, out: Tensor | None = None) -> Tensor:
    """The inverse of `rfft` along an axis.

    Args:
        n: the number of points, to which the input is cut or padded with zeros; all if None.
        dim: the axis.
        norm: which transform is divided by the number of points: "forward", "backward" (the
            inverse one; None, too), or "ortho" for both, by its square root.
    """
def irfft2(input: Tensor, s: Ints | None = None, dim: Ints | None = (-2, -1), norm: FourierNorm | None = None, *, out: Tensor | None = None) -> Tensor:
    """The inverse of `rfft` over two axes.

    Args:
        s: the number of points along each axis, to which the input is cut or padded with zeros;
            all if None.
        dim: the axes; if None, as many of the last as `s` has numbers, or all.
        norm: which transform is divided by the number of points: "forward", "backward" (the
            inverse one; None, too), or "ortho" for both, by its square root.
    """
def irfftn(input: Tensor, s: Ints | None = None, dim: Ints | None = None, norm: FourierNorm | None = None, *, out: Tensor | None = None) -> Tensor:
    """The inverse of `rfft` over some axes.

    Args:
        s: the number of points along each axis, to which the input is cut or padded with zeros;
            all if None.
        dim: the axes; if None, as many of the last as `s` has numbers, or all.
        norm: which transform is divided by the number of points: "forward", "backward" (the
            inverse one; None, too), or "ortho" for both, by its square root.
    """
def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: FourierNorm | None = None, *, out: Tensor | None = None) -> Tensor:
    """The Fourier transform of real numbers, without redundant conjugates, along an axis.

    Args:
        n: the number of points, to which the input is cut or padded with zeros; all if None.
        dim: the axis.
        norm: which transform is divided by the number of points: "forward", "backward" (the
            inverse one; None, too), or "ortho" for both, by its square root.
    """
def rfft2(input: Tensor, s: Ints | None = None, dim: Ints | None = (-2, -1), norm: FourierNorm | None = None, *, out: Tensor | None = None) -> Tensor:
    """The Fourier transform of real numbers, without redundant conjugates, over two axes.

    Args:
        s: the number of points along each axis, to which the input is cut or padded with zeros;
            all if None.
        dim: the axes; if None, as many of the last as `s` has numbers, or all.
        norm: which transform is divided by the number of points: "forward", "backward" (the
            inverse one; None, too), or "ortho" for both, by its square root.
    """
def rfftfreq(n: int, d: float = 1.0, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False, layout: layout | None = None, pin_memory: bool = False, out: Tensor | None = None) -> Tensor:
    """The frequencies of `rfft`; see `fftfreq`."""
def rfftn(input: Tensor, s: Ints | None = None, dim: Ints | None = None, norm: FourierNorm | None = None, *, out: Tensor | None = None) -> Tensor:
    """The Fourier transform of real numbers, without redundant conjugates, over some axes.

    Args:
        s: the number of points along each axis, to which the input is cut or padded with zeros;
            all if None.
        dim: the axes; if None, as many of the last as `s` has numbers, or all.
        norm: which transform is divided by the number of points: "forward", "backward" (the
            inverse one; None, too), or "ortho" for both, by its square root.
    """
