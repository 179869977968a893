"""PyTorch's `torch.autograd`, with backward passes that can be awaited."""

from asyncgrad.autograd import anomaly_mode, forward_ad, function, functional, graph
from asyncgrad.autograd import modes as grad_mode
from asyncgrad.autograd.anomaly_mode import detect_anomaly, set_detect_anomaly
from asyncgrad.autograd.function import Function
from asyncgrad.autograd.gradcheck import (
    GradcheckError,
    gradcheck,
    gradcheck_async,
    gradgradcheck,
    gradgradcheck_async,
)
from asyncgrad.autograd.modes import (
    _unsafe_preserve_version_counter,
    enable_grad,
    inference_mode,
    is_multithreading_enabled,
    no_grad,
    request,
    set_grad_enabled,
    set_multithreading_enabled,
    set_nesting_limit,
)
from asyncgrad.autograd.passes import backward, grad
from asyncgrad.autograd.variable import Variable
from asyncgrad.core.node import Node

__all__ = [
    "Function", "GradcheckError", "Node", "Variable", "_unsafe_preserve_version_counter",
    "anomaly_mode", "backward", "detect_anomaly", "enable_grad", "forward_ad", "function",
    "functional", "grad", "grad_mode", "gradcheck", "gradcheck_async", "gradgradcheck",
    "gradgradcheck_async", "graph", "inference_mode", "is_multithreading_enabled", "no_grad",
    "request", "set_detect_anomaly", "set_grad_enabled", "set_multithreading_enabled",
    "set_nesting_limit",
]  # fmt: skip
