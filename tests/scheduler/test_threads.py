"""The engine's threads: nobody waits for them to begin, and they end with their loop."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from _thread import get_ident
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from passes import HEAVY, chain, leaf

import asyncgrad as ag
from asyncgrad.scheduler import blas, segments
from asyncgrad.scheduler import threads as threads_module
from asyncgrad.scheduler.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable

_ROOT = str(Path(ag.__file__).parents[1])


def _run(program: str) -> list[str]:
    """What a program says that ends well."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env=os.environ | {"PYTHONPATH": _ROOT},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


def test_the_loop_starts_no_thread_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Thread.start` waits until the thread runs: 15 ms in a busy interpreter."""
    starters: dict[threading.Thread, int] = {}
    start = threading.Thread.start

    def noting(self: threading.Thread) -> None:
        starters[self] = get_ident()
        start(self)

    monkeypatch.setattr(threading.Thread, "start", noting)

    async def main() -> None:
        x = leaf()
        await asyncio.gather(*(chain(x, 2, cost=HEAVY).sum().backward() for _ in range(8)))
        await ag.offload(int)
        members.extend(ag.engine().thread_segments.threads._members)

    members: list[threading.Thread] = []
    asyncio.run(main())
    assert len(members) == blas.CORES
    # Threads of an earlier test's engine may start only now.
    assert get_ident() not in {starters[member] for member in members}


def test_they_leave_no_trace() -> None:
    """Not even one of the threads that `threading` makes up for those it has not started."""
    before = set(threading.enumerate())

    async def main() -> None:
        await ag.offload(int)

    for _ in range(20):
        asyncio.run(main())
    assert set(threading.enumerate()) <= before


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("kind", ["pass", "error", "offloaded"])
def test_a_thread_holds_nothing_of_what_it_has_reported(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The loop is told, and goes on, before the thread gets to the end of its job."""
    tell = segments.tell_loop
    may_leave = threading.Event()

    def tell_and_stay(*arguments: Any) -> None:
        tell(*arguments)
        del arguments
        assert may_leave.wait(60)

    monkeypatch.setattr(segments, "tell_loop", tell_and_stay)

    def node() -> None:
        if kind == "error":
            raise ValueError("planned")

    async def held() -> Any:
        if kind == "offloaded":
            return weakref.ref(await ag.offload(leaf))
        loss = chain(leaf(), 2, node, cost=HEAVY).sum()
        with suppress(ValueError):
            await loss.backward()
        return weakref.ref(loss.grad_fn)

    async def main() -> None:
        try:
            something = await held()
            # This turn of the loop still has the futures in its hands.
            await asyncio.sleep(0)
            assert something() is None
        finally:
            # The engine waits for its threads.
            may_leave.set()

    gc.collect()
    asyncio.run(main())


def test_jobs_given_before_the_end_are_done() -> None:
    threads = Threads(2)
    threads.start()
    done: list[int] = []
    ended = threading.Event()
    for number in range(50):
        threads.submit(lambda number=number: done.append(number))
    threads.close(ended.set)
    assert ended.wait(30)
    assert sorted(done) == list(range(50))


def _no_more(*args: Any) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("of", ["all", "all but one", "the second"])
def test_the_work_of_threads_that_cannot_be_started_is_done(
    monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    """A system has limits, and Python 3.12.1 starts none when the main thread has ended."""
    monkeypatch.setattr(blas, "CORES", 3)
    if of == "all":
        monkeypatch.setattr(threads_module, "start_new_thread", _no_more)
    else:
        start, allowed = threading.Thread.start, [0] if of == "all but one" else [0, 2]
        numbers = count()

        def limited(self: threading.Thread) -> None:
            (start if next(numbers) in allowed else _no_more)(self)

        monkeypatch.setattr(threading.Thread, "start", limited)
    before = set(threading.enumerate())
    x = leaf()

    async def main() -> None:
        assert await ag.offload(lambda: 7) == 7
        await asyncio.gather(*(chain(x, 3, cost=HEAVY).sum().backward() for _ in range(8)))

    asyncio.run(main())
    assert x.grad.tolist() == [8.0] * 3
    assert set(threading.enumerate()) <= before


def test_a_loop_may_go_on_when_the_threads_have_been_ended() -> None:
    """As those do that a program runs at its exit, when it has asked for that before its import."""
    program = """
import asyncio, atexit

loop = asyncio.new_event_loop()

@atexit.register
def last():
    loop.run_until_complete(main())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()

import asyncgrad as ag

async def main():
    print(await ag.offload(lambda: 7))

loop.run_until_complete(main())
"""
    assert _run(program) == ["7", "7"]


def test_idle_threads_are_counted() -> None:
    threads = Threads(3)
    threads.start()
    assert threads.idle() == 3
    go_on = threading.Event()
    begun = [threading.Event() for _ in range(2)]

    def job_of(event: threading.Event) -> Callable[[], Any]:
        return lambda: (event.set(), go_on.wait(30))

    for event in begun:
        threads.submit(job_of(event))
    assert all(event.wait(30) for event in begun)
    assert threads.idle() == 1
    go_on.set()
    ended = threading.Event()
    threads.close(ended.set)
    assert ended.wait(30)


def test_a_thread_is_idle_when_it_tells_of_its_job() -> None:
    """What is told may start the next work at once, which needs idle threads."""
    threads = Threads(1)
    threads.start()
    found: list[int] = []
    told, ended = threading.Event(), threading.Event()

    def note() -> None:
        found.append(threads.idle())

    threads.submit(note, then=lambda: (note(), told.set()))
    assert told.wait(30)
    threads.close(ended.set)
    assert ended.wait(30)
    assert found == [0, 1]


@pytest.mark.parametrize("ceremony", [True, False])
def test_the_interpreter_ends_after_what_threads_have_begun(ceremony: bool) -> None:
    """Also where the loop was dropped without a word."""
    program = f"""
import asyncio, os, threading
import asyncgrad as ag

begun, ended = threading.Event(), []

def slow():
    begun.set()
    ag.ones(300, 300) @ ag.ones(300, 300)
    os.write(1, b"done\\n")

async def main():
    task = asyncio.create_task(ag.offload(slow))
    await asyncio.sleep(0)
    while not begun.is_set():
        await asyncio.sleep(0)
    task.add_done_callback(lambda task: task.cancelled() or task.exception())

if {ceremony}:
    asyncio.run(main())
else:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
os.write(1, b"end\\n")
"""
    said = _run(program)
    assert sorted(said) in (["done", "end"], ["end"])
    if ceremony:
        assert said[-1] == "end"


def test_the_interpreter_does_not_end_before_threads_have_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An engine may be made by a program's last step, and its threads wait for a core."""
    starts: list[Callable[[], object]] = []
    monkeypatch.setattr(threads_module, "start_new_thread", lambda start, _: starts.append(start))
    monkeypatch.setattr(threads_module, "_all", weakref.WeakSet())
    threads = Threads(2)
    threads.start()
    at_exit = threading.Thread(target=threads_module._end_all)
    at_exit.start()
    at_exit.join(0.1)
    assert at_exit.is_alive()
    (start,) = starts
    start()
    at_exit.join(30)
    assert not at_exit.is_alive()
    assert not threads.alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_child_forked_while_threads_begin_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads_module, "start_new_thread", lambda start, _: None)
    threads = Threads(2)
    threads.start()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)
        threads_module._end_all()
        os._exit(0)
    threads._starting.release()
    assert os.waitpid(child, 0)[1] == 0
