"""Work in pieces: all are computed, by whom ever, and products always in the same ones."""

from __future__ import annotations

import sys
import threading
import weakref
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.devices import pieces
from asyncgrad.devices.cpu import CPU
from asyncgrad.ops.fused import elementwise
from asyncgrad.ops.table import attention, convolution, normalisation
from asyncgrad.scheduler.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


class Nobody:
    """An engine whose threads are busy."""

    def lend(self, job: Callable[[], None], most: int) -> int:
        """Nobody takes the job."""
        return 0

    def most_urgent(self) -> object:
        return None


class Late(Nobody):
    """An engine whose threads take a job when it is done."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def lend(self, job: Callable[[], None], most: int) -> int:
        self.jobs += [job] * most
        return most


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Threads]:
    """An engine's threads, which this thread belongs to."""
    made = Threads(2)
    made.start()
    monkeypatch.setattr(pieces, "threads", 3)
    monkeypatch.setattr(pieces.here, "lender", made)
    yield made
    ended = threading.Event()
    made.close(ended.set)
    assert ended.wait(30)


@pytest.mark.parametrize("lender", [None, Nobody()])
def test_one_thread_computes_all_in_order(lender: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces.here, "lender", lender)
    done: list[int] = []
    pieces.in_pieces(done.append, range(5))
    assert done == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("threads")
def test_idle_threads_take_pieces() -> None:
    """Each waits here for the two others."""
    barrier = threading.Barrier(3, timeout=30)
    places: list[str] = []

    def piece(number: int) -> None:
        places.append(threading.current_thread().name)
        barrier.wait()

    pieces.in_pieces(piece, range(3))
    assert len(set(places)) == 3


@pytest.mark.usefixtures("threads")
def test_threads_that_the_user_does_not_allow_take_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "threads", 1)
    places: list[str] = []
    pieces.in_pieces(lambda number: places.append(threading.current_thread().name), range(50))
    assert places == [threading.current_thread().name] * 50


def test_a_job_that_comes_late_finds_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Late()
    monkeypatch.setattr(pieces, "threads", 3)
    monkeypatch.setattr(pieces.here, "lender", late)
    done: list[int] = []
    pieces.in_pieces(done.append, range(5))
    assert len(late.jobs) == 2
    for job in late.jobs:
        job()
    assert done == [0, 1, 2, 3, 4]


def test_a_thread_that_becomes_idle_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once: it takes pieces as long as there are any."""

    class Soon(Late):
        asked = 0

        def lend(self, job: Callable[[], None], most: int) -> int:
            self.asked += 1
            return super().lend(job, most) if self.asked == 3 else 0

    soon = Soon()
    monkeypatch.setattr(pieces, "threads", 2)
    monkeypatch.setattr(pieces.here, "lender", soon)
    done: list[int] = []
    pieces.in_pieces(done.append, range(9))
    assert (done, len(soon.jobs), soon.asked) == (list(range(9)), 1, 3)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_is_raised_when_no_piece_runs_any_more(failing: int) -> None:
    barrier = threading.Barrier(3, timeout=30)
    left: list[int] = []

    def piece(number: int) -> None:
        barrier.wait()
        left.append(number)
        if number == failing:
            raise ValueError("planned")

    with pytest.raises(ValueError, match="planned"):
        pieces.in_pieces(piece, range(3))
    assert sorted(left) == [0, 1, 2]


def test_after_an_error_no_piece_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces.here, "lender", Nobody())
    done: list[int] = []

    def piece(number: int) -> None:
        done.append(number)
        raise ValueError("planned")

    with pytest.raises(ValueError, match="planned"):
        pieces.in_pieces(piece, range(3))
    assert done == [0]


@pytest.mark.parametrize("lender", [None, Nobody()])
def test_one_thread_goes_through_all_parts_first(
    lender: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces.here, "lender", lender)
    done: list[int] = []
    pieces.pipelined(done.append, lambda part: done.append(-part), [1, 2, 3])
    assert done == [1, 2, 3, -1, -2, -3]


@pytest.mark.usefixtures("threads")
def test_idle_threads_follow_from_part_to_part() -> None:
    """Before a part, the first thread waits here until another has followed to the one before."""
    followed = [threading.Event() for _ in range(4)]
    followed[0].set()
    done: list[int] = []

    def first(part: int) -> None:
        assert followed[part - 1].wait(30)
        done.append(part)

    def then(part: int) -> None:
        assert part in done
        followed[part].set()

    pieces.pipelined(first, then, [1, 2, 3])
    assert all(event.is_set() for event in followed)


@pytest.mark.usefixtures("no_collector")
def test_a_thread_that_becomes_idle_between_two_parts_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[int] = []

    class Soon(Late):
        def lend(self, job: Callable[[], None], most: int) -> int:
            return super().lend(job, most) if done == [1] else 0

    def work() -> weakref.ref[np.ndarray]:
        x = np.zeros(4)
        pieces.pipelined(done.append, lambda part: x.__setitem__(part, 1.0), [1, 2, 3])
        assert x.sum() == 3
        return weakref.ref(x)

    soon = Soon()
    monkeypatch.setattr(pieces, "threads", 2)
    monkeypatch.setattr(pieces.here, "lender", soon)
    assert work()() is None
    assert len(soon.jobs) == 1


@pytest.mark.usefixtures("threads")
def test_no_thread_follows_for_ever_after_an_error() -> None:
    def first(part: int) -> None:
        raise ValueError("planned")

    with pytest.raises(ValueError, match="planned"):
        pieces.pipelined(first, print, [1, 2, 3])


def test_no_thread_follows_for_ever_after_an_interrupt_before_the_first_part(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fixture waits for the threads."""

    def lend(self: Threads, job: Callable[[], None], most: int) -> int:
        lent(self, job, most)
        raise KeyboardInterrupt

    lent = Threads.lend
    monkeypatch.setattr(Threads, "lend", lend)
    with pytest.raises(KeyboardInterrupt):
        pieces.pipelined(lambda part: None, lambda part: None, range(3))


