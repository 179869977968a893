"""`backward()`: its roots, their gradients, what is asked of it, and what it refuses."""

import asyncio
import subprocess
import sys
from types import MappingProxyType

import numpy as np
import pytest
from functions import function_of
from parity import attempt, both, leaf, raised

import asyncgrad as ag
from asyncgrad.core import run_node

# -- roots ---------------------------------------------------------------------------------------


@both
def test_a_scalar_needs_no_gradient_and_anything_else_does(T, log):
    x = leaf(T, 1.0, 2.0)
    yield (x * x).sum().backward()
    log(x.grad)
    yield (x[:1] * 2).backward()
    log(x.grad)
    attempt(log, (x * 2).backward)
    attempt(log, (x * 2).backward, None)
    attempt(log, T.zeros((0,), requires_grad=True).backward)
    z = (x * (1 + 2j)).sum()
    attempt(log, z.backward)
    yield z.backward(T.tensor(1.0 + 0j, dtype=T.complex128))
    log(x.grad)


@both
def test_a_root_without_graph_is_refused_and_a_leaf_takes_its_own_gradient(T, log):
    x = leaf(T, 1.0, 2.0)
    plain = T.ones(2)
    attempt(log, plain.sum().backward)
    attempt(log, T.autograd.backward, [x.sum(), plain.sum()])
    attempt(log, x.detach().sum().backward)
    with T.no_grad():
        attempt(log, (x * 2).sum().backward)
    log(x.grad)
    yield x.backward(T.tensor([3.0, 4.0], dtype=T.float64))
    log(x.grad)
    yield x.backward(T.tensor([3.0, 4.0], dtype=T.float64))
    log(x.grad)
    s = T.tensor(2.0, requires_grad=True)
    yield s.backward()
    log(s.grad)


