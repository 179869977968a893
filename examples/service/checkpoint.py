"""Weights on disk: the file is complete even if the process is killed while it writes."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from asyncgrad.serialization import load_safetensors, save_safetensors
from examples.service.model import Published, facts_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import asyncgrad as ag


def save(published: Published, path: Path) -> None:
    """Write weights so that the file is, at any moment, the old or the new one in full.

    It blocks: call it with `asyncgrad.offload`.
    """
    state = published.model.state_dict()
    replace(path, lambda part: save_safetensors(state, part, published.facts))


def replace(path: Path, write: Callable[[Path], object]) -> None:
    """Replace a file by one that `write` writes to the path that it is given."""
    # Remove what a killed writer has left; there is only one writer at a time.
    for left in path.parent.glob(f"{path.name}.*.part"):
        shutil.rmtree(left)
    # In a directory of its own, because `write` may put other files beside the one it is given.
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.mkdir()
    try:
        whole = part / path.name
        write(whole)
        with whole.open("rb") as file:
            os.fsync(file.fileno())
        whole.replace(path)
    finally:
        shutil.rmtree(part)
    # The renaming is on disk only when its directory is.
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def load(path: Path, model: ag.nn.Sequential) -> Published | None:
    """The weights in a file, put into the model, too; None if there is no file."""
    if not path.exists():
        return None
    model.load_state_dict(load_safetensors(path))
    return Published.of(model, *fields_of(path))


def fields_of(path: Path) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """The step of the weights in a file, and the names of what they have learnt and undone."""
    facts = facts_of(path)
    learnt, undone = (tuple(facts.get(name, "").split()) for name in ("learnt", "undone"))
    return int(facts.get("step", "0")), learnt, undone
