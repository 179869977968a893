"""PyTorch's `torch.linalg`."""

from asyncgrad.errors import LinAlgError
from asyncgrad.ops.functions import elimination, matrices, norms
from asyncgrad.ops.functions.elimination import *  # noqa: F403  the modules say what is public
from asyncgrad.ops.functions.linalg import matmul
from asyncgrad.ops.functions.matrices import *  # noqa: F403
from asyncgrad.ops.functions.norms import *  # noqa: F403
from asyncgrad.ops.functions.reduction import vector_norm

__all__ = [
    "LinAlgError", "matmul", "vector_norm", *elimination.__all__, *matrices.__all__, *norms.__all__,
]  # fmt: skip
