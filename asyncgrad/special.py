"""PyTorch's `torch.special`."""

from asyncgrad.ops.functions import special
from asyncgrad.ops.functions.special import *  # noqa: F403  the module says what is public

__all__ = special.__all__
