"""`grad()`: what it gives, and what it leaves alone."""

import asyncio
from collections import OrderedDict

import pytest
from functions import function_of
from parity import attempt, both, leaf, raised

import asyncgrad as ag
from asyncgrad.core import exec_info


@both
def test_no_grad_attribute_is_touched(T, log):
    x, y = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
    z = (x * x * y).sum()
    result = yield T.autograd.grad(z, [x, y], retain_graph=True)
    log(isinstance(result, tuple), result, x.grad, y.grad)
    x.grad = T.ones(2, dtype=T.float64)
    log((yield T.autograd.grad(z, x)), x.grad)


@both
def test_the_same_input_may_be_asked_for_twice(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * x
    z = (y * 3).sum()
    log((yield T.autograd.grad(z, [x, x, y, x, y])))


@both
def test_inputs_one_behind_the_other(T, log):
    x = leaf(T, 2.0)
    a = x * x
    b = a * 3
    c = b.exp()
    log((yield T.autograd.grad(c, [c, b, a, x], retain_graph=True)))
    log((yield T.autograd.grad(c, [x, a], retain_graph=True)))
    log((yield T.autograd.grad([c, b, a], [a, x])))


@both
def test_an_output_that_is_an_input_gives_what_was_given(T, log):
    x = leaf(T, 1.0, 2.0)
    given = T.tensor([3.0, 4.0], dtype=T.float64)
    (g,) = yield T.autograd.grad(x, x, given)
    log(g)
    y = x * 2
    (g,) = yield T.autograd.grad(y, y, given)
    log(g)
    s = x.sum()
    log((yield T.autograd.grad(s, s, retain_graph=True)))
    log((yield T.autograd.grad([s, s], [s, x], [None, T.tensor(5.0, dtype=T.float64)])))


@both
def test_inputs_in_a_dictionary_give_a_dictionary(T, log):
    x, y = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
    z = (x * y).sum()
    result = yield T.autograd.grad(z, {"y": y, "x": x}, retain_graph=True)
    log(isinstance(result, dict), list(result), result)
    unused = leaf(T, 1.0)
    log((yield T.autograd.grad(z, {1: unused, 2: x}, allow_unused=True, retain_graph=True)))
    log((yield T.autograd.grad(z, {1: unused, 2: x}, materialize_grads=True, retain_graph=True)))
    attempt(log, T.autograd.grad, z, {})
    attempt(log, T.autograd.grad, z, OrderedDict(x=x))
    attempt(log, T.autograd.grad, z, {"x": x}.keys())


@both
def test_unused_inputs(T, log):
    x, unused = leaf(T, 1.0, 2.0), leaf(T, 3.0)
    z = (x * x).sum()
    for inputs in ([x, unused], [unused], unused):
        try:
            yield T.autograd.grad(z, inputs, retain_graph=True)
        except RuntimeError as error:
            log(error, "allow_unused=True" in str(error))
    log((yield T.autograd.grad(z, [x, unused], allow_unused=True, retain_graph=True)))
    zeros = yield T.autograd.grad(z, [unused, x], materialize_grads=True, retain_graph=True)
    log(zeros, zeros[0].requires_grad)
    zeros = yield T.autograd.grad(z, [unused], materialize_grads=True, create_graph=True)
    log(zeros, zeros[0].requires_grad)
    zeros = yield T.autograd.grad(
        z, [unused, x], materialize_grads=True, allow_unused=True, retain_graph=True
    )
    log(zeros)
    attempt(log, T.autograd.grad, z, [x], materialize_grads=True, allow_unused=False)
    # Behind, not before.
    log((yield T.autograd.grad(x * 1, z, T.ones(2, dtype=T.float64), allow_unused=True)))


@both
def test_inputs_that_need_no_gradient(T, log):
    x = leaf(T, 1.0, 2.0)
    z = (x * x).sum()
    attempt(log, T.autograd.grad, z, T.ones(2))
    attempt(log, T.autograd.grad, z, [x, x.detach()], allow_unused=True)
    attempt(log, T.autograd.grad, z, [])
    attempt(log, T.autograd.grad, z, 3)
    attempt(log, T.autograd.grad, z, [3])
    attempt(log, T.autograd.grad, z.detach(), x)
    attempt(log, T.autograd.grad, x * 2, x)
    attempt(log, T.autograd.grad, x * 2, x, T.ones(3, dtype=T.float64))
    attempt(log, T.autograd.grad, [z, z], x, [T.ones((), dtype=T.float64)])
    attempt(log, T.autograd.grad, z, x, 1.0)


@both
def test_only_inputs_is_a_thing_of_the_past(T, log):
    x = leaf(T, 1.0, 2.0)
    attempt(log, T.autograd.grad, (x * x).sum(), x, only_inputs=False)


@both
def test_a_gradient_may_be_given_for_each_output(T, log):
    x = leaf(T, 1.0, 2.0)
    a, b = x * 2, (x * x).sum()
    one = T.tensor([1.0, 10.0], dtype=T.float64)
    log((yield T.autograd.grad([a, b], x, [one, None], retain_graph=True)))
    log((yield T.autograd.grad((a, b), (x,), (one, T.tensor(3.0, dtype=T.float64)))))


@both
def test_nothing_else_runs(T, log):
    """Nodes that lead to no input, and the inputs' own nodes."""
    x, y = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
    a = x.exp()
    b = y.exp()
    c = a * b
    for name, tensor in (("a", a), ("b", b), ("c", c)):
        tensor.grad_fn.register_hook(lambda i, o, name=name: log(name))
    yield T.autograd.grad(c.sum(), a, retain_graph=True)
    log("-")
    yield T.autograd.grad(c.sum(), x, retain_graph=True)
    log("-")
    yield T.autograd.grad(c.sum(), [a, y], retain_graph=True)
    log("-")
    yield T.autograd.grad(c.sum(), [a, x], retain_graph=True)
    log("-")
    yield T.autograd.grad(a.sum(), b, allow_unused=True)


@both
def test_a_function_is_not_called_for_what_is_not_asked_for(T, log):
    def backward(ctx, gradient):
        log("called")
        return gradient * 2

    Loud = function_of(T, lambda ctx, x: x * 2, backward)
    x, y = leaf(T, 1.0), leaf(T, 2.0)
    z = Loud.apply(x) * y
    log((yield T.autograd.grad(z, y, retain_graph=True)))
    log((yield T.autograd.grad(z, x)))


@both
def test_the_rest_of_the_graph_is_not_freed(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x.exp()
    z = y.sin()
    log((yield T.autograd.grad(z.sum(), y)))
    log((yield T.autograd.grad(y.sum(), x)))
    yield from raised(log, T.autograd.grad, z.sum(), y)


@both
def test_first_second_and_third_derivatives(T, log):
    x = leaf(T, 0.5, -1.5)
    y = (x.sin() * x.exp() + x**4).sum()
    for _ in range(3):
        (g,) = yield T.autograd.grad(y, x, create_graph=True)
        log(g, g.requires_grad)
        y = g.sum()


@both
def test_mixed_second_derivatives(T, log):
    x, y = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
    z = (x**2 * y**3).sum()
    gx, gy = yield T.autograd.grad(z, [x, y], create_graph=True)
    log((yield T.autograd.grad(gx.sum(), [x, y], retain_graph=True)))
    log((yield T.autograd.grad(gy.sum(), [x, y], retain_graph=True)))
    log((yield T.autograd.grad((gx * gy).sum(), [x, y])))


@both
def test_gradients_by_the_given_gradients(T, log):
    x = leaf(T, 1.0, 2.0)
    v = leaf(T, 3.0, 4.0)
    (g,) = yield T.autograd.grad(x**3, x, v, create_graph=True)
    log((yield T.autograd.grad(g.sum(), [v, x])))


@both
def test_a_gradient_without_graph_needs_none(T, log):
    x = leaf(T, 1.0, 2.0)
    (g,) = yield T.autograd.grad((x * 3).sum(), x, create_graph=True)
    log(g.requires_grad)
    (g,) = yield T.autograd.grad((x * x).sum(), x)
    log(g.requires_grad, g.is_leaf)
    (g,) = yield T.autograd.grad((x * x).sum(), x, create_graph=True)
    log(g.requires_grad, g.is_leaf)


@both
def test_a_leaf_and_a_computed_tensor_between(T, log):
    """What an in-place change has made of a tensor is another input."""
    x = leaf(T, 1.0, 2.0)
    y = x * 2
    before = y
    edge = T.autograd.graph.get_gradient_edge(y)
    y *= 3
    z = (y * y).sum()
    log(before is y)
    log((yield T.autograd.grad(z, [y, edge, x])))


@both
def test_batches_of_gradients_of_edges(T, log):
    """Edges are roots and inputs, as their tensors would be."""
    x = leaf(T, 1.0, 2.0)
    y = x * x
    edge = T.autograd.graph.get_gradient_edge(y)
    batch = T.eye(2, dtype=T.float64)
    log((yield T.autograd.grad(y.exp(), edge, batch, is_grads_batched=True)))
    log((yield T.autograd.grad(edge, x, batch, is_grads_batched=True, retain_graph=True)))
    attempt(log, T.autograd.grad, edge, x, batch[0], is_grads_batched=True)


@both
def test_complex_inputs(T, log):
    z = T.tensor([1 + 2j, 3 - 1j], dtype=T.complex128, requires_grad=True)
    log((yield T.autograd.grad((z.abs() ** 2).sum(), z)))
    log((yield T.autograd.grad(z.abs().sum(), z)))
    log((yield T.autograd.grad(z, z, T.ones(2, dtype=T.complex128))))
    x = leaf(T, 1.0, 2.0)
    log((yield T.autograd.grad((x * z).abs().sum(), [x, z])))


# -- what is awaited -----------------------------------------------------------------------------


def test_on_a_loop_a_future_and_elsewhere_the_gradients():
    x = ag.ones(2, requires_grad=True)

    def f():
        return (x * x).sum()

    async def main():
        future = ag.grad(f(), x)
        with pytest.raises(TypeError, match="await"):
            (_,) = future
        return await future, await ag.grad(f(), {"x": x}), ag.sync.grad(f(), {"x": x})

    plain, named, blocking = asyncio.run(main())
    assert plain[0].tolist() == named["x"].tolist() == blocking["x"].tolist() == [2.0, 2.0]
    (g,) = ag.grad(f(), x)
    assert g.tolist() == [2.0, 2.0]


@pytest.mark.asyncio
async def test_awaiting_a_finished_result_is_harmless():
    x = ag.ones(2, requires_grad=True)
    with ag.blocking():
        result = ag.grad((x * x).sum(), x)
    assert (await result)[0].tolist() == [2.0, 2.0]


def test_each_of_many_leaves_gets_its_gradient(monkeypatch):
    """None of them is looked at as an edge, which takes ten times as long."""
    leaves = [ag.tensor(1.0, requires_grad=True) for _ in range(300)]
    loss = ag.stack([x * place for place, x in enumerate(leaves)]).sum()
    monkeypatch.delattr(exec_info, "as_edge")
    assert [g.item() for g in ag.grad(loss, leaves)] == list(range(300))
