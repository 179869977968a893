"""Steps that several tasks, threads, hooks and subclasses take of one optimiser."""

import asyncio
import copy
import functools
import pickle
import threading

import pytest

import asyncgrad as ag


def model_and_optimizer(monkeypatch, kind=ag.optim.SGD):
    """A parameter with a gradient of 1, and an optimiser that steps in a thread."""
    monkeypatch.setattr(ag.optim.optimizer, "_WORTH_A_THREAD", 0)
    x = ag.zeros(1, requires_grad=True)
    x.grad = ag.ones(1)
    return x, kind([x], lr=0.25)


@pytest.mark.asyncio
async def test_steps_are_taken_in_the_order_in_which_they_begin(monkeypatch):
    """A task that began a step as soon as it had ended one let no other task have its turn."""
    x, optimizer = model_and_optimizer(monkeypatch)
    order = []

    async def train(name):
        for _ in range(4):
            await optimizer.step_async()
            order.append(name)

    await asyncio.gather(train("a"), train("b"), train("c"))
    assert "".join(order) == "abc" * 4
    assert x.item() == -3
    assert optimizer.steps_taken == 12


@pytest.mark.asyncio
async def test_a_step_cancelled_while_it_waits_leaves_its_place_to_the_next(monkeypatch):
    x, optimizer = model_and_optimizer(monkeypatch)
    steps = [asyncio.create_task(optimizer.step_async()) for _ in range(4)]
    await asyncio.sleep(0)
    steps[1].cancel()
    steps[3].cancel()
    found = await asyncio.gather(*steps, return_exceptions=True)
    assert [type(one) for one in found] == [
        type(None), asyncio.CancelledError, type(None), asyncio.CancelledError
    ]  # fmt: skip
    assert x.item() == -0.5
    optimizer.step()
    assert x.item() == -0.75


def test_steps_on_the_loops_of_several_threads_follow_one_another(monkeypatch):
    """A step was never told that one on another thread's loop had ended."""
    x, optimizer = model_and_optimizer(monkeypatch)
    errors = []

    async def train():
        for _ in range(10):
            await optimizer.step_async()

    def run():
        try:
            asyncio.run(asyncio.wait_for(train(), 30))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert x.item() == -7.5


def test_steps_whose_loop_was_closed_keep_no_other_waiting(monkeypatch):
    x, optimizer = model_and_optimizer(monkeypatch)

    async def begin():
        steps = [asyncio.create_task(optimizer.step_async()) for _ in range(2)]
        for step in steps:
            step._log_destroy_pending = False
        await asyncio.sleep(0)
        return steps

    loop = asyncio.new_event_loop()
    steps = loop.run_until_complete(begin())
    loop.close()
    optimizer.step()
    assert x.item() == -0.25
    asyncio.run(optimizer.step_async())
    assert x.item() == -0.5
    del steps


@pytest.mark.asyncio
async def test_a_hook_after_a_step_may_take_another(monkeypatch):
    x, optimizer = model_and_optimizer(monkeypatch)
    handle = optimizer.register_step_post_hook(lambda *_: (handle.remove(), optimizer.step()))
    await optimizer.step_async()
    assert x.item() == -0.5


@pytest.mark.asyncio
async def test_a_hook_after_a_step_of_lbfgs_may_take_another():
    x = ag.zeros(1, requires_grad=True)
    x.grad = ag.ones(1)
    optimizer = ag.optim.LBFGS([x], lr=0.25, max_iter=1)
    handle = optimizer.register_step_post_hook(
        lambda _, args, __: (handle.remove(), optimizer.step(args[1]))
    )
    assert await optimizer.step_async(lambda: 3.0) == 3.0
    assert optimizer.steps_taken == 2


@pytest.mark.asyncio
@pytest.mark.parametrize("least", [0, 1 << 40])
async def test_a_step_of_a_subclass_may_await_step_async(monkeypatch, least):
    """It called itself without end."""

    class Counted(ag.optim.SGD):
        count = 0

        async def step(self, closure=None):
            self.count += 1
            return await super().step_async(closure)

    class Twice(Counted):
        async def step(self, closure=None):
            await super().step()
            return await super().step(closure)

    for kind, updates in ((Counted, 1), (Twice, 2)):
        x, optimizer = model_and_optimizer(monkeypatch, kind)
        monkeypatch.setattr(ag.optim.optimizer, "_WORTH_A_THREAD", least)
        hooks = []
        optimizer.register_step_pre_hook(lambda *_, hooks=hooks: hooks.append("before"))
        optimizer.register_step_post_hook(lambda *_, hooks=hooks: hooks.append("after"))
        assert await optimizer.step(lambda: 3.0) == 3.0
        assert await optimizer.step_async(lambda: 3.0) == 3.0
        assert x.item() == -0.5 * updates
        assert optimizer.count == 2 * updates
        assert hooks == ["before", "after"] * 2
        assert optimizer.steps_taken == 2


