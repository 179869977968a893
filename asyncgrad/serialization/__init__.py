"""Save and load tensors in PyTorch's `.pt` format and in safetensors files.

No file can run code here. `.pt` files hold pickles; a reader of our own interprets only the few
operations that build tensors, numbers, strings and plain containers, and refuses the rest.

Reading and writing block: on an event loop, `await asyncgrad.offload(load, path)`.
"""

from asyncgrad.serialization.archive import load, save
from asyncgrad.serialization.safetensors_file import load_safetensors, save_safetensors

__all__ = ["load", "load_safetensors", "save", "save_safetensors"]
