"""How busy the machine is before the demo runs: no figure can be better than on an idle loop."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path

from examples.digits.ticker import ticker

#: Above this, delays say more about the machine than about this program.
BUSY_LAG_MS, BUSY_CORES = 5.0, 0.3


@dataclass(frozen=True)
class Noise:
    """What a ticker on an empty event loop saw, and how many cores others kept busy meanwhile.

    Attributes:
        lag_p99_ms: of the ticker's delays, 99 of 100 at most.
        lag_max_ms: the worst of them.
        other_cores: cores that other programs used; None where the system does not say.
    """

    lag_p99_ms: float
    lag_max_ms: float
    other_cores: float | None

    @property
    def is_busy(self) -> bool:
        """Whether promises of time can't be judged here."""
        return self.lag_max_ms > BUSY_LAG_MS or (self.other_cores or 0.0) > BUSY_CORES

    def worse(self, other: Noise) -> Noise:
        """The worse of two measurements, figure by figure."""
        cores = [one for one in (self.other_cores, other.other_cores) if one is not None]
        return Noise(
            max(self.lag_p99_ms, other.lag_p99_ms),
            max(self.lag_max_ms, other.lag_max_ms),
            max(cores, default=None),
        )

    def __str__(self) -> str:
        said = f"a ticker alone was late by {self.lag_p99_ms:.2f} ms (p99), "
        said += f"{self.lag_max_ms:.2f} ms at worst"
        if self.other_cores is not None:
            said += f"; other programs used {self.other_cores:.1f} of {os.cpu_count()} cores"
        return said


def listen(seconds: float = 1.5) -> Noise:
    """Measure the machine while this program does nothing else."""

    async def idle() -> list[float]:
        async with ticker() as delays:
            await asyncio.sleep(seconds)
        return sorted(delays)

    used, started, mine = _used_seconds(), time.perf_counter(), time.process_time()
    delays = asyncio.run(idle())
    other = None
    if used is not None:
        others = (_used_seconds() or used) - used - (time.process_time() - mine)
        other = max(0.0, others / (time.perf_counter() - started))
    # While others keep it from running, a program may see a single tick.
    p99 = delays[99 * (len(delays) - 1) // 100]
    return Noise(p99 * 1e3, delays[-1] * 1e3, other)


def _used_seconds() -> float | None:
    """Seconds that all cores have computed since the system started (Linux)."""
    try:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    except OSError:
        return None
    user, nice, system, _, _, interrupts, soft, stolen = map(int, fields[:8])
    return (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")
