"""What goes when: by reference counts alone, with the cycle collector off."""

import asyncio
import copy
import gc
import io
import pickle
import sys
import weakref

import pytest
from functions import function_of

import asyncgrad as ag
import asyncgrad.sync
from asyncgrad.utils.checkpoint import checkpoint

pytestmark = pytest.mark.usefixtures("no_collector")


def tensor(size=3, **kwargs):
    return ag.ones(size, dtype=ag.float64, **kwargs)


def deep(x, length=4):
    """A graph over a leaf, and weak references to all its nodes."""
    y = x
    nodes = []
    for _ in range(length):
        y = (y * y).sin()
        nodes.append(y.grad_fn)
        nodes += [node for node, _ in y.grad_fn.next_functions if node is not None]
    return y, [weakref.ref(node) for node in nodes]


def alive(references):
    return [reference() for reference in references if reference() is not None]


# -- graphs --------------------------------------------------------------------------------------


def test_a_graph_goes_with_its_last_tensor():
    x = tensor(requires_grad=True)
    y, nodes = deep(x)
    assert len(alive(nodes)) == len(nodes)
    del y
    assert not alive(nodes)


def test_a_graph_goes_after_a_pass():
    x = tensor(requires_grad=True)
    y, nodes = deep(x)
    y.sum().backward()
    del y
    assert not alive(nodes)


def test_saved_tensors_go_with_the_pass_though_the_graph_is_held():
    x = tensor(requires_grad=True)
    a = x * 2
    b = a.sin()
    gone = weakref.ref(a)
    array = weakref.ref(a._array)
    del a
    assert array() is not None
    b.sum().backward()
    assert gone() is None
    assert array() is None
    assert b.grad_fn.name() == "SinBackward0"


def test_saved_tensors_go_node_by_node():
    """When the leaf is reached, what the nodes before have saved is gone."""
    x = tensor(requires_grad=True)
    a = x * tensor()
    b = a.sin()
    array = weakref.ref(a._array)
    seen = []
    x.register_hook(lambda g: seen.append(array() is None))
    del a
    b.sum().backward()
    assert seen == [True]


def test_retained_saved_tensors_stay_until_the_graph_goes():
    x = tensor(requires_grad=True)
    a = x * 2
    b = a.sin()
    array = weakref.ref(a._array)
    del a
    b.sum().backward(retain_graph=True)
    assert array() is not None
    del b
    assert array() is None


def test_gradients_go_when_they_have_been_handed_on():
    x = tensor(requires_grad=True)
    a = x * 2
    b = a * 3
    seen = []
    for t in (a, b, x):
        t.register_hook(lambda g: seen.append(weakref.ref(g._array)))
    del a, t
    b.sum().backward()
    assert len(alive(seen)) == 0


def test_what_is_not_needed_is_not_kept():
    x, w = tensor(requires_grad=True), tensor()
    big = ag.ones(3, dtype=ag.float64)
    array = weakref.ref(big._array)
    y = x + big
    z = x * 2 + big * w
    del big
    assert array() is None
    assert y.requires_grad
    assert z.requires_grad


def test_a_leaf_goes_with_its_graph():
    x = tensor(requires_grad=True)
    gone = weakref.ref(x)
    y = (x * x).sum()
    del x
    assert gone() is not None
    y.backward()
    del y
    assert gone() is None


def test_a_result_of_grad_leads_nowhere():
    x = tensor(requires_grad=True)
    y, nodes = deep(x)
    (g,) = ag.grad(y.sum(), x)
    del y
    assert not alive(nodes)
    assert g.grad_fn is None


def test_a_differentiable_gradient_goes_with_its_graph():
    x = tensor(requires_grad=True)
    y, nodes = deep(x)
    (g,) = ag.grad(y.sum(), x, create_graph=True)
    del y
    assert alive(nodes)
    (h,) = ag.grad(g.sum(), x, create_graph=True)
    del g, h
    assert not alive(nodes)


# -- hooks ---------------------------------------------------------------------------------------


