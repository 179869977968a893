"""Every replay starts with buffers full of NaN: no value of an earlier one can be used again."""

from __future__ import annotations

import numpy as np
import pytest

from asyncgrad.replay.program import Program


@pytest.fixture(autouse=True)
def poisoned_buffers(monkeypatch):
    """Fill the buffers of a program each time before it runs."""
    take = Program.take_memory

    def poisoned(program):
        memory = take(program)
        for buffer in memory.buffers:
            buffer.view(np.uint8)[...] = 0xFF
        return memory

    monkeypatch.setattr(Program, "take_memory", poisoned)
