"""Write docs/reference.md: every function with what its derivative is made of.

    python tools/make_reference.py            writes the page
    python tools/make_reference.py --check    says whether it is up to date

What a function is made of is read from its code: the entries of the table that it, or what it
calls, asks the recorded namespace for.
"""

from __future__ import annotations

import dis
import functools
import inspect
import sys
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import asyncgrad as ag
from asyncgrad.ops import registry
from asyncgrad.ops.api import CHAPTERS
from asyncgrad.ops.namespace import RECORDED
from asyncgrad.ops.op import Op, Part, Refused

PAGE = Path(__file__).parent.parent / "docs" / "reference.md"
HEAD = """# Reference: functions and their derivatives

`tools/make_reference.py` writes this page from the table of derivatives. Signatures, arguments and
examples are in the [API reference](api/index.md), which the documentation's site has (`make docs`).

- **Derivative** says where the gradient comes from. *rule*: the function has a rule of its own in
  the table. *of ...*: it is composed of these entries. *none*: the result has no gradient.
- **Modes**: `b` backward, `bb` double backward of any order, `f` forward mode.
- **Forms**: `ag` is the function `asyncgrad.name`, `F` that of `asyncgrad.nn.functional`, `linalg`
  that of `asyncgrad.linalg`, `special` that of `asyncgrad.special`, `fft` that of `asyncgrad.fft`;
  `m` is the method of `Tensor`, and `_` the method that works in place.

All functions have PyTorch's names, arguments, results, dtypes and classes of errors. At kinks, and
for complex numbers, their gradients are PyTorch's. Three things hold for every function:

- A memory format changes nothing.
- float16 and bfloat16 are computed as far as NumPy computes with them.
- NumPy's names `axis` and `keepdims` are accepted for `dim` and `keepdim`.
"""
#: The differences from PyTorch, by function.
DIFFERENCES = {
    "as_strided": "a copy where there are no strides: on devices",
    "as_strided_": "refused while there are views of the tensor",
    "as_strided_scatter": "PyTorch's gradient by `input` is that of what is overwritten",
    "argsort": "equal elements keep their order",
    "bfloat16": "needs ml_dtypes",
    **dict.fromkeys(("igamma", "igammac", "gammainc", "gammaincc"), "needs SciPy"),
    **{
        name: "needs SciPy; has derivatives, in PyTorch none"
        for name in ag.special.__all__
        if "bessel" in name and "_i" not in name
    },
    **dict.fromkeys(("pca_lowrank", "svd_lowrank"), "exact; in PyTorch from random vectors"),
    "gumbel_softmax": "other random numbers",
    "rrelu": "other random numbers",
    "rrelu_": "other random numbers",
    "cdist": "has second derivatives and tangents",
    "pdist": "has second derivatives and tangents",
    "flip": "one axis may be a number",
    "gather": "gradients are dense, also with `sparse_grad`",
    "embedding": "with `sparse`, gradients are row-sparse on the CPU and dense on other devices",
    "sort": "always stable",
    "topk": "equal elements keep their order",
    "squeeze_": "refused while there are views of the tensor",
    "swapaxes_": "refused while there are views of the tensor",
    "swapdims_": "refused while there are views of the tensor",
    "t_": "refused while there are views of the tensor",
    "transpose_": "refused while there are views of the tensor",
    "unsqueeze_": "refused while there are views of the tensor",
}
#: The entries of functions that look them up by a name that they compute.
NAMED: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in ("amax", "amin", "sort", "topk", "tril", "triu", "to")},
    **{name: (name, f"{name}_along", f"{name}imum") for name in ("max", "min")},
    **{name: (name, f"{name}_along") for name in ("median", "nanmedian")},
    "kthvalue": ("kthvalue",),
    "mode": ("mode",),
    "msort": ("sort",),
    "aminmax": ("amax", "amin"),
    **dict.fromkeys(
        (
            "chunk",
            "split",
            "split_with_sizes",
            "unsafe_chunk",
            "unsafe_split",
            "unsafe_split_with_sizes",
        ),
        ("narrow",),
    ),
    "unbind": ("getitem",),
}
_CONVERSIONS = ("bfloat16", "cdouble", "cfloat", "double", "float", "half", "type_as")
NAMED |= dict.fromkeys(_CONVERSIONS, ("to",))
_FUNCTIONS = "asyncgrad.ops.api."
_DISPATCH = {"asyncgrad.ops.dispatch", "asyncgrad.nn.activation_functions"}


