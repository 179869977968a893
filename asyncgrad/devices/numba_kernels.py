"""The declared kernels, compiled by Numba for the host.

`text` writes them as Python, from the declarations in `devices/kernels.py`. `_compiled` puts that
into a file for each dtype, in the user's cache directory, where Numba keeps what it has compiled
for the next process.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
import tempfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from numba.misc import appdirs

from asyncgrad.devices import (
    numba_attention,
    numba_batch_norm,
    numba_convolution,
    numba_math,
    numba_norms,
    numba_softmax,
)
from asyncgrad.devices.kernels import ALONE, FUNCTIONS, OF_INTEGERS, SOURCES
from asyncgrad.devices.numba_calls import (
    ElementwiseKernel,
    LinesKernel,
    Unfit,
    names_of,
    share,
    supported,
    total,
)
from asyncgrad.devices.numba_updates import UpdateKernel, update_text
from asyncgrad.devices.pointwise import CDF, LOSSES, Elementwise
from asyncgrad.devices.updates import UPDATES

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.aliases import Array, Value
    from asyncgrad.devices.cuda_lines import Lines

#: So many elements are added up in the kernel's dtype; their sums are added in double precision.
_ADDED = 512
#: Kernels of devices alone: on the host NumPy does what they do, or what other modules compile.
_LEFT = OF_INTEGERS | {
    "batch_norm", "batch_norm_gradient",
    "log_softmax", "log_softmax_gradient", "log_sums", "softmax", "softmax_gradient",
    "attention_exponentials", "attention_shares", "attention_slopes", "class_shares", "factors",
    "layer_norm", "layer_norm_gradient", "one_factor", "rms_gradient", "rms_norm",
    "row_products",
    "weighted_share",
}  # fmt: skip
_HEAD = """\
from math import log, sqrt
import numpy as np
from numba import njit, types
from asyncgrad.devices.numba_math import (
    FASTMATH, READ, cdf_{0} as cdf, exp_{0} as exp, expm1_{0} as expm1, larger,
    log1p_{0} as log1p, order_{0} as order, row_{0} as row, sign_{0} as sign, smaller,
    tanh_{0} as tanh, value_{0} as value
)

T = np.float{1}
number, integer = types.float{1}, types.int64
array = types.Array(number, 1, "C", readonly=True)
out = types.Array(number, 1, "C")
places = types.Array(integer, 1, "C")


def kernel(*signature):
    return njit(
        [signature], nogil=True, cache={2}, fastmath=FASTMATH, error_model="numpy"
    )
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


def _elementwise(name: str, declared: Elementwise, single: set[str]) -> str:
    """A kernel over elements `low` to `high`, some of whose inputs are numbers."""
    statements = _statements(declared.body)
    inputs, outputs = names_of(declared.inputs), names_of(declared.outputs)
    written: set[str] = set()
    changed = set()
    for target, value in statements:
        changed |= {
            out for out in outputs if out not in written and re.search(rf"\b{out}\b", value)
        }
        written.add(target)
    kinds = ["number" if n in single else "array" for n in inputs] + ["out"] * len(outputs)
    given = [n if n in single else f"{n}_" for n in (*inputs, *outputs)]
    everywhere = [n for n in (*inputs, *outputs) if n not in single]
    return "\n".join([
        f"@kernel(integer, integer, {', '.join(kinds)})",
        f"def {name}(low, high, {', '.join(given)}):",
        *(f"    {n}_part = {n}_[low:high]" for n in everywhere),
        "    for at in range(high - low):",
        *(f"        {n} = {n}_part[at]" for n in everywhere if n in inputs or n in changed),
        *(f"        {target} = {value}" for target, value in statements),
        *(f"        {n}_part[at] = {n}" for n in outputs),
        "",
    ])  # fmt: skip


