"""PyTorch's `torch.autograd`, awaited."""

from asyncgrad.autograd import function, graph
from asyncgrad.autograd.function import Function
from asyncgrad.autograd.modes import enable_grad, inference_mode, no_grad, set_grad_enabled
from asyncgrad.autograd.passes import backward, grad, request
from asyncgrad.autograd.variable import Variable
from asyncgrad.core.node import Node

__all__ = [
    "Function", "Node", "Variable", "backward", "enable_grad", "function", "grad", "graph",
    "inference_mode", "no_grad", "request", "set_grad_enabled",
]  # fmt: skip
