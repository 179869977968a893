"""Special functions: PyTorch's `torch.special`."""

from asyncgrad.ops.api import special
from asyncgrad.ops.api.special import *  # noqa: F403  the module says what is public

__all__ = special.__all__
