"""Which nodes a pass runs, and in which order."""

import numpy as np
import pytest
from functions import function_of
from parity import both, leaf, raised

import asyncgrad as ag


def watched(log, **tensors):
    """Have each tensor's node say its name when it runs."""
    for name, tensor in tensors.items():
        tensor.grad_fn.register_prehook(lambda g, name=name: log(name))


@both
def test_nodes_of_requested_tensors_compute_only_what_is_wanted(T, log):
    """`inputs=` runs the node of a tensor that was computed, though nothing may flow on from it."""
    x, w = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
    y = (x * 1) * w
    y.grad_fn.register_hook(lambda inputs, outputs: log(inputs, outputs))
    z = y.exp()
    for wanted in ([y], [y, w], [z, y], [x, y]):
        yield z.sum().backward(inputs=wanted, retain_graph=True)
    log(x.grad, w.grad, y.grad, z.grad)


@both
def test_branches_run_in_the_reverse_order_of_their_making(T, log):
    x = leaf(T, 1.0, 2.0)
    a = x * 2
    b = x.exp()
    c = a.sin()
    d = b.cos()
    e = c * a
    f = d + e
    watched(log, a=a, b=b, c=c, d=d, e=e, f=f)
    x.register_hook(lambda g: log("x"))
    yield f.sum().backward()


@both
def test_leaves_run_as_soon_as_they_are_complete(T, log):
    x, y, z = leaf(T, 1.0), leaf(T, 2.0), leaf(T, 3.0)
    for name, t in (("x", x), ("y", y), ("z", z)):
        t.register_hook(lambda g, name=name: log(name))
    a = x * y
    b = a * z
    c = b * x
    watched(log, a=a, b=b, c=c)
    yield c.sum().backward()


@both
def test_roots_in_their_order_and_nodes_in_theirs(T, log):
    x = leaf(T, 1.0)
    a, b = x * 2, x * 3
    watched(log, a=a, b=b)
    yield T.autograd.backward([a.sum(), b.sum()])
    a, b = x * 2, x * 3
    watched(log, a=a, b=b)
    yield T.autograd.backward([b.sum(), a.sum()])


@both
def test_a_node_waits_for_all_that_lead_to_it(T, log):
    x = leaf(T, 1.0)
    a = x * 2
    b = a.exp()
    late = a.sin()
    c = b * b
    watched(log, a=a, b=b, late=late, c=c)
    a.register_hook(lambda g: log(g))
    yield (c + late).sum().backward()


@both
def test_a_root_within_the_graph_of_another(T, log):
    x = leaf(T, 1.0)
    a = x * 2
    b = a.exp()
    watched(log, a=a, b=b)
    a.register_hook(lambda g: log(g))
    yield T.autograd.backward([b.sum(), a.sum()], retain_graph=True)
    yield T.autograd.backward([a, b], [a.detach(), b.detach()])
    log(x.grad)


@both
def test_partial_passes_run_what_lies_between(T, log):
    x, y = leaf(T, 1.0), leaf(T, 2.0)
    a = x.exp()
    b = a * y
    c = b.sin()
    d = c * x
    watched(log, a=a, b=b, c=c, d=d)
    for inputs in ([x], [y], [a], [b], [c], [a, y], [c, x], [d]):
        log("for")
        result = yield T.autograd.grad(d, inputs, retain_graph=True)
        log(result)


@both
def test_partial_passes_that_accumulate(T, log):
    x, y = leaf(T, 1.0), leaf(T, 2.0)
    a = x.exp()
    b = a * y
    c = b.sin()
    watched(log, a=a, b=b, c=c)
    for inputs in ([x], [y], [a], [b], [a, y]):
        log("for")
        yield c.backward(inputs=inputs, retain_graph=True)
        log(x.grad, y.grad)


@both
def test_of_several_inputs_only_wanted_gradients_reach_hooks(T, log):
    """A node computes nothing for an input that nobody asks for."""
    x, y = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
    z = x * y
    z.grad_fn.register_hook(lambda i, o: log([g is None for g in i]))
    yield T.autograd.grad(z.sum(), x, retain_graph=True)
    yield T.autograd.grad(z.sum(), [x, y], retain_graph=True)
    yield z.sum().backward(inputs=[y], retain_graph=True)
    log(x.grad, y.grad)


