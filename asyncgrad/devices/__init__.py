"""Where arrays live and work is done. Devices know nothing of graphs."""

from asyncgrad.devices.base import Device
from asyncgrad.devices.cpu import CPU

__all__ = ["CPU", "Device"]
