"""Settings of the process and of libraries, as programs for PyTorch make them."""

from importlib import import_module

import pytest
from answers import check_answer
from threadpoolctl import threadpool_info

import asyncgrad as ag
from asyncgrad.devices import pieces
from asyncgrad.scheduler import blas

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch


def _deterministic(library):
    seen = []
    for mode in (2, "warn", 0, "error", "default"):
        library.set_deterministic_debug_mode(mode)
        seen.append(library.get_deterministic_debug_mode())
        seen.append(library.are_deterministic_algorithms_enabled())
        seen.append(library.is_deterministic_algorithms_warn_only_enabled())
    library.use_deterministic_algorithms(True, warn_only=True)
    seen.append(library.get_deterministic_debug_mode())
    library.use_deterministic_algorithms(False)
    return seen


def _precisions(library):
    for precision in ("high", "medium", "highest"):
        library.set_float32_matmul_precision(precision)
        assert library.get_float32_matmul_precision() == precision


def _switches(library):
    """In one form or the other, as the first lines of programs have them."""
    cudnn = import_module(f"{library.__name__}.backends.cudnn")
    before = cudnn.benchmark, cudnn.deterministic
    cudnn.benchmark, cudnn.deterministic = True, True
    library.backends.cuda.matmul.allow_tf32 = True
    found = library.backends.cudnn.benchmark, library.backends.cuda.matmul.allow_tf32
    cudnn.benchmark, cudnn.deterministic = before
    library.backends.cuda.matmul.allow_tf32 = False
    return found


CASES = {
    "deterministic": _deterministic,
    "an unknown mode": lambda L: L.set_deterministic_debug_mode("sometimes"),
    "an unknown number": lambda L: L.set_deterministic_debug_mode(3),
    "no mode": lambda L: L.set_deterministic_debug_mode(1.5),
    "precisions": _precisions,
    "an unknown precision": lambda L: L.set_float32_matmul_precision("low"),
    "no number of threads": lambda L: L.set_num_threads("2"),
    "no threads": lambda L: L.set_num_threads(0),
    "what there is not": lambda L: (
        L.backends.mps.is_available(), L.backends.mps.is_built(), L.backends.cuda.is_built(),
        L.backends.cudnn.is_available(), L.backends.cudnn.version(),
    ),
    "compiled": lambda L: L.compile(disable=True)(abs)(-1),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_answers_are_pytorchs(name):
    check_answer(CASES[name])


def test_switches_are_set_and_told():
    """PyTorch's own can't be set any more where one of its test suites has run in the process."""
    assert _switches(ag) == (True, True)


def test_settings_without_effect():
    assert ag.set_flush_denormal(True) is False
    assert ag.get_num_interop_threads() == blas.CORES


def _threads():
    """Of NumPy's library. SciPy brings one of its own, which products do not use."""
    libraries = [info for info in threadpool_info() if info["user_api"] == "blas"]
    return {info["num_threads"] for info in libraries if "scipy.libs" not in info["filepath"]}


def test_products_use_as_many_threads_as_were_set():
    """While an engine computes them in pieces, the library uses one; afterwards as many as set."""
    before, others = ag.get_num_threads(), tuple(blas.one_thread.holders)
    for other in others:
        blas.one_thread.drop(other)
    try:
        ag.set_num_threads(1)
        assert ag.get_num_threads() == 1
        assert _threads() <= {1}
        blas.one_thread.hold("test")
        try:
            ag.set_num_threads(blas.CORES)
            assert ag.get_num_threads() == blas.CORES or not _threads()
            assert pieces.threads == blas.CORES or not _threads()
            assert _threads() <= {1}
        finally:
            blas.one_thread.drop("test")
        assert _threads() <= {blas.CORES}
    finally:
        ag.set_num_threads(before)
        for other in others:
            blas.one_thread.hold(other)
