"""What is held between the calls of a compiled function."""

import asyncgrad as ag
from asyncgrad.devices.pool import POOL


def test_a_recording_leaves_no_memory_in_the_pool():
    x = ag.ones(1 << 17)

    @ag.compile
    def chain(x):
        for _ in range(20):
            x = ag.sin(x) + 1
        return x.sum()

    POOL.shrink(0)
    chain(x)
    assert POOL.unused <= 1 << 20
    assert chain(x).item() == chain.__compiled__(x).item()
    assert "replayed 1 times" in chain.explain()
