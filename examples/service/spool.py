"""Corrections that are still to be learnt or undone: a file each, so that no kill loses one."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from examples.service.model import DIGITS, PIXELS

if TYPE_CHECKING:
    from pathlib import Path


class Full(Exception):
    """Too many corrections wait; HTTP's 503."""


@dataclass(frozen=True)
class Correction:
    """An image, the digit that its author says it is, and the file in which both wait."""

    image: np.ndarray
    digit: int
    file: Path

    @property
    def name(self) -> str:
        """The correction's name in requests and events."""
        return self.file.stem


@dataclass(frozen=True)
class Undo:
    """The name of a correction to undo, and the file in which it waits."""

    name: str
    file: Path


class Spool:
    """A folder of corrections, in the order in which they came; all workers put theirs into it.

    Its methods block: call them with `asyncgrad.offload`.

    Args:
        folder: where they are.
        most: how many may wait.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self._folder = folder
        self._most = most
        self._order = itertools.count()
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, image: np.ndarray, digit: int) -> tuple[Correction, int]:
        """Keep a correction; returns it, and how many wait.

        Raises:
            Full: if too many do.
        """
        file, waiting = self._keep({"pixels": image.tolist(), "digit": digit})
        return Correction(image, digit, file), waiting

    def put_undo(self, name: str) -> None:
        """Add the request to undo a correction.

        Raises:
            Full: if too many wait.
        """
        self._keep({"undo": name})

    def _keep(self, facts: dict[str, Any]) -> tuple[Path, int]:
        waiting = len(self._files())
        if waiting >= self._most:
            raise Full(f"{waiting} corrections wait already; send it again later")
        name = f"{time.time_ns():020}-{os.getpid()}-{next(self._order)}"
        part = self._folder / f"{name}.part"
        with part.open("w") as file:
            json.dump(facts, file)
            file.flush()
            os.fsync(file.fileno())
        return part.rename(part.with_suffix(".json")), waiting + 1

    def first(self) -> tuple[Correction | Undo | None, int]:
        """The correction or undo that has waited longest, or None, and how many others wait.

        What can't be read is set aside, for a person to look at.
        """
        files = self._files()
        for left, file in zip(range(len(files) - 1, -1, -1), files, strict=True):
            try:
                facts = json.loads(file.read_text())
                if "undo" in facts:
                    return Undo(str(facts["undo"]), file), left
                image = np.array(facts["pixels"], np.float32).reshape(PIXELS)
                return Correction(image, int(facts["digit"]) % DIGITS, file), left
            except (ValueError, TypeError, KeyError):
                file.rename(file.with_suffix(".unreadable"))
        return None, 0

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.json"))


def lead(path: Path) -> Any | None:
    """A lock that makes this process the one that learns, until it is closed; None for others.

    The system lets go of it when the process ends, however that happens.
    """
    file = path.open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file
