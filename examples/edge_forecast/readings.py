"""Four years of weather, a reading a day, and how a forecaster looks at them."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

FILE = Path(__file__).parents[1] / "data" / "seattle-weather.csv.gz"
#: The number of days that a forecast is made from, and the number of days that it is for.
PAST, AHEAD = 7, 7
#: The fields of a reading: precipitation in mm, the highest and lowest temperature in degrees
#: Celsius, and wind in m/s.
CHANNELS = 4
HIGHEST = 1
#: The numbers that a forecaster gets: the past days, and the time of the year as an angle.
FEATURES = CHANNELS * PAST + 2

_MEAN = np.array([3.0, 16.4, 8.2, 3.2], np.float32)
_SCALE = np.array([6.7, 7.3, 5.0, 1.4], np.float32)


def load() -> np.ndarray:
    """The readings from 1 January 2012, day by day: float32 (1461, CHANNELS)."""
    with gzip.open(FILE, "rt") as file:
        return np.loadtxt(
            file, delimiter=",", skiprows=1, usecols=range(1, CHANNELS + 1), dtype=np.float32
        )


def features(readings: np.ndarray, days: np.ndarray) -> np.ndarray:
    """What is known in the morning of some days: float32 (n, FEATURES).

    Args:
        readings: what has been measured so far.
        days: which readings come next, each at least `PAST`.
    """
    past = (readings[days[:, None] - np.arange(PAST, 0, -1)] - _MEAN) / _SCALE
    year = 2 * np.pi * days / 365.25
    clock = np.stack([np.sin(year), np.cos(year)], axis=1)
    return np.concatenate([past.reshape(len(days), -1), clock], axis=1, dtype=np.float32)


def targets(readings: np.ndarray, days: np.ndarray) -> np.ndarray:
    """The highest temperatures of the week from each day on: float32 (n, AHEAD), in tens."""
    return readings[days[:, None] + np.arange(AHEAD), HIGHEST] / np.float32(10)
