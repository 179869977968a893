"""Test utilities: comparisons, random tensors, a simulated device and poisoned memory."""

from asyncgrad.devices.simulated import Machine, Operation, SimArray, simulate
from asyncgrad.errors import RaceError
from asyncgrad.remedies import remedies
from asyncgrad.testing.comparison import assert_close
from asyncgrad.testing.poison import poisoned_memory
from asyncgrad.testing.tensors import make_tensor

__all__ = [
    "Machine", "Operation", "RaceError", "SimArray", "assert_close", "make_tensor",
    "poisoned_memory", "simulate",
]  # fmt: skip

# Type checkers would take an assignment for a promise that every name is here.
globals()["__getattr__"] = remedies(__name__, {"use assert_close": "assert_allclose"})