@pytest.mark.asyncio
async def test_a_step_of_a_subclass_that_needs_its_closure_gets_it(monkeypatch):
    class Searching(ag.optim.SGD):
        def step(self, closure):
            losses = [closure(), closure()]
            super().step()
            return losses

    x, optimizer = model_and_optimizer(monkeypatch, Searching)
    losses = iter([2.0, 1.0])
    assert await optimizer.step_async(lambda: next(losses)) == [2.0, 1.0]
    assert x.item() == -0.25


@pytest.mark.asyncio
async def test_closures_that_are_awaited_precede_a_step_of_a_subclass(monkeypatch):
    class Own(ag.optim.SGD):
        def step(self, closure=None):
            assert closure is None
            super().step()

    class Closure:
        async def __call__(self):
            return 3.0

    for closure in (Closure(), functools.partial(Closure.__call__, None)):
        x, optimizer = model_and_optimizer(monkeypatch, Own)
        assert await optimizer.step_async(closure) == 3.0
        assert x.item() == -0.25


class Waiting(ag.optim.Optimizer):
    """Updates in a thread: of the first parameter, when the test lets it."""

    def __init__(self, params):
        super().__init__(params, {"lr": 1.0})
        self.begun, self.go_on = threading.Event(), threading.Event()

    def _update(self, group, parameter, gradient):
        self.state[parameter]["count"] = self.state[parameter].get("count", 0) + 1
        self.begun.set()
        assert self.go_on.wait(30)
        self._values(parameter)[...] -= group["lr"] * gradient


async def begun(monkeypatch, *hooks, kind=Waiting):
    """Two parameters, their optimiser, and its step, which waits within the first update."""
    monkeypatch.setattr(ag.optim.optimizer, "_WORTH_A_THREAD", 0)
    parameters = [ag.zeros(1, requires_grad=True) for _ in range(2)]
    for p in parameters:
        p.grad = ag.ones(1)
    optimizer = kind([{"params": p} for p in parameters])
    for hook in hooks:
        optimizer.register_step_pre_hook(hook)
    step = asyncio.create_task(optimizer.step_async())
    await asyncio.to_thread(optimizer.begun.wait, 30)
    return parameters, optimizer, step


@pytest.mark.asyncio
async def test_gradients_that_are_dropped_during_a_step_are_in_it(monkeypatch):
    """The step went on without those that it had not come to."""
    parameters, optimizer, step = await begun(monkeypatch)
    optimizer.zero_grad()
    optimizer.go_on.set()
    await step
    assert [p.item() for p in parameters] == [-1, -1]


@pytest.mark.asyncio
async def test_options_set_during_a_step_are_those_of_the_next(monkeypatch):
    """Parameters that the step had not come to were updated with them."""
    parameters, optimizer, step = await begun(monkeypatch)
    for group in optimizer.param_groups:
        group["lr"] = 2.0
    optimizer.go_on.set()
    await step
    assert [p.item() for p in parameters] == [-1, -1]
    await optimizer.step_async()
    assert [p.item() for p in parameters] == [-3, -3]


@pytest.mark.asyncio
async def test_options_that_a_step_sets_are_kept_but_for_those_that_others_set(monkeypatch):
    """An `_update` that changed an option of its group did so in vain in a thread."""

    class Decaying(Waiting):
        def _update(self, group, parameter, gradient):
            super()._update(group, parameter, gradient)
            group["lr"] /= 2
            group["updates"] = group.get("updates", 0) + 1

    parameters, optimizer, step = await begun(monkeypatch, kind=Decaying)
    optimizer.param_groups[0]["lr"] = 8.0
    optimizer.go_on.set()
    await step
    assert [p.item() for p in parameters] == [-1, -1]
    assert [(group["lr"], group["updates"]) for group in optimizer.param_groups] == [
        (8.0, 1), (0.5, 1)
    ]  # fmt: skip


