"""Devices: where arrays live and work is done. They know nothing of graphs."""

from asyncgrad.devices.base import Device, set_default_device
from asyncgrad.devices.cpu import CPU
from asyncgrad.devices.discovery import available, kinds, register
from asyncgrad.devices.streams import Event, Stream, current_stream

__all__ = [
    "CPU", "Device", "Event", "Stream", "available", "current_stream", "kinds", "register",
    "set_default_device",
]  # fmt: skip
