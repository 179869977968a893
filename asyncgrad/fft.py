"""PyTorch's `torch.fft`."""

from asyncgrad.ops.functions import fourier
from asyncgrad.ops.functions.fourier import *  # noqa: F403  the module says what is public

__all__ = list(fourier.__all__)
