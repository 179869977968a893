"""Long work comes in slices, and these are longer where others want the core."""

from itertools import pairwise

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.devices import cores, pieces
from asyncgrad.ops.fused import PART, assign


class _Clock:
    """Has every slice wait for as long as it is told."""

    def __init__(self, waits):
        self._waits = iter(waits)
        self.now = 0
        self.looks = 0
        self.offers = 0

    def wall(self):
        self.looks += 1
        if self.looks % 2 == 0:
            self.now += next(self._waits, 0)
        return self.now

    def offer(self):
        self.offers += 1


@pytest.fixture
def clock(monkeypatch):
    def install(waits=()):
        clock = _Clock(waits)
        monkeypatch.setattr(cores, "_stretch", 1)
        monkeypatch.setattr(cores, "perf_counter_ns", clock.wall)
        monkeypatch.setattr(cores, "thread_time_ns", lambda: 0)
        monkeypatch.setattr(cores, "_yield", clock.offer)
        return clock

    return install


def lengths(slices):
    return [part.stop - part.start for part in slices]


def test_slices_follow_one_another_and_offer_the_core_between(clock):
    seen = clock()
    slices = list(cores.divided(1000, 64))
    assert slices[0].start == 0
    assert slices[-1].stop >= 1000
    assert all(before.stop == after.start for before, after in pairwise(slices))
    assert set(lengths(slices)) == {64}
    assert seen.offers == len(slices) == 16


def test_items_come_in_turns_between_which_the_core_is_offered(clock):
    seen = clock()
    assert [(item, seen.offers) for item in cores.in_turns("abcde", 2)] == [
        ("a", 0), ("b", 0), ("c", 1), ("d", 1), ("e", 2),
    ]  # fmt: skip


def test_the_steps_of_an_lstm_offer_the_core_while_an_engine_lives(clock, monkeypatch):
    seen = clock()
    monkeypatch.setattr(pieces, "threads", 1)
    layer = ag.nn.LSTM(3, 2)
    out = layer(ag.ones(9, 1, 3))[0]
    assert seen.offers == 5
    out.sum().backward()
    assert seen.offers == 10


def test_slices_are_longer_while_each_end_means_waiting(clock):
    seen = clock([1_000_000] * 5)
    assert lengths(cores.divided(1000, 10)) == [10, 70, 490, 640]
    assert seen.offers == 1


def test_a_loop_that_handles_events_is_waited_for(clock):
    seen = clock([500_000] * 5)
    assert lengths(cores.divided(50, 10)) == [10] * 5
    assert seen.offers == 5


def test_a_long_wait_makes_slices_long_at_once_and_calm_ones_shorter_again(clock):
    seen = clock([4_000_000])
    assert lengths(cores.divided(400, 10)) == [10, 270, 130]
    # What is learnt in one array is known in the next.
    assert lengths(cores.divided(100, 10)) == [60, 30, 10]
    assert seen.offers == 2


def test_waiting_has_a_bound(clock):
    clock([10**12] * 3)
    assert lengths(cores.divided(1000, 1)) == [1, 64, 64, 64, 32, 16, 8, 4, 2] + [1] * 745


@pytest.mark.parametrize("shape", [(PART * 3 + 5,), (3, PART + 1), (1, PART * 2), (PART, 2, 3)])
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_large_gradients_are_what_one_call_makes_of_them(shape, dtype):
    rng = np.random.default_rng(0)
    gradients = [rng.standard_normal(shape).astype(dtype) for _ in range(4)]
    value = ag.tensor(np.zeros(shape, dtype), requires_grad=True)
    for gradient in gradients:
        (value * 1).backward(ag.from_numpy(gradient))
    # One number for all elements: they lie in one place.
    value.backward(ag.tensor(gradients[0].flat[0]).expand(shape))
    first, *others = gradients
    expected = first.copy()
    for gradient in (*others, first.flat[0]):
        expected += gradient
    np.testing.assert_array_equal(value.grad.numpy(), expected)


def test_a_gradient_that_is_somebody_elses_is_copied():
    value = ag.tensor(np.ones(PART + 3, np.float32), requires_grad=True)
    gradient = ag.tensor(np.full(PART + 3, 2.0, np.float32))
    value.backward(gradient)
    gradient.fill_(5.0)
    np.testing.assert_array_equal(value.grad.numpy(), 2.0)


def test_large_arrays_of_any_layout_are_put_into_others():
    values = np.arange(6 * PART, dtype=np.float32)
    for given in (values, values.reshape(6, PART), values.reshape(6, PART).T, values[::-2]):
        target = np.empty(given.shape, np.float32)
        assign(target, given)
        np.testing.assert_array_equal(target, given)
