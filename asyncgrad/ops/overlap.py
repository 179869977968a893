"""Changes in place that read memory which they also write.

Here they would be right, because the new values are computed before any is written. PyTorch writes
as it reads and refuses them, so programs that run in both must not rely on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.errors import AutogradError
from asyncgrad.ops.memory import is_dense

#: Ops without the check: PyTorch checks its elementwise functions but not products.
_UNCHECKED = frozenset({
    "addbmm_", "addmm_", "addmv_", "baddbmm_", "fill_(Tensor)", "index_fill_", "masked_fill_",
    "masked_scatter_",
})  # fmt: skip

#: Ops that write elements elsewhere than they read them: a full overlap is refused, too.
_ELSEWHERE = frozenset({"index_copy_", "index_reduce_", "put_", "scatter_reduce_"})


def refuse_overlap(
    tensor: Any, operands: Iterable[Any], name: str, *, elsewhere: bool = False
) -> None:
    """Raise if a tensor that is to be changed shares some elements with an operand, but not all.

    Like PyTorch, check only tensors without gaps. `elsewhere` says that elements are written at
    other places than they are read from.
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
            # An array that owns its memory shares it only with its views.
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
