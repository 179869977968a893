"""PyTorch's `torch.linalg`."""

from asyncgrad.ops.functions.reduction import vector_norm

__all__ = ["vector_norm"]
