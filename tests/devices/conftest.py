"""Each test of devices has a simulated machine of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cupy_stand_in import device as device
from cupy_stand_in import installed

import asyncgrad as ag
from asyncgrad.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncgrad.testing import Machine


@pytest.fixture(autouse=True)
def machine() -> Iterator[Machine]:
    """A machine on which time passes only while somebody waits."""
    with simulate(devices=3) as machine:
        yield machine


@pytest.fixture(params=["sim:1", "stand-in", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def accelerator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a device, of which another stream than the default one is the current one.

    What goes into the library's own current stream by mistake is in no order to all else then.
    """
    name = request.param
    if name == "stand-in":
        installed(monkeypatch, devices=2)
        name = "cuda:1"
    stream = ag.Stream(device=name)
    stream.wait_stream(stream.device.default_stream)
    with stream:
        yield name
