"""Forward and backward of every function of the table, on tiny and on large arrays."""

from __future__ import annotations

import gc
import time
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

import asyncgrad as ag
from benchmarks.figures import Spread
from benchmarks.functions import CASES, LARGE, TINY, arguments
from benchmarks.harness import blas_threads, check_equal, interleave
from benchmarks.reasons import AT_LARGE, AT_TINY
from benchmarks.report import MICROSECONDS, MILLISECONDS, Row, compared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from benchmarks.functions import Case, Sizes
    from benchmarks.harness import Setting

#: The seconds of a side's turn on tiny arrays, in which it makes as many calls as fit.
_TURN = 0.0015


class _Setup(NamedTuple):
    """What is measured, and what it has to reach."""

    name: str
    sizes: Sizes
    repetitions: int
    #: The seconds of a turn; with 0 it is one call.
    turn: float
    #: The largest allowed median of all ratios, and the largest allowed ratio of a function.
    middle: float
    most: float
    #: By function, why its ratio is larger.
    reasons: Mapping[str, str]


def measure_tiny(setting: Setting) -> Iterator[Row]:
    """Every function on 16 elements, in turns long enough for the clock."""
    setup = _Setup("small", TINY, setting.repetitions(16), _TURN, 0.6, 1.5, AT_TINY)
    yield from _rows(setup, "us", MICROSECONDS)


def measure_large(setting: Setting) -> Iterator[Row]:
    """Every function on 4 M elements (products of matrices: 512x512), call by call."""
    setup = _Setup("large", LARGE, setting.repetitions(5), 0, 0.9, 2.0, AT_LARGE)
    yield from _rows(setup, "ms", MILLISECONDS)


def _rows(setup: _Setup, unit: str, scale: float) -> Iterator[Row]:
    """The median of all ratios, and a row for every function, the slowest first."""
    rows = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    # Exempt what imports have made, because a collection that visits it takes longer than a turn.
    gc.collect()
    gc.freeze()
    try:
        with blas_threads(1):
            for case in CASES:
                sides = both_sides(case, setup.sizes)
                calls = _calls(sides["PyTorch T1"], setup.turn)
                samples = interleave(
                    {side: _timed(work, calls) for side, work in sides.items()},
                    setup.repetitions,
                    settle=0,
                )
                row = compared(
                    setup.name,
                    case.name,
                    samples,
                    ours="asyncgrad",
                    to="PyTorch T1",
                    unit=unit,
                    scale=scale,
                    to_reach=setup.most,
                )
                note = "" if row.reached else setup.reasons.get(case.name, "")
                rows.append(replace(row, note=note))
    finally:
        gc.unfreeze()
        torch.set_num_threads(threads)
    ratios = Spread.of([row.result for row in rows])
    figure = f"median of {len(rows)} functions"
    yield Row(setup.name, figure, "of PyTorch T1", ratios, to_reach=setup.middle)
    yield from sorted(rows, key=lambda row: -row.result)


def both_sides(case: Case, sizes: Sizes) -> dict[str, Callable[[], Any]]:
    """Forward and backward in both libraries, after a look at whether they agree."""
    wanted, other = arguments(case, sizes)
    results = {}
    sides = {}
    for name, library in (("asyncgrad", ag), ("PyTorch T1", torch)):
        leaves = [library.from_numpy(array.copy()).requires_grad_() for array in wanted]
        constants = [library.from_numpy(array.copy()) for array in other]
        sides[name], results[name] = _side(library, case, leaves, constants)
    if not case.random:
        check_equal(case.name, results["asyncgrad"], results["PyTorch T1"])
    return sides


def _side(
    library: Any, case: Case, leaves: list[Any], constants: list[Any]
) -> tuple[Callable[[], Any], list[np.ndarray]]:
    """A function that computes a case and its gradients, and what comes of it."""
    call, layers = case.call, library.nn.functional
    backward = library.autograd.backward

    def results() -> list[Any]:
        made = call(library, layers, *leaves, *constants)
        made = made if isinstance(made, (tuple, list)) else [made]
        return [value for value in made if isinstance(value, library.Tensor)]

    tensors = results()
    wanted = [place for place, tensor in enumerate(tensors) if tensor.requires_grad]
    random = np.random.default_rng(1)
    gradients = [library.from_numpy(_like(_array(tensors[place]), random)) for place in wanted]

    def forward() -> None:
        call(library, layers, *leaves, *constants)

    def one() -> None:
        for leaf in leaves:
            leaf.grad = None
        out = call(library, layers, *leaves, *constants)
        (out if out.__class__ is library.Tensor else out[place]).backward(gradient)

    def several() -> None:
        for leaf in leaves:
            leaf.grad = None
        outs = call(library, layers, *leaves, *constants)
        backward([outs[place] for place in wanted], gradients)

    found = [_array(tensor) for tensor in tensors]
    if not leaves or not wanted or tensors[0] is leaves[0] or case.name == "requires_grad_":
        return forward, found
    if len(wanted) == 1:
        (place,), (gradient,) = wanted, gradients
    work = one if len(wanted) == 1 else several
    work()
    return work, [*found, *[_array(leaf.grad) for leaf in leaves if leaf.grad is not None]]


def _like(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Numbers of the same shape and dtype."""
    return np.asarray(random.standard_normal(array.shape)).astype(array.dtype)


def _array(tensor: Any) -> np.ndarray:
    """A tensor's values. Some of PyTorch's zeros have no memory."""
    tensor = tensor.detach()
    if tensor.is_sparse:
        tensor = tensor.to_dense()
    return tensor.numpy(force=True) if isinstance(tensor, torch.Tensor) else tensor.numpy().copy()


def _calls(work: Callable[[], Any], seconds: float) -> int:
    """How many calls take that long."""
    timed = _timed(work, 5)
    return max(1, int(seconds / median([timed() for _ in range(5)]))) if seconds else 1


def _timed(work: Callable[[], Any], calls: int) -> Callable[[], float]:
    """The seconds of one of several calls."""

    def turn() -> float:
        start = time.perf_counter()
        for _ in range(calls):
            work()
        return (time.perf_counter() - start) / calls

    return turn
