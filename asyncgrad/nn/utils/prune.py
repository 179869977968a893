"""Pruning: some elements of parameters are held at zero, PyTorch's `torch.nn.utils.prune`.

A pruned parameter `weight` becomes `weight_orig`, and the module gets a buffer `weight_mask` of
ones and zeros. `weight` is their product, recomputed before each call of the module.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from asyncgrad.choices import MatrixNorm
from asyncgrad.nn.module import Module
from asyncgrad.nn.utils.pruning_methods import (
    BasePruningMethod,
    CustomFromMask,
    Identity,
    L1Unstructured,
    LnStructured,
    PruningContainer,
    RandomStructured,
    RandomUnstructured,
    _pruned_by,
)
from asyncgrad.nn.utils.vectors import parameters_to_vector
from asyncgrad.ops.api.creation import ones_like
from asyncgrad.types import Tensor

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured",
    "PruningContainer", "RandomStructured", "RandomUnstructured", "custom_from_mask",
    "global_unstructured", "identity", "is_pruned", "l1_unstructured", "ln_structured",
    "random_structured", "random_unstructured", "remove",
]  # fmt: skip


def identity(module: Module, name: str) -> Module:
    """Add the hook and a mask of ones to a parameter, without pruning; returns the module."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: float) -> Module:
    """Prune elements at random: see `RandomUnstructured`; returns the module."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(
    module: Module, name: str, amount: float, importance_scores: Tensor | None = None
) -> Module:
    """Prune the elements of the least absolute values: see `L1Unstructured`; returns the module.

    Example:
        >>> layer = ag.nn.Linear(3, 1, bias=False)
        >>> _ = ag.nn.init.constant_(layer.weight, 2.0)
        >>> l1_unstructured(layer, "weight", amount=1).weight_mask.sum().item()
        2.0
        >>> remove(layer, "weight").weight.sum().item()
        4.0
    """
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: float, dim: int) -> Module:
    """Prune channels at random: see `RandomStructured`; returns the module."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Module, name: str, amount: float, n: float | MatrixNorm, dim: int,
    importance_scores: Tensor | None = None,
) -> Module:  # fmt: skip
    """Prune the channels of the least norms: see `LnStructured`; returns the module."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prune by a mask: see `CustomFromMask`; returns the module."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]], pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Tensor] | None = None, **kwargs: Any,
) -> None:  # fmt: skip
    """Prune elements of several parameters as if they were one.

    Args:
        parameters: pairs of a module and a parameter's name.
        pruning_method: a subclass of `BasePruningMethod`, of type "unstructured".
        importance_scores: by such pairs; parameters without an entry are their own scores.
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    pairs: list[Any] = list(parameters)
    tensors = [getattr(module, name) for module, name in pairs]
    masks = [
        getattr(module, f"{name}_mask", ones_like(tensor))
        for (module, name), tensor in zip(pairs, tensors, strict=True)
    ]
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            f'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {method.PRUNING_TYPE}"
        )
    whole = parameters_to_vector(
        [scores.get(tuple(pair), tensor) for pair, tensor in zip(pairs, tensors, strict=True)]
    )
    mask = PruningContainer(method).compute_mask(whole, parameters_to_vector(masks))
    parts = mask.split([tensor.numel() for tensor in tensors])
    for (module, name), tensor, part in zip(pairs, tensors, parts, strict=True):
        custom_from_mask(module, name, part.reshape(tensor.shape))


def remove(module: Module, name: str) -> Module:
    """Make a pruned parameter an ordinary one again; its zeros are no longer enforced."""
    found = _pruned_by(module, name)
    if found is None:
        raise ValueError(
            f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
        )
    key, method = found
    method.remove(module)
    del module._forward_pre_hooks[key]
    return module


def is_pruned(module: Module) -> bool:
    """Whether a parameter of the module, or of one below it, is pruned."""
    return any(
        isinstance(hook, BasePruningMethod)
        for below in module.modules()
        for hook in below._forward_pre_hooks.values()
    )
