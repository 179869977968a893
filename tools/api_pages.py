"""The pages of the API reference: every public name with its signature, docstring and example.

    python tools/api_pages.py FOLDER          writes the pages into a folder
    python tools/api_pages.py --examples      says which names have no example

The documentation's site makes them anew each time it is built (`tools/site_hooks.py`). What is
public is said by `tools/public_names.py`; an example comes from the docstring or, where that has
none, from a file of `tools/examples`. A function that works in place has the example of the other
form, if it prints the same.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import textwrap
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

_TOOLS = Path(__file__).parent
sys.path.insert(0, str(_TOOLS))

# Python finds the modules of `tools` only now; the package is imported beside them.
import public_names  # noqa: E402
from api_docstrings import (  # noqa: E402
    anchor_of,
    doc_of,
    documented,
    example_block,
    own_example,
    signature,
    text_of,
)

import asyncgrad as ag  # noqa: E402
from asyncgrad.ops.api import CHAPTERS  # noqa: E402
from asyncgrad.scheduler import BackwardFuture, Engine  # noqa: E402
from asyncgrad.scheduler.engine import FOR_USERS  # noqa: E402
from asyncgrad.scheduler.statistics import EngineStatistics  # noqa: E402

EXAMPLES = _TOOLS / "examples"
#: The pages: a file's name, a title, and the modules whose public names stand there. A name of the
#: package itself stands on the page of the module that defines its value.
PAGES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("tensor", "Tensor", ("tensor", "core.size")),
    ("passes", "Passes on the event loop", (
        "scheduler", "autograd.passes", "autograd.request", "sync", "tracing",
    )),
    ("serving", "Serving", ("serving",)),
    ("compile", "Steps that repeat", ("replay",)),
    ("distributed", "Several machines", ("distributed",)),
    ("nn", "Layers", ("nn",)),
    ("nn-functional", "Functions of neural networks", (
        "nn.functional", "native", "ops.api.activation",
        "ops.api.attention", "ops.api.convolution", "ops.api.ctc", "ops.api.dropout",
        "ops.api.embedding_bag", "ops.api.grid_sample", "ops.api.interpolate", "ops.api.loss",
        "ops.api.margin_loss", "ops.api.normalisation",
        "ops.api.patches", "ops.api.pooling",
    )),
    ("nn-utils", "Tools for layers", ("nn.hooks", "nn.init", "nn.utils")),
    ("optim", "Optimizers and schedulers", ("optim",)),
    ("data", "Data sets and loaders", ("utils.data",)),
    ("saving", "Saving and loading", ("serialization",)),
    ("autograd", "Gradients and graphs", ("autograd", "utils.checkpoint")),
    ("func", "Transforms", ("func",)),
    ("creation", "Making tensors", ("creation", "ops.api.creation", "ops.api.data")),
    ("random", "Random numbers", ("random", "ops.api.random", "ops.tensors.rng")),
    ("dtypes", "Dtypes and settings", (
        "ops.api.conversion", "ops.api.dtypes", "ops.dtype", "ops.dtype_device", "ops.promotion",
        "ops.tensors.printing", "settings", "tensor_types",
    )),
    ("elementwise", "Elementwise functions", (
        "ops.api.elementwise", "ops.api.transcendental", "ops.elementwise_dispatch",
    )),
    ("comparison", "Comparisons and counts", ("ops.api.comparison",)),
    ("complex", "Complex numbers", ("ops.api.complex_parts",)),
    ("reductions", "Reductions", ("ops.api.reduction",)),
    ("sorting", "Sorting and quantiles", ("ops.api.sort",)),
    ("shapes", "Shapes and axes", (
        "ops.api.rearrange", "ops.api.shape", "ops.api.strided",
    )),
    ("indexing", "Indexing and scattering", ("ops.api.index", "ops.api.scatter")),
    ("linalg", "Linear algebra", (
        "linalg", "ops.api.linalg", "ops.api.linalg_legacy", "ops.api.linalg_norm",
        "ops.api.matrices", "ops.api.triangular",
    )),
    ("statistics", "Statistics and distances", ("ops.api.distances", "ops.api.grids")),
    ("combined", "Combined functions", ("ops.api.composite",)),
    ("special", "Special functions", ("ops.api.special", "special")),
    ("fft", "Fourier transforms", ("fft", "ops.api.fourier")),
    ("signals", "Signals", ("ops.api.signals",)),
    ("in-place", "Functions that work in place", ("ops.tensors.in_place",)),
    ("distributions", "Distributions", ("distributions",)),
    ("devices", "Devices", (
        "accelerator", "backends", "cpu", "cuda", "devices", "ops.api.dlpack", "ops.api.transfer",
    )),
    ("amp", "Mixed precision", ("amp",)),
    ("extend", "Functions of your own", ("extend",)),
    ("testing", "Testing", ("testing",)),
    ("errors", "Errors", ("errors",)),
)  # fmt: skip
#: The pages of public names whose value does not tell its module.
_PLACES = {
    "ag.get_default_device": "devices", "ag.get_device_module": "devices", "ag.e": "dtypes",
    "ag.inf": "dtypes", "ag.nan": "dtypes", "ag.pi": "dtypes", "ag.newaxis": "dtypes",
}  # fmt: skip
_SLUGS = {module: slug for slug, _, modules in PAGES for module in modules}
#: Classes whose instances users get from functions, with the methods that users call.
_MADE_BY_OTHERS: dict[type, tuple[str, ...]] = {
    Engine: FOR_USERS,
    BackwardFuture: (
        "add_done_callback", "cancel", "cancelled", "committed", "done", "exception", "result",
    ),
}  # fmt: skip
#: Classes whose methods and attributes all have examples, too.
_WITH_MEMBERS = (ag.Tensor, ag.nn.Module, ag.optim.Optimizer, ag.distributions.Distribution)


@dataclass
class Entry:
    """A public value, and the names by which users reach it."""

    value: Any
    names: list[str] = field(default_factory=list)


# -- what stands where ----------------------------------------------------------------------------


def _page_of(module: str) -> str | None:
    """The page of a module, or of the package it is in."""
    inner = module.removeprefix("asyncgrad").lstrip(".")
    while inner:
        if inner in _SLUGS:
            return _SLUGS[inner]
        inner = inner.rpartition(".")[0]
    return None


def _short(path: str) -> str:
    """A full name as users write it, beginning with `ag`."""
    return re.sub(r"^asyncgrad\b", "ag", path)


def entries() -> dict[str, list[Entry]]:
    """The public values of each page, by the page's file name."""
    found: dict[Any, Entry] = {}
    pages: dict[str, list[Entry]] = {slug: [] for slug, _, _ in PAGES}
    modules = public_names.modules()
    public = [(module.__name__, name, getattr(module, name)) for module in modules
              for name in sorted(module.__all__) if hasattr(module, name)]  # fmt: skip
    public += [("asyncgrad.errors", name, value) for name, value in vars(ag.errors).items()
               if isinstance(value, type) and issubclass(value, Exception)]  # fmt: skip
    chapters = {id(vars(chapter)[name]): chapter.__name__ for chapter in CHAPTERS
                for name in chapter.__all__}  # fmt: skip
    public += [("asyncgrad.scheduler", kind.__name__, kind) for kind in (Engine, EngineStatistics)]
    for module, name, value in public:
        path = _short(f"{module}.{name}")
        if isinstance(value, ModuleType):
            continue
        # Constants that are equal remain entries of their own.
        key = id(value) if callable(value) else path
        if key in found:
            if path not in found[key].names:
                found[key].names.append(path)
            continue
        found[key] = Entry(value, [path])
        slug = _PLACES.get(path)
        if slug is None:
            defined = chapters.get(id(value)) or file_of(value)
            slug = _page_of(module) or _page_of(defined)
        if slug is None:
            raise LookupError(f"no page for {path}, which is defined in {value.__module__}")
        pages[slug].append(found[key])
    return pages


