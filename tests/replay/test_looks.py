"""Values that Python reads from tensors: returned anew, or compared with those of before."""

import math

import numpy as np
import pytest
from replay_counts import replays

import asyncgrad as ag
from asyncgrad import nn


class Training:
    """A model, its optimiser, and steps over them."""

    def __init__(self):
        self.model = nn.Linear(3, 2)
        with ag.no_grad():
            for p in self.model.parameters():
                p.copy_(ag.arange(float(p.numel())).reshape(p.shape) / 7)
        self.update = ag.optim.Adam(self.model.parameters(), lr=0.1)

    def step(self, x):
        self.update.zero_grad()
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        self.update.step()
        return loss.item()


def _direct(x):
    return x.sum().item()


def _in_containers(x):
    total = float(x.sum())
    return {"total": total, "all": (x.tolist(), [x.mean().item(), 3])}, total


def _in_a_block(x):
    with ag.no_grad():
        return [x.std().item()]


def _set_in_a_block(x):
    with ag.no_grad():
        total = x.sum().item()
    return x.detach() * 2, total


def _set_in_a_branch(x):
    total = x.sum().item() if x.ndim == 1 else None
    return total, x * 2


def _before_changes(x):
    total = x.sum().item()
    y = x.clone()
    y = y * 3
    return y.mean().item(), total, y


@pytest.mark.parametrize("function", [
    _direct, _in_containers, _in_a_block, _set_in_a_block, _set_in_a_branch, _before_changes,
])  # fmt: skip
def test_what_is_only_returned_is_read_anew(function):
    """Such numbers are results like tensors; no value is compared."""
    fast = ag.compile(function, fullgraph=True)
    for n in range(4):
        x = ag.arange(3.0) * n - 1
        assert repr(fast(x)) == repr(function(x))
    assert replays(fast) == 3
    assert "Python sees" not in fast.explain()


def _of_a_helper(x):
    y = x * 2
    value = _direct(y)
    return value, y


def _as_another_type(x):
    return int(x.sum())


def _by_a_key(x):
    return sorted([x * 2, x], key=lambda part: part.sum().item())


def _real(x):
    return float(ag.complex(x, x * 0).sum())


def _of_a_function(x):
    return math.sqrt(abs(x.sum()))


def _in_order(x):
    return sorted(map(ag.Tensor.item, x.unbind()))


def _in_order_of_floats(x):
    return sorted(map(float, x.unbind()))


def _scaled(x):
    return x * x.sum().item()


def _as_a_key(x):
    return {x.sum().item(): 1}


def _compared(x):
    total = x.sum().item()
    return total, total > 2


def _passed_on(x):
    return abs(x.sum().item())


def _after_a_call(x):
    total = x.sum().item()
    return max(total, max(1, 0, -1, -2)), total


def _behind_a_block(x):
    with ag.no_grad():
        total = x.sum().item()
    return total * 2


def _in_a_closure(x):
    total = x.sum().item()
    return (lambda: total)()


def _in_text(x):
    return f"{x.sum().item():.3f}"


def _in_a_loop(x):
    total = 0.0
    for part in x:
        total += part.item()
    return total


def _in_a_comprehension(x):
    return [part.item() for part in x]


@pytest.mark.parametrize("function", [
    _of_a_function, _in_order, _in_order_of_floats, _of_a_helper, _as_another_type, _by_a_key,
    _real, _scaled, _as_a_key, _compared, _passed_on, _after_a_call, _in_a_closure, _in_text,
    _in_a_loop, _in_a_comprehension, _behind_a_block,
])  # fmt: skip
def test_numbers_that_are_used_are_compared(function):
    """Each value that was seen has a program; values that never come again make calls eager."""
    fast = ag.compile(function)
    for n in (1, 2, 1, 2, 1, -1, 0, -0.0, *range(3, 30)):
        x = ag.arange(3.0) * n
        assert repr(fast(x)) == repr(function(x)), n
    assert 3 <= replays(fast) < 10
    assert "Python sees other values than before" in fast.explain()
    with pytest.raises(RuntimeError, match=r"fullgraph.*Python sees values.*test_looks"):
        ag.compile(function, fullgraph=True)(ag.ones(3))


