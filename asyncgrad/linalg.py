"""Linear algebra: PyTorch's `torch.linalg`."""

from asyncgrad.errors import LinAlgError
from asyncgrad.ops.api import linalg_norm, matrices, triangular
from asyncgrad.ops.api.linalg import matmul
from asyncgrad.ops.api.linalg_norm import *  # noqa: F403
from asyncgrad.ops.api.matrices import *  # noqa: F403
from asyncgrad.ops.api.reduction import vector_norm
from asyncgrad.ops.api.triangular import *  # noqa: F403  the modules say what is public

__all__ = [
    "LinAlgError", "matmul", "vector_norm", *triangular.__all__, *matrices.__all__,
    *linalg_norm.__all__,
]  # fmt: skip
