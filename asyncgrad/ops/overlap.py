"""Changes in place that read memory which they write.

The new values are computed before any is written, so that they would be right. PyTorch, which
writes as it reads, refuses; a program that is to run there, too, must not rely on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.errors import AutogradError
from asyncgrad.ops.memory import is_dense

if TYPE_CHECKING:
    from collections.abc import Iterable

#: PyTorch's checks are those of its elementwise functions, and not of products.
_UNCHECKED = frozenset({
    "addbmm_", "addmm_", "addmv_", "baddbmm_", "fill_(Tensor)", "index_fill_", "masked_fill_",
    "masked_scatter_",
})  # fmt: skip

#: Elements are written elsewhere than where they are read: not even all of them may be shared.
_ELSEWHERE = frozenset({"index_copy_", "index_reduce_", "put_", "scatter_reduce_"})


def refuse_overlap(
    tensor: Any, operands: Iterable[Any], name: str, *, elsewhere: bool = False
) -> None:
    """Raise if a tensor that is to be changed shares some elements with an operand, but not all.

    As in PyTorch only tensors without gaps are looked at.

    Args:
        tensor: what is to be changed.
        operands: tensors, and other arguments.
        name: the operation.
        elsewhere: what is written where comes from numbers, and not from the operands' shapes.
    """
    if tensor._batched:
        return
    elsewhere = elsewhere or name in _ELSEWHERE
    array = tensor._array
    for operand in operands:
        if not isinstance(operand, Variable) or operand._batched:
            continue
        if elsewhere or operand is not tensor:
            other = operand._array
            # Arrays that own their memory share it with none but their views.
            if (
                array.__class__ is other.__class__ is np.ndarray
                and (array.base is not None or other.base is not None or array is other)
                and np.may_share_memory(array, other)
                and name not in _UNCHECKED
                and (array.flags.forc or is_dense(array))
                and (other.flags.forc or is_dense(other))
                and (elsewhere or _region(array) != _region(other))
            ):
                raise AutogradError(
                    f"{name}: unsupported operation: some elements of the input tensor and the "
                    f"written-to tensor refer to a single memory location: shapes {array.shape} "
                    f"and {other.shape}. Clone the input first."
                )


def _region(array: Any) -> tuple[int, int, tuple[int, ...]]:
    return array.ctypes.data, array.nbytes, array.strides
