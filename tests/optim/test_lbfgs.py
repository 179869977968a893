"""L-BFGS beside PyTorch's, with closures that are called and with ones that are awaited."""

import asyncio
import copy
import threading

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.optim import LBFGS

CASES = [
    {},
    {"lr": 0.3, "max_iter": 7},
    {"line_search_fn": "strong_wolfe"},
    {"line_search_fn": "strong_wolfe", "history_size": 3, "max_iter": 9},
    {"line_search_fn": "strong_wolfe", "max_eval": 5, "lr": 8.0},
    {"line_search_fn": "strong_wolfe", "lr": 0.01, "tolerance_change": 1e-4},
    {"lr": 0.1, "history_size": 2, "tolerance_grad": 1e-2},
]


def loss_of(p, q):
    """A bent valley, and something that couples the two parameters."""
    x, y = p[:-1], p[1:]
    return (5 * (y - x**2) ** 2 + (1 - x) ** 2).sum() + ((q - p.sum()) ** 2).sum()


def start(library, dtype="float64"):
    values = np.linspace(-1.0, 1.5, 5).astype(dtype), np.ones((2, 2), dtype)
    return [library.tensor(value, requires_grad=True) for value in values]


def closure_of(optimizer, parameters, calls):
    def closure():
        optimizer.zero_grad()
        loss = loss_of(*parameters)
        loss.backward()
        calls.append(loss.item())
        return loss

    return closure


@pytest.mark.torch
@pytest.mark.parametrize("options", CASES)
def test_every_loss_is_pytorchs(options):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    seen = []
    for library in (ag, torch):
        parameters, calls = start(library), []
        optimizer = library.optim.LBFGS(parameters, **options)
        for _ in range(3):
            optimizer.step(closure_of(optimizer, parameters, calls))
        state = optimizer.state_dict()["state"][0]
        seen.append((calls, state["func_evals"], state["n_iter"], [p.tolist() for p in parameters]))
    assert seen[0][1:3] == seen[1][1:3]
    np.testing.assert_allclose(seen[0][0], seen[1][0], rtol=1e-5, atol=1e-9)
    for mine, other in zip(seen[0][3], seen[1][3], strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-7)


