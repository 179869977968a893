"""What all optimisers share."""

import asyncio
import copy
import inspect
import pickle
import threading

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.errors import PendingBackwardError


def parameter(*values):
    return ag.tensor(list(values), dtype=ag.float64, requires_grad=True)


@pytest.mark.parametrize("name", [name for name in ag.optim.__all__ if name[0].isupper()])
@pytest.mark.parametrize("given", [{}, {"foreach": True}, {"fused": True}])
def test_the_options_of_a_group_are_the_arguments(name, given):
    """Options are the local names of `__init__`; any other one there would become an option."""
    kind = getattr(ag.optim, name)
    names = [*inspect.signature(kind).parameters][1:]
    if name == "Optimizer" or not given.keys() <= {*names}:
        return
    optimizer = kind([ag.ones(2, 2, requires_grad=True)], **given)
    more = ["decoupled_weight_decay"] if name == "AdamW" else []
    assert sorted(optimizer.defaults) == sorted(names + more)
    assert sorted(optimizer.param_groups[0]) == sorted([*names, *more, "params"])


def test_groups_have_options_of_their_own():
    a, b = parameter(1.0), parameter(1.0)
    optimizer = ag.optim.SGD([{"params": a, "lr": 1.0}, {"params": [b]}], lr=0.1)
    (a.sum() + b.sum()).backward()
    optimizer.step()
    assert a.item() == 0.0
    assert b.item() == 0.9
    optimizer.param_groups[1]["lr"] = 0.5
    optimizer.step()
    assert b.item() == 0.4
    assert "lr: 0.5" in repr(optimizer)


def test_a_dictionary_becomes_the_group_itself():
    """Optimisers around another one share its groups: a scheduler of one sets the rates of both."""
    given = {"params": (x for x in [parameter(1.0)])}
    inner = ag.optim.SGD([given], lr=0.1)
    outer = ag.optim.SGD(inner.param_groups, lr=0.5)
    assert outer.param_groups[0] is inner.param_groups[0] is given
    outer.step()
    ag.optim.lr_scheduler.ExponentialLR(outer, 0.5).step()
    assert given["lr"] == 0.05
    refused = {"params": parameter(1.0) * 2}
    with pytest.raises(ValueError, match="non-leaf"):
        inner.add_param_group(refused)
    assert [*refused] == ["params"]
    with pytest.raises(ValueError, match=r"empty parameter list\. .*ModuleList"):
        ag.optim.SGD([], 0.1)


def test_names_are_kept():
    layer = ag.nn.Linear(1, 1)
    optimizer = ag.optim.SGD(layer.named_parameters(), lr=0.1)
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    assert optimizer.param_groups[0]["params"] == [layer.weight, layer.bias]
    optimizer.load_state_dict(ag.optim.SGD(layer.parameters(), lr=0.2).state_dict())
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    assert optimizer.param_groups[0]["lr"] == 0.2


def test_a_parameter_twice_in_a_group_is_warned_of():
    a = parameter(1.0)
    with pytest.warns(UserWarning, match="duplicate parameters"):
        ag.optim.SGD([a, a], lr=0.1)


@pytest.mark.filterwarnings("ignore:.*duplicate parameters")
@pytest.mark.parametrize("way", ["in place", "while a graph holds it", "in a thread"])
def test_a_parameter_twice_in_a_group_is_updated_twice(monkeypatch, way):
    """A second new array, made from the old values, took the place of the first."""
    monkeypatch.setattr(ag.optim.optimizer, "_WORTH_A_THREAD", 0)
    a = parameter(1.0)
    a.grad = ag.ones_like(a)
    held = a * a if way == "while a graph holds it" else None
    optimizer = ag.optim.SGD([a, a], lr=0.25)
    if way == "in a thread":
        asyncio.run(optimizer.step_async())
    else:
        optimizer.step()
    assert a.item() == 0.5
    del held


def test_parameters_without_gradient_stay():
    a, b = parameter(1.0), parameter(2.0)
    optimizer = ag.optim.Adam([a, b], lr=0.1, weight_decay=1.0)
    a.sum().backward()
    optimizer.step()
    assert b.item() == 2.0
    assert b not in optimizer.state
    assert b._version == 0


