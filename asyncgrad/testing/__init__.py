"""For tests of programs that use asyncgrad: comparisons, tensors, and a simulated accelerator."""

from asyncgrad.devices.simulated import Machine, Operation, SimArray, simulate
from asyncgrad.errors import RaceError
from asyncgrad.testing.comparison import assert_close
from asyncgrad.testing.tensors import make_tensor

__all__ = [
    "Machine", "Operation", "RaceError", "SimArray", "assert_close", "make_tensor", "simulate",
]  # fmt: skip
