"""PyTorch's `torch.nn.utils`."""

from asyncgrad.nn.utils import parametrizations, parametrize, prune, rnn
from asyncgrad.nn.utils.clip import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from asyncgrad.nn.utils.vectors import parameters_to_vector, vector_to_parameters
from asyncgrad.nn.utils.weight_norm_hooks import (
    remove_spectral_norm,
    remove_weight_norm,
    spectral_norm,
    weight_norm,
)
from asyncgrad.submodules import offer

__all__ = [
    "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm",
    "parameters_to_vector", "parametrizations", "parametrize", "prune", "remove_spectral_norm",
    "remove_weight_norm", "rnn", "spectral_norm", "vector_to_parameters", "weight_norm",
]  # fmt: skip

offer(
    __name__,
    "clip_grad",
    {"clip_grad_norm_": clip_grad_norm_, "clip_grad_value_": clip_grad_value_},
)
