"""PyTorch's `torch.func`: transforms of functions into their derivatives, and `vmap`."""

from asyncgrad.func import batched as _batched  # noqa: F401  binds the class of examples
from asyncgrad.func.gradients import grad, grad_and_value, vjp
from asyncgrad.func.jacobians import hessian, jacfwd, jacrev
from asyncgrad.func.mapping import debug_unwrap, vmap
from asyncgrad.func.modules import (
    functional_call,
    replace_all_batch_norm_modules_,
    stack_module_state,
)
from asyncgrad.func.tangents import jvp, linearize

__all__ = [
    "debug_unwrap", "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev",
    "jvp", "linearize", "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap",
]  # fmt: skip
