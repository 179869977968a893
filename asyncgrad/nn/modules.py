"""PyTorch's `torch.nn.modules`: all modules, also by the names of PyTorch's files.

`asyncgrad.nn.modules.linear.Linear` is `asyncgrad.nn.Linear`. A submodule may have more names than
PyTorch's file.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

from asyncgrad.nn import (
    activation,
    adaptive,
    alone,
    attention,
    cells,
    containers,
    conv,
    dropout,
    embedding,
    hooks,
    images,
    lazy,
    linear,
    loss,
    module,
    norm,
    padding,
    parameter_containers,
    pooling,
    recurrent,
    state,
    transformer,
)
from asyncgrad.submodules import offer

#: For each of PyTorch's files, the files here that have its modules.
_FILES: dict[str, tuple[ModuleType, ...]] = {
    "activation": (activation, attention),
    "adaptive": (adaptive,),
    "batchnorm": (alone, norm, lazy),
    "channelshuffle": (images,),
    "container": (containers, parameter_containers),
    "conv": (conv, lazy),
    "distance": (loss,),
    "dropout": (dropout,),
    "flatten": (linear,),
    "fold": (images,),
    "instancenorm": (norm, lazy),
    "linear": (linear, lazy),
    "loss": (loss,),
    "module": (module,),
    "normalization": (norm,),
    "padding": (padding,),
    "pixelshuffle": (images,),
    "pooling": (pooling,),
    "rnn": (cells, recurrent),
    "sparse": (embedding,),
    "transformer": (transformer,),
    "upsampling": (images,),
}
#: Other names that programs import from PyTorch's files.
_MORE: dict[str, dict[str, Any]] = {
    "module": {name: getattr(hooks, name) for name in hooks.__all__},
    "utils": {
        "consume_prefix_in_state_dict_if_present": state.consume_prefix_in_state_dict_if_present,
        "_single": partial(conv.for_each, ndim=1),
        "_pair": partial(conv.for_each, ndim=2),
        "_triple": partial(conv.for_each, ndim=3),
    },
}


def _offer(file: str) -> None:
    """Create an importable submodule for one of PyTorch's files, with its classes."""
    classes = {
        name: value
        for source in _FILES.get(file, ())
        for name, value in vars(source).items()
        if isinstance(value, type) and issubclass(value, module.Module)
    }
    globals().update({name: one for name, one in classes.items() if not name.startswith("_")})
    offer(__name__, file, classes | _MORE.get(file, {}))


for _file in (*_FILES, "utils"):
    _offer(_file)