@pytest.mark.torch
def test_bfloat16_is_summed_in_float32():
    """In bfloat16 itself a sum of ones stands still at 256."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    found = []
    for library in (ag, torch):
        p = library.ones(3000, dtype=library.bfloat16, requires_grad=True)
        optimizer = library.optim.LBFGS([p], lr=600.0, max_iter=1)
        p.grad = library.ones_like(p)
        optimizer.step(lambda p=p: p.detach().sum())
        found.append(p.tolist())
    assert found[0] == found[1]


@pytest.mark.torch
def test_complex_parameters_are_pairs():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    seen = []
    for library in (ag, torch):
        p = library.tensor([1 + 2j, 3 - 1j], dtype=library.complex128, requires_grad=True)
        optimizer = library.optim.LBFGS([p], lr=0.5, max_iter=4)

        def closure(p=p, optimizer=optimizer):
            optimizer.zero_grad()
            loss = (abs(p - 1j) ** 2).sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        seen.append(p.tolist())
    np.testing.assert_allclose(seen[0], seen[1], rtol=1e-12)


def test_a_step_goes_on_from_a_loaded_state():
    whole, halves = start(ag), start(ag)
    first, calls = LBFGS(whole, lr=0.1), []
    for _ in range(2):
        first.step(closure_of(first, whole, calls))
    second = LBFGS(halves, lr=0.1)
    again = []
    second.step(closure_of(second, halves, again))
    third = LBFGS(halves)
    third.load_state_dict(copy.deepcopy(second.state_dict()))
    third.step(closure_of(third, halves, again))
    assert again == calls
    assert [p.tolist() for p in whole] == [p.tolist() for p in halves]


@pytest.mark.asyncio
@pytest.mark.parametrize("large", [False, True])
async def test_closures_may_be_awaited(large, monkeypatch):
    """With the thread and without; a bystander gets its turns at each loss."""
    if large:
        monkeypatch.setattr(ag.optim.lbfgs, "_WORTH_A_THREAD", 0)
    known, calls = start(ag), []
    optimizer = LBFGS(known, line_search_fn="strong_wolfe")
    with ag.blocking():
        optimizer.step(closure_of(optimizer, known, calls))
    parameters, losses, turns, hooks = start(ag), [], [], []
    optimizer = LBFGS(parameters, line_search_fn="strong_wolfe")
    optimizer.register_step_post_hook(lambda *args: hooks.append(1))

    async def closure():
        optimizer.zero_grad()
        loss = loss_of(*parameters)
        await loss.backward()
        await asyncio.sleep(0)
        losses.append(loss.item())
        return loss

    async def bystander():
        while len(losses) < len(calls):
            turns.append(1)
            await asyncio.sleep(0)

    first, _ = await asyncio.gather(optimizer.step_async(closure), bystander())
    assert losses == calls
    assert first.item() == calls[0]
    assert len(turns) >= len(calls)
    assert hooks == [1]
    assert [p.tolist() for p in parameters] == [p.tolist() for p in known]


@pytest.mark.asyncio
@pytest.mark.parametrize("search", [None, "strong_wolfe"])
@pytest.mark.parametrize("large", [False, True])
async def test_a_step_that_is_cancelled_or_fails_changes_nothing(large, search, monkeypatch):
    """It left the parameters where the line search had last asked for the loss."""
    if large:
        monkeypatch.setattr(ag.optim.lbfgs, "_WORTH_A_THREAD", 0)
    parameters, calls = start(ag), []
    optimizer = LBFGS(parameters, line_search_fn=search, max_iter=5)
    closure = closure_of(optimizer, parameters, calls)

    def tried(last, error):
        if len(calls) == last:
            raise error
        return closure()

    async def awaited(last):
        if len(calls) == last:
            asyncio.current_task().cancel()
            await asyncio.Event().wait()
        with ag.blocking():
            return closure()

    with ag.blocking():
        optimizer.step(closure)
    most = len(calls)
    before = [p.tolist() for p in parameters], str(optimizer.state_dict()["state"])
    assert most > 4
    for last in range(most):
        calls.clear()
        with pytest.raises(ArithmeticError), ag.blocking():
            optimizer.step(lambda last=last: tried(last, ArithmeticError()))
        assert ([p.tolist() for p in parameters], str(optimizer.state_dict()["state"])) == before
        calls.clear()
        step = asyncio.create_task(optimizer.step_async(lambda last=last: awaited(last)))
        with pytest.raises(asyncio.CancelledError):
            await step
        assert ([p.tolist() for p in parameters], str(optimizer.state_dict()["state"])) == before
    with ag.blocking():
        optimizer.step(closure)
    assert [p.tolist() for p in parameters] != before[0]


@pytest.mark.asyncio
async def test_a_step_cancelled_in_its_last_iteration_changes_nothing(monkeypatch):
    """It was complete, but neither counted nor did it call the hooks after it."""
    monkeypatch.setattr(ag.optim.lbfgs, "_WORTH_A_THREAD", -1)
    x = ag.zeros(1, requires_grad=True)
    x.grad = ag.ones(1)
    optimizer = LBFGS([x], max_iter=1)
    loop, advance = asyncio.get_running_loop(), ag.optim.lbfgs._advance
    reached = threading.Event()

    def cancel():
        step.cancel()
        reached.set()

    def cancelled(iterations, loss):
        over = advance(iterations, loss)
        assert x.item() == -1
        loop.call_soon_threadsafe(cancel)
        reached.wait(30)
        return over

    monkeypatch.setattr(ag.optim.lbfgs, "_advance", cancelled)
    step = asyncio.create_task(optimizer.step_async(lambda: 3.0))
    with pytest.raises(asyncio.CancelledError):
        await step
    assert x.item() == optimizer.steps_taken == 0
    assert optimizer.state_dict()["state"] == {0: {}}


@pytest.mark.asyncio
async def test_no_state_is_loaded_while_a_step_awaits_its_closure():
    """The step went on with the old state, and what was loaded was lost."""
    x = ag.zeros(1, requires_grad=True)
    x.grad = ag.ones(1)
    optimizer = LBFGS([x], max_iter=1)
    state = optimizer.state_dict()

    async def closure():
        with pytest.raises(RuntimeError, match=r"LBFGS.load_state_dict: another task's step_async"):
            optimizer.load_state_dict(state)
        return 3.0

    await optimizer.step_async(closure)
    assert optimizer.state_dict()["state"][0]["n_iter"] == 1
    optimizer.load_state_dict(state)
    assert optimizer.state_dict()["state"] == {}


def test_graphs_keep_the_values_they_were_built_with():
    p = ag.tensor([3.0, 4.0], requires_grad=True)
    held = (p**3).sum()
    optimizer = LBFGS([p], lr=0.1, max_iter=3)

    def closure():
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert p.tolist() != [3.0, 4.0]
    assert ag.grad(held, p)[0].tolist() == [27.0, 48.0]


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda p: LBFGS([p], lr=-1.0), ValueError),
        (lambda p: LBFGS([{"params": [p]}, {"params": [ag.ones(1)]}]), ValueError),
        (lambda p: LBFGS([p]).step(), TypeError),
        (
            lambda p: LBFGS([p], line_search_fn="golden").step(lambda: 1.0),
            RuntimeError,
        ),
    ],
)
def test_what_can_not_be_done_is_refused(make, error):
    p = ag.tensor([3.0], requires_grad=True)
    p.grad = ag.ones(1)
    with pytest.raises(error):
        make(p)


def test_without_parameters_to_change_nothing_happens():
    p = ag.zeros(0, requires_grad=True)
    optimizer = LBFGS([p])
    assert optimizer.step(lambda: 5.0) == 5.0
