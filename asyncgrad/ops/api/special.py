"""Special functions: `asyncgrad.special`. Those that NumPy lacks are faster with SciPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.ops.api.activation import log_softmax, softmax
from asyncgrad.ops.api.elementwise import round
from asyncgrad.ops.api.public import functions
from asyncgrad.ops.api.reduction import logsumexp
from asyncgrad.ops.api.transcendental import logit, mvlgamma, polygamma

__all__ = [
    "log_softmax", "logit", "logsumexp", "multigammaln", "polygamma", "round", "softmax",
]  # fmt: skip
globals().update(functions("special"))
__all__ += functions("special")
multigammaln = mvlgamma
if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The functions that are made from rows."""