def test_a_step_works_in_place_and_counts_as_a_change():
    a = parameter(1.0, 2.0)
    array = a._array
    a.grad = ag.ones(2, dtype=ag.float64)
    ag.optim.SGD([a], lr=0.1).step()
    assert a._array is array
    assert a._version == 1
    assert a.is_leaf


def test_a_step_is_silent_where_pytorch_is():
    a = parameter(1.0)
    a.grad = ag.tensor([float("inf")], dtype=ag.float64)
    for _ in range(2):
        ag.optim.Adam([a], lr=0.1).step()
    assert np.isnan(a.item())


def test_zero_grad_drops_or_clears():
    a = parameter(1.0)
    optimizer = ag.optim.SGD([a], lr=0.1)
    a.sum().backward()
    grad = a.grad
    optimizer.zero_grad(set_to_none=False)
    assert a.grad is grad
    assert grad.item() == 0.0
    optimizer.zero_grad()
    assert a.grad is None


def test_zero_grad_cuts_gradients_off_their_graph():
    a = parameter(2.0)
    optimizer = ag.optim.SGD([a], lr=0.1)
    (a**2).sum().backward(create_graph=True)
    assert a.grad.requires_grad
    optimizer.zero_grad(set_to_none=False)
    assert not a.grad.requires_grad
    assert a.grad.item() == 0.0


def test_closures_compute_the_loss_with_gradients():
    a = parameter(3.0)
    optimizer = ag.optim.SGD([a], lr=0.5)

    def closure():
        optimizer.zero_grad()
        loss = (a * a).sum()
        loss.backward()
        return loss

    with ag.no_grad():
        assert optimizer.step(closure).item() == 9.0
    assert a.item() == 0.0