@pytest.mark.asyncio
@pytest.mark.parametrize("way", ["pass", "in place"])
async def test_a_parameter_whose_gradient_changes_during_a_step_is_not_updated(monkeypatch, way):
    """It was updated with a part of what others were adding."""
    parameters, optimizer, step = await begun(monkeypatch)
    if way == "pass":
        await (parameters[0] * 5).sum().backward()
    else:
        parameters[0].grad.add_(5)
    optimizer.go_on.set()
    with pytest.raises(RuntimeError, match="changed 1 of 2 parameters, or their gradients"):
        await step
    assert [p.item() for p in parameters] == [0, -1]
    await optimizer.step_async()
    assert [p.item() for p in parameters] == [-6, -2]


def _written(p):
    p.add_(5)


def _replaced(p):
    p.data = ag.full((1,), 5.0)


def _stepped(p):
    held = p * p
    ag.optim.SGD([p], lr=5.0, maximize=True).step()
    del held


@pytest.mark.asyncio
@pytest.mark.parametrize("change", [_written, _replaced, _stepped])
@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_parameter_changed_during_a_step_keeps_the_change(monkeypatch, change, cancelled):
    """What others had written was lost."""
    parameters, optimizer, step = await begun(monkeypatch)
    with ag.no_grad():
        change(parameters[0])
    if cancelled:
        step.cancel()
    optimizer.go_on.set()
    with pytest.raises(asyncio.CancelledError if cancelled else RuntimeError) as caught:
        await step
    assert cancelled or "changed 1 of 2 parameters" in str(caught.value)
    assert [p.item() for p in parameters] == [5, -1]
    assert optimizer.steps_taken == 1
    await optimizer.step_async()
    assert [p.item() for p in parameters] == [4, -2]


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["Adam", "Adafactor", "SGD"])
@pytest.mark.parametrize("way", ["thread", "held", "in place"])
async def test_parameters_and_states_before_an_update_that_fails_are_updated(
    monkeypatch, kind, way
):
    """States were updated, and parameters were not if they had got new arrays."""
    monkeypatch.setattr(ag.optim.optimizer, "_WORTH_A_THREAD", 0 if way == "thread" else 1 << 40)

    class Failing(getattr(ag.optim, kind)):
        def _update(self, group, parameter, gradient):
            if parameter is last:
                raise ArithmeticError
            super()._update(group, parameter, gradient)

    first, last, known = (ag.ones(3, requires_grad=True) for _ in range(3))
    for p in (first, last, known):
        p.grad = ag.ones(3)
    held = [p * p for p in (first, last)] if way == "held" else None
    optimizer, other = Failing([first, last]), getattr(ag.optim, kind)([known])
    other.step()
    with pytest.raises(ArithmeticError):
        await optimizer.step_async()
    assert first.tolist() == known.tolist() != last.tolist() == [1, 1, 1]
    assert str(optimizer.state[first]) == str(other.state[known])
    assert not optimizer.steps_taken
    del held


@pytest.mark.asyncio
async def test_a_state_is_neither_saved_nor_replaced_while_a_thread_changes_it(monkeypatch):
    """A checkpoint held entries from before and from after the step."""
    saved, copies = [], []
    before = [
        lambda optimizer, *_: saved.append(optimizer.state_dict()["state"]),
        lambda optimizer, *_: copies.append(copy.copy(optimizer)),
    ]
    _, optimizer, step = await begun(monkeypatch, *before)
    optimizer.register_step_post_hook(lambda *_: saved.append(optimizer.state_dict()["state"]))
    for use in (
        optimizer.state_dict,
        lambda: optimizer.load_state_dict({"state": {}, "param_groups": []}),
        lambda: copy.deepcopy(optimizer),
        lambda: pickle.dumps(optimizer),
    ):
        with pytest.raises(RuntimeError, match="changes the state in a thread"):
            use()
    optimizer.go_on.set()
    await step
    assert saved == [{}, {0: {"count": 1}, 1: {"count": 1}}]
    # The copy's own steps refuse the thread that has called the hook, too.
    assert vars(copies[0])["_hooked"] is None
    optimizer.load_state_dict(optimizer.state_dict())


@pytest.mark.asyncio
async def test_a_state_is_free_after_a_step_that_fails_or_is_cancelled(monkeypatch):
    for failing in (True, False):
        _, optimizer, step = await begun(monkeypatch)
        if failing:
            monkeypatch.setattr(optimizer, "_values", None)
        step.cancel()
        optimizer.go_on.set()
        with pytest.raises((TypeError, asyncio.CancelledError)):
            await step
        optimizer.load_state_dict(optimizer.state_dict())


