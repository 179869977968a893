"""Fourier transforms: PyTorch's `torch.fft`."""

from asyncgrad.ops.api.fourier import *  # noqa: F403
from asyncgrad.ops.api.fourier import __all__ as __all__  # the module says what is public
