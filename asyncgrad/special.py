"""Special functions: PyTorch's `torch.special`."""

from typing import TYPE_CHECKING, Any

from asyncgrad.ops.api import special
from asyncgrad.ops.api.special import *  # noqa: F403  the module says what is public

__all__ = special.__all__

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The functions that are made from rows."""
