"""Special functions: PyTorch's `torch.special`."""

from asyncgrad.ops.api.special import *  # noqa: F403
from asyncgrad.ops.api.special import __all__ as __all__  # the module says what is public
