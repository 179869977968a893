"""The memory of this process, without importing anything large."""

from __future__ import annotations

import os
import sys


def resident_bytes() -> int:
    """The memory of this process that is in RAM now; its peak where the system tells no more."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
