"""Timing, statistics, the ticker and the description of the machine.

Rule 1: the sides of a comparison take turns within one process (A B C A B C ...), so that whatever
        the machine does meanwhile happens to all of them.
Rule 2: a figure is the median of its repetitions, with quartiles; a ratio is one of medians, its
        quartiles those of the ratios of the single turns.
Rule 3: before anything is timed, the sides' results have been compared (`check_equal`).
Rule 4: the collector is on, and begins each turn without what the turn before has left young; a
        full collection that is near comes between two turns: what all sides have made would
        otherwise be looked through in one's turn, always the same one's.
"""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np
import torch
from threadpoolctl import ThreadpoolController

from benchmarks.figures import Lag, percentile

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
    from types import TracebackType

#: The measurement of one turn of a side: seconds, or a record of several figures.
Sample = TypeVar("Sample")

#: Time between two turns: BLAS and OpenMP threads spin for a while after their last work, and
#: would take a core from the side that comes next.
SETTLE = 0.02

#: So many collections of the middle generation; after ten of them a full collection follows.
_FULL_IS_NEAR = 5

#: The BLAS that NumPy has loaded; PyTorch has one of its own.
_NUMPY_BLAS = [
    library["filepath"]
    for library in ThreadpoolController().info()
    if library["user_api"] == "blas" and "torch" not in library["filepath"]
]
_controller = ThreadpoolController().select(filepath=_NUMPY_BLAS)


class NotThereError(Exception):
    """The installed asyncgrad lacks what a case needs; the case is reported as not run."""


