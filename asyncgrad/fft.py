"""Fourier transforms: PyTorch's `torch.fft`."""

from asyncgrad.ops.api import fourier
from asyncgrad.ops.api.fourier import *  # noqa: F403  the module says what is public

__all__ = list(fourier.__all__)