#: The titles of the chapters of functions; chapters with one title stand together.
TITLES = {
    "elementwise": "Elementwise functions",
    "transcendental": "Elementwise functions",
    "comparison": "Comparisons and counts",
    "complex_parts": "Complex numbers",
    "reduction": "Reductions",
    "sort": "Sorting and quantiles",
    "shape": "Shapes and axes",
    "rearrange": "Shapes and axes",
    "strided": "Shapes and axes",
    "index": "Indexing and scattering",
    "scatter": "Indexing and scattering",
    "linalg": "Linear algebra",
    "linalg_legacy": "Matrices",
    "composite": "Combined functions",
    "distances": "Statistics and distances",
    "grids": "Statistics and distances",
    "creation": "Making tensors",
    "data": "Making tensors",
    "random": "Random numbers",
    "dtypes": "Dtypes",
    "conversion": "Dtypes",
    "transfer": "Devices and other libraries",
    "dlpack": "Devices and other libraries",
    "sparse": "Row-sparse gradients",
    "signals": "Signals",
    "activation": "Activations and losses",
    "loss": "Activations and losses",
    "nn.functional": "Functions of neural networks",
    "special": "Special functions",
    "fft": "Fourier transforms",
}


# -- what a function is made of -------------------------------------------------------------------


def entries_of(function: Any, seen: set[int] | None = None) -> dict[str, Op]:
    """The entries that a function, or what it calls, may use, by name."""
    seen = set() if seen is None else seen
    found: dict[str, Op] = {}
    if isinstance(function, Op):
        return {function.name: function}
    function = getattr(function, "func", function)
    if id(function) in seen or not isinstance(function, FunctionType):
        return found
    module = inspect.unwrap(function).__globals__["__name__"]
    if not module.startswith(_FUNCTIONS) and module not in _DISPATCH:
        return found
    seen.add(id(function))
    if function.__code__.co_filename.startswith("<asyncgrad dispatch"):
        # For operands that are no matrices, a matrix product calls `checked`.
        checked = function.__globals__.get("checked")
        return {**entries_of(function.__globals__["op"]), **entries_of(checked, seen)}
    for cell in function.__closure__ or ():
        found |= entries_of(cell.cell_contents, seen)
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None:
        found |= entries_of(wrapped, seen)
    for name, attribute in _loaded(function.__code__):
        value = function.__globals__.get(name)
        if value is RECORDED:
            if attribute in registry.OPS:
                found[attribute] = registry.OPS[attribute]
        elif inspect.ismodule(value):
            found |= entries_of(getattr(value, attribute or "", None), seen)
        elif name in NAMED and inspect.isfunction(value):
            found |= {key: registry.OPS[key] for key in NAMED[name]}
        else:
            found |= entries_of(value, seen)
    return found


@functools.cache
def _loaded(code: CodeType) -> list[tuple[str, str | None]]:
    """The globals that code reads, each with the attribute that it reads of it."""
    loaded: list[tuple[str, str | None]] = []
    instructions = [i for i in dis.get_instructions(code) if i.opname != "CACHE"]
    for place, instruction in enumerate(instructions):
        if instruction.opname == "LOAD_GLOBAL":
            following = instructions[place + 1]
            attribute = following.argval if following.opname in _ATTRIBUTES else None
            loaded.append((instruction.argval, attribute))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            loaded += _loaded(constant)
    return loaded


_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}


# -- the page -------------------------------------------------------------------------------------