def test_the_sign_of_nan_is_compared():
    """`repr` does not show it, but `copysign` may follow it."""
    fast = ag.compile(lambda x, y: y * math.copysign(1.0, x.item()))
    for number in [float("nan"), -float("nan")] * 2:
        sign = math.copysign(1.0, number)
        assert fast(ag.tensor(number), ag.ones(2)).tolist() == [sign, sign]
    assert replays(fast) == 2


def test_a_training_step_that_returns_its_loss():
    """The most usual look of all."""
    ours, theirs = Training(), Training()
    fast = ag.compile(ours.step)
    for n in range(6):
        x = ag.arange(6.0).reshape(2, 3) * (n + 1)
        assert fast(x) == theirs.step(x)
    assert replays(fast) == 5


def test_checks_come_before_changes():
    """A step that leaves out bad batches: nothing has changed when the other way is taken."""

    def make():
        training = Training()

        def step(x):
            training.update.zero_grad()
            loss = (training.model(x) ** 2).mean()
            if not ag.isfinite(loss):
                return None
            loss.backward()
            training.update.step()
            return loss.item()

        return training, step

    (ours, mine), (theirs, step) = make(), make()
    fast = ag.compile(mine)
    for value in (1.0, 2.0, float("inf"), 3.0, float("nan"), 4.0):
        x = ag.full((2, 3), value)
        assert fast(x) == step(x)
        for p, q in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
            assert p.tolist() == q.tolist()
            assert (p.grad is None) == (q.grad is None)
            assert p.grad is None or p.grad.tolist() == q.grad.tolist()
    assert replays(fast) == 4


def test_checks_after_changes_make_calls_eager():
    """What was changed can't be taken back, so the look must come first."""
    training = Training()

    @ag.compile
    def step(x):
        training.update.step()
        if training.model.weight.sum() > 0:
            return x * 2
        return x

    for _ in range(3):
        step(ag.ones(1))
    assert replays(step) == 0
    assert "after something has changed" in step.explain()


def test_a_look_at_memory_that_another_argument_has_changed():
    """Such a look can't come first, although integers are not what optimisers change."""

    def step(x, y):
        x.add_(1)
        return y * 2 if y.sum().item() > 6 else y * 3

    fast = ag.compile(step)
    ours, theirs = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for _ in range(2):
        for _ in range(5):
            found = fast(ag.from_numpy(ours), ag.from_numpy(ours))
            assert found.tolist() == step(ag.from_numpy(theirs), ag.from_numpy(theirs)).tolist()
        ours[:] = theirs[:] = 0


@pytest.mark.asyncio
async def test_awaited_calls_look_too():
    """Coroutine functions return numbers, and branch by them."""
    w = ag.ones(3, requires_grad=True)

    @ag.compile
    async def step(x):
        loss = (w * x).sum()
        if loss < 0:
            return None, loss.item()
        await loss.backward()
        return w.grad.sum(), loss.item()

    for n in (1.0, 2.0, -1.0, 3.0, -2.0):
        grad, loss = await step(ag.full((3,), n))
        assert loss == 3 * n
        assert (grad is None) == (n < 0)
    assert replays(step) == 3
    assert w.grad.tolist() == [6.0] * 3


@pytest.mark.parametrize(
    ("function", "number"),
    [
        (lambda x, index: ag.take(x, index) * 2, 4),
        (lambda x, index: ag.take(x, index) * 2, -5),
        (lambda x, index: ag.index_copy(x, 0, index, x[:2] * 2), -1),
    ],
    ids=["too large", "too small", "index_copy"],
)
def test_an_index_out_of_range_is_an_error_in_a_replay_too(function, number):
    """A replay that did not look at it would take another element."""
    fast = ag.compile(function)
    for _ in range(3):
        index = ag.tensor([1, 3])
        assert fast(ag.arange(4.0), index).tolist() == function(ag.arange(4.0), index).tolist()
    assert "2 replayed" in fast.explain()
    for call in (function, fast):
        with pytest.raises(IndexError, match="out of range"):
            call(ag.arange(4.0), ag.tensor([1, number]))
