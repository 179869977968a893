"""The pool lends memory again only when nobody can see it any more."""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from typing import TYPE_CHECKING

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.devices.pool import Pool, pooled_numpy
from asyncgrad.scheduler import Engine

if TYPE_CHECKING:
    from collections.abc import Callable

LARGE = 256 * 1024
F8 = np.dtype("float64")


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Pool:
    """A pool of one's own, and products of NumPy's: an engine would compute them in pieces."""
    monkeypatch.setattr("asyncgrad.devices.pieces.threads", 0)
    fresh = Pool(limit=4 * LARGE)
    monkeypatch.setattr("asyncgrad.devices.pool.POOL", fresh)
    monkeypatch.setattr(Pool, "large", LARGE)
    return fresh


def address(array: np.ndarray) -> int:
    """Where an array's memory starts."""
    return array.__array_interface__["data"][0]


def test_threads_of_an_engine_are_accounted_for_at_each_large_array(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else Linux would let them compute until its next tick while the loop's thread is due."""
    accounted: list[str] = []
    monkeypatch.setattr(
        "asyncgrad.devices.pool.account",
        lambda: accounted.append(threading.current_thread().name),
    )
    x = ag.ones(LARGE // 4)

    def forward() -> None:
        x.exp().sin()

    forward()
    assert accounted == []
    asyncio.run(offloaded(forward))
    assert [name[:10] for name in accounted] == ["asyncgrad_"] * 2


async def offloaded(function: Callable[[], None]) -> None:
    """Run a function in a thread of an engine."""
    await ag.offload(function)


@pytest.mark.usefixtures("no_collector")
def test_memory_is_lent_again_when_the_array_is_gone(pool: Pool) -> None:
    """At once, without the cycle collector."""
    first = pool.take((LARGE // 8,), F8)
    where = address(first)
    del first
    assert address(pool.take((LARGE // 8,), F8)) == where


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[3:5],
        lambda a: a.reshape(2, -1).T,
        lambda a: np.asarray(a),
        lambda a: a.view(np.ndarray),
        memoryview,
        lambda a: np.from_dlpack(a),
    ],
)
def test_what_is_still_seen_is_not_lent_again(pool: Pool, view: object) -> None:
    """Views of views, memoryviews and DLPack exchanges hold the memory."""
    array = pool.take((LARGE // 8,), F8)
    array[:] = 1
    held = view(array)
    del array
    other = pool.take((LARGE // 8,), F8)
    other[:] = 2
    assert np.all(np.asarray(held) == 1)
    assert pool.unused == 0


def test_the_pool_keeps_no_more_than_its_limit(pool: Pool) -> None:
    """What is more goes back to the system."""
    arrays = [pool.take((LARGE // 8,), F8) for _ in range(10)]
    assert pool.unused == 0
    arrays.clear()
    assert pool.unused == pool.limit
    pool.shrink(0)
    assert pool.unused == 0


def lent_and_returned(pool: Pool, size: int, count: int = 1) -> None:
    """Have several blocks of a size in use at once, and then unused."""
    _ = [pool.take((size,), np.dtype("u1")) for _ in range(count)]


def test_a_full_pool_makes_room_for_what_is_needed_now(pool: Pool) -> None:
    """What was lent least lately goes, so that a burst of odd sizes does no harm for good."""
    for size in (LARGE, 2 * LARGE, LARGE // 2, LARGE // 4, LARGE // 4):
        lent_and_returned(pool, size)
    assert pool.unused == pool.limit - LARGE // 4
    lent_and_returned(pool, LARGE)
    lent_and_returned(pool, 3 * LARGE // 2)
    assert pool.unused == 5 * LARGE // 2 + 3 * LARGE // 4
    lent_and_returned(pool, 2 * pool.limit)
    assert pool.unused == 0


def test_what_nobody_needs_goes_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """When much has been lent since without it; what is needed now and then stays."""
    monkeypatch.setattr("asyncgrad.devices.pool._PATIENCE", 10 * LARGE)
    pool = Pool()
    lent_and_returned(pool, 2 * LARGE)
    lent_and_returned(pool, LARGE, 3)
    for _ in range(40):
        lent_and_returned(pool, LARGE // 2)
        lent_and_returned(pool, LARGE)
    assert pool.unused == LARGE + LARGE // 2


def test_the_host_says_how_much_is_kept(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that is set holds at once; `empty_cache` needs no accelerator."""
    monkeypatch.setattr("asyncgrad.devices.cpu.POOL", pool)
    host = ag.device("cpu")
    assert host.cache_limit == pool.limit
    lent_and_returned(pool, LARGE, 3)
    host.cache_limit = 2 * LARGE
    assert pool.unused == 2 * LARGE
    monkeypatch.setattr("asyncgrad.accelerator.accelerators", lambda: ())
    ag.accelerator.empty_cache()
    assert pool.unused == 0
    host.cache_limit = 0
    lent_and_returned(pool, LARGE)
    assert pool.unused == 0
    with pytest.raises(ValueError, match="a number of bytes"):
        host.cache_limit = -1


def test_blocks_are_aligned_and_arrays_own_nothing_else(pool: Pool) -> None:
    """Vector units like 64 bytes."""
    array = pool.take((3, LARGE // 8), F8)
    assert address(array) % 64 == 0
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert type(array) is np.ndarray


def test_a_dead_lease_leaves_nothing_behind(pool: Pool) -> None:
    """No cycle: the lease dies with its last array."""
    array = pool.take((LARGE // 8,), F8)
    lease = weakref.ref(array.base)
    del array
    assert lease() is None


def test_pooled_functions_give_numpys_results(pool: Pool) -> None:
    """Values, shapes and dtypes; small, mixed and integer operands are NumPy's own business."""
    xp = pooled_numpy()
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 300, 400))
    for ours, theirs in (
        (xp.multiply(x, y), np.multiply(x, y)),
        (xp.multiply(x, y[0]), np.multiply(x, y[0])),
        (xp.multiply(x, 2), np.multiply(x, 2)),
        (xp.subtract(1, x), np.subtract(1, x)),
        (xp.tanh(x), np.tanh(x)),
        (xp.add(x, x.astype("float32")), np.add(x, x.astype("float32"))),
        (xp.add(x.astype("int64"), 1), np.add(x.astype("int64"), 1)),
        (xp.multiply(x[:2, :2], 3), np.multiply(x[:2, :2], 3)),
        (xp.dot(x, y.T), np.dot(x, y.T)),
        (xp.matmul(x, y.T), np.matmul(x, y.T)),
        (xp.add.reduce(x), np.add.reduce(x)),
        (xp.greater(x, y), np.greater(x, y)),
    ):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        np.testing.assert_array_equal(ours, theirs)


def test_an_output_given_by_the_caller_is_used(pool: Pool) -> None:
    """By position and by name."""
    xp = pooled_numpy()
    x, out = np.ones((300, 400)), np.empty((300, 400))
    assert xp.add(x, x, out) is out
    assert xp.add(x, x, out=out) is out


def test_large_products_are_numpys_to_the_bit(pool: Pool) -> None:
    """However their operands are laid out."""
    rng = np.random.default_rng(0)
    x, y = rng.random((300, 200)), rng.random((200, 300))
    laid_out = [
        lambda a: a, lambda a: a.T.copy().T, lambda a: np.repeat(a, 2, axis=1)[:, ::2],
        lambda a: np.broadcast_to(a[:1], a.shape), lambda a: a[::-1],
    ]  # fmt: skip
    for first in laid_out:
        for second in laid_out:
            a, b = first(x), second(y)
            assert np.array_equal(pooled_numpy().dot(a, b), np.dot(a, b))
    assert np.array_equal(pooled_numpy().dot(x, x.T), np.dot(x, x.T))


@pytest.mark.parametrize("order", ["K", "C", "F", "A"])
@pytest.mark.parametrize("size", [LARGE // 8, 2])
def test_an_array_like_another_is_laid_out_as_numpys_would_be(
    pool: Pool, order: str, size: int
) -> None:
    """Whether it is in the pool's memory or not."""
    rows = np.zeros((4, size))
    for like in (rows, rows.T, rows[:, ::2], np.broadcast_to(rows[:1], (4, size))):
        for dtype in (None, "float32", F8):
            found = pooled_numpy().empty_like(like, dtype=dtype, order=order)
            expected = np.empty_like(like, dtype=dtype, order=order)
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
            assert found.strides == expected.strides


def test_an_empty_array_that_is_large_comes_from_the_pool(pool: Pool) -> None:
    """And goes back there."""
    for shape, dtype in (((4, LARGE), "float32"), ((2, 3), F8), ((0, LARGE), np.int64)):
        found = pooled_numpy().empty(shape, dtype)
        assert (found.shape, found.dtype) == (shape, np.dtype(dtype))
    large = pooled_numpy().empty((LARGE // 8,))
    assert large.dtype == F8
    before = pool.unused
    del large
    assert pool.unused == before + LARGE


def test_zeros_are_set_in_memory_that_is_lent_again(pool: Pool) -> None:
    """Zeros from the system would come page by page."""
    pooled_numpy().empty((LARGE // 8,)).fill(1)
    assert pool.unused == LARGE
    found = pooled_numpy().zeros(LARGE // 8)
    assert pool.unused == 0
    np.testing.assert_array_equal(found, np.zeros(LARGE // 8), strict=True)
    for shape, dtype in (([4, LARGE], "float32"), ((2, 3), F8), ((0, LARGE), np.int64), (5, "i4")):
        expected = np.zeros(shape, dtype)
        np.testing.assert_array_equal(pooled_numpy().zeros(shape, dtype), expected, strict=True)


def test_a_large_gradient_that_comes_in_columns_is_kept_in_rows() -> None:
    """As PyTorch keeps it: laid out like its leaf."""
    w = ag.ones(LARGE // 256, 64, requires_grad=True)
    factor = ag.arange(64.0).reshape(64, 1)
    (w.T * factor).sum().backward()
    assert w.grad is not None
    assert w.grad.is_contiguous()
    assert np.array_equal(w.grad.numpy(), np.broadcast_to(np.arange(64.0), w.shape))


@pytest.mark.asyncio
@pytest.mark.parametrize("busy_turns", [0, 3])
async def test_an_idle_process_gives_its_memory_back(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, busy_turns: int
) -> None:
    """Some time after its last pass, and not as long as large arrays are made."""
    looks: list[int] = []

    def trim(engine: Engine, lent: int) -> None:
        looks.append(pool.unused)
        if len(looks) <= busy_turns:
            pool.take((LARGE // 8,), F8)
        original(engine, lent)
        if not pool.unused:
            idle.set()

    original, idle = Engine._trim, asyncio.Event()
    pool.limit = 100 * LARGE
    module = sys.modules[Engine.__module__]
    monkeypatch.setattr(module, "POOL", pool)
    monkeypatch.setattr(module, "IDLE_S", 0.0)
    monkeypatch.setattr(Engine, "_trim", trim)
    pool.take((LARGE // 8,), F8)
    x = ag.ones(700, 700, requires_grad=True)
    await (x @ x).sum().backward()
    await idle.wait()
    # A helping thread may return its part of the product after a look; then there is another.
    assert len(looks) > busy_turns
    assert all(looks)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_large_joined_arrays_are_lent(pool: Pool, axis: int) -> None:
    """New memory would be touched page by page, which takes longer than the copy."""
    xp = pooled_numpy()
    parts = [np.full((2, LARGE // 32), number) for number in (1.0, 2.0)]
    for joined, expected in (
        (xp.concatenate(parts, axis=axis), np.concatenate(parts, axis=axis)),
        (xp.stack(parts, axis=axis), np.stack(parts, axis=axis)),
    ):
        np.testing.assert_array_equal(joined, expected)
    assert pool.lent == 2 * LARGE


def test_joined_arrays_that_are_small_or_turned_are_not_lent(pool: Pool) -> None:
    """Their results keep NumPy's order in memory."""
    xp = pooled_numpy()
    turned = np.ones((LARGE // 8, 2)).T
    assert xp.concatenate([turned, turned], axis=1).flags.f_contiguous
    assert xp.concatenate([np.ones(3), np.ones(2)]).tolist() == [1.0] * 5
    assert not pool.lent


def test_large_integers_come_from_the_pool(pool: Pool) -> None:
    """Where the operands alone say the dtype and the layout of the result."""
    xp = pooled_numpy()
    x = np.ones((300, 300), np.int64)
    made = [xp.bitwise_and(x, x), xp.add(x, x), xp.invert(x), xp.floor_divide(x, x)]
    assert pool.lent > 0
    lent = pool.lent
    assert [array.dtype.name for array in made] == ["int64"] * 4
    others = [xp.add(x, 1.5), xp.less(x, x), xp.sqrt(x), xp.add(x.T, x.T)]
    assert pool.lent == lent
    assert [array.dtype.name for array in others] == ["float64", "bool", "float64", "int64"]
    assert others[-1].flags.f_contiguous