@dataclass(frozen=True)
class Setting:
    """How thorough to be, and on which event loop."""

    #: Use fewer repetitions and smaller sizes, to see that everything works; figures mean nothing.
    quick: bool = False
    #: The loop, "asyncio" or "uvloop", of cases that are not run on both.
    loop: str = "asyncio"

    def repetitions(self, full: int) -> int:
        """How many turns to take where a thorough run takes `full`."""
        return max(3, full // 8) if self.quick else full

    def loops(self) -> tuple[str, ...]:
        """The event loops of the cases that are run on both."""
        return ("asyncio", "uvloop") if has_uvloop() else ("asyncio",)


@dataclass(frozen=True)
class Watched(Generic[Sample]):
    """The time something took, the lag of the ticker beside it, and what came of it."""

    seconds: float
    lag: Lag
    result: Sample


@dataclass
class Ticker:
    """A task that wants to be woken every `interval` seconds and notes how late it was.

    It stands for everything else that the event loop has to do.
    """

    interval: float = 0.001
    #: (moment, lateness) of each tick.
    ticks: list[tuple[float, float]] = field(default_factory=list)
    _ticked: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        for _ in range(5):
            await self._next()
        self.ticks.clear()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Wait for the tick that was due during the last piece of work, to count its delay.
        await self._next()
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _next(self) -> None:
        """Wait for one more tick."""
        self._ticked.clear()
        await self._ticked.wait()

    async def _run(self) -> None:
        while True:
            due = time.perf_counter() + self.interval
            await asyncio.sleep(self.interval)
            now = time.perf_counter()
            self.ticks.append((now, now - due))
            self._ticked.set()

    def lag(self) -> Lag:
        """Summarise the ticks so far."""
        late = sorted(lateness for _, lateness in self.ticks)
        return Lag(percentile(late, 50), percentile(late, 99), late[-1], len(late))


async def watched(work: Callable[[], Coroutine[Any, Any, Sample]]) -> Watched[Sample]:
    """Do `work` beside a ticker."""
    async with Ticker() as ticker:
        start = time.perf_counter()
        result = await work()
        seconds = time.perf_counter() - start
    return Watched(seconds, ticker.lag(), result)


async def idle(seconds: float) -> Lag:
    """The lag of a ticker beside which nothing happens: what the machine itself contributes."""

    async def nothing() -> None:
        await asyncio.sleep(seconds)

    return (await watched(nothing)).lag


def interleave(
    sides: Mapping[str, Callable[[], Sample]],
    repetitions: int,
    *,
    warmups: int = 1,
    settle: float = SETTLE,
) -> dict[str, list[Sample]]:
    """Let the sides take turns, and return what each of them measured in each turn."""

    def turn(side: Callable[[], Sample]) -> Sample:
        gc.collect(2 if gc.get_count()[2] > _FULL_IS_NEAR else 1)
        time.sleep(settle)
        return side()

    for _ in range(warmups):
        for side in sides.values():
            turn(side)
    samples: dict[str, list[Sample]] = {name: [] for name in sides}
    for _ in range(repetitions):
        for name, side in sides.items():
            samples[name].append(turn(side))
    return samples


def check_equal(name: str, ours: Sequence[Any], theirs: Sequence[Any]) -> None:
    """Raise unless both sides computed the same arrays, in the same dtype and shape."""
    if len(ours) != len(theirs):
        raise AssertionError(f"{name}: {len(ours)} results against {len(theirs)}")
    for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        a, b = np.asarray(a), np.asarray(b)
        if a.dtype != b.dtype or a.shape != b.shape:
            raise AssertionError(
                f"{name}: result {index} is {a.dtype} {a.shape} against {b.dtype} {b.shape}"
            )
        tolerance = 1e-4 if a.dtype in {np.dtype("f4"), np.dtype("c8")} else 1e-9
        # Sums are taken in another order, so the error is relative to the terms of a sum.
        scale = float(np.abs(b).max())
        np.testing.assert_allclose(
            a, b, rtol=tolerance, atol=tolerance * scale, err_msg=f"{name}: result {index}"
        )


@contextmanager
def blas_threads(count: int) -> Iterator[None]:
    """Let NumPy's BLAS use `count` threads inside; put back what it was."""
    with _controller.limit(limits=count):
        yield


def with_torch_threads(count: int, side: Callable[[], Sample]) -> Callable[[], Sample]:
    """The side, run with PyTorch on `count` threads (set before its clock starts).

    A helper thread reads the setting once, when it first meets PyTorch: sides that use
    `asyncio.to_thread` need an event loop, and so an executor, for each `count`.
    """

    def run() -> Sample:
        torch.set_num_threads(count)
        return side()

    return run


def with_blas_threads(count: int, side: Callable[[], Sample]) -> Callable[[], Sample]:
    """The side, run with NumPy's BLAS on `count` threads (set before its clock starts)."""

    def run() -> Sample:
        with blas_threads(count):
            return side()

    return run


@contextmanager
def event_loop(kind: str) -> Iterator[Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]]:
    """One event loop that lives as long as a case, for sides that are coroutines.

    It yields a function that runs a coroutine function to its end. Nothing is running between
    two calls, so synchronous sides can take their turns there.
    """
    factory = None
    if kind == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        yield lambda work: runner.run(work())


def has_uvloop() -> bool:
    """Whether uvloop is installed."""
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return False
    return True


@dataclass(frozen=True)
class Machine:
    """Where the figures come from."""

    cpu: str
    cores: int
    system: str
    python: str
    numpy: str
    blas: str
    torch: str
    uvloop: str | None
    asyncgrad: str
    #: The version of Numba, None if it compiles no kernels.
    numba: str | None

    @classmethod
    def here(cls) -> Self:
        """Describe this machine and this process."""
        import asyncgrad

        numba_version = None
        if asyncgrad.backends.numba.is_enabled():
            import numba

            numba_version = numba.__version__
        blas = ", ".join(
            f"{library['internal_api']} {library['version']} ({library.get('architecture', '?')})"
            for library in _controller.info()
        )
        loop_version = None
        if has_uvloop():
            import uvloop

            loop_version = uvloop.__version__
        return cls(
            cpu=_cpu_model(),
            cores=len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1,
            system=f"{platform.system()} {platform.release()}",
            python=platform.python_version(),
            numpy=np.__version__,
            blas=blas,
            torch=torch.__version__,
            uvloop=loop_version,
            asyncgrad=getattr(asyncgrad, "__version__", "?"),
            numba=numba_version,
        )

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return asdict(self)


def load() -> float:
    """The machine's load average over the last minute."""
    return os.getloadavg()[0]


def _cpu_model() -> str:
    """What the system calls its processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
