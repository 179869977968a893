"""The declared kernels, compiled by Numba for the host.

`text` writes them as Python, from the declarations in `devices/kernels.py`. `_compiled` puts that
into a file for each dtype, in the user's cache directory, where Numba keeps what it has compiled
for the next process.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import os
import re
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
from numba.misc import appdirs

from asyncgrad.devices.host_kernels import (
    addresses,
    attention,
    calls,
    convolution,
    functions,
    recurrent,
    softmax,
    vectors,
)
from asyncgrad.devices.host_kernels.lines import LinesText
from asyncgrad.devices.host_kernels.recurrent import StepsKernel, steps_text
from asyncgrad.devices.host_kernels.updates import UpdateKernel, update_text
from asyncgrad.devices.kernels import ALONE, FUNCTIONS, OF_INTEGERS, SOURCES, STEPS, Lines
from asyncgrad.devices.pointwise import CDF, LOSSES, NUMBERS, Elementwise
from asyncgrad.devices.updates import UPDATES

#: Kernels that NumPy or other modules compute on the host. The derivative of
#: tanh would gain a third on large arrays, and take twice as long on small ones.
_LEFT = OF_INTEGERS | {
    "attention_exponentials", "attention_shares", "attention_slopes", "class_shares",
    "row_products", "shares", "tanh_gradient",
}  # fmt: skip
#: The declared kernels that are compiled here.
_OWN = {name: declared for name, declared in SOURCES.items() if name not in _LEFT}
_HEAD = """\
from math import log, sqrt

import numpy as np
from numba import types
from asyncgrad.devices.host_kernels.addresses import row
from asyncgrad.devices.host_kernels.compiling import compiled
from asyncgrad.devices.host_kernels.functions import (
    cdf_{0} as cdf, exp_{0} as exp, expm1_{0} as expm1, larger,
    log1p_{0} as log1p, order_{0} as order, sign_{0} as sign, smaller,
    tanh_{0} as tanh, value_{0} as value
)
from asyncgrad.devices.host_kernels.recurrent import place, prepare
from asyncgrad.devices.host_kernels.vectors import address, copy

T = np.float{1}
number, integer = types.float{1}, types.int64
array = types.Array(number, 1, "C", readonly=True)
out = types.Array(number, 1, "C")
places = types.Array(integer, 1, "C")
sums = types.Array(types.float64, 2, "C")


def kernel(*signature):
    return compiled([signature])
"""


# -- from a declaration to Python ----------------------------------------------------------------


def _python(expression: str) -> str:
    """An expression of C++ in Python."""
    expression = expression.replace(CDF, "cdf(x)").strip()
    chosen = re.fullmatch(r"(.*?) \? (.*) : (.*)", expression)
    return "({1}) if ({0}) else ({2})".format(*chosen.groups()) if chosen else expression


def _statements(body: str) -> list[tuple[str, str]]:
    """The assignments of a body: what is assigned, and the value."""
    parts = [part.partition("=") for part in body.split(";") if part.strip()]
    return [(target.split()[-1], _python(value)) for target, _, value in parts]


def _loop(declared: Elementwise, size: str) -> list[str]:
    """A loop over the parts of an elementwise kernel's arrays, as lines."""
    statements = _statements(declared.body)
    inputs, outputs = calls.names_of(declared.inputs), calls.names_of(declared.outputs)
    written: set[str] = set()
    changed = set()
    for target, value in statements:
        changed |= {
            out for out in outputs if out not in written and re.search(rf"\b{out}\b", value)
        }
        written.add(target)
    arrays = [n for n in inputs if n not in NUMBERS]
    return [
        f"for at in range({size}):",
        *(f"    {n} = {n}_part[at]" for n in (*arrays, *outputs) if n in arrays or n in changed),
        *(f"    {target} = {value}" for target, value in statements),
        *(f"    {n}_part[at] = {n}" for n in outputs),
    ]


def _elementwise(name: str, declared: Elementwise) -> str:
    """A kernel over elements `low` to `high`, some of whose inputs are numbers."""
    inputs, outputs = calls.names_of(declared.inputs), calls.names_of(declared.outputs)
    kinds = ["number" if n in NUMBERS else "array" for n in inputs] + ["out"] * len(outputs)
    given = [n if n in NUMBERS else f"{n}_" for n in (*inputs, *outputs)]
    everywhere = [n for n in (*inputs, *outputs) if n not in NUMBERS]
    return "\n".join([
        f"@kernel(integer, integer, {', '.join(kinds)})",
        f"def {name}(low, high, {', '.join(given)}):",
        *(f"    {n}_part = {n}_[low:high]" for n in everywhere),
        *(f"    {line}" for line in _loop(declared, "high - low")),
        "",
    ])  # fmt: skip