def test_hooks_that_know_other_tensors_of_the_graph_do_not_keep_it():
    x = tensor(requires_grad=True)
    y, nodes = deep(x)
    z = y * 2
    reference = weakref.ref(y)
    z.register_hook(lambda g, y=y: None)
    y.sum().backward(retain_graph=True)
    del y
    assert reference() is not None
    del z
    assert reference() is None
    assert not alive(nodes)


def test_removed_hooks_are_gone():
    x = tensor(requires_grad=True)
    y = x * 2
    held = tensor()
    gone = weakref.ref(held)
    handles = [
        y.register_hook(lambda g, held=held: None),
        y.grad_fn.register_hook(lambda i, o, held=held: None),
        y.grad_fn.register_prehook(lambda g, held=held: None),
        x.register_post_accumulate_grad_hook(lambda p, held=held: None),
        ag.autograd.graph.register_multi_grad_hook((x, y), lambda g, held=held: None),
    ]
    del held
    y.sum().backward()
    for handle in handles:
        handle.remove()
    assert gone() is None


@pytest.mark.parametrize("mode", ["all", "any"])
@pytest.mark.parametrize("runs", [True, False])
def test_a_hook_on_several_tensors_keeps_none_of_them(mode, runs):
    """Neither what is computed nor leaves: nothing here collects garbage."""
    x, w = tensor(requires_grad=True), tensor(requires_grad=True)
    y = x * 2
    handle = ag.autograd.graph.register_multi_grad_hook((x, y, w), lambda g: None, mode=mode)
    gone = [weakref.ref(x), weakref.ref(y), weakref.ref(w), weakref.ref(y.grad_fn)]
    if runs:
        (y * w).sum().backward()
    del x, y, w, handle
    assert [reference() for reference in gone] == [None] * 4


def test_retain_grad_does_not_keep_the_tensor():
    x = tensor(requires_grad=True)
    y = x * 2
    y.retain_grad()
    z = y * 3
    gone = weakref.ref(y)
    del y
    assert gone() is None
    z.sum().backward()
    assert x.grad.tolist() == [6.0] * 3


def test_callbacks_are_gone_after_the_pass():
    x = tensor(requires_grad=True)
    y = x * 2
    held = tensor()
    gone = weakref.ref(held)
    queue = ag.autograd.graph.queue_callback
    handle = y.register_hook(lambda g, held=held: queue(lambda: held))
    del held
    y.sum().backward()
    handle.remove()
    assert gone() is None


# -- changes in place ----------------------------------------------------------------------------


def test_views_and_changes_in_place_make_no_cycle():
    x = tensor(requires_grad=True)
    y = x * 1
    view = y[1:]
    view.mul_(2)
    y[0] = 3.0
    view[:1].add_(x[:1])
    other = y.view(3, 1)
    nodes = [weakref.ref(t.grad_fn) for t in (y, view, other)]
    gone = [weakref.ref(t) for t in (y, view, other)]
    array = weakref.ref(y._array)
    (y * other.view(3)).sum().backward()
    del y, view, other
    assert not alive(gone)
    assert not alive(nodes)
    assert array() is None


def test_what_is_overwritten_lets_go_of_its_graph():
    x = tensor(requires_grad=True)
    y, nodes = deep(x)
    y.detach_()
    assert not alive(nodes)


# -- Functions -----------------------------------------------------------------------------------


def test_functions_make_no_cycle():
    def forward(ctx, x):
        y = x * 2
        ctx.save_for_backward(x, y)
        ctx.kept = x
        return y

    Keep = function_of(ag, forward, lambda ctx, gradient: gradient * 2)
    x = tensor(requires_grad=True)
    y = x * 1
    z = Keep.apply(y)
    gone = [weakref.ref(t) for t in (y, z, z.grad_fn)]
    del y
    z.sum().backward(retain_graph=True)
    (g,) = ag.grad(z.sum(), x, create_graph=True)
    del z, g
    assert not alive(gone)


# -- failure and cancellation --------------------------------------------------------------------


class Fail(ag.autograd.Function):
    """Fails in its backward, where it has what it was given."""

    @staticmethod
    def forward(ctx, x, held):
        ctx.held = held
        ctx.save_for_backward(x)
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        raise ValueError(f"no {x}")


