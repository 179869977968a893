"""What surrounds a model: PyTorch's `torch.utils`."""

from asyncgrad.utils import checkpoint

__all__ = ["checkpoint"]
