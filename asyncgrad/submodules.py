"""Submodules that can be imported by the names of PyTorch's files."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any


def offer(package: str, file: str, members: Mapping[str, Any]) -> ModuleType:
    """Add names to a submodule of a package, which is created if there is none."""
    path = f"{package}.{file}"
    if path not in sys.modules:
        theirs = path.replace("asyncgrad", "torch", 1)
        sys.modules[path] = ModuleType(path, f"PyTorch's `{theirs}`.")
        setattr(sys.modules[package], file, sys.modules[path])
    vars(sys.modules[path]).update(members)
    return sys.modules[path]
