"""PyTorch's `torch.utils`: checkpoints and data loading."""

from asyncgrad.utils import checkpoint, data

__all__ = ["checkpoint", "data"]