def file_of(value: Any) -> str:
    """The module whose code a function is, which is not always where it is public."""
    code = getattr(inspect.unwrap(value), "__globals__", {})
    return str(code.get("__name__") or getattr(value, "__module__", None) or type(value).__module__)


@functools.cache
def _public_types() -> set[type]:
    return {entry.value for page in entries().values() for entry in page
            if isinstance(entry.value, type)}  # fmt: skip


# -- examples --------------------------------------------------------------------------------------


def read_examples() -> dict[str, str]:
    """The examples in files beside the docstrings, by name.

    Of several names in a heading, the first has the example and the others have its name.
    """
    found: dict[str, str] = {}
    for file in sorted(EXAMPLES.glob("*.txt")):
        for block in re.split(r"^## ", file.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            heading, _, code = block.partition("\n")
            first, *others = heading.split()
            if twice := found.keys() & {first, *others}:
                raise ValueError(f"{file}: a second example of {twice}")
            found |= {first: code.strip("\n")} | dict.fromkeys(others, first)
    return found


def examples() -> dict[str, str]:
    """The example of each value that can be called, by its first name, and those of members."""
    beside = read_examples()
    public = [entry for page in entries().values() for entry in page if callable(entry.value)]
    named = {name: entry for entry in public for name in entry.names}
    found = {}
    for entry in public:
        for name, value in ((entry.names[0], entry.value), *members_of(entry)):
            names = entry.names if value is entry.value else [name]
            given = (beside[name] for name in names if name in beside)
            example = own_example(value) or next(given, "")
            if example or value is entry.value or entry.value in _WITH_MEMBERS:
                found[name] = example
    for first in [name for name, example in found.items() if not example and name in named]:
        for name in named[first].names:
            base = named.get(name.removesuffix("_"))
            if base and base is not named[first]:
                called = "|".join(map(re.escape, base.names))
                found[first] = re.sub(rf"\b({called})\(", f"{name}(", found[base.names[0]])
                break
    return found


# -- the pages ------------------------------------------------------------------------------------


def _heading(entry: Entry) -> str:
    return f"## `{entry.names[0]}`" + f" {{ #{anchor_of(entry.names[0])} }}"


def _one(entry: Entry, examples: dict[str, str]) -> list[str]:
    """The lines of a page about one value."""
    name, *others = entry.names
    value = entry.value
    lines = [_heading(entry), ""]
    if not callable(value):
        return [*lines, f"A constant: `{value!r}`.", ""]
    if value not in _MADE_BY_OTHERS and not (isinstance(value, type) and issubclass(value, Enum)):
        lines += ["```python", signature(name, value), "```", ""]
    if others:
        lines += ["Also " + ", ".join(f"`{other}`" for other in others) + ".", ""]
    lines += documented(value, examples[name])
    return lines + _members(entry, examples)


def _member(kind: type, name: str) -> Any:
    """A method, property or other attribute."""
    found = inspect.getattr_static(kind, name)
    return getattr(found, "__func__", found)


def _function_of(kind: type, name: str) -> str | None:
    """The function that a tensor's method is, if there is one; for `x.abs_()` it may be `abs`."""
    if kind is not ag.Tensor or not inspect.isroutine(_member(kind, name)):
        return None
    names = (name, name.rstrip("_"))
    return next((found for found in names if callable(getattr(ag, found, None))), None)


def members_of(entry: Entry) -> list[tuple[str, Any]]:
    """The members of a class by full name, without methods that are also functions."""
    kind = entry.value
    if not isinstance(kind, type):
        return []
    names = _MADE_BY_OTHERS.get(kind) or public_names.members(kind, _public_types())
    return [(f"{entry.names[0]}.{name}", _member(kind, name))
            for name in names if not _function_of(kind, name)]  # fmt: skip


def _members(entry: Entry, examples: dict[str, str]) -> list[str]:
    """The methods and attributes of a class: the first paragraphs of docstrings, and examples."""
    lines = []
    kind = entry.value
    # The signature of the constructor has shown these.
    fields = getattr(kind, "__dataclass_fields__", {})
    for path, found in members_of(entry):
        name = path.rpartition(".")[2]
        called = name
        if inspect.isroutine(found):
            static = isinstance(inspect.getattr_static(kind, name), staticmethod)
            called = signature(name, found, method=not static)
            called = re.sub(r"\s+", " ", called).replace("( ", "(").replace(", )", ")")
        elif not isinstance(found, property) and name in fields:
            continue
        said = text_of(_first(doc_of(found)))
        example = examples.get(path)
        anchor = f"{{ #{anchor_of(path)} }}" if example else ""
        lines.append(f"- `{called}`{anchor}" + (f": {said}" if said else ""))
        if example:
            lines += ["", textwrap.indent("\n".join(example_block(example)), "    ")]
    return ["**Methods and attributes**", "", *lines, ""] if lines else []


def _methods_that_are_functions(pages: dict[str, list[Entry]]) -> list[str]:
    """Links from the methods of tensors to the functions that they are."""
    places = {
        name: f"{slug}.md#{anchor_of(entry.names[0])}"
        for slug, found in pages.items() for entry in found for name in entry.names
    }  # fmt: skip
    names = public_names.members(ag.Tensor, _public_types())
    links = (f"[`{name}`]({places[f'ag.{function}']})"
             for name in names if (function := _function_of(ag.Tensor, name)))  # fmt: skip
    return [
        "**Methods that are functions, too**: `x.abs()` is `ag.abs(x)`, and `x.abs_()` writes "
        "the result into `x`.", "", ", ".join(links) + ".", "",
    ]  # fmt: skip


def _first(doc: str) -> str:
    """The first paragraph, on one line."""
    return re.sub(r"\s+", " ", doc.partition("\n\n")[0]).strip()


def pages() -> dict[str, str]:
    """The pages as Markdown, by the names of their files, and an index of all names."""
    shown = examples()
    found = entries()
    written = {}
    for slug, title, _ in PAGES:
        lines = [f"# {title}", ""]
        for entry in found[slug]:
            lines += _one(entry, shown)
            if entry.value is ag.Tensor:
                lines += _methods_that_are_functions(found)
        written[f"{slug}.md"] = "\n".join(lines)
    written["index.md"] = _index(found)
    return written


def _index(found: dict[str, list[Entry]]) -> str:
    lines = [
        "# API reference", "",
        "Every public name with its signature, what it does and an example. `ag` is "
        "`asyncgrad`. The examples begin with `import asyncgrad as ag`; all of them are run by the "
        "tests. What the gradient of each function is made of, and how it differs from PyTorch, "
        "is in [functions and their derivatives](../reference.md).", "",
    ]  # fmt: skip
    for slug, title, _ in PAGES:
        names = [entry.names[0] for entry in found[slug]]
        links = ", ".join(f"[`{name}`]({slug}.md#{anchor_of(name)})" for name in names)
        lines += [f"## [{title}]({slug}.md)", "", links, ""]
    return "\n".join(lines)


def lacking() -> list[str]:
    """The names that have no example."""
    return [name for name, example in examples().items() if not example]


def main(arguments: list[str]) -> int:
    """Write the pages, or say which examples are missing."""
    if arguments == ["--examples"]:
        print(f"{len(examples())} names; without an example:", *lacking())
        return 0
    (folder,) = map(Path, arguments)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