class Plain(ag.optim.Optimizer):
    """An optimiser that is written as PyTorch's programs write them."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @ag.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with ag.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(p.grad, alpha=-group["lr"])
                    self.state[p]["n"] = self.state[p].get("n", 0) + 1
        return loss


def test_optimisers_may_define_their_step():
    a = parameter(1.0)
    optimizer = Plain([a], lr=0.25)
    schedule = ag.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    calls = []
    optimizer.register_step_pre_hook(lambda o, args, kwargs: calls.append((args, kwargs)))
    optimizer.register_step_post_hook(lambda o, args, kwargs: calls.append("post"))
    a.grad = ag.ones(1, dtype=ag.float64)
    assert optimizer.step(closure=lambda: 5) == 5
    schedule.step()
    assert a.item() == 0.75
    assert optimizer.state_dict()["state"] == {0: {"n": 1}}
    (args, kwargs), post = calls
    assert args == (optimizer,)
    assert list(kwargs) == ["closure"]
    assert post == "post"


def test_hooks_of_all_optimisers_surround_an_optimisers_own():
    from asyncgrad.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    a = parameter(1.0)
    optimizer = ag.optim.SGD([a], lr=0.25)
    optimizer.register_step_pre_hook(lambda *given: calls.append("own, before"))
    optimizer.register_step_post_hook(lambda *given: calls.append("own, after"))
    with (
        register_optimizer_step_pre_hook(lambda o, args, kwargs: calls.append(o)),
        register_optimizer_step_post_hook(lambda o, args, kwargs: calls.append(o)),
    ):
        calls = []
        optimizer.step()
        assert calls == [optimizer, "own, before", "own, after", optimizer]
    calls = []
    optimizer.step()
    assert calls == ["own, before", "own, after"]


def test_a_step_that_calls_the_one_above_is_one_step():
    class Noisy(ag.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    a = parameter(1.0)
    optimizer = Noisy([a], lr=0.25)
    calls = []
    optimizer.register_step_post_hook(lambda *args: calls.append(1))
    a.grad = ag.ones(1, dtype=ag.float64)
    optimizer.step()
    assert calls == [1]
    assert optimizer.steps_taken == 1
    assert a.item() == 0.75


@pytest.mark.asyncio
async def test_an_awaited_step_is_the_one_that_a_subclass_defines():
    """What a subclass does beside the update was left out without a word."""

    class Capped(ag.optim.SGD):
        def step(self, closure=None):
            super().step(closure)
            for group in self.param_groups:
                for p in group["params"]:
                    p.detach().clamp_(max=0.5)
            return "capped"

    class Awaited(Capped):
        async def step(self):
            await asyncio.sleep(0)
            return super().step()

    async def closure():
        loss = (a * a).sum()
        await loss.backward()
        return loss.item()

    for kind in (Plain, Capped, Awaited):
        a = parameter(1.0)
        optimizer = kind([a], lr=0.25)
        a.grad = ag.ones(1, dtype=ag.float64)
        assert await optimizer.step_async() == (None if kind is Plain else "capped")
        assert a.item() == (0.75 if kind is Plain else 0.5)
        assert optimizer.steps_taken == 1
        a.grad = None
        assert await optimizer.step_async(closure) == a.grad.item() ** 2 / 4
        assert optimizer.steps_taken == 2


def test_an_optimiser_without_a_step_says_so():
    a = parameter(1.0)
    optimizer = ag.optim.Optimizer([a], {})
    a.grad = ag.ones(1, dtype=ag.float64)
    with pytest.raises(NotImplementedError, match="step"):
        optimizer.step()


@pytest.mark.asyncio
async def test_hooks_surround_a_step_that_is_awaited():
    """A step that a subclass defines may be a coroutine function."""
    calls = []

    class Awaited(ag.optim.Optimizer):
        async def step(self, number):
            await asyncio.sleep(0)
            calls.append(number)
            return number

    class Twice(Awaited):
        async def step(self, number):
            return await super().step(number) + await super().step(number)

    optimizer = Twice([parameter(1.0)], {})
    optimizer.register_step_pre_hook(lambda o, args, kwargs: ((o, 2 * args[1]), kwargs))
    optimizer.register_step_post_hook(lambda *args: calls.append("after"))
    assert await optimizer.step(3) == 12
    assert calls == [6, 6, "after"]
    assert optimizer.steps_taken == 1


def test_hooks_before_the_step_may_replace_its_arguments():
    a = parameter(1.0)
    optimizer = ag.optim.SGD([a], lr=1.0)
    handle = optimizer.register_step_pre_hook(lambda o, args, kwargs: ((o, lambda: 7), {}))
    assert optimizer.step() == 7
    handle.remove()
    optimizer.register_step_pre_hook(lambda o, args, kwargs: 3)
    with pytest.raises(RuntimeError, match="must return None or a tuple"):
        optimizer.step()


def test_step_hooks():
    a = parameter(1.0)
    optimizer = ag.optim.SGD([a], lr=1.0)
    calls = []
    optimizer.register_step_pre_hook(lambda o, args, kwargs: calls.append(("pre", a.item())))
    after = optimizer.register_step_post_hook(lambda o, a_, k: calls.append(("post", a.item())))
    a.grad = ag.ones(1, dtype=ag.float64)
    optimizer.step()
    after.remove()
    optimizer.step()
    assert calls == [("pre", 1.0), ("post", 0.0), ("pre", 0.0)]


def test_loaded_state_is_a_copy_of_the_parameters_dtype():
    a, b = parameter(1.0), ag.ones(1, requires_grad=True)
    first, second = ag.optim.Adam([a], lr=0.1), ag.optim.Adam([b], lr=0.5)
    a.sum().backward()
    first.step()
    second.load_state_dict(first.state_dict())
    state = second.state[b]
    assert state["exp_avg"].dtype == np.float32
    assert state["step"].item() == 1.0
    assert second.param_groups[0]["lr"] == 0.1
    assert not np.shares_memory(state["step"]._array, first.state[a]["step"]._array)


@pytest.mark.parametrize("kind", [ag.optim.Adam, ag.optim.ASGD, ag.optim.Adafactor])
def test_a_loaded_number_of_steps_may_be_a_plain_number(kind):
    """Older versions of PyTorch have saved it so."""
    a, b = parameter(1.0), parameter(1.0)
    first, second = kind([a], lr=0.1), kind([b], lr=0.1)
    for optimizer, leaf in ((first, a), (first, a), (second, b)):
        leaf.grad = ag.full_like(leaf, 0.5)
        optimizer.step()
    old = first.state_dict()
    old["state"][0]["step"] = int(old["state"][0]["step"])
    second.load_state_dict(old)
    b.data = a.data.clone()
    for optimizer, leaf in ((first, a), (second, b)):
        leaf.grad = ag.full_like(leaf, 0.5)
        optimizer.step()
    assert second.state[b]["step"].item() == 3
    assert b.item() == a.item()


def test_state_of_other_groups_is_refused_and_changes_nothing():
    a, b = parameter(1.0), parameter(1.0)
    one = ag.optim.SGD([a], lr=0.1)
    two = ag.optim.SGD([{"params": [a]}, {"params": [b]}], lr=0.2)
    longer = ag.optim.SGD([a, b], lr=0.3)
    for other in (two, longer):
        with pytest.raises(ValueError, match=r"different number|doesn't match the size"):
            one.load_state_dict(other.state_dict())
    assert one.param_groups == [{**one.defaults, "params": [a]}]


def test_optimizers_are_pickled_with_their_parameters():
    layer = ag.nn.Linear(2, 1)
    optimizer = ag.optim.SGD(layer.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(lambda *args: None)
    other_layer, other = pickle.loads(pickle.dumps((layer, optimizer)))
    assert other.param_groups[0]["params"][0] is other_layer.weight
    other_layer(ag.ones(1, 2)).sum().backward()
    before = other_layer.bias.item()
    other.step()
    assert other_layer.bias.item() == pytest.approx(before - 0.1)


def test_loading_and_copying_set_the_state():
    """PyTorch's optimisers add options to old groups there."""

    class Clipped(ag.optim.SGD):
        def __setstate__(self, state):
            super().__setstate__(state)
            for group in self.param_groups:
                group.setdefault("bound", 1.0)

    optimizer = Clipped([parameter(1.0)], lr=0.1)
    assert copy.deepcopy(optimizer).param_groups[0]["bound"] == 1.0
    optimizer.load_state_dict(optimizer.state_dict())
    assert optimizer.param_groups[0]["bound"] == 1.0