def failing(kind):
    """A graph over a leaf that fails in the given way, and weak references to its nodes."""
    x = tensor(requires_grad=True)
    y, nodes = deep(x)
    held = tensor()

    def fail(*args, held=held):
        raise ValueError("no")

    if kind == "hook":
        y.register_hook(fail)
    elif kind == "prehook":
        y.grad_fn.register_prehook(fail)
    elif kind == "leaf":
        x.register_hook(fail)
    elif kind == "accumulated":
        x.register_post_accumulate_grad_hook(fail)
    elif kind == "function":
        y = Fail.apply(y, held)
    elif kind == "callback":
        y.register_hook(lambda g: ag.autograd.graph.queue_callback(fail))
    return x, y.sum(), [*nodes, weakref.ref(held)]


KINDS = ["hook", "prehook", "leaf", "accumulated", "function", "callback"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_that_fails_lets_go_of_the_graph(kind):
    x, loss, references = failing(kind)
    with pytest.raises(ValueError, match="no") as caught:
        loss.backward()
    del caught
    # The exception that Python remembers last holds the frames.
    sys.last_value = None
    del x, loss
    assert not alive(references)


@pytest.mark.parametrize("waits", [False, True])
def test_a_recorded_backward_that_fails_lets_go_of_the_result_on_ctx(waits):
    """While it runs, the result that `forward` has kept on ctx leads to the node."""

    class Keeps(ag.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.result = x * 2
            return ctx.result

        @staticmethod
        def backward(ctx, gradient):
            _ = ctx.result * gradient
            raise ValueError("no")

    class KeepsAndWaits(Keeps):
        @staticmethod
        async def backward(ctx, gradient):
            return Keeps.backward(ctx, gradient)

    x = tensor(requires_grad=True)
    y = (KeepsAndWaits if waits else Keeps).apply(x)
    node = weakref.ref(y.grad_fn)
    with pytest.raises(ValueError, match="no") as caught:
        ag.grad(y.sum(), x, create_graph=True)
    del caught, x, y
    sys.last_value = None
    assert node() is None


@pytest.mark.parametrize("kind", KINDS)
def test_an_awaited_pass_that_fails_lets_go_of_the_graph(kind):
    async def main():
        x, loss, references = failing(kind)
        try:
            await loss.backward()
        except ValueError:
            pass
        else:
            raise AssertionError
        del x, loss
        return alive(references)

    assert not asyncio.run(main())


def test_a_cancelled_pass_lets_go_of_the_graph():
    async def main():
        x = tensor(requires_grad=True)
        y, references = deep(x)
        started = asyncio.Event()

        async def wait(gradient):
            started.set()
            await asyncio.Event().wait()

        y.register_hook(wait)
        future = y.sum().backward()
        await started.wait()
        future.cancel()
        try:
            await future
        except asyncio.CancelledError:
            pass
        else:
            raise AssertionError
        assert x.grad is None
        del x, y, future, wait
        # The waiting node's own task ends in a turn of its own.
        for _ in range(3):
            await asyncio.sleep(0)
        return alive(references)

    assert not asyncio.run(main())


def test_a_cancelled_task_lets_go_of_the_graph_it_awaited():
    async def work(references, started):
        x = tensor(requires_grad=True)
        y, nodes = deep(x)
        references += nodes

        async def wait(gradient):
            started.set()
            await asyncio.Event().wait()

        y.register_hook(wait)
        await y.sum().backward()

    async def main():
        references, started = [], asyncio.Event()
        task = asyncio.create_task(work(references, started))
        await started.wait()
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
        else:
            raise AssertionError
        del task
        for _ in range(3):
            await asyncio.sleep(0)
        return alive(references)

    assert not asyncio.run(main())


def test_a_future_that_has_ended_holds_nothing():
    async def main():
        x = tensor(requires_grad=True)
        y, references = deep(x)
        future = y.sum().backward()
        await future
        del y
        return alive(references), future.done()

    assert asyncio.run(main()) == ([], True)


def test_a_refused_pass_holds_nothing():
    x = tensor(requires_grad=True)
    y, references = deep(x)
    with pytest.raises(RuntimeError):
        y.backward()
    with pytest.raises(RuntimeError):
        ag.grad(y.sum(), [x, tensor()])
    del y
    assert not alive(references)


# -- size ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "length", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow, id="million")]
)
def test_a_long_chain_is_built_run_and_freed(length):
    """No recursion anywhere, and nothing of it is left."""
    x = ag.tensor(1.0, dtype=ag.float64, requires_grad=True)
    y = x * 1.0
    first = weakref.ref(y.grad_fn)
    for _ in range(length):
        y = y + 1.0
    last = weakref.ref(y.grad_fn)
    y.backward()
    assert x.grad.item() == 1.0
    del y
    assert first() is None
    assert last() is None


def test_a_long_chain_that_never_ran_is_freed():
    x = ag.tensor(1.0, dtype=ag.float64, requires_grad=True)
    y = x
    for _ in range(50_000):
        y = y * y.detach()
    last = weakref.ref(y.grad_fn)
    del y
    assert last() is None


def test_a_long_chain_of_functions_is_freed():
    Same = function_of(ag)
    x = ag.tensor(1.0, requires_grad=True)
    y = x
    for _ in range(5_000):
        y = Same.apply(y)
    last = weakref.ref(y.grad_fn)
    y.backward(retain_graph=True)
    del y
    assert last() is None


def test_a_wide_graph():
    x = ag.tensor(1.0, dtype=ag.float64, requires_grad=True)
    parts = [x * 1.0 for _ in range(1_000)]
    total = ag.stack(parts).sum()
    total.backward()
    assert x.grad.item() == 1_000.0
    gone = weakref.ref(parts[0].grad_fn)
    del parts, total
    assert gone() is None


def test_passes_make_no_cycles():
    """A collection after a thousand passes finds nothing."""
    x = tensor(requires_grad=True)

    async def main():
        for _ in range(20):
            await (x * x).sum().backward()
        gc.collect()
        for _ in range(300):
            y = x.sin()
            y.register_hook(lambda g: g * 2)
            await (y * x).sum().backward()
            await ag.grad((x * x).sum(), x)
        return gc.collect()

    # A few belong to the loop itself.
    assert asyncio.run(main()) < 30


def on_disk():
    x = tensor(requires_grad=True)
    with ag.autograd.graph.save_to_disk():
        y = (x * x).sum()
    y.backward()


def checkpointed():
    x = tensor(requires_grad=True)
    checkpoint(lambda x: (x * x).sin(), x, use_reentrant=False).sum().backward()


def loaded():
    model = ag.nn.Sequential(ag.nn.Linear(2, 2), ag.nn.Sequential(ag.nn.BatchNorm1d(2)))
    model.load_state_dict(model.state_dict())


def saved_and_loaded():
    file = io.BytesIO()
    ag.save({"x": tensor()}, file)
    file.seek(0)
    ag.load(file)


def solved_one_by_one():
    x = ag.eye(2).expand(3, 2, 2).clone()
    ag.func.vmap(lambda x: ag.linalg.lu_solve(*ag.linalg.lu_factor(x), x))(x)


@pytest.mark.parametrize(
    "call",
    [
        on_disk,
        checkpointed,
        loaded,
        saved_and_loaded,
        solved_one_by_one,
        lambda: ag.autograd.functional.jacobian(lambda x: x * x, tensor()),
        lambda: ag.sync.hessian(lambda x: (x * x).sum(), tensor()),
        lambda: ag.sync.func.grad(lambda x: (x * x).sum())(tensor()),
        lambda: ag.func.jvp(lambda x: x * x, (tensor(),), (tensor(),)),
        lambda: ag.autograd.gradcheck(lambda x: x * x, tensor(requires_grad=True)),
        lambda: copy.deepcopy(ag.nn.Linear(2, 2)),
        lambda: pickle.loads(pickle.dumps(ag.nn.Linear(2, 2))),
        lambda: repr(ag.nn.Linear(2, 2)) + repr(tensor()),
        lambda: (tensor(requires_grad=True) * 2).to("sim:0").sum().backward(),
    ],
)
def test_a_call_leaves_no_cycle(call):
    """What has run once leaves nothing to the collector."""
    call()
    gc.collect()
    call()
    assert gc.collect() == 0
