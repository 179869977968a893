"""Every replay starts with buffers full of NaN; and a device for tests of CUDA graphs."""

import numpy as np
import pytest
from cupy_stand_in import device as device

from asyncgrad.replay.program import Program


@pytest.fixture(autouse=True)
def poisoned_buffers(monkeypatch):
    """Fill a program's buffers before each run: no value of an earlier one can be used again."""
    take = Program.take_memory

    def poisoned(program):
        memory = take(program)
        for buffer in memory.buffers:
            buffer.view(np.uint8)[...] = 0xFF
        return memory

    monkeypatch.setattr(Program, "take_memory", poisoned)
