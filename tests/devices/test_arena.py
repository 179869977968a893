"""Arrays of one replay lie in one block, and none is written to while another is alive there."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncgrad.devices import arena as arenas
from asyncgrad.devices.arena import Arena, BlockPlan, Lives, reshaped
from asyncgrad.devices.pieces import here
from asyncgrad.devices.pool import POOL, Pool, rounded

if TYPE_CHECKING:
    from collections.abc import Callable

F4 = np.dtype("float32")
#: What a program does: takes an array of so many numbers, or drops that one of those it has.
ACTIONS = st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=60)


@pytest.fixture(autouse=True)
def _nothing_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool without unused blocks, and no arena."""
    monkeypatch.setattr(here, "arena", None)
    POOL.shrink(0)


def run(
    arena: Arena | Lives, actions: list[tuple[bool, int]], begin: Callable[[], object] = int
) -> list[np.ndarray]:
    """Take and drop arrays in an arena; returns those that are left, each full of its number."""
    held: list[tuple[int, np.ndarray]] = []
    arena.start()
    begin()
    here.arena = arena
    try:
        for number, (takes, size) in enumerate(actions):
            if takes or not held:
                array = POOL.take((size * 100,), F4)
                assert array.ctypes.data % 64 == 0
                array.fill(number)
                held.append((number, array))
                del array
            else:
                del held[size % len(held)]
            # Nobody has written to what is alive.
            assert all((array == n).all() for n, array in held)
    finally:
        here.arena = None
    return [array for _, array in held]


def planned(actions: list[tuple[bool, int]]) -> BlockPlan:
    """The places of the arrays of a run that leaves none."""
    lives = Lives()
    run(lives, actions)
    assert lives.end()
    return BlockPlan(lives)


@given(first=ACTIONS, later=st.lists(ACTIONS, max_size=3))
def test_no_array_is_written_to_whatever_a_later_run_does(first, later) -> None:
    """Also if it takes other arrays than planned, and if some outlive it."""
    plan = planned(first)
    kept = []
    for actions in (first, *later, first):
        arrays = run(Arena(plan), actions)
        kept.append((arrays, [array.copy() for array in arrays]))
    for arrays, values in kept:
        for array, value in zip(arrays, values, strict=True):
            assert (array == value).all()


def test_arrays_of_other_sizes_take_the_place_of_dead_ones() -> None:
    """The pool would need a block of each size."""
    sizes = (40, 20, 20, 10, 30)
    actions = [action for size in sizes for action in ((True, size), (False, 0))]
    assert planned(actions).size == 40 * 100 * 4


def test_arrays_that_live_together_do_not_overlap() -> None:
    """The block is as large as what is alive at once, if that can be."""
    drop = (False, 0)
    actions = [(True, 16), (True, 32), drop, (True, 16), drop, (True, 32), drop, drop]
    lives = Lives()
    run(lives, actions)
    plan = BlockPlan(lives)
    assert plan.size == 48 * 100 * 4
    known = [life for life in lives.known() if life is not None]
    ranges = {
        size: [(plan.starts[n], plan.starts[n] + size) for n in turns if n is not None]
        for size, turns in plan.turns.items()
    }
    spans = [(life, ranges[life.size].pop(0)) for life in known]
    for (one, at), (other, there) in itertools.combinations(spans, 2):
        assert not one.meets(other) or at[1] <= there[0] or there[1] <= at[0]


def test_what_may_live_for_ever_is_never_in_the_block() -> None:
    """Otherwise it would hold all of it."""
    lives = Lives()
    actions = [(True, 10), (True, 20), (False, 0)]
    kept = run(lives, actions)
    assert not lives.end()
    del kept
    lives.start()
    kept = run(lives, actions)
    assert lives.end()
    plan = BlockPlan(lives)
    assert plan.turns == {4000: [0], 8000: [None]}
    kept = run(Arena(plan), actions)
    unused = POOL.unused
    del kept
    assert POOL.unused == unused + rounded(8000)


def test_what_lives_until_the_next_run_is_in_the_block() -> None:
    """As gradients do, which a step sets to None at its beginning."""
    drop = (False, 0)
    lives = Lives()
    kept: list[np.ndarray] = []

    def step(arena: Arena | Lives) -> None:
        actions = [(True, 16), (True, 32), drop, (True, 48), drop]
        kept.extend(run(arena, actions, begin=kept.clear))

    step(lives)
    assert not lives.end()
    step(lives)
    assert lives.end()
    plan = BlockPlan(lives)
    assert plan.turns == {6400: [2], 12800: [1], 19200: [0]}
    assert plan.size == 80 * 100 * 4
    kept.clear()
    POOL.shrink(0)
    arena = Arena(plan)
    for _ in range(3):
        step(arena)
        assert np.shares_memory(kept[0], arena._block.memory)
    # If the caller keeps it, the next one comes from the pool.
    other = kept[0]
    step(arena)
    assert not np.shares_memory(kept[0], arena._block.memory)
    assert (other == 3).all()


def test_what_outlives_a_later_run_holds_the_block() -> None:
    """The next run has another."""
    plan = planned([(True, 10), (False, 0)])
    POOL.shrink(0)
    (kept,) = run(Arena(plan), [(True, 10)])
    assert POOL.unused == 0
    view = kept[3:5]
    del kept
    run(Arena(plan), [(True, 10), (False, 0)])
    assert POOL.unused == plan.size
    assert (view == 0).all()
    del view
    assert POOL.unused == 2 * plan.size


def test_more_arrays_than_are_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The greatest are."""
    monkeypatch.setattr(arenas, "_MOST", 2)
    plan = planned([(True, 10), (True, 30), (True, 20), *[(False, 0)] * 3])
    assert plan.turns == {4000: [None], 12000: [0], 8000: [1]}


def test_a_block_of_dead_arrays_is_poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """As blocks of the pool are, if memory is."""
    monkeypatch.setattr(Pool, "poison", True)
    actions = [(True, 10), (True, 20), (False, 0), (False, 0)]
    arena = Arena(planned(actions))
    run(arena, actions)
    assert np.isnan(arena._block.memory.view(F4)).all()


def test_blocks_that_are_lent_again_are_not_freed() -> None:
    """They stay with whom they were lent to."""
    lives = Lives()
    run(lives, [(True, 10), (True, 20), (False, 0), (False, 0)])
    array = POOL.take((2000,), F4)
    assert lives.end()
    assert POOL.unused == 0
    array.fill(1)
    del array
    assert POOL.unused == rounded(8000)


@pytest.mark.skipif(np.__version__.startswith("2.0."), reason="this NumPy can't refuse to copy")
def test_a_large_array_is_reshaped_in_the_arena() -> None:
    """If that copies; a view stays one."""
    x = np.arange(1 << 17, dtype=F4).reshape(256, 512)
    lives = Lives()
    here.arena = lives
    copy = reshaped(x.T, (1 << 17,))
    assert (copy == x.T.reshape(-1)).all()
    assert [size for size, *_ in lives.found] == [x.nbytes]
    assert np.shares_memory(reshaped(x[:, :256], (2, 128, 256)), x)
    assert np.shares_memory(reshaped(x, (512, 256)), x)
    assert len(lives.found) == 1