def _total(name: str, declared: Elementwise) -> str:
    """A kernel that returns the sum of what another one computes, in double precision."""
    inputs, (output,) = calls.names_of(declared.inputs), calls.names_of(declared.outputs)
    arrays = [n for n in inputs if n not in NUMBERS]
    given = [n if n in NUMBERS else f"{n}_" for n in inputs]
    kinds = ["number" if n in NUMBERS else "array" for n in inputs]
    return "\n".join([
        f"@kernel(integer, integer, {', '.join(kinds)})",
        f"def {name}_total(low, high, {', '.join(given)}):",
        "    total = 0.0",
        f"    for start in range(low, high, {functions.ADDED}):",
        f"        stop = min(start + {functions.ADDED}, high)",
        *(f"        {n}_part = {n}_[start:stop]" for n in arrays),
        "        part = T(0)",
        "        for at in range(stop - start):",
        *(f"            {n} = {n}_part[at]" for n in arrays),
        *(f"            {target} = {value}" for target, value in _statements(declared.body)),
        f"            part += {output}",
        "        total += part",
        "    return total",
        "",
    ])  # fmt: skip


def text(dtype: str) -> str:
    """The kernels of a dtype, "f" or "d", as the text of a module."""
    parts = [_HEAD.format(dtype, {"f": 32, "d": 64}[dtype])]
    for name, declared in _OWN.items():
        if name in UPDATES:
            parts.append(update_text(name, UPDATES[name], _statements))
            continue
        if isinstance(declared, Lines):
            parts.append(str(LinesText(name, declared)))
            continue
        if name in STEPS:
            names = calls.names_of(f"{declared.inputs},{declared.outputs}")
            parts.append(steps_text(name, names, _loop(declared, "size")))
            continue
        parts.append(_elementwise(name, declared))
        if name in LOSSES:
            parts.append(_total(name, declared))
    return "\n\n".join(parts)


# -- from Python to functions --------------------------------------------------------------------


class Kernels:
    """The kernels of the host, by the names of the declarations."""

    def __init__(self) -> None:
        modules = {np.dtype(dtype): _compiled(dtype) for dtype in "fd"}
        #: The functions by the names of `ops.fused`, and of updates.
        self.functions: dict[str, Callable[..., Any]] = {}
        for name, declared in _OWN.items():
            called = f"{name}s" if name in STEPS else name
            own = {dtype: getattr(module, called) for dtype, module in modules.items()}
            if name in STEPS:
                self.functions[called] = calls.supported(StepsKernel(own))
                continue
            if name in UPDATES:
                self.functions[name] = UpdateKernel(UPDATES[name], own)
                continue
            kernel: Any
            if isinstance(declared, Lines):
                kernel = calls.LinesKernel(name, declared, modules)
            else:
                kernel = calls.ElementwiseKernel(declared, own)
            setattr(self, name, kernel)
            own_way = kernel if name in ALONE else partial(FUNCTIONS[name], self)
            self.functions[name] = calls.supported(own_way)
        for name in LOSSES:
            totals = {dtype: getattr(module, f"{name}_total") for dtype, module in modules.items()}
            self.functions[f"{name}_total"] = calls.supported(partial(calls.total, totals))
        for module in (attention, convolution, softmax):
            self.functions |= module.FUNCTIONS


def _compiled(dtype: str) -> Any:
    """The module of a dtype's kernels; kept for the next process where files can be written."""
    code = text(dtype)
    # Numba compiles them into the kernels, but looks for changes in the kernels' file alone.
    called = [inspect.getsource(module) for module in (addresses, functions, recurrent, vectors)]
    key = hashlib.sha256(repr((numba.__version__, called, code)).encode()).hexdigest()[:16]
    usual: Any = appdirs
    folder = Path(os.environ.get("NUMBA_CACHE_DIR") or usual.user_cache_dir("asyncgrad"))
    file = folder / f"kernels_{dtype}_{key}.py"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".py", delete=False) as made:
                made.write(code)
            Path(made.name).replace(file)
    except OSError:
        space: dict[str, Any] = {}
        exec(compile(code, f"<kernels {dtype}>", "exec"), space)
        return SimpleNamespace(**space)
    spec: Any = importlib.util.spec_from_file_location(f"asyncgrad_kernels_{dtype}", file)
    module = importlib.util.module_from_spec(spec)
    # Numba imports it by name when it finds what it has kept.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