def test_what_is_no_state_is_refused_by_name():
    optimizer = ag.optim.SGD([parameter(1.0)], lr=0.1)
    for wrong, kind in ((None, TypeError), ([], TypeError), ({}, ValueError)):
        with pytest.raises(kind, match="load_state_dict: "):
            optimizer.load_state_dict(wrong)
    assert optimizer.param_groups[0]["lr"] == 0.1


@pytest.mark.asyncio
async def test_a_forgotten_await_is_found():
    a = parameter(1.0)
    optimizer = ag.optim.SGD([a], lr=0.1)
    future = (a * a).sum().backward()
    for call in (optimizer.step, optimizer.zero_grad):
        with pytest.raises(PendingBackwardError):
            call()
    with pytest.raises(PendingBackwardError):
        await optimizer.step_async()
    assert a.item() == 1.0
    await future
    optimizer.step()
    assert a.item() == 0.8


@pytest.mark.asyncio
async def test_closures_may_be_coroutine_functions():
    a = parameter(3.0)
    optimizer = ag.optim.SGD([a], lr=0.5)

    async def closure():
        optimizer.zero_grad()
        loss = (a * a).sum()
        await loss.backward()
        return loss

    with ag.no_grad():
        assert (await optimizer.step_async(closure)).item() == 9.0
    assert a.item() == 0.0


@pytest.mark.asyncio
async def test_a_closure_that_forgets_to_await_is_found():
    a = parameter(3.0)
    optimizer = ag.optim.SGD([a], lr=0.5)
    passes = []

    def forgetful():
        passes.append((a * a).sum().backward())

    with pytest.raises(PendingBackwardError):
        optimizer.step(forgetful)
    await passes.pop()
    with pytest.raises(PendingBackwardError):
        await optimizer.step_async(forgetful)
    await passes.pop()
    assert a.item() == 3.0