@both
def test_undefined_gradients_run_through(T, log):
    Nothing = function_of(T, backward=lambda ctx, gradient: None)
    x, y = leaf(T, 1.0), leaf(T, 2.0)
    a = x.exp()
    b = Nothing.apply(a)
    watched(log, a=a)
    yield (b * y).sum().backward()
    log(x.grad, y.grad)
    a = x.exp()
    c = (Nothing.apply(a) + a * 3).sum()
    yield c.backward(retain_graph=True)
    log(x.grad)
    for inputs in ([x], [a]):
        log((yield T.autograd.grad(c, inputs, retain_graph=True)))
    b = Nothing.apply(a)
    log((yield T.autograd.grad(b.sum(), [a, x], allow_unused=True, retain_graph=True)))
    log((yield T.autograd.grad(b.sum(), [x], materialize_grads=True, retain_graph=True)))
    yield from raised(log, T.autograd.grad, b.sum(), [x])


@both
def test_only_some_outputs_of_a_function_have_gradients(T, log):
    def backward(ctx, a, b):
        log(a, b)
        return a + b * 2

    Two = function_of(T, lambda ctx, x: (x * 1, x * 2), backward)
    x = leaf(T, 1.0)
    a, b = Two.apply(x)
    log((yield T.autograd.grad(a, x, retain_graph=True)))
    log((yield T.autograd.grad(b, x, retain_graph=True)))
    log((yield T.autograd.grad([a, b], [x, b], retain_graph=True)))
    log((yield T.autograd.grad(b * 3, [a, b], retain_graph=True, allow_unused=True)))
    log((yield T.autograd.grad(a * b, [a, b, x])))


class Counting(ag.autograd.Function):
    """Counts how often its backward runs."""

    ran = 0

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        Counting.ran += 1
        return gradient


def test_nothing_behind_an_input_is_visited():
    """A thousand nodes behind the input are neither walked nor run."""
    x = ag.ones(1, requires_grad=True)
    behind = x
    for _ in range(1_000):
        behind = Counting.apply(behind)
    middle = behind * 2
    ahead = middle
    for _ in range(10):
        ahead = Counting.apply(ahead)
    Counting.ran = 0
    ag.grad(ahead, middle)
    assert Counting.ran == 10


def test_nothing_beside_the_way_to_an_input_runs():
    x, y = ag.ones(1, requires_grad=True), ag.ones(1, requires_grad=True)
    beside = y
    for _ in range(100):
        beside = Counting.apply(beside)
    way = Counting.apply(x)
    Counting.ran = 0
    ag.grad(way * beside, x, retain_graph=True)
    assert Counting.ran == 1
    (way * beside).backward(inputs=[x], retain_graph=True)
    assert Counting.ran == 2
    (way * beside).backward(retain_graph=True)
    assert Counting.ran == 103


@pytest.mark.parametrize("seed", range(5))
def test_a_pass_gives_the_same_bits_each_time(seed):
    generator = np.random.default_rng(seed)
    values = generator.uniform(-1, 1, (6, 50)).astype(np.float32)

    def gradient():
        x = ag.tensor(values[0], requires_grad=True)
        y = x
        parts = []
        for row in values[1:]:
            y = (y * ag.tensor(row)).sin() + x * y
            parts.append(y.exp())
        total = parts[0]
        for part in parts[1:]:
            total = total + part * x
        total.sum().backward()
        return x.grad.numpy().tobytes()

    assert gradient() == gradient()


@both
def test_a_root_that_is_not_asked_for(T, log):
    """Nothing runs, and a leaf that is no input takes nothing; its own hooks are called."""
    x, y = leaf(T, 1.0), leaf(T, 2.0)
    x.register_hook(lambda g: log("x", g))
    yield x.backward(inputs=[y])
    log(x.grad, y.grad)
    z = x * 2
    z.register_hook(lambda g: log("z", g))
    z.grad_fn.register_prehook(lambda g: log("pre", g))
    log((yield T.autograd.grad(z, y, allow_unused=True, retain_graph=True)))
    log((yield T.autograd.grad([z, z], [y], allow_unused=True)))


@both
def test_leaves_of_one_node_in_its_order(T, log):
    x, y = leaf(T, 1.0), leaf(T, 2.0)
    for name, t in (("x", x), ("y", y)):
        t.register_hook(lambda g, name=name: log(name))
    yield T.autograd.backward([x, x + y])
    yield T.autograd.backward([y, x + y])
    yield T.autograd.backward([y + x, x])
