"""A simulated accelerator: streams, events and their pitfalls on any machine.

`sim:0`, `sim:1` and so on are devices like CUDA's, with memory of their own. `simulate` sets how
long work takes, in which order streams are served, and what fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from asyncgrad.aliases import Value
from asyncgrad.devices import discovery
from asyncgrad.devices.simulated.array import SimArray
from asyncgrad.devices.simulated.device import SimDevice
from asyncgrad.devices.simulated.machine import Machine
from asyncgrad.devices.simulated.streams import Operation
from asyncgrad.errors import DeviceUnavailableError

__all__ = ["Machine", "Operation", "SimArray", "SimDevice", "find", "present", "simulate"]

_machine = Machine()
#: The devices requested so far, by index.
_devices: list[SimDevice] = []


def find(index: int) -> SimDevice:
    """The simulated device of an index; RuntimeError if the machine has fewer."""
    if index >= _machine.devices:
        raise DeviceUnavailableError(
            f"sim:{index}: the simulated machine has {_machine.devices} devices. Ask for more "
            f"with asyncgrad.testing.simulate(devices={index + 1})."
        )
    while len(_devices) <= index:
        _devices.append(SimDevice(len(_devices), _machine))
    return _devices[index]


def present() -> tuple[SimDevice, ...]:
    """The simulated devices requested so far."""
    return tuple(_devices[: _machine.devices])


@contextmanager
def simulate(devices: int = 8, **options: Value) -> Iterator[Machine]:
    """Simulate another machine: within the block all `sim` devices belong to it.

    Args:
        options: those of `Machine`: latency, bandwidth, duration, clock, schedule, memory and
            detect_races.

    Yields:
        The machine: `step()` does one operation, `heads()` lists those that may be next, `fail()`
        and `lose()` cause failures, `clock.now()` is its time.

    Example:
        >>> from asyncgrad.testing import simulate
        >>> with simulate(latency=1.0) as machine:
        ...     y = ag.ones(2).to("sim:0") + 1
        ...     ag.accelerator.synchronize("sim:0")
        ...     round(machine.clock.now(), 6)
        2.0
    """
    outer = _machine
    _plug(Machine(devices, **options))
    try:
        yield _machine
    finally:
        _plug(outer)


def _plug(machine: Machine) -> None:
    global _machine
    _machine = machine
    for device in _devices:
        device.plug_into(machine)
    # By its name, so that it is among the devices that are available.
    discovery.find("sim", 0)
