"""Write tests/public_names.txt: every public name with the arguments that it takes.

    python tools/public_names.py            writes the file
    python tools/public_names.py --check    says whether it is up to date

A change of this file is a change that users can notice, and belongs into the changelog.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import asyncgrad

FILE = Path(__file__).parent.parent / "tests" / "public_names.txt"
#: The modules of these packages are internal; users reach their values by other names.
_INNER = {"collector", "core", "ops", "records", "scheduler"}


def every_module() -> list[ModuleType]:
    """The modules of the package, imported."""
    walked = pkgutil.walk_packages(asyncgrad.__path__, "asyncgrad.")
    return [importlib.import_module(info.name) for info in walked]


def modules() -> list[ModuleType]:
    """The modules with public names, without those whose package has the same names."""
    found = [asyncgrad]
    for module in every_module():
        if module.__name__.split(".")[1] in _INNER:
            continue
        package = importlib.import_module(module.__name__.rpartition(".")[0])
        names = set(getattr(module, "__all__", ()))
        if names - set(getattr(package, "__all__", ())):
            found.append(module)
    return found


def arguments(function: Any) -> str:
    """The arguments of a function without their types; nothing where it has no signature."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    plain = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
    ]
    text = str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    return re.sub(r"<([\w.]+ )?([\w.]+).* at 0x\w+>", r"<\2>", text)


def members(kind: type, public: set[Any]) -> list[str]:
    """The public attributes of a class, but for those of its bases that are public themselves."""
    documented = {
        base for known in kind.__mro__ if known is not kind and known in public
        for base in known.__mro__
    }  # fmt: skip
    definers: dict[str, type] = {}
    for base in kind.__mro__:
        for name in vars(base):
            definers.setdefault(name, base)
    return sorted(
        name
        for name, base in definers.items()
        if base not in documented
        and base.__module__.startswith("asyncgrad")
        and not name.startswith("_")
    )


def lines() -> list[str]:
    """A line for each name."""
    written = []
    public = {
        value
        for module in modules()
        for value in [getattr(module, name) for name in module.__all__]
        if isinstance(value, type)
    }
    for module in modules():
        for name in sorted(module.__all__):
            value = getattr(module, name)
            path = f"{module.__name__}.{name}"
            if isinstance(value, ModuleType):
                written.append(path)
            elif isinstance(value, type):
                # The arguments of an enumeration are Python's, and differ between its versions.
                called = "" if issubclass(value, Enum) else arguments(value)
                written.append(f"{path}{called}")
                for member in members(value, public):
                    found = inspect.getattr_static(value, member)
                    found = getattr(found, "__func__", found)
                    written.append(
                        f"{path}.{member}{arguments(found) if inspect.isroutine(found) else ''}"
                    )
            else:
                written.append(f"{path}{arguments(value) if callable(value) else ''}")
    return written


def main() -> int:
    """Write the file, or compare it."""
    text = "\n".join(lines()) + "\n"
    if "--check" in sys.argv[1:]:
        current = FILE.read_text(encoding="utf-8") == text
        print("up to date" if current else f"{FILE} is out of date")
        return 0 if current else 1
    FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
