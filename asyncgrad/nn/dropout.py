"""Dropout."""

from __future__ import annotations

from typing import Any

from asyncgrad.nn import functional as F
from asyncgrad.nn.module import Module


class _Dropout(Module):
    """The base of all kinds of dropout.

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

    def extra_repr(self) -> str:
        """The options, as `repr` shows them."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """In training mode, zeroes elements at random and scales the others up; else does nothing."""

    def forward(self, input: Any) -> Any:
        """The input; in training mode, with elements zeroed."""
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_Dropout):
    """In training mode, zeroes whole channels of shape (length,) at random."""

    def forward(self, input: Any) -> Any:
        """The input; in training mode, with channels zeroed."""
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_Dropout):
    """In training mode, zeroes whole channels of shape (height, width) at random."""

    def forward(self, input: Any) -> Any:
        """The input; in training mode, with channels zeroed."""
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_Dropout):
    """In training mode, zeroes whole channels of shape (depth, height, width) at random."""

    def forward(self, input: Any) -> Any:
        """The input; in training mode, with channels zeroed."""
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_Dropout):
    """In training mode, dropout that keeps mean 0 and variance 1, for networks of `SELU`."""

    def forward(self, input: Any) -> Any:
        """The input; in training mode, with elements zeroed."""
        return F.alpha_dropout(input, self.p, self.training, self.inplace)


class FeatureAlphaDropout(_Dropout):
    """`AlphaDropout` of whole channels."""

    def forward(self, input: Any) -> Any:
        """The input; in training mode, with channels zeroed."""
        return F.feature_alpha_dropout(input, self.p, self.training, self.inplace)
