"""Each test of devices has a simulated machine of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from asyncgrad.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncgrad.testing import Machine


@pytest.fixture(autouse=True)
def machine() -> Iterator[Machine]:
    """A machine on which time passes only while somebody waits."""
    with simulate(devices=3) as machine:
        yield machine
