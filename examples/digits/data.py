"""The handwritten digits: 1,797 images of 8x8 pixels, three quarters of them for training."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FILE = Path(__file__).parents[1] / "data" / "digits.csv.gz"
GREY_LEVELS = 16


@dataclass(frozen=True)
class Digits:
    """Images are float32 (n, 64) between 0 and 1, labels int64 (n,)."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def load(seed: int = 0) -> Digits:
    """Read the digits and hold a quarter out for the test, chosen by the seed."""
    with gzip.open(FILE, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.int64)
    np.random.default_rng(seed).shuffle(table)
    images, labels = (table[:, :-1] / GREY_LEVELS).astype(np.float32), table[:, -1].copy()
    train = len(table) * 3 // 4
    return Digits(images[:train], labels[:train], images[train:], labels[train:])


def shifted(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Move half of the images by up to a pixel: few digits teach as much as many would."""
    n = len(images)
    padded = np.pad(images.reshape(n, 8, 8), ((0, 0), (1, 1), (1, 1)))
    corner = rng.integers(0, 3, (2, n))
    corner[:, rng.random(n) < 0.5] = 1  # these stay where they are
    rows, columns = corner[:, :, None] + np.arange(8)
    return padded[np.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]].reshape(n, 64)
