"""What surrounds a model: PyTorch's `torch.utils`."""

from asyncgrad.utils import checkpoint, data

__all__ = ["checkpoint", "data"]
