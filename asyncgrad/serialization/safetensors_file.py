"""Save and load safetensors files; needs the optional package `safetensors`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.creation import from_numpy
from asyncgrad.errors import class_of
from asyncgrad.ops.tensors.transfer import on_host

if TYPE_CHECKING:
    import os

    from asyncgrad.tensor import Tensor


def _library() -> Any:
    try:
        from safetensors import numpy as library
    except ImportError:
        raise ImportError(
            "safetensors files need the extra of that name: pip install 'asyncgrad[safetensors]'"
        ) from None
    return library


def save_safetensors(
    tensors: Mapping[str, Any],
    filename: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
) -> None:
    """Write named tensors to a file.

    Args:
        tensors: for example, a state dict. Tensors that share memory are written separately.
        metadata: strings to store in the file.

    Raises:
        ImportError: without the package `safetensors`.
    """
    library = _library()
    if not isinstance(tensors, Mapping):
        raise TypeError(
            f"save_safetensors: tensors have names: expected a dictionary, got "
            f"{type(tensors).__name__}"
        )
    arrays = {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, Variable):
            raise TypeError(
                f"save_safetensors: {name!r} is of type {class_of(tensor)}, and only tensors "
                f"can be saved. Put other values into metadata, as strings."
            )
        arrays[name] = np.ascontiguousarray(on_host(tensor)).reshape(tensor._metadata.shape)
    library.save_file(arrays, filename, metadata=metadata)


def load_safetensors(filename: str | os.PathLike[str], device: str = "cpu") -> dict[str, Tensor]:
    """Read the tensors in a file, by name.

    Raises:
        SafetensorError: if the file is damaged.
        TypeError: if a tensor has a dtype that asyncgrad lacks.
        ImportError: without the package `safetensors`.
    """
    library = _library()
    try:
        loaded = library.load_file(filename)
    except AttributeError as error:
        # `safetensors` looks up the dtype in NumPy by name, and NumPy lacks it.
        raise TypeError(
            f"load_safetensors: {filename} holds a dtype that tensors can't have: {error}"
        ) from error
    return {name: from_numpy(array).to(device) for name, array in loaded.items()}