@pytest.mark.asyncio
async def test_a_large_step_leaves_the_loop_to_others():
    """A bystander gets turns while the step runs in its thread, which a hook makes last."""
    a = ag.zeros(1_000_000, requires_grad=True)
    a.grad = ag.ones(1_000_000)
    optimizer = ag.optim.SGD([a], lr=1.0)
    loop = asyncio.get_running_loop()
    turned = asyncio.Event()
    reached = asyncio.Event()
    may_end = threading.Event()
    main = threading.get_ident()
    threads = []

    def hold(optimizer, args, kwargs):
        threads.append(threading.get_ident())
        loop.call_soon_threadsafe(reached.set)
        assert may_end.wait(30)

    optimizer.register_step_pre_hook(hold)

    async def bystander():
        await reached.wait()
        turned.set()
        may_end.set()

    await asyncio.gather(optimizer.step_async(), bystander())
    assert turned.is_set()
    assert threads != [main]
    assert (a.detach().numpy() == -1.0).all()


@pytest.mark.asyncio
async def test_a_cancelled_step_is_complete():
    a = ag.zeros(1_000_000, requires_grad=True)
    a.grad = ag.ones(1_000_000)
    optimizer = ag.optim.SGD([a], lr=1.0)
    loop = asyncio.get_running_loop()
    reached = asyncio.Event()
    may_end = threading.Event()

    def hold(optimizer, args, kwargs):
        loop.call_soon_threadsafe(reached.set)
        assert may_end.wait(30)

    optimizer.register_step_pre_hook(hold)
    stepping = asyncio.create_task(optimizer.step_async())
    await reached.wait()
    stepping.cancel()
    await asyncio.sleep(0)
    assert not stepping.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await stepping
    assert (a.detach().numpy() == -1.0).all()


@pytest.mark.asyncio
async def test_a_step_in_a_hook_of_a_pass_needs_no_await():
    """Optimising each parameter as its gradient becomes ready."""
    a = parameter(1.0)
    optimizer = ag.optim.SGD([a], lr=0.1)

    def update(leaf):
        optimizer.step()
        optimizer.zero_grad()

    a.register_post_accumulate_grad_hook(update)
    await (a * a).sum().backward()
    assert a.item() == 0.8
    assert a.grad is None


def test_an_optimiser_around_another_one_steps_without_state_of_its_own():
    """PyTorch's programs write such classes, which call no `__init__` of the base."""

    class Around(ag.optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner
            self.param_groups = inner.param_groups

        def step(self):
            self.inner.step()

    a = parameter(1.0)
    around = Around(ag.optim.SGD([a], lr=0.25))
    a.sum().backward()
    around.step()
    assert a.item() == 0.75
    assert around.steps_taken == 1
    ag.optim.lr_scheduler.ExponentialLR(around, 0.5).step()
    assert around.inner.param_groups[0]["lr"] == 0.125


@pytest.mark.asyncio
async def test_steps_that_multiply_large_matrices_take_a_thread():
    """They cost more than their few elements tell."""
    a = ag.ones(256, 256, requires_grad=True)
    a.grad = ag.ones(256, 256)
    threads = []
    optimizer = ag.optim.Muon([a])
    optimizer.register_step_pre_hook(lambda *_: threads.append(threading.current_thread()))
    await optimizer.step_async()
    assert threads != [threading.current_thread()]


@pytest.mark.parametrize("wrong", [lambda model: model, lambda model: model.parameters])
def test_parameters_that_are_not_listed_are_asked_for(wrong):
    with pytest.raises(TypeError, match=r"iterable.*got a (Linear|method).*model.parameters\(\)"):
        ag.optim.Adam(wrong(ag.nn.Linear(2, 2)))


@pytest.mark.parametrize("kind", [ag.optim.SGD, ag.optim.LBFGS])
def test_a_blocking_step_refuses_a_coroutine_function(kind):
    """SGD would return the coroutine as its loss, and nothing would compute the gradients."""

    async def closure():
        raise AssertionError("nothing runs it")

    with pytest.raises(TypeError, match=rf"{kind.__name__}.step.*await optimizer.step_async"):
        kind([ag.ones(2, requires_grad=True)]).step(closure)


async def _stepped(kind, together):
    """The parameters after three steps of a model that is updated in a thread."""
    model = [ag.full((300,), float(place), requires_grad=True) for place in range(3)]
    optimizer = getattr(ag.optim, kind)(model, lr=0.1)

    async def closure():
        optimizer.zero_grad()
        loss = sum((x * x).sum() for x in model)
        await loss.backward()
        await asyncio.sleep(0)
        return loss

    await closure()
    steps = [optimizer.step_async(*[closure] * (kind == "LBFGS")) for _ in range(3)]
    if together:
        await asyncio.gather(*steps)
    else:
        for step in steps:
            await step
    return [x.tolist() for x in model]


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["SGD", "Adam", "LBFGS"])
async def test_steps_of_several_tasks_follow_one_another(kind, monkeypatch):
    """They used the same state and the same new arrays at once, so that updates were lost."""
    for module in ("optimizer", "lbfgs"):
        monkeypatch.setattr(getattr(ag.optim, module), "_WORTH_A_THREAD", 0)
    assert await _stepped(kind, together=True) == await _stepped(kind, together=False)


