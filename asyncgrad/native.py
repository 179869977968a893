"""Functions of PyTorch's top namespace that are variants of functions found elsewhere.

These are the functions that `nn.functional` wraps, with the argument order of PyTorch's kernels,
and in-place methods as functions.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from asyncgrad.nn import functional as F
from asyncgrad.ops.api.dropout import dropout2d
from asyncgrad.ops.promotion import as_tensor_operand
from asyncgrad.tensor import Tensor
from asyncgrad.types import Ints, OutputSize

__all__ = [
    "adaptive_max_pool1d", "alpha_dropout", "alpha_dropout_", "batch_norm",
    "binary_cross_entropy_with_logits", "cosine_embedding_loss", "ctc_loss", "dropout", "dropout_",
    "embedding", "feature_alpha_dropout", "feature_alpha_dropout_", "feature_dropout",
    "feature_dropout_", "group_norm", "hinge_embedding_loss", "instance_norm", "kl_div",
    "layer_norm", "margin_ranking_loss", "poisson_nll_loss", "triplet_margin_loss",
]  # fmt: skip
#: Functions that are the same as in `nn.functional`.
_SAME = (
    "bilinear", "celu", "celu_", "channel_shuffle", "pairwise_distance", "pixel_shuffle",
    "pixel_unshuffle", "rrelu", "rrelu_", "selu", "selu_", "threshold", "threshold_",
)  # fmt: skip
globals().update({_name: getattr(F, _name) for _name in _SAME})
__all__ += _SAME

# -- dropout with an explicit `train` flag --------------------------------------------------------


def _dropout(function: Callable[..., Tensor], name: str) -> tuple[Callable[..., Any], ...]:
    """A kind of dropout, and its in-place form."""

    def checked(input: Tensor, p: float, train: bool, inplace: bool) -> Tensor:
        if not 0 <= p <= 1:
            raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")
        return function(input, p, train, inplace)

    def dropped(input: Tensor, p: float, train: bool) -> Tensor:
        return checked(input, p, train, False)

    def changed(input: Tensor, p: float, train: bool) -> Tensor:
        return checked(input, p, train, True)

    dropped.__name__ = dropped.__qualname__ = name
    changed.__name__ = changed.__qualname__ = f"{name}_"
    dropped.__doc__ = f"`nn.functional.{function.__name__}`, which is told whether it trains."
    changed.__doc__ = f"`{name}`, in place."
    return dropped, changed


dropout, dropout_ = _dropout(F.dropout, "dropout")
alpha_dropout, alpha_dropout_ = _dropout(F.alpha_dropout, "alpha_dropout")
feature_alpha_dropout, feature_alpha_dropout_ = _dropout(
    F.feature_alpha_dropout, "feature_alpha_dropout"
)
feature_dropout, feature_dropout_ = _dropout(dropout2d, "feature_dropout")


# -- other argument orders ------------------------------------------------------------------------


def batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, training: bool, momentum: float, eps: float, cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    """`nn.functional.batch_norm` with another argument order and without defaults."""
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, use_input_stats: bool, momentum: float, eps: float,
    cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    """`nn.functional.instance_norm` with another argument order and without defaults."""
    return F.instance_norm(
        input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )


def layer_norm(
    input: Tensor, normalized_shape: Ints, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5, cudnn_enable: bool = True,
) -> Tensor:  # fmt: skip
    """`nn.functional.layer_norm`; `cudnn_enable` has no effect."""
    return F.layer_norm(input, normalized_shape, weight, bias, eps)


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5, cudnn_enabled: bool = True,
) -> Tensor:  # fmt: skip
    """`nn.functional.group_norm`; `cudnn_enabled` has no effect."""
    return F.group_norm(input, num_groups, weight, bias, eps)


def adaptive_max_pool1d(input: Tensor, output_size: OutputSize) -> tuple[Tensor, Tensor]:
    """`nn.functional.adaptive_max_pool1d` that returns the indices, too."""
    return F.adaptive_max_pool1d(input, output_size, return_indices=True)


def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:  # fmt: skip
    """`nn.functional.embedding` with the table first; a negative `padding_idx` means none."""
    padding = None if padding_idx < 0 else padding_idx
    return F.embedding(
        indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse
    )


# -- losses whose `reduction` is a number ---------------------------------------------------------

_REDUCTIONS = ("none", "mean", "sum")
#: Deprecated arguments of the losses in `nn.functional`, left out here.
_GONE = {"size_average", "reduce"}


def _loss(function: Callable[..., Any], *last: str) -> Callable[..., Any]:
    """A loss with numbers as `reduction`; the arguments in `last` come after the others."""
    known = inspect.signature(function).parameters
    order = [name for name in known if name not in _GONE and name not in last]
    parameters = [known[name] for name in (*order, *last)]
    place = order.index("reduction") if "reduction" in order else len(parameters) - 1
    parameters[place] = parameters[place].replace(default=0, annotation="int")
    signature = inspect.Signature(parameters, return_annotation="Tensor")

    @functools.wraps(function)
    def loss(*args: object, **kwargs: object) -> Any:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{function.__name__}(): {error}") from None
        reduction = given.get("reduction", 0)
        if reduction.__class__ is not int or reduction not in range(3):
            raise TypeError(
                f"{function.__name__}(): argument 'reduction' must be int: 0 for none, 1 for mean, "
                f"2 for sum, not {reduction!r}. nn.functional.{function.__name__} takes words."
            )
        return function(**{**given, "reduction": _REDUCTIONS[reduction]})

    loss.__signature__ = signature  # type: ignore[attr-defined]
    loss.__doc__ = f"`nn.functional.{function.__name__}` with 0, 1 or 2 for none, mean or sum."
    return loss


binary_cross_entropy_with_logits = _loss(
    F.binary_cross_entropy_with_logits, "pos_weight", "reduction"
)
cosine_embedding_loss = _loss(F.cosine_embedding_loss)
ctc_loss = _loss(F.ctc_loss)
hinge_embedding_loss = _loss(F.hinge_embedding_loss)
kl_div = _loss(F.kl_div)
margin_ranking_loss = _loss(F.margin_ranking_loss)
poisson_nll_loss = _loss(F.poisson_nll_loss)
triplet_margin_loss = _loss(F.triplet_margin_loss)


# -- in place -------------------------------------------------------------------------------------


def _changing(name: str) -> Callable[..., Any]:
    method = getattr(Tensor, name)

    @functools.wraps(method)
    def changing(input: Tensor, *args: object, **kwargs: object) -> Any:
        return method(as_tensor_operand(input, name, 1), *args, **kwargs)

    return changing


#: The in-place methods of `Tensor`, which come from the table.
_NAMES = [name for name in vars(Tensor) if name.endswith("_") and name[0] != "_"]
globals().update({name: _changing(name) for name in _NAMES})
__all__ += _NAMES
