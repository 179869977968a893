"""PyTorch's older top-level names and methods of functions that are also elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncgrad.ops.api.activation_composite import hardshrink, prelu
from asyncgrad.ops.api.elementwise import trunc as fix
from asyncgrad.ops.api.linalg_norm import multi_dot
from asyncgrad.ops.api.transfer import get_device
from asyncgrad.ops.promotion import as_tensor_operand

if TYPE_CHECKING:
    from asyncgrad.tensor import Tensor

__all__ = ["chain_matmul", "fix", "get_device", "hardshrink", "prelu"]
#: Functions that are also methods of tensors, and functions with an in-place form (`add_`).
METHODS = ("fix", "hardshrink", "prelu")
IN_PLACE = ("fix",)


def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of matrices, in the order of the fewest multiplications."""
    if len(matrices) == 1:
        return as_tensor_operand(matrices[0], "chain_matmul", 1)
    return multi_dot(matrices)
