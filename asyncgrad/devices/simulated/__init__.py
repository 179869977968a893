"""A simulated accelerator: streams, events and their traps on any machine.

`sim:0`, `sim:1` and so on are devices like CUDA's, with memory of their own. `simulate` says what
they are like: how long work takes, in which order streams are served, what fails.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from asyncgrad.devices.simulated.array import SimArray
from asyncgrad.devices.simulated.device import SimDevice
from asyncgrad.devices.simulated.machine import Machine, Operation
from asyncgrad.errors import DeviceUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Machine", "Operation", "SimArray", "SimDevice", "find", "present", "simulate"]

_machine = Machine()
#: The devices that have been asked for, in order.
_devices: list[SimDevice] = []


def find(index: int) -> SimDevice:
    """A simulated device.

    Raises:
        RuntimeError: if the machine has fewer.
    """
    if index >= _machine.devices:
        raise DeviceUnavailableError(
            f"sim:{index}: the simulated machine has {_machine.devices} devices. Ask for more "
            f"with asyncgrad.testing.simulate(devices={index + 1})."
        )
    while len(_devices) <= index:
        _devices.append(SimDevice(len(_devices), _machine))
    return _devices[index]


def present() -> tuple[SimDevice, ...]:
    """The devices that have been asked for."""
    return tuple(_devices[: _machine.devices])


@contextmanager
def simulate(devices: int = 8, **options: Any) -> Iterator[Machine]:
    """Simulate another machine: all `sim` devices are its places inside of the block.

    Args:
        devices: how many there are.
        options: those of `Machine`: latency, bandwidth, duration, clock, schedule, memory and
            detect_races.

    Yields:
        The machine: `step()` does one operation, `heads()` are those that may go next, `fail()`
        and `lose()` make things go wrong, `clock.now()` is its time.

    Example:
        >>> import asyncgrad as ag
        >>> from asyncgrad.testing import simulate
        >>> with simulate(latency=1.0) as machine:
        ...     y = ag.ones(2).to("sim:0") + 1
        ...     ag.accelerator.synchronize("sim:0")
        ...     machine.clock.now()
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
    find(0)