def functions() -> dict[str, dict[str, tuple[str, Any]]]:
    """By chapter and name: the forms of each function, and the function itself."""
    pages: dict[str, dict[str, tuple[str, Any]]] = {}
    known: dict[int, str] = {}
    for chapter in CHAPTERS:
        rows = pages.setdefault(TITLES[chapter.__name__.rpartition(".")[2]], {})
        for name in sorted({*chapter.__all__, *chapter.METHODS}):
            function = getattr(chapter, name)
            known[id(function)] = name
            forms = []
            if name in chapter.__all__:
                forms.append("ag")
            if getattr(ag.nn.functional, name, None) is function:
                forms.append("F")
            if getattr(ag.linalg, name, None) is function:
                forms.append("linalg")
            if name in chapter.METHODS:
                forms.append("m")
            if hasattr(ag.Tensor, f"{name}_"):
                forms.append("_")
            rows[name] = (" ".join(forms), function)
    for title, module, form in (("nn.functional", ag.nn.functional, "F"),
                                ("linalg", ag.linalg, "linalg"),
                                ("special", ag.special, "special"),
                                ("fft", ag.fft, "fft")):  # fmt: skip
        rows = pages.setdefault(TITLES[title], {})
        for name in sorted(module.__all__):
            function = getattr(module, name)
            if known.get(id(function)) != name:
                rows[name] = (form, function)
    return {title: rows for title, rows in pages.items() if rows}


def _pulls(op: Op) -> dict[str, Part]:
    """The sources of an entry's gradients, by input, without rules that raise."""
    return {k: part for k, part in op.pulls.items() if not isinstance(part.function, Refused)}


def derivative(name: str, function: Any) -> tuple[str, str]:
    """What a function's gradient is made of, and in which modes there is one."""
    if name in {"positive", "resolve_conj", "resolve_neg"}:
        return "the tensor itself", "b bb f"
    ops = {key: registry.OPS[key] for key in NAMED.get(name, ())} or entries_of(function)
    ops = {key: op for key, op in ops.items() if _pulls(op)}
    if not ops:
        return "none", ""
    forward = all(op.pushes.keys() == _pulls(op).keys() for op in ops.values())
    modes = "b bb f" if forward else "b bb"
    if name in ops:
        return "rule", modes
    return "of " + ", ".join(f"`{key}`" for key in sorted(ops)), modes


def page() -> str:
    """The whole page."""
    lines = [HEAD]
    for title, rows in functions().items():
        lines += [f"## {title}", "", "| function | forms | derivative | modes | differences |",
                  "| --- | --- | --- | --- | --- |"]  # fmt: skip
        for name, (forms, function) in rows.items():
            of, modes = derivative(name, function)
            lines.append(f"| `{name}` | {forms} | {of} | {modes} | {DIFFERENCES.get(name, '')} |")
        lines.append("")
    lines += ["## The table", "", TABLE, ""]
    for chapter in registry.CHAPTERS:
        title = chapter.__name__.rpartition(".")[2]
        lines += [f"### {title}", "", "| entry | arguments | saved | notes |",
                  "| --- | --- | --- | --- |"]  # fmt: skip
        lines += [_row(op) for op in chapter.OPS]
        lines.append("")
    return "\n".join(lines)


TABLE = """What functions are made of, and what rules may call as `F.name`. *Saved* says what each
gradient needs, by input: nothing else is kept, and nothing for inputs without a gradient. *Fused*:
there is a kernel for arrays of real numbers beside the rule."""


def _row(op: Op) -> str:
    arguments = ", ".join((*op.inputs, *(f"*{name}*" for name in op.attributes)))
    saved = "; ".join(
        f"{key}: {', '.join(part.names) or 'nothing'}" for key, part in _pulls(op).items()
    )
    notes = []
    if not _pulls(op):
        notes.append("no derivative")
    if op.view:
        notes.append("a view")
    if op.kernel is not None or any(part.kernel is not None for part in op.pulls.values()):
        notes.append("fused")
    if op.pushes.keys() != _pulls(op).keys():
        notes.append("no forward mode")
    return f"| `{op.name}` | {arguments} | {saved} | {', '.join(notes)} |".replace("*xs", "\\*xs")


def main(arguments: list[str]) -> int:
    """Write or check the page."""
    written = page()
    if "--check" in arguments:
        return int(PAGE.read_text(encoding="utf-8") != written)
    PAGE.write_text(written, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