@both
def test_a_gradient_has_the_shape_of_its_root(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 2
    for shape in ((1,), (3,), (1, 2), (2, 1), ()):
        attempt(log, y.backward, T.ones(shape, dtype=T.float64))
    attempt(log, y.backward, T.ones(2, dtype=T.complex128))
    attempt(log, y.backward, 1.0)
    attempt(log, T.autograd.backward, [y.sum(), y.sum()], [T.ones((), dtype=T.float64)])
    log(x.grad)
    yield y.backward(T.tensor([1.0, 10.0], dtype=T.float64))
    log(x.grad)


@both
def test_a_gradient_is_brought_to_the_dtype_of_its_root(T, log):
    x = T.ones(2, requires_grad=True)
    for dtype in (T.float64, T.int64, T.bool, T.float16):
        yield (x * 2).backward(T.ones(2, dtype=dtype))
        log(x.grad)
        yield x.backward(T.ones(2, dtype=dtype))
        log(x.grad)
        log((yield T.autograd.grad(x * 2, x, T.ones(2, dtype=dtype))))
        log((yield T.autograd.grad(x, x, T.ones(2, dtype=dtype))))
    given = T.ones(2, dtype=T.float64, requires_grad=True)
    (g,) = yield T.autograd.grad(x * x, x, given, create_graph=True)
    log(g)
    log((yield T.autograd.grad(g.sum(), [x, given])))


@both
def test_several_roots_add_up_and_the_same_one_counts_twice(T, log):
    x, y = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
    p, q = (x * y).sum(), x * x * y
    one = T.ones(2, dtype=T.float64)
    yield T.autograd.backward([p, q], [None, one], retain_graph=True)
    log(x.grad, y.grad)
    yield T.autograd.backward((p, p), retain_graph=True)
    log(x.grad, y.grad)
    yield T.autograd.backward([q, q], grad_tensors=[one, 2 * one])
    log(x.grad, y.grad)
    # A leaf, and what is computed from it.
    yield T.autograd.backward([x, x * 3], [one, one])
    log(x.grad)
    # A root that is computed from another.
    a = x * 2
    b = (a * y).sum()
    yield T.autograd.backward([a, b], [one, None], retain_graph=True)
    log(x.grad, y.grad)
    yield T.autograd.backward([])
    yield T.autograd.backward(a.sum(), T.tensor(3.0, dtype=T.float64))
    log(x.grad)


@both
def test_roots_that_are_outputs_of_one_function(T, log):
    x = leaf(T, 1.0, 2.0, 3.0)
    a, b, c = x.unbind(0)
    yield T.autograd.backward([a * a, c * 5])
    log(x.grad)
    yield T.autograd.backward([b, c], retain_graph=True)
    log(x.grad)


@both
def test_roots_have_to_be_tensors(T, log):
    x = leaf(T, 1.0)
    attempt(log, T.autograd.backward, 3)
    for wrong in ([x], [None]):
        attempt(lambda e: log(isinstance(e, Exception)), T.autograd.backward, [wrong])
    log(x.grad)


# -- gradient edges ------------------------------------------------------------------------------


@both
def test_gradient_edges_stand_for_tensors(T, log):
    get = T.autograd.graph.get_gradient_edge
    x = leaf(T, 1.0, 2.0)
    y = x * x
    z = (y * 3).sum()
    log(type(get(y)).__name__, get(y).node is y.grad_fn, get(y).output_nr, len(get(y)))
    log(get(x).node, get(x).output_nr, get(x).node.variable is x)
    log((yield T.autograd.grad(z, [get(y), get(x), y], retain_graph=True)))
    log((yield T.autograd.grad(get(z), get(y), retain_graph=True)))
    log((yield T.autograd.grad([get(z)], [x], retain_graph=True)))
    log((yield T.autograd.grad(get(y), x, T.ones(2, dtype=T.float64), retain_graph=True)))
    yield T.autograd.backward(get(z), retain_graph=True)
    log(x.grad)
    yield T.autograd.backward([get(z), y], [None, T.ones(2, dtype=T.float64)], retain_graph=True)
    log(x.grad)
    yield T.autograd.backward(get(x), T.ones(2, dtype=T.float64))
    log(x.grad)
    attempt(log, T.autograd.backward, get(y))
    attempt(log, T.autograd.backward, get(y), T.ones(3, dtype=T.float64))
    attempt(log, get, T.ones(2))
    attempt(log, get, x.detach())


@both
def test_gradient_edges_to_outputs_of_one_function(T, log):
    get = T.autograd.graph.get_gradient_edge
    Thirds = function_of(
        T, lambda ctx, x: (x[0] * 1, x[1] * 1, x[2] * 1), lambda ctx, *gradients: T.stack(gradients)
    )
    x = leaf(T, 1.0, 2.0, 3.0)
    parts = Thirds.apply(x)
    edges = [get(part) for part in parts]
    log([edge.output_nr for edge in edges], edges[0].node is edges[1].node)
    y = parts[0] * parts[2]
    log((yield T.autograd.grad(y, edges, retain_graph=True, allow_unused=True)))
    log((yield T.autograd.grad(edges[1:], x, retain_graph=True)))


@both
def test_a_gradient_edge_keeps_the_graph_and_not_the_tensor(T, log):
    get = T.autograd.graph.get_gradient_edge
    x = leaf(T, 3.0)
    y = x * x
    edge = get(y)
    z = y * 2
    del y
    log((yield T.autograd.grad(z, edge, retain_graph=True)))
    log((yield T.autograd.grad(z, x)))
    Twice = function_of(T, lambda ctx, x: x * 2, lambda ctx, gradient: gradient * 2)
    edge = get(Twice.apply(x * 2))
    log(edge.node.name())
    log((yield T.autograd.grad(edge, x)))


@both
def test_an_edge_as_input_of_backward_runs_its_node_and_nothing_behind(T, log):
    get = T.autograd.graph.get_gradient_edge
    x = leaf(T, 1.0, 2.0)
    y = x * x
    z = (y * 3).sum()
    y.grad_fn.register_hook(lambda grad_inputs, grad_outputs: log("ran", *grad_outputs))
    yield z.backward(inputs=get(y), retain_graph=True)
    log(x.grad, y.retains_grad)
    yield z.backward(inputs=[get(x)])
    log(x.grad)


# -- inputs --------------------------------------------------------------------------------------


@both
def test_inputs_are_all_that_is_accumulated_into(T, log):
    x, y = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)

    def f():
        return (x * y + x).sum()

    yield f().backward(inputs=x)
    log(x.grad, y.grad)
    yield f().backward(inputs=[y])
    log(x.grad, y.grad)
    yield f().backward(inputs=(x, y))
    log(x.grad, y.grad)
    yield f().backward(inputs={"x": x, 3: y})
    log(x.grad, y.grad)
    yield T.autograd.backward(f(), inputs=iter([x, x]))
    log(x.grad, y.grad)
    unused = leaf(T, 5.0)
    yield f().backward(inputs=[unused])
    log(unused.grad, x.grad)


