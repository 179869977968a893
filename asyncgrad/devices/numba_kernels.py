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
from functools import lru_cache, partial
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from numba.misc import appdirs

from asyncgrad.devices import numba_batch_norm, numba_convolution, numba_math
from asyncgrad.devices.kernels import CDF, FUNCTIONS, OF_INTEGERS, SOURCES, Elementwise
from asyncgrad.devices.numba_updates import UpdateKernel, update_text
from asyncgrad.devices.pieces import in_pieces
from asyncgrad.devices.pool import pooled_numpy
from asyncgrad.devices.updates import UPDATES

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.aliases import Array, Value
    from asyncgrad.devices.cuda_lines import Lines

#: Elements of a piece that idle threads take, and the pieces from which on they are asked.
_PIECE, _MANY = 1 << 18, 3
#: So many elements are added up in the kernel's dtype; their sums are added in double precision.
_ADDED = 512
#: Lines whose elements lie apart are computed if so many of them lie side by side.
_BESIDE = 8
#: Inputs that have one element for each line of the other inputs, by kernel.
_OF_LINES = {
    "attention_exponentials": {"sums"},
    "attention_slopes": {"total"},
    "weighted_share": {"sums"},
}
_HEAD = """\
from math import log, sqrt
import numpy as np
from numba import njit, types
from asyncgrad.devices.numba_math import (
    FASTMATH, READ, cdf_{0} as cdf, exp_{0} as exp, larger, order_{0} as order, row_{0} as row,
    sign_{0} as sign, smaller, tanh_{0} as tanh, value_{0} as value
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


def _names(parameters: str) -> list[str]:
    return [part.split()[-1] for part in parameters.split(",")]


def _statements(body: str) -> list[tuple[str, str]]:
    """The assignments of a body: what is assigned, and the value."""
    parts = [part.partition("=") for part in body.split(";") if part.strip()]
    return [(target.split()[-1], _python(value)) for target, _, value in parts]


def _elementwise(name: str, declared: Elementwise, of_lines: set[str], single: set[str]) -> str:
    """A kernel over elements `low` to `high`, or lines of `length` elements each.

    Args:
        name: the function's name.
        declared: what it computes.
        of_lines: inputs with one element for each line.
        single: inputs that are numbers.
    """
    statements = _statements(declared.body)
    inputs, outputs = _names(declared.inputs), _names(declared.outputs)
    written: set[str] = set()
    changed = set()
    for target, value in statements:
        changed |= {
            out for out in outputs if out not in written and re.search(rf"\b{out}\b", value)
        }
        written.add(target)
    kinds = ["number" if n in single else "array" for n in inputs] + ["out"] * len(outputs)
    given = [n if n in single else f"{n}_" for n in (*inputs, *outputs)]
    everywhere = [n for n in (*inputs, *outputs) if n not in of_lines | single]
    loop = [
        *(f"{n}_part = {n}_[start:stop]" for n in everywhere),
        "for at in range(stop - start):",
        *(f"    {n} = {n}_part[at]" for n in everywhere if n in inputs or n in changed),
        *(f"    {target} = {value}" for target, value in statements),
        *(f"    {n}_part[at] = {n}" for n in outputs),
    ]
    if of_lines:
        loop = [
            "for line in range(low, high):",
            "    start, stop = line * width, (line + 1) * width",
            *(f"    {n} = {n}_[line]" for n in inputs if n in of_lines),
            *(f"    {line}" for line in loop),
        ]
    else:
        loop = ["start, stop = low, high", *loop]
    return "\n".join([
        f"@kernel(integer, integer, integer, {', '.join(kinds)})",
        f"def {name}(low, high, width, {', '.join(given)}):",
        *(f"    {line}" for line in loop),
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
_NUMBERS = {"weighted_share": {"factor"}}


def text(dtype: str, cache: bool) -> str:
    """The kernels of a dtype as the text of a module.

    Args:
        dtype: "f" or "d".
        cache: whether Numba keeps what it compiles beside the module's file.
    """
    parts = [_HEAD.format(dtype, {"f": 32, "d": 64}[dtype], cache)]
    for name, declared in SOURCES.items():
        if name in OF_INTEGERS:
            continue
        if name in UPDATES:
            parts.append(update_text(name, UPDATES[name], _statements))
        elif isinstance(declared, Elementwise):
            of_lines, single = _OF_LINES.get(name, set()), _NUMBERS.get(name, set())
            parts.append(_elementwise(name, declared, of_lines, single))
        else:
            parts.append(_LinesText(name, declared).text())
    return "\n\n".join(parts)


# -- from Python to functions --------------------------------------------------------------------


class _Unfit(Exception):
    """A kernel does not support its arguments."""


_NUMPY = pooled_numpy()


def _share(call: Callable[[int, int], object], count: int, size: int) -> None:
    """Call a function for ranges of `count` lines, which have so many elements in all."""
    if size < _MANY * _PIECE:
        call(0, count)
        return
    step = max(1, _PIECE * count // size)
    in_pieces(lambda low: call(low, min(low + step, count)), range(0, count, step))


class _ElementwiseKernel:
    """One kernel for all its dtypes: with outputs as last arguments, it writes to them."""

    def __init__(self, name: str, declared: Elementwise, kernels: dict[str, Any]) -> None:
        self._inputs, self._outputs = _names(declared.inputs), _names(declared.outputs)
        self._of_lines = [n in _OF_LINES.get(name, ()) for n in self._inputs]
        self._single = [n in _NUMBERS.get(name, ()) for n in self._inputs]
        self.kernels = kernels

    def __call__(self, *arguments: Value) -> Any:
        first: Array = arguments[0]
        shape, dtype, size = first.shape, first.dtype, first.size
        count = size // shape[-1] if any(self._of_lines) else size
        given: list[Any] = []
        for value, of_line, single in zip(arguments, self._of_lines, self._single, strict=False):
            elements = count if of_line else size
            if not single and (value.size != elements or value.ndim != len(shape)):
                raise _Unfit
            given.append(value if single else value.reshape(-1))
        outs = list(arguments[len(self._inputs) :])
        made = [] if outs else [_NUMPY.empty(shape, dtype) for _ in self._outputs]
        for out in outs or made:
            if not out.flags.writeable or out.size != size:
                raise _Unfit
            given.append(out.reshape(-1))
        kernel = self.kernels[dtype.char]
        length = size // count
        _share(lambda low, high: kernel(low, high, length, *given), count, size)
        return made[0] if len(made) == 1 else made


class _LinesKernel:
    """One kernel for all its dtypes, see `cuda_lines.LinesKernel`."""

    def __init__(self, declared: Lines, kernels: dict[str, Any]) -> None:
        self._declared, self.kernels = declared, kernels
        self._numbers = len(declared.numbers.split())
        self._defaults = [float(part.split("=")[1]) for part in declared.places.split()]
        self._results = len(declared.results.split())

    def __call__(self, axis: int, *arguments: Value) -> Any:
        first: Array = arguments[0]
        shape, dtype = first.shape, first.dtype
        beside = prod(shape[axis + 1 :])
        if self._declared.over_batch:
            runs, count, of_lines = prod(shape[:axis]), shape[axis], (shape[axis],)
            if beside < _BESIDE:
                raise _Unfit
        elif beside != 1:
            raise _Unfit
        else:
            runs, beside, of_lines = 1, shape[axis], (*shape[:axis], 1)
            count = prod(of_lines)
        inputs = list(arguments[: len(arguments) - self._numbers])
        for place, default in zip(range(-len(self._defaults), 0), self._defaults, strict=True):
            if inputs[place] is None:
                inputs[place] = _filled(shape[axis], dtype, default)
        outs = [
            *(_NUMPY.empty(shape, dtype) for _ in self._declared.elements),
            *(np.empty(of_lines, dtype) for _ in range(self._results)),
        ]
        flat = [array.reshape(-1) for array in (*inputs, *outs)]
        numbers = arguments[len(inputs) :]
        kernel = self.kernels[dtype.char]
        _share(
            lambda low, high: kernel(low, high, runs, beside, count, *flat, *numbers),
            count, first.size,
        )  # fmt: skip
        return outs if len(outs) > 1 else outs[0]


@lru_cache(64)
def _filled(length: int, dtype: Any, value: float) -> Any:
    return np.full(length, value, dtype)


class Kernels:
    """The kernels of the host, by the names of the declarations."""

    empty = staticmethod(np.empty)

    def __init__(self) -> None:
        modules = {dtype: _compiled(dtype) for dtype in "fd"}
        #: The functions by the names of `ops.fused`, and of updates.
        self.functions: dict[str, Callable[..., Any]] = {}
        for name, declared in SOURCES.items():
            if name in OF_INTEGERS:
                continue
            own = {dtype: getattr(module, name) for dtype, module in modules.items()}
            if name in UPDATES:
                self.functions[name] = UpdateKernel(UPDATES[name], own, _share)
                continue
            kernel: Any = (
                _ElementwiseKernel(name, declared, own)
                if isinstance(declared, Elementwise)
                else _LinesKernel(declared, own)
            )
            setattr(self, name, kernel)
        for name, function in FUNCTIONS.items():
            if name not in _LEFT | UPDATES.keys():
                self.functions[name] = partial(self._run, function)
        for module in numba_batch_norm, numba_convolution:
            self.functions |= module.FUNCTIONS

    def for_steps(self, name: str, *arrays: Array) -> Any:
        """A kernel of `STEPS`, to be called with flat arrays like these."""
        count = arrays[0].size
        if any(array.shape != (count,) for array in arrays):
            raise _Unfit
        return partial(getattr(self, name).kernels[arrays[0].dtype.char], 0, count, count)

    def _run(self, function: Callable[..., Any], *arguments: Value) -> Any:
        """Call a function of `FUNCTIONS`; NotImplemented if the chain has to be used."""
        dtype = arguments[0].dtype
        if dtype.char not in "fd":
            return NotImplemented
        for value in arguments:
            if value.__class__ is np.ndarray:
                if value.dtype is not dtype or not value.flags.c_contiguous or not value.size:
                    return NotImplemented
            elif isinstance(value, np.generic):
                return NotImplemented
        try:
            return function(self, *arguments)
        except _Unfit:
            return NotImplemented


#: Functions that are left to NumPy: of integers and masks.
_LEFT = OF_INTEGERS | {"class_shares", "masked", "factors"}


def _compiled(dtype: str) -> Any:
    """The module of a dtype's kernels; kept for the next process where files can be written."""
    code = text(dtype, True)
    contents = numba.__version__, code, Path(numba_math.__file__).read_text()
    key = hashlib.sha256(repr(contents).encode()).hexdigest()[:16]
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
