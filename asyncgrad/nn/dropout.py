"""Dropout."""

from __future__ import annotations

from asyncgrad.nn import functional as F
from asyncgrad.nn.function_module import FunctionModule


class _DropoutNd(FunctionModule, shown=("p", "inplace")):
    """The base of all kinds of dropout.

    Args:
        p: the probability of being zeroed.
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self._keep(locals())


class Dropout(_DropoutNd, function=F.dropout):
    """In training mode, zeroes elements at random and scales the others up; else does nothing."""


class Dropout1d(_DropoutNd, function=F.dropout1d):
    """In training mode, zeroes whole channels of shape (length,) at random."""


class Dropout2d(_DropoutNd, function=F.dropout2d):
    """In training mode, zeroes whole channels of shape (height, width) at random."""


class Dropout3d(_DropoutNd, function=F.dropout3d):
    """In training mode, zeroes whole channels of shape (depth, height, width) at random."""


class AlphaDropout(_DropoutNd, function=F.alpha_dropout):
    """In training mode, dropout that keeps mean 0 and variance 1, for networks of `SELU`."""


class FeatureAlphaDropout(_DropoutNd, function=F.feature_alpha_dropout):
    """`AlphaDropout` of whole channels."""
