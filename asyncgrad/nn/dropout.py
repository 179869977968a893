"""Dropout."""

from __future__ import annotations

from typing import Any

from asyncgrad.nn import functional as F
from asyncgrad.nn.module import Module


class Dropout(Module):
    """In training mode, zeroes elements at random and scales the others up; else does nothing.

    Args:
        p: the probability of being zeroed.
        inplace: overwrite the input.

    Raises:
        ValueError: if `p` is no probability.
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """The input, in training mode with holes."""
        return F.dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        """The options."""
        return f"p={self.p}, inplace={self.inplace}"
