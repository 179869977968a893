"""Functions on tensors and their derivatives: a flat table that knows no graph task and no loop."""

from asyncgrad.devices import CPU
from asyncgrad.ops.registry import add_device

add_device(CPU)