@both
def test_inputs_that_are_no_good(T, log):
    x = leaf(T, 1.0, 2.0)
    z = (x * x).sum()
    attempt(log, z.backward, inputs=[])
    attempt(log, z.backward, inputs=())
    attempt(log, z.backward, inputs={})
    attempt(log, z.backward, inputs=MappingProxyType({"x": x}))
    attempt(log, z.backward, inputs=[T.ones(2)])
    attempt(log, z.backward, inputs=[3])
    attempt(log, T.autograd.backward, [z], inputs=[])
    log(x.grad)
    yield z.backward()
    log(x.grad)


@both
def test_a_computed_input_accumulates_and_its_own_node_runs(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * x
    z = y * 3
    y.grad_fn.register_prehook(lambda gradients: log("before", *gradients))
    y.grad_fn.register_hook(lambda inputs, outputs: log("after", *outputs))
    y.register_hook(lambda g: log("tensor", g))
    log(y.retains_grad)
    yield z.sum().backward(inputs=[y], retain_graph=True)
    log(y.grad, x.grad, y.retains_grad)
    yield z.sum().backward(inputs=y)
    log(y.grad, x.grad)
    # Its saved tensors are gone, though nothing flowed on.
    yield from raised(log, y.sum().backward)
    log(x.grad)


@both
def test_inputs_one_above_the_other(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * x
    z = (y * 3).sum()
    yield z.backward(inputs=[y, x])
    log(y.grad, x.grad)


@both
def test_only_what_leads_to_the_inputs_runs(T, log):
    """The other branch keeps what it has saved."""
    x, y = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
    a, b = x.exp(), y.exp()
    a.grad_fn.register_hook(lambda i, o: log("a"))
    b.grad_fn.register_hook(lambda i, o: log("b"))
    z = (a + b).sum()
    yield z.backward(inputs=[x])
    log(x.grad, y.grad)
    yield b.sum().backward()
    log(y.grad)
    yield from raised(log, a.sum().backward)


# -- retain_graph --------------------------------------------------------------------------------


@both
def test_a_graph_is_used_once_unless_it_is_retained(T, log):
    x = leaf(T, 1.0, 2.0)
    y = (x * x).exp().sum()
    yield y.backward(retain_graph=True)
    yield y.backward(retain_graph=True)
    yield y.backward()
    log(x.grad)
    try:
        yield y.backward()
    except RuntimeError as error:
        log(error, "second time" in str(error), "retain_graph=True" in str(error))
    log(x.grad)


@both
def test_what_has_saved_nothing_runs_again(T, log):
    x = leaf(T, 1.0, 2.0)
    y = (x + x).sum()
    for _ in range(3):
        yield y.backward()
    log(x.grad)
    yield y.backward(retain_graph=False)
    log(x.grad)


@both
def test_a_shared_part_can_not_be_used_by_a_second_graph(T, log):
    x = leaf(T, 1.0, 2.0)
    shared = x.exp()
    a, b = (shared * 2).sum(), (shared * 3).sum()
    yield a.backward()
    yield from raised(log, b.backward)
    log(x.grad)
    shared = x.exp()
    a, b = (shared * 2).sum(), (shared * 3).sum()
    yield a.backward(retain_graph=True)
    yield b.backward()
    log(x.grad)


@both
def test_only_what_has_run_is_freed(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x.exp()
    z = y.sin()
    yield T.autograd.grad(z.sum(), y)
    yield y.sum().backward()
    log(x.grad)
    attempt(log, lambda: z.grad_fn._saved_self)


# -- create_graph --------------------------------------------------------------------------------


@both
def test_create_graph_makes_gradients_that_can_be_differentiated(T, log):
    x, y = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
    yield (x * x * y).sum().backward(create_graph=True)
    log(x.grad, x.grad.requires_grad, y.grad, y.grad.requires_grad)
    before = x.grad
    yield x.grad.sum().backward(create_graph=True)
    log(before, x.grad, before is x.grad, y.grad)
    x.grad = y.grad = None


@both
def test_create_graph_counts_and_the_mode_of_the_caller_does_not(T, log):
    x = leaf(T, 1.0, 2.0)
    y = (x * x).sum() + (x * x * x).sum()
    with T.no_grad():
        yield y.backward(create_graph=True)
    log(x.grad, x.grad.requires_grad)
    first, x.grad = x.grad, None
    log((yield T.autograd.grad(first.sum(), x)))
    y = (x * x).sum() + (x * x * x).sum()
    with T.no_grad():
        (g,) = yield T.autograd.grad(y, x, create_graph=True)
    log(g.requires_grad)
    log((yield T.autograd.grad(g.sum(), x)))
    y = (x * x).sum()
    yield y.backward()
    log(x.grad.requires_grad)


@both
def test_create_graph_keeps_the_graph_unless_told_otherwise(T, log):
    x = leaf(T, 2.0)
    y = x * x * x
    (g,) = yield T.autograd.grad(y, x, create_graph=True)
    (h,) = yield T.autograd.grad(g, x, create_graph=True)
    log(g, h, (yield T.autograd.grad(h, x)))
    y = x * x * x
    yield T.autograd.grad(y, x, create_graph=True, retain_graph=False)
    yield from raised(log, T.autograd.grad, y, x)


@pytest.mark.torch
def test_backward_with_create_graph_warns_once_of_the_cycle_it_makes():
    """Once in a process: it is looked at in a fresh one, there and here."""
    program = """
import warnings, {module} as T
x = T.ones(2, requires_grad=True)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    T.autograd.grad((x * x).sum(), x, create_graph=True)
    print(len(caught))
    (x * x).sum().backward(create_graph=True)
    T.autograd.backward((x * x).sum(), create_graph=True)
print([(w.category.__name__, "reference cycle" in str(w.message)) for w in caught])
"""
    printed = [
        subprocess.run(
            [sys.executable, "-c", program.format(module=module)],
            capture_output=True, text=True, check=True, timeout=300,
        ).stdout
        for module in ("torch", "asyncgrad")
    ]  # fmt: skip
    assert printed[0] == printed[1] == "0\n[('UserWarning', True)]\n"


# -- the future ----------------------------------------------------------------------------------


def test_backward_gives_nothing():
    x = ag.ones(2, requires_grad=True)

    async def main():
        return await (x * x).sum().backward()

    assert asyncio.run(main()) is None
    assert ag.sync.backward((x * x).sum()) is None
    assert x.grad.tolist() == [4.0, 4.0]


# -- NumPy ---------------------------------------------------------------------------------------


def loud():
    """A pass in which infinities meet zeros: in rules, sums, hooks and the commit."""
    x = ag.tensor([0.0, 1.0], requires_grad=True)
    x.grad = ag.tensor([float("inf"), 0.0])
    y = x.sqrt()
    y.register_hook(lambda gradient: gradient * float("inf") * 0)
    z = x.abs().sqrt() * ag.tensor([0.0, 2.0])
    w = x.reciprocal()
    w.grad_fn.register_prehook(lambda gradients: (gradients[0] * 0,))
    return x, (y + z).sum() + w.sum()


def test_a_pass_says_nothing_of_infinities():
    x, loss = loud()
    loss.backward()
    assert np.isnan(x.grad.numpy()).tolist() == [True, True]
    x, loss = loud()
    (g,) = ag.grad(loss, x, create_graph=True)
    with np.errstate(all="raise"):
        loss.backward()
    assert np.isnan(g.detach().numpy()).tolist() == [True, True]


@pytest.mark.asyncio
async def test_an_awaited_pass_says_nothing_of_infinities():
    x, loss = loud()
    await loss.backward(retain_graph=True)
    futures = [loss.backward(retain_graph=True) for _ in range(50)]
    await asyncio.gather(*futures)
    assert np.isnan(x.grad.numpy()).tolist() == [True, True]


@pytest.mark.asyncio
async def test_a_pass_in_a_thread_says_nothing_of_infinities():
    x = ag.zeros((1_000, 1_000), requires_grad=True)
    y = x.sqrt()
    await (y * ag.zeros((1_000, 1_000))).sum().backward()
    assert np.isnan(x.grad.numpy()).all()
    assert np.geterr()["invalid"] == "warn"


def test_nodes_that_run_no_user_code_make_no_record_of_modes(monkeypatch):
    """A pass from several parts would take a fifth longer."""
    monkeypatch.setattr(run_node, "modes_within", None)
    x = ag.ones(4, requires_grad=True)
    ag.autograd.backward(x.split(2), [ag.ones(2), ag.full((2,), 2.0)])
    assert x.grad.tolist() == [1.0, 1.0, 2.0, 2.0]
    with pytest.raises(TypeError):
        _Plain.apply(x).sum().backward()


_Plain = function_of(ag, lambda ctx, x: x * 2, lambda ctx, g: g * 2)
