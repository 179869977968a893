"""Checkpoints that keep some results and compute the others again."""

import asyncio
import functools
import weakref

import numpy as np
import pytest
from parity import attempt, both, raised

import asyncgrad as ag


def op(T, name):
    """What a policy knows a function by."""
    return name if T is ag else getattr(T.ops.aten, name).default


def kept(T, policy, **options):
    """A `context_fn`."""
    return functools.partial(
        T.utils.checkpoint.create_selective_checkpoint_contexts, policy, **options
    )


def run(T, function, *args, context_fn):
    return T.utils.checkpoint.checkpoint(
        function, *args, use_reentrant=False, context_fn=context_fn
    )


def leaf(T, *shape):
    x = T.arange(1, 1 + int(np.prod(shape)), dtype=T.float64).reshape(*shape) / 10
    return x.requires_grad_()


def products(x, y):
    return (x.cos() @ y).sin().exp().sum()


@both
def test_gradients_are_those_without_a_checkpoint(T, log):
    policy = T.utils.checkpoint.CheckpointPolicy
    for choose in (
        [op(T, "mm")],
        [op(T, "mm"), op(T, "cos"), op(T, "exp")],
        lambda told, name, *args, **kwargs: policy.MUST_SAVE,
        lambda told, name, *args, **kwargs: policy.PREFER_RECOMPUTE,
        lambda told, name, *args, **kwargs: policy.PREFER_SAVE if told.is_recompute else False,
        lambda told, name, *args, **kwargs: name == op(T, "sin"),
    ):
        x, y = leaf(T, 2, 3), leaf(T, 3, 2)
        out = run(T, products, x, y, context_fn=kept(T, choose))
        log(out)
        yield out.backward()
        log(x.grad, y.grad)


@both
def test_what_was_kept_can_be_used_once(T, log):
    for choose in ([op(T, "sin")], []):
        x = leaf(T, 3)
        out = run(T, lambda x: x.sin().cos().exp(), x, context_fn=kept(T, choose)).sum()
        yield out.backward(retain_graph=True)
        try:
            yield out.backward(retain_graph=True)
            log(x.grad)
        except RuntimeError as error:
            log(error)


@both
def test_what_was_kept_must_not_change(T, log):
    for options in ({}, {"allow_cache_entry_mutation": True}):
        x = leaf(T, 3)
        context_fn = kept(T, [op(T, "sin")], **options)
        out = run(T, lambda x: x.sin().mul_(2).cos().exp(), x, context_fn=context_fn)
        yield from raised(log, out.sum().backward)
        log(x.grad if not options else None)


@both
def test_a_function_that_does_something_else_when_it_runs_again(T, log):
    runs = []

    def function(x):
        runs.append(None)
        return x.sin().cos() if len(runs) == 1 else x.exp().sin().cos()

    yield from raised(
        log, run(T, function, leaf(T, 3), context_fn=kept(T, [op(T, "cos")])).sum().backward
    )


@both
def test_what_is_no_policy_is_refused(T, log):
    create = T.utils.checkpoint.create_selective_checkpoint_contexts
    attempt(log, create, 2)
    attempt(log, create, [2])
    attempt(log, create, None)


@both
def test_parameters_and_views_and_constants(T, log):
    layer = T.nn.Linear(3, 2).double()
    with T.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(0.5)

    def function(x, numbers):
        return layer(x.t().t()).tanh() * numbers.view(-1).double().sum()

    x = leaf(T, 2, 3)
    names = [op(T, "addmm"), op(T, "tanh")]
    out = run(T, function, x, T.tensor([1, 2]), context_fn=kept(T, names))
    yield out.sum().backward()
    log(x.grad, [parameter.grad for parameter in layer.parameters()])


def counted(monkeypatch, name):
    """Counts what is computed by a function of the table."""
    kernels = ag.ones(1, dtype=ag.float64)._metadata.kernels
    compute, calls = kernels[name], []

    def count(*args):
        calls.append(name)
        return compute(*args)

    monkeypatch.setitem(kernels, name, count)
    return calls


@pytest.mark.parametrize("names", [["mm"], [ag.mm, ag.exp], ["cos"], []])
def test_what_was_kept_is_not_computed_again(monkeypatch, names):
    plain = {one if isinstance(one, str) else one.__name__ for one in names}
    calls = {name: counted(monkeypatch, name) for name in ("mm", "exp", "cos")}
    run(ag, products, leaf(ag, 2, 3), leaf(ag, 3, 2), context_fn=kept(ag, names))
    forward = {name: len(of) for name, of in calls.items()}
    out = run(ag, products, leaf(ag, 2, 3), leaf(ag, 3, 2), context_fn=kept(ag, names))
    for of in calls.values():
        of.clear()
    seen = []
    out.register_hook(lambda g: seen.append(g))
    # The derivative calls other functions than these, but for the product.
    out.backward()
    assert forward == {"mm": 1, "exp": 1, "cos": 1}
    assert seen
    assert len(calls["cos"]) == ("cos" not in plain) + 1
    assert len(calls["exp"]) == ("exp" not in plain)


@pytest.mark.usefixtures("no_collector")
def test_results_live_as_long_as_the_graph():
    references = []

    def choose(told, name, *args):
        if name == "exp":
            references.append(weakref.ref(told.op_output._array))
        return True

    out = run(ag, lambda x: x.cos().exp().sin(), leaf(ag, 3), context_fn=kept(ag, choose))
    assert references[0]() is not None
    del out
    assert references[0]() is None
    out = run(ag, lambda x: x.cos().exp().sin(), leaf(ag, 3), context_fn=kept(ag, choose))
    out.sum().backward(retain_graph=True)
    assert references[1]() is None


@pytest.mark.asyncio
async def test_coroutine_functions_keep_results_too():
    async def function(x, y):
        x = x.cos()
        await asyncio.sleep(0)
        return (x @ y).sin().exp().sum()

    x, y = leaf(ag, 2, 3), leaf(ag, 3, 2)
    await products(x, y).backward()
    expected = x.grad
    x.grad = None
    out = await run(ag, function, x, y, context_fn=kept(ag, [ag.mm]))
    await out.backward()
    np.testing.assert_allclose(x.grad.numpy(), expected.numpy())


def test_several_checkpoints_keep_their_results_apart():
    x = leaf(ag, 3)
    context_fn = kept(ag, ["sin"])
    first = run(ag, lambda x: x.sin().cos(), x, context_fn=context_fn)
    second = run(ag, lambda x: x.sin().exp(), first, context_fn=context_fn)
    second.sum().backward()
    gradient, x.grad = x.grad, None
    x.sin().cos().sin().exp().sum().backward()
    np.testing.assert_allclose(gradient.numpy(), x.grad.numpy())