@pytest.mark.asyncio
async def test_the_state_of_lbfgs_is_not_saved_while_a_thread_changes_it(monkeypatch):
    monkeypatch.setattr(ag.optim.lbfgs, "_WORTH_A_THREAD", -1)
    x = ag.zeros(1, requires_grad=True)
    x.grad = ag.ones(1)
    optimizer = ag.optim.LBFGS([x], max_iter=1)
    errors = []

    class Loss:
        def __float__(self):
            return 1.0

    def slow(iterations, loss):
        with pytest.raises(RuntimeError, match="changes the state in a thread") as caught:
            optimizer.state_dict()
        errors.append(caught.value)
        return advance(iterations, loss)

    advance = ag.optim.lbfgs._advance
    monkeypatch.setattr(ag.optim.lbfgs, "_advance", slow)
    await optimizer.step_async(Loss)
    assert errors
    assert optimizer.state_dict()["state"][0]["n_iter"] == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("least", [0, 1 << 40])
async def test_a_step_of_a_mixin_is_counted_and_calls_hooks(monkeypatch, least):
    class Doubling:
        def step(self, closure=None):
            super().step()
            return super().step(closure)

    class Mixed(Doubling, ag.optim.SGD):
        pass

    x, optimizer = model_and_optimizer(monkeypatch, Mixed)
    monkeypatch.setattr(ag.optim.optimizer, "_WORTH_A_THREAD", least)
    hooks = []
    optimizer.register_step_pre_hook(lambda *_: hooks.append("before"))
    optimizer.register_step_post_hook(lambda *_: hooks.append("after"))
    assert optimizer.step(lambda: 3.0) == 3.0
    assert await optimizer.step_async(lambda: 3.0) == 3.0
    assert x.item() == -1
    assert hooks == ["before", "after"] * 2
    assert optimizer.steps_taken == 2


@pytest.mark.asyncio
async def test_a_mixin_may_define_both_ways_to_step(monkeypatch):
    class Both:
        def step(self, closure=None):
            return "step"

        async def step_async(self, closure=None):
            return "step_async"

    class Mixed(Both, ag.optim.SGD):
        pass

    _, optimizer = model_and_optimizer(monkeypatch, Mixed)
    assert optimizer.step() == "step"
    assert await optimizer.step_async() == "step_async"


@pytest.mark.asyncio
@pytest.mark.parametrize("least", [0, 1 << 40])
async def test_a_subclass_may_extend_both_ways_to_step(monkeypatch, least):
    """Its `step_async` was not counted, and called no hooks."""

    class Own(ag.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

        async def step_async(self, closure=None):
            return await super().step_async(closure)

    x, optimizer = model_and_optimizer(monkeypatch, Own)
    monkeypatch.setattr(ag.optim.optimizer, "_WORTH_A_THREAD", least)
    hooks = []
    optimizer.register_step_pre_hook(lambda *_: hooks.append("before"))
    optimizer.register_step_post_hook(lambda *_: hooks.append("after"))
    optimizer.step()
    await optimizer.step_async()
    assert x.item() == -0.5
    assert hooks == ["before", "after"] * 2
    assert optimizer.steps_taken == 2


@pytest.mark.asyncio
async def test_a_step_of_a_subclass_may_await_that_of_lbfgs():
    """Hooks were called twice."""

    class Awaiting(ag.optim.LBFGS):
        async def step(self, closure):
            return await super().step_async(closure)

    x = ag.zeros(1, requires_grad=True)
    x.grad = ag.ones(1)
    optimizer = Awaiting([x], max_iter=1)
    hooks = []
    optimizer.register_step_pre_hook(lambda *_: hooks.append("before"))
    assert await optimizer.step(lambda: 3.0) == 3.0
    assert await optimizer.step_async(lambda: 3.0) == 3.0
    assert len(hooks) == optimizer.steps_taken == 2


@pytest.mark.asyncio
async def test_step_async_of_a_parent_is_the_step_that_the_parent_defines(monkeypatch):
    """It was that of the optimiser above."""

    class Doubling(ag.optim.SGD):
        def step(self, closure=None):
            super().step()
            return super().step(closure)

    class Awaiting(Doubling):
        async def step(self, closure=None):
            return await super().step_async(closure)

    x, optimizer = model_and_optimizer(monkeypatch, Awaiting)
    await optimizer.step()
    await optimizer.step_async()
    assert x.item() == -1
    assert optimizer.steps_taken == 2
