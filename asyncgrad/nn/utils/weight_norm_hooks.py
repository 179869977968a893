"""Weight and spectral norm by forward pre-hooks, the older form of `parametrizations`."""

from __future__ import annotations

from typing import Any

from asyncgrad.autograd.modes import no_grad
from asyncgrad.core.frames import warn
from asyncgrad.nn import functional as F
from asyncgrad.nn import init
from asyncgrad.nn.module import Module
from asyncgrad.nn.parameter import Parameter
from asyncgrad.nn.utils import parametrizations
from asyncgrad.ops.api.composite import vdot
from asyncgrad.ops.api.linalg import mv

__all__ = ["remove_spectral_norm", "remove_weight_norm", "spectral_norm", "weight_norm"]


class _WeightNorm:
    """Computes a tensor from its direction and lengths before each call."""

    kind = "weight_norm"
    endings = ("_g", "_v")

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute(self, module: Module) -> Any:
        lengths, direction = (getattr(module, self.name + ending) for ending in self.endings)
        return direction * (lengths / parametrizations.norm_except_dim(direction, self.dim))

    def __call__(self, module: Module, inputs: tuple[Any, ...] | None) -> None:
        setattr(module, self.name, self.compute(module))


class _SpectralNorm:
    """Divides a tensor by its greatest singular value before each call."""

    kind = "spectral_norm"
    endings = ("_orig", "_u", "_v")

    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float) -> None:
        parametrizations.check_iterations(n_power_iterations)
        self.name = name
        self.dim = dim
        self.n_power_iterations = n_power_iterations
        self.eps = eps

    def compute(self, module: Module, better: bool = False) -> Any:
        """The tensor with a greatest singular value of 1; `better` improves u and v in place."""
        weight, u, v = (getattr(module, self.name + ending) for ending in self.endings)
        matrix = parametrizations.rows_first(weight, self.dim)
        if better:
            parametrizations.iterate(matrix.mH, v, u, self.n_power_iterations, self.eps)
            # The gradient needs the present vectors, but the next iteration changes u and v.
            u, v = u.clone(), v.clone()
        return weight / vdot(u, mv(matrix, v))

    def __call__(self, module: Module, inputs: tuple[Any, ...] | None) -> None:
        setattr(module, self.name, self.compute(module, module.training))


def _hooks(module: Module, kind: str, name: str) -> list[Any]:
    """The keys of a parameter's hooks of one kind."""
    return [
        place
        for place, held in module._forward_pre_hooks.items()
        if getattr(held, "kind", None) == kind and held.name == name
    ]


def _parameter(module: Module, kind: str, name: str) -> Any:
    """The parameter of a name that has no hook of this kind yet."""
    if _hooks(module, kind, name):
        raise RuntimeError(f"Cannot register two {kind} hooks on the same parameter {name}")
    parameter = module._parameters.get(name)
    if parameter is None:
        raise ValueError(f"{kind}: {type(module).__name__} has no parameter of the name {name!r}")
    return parameter


def _remove(module: Module, kind: str, name: str) -> Module:
    """Remove a parameter's hook, and make what it computes one parameter again."""
    places = _hooks(module, kind, name)
    if not places:
        raise ValueError(f"{kind} of '{name}' not found in {module}")
    hook = module._forward_pre_hooks.pop(places[0])
    with no_grad():
        weight = hook.compute(module).detach()
    for ending in ("", *hook.endings):
        delattr(module, name + ending)
    setattr(module, name, Parameter(weight))
    return module


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Learn a parameter's lengths and direction, as `name_g` and `name_v`; returns the module.

    Deprecated, as in PyTorch: see `parametrizations.weight_norm`, which explains the arguments.

    Raises:
        RuntimeError: if it is normalised so already.
    """
    warn(
        "weight_norm is deprecated in favour of nn.utils.parametrizations.weight_norm",
        FutureWarning,
    )
    weight = _parameter(module, "weight_norm", name)
    hook = _WeightNorm(name, dim)
    lengths = parametrizations.norm_except_dim(weight.detach(), hook.dim)
    del module._parameters[name]
    module.register_parameter(f"{name}_g", Parameter(lengths))
    module.register_parameter(f"{name}_v", Parameter(weight.detach()))
    hook(module, None)
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Undo `weight_norm`: make the tensor one parameter again."""
    return _remove(module, "weight_norm", name)


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
    dim: int | None = None,
) -> Module:  # fmt: skip
    """Divide a parameter by the greatest singular value of its matrix; returns the module.

    The parameter becomes `name_orig`. The arguments are those of `parametrizations.spectral_norm`.

    Raises:
        RuntimeError: if it is normalised so already.
    """
    weight = _parameter(module, "spectral_norm", name)
    hook = _SpectralNorm(name, n_power_iterations, parametrizations.rows_axis(module, dim), eps)
    matrix = parametrizations.rows_first(weight.detach(), hook.dim)
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
    """Undo `spectral_norm`: make the normalised tensor a parameter again."""
    return _remove(module, "spectral_norm", name)
