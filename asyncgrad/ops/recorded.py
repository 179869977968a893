"""The namespace of recorded functions; see `ops.namespace`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


class Recorded:
    """The recorded functions of the table on tensors; `registry` adds them."""

    fused = False
    chain: Any = None
    mh: Any = None

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The functions of the table."""

    def rdiv_scalar(self, x: Any, number: Any) -> Any:
        """Divide a number by a tensor. The reciprocal is saved, so `x` may change in place."""
        if x._metadata.is_complex:
            # A reciprocal times a number is NaN where the quotient is infinite.
            return self.div(self.add_scalar(self.zero(x), number), x)
        return self.mul_scalar(self.reciprocal(x), number)

    def accumulate(self, value: Any, owned: bool, gradient: Any, gradient_owned: bool) -> Any:
        """Add two gradients into a new tensor."""
        return self.add(value, gradient), True

    def own_copy(self, gradient: Any) -> Any:
        """A copy of a gradient that shares memory with no other tensor."""
        return self.clone(gradient)


RECORDED = Recorded()
