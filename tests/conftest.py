"""What all tests share: the event loops, the kinds of tests, hypothesis' profiles."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import logging
import sys
import traceback
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import asyncgrad
from asyncgrad.ops import registry
from asyncgrad.ops.namespace import RECORDED
from asyncgrad.testing import poisoned_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# pytest rewrites asserts only in tests; rewritten here, too, a failed one says what differs.
pytest.register_assert_rewrite("adjoint", "module_parity", "oracle", "parity", "plain_parity")

# An example may take any time, because the machine may be busy with other things.
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# With the same examples each time, a test fails because of a change and not by chance.
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, print_blob=True)
settings.register_profile("thorough", settings.get_profile("dev"), max_examples=1000)
settings.load_profile("dev")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options to poison memory, to use Numba, and to leave out what has been measured."""
    parser.addoption("--poison", action="store_true", help="memory that is not in use is NaN")
    parser.addoption("--numba", action="store_true", help="kernels are compiled by Numba")
    parser.addoption(
        "--measured", default="", metavar="FILES", help="leave out their tests, but for no_cover"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Poison the memory, or compile kernels, before any test begins."""
    if config.getoption("--poison"):
        stack = ExitStack()
        stack.enter_context(poisoned_memory())
        config.add_cleanup(stack.close)
    if config.getoption("--numba"):
        asyncgrad.backends.numba.enable()


def _freeze() -> None:
    """Exempt what is there now from garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _frozen() -> None:
    """Keep collections in a file's tests from visiting what earlier files have left."""
    _freeze()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Give each test the same random numbers, whatever ran before it."""
    asyncgrad.manual_seed(0)


@pytest.fixture
def nothing_is_left() -> Iterator[None]:
    """Free what interrupts have left in cycles, such as tasks: a later test would be blamed."""
    yield
    gc.collect()


@pytest.fixture
def table_as_it_was() -> Iterator[None]:
    """Remove what a test has added to the table of functions."""
    known = set(registry.OPS)
    yield
    for name in registry.OPS.keys() - known:
        del registry.OPS[name]
        delattr(RECORDED, name)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Collect no cycles, so that only reference counts free objects."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


# In debug mode each future and each handle notes the stack where it was made, which messages print.
# Whole stacks took four fifths of the time of tests in that mode, so the last frame has to do.
asyncio.constants.DEBUG_STACK_DEPTH = 1


class _DebugLoop(asyncio.SelectorEventLoop):
    """A loop in debug mode that stays so: pytest-asyncio's runner would switch it off."""

    def __init__(self) -> None:
        super().__init__()
        self.set_debug(True)

    def set_debug(self, enabled: bool) -> None:
        super().set_debug(True)

    def run_forever(self) -> None:
        # Futures implemented in C know no depth: they call this function without arguments.
        traceback.extract_stack.__defaults__ = (None, 1)
        try:
            super().run_forever()
        finally:
            traceback.extract_stack.__defaults__ = (None, None)


def _uvloop_loop() -> asyncio.AbstractEventLoop:
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed")
    return uvloop.new_event_loop()


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run every asynchronous test on all three loops, and whole programs on two."""
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
        "asyncio": asyncio.new_event_loop,
        "asyncio-debug": _DebugLoop,
        "uvloop": _uvloop_loop,
    }
    if item.path.parent.name == "examples":
        # The functions that they call are tested on a loop in debug mode themselves.
        del loops["asyncio-debug"]
    return loops


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage meanwhile: what is imported and the tests themselves all stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep out of each test's time what has nothing to do with it.

    Each collection would visit all that was imported. PyTorch's threads would keep a core busy
    while they wait for its next operation. To each of PyTorch's forty loggers that do not propagate
    pytest would add its handlers, six times a test.
    """
    _freeze()
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
        for name, logger in logging.root.manager.loggerDict.items():
            if name.startswith("torch") and isinstance(logger, logging.Logger):
                logger.propagate = True


def _has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def _has_gpu() -> bool:
    if importlib.util.find_spec("cupy") is None:
        return False
    import cupy

    return cupy.is_available()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the tests that need what is not installed, and leave out those run before."""
    needs = {
        "torch": (_has_torch, "PyTorch is not installed"),
        "gpu": (_has_gpu, "no CuPy with a CUDA device"),
    }
    for marker, (is_here, reason) in needs.items():
        marked = [item for item in items if item.get_closest_marker(marker)]
        if marked and not is_here():
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))
    for item in items:
        # Coverage is measured on one loop: all run the same lines, and measuring triples the time.
        if hasattr(item, "callspec") and item.callspec.id.startswith(("asyncio-debug", "uvloop")):
            item.add_marker(pytest.mark.no_cover)
    measured = tuple(config.getoption("--measured").split())
    run_before = [
        item
        for item in items
        if item.nodeid.startswith(measured) and not item.get_closest_marker("no_cover")
    ]
    if run_before:
        config.hook.pytest_deselected(items=run_before)
        left_out = {*run_before}
        items[:] = [item for item in items if item not in left_out]
