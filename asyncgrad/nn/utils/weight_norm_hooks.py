"""Norms of parameters that hooks apply before each call: the older forms of `parametrizations`."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from asyncgrad.autograd.modes import no_grad
from asyncgrad.nn import functional as F
from asyncgrad.nn import init
from asyncgrad.nn.parameter import Parameter
from asyncgrad.nn.utils.parametrizations import check_iterations, norm_except_dim, rows_axis
from asyncgrad.ops.api.composite import vdot
from asyncgrad.ops.api.linalg import mv

if TYPE_CHECKING:
    from asyncgrad.nn.module import Module

__all__ = ["remove_spectral_norm", "remove_weight_norm", "spectral_norm", "weight_norm"]


class _WeightNorm:
    """Makes a tensor of its direction and lengths before each call."""

    kind = "weight_norm"

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute(self, module: Any) -> Any:
        lengths, direction = (getattr(module, f"{self.name}_{key}") for key in "gv")
        return direction * (lengths / norm_except_dim(direction, self.dim))

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute(module))


class _SpectralNorm:
    """Divides a tensor by its greatest singular value before each call."""

    kind = "spectral_norm"

    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float) -> None:
        check_iterations(n_power_iterations)
        self.name = name
        self.dim = dim
        self.n_power_iterations = n_power_iterations
        self.eps = eps

    def matrix(self, weight: Any) -> Any:
        """The tensor with one axis before all others, which become one."""
        order = [self.dim, *(axis for axis in range(weight.ndim) if axis != self.dim)]
        return weight.permute(order).reshape(weight.shape[self.dim], -1)

    def compute(self, module: Any, iterate: bool) -> Any:
        """The tensor with a greatest singular value of 1; the vectors stay the same tensors."""
        weight, u, v = (getattr(module, f"{self.name}_{key}") for key in ("orig", "u", "v"))
        matrix = self.matrix(weight)
        if iterate:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(mv(matrix.mH, u), dim=0, eps=self.eps))
                    u.copy_(F.normalize(mv(matrix, v), dim=0, eps=self.eps))
            # The next iteration changes them, and this gradient needs them as they are.
            u, v = u.clone(), v.clone()
        return weight / vdot(u, mv(matrix, v))

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute(module, module.training))


def _hooks(module: Module, kind: str, name: str) -> list[Any]:
    """The places of such hooks of a parameter."""
    return [
        place
        for place, held in module._forward_pre_hooks.items()
        if getattr(held.function, "kind", None) == kind and held.function.name == name
    ]


def _parameter(module: Module, kind: str, name: str) -> Any:
    """A parameter that is to be taken apart."""
    if _hooks(module, kind, name):
        raise RuntimeError(f"Cannot register two {kind} hooks on the same parameter {name}")
    parameter = module._parameters.get(name)
    if parameter is None:
        raise ValueError(f"{kind}: {type(module).__name__} has no parameter of the name {name!r}")
    return parameter


def _removed(module: Module, kind: str, name: str) -> Any:
    """The hook of a parameter, taken away."""
    places = _hooks(module, kind, name)
    if not places:
        raise ValueError(f"{kind} of '{name}' not found in {module}")
    return module._forward_pre_hooks.pop(places[0]).function


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Learn the lengths of a parameter's parts and its direction apart, as `name_g` and `name_v`.

    Deprecated, as in PyTorch: see `parametrizations.weight_norm`.

    Args:
        module: the module that has the parameter.
        name: its name.
        dim: the axis whose places have lengths of their own; one for all if None.

    Returns:
        The module.

    Raises:
        RuntimeError: if it is normalised so already.
        ValueError: if there is no such parameter.
    """
    warnings.warn(
        "weight_norm is deprecated in favour of nn.utils.parametrizations.weight_norm",
        FutureWarning,
        stacklevel=2,
    )
    weight = _parameter(module, "weight_norm", name)
    hook = _WeightNorm(name, dim)
    del module._parameters[name]
    lengths = norm_except_dim(weight.detach(), hook.dim)
    module.register_parameter(f"{name}_g", Parameter(lengths))
    module.register_parameter(f"{name}_v", Parameter(weight.detach()))
    hook(module, None)
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Make one parameter again of what `weight_norm` took apart.

    Raises:
        ValueError: if there is no such parameter.
    """
    hook = _removed(module, "weight_norm", name)
    weight = hook.compute(module).detach()
    delattr(module, name)
    for key in "gv":
        del module._parameters[f"{name}_{key}"]
    setattr(module, name, Parameter(weight))
    return module


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a parameter by the greatest singular value of its matrix.

    Args:
        module: the module that has the parameter, which becomes `name_orig`.
        name: its name.
        n_power_iterations: how many iterations improve the estimate at each call in training.
        eps: the least norm that vectors are divided by.
        dim: the axis of the matrix's rows; 0, or that of the outputs for transposed convolutions,
            if None.

    Returns:
        The module.

    Raises:
        RuntimeError: if it is normalised so already.
        ValueError: if there is no such parameter, or no iteration.
    """
    weight = _parameter(module, "spectral_norm", name)
    hook = _SpectralNorm(name, n_power_iterations, rows_axis(module, dim), eps)
    matrix = hook.matrix(weight.detach())
    vectors = [
        F.normalize(init.normal_(matrix.new_empty(size)), dim=0, eps=eps) for size in matrix.shape
    ]
    del module._parameters[name]
    module.register_parameter(f"{name}_orig", weight)
    setattr(module, name, weight.detach())
    for key, vector in zip("uv", vectors, strict=True):
        module.register_buffer(f"{name}_{key}", vector)
    module.register_forward_pre_hook(hook)
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Make one parameter again of what `spectral_norm` keeps.

    Raises:
        ValueError: if there is no such parameter.
    """
    hook = _removed(module, "spectral_norm", name)
    with no_grad():
        weight = hook.compute(module, False).detach()
    delattr(module, name)
    for key in "uv":
        delattr(module, f"{name}_{key}")
    del module._parameters[f"{name}_orig"]
    module.register_parameter(name, Parameter(weight))
    return module