@pytest.mark.asyncio
async def test_a_step_that_blocks_is_refused_while_another_is_incomplete(monkeypatch):
    monkeypatch.setattr(ag.optim.optimizer, "_WORTH_A_THREAD", 0)
    x = parameter(1.0)
    x.grad = ag.ones_like(x)
    optimizer = ag.optim.SGD([x], lr=0.25)
    begun, go_on = threading.Event(), threading.Event()

    def before(*_):
        handle.remove()
        begun.set()
        assert go_on.wait(30)

    handle = optimizer.register_step_pre_hook(before)
    first = asyncio.create_task(optimizer.step_async())
    second = asyncio.create_task(optimizer.step_async())
    await asyncio.to_thread(begun.wait, 30)
    with pytest.raises(RuntimeError, match=r"SGD.step: another task's step_async"):
        optimizer.step()
    # The thread would take up the step while the state is copied.
    with pytest.raises(RuntimeError, match=r"SGD.__getstate__: .* changes the state"):
        copy.deepcopy(optimizer)
    with pytest.raises(RuntimeError, match=r"SGD.state_dict: .* changes the state"):
        optimizer.state_dict()
    second.cancel()
    go_on.set()
    await first
    with pytest.raises(asyncio.CancelledError):
        await second
    assert x.item() == 0.75
    optimizer.step()
    copy.deepcopy(optimizer).step()
    assert x.item() == 0.5


@pytest.mark.asyncio
@pytest.mark.parametrize("worth", [0, 1 << 40])
@pytest.mark.parametrize(
    ("name", "options"),
    [(name, {}) for name in ("Adam", "RMSprop", "Adamax", "NAdam", "Rprop", "Adafactor", "ASGD")]
    + [("SGD", {"weight_decay": 0.1}), ("Adagrad", {"weight_decay": 0.1}), ("SparseAdam", {})],
)
async def test_a_step_that_is_refused_changes_nothing(name, options, worth, monkeypatch):
    """Parameters before the one whose gradient is refused had been updated."""
    monkeypatch.setattr(ag.optim.optimizer, "_WORTH_A_THREAD", worth)
    table, p = ag.nn.Embedding(3, 2, sparse=True), ag.ones(2, requires_grad=True)
    await table(ag.tensor([1])).sum().backward()
    p.grad = ag.ones(2)
    first, second = (table.weight, p) if name == "SparseAdam" else (p, table.weight)
    optimizer = getattr(ag.optim, name)([{"params": first}, {"params": second}], **options)
    before = first.tolist(), str(optimizer.state)
    with pytest.raises(RuntimeError, match=r"support|compatible"):
        optimizer.step()
    with pytest.raises(RuntimeError, match=r"support|compatible"):
        await optimizer.step_async()
    assert (first.tolist(), str(optimizer.state)) == before
    optimizer.load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize(("name", "shape"), [("Adafactor", (2,)), ("Muon", (2, 2))])
def test_a_complex_parameter_is_refused_before_others_are_updated(name, shape):
    p = ag.ones(shape, requires_grad=True)
    q = ag.ones(shape, dtype=ag.complex64, requires_grad=True)
    p.grad, q.grad = ag.ones_like(p), ag.ones_like(q)
    optimizer = getattr(ag.optim, name)([p, q])
    with pytest.raises(RuntimeError, match="complex"):
        optimizer.step()
    assert (p == 1).all()
    assert not optimizer.state
