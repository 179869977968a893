"""Where arrays live and work is done. Devices know nothing of graphs."""

from asyncgrad.devices.base import Device, set_default_device
from asyncgrad.devices.cpu import CPU
from asyncgrad.devices.discovery import KINDS, available
from asyncgrad.devices.streams import Event, Stream, current_stream

__all__ = [
    "CPU", "KINDS", "Device", "Event", "Stream", "available", "current_stream",
    "set_default_device",
]  # fmt: skip
