"""Submodules that can be imported by the names of PyTorch's files."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FunctionType, ModuleType
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


def name_functions(space: ModuleType | type) -> None:
    """Give the functions of a module or class that rows and decorators made their names in it.

    They are pickled by these names; each says the file that made it, where nothing has its name.
    """
    if isinstance(space, type):
        home, start = space.__module__, f"{space.__qualname__}."
    else:
        home, start = space.__name__, ""
    # By its public name, if it also has one of Python's, such as `__neg__`.
    for name, function in sorted(vars(space).items(), key=lambda item: item[0].startswith("_")):
        if type(function) is FunctionType:
            found: Any = sys.modules.get(function.__module__)
            for part in function.__qualname__.split("."):
                found = getattr(found, part, None)
            if found is not function:
                function.__module__, function.__qualname__ = home, start + name