@pytest.mark.usefixtures("threads")
def test_no_thread_follows_for_ever_after_an_interrupt_of_the_first_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = threading.Event()

    class Queue(SimpleQueue):
        def get(self) -> None:
            waits.set()
            return super().get()

    def interrupt(frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code.co_name == "compute":
            sys.settrace(before)
            assert waits.wait(30)
            raise KeyboardInterrupt

    monkeypatch.setattr(pieces, "SimpleQueue", Queue)
    before = sys.gettrace()
    sys.settrace(interrupt)
    with pytest.raises(KeyboardInterrupt):
        pieces.pipelined(lambda part: None, lambda part: None, range(3))


@pytest.mark.usefixtures("no_collector")
def test_a_job_that_comes_late_holds_no_array(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Late()
    monkeypatch.setattr(pieces, "threads", 3)
    monkeypatch.setattr(pieces.here, "lender", late)

    def work() -> weakref.ref[np.ndarray]:
        x = np.zeros(3)
        pieces.in_pieces(lambda place: x.__setitem__(place, 1.0), range(3))
        return weakref.ref(x)

    assert work()() is None


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("number", [1, 2])
def test_an_error_in_another_thread_holds_no_array(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "threads", 2)
    monkeypatch.setattr(pieces.here, "lender", Eager())

    def work() -> weakref.ref[np.ndarray]:
        x = np.zeros(3)
        with pytest.raises(IndexError):
            pieces.in_pieces(lambda place: x[place], [0, *[3] * number])
        return weakref.ref(x)

    assert work()() is None


@pytest.mark.parametrize("rows", [1, 63, 700, 5000])
@pytest.mark.parametrize("inner", [0, 4, 4096, 1 << 20, 1 << 27])
@pytest.mark.parametrize("columns", [1, 65, 640, 5000])
def test_tiles_cover_the_result_once(rows: int, inner: int, columns: int) -> None:
    seen = np.zeros((rows, columns), int)
    for tile in pieces._tiles(rows, inner, columns):
        assert seen[tile].size
        seen[tile] += 1
    assert (seen == 1).all()


@pytest.mark.parametrize("transposed", [False, True])
def test_products_in_pieces_are_products(transposed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "_PIECE", 1 << 22)
    pieces._tiles.cache_clear()
    monkeypatch.setattr(pieces, "threads", 1)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((520, 300)), rng.standard_normal((300, 200))
    if transposed:
        x, y = np.asfortranarray(x), np.asfortranarray(y)
    out = np.full((520, 200), np.nan)
    calls: list[Any] = []

    def multiply(x: Any, y: Any, out: Any) -> None:
        calls.append(out.shape)
        np.matmul(x, y, out)

    pieces.product(multiply, x, y, out)
    pieces._tiles.cache_clear()
    assert len(calls) > 4
    np.testing.assert_allclose(out, x @ y, rtol=1e-12, atol=1e-12)


def test_without_an_engine_the_library_gets_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "threads", 0)
    x = np.ones((1024, 1024), np.float32)
    calls: list[Any] = []
    pieces.product(lambda x, y, out: calls.append(out.shape), x, x, x)
    assert calls == [(1024, 1024)]


class Meeting:
    """Work that goes on when a second thread has come to do a part of it."""

    def __init__(self) -> None:
        self.here: set[str] = set()
        self.met = threading.Event()

    def come(self) -> None:
        self.here.add(threading.current_thread().name)
        if len(self.here) > 1:
            self.met.set()
        assert self.met.wait(30)


@pytest.mark.usefixtures("threads")
def test_blocks_of_an_elementwise_function_are_computed_by_several_threads() -> None:
    meeting = Meeting()

    @elementwise()
    def twice(xp: Any, out: Any, x: Any) -> Any:
        meeting.come()
        return xp.multiply(x, 2, out)

    x = np.arange(1 << 20, dtype="f4")
    np.testing.assert_array_equal(twice(CPU.xp, x), x * 2)
    assert len(meeting.here) > 1


@pytest.mark.usefixtures("threads")
def test_few_blocks_stay_in_one_thread() -> None:
    names: set[str] = set()

    @elementwise()
    def twice(xp: Any, out: Any, x: Any) -> Any:
        names.add(threading.current_thread().name)
        return xp.multiply(x, 2, out)

    twice(CPU.xp, np.ones(3 << 17, "f4"))
    assert names == {threading.current_thread().name}


@pytest.mark.usefixtures("threads")
def test_heads_of_an_attention_are_computed_by_several_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meeting, exponentials = Meeting(), attention._exponentials

    def met(xp: Any, scores: Any) -> Any:
        meeting.come()
        return exponentials(xp, scores)

    monkeypatch.setattr(attention, "_exponentials", met)
    heads = ag.ones(4, 16, 65, 4)
    found = ag.nn.functional.scaled_dot_product_attention(heads, heads, heads)
    np.testing.assert_allclose(found.numpy(), heads.numpy(), rtol=1e-5)
    assert len(meeting.here) > 1


def _convolution_of(images: Any, channels: int, stride: int) -> list[bytes]:
    """The bits of a convolution and its gradients."""
    x = ag.tensor(images).requires_grad_()
    w = ag.linspace(-1, 1, 6 * channels * 9).reshape(6, channels, 3, 3).requires_grad_()
    y = ag.nn.functional.conv2d(x, w, None, stride, 1)
    return [t.detach().numpy().tobytes() for t in (y, *ag.grad((y * y).sum(), (x, w)))]


def _threads_of_products(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the threads that compute the products of a convolution."""
    names: set[str] = set()
    for name in ("in_parts", "sum_of_parts", "windows_beside"):
        product = getattr(convolution, name)

        def named(*arguments: Any, product: Any = product) -> Any:
            names.add(threading.current_thread().name)
            return product(*arguments)

        monkeypatch.setattr(convolution, name, named)
    return names


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(
    ("shape", "stride"),
    [((600, 16, 8, 8), 1), ((2000, 16, 8, 8), 2), ((20, 4, 80, 80), 1), ((80, 4, 80, 80), 2)],
)
def test_images_of_a_convolution_are_shared_and_give_the_same_bits(
    shape: tuple[int, ...], stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few large ones, and many small ones that are put side by side."""
    images = np.random.default_rng(0).standard_normal(shape).astype("f4")
    names = _threads_of_products(monkeypatch)
    expected = _convolution_of(images, shape[1], stride)
    monkeypatch.setattr(pieces.here, "lender", None)
    assert _convolution_of(images, shape[1], stride) == expected
    names.clear()
    monkeypatch.setattr(pieces.here, "lender", Eager())
    assert _convolution_of(images, shape[1], stride) == expected
    assert names - {threading.current_thread().name}


@pytest.mark.parametrize("shape", [(256, 16, 8, 8), (8, 4, 80, 80)])
@pytest.mark.parametrize("stride", [1, 2])
def test_few_images_of_a_convolution_stay_in_one_thread(
    shape: tuple[int, ...], stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "threads", 2)
    monkeypatch.setattr(pieces.here, "lender", Eager())
    names = _threads_of_products(monkeypatch)
    _convolution_of(np.ones(shape, "f4"), shape[1], stride)
    assert names == {threading.current_thread().name}


class Eager(Nobody):
    """An engine whose thread takes all pieces before this one begins."""

    def lend(self, job: Callable[[], None], most: int) -> int:
        thread = threading.Thread(target=job)
        thread.start()
        thread.join()
        return 1


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_rows_of_a_norm_are_shared_and_give_the_same_bits(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moments and the parts of the weight's gradient are joined in the order of the blocks."""
    names: list[str] = []
    row_dots = normalisation._row_dots

    def named(*arguments: Any) -> Any:
        names.append(threading.current_thread().name)
        return row_dots(*arguments)

    monkeypatch.setattr(normalisation, "_row_dots", named)
    monkeypatch.setattr(pieces, "threads", 2)
    # Two blocks.
    x = ag.rand(300, 777, requires_grad=True)
    w, b = ag.rand(777, requires_grad=True), ag.rand(777, requires_grad=True)
    leaves, more = ((x, w, b), (w, b)) if name == "layer_norm" else ((x, w), (w,))

    def bits() -> list[bytes]:
        y = getattr(ag.nn.functional, name)(x, (777,), *more)
        return [t.detach().numpy().tobytes() for t in (y, *ag.grad((y * y).sum(), leaves))]

    monkeypatch.setattr(pieces.here, "lender", None)
    expected = bits()
    assert set(names) == {threading.current_thread().name}
    names.clear()
    monkeypatch.setattr(pieces.here, "lender", Eager())
    assert bits() == expected
    assert len(set(names)) > 1
