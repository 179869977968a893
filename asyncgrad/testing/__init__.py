"""For tests of programs that use asyncgrad: a simulated accelerator, memory that is NaN."""

from asyncgrad.devices.simulated import Machine, Operation, SimArray, simulate
from asyncgrad.errors import RaceError
from asyncgrad.testing.poison import poisoned_memory

__all__ = ["Machine", "Operation", "RaceError", "SimArray", "poisoned_memory", "simulate"]