def _total(name: str, declared: Elementwise, single: set[str]) -> str:
    """A kernel that returns the sum of what another one computes, in double precision."""
    inputs, (output,) = names_of(declared.inputs), names_of(declared.outputs)
    arrays = [n for n in inputs if n not in single]
    given = [n if n in single else f"{n}_" for n in inputs]
    kinds = ["number" if n in single else "array" for n in inputs]
    return "\n".join([
        f"@kernel(integer, integer, {', '.join(kinds)})",
        f"def {name}_total(low, high, {', '.join(given)}):",
        "    total = 0.0",
        f"    for start in range(low, high, {_ADDED}):",
        f"        stop = min(start + {_ADDED}, high)",
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


class _LinesText:
    """A kernel over the lines `low` to `high` of arrays of `count` lines.

    A line is `runs` runs of `beside` elements, which lie `count * beside` elements apart.
    """

    def __init__(self, name: str, declared: Lines) -> None:
        self._name, self._declared = name, declared
        self._places = [part.split("=")[0] for part in declared.places.split()]

    def text(self) -> str:
        declared = self._declared
        numbers = declared.numbers.split()
        arrays = [*declared.arrays.split(), *declared.lines.split(), *self._places]
        outs = [*(name for name, _ in declared.elements), *declared.results.split()]
        kinds = ["array"] * len(arrays) + ["out"] * len(outs) + ["number"] * len(numbers)
        given = [*(f"{n}_" for n in arrays), *(f"{n}_out" for n in outs), *numbers]
        lines = [
            f"@kernel(integer, integer, integer, integer, integer, {', '.join(kinds)})",
            f"def {self._name}(low, high, runs, beside, count, {', '.join(given)}):",
            "    length = T(runs * beside)",
            "    for line in range(low, high):",
            *(f"        {n} = {n}_[line]" for n in declared.lines.split()),
        ]
        for target, how, expression in declared.steps:
            lines += [f"        {line}" for line in self._step(target, how, _python(expression))]
        if declared.elements:
            written = [f"{n}_made[at] = {_python(e)}" for n, e in declared.elements]
            lines += [f"        {line}" for line in self._along(written)]
        lines += [f"        {n}_out[line] = {n}" for n in declared.results.split()]
        return "\n".join([*lines, ""])

    def _step(self, target: str, how: str, expression: str) -> list[str]:
        if how == "let":
            return [f"{target} = T({expression})"]
        if how == "max":
            # Integers in the numbers' order are compared several at a time; NaN is the greatest.
            work = self._along([f"part = max(part, order({expression}))"])
            return ["part = order(T(-np.inf))", *work, f"{target} = value(part)"]
        work = self._along([f"part += {expression}"], ["part = T(0)"], ["sum_of_parts += part"])
        return ["sum_of_parts = 0.0", *work, f"{target} = T(sum_of_parts)"]

    def _along(
        self, work: list[str], before: list[str] | None = None, after: list[str] | None = None
    ) -> list[str]:
        """A loop over a line's places, with something before and after each few of them.

        Arrays are cut first: Numba knows that an index which counts from 0 is not negative.
        """
        words = set(re.findall(r"\w+", " ".join(work)))
        arrays = [n for n in self._declared.arrays.split() if n in words]
        places = [n for n in self._places if n in words]
        outs = [n for n, _ in self._declared.elements if f"{n}_made" in words]
        return [
            "for run in range(runs):",
            "    start = (run * count + line) * beside",
            f"    for first in range(0, beside, {_ADDED}):",
            f"        size = min(beside - first, {_ADDED})",
            *(f"        {n}_part = {n}_[start + first : start + first + size]" for n in arrays),
            *(f"        {n}_part = {n}_[first : first + size]" for n in places),
            *(f"        {n}_made = {n}_out[start + first : start + first + size]" for n in outs),
            *(f"        {line}" for line in before or ()),
            "        for at in range(size):",
            *(f"            {n} = {n}_part[at]" for n in (*arrays, *places)),
            *(f"            {line}" for line in work),
            *(f"        {line}" for line in after or ()),
        ]


#: Inputs that are numbers, by kernel.
_NUMBERS = {
    "absolute_loss_by_x": {"factor"},
    "binary_cross_entropy_with_logits_by_x": {"factor"},
    "huber_loss": {"delta"},
    "huber_loss_by_x": {"delta", "factor"},
    "squared_loss_by_x": {"factor"},
    "elu": {"alpha"},
    "elu_slope": {"alpha"},
    "leaky_gradient": {"slope"},
    "leaky_relu": {"slope"},
    "softplus": {"beta", "threshold"},
    "softplus_slope": {"beta", "threshold"},
}


def text(dtype: str, cache: bool) -> str:
    """The kernels of a dtype as the text of a module.

    Args:
        dtype: "f" or "d".
        cache: whether Numba keeps what it compiles beside the module's file.
    """
    parts = [_HEAD.format(dtype, {"f": 32, "d": 64}[dtype], cache)]
    for name, declared in SOURCES.items():
        if name in _LEFT:
            continue
        if name in UPDATES:
            parts.append(update_text(name, UPDATES[name], _statements))
        elif isinstance(declared, Elementwise):
            single = _NUMBERS.get(name, set())
            parts.append(_elementwise(name, declared, single))
            if name in LOSSES:
                parts.append(_total(name, declared, single))
        else:
            parts.append(_LinesText(name, declared).text())
    return "\n\n".join(parts)


# -- from Python to functions --------------------------------------------------------------------


class Kernels:
    """The kernels of the host, by the names of the declarations."""

    empty = staticmethod(np.empty)

    def __init__(self) -> None:
        modules = {np.dtype(dtype): _compiled(dtype) for dtype in "fd"}
        #: The functions by the names of `ops.fused`, and of updates.
        self.functions: dict[str, Callable[..., Any]] = {}
        for name, declared in SOURCES.items():
            if name in _LEFT:
                continue
            own = {dtype: getattr(module, name) for dtype, module in modules.items()}
            if name in UPDATES:
                self.functions[name] = UpdateKernel(UPDATES[name], own, share)
                continue
            kernel: Any = (
                ElementwiseKernel(declared, own, _NUMBERS.get(name, set()))
                if isinstance(declared, Elementwise)
                else LinesKernel(declared, own)
            )
            setattr(self, name, kernel)
        for name, function in FUNCTIONS.items():
            if name in ALONE and name not in _LEFT:
                self.functions[name] = getattr(self, name).run
            elif name not in _LEFT | UPDATES.keys():
                self.functions[name] = partial(self._run, function)
        for name in LOSSES:
            totals = {dtype: getattr(module, f"{name}_total") for dtype, module in modules.items()}
            self.functions[f"{name}_total"] = supported(partial(total, totals))
        for module in (
            numba_attention, numba_batch_norm, numba_convolution, numba_norms, numba_softmax,
        ):  # fmt: skip
            self.functions |= module.FUNCTIONS

    def for_steps(self, name: str, *arrays: Array) -> Any:
        """A kernel of `STEPS`, to be called with flat arrays like these."""
        count = arrays[0].size
        if any(array.shape != (count,) for array in arrays):
            raise Unfit
        kernel = getattr(self, name).kernels.get(arrays[0].dtype)
        if kernel is None:
            raise Unfit
        return partial(kernel, 0, count)

    def _run(self, function: Callable[..., Any], *arguments: Value) -> Any:
        """Call a function of `FUNCTIONS`; NotImplemented if the chain has to be used."""
        try:
            return function(self, *arguments)
        except Unfit:
            return NotImplemented


def _compiled(dtype: str) -> Any:
    """The module of a dtype's kernels; kept for the next process where files can be written."""
    code = text(dtype, True)
    # Numba compiles them into the kernels, but looks for changes in the kernels' file alone.
    functions = Path(numba_math.__file__).read_text(encoding="utf-8")
    key = hashlib.sha256(f"{numba.__version__} {functions} {code}".encode()).hexdigest()[:16]
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
        exec(compile(text(dtype, False), f"<kernels {dtype}>", "exec"), space)
        return SimpleNamespace(**space)
    spec: Any = importlib.util.spec_from_file_location(f"asyncgrad_kernels_{dtype}", file)
    module = importlib.util.module_from_spec(spec)
    # Numba imports it by name when it finds what it has kept.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
