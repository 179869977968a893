"""For tests of programs that use asyncgrad: a simulated accelerator, memory that is NaN."""

from asyncgrad.devices.pool import poisoned_memory
from asyncgrad.devices.simulated import Machine, Operation, SimArray, simulate
from asyncgrad.errors import RaceError

__all__ = ["Machine", "Operation", "RaceError", "SimArray", "poisoned_memory", "simulate"]
