"""For tests of programs that use asyncgrad: a simulated accelerator."""

from asyncgrad.devices.simulated import Machine, Operation, SimArray, simulate
from asyncgrad.errors import RaceError

__all__ = ["Machine", "Operation", "RaceError", "SimArray", "simulate"]
