"""Nodes as users see them: names, edges, what they have saved, and calling them."""

import weakref

import pytest
from parity import attempt, both, leaf

import asyncgrad as ag


def walk(node):
    """The names of a node and of all behind it, depth first."""
    return (
        None
        if node is None
        else [
            node.name().removeprefix("torch::autograd::"),
            *[walk(child) for child, _ in node.next_functions],
        ]
    )


@both
def test_graphs_look_as_in_pytorch(T, log):
    x, w = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
    plain = T.ones(2, dtype=T.float64)
    for y in (
        x * w,
        x * plain,
        plain * x,
        x + w,
        x - plain,
        x / w,
        x * 2,
        2 * x,
        x + 1,
        1 + x,
        x - 1,
        1 - x,
        x / 2,
        x**2,
        2**x,
        x**w,
        -x,
        x.exp(),
        x.log(),
        x.sin(),
        x.cos(),
        x.tanh(),
        x.sigmoid(),
        x.relu(),
        x.sqrt(),
        x.abs(),
        x.clone(),
        x.view(2, 1),
        x.expand(3, 2),
        x[:1],
        T.cat([x, w, plain]),
        T.matmul(x, w),
        x.view(1, 2) @ w.view(2, 1),
        (x * w).exp() * x,
        x.prod(),
        x.cumsum(0),
        T.maximum(x, w),
        x.clamp(0.0, 1.5),
    ):
        log(walk(y.grad_fn))


@both
def test_a_node_is_the_same_as_long_as_somebody_holds_it(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 2
    z = y * 3
    log(y.grad_fn is y.grad_fn, z.grad_fn.next_functions[0][0] is y.grad_fn)
    accumulator = y.grad_fn.next_functions[0][0]
    log(accumulator is (x + 1).grad_fn.next_functions[0][0], accumulator.variable is x)
    log(x.grad_fn, x.is_leaf, y.is_leaf, T.ones(1).is_leaf, T.ones(1).grad_fn)
    log(isinstance(y.grad_fn, T.autograd.graph.Node))
    log(isinstance(accumulator, T.autograd.graph.Node), issubclass(int, T.autograd.graph.Node))
    log(accumulator.next_functions, y.grad_fn.next_functions[0][1], y.output_nr)
    with T.no_grad():
        log((x * 2).grad_fn, (x * 2).is_leaf)


@both
def test_metadata_is_for_the_user(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 2
    log(y.grad_fn.metadata)
    y.grad_fn.metadata["where"] = "here"
    log(y.grad_fn.metadata, (x * 2).grad_fn.metadata)
    seen = []
    y.grad_fn.register_hook(lambda i, o: seen.append(y.grad_fn.metadata["where"]))
    yield y.sum().backward()
    log(seen)


@both
def test_sequence_numbers_grow(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 2
    z = y * 3
    log(z.grad_fn._sequence_nr() > y.grad_fn._sequence_nr())
    log(y.grad_fn.next_functions[0][0]._sequence_nr() == 2**64 - 1)
    # The order of the pass is theirs.
    a, b = x.exp(), x.sin()
    a.register_hook(lambda g: log("a"))
    b.register_hook(lambda g: log("b"))
    number = a.grad_fn._sequence_nr()
    a.grad_fn._set_sequence_nr(b.grad_fn._sequence_nr())
    b.grad_fn._set_sequence_nr(number)
    yield (a + b).sum().backward()


@both
def test_the_metadata_of_inputs(T, log):
    x = T.ones((2, 3), requires_grad=True)
    y = (x * 2).sum(0)
    (facts,) = y.grad_fn._input_metadata
    log(tuple(facts.shape), str(facts.dtype).rpartition(".")[2], str(facts.device))
    (facts,) = (y * 1).grad_fn.next_functions[0][0]._input_metadata
    log(tuple(facts.shape))


@both
def test_what_is_saved_can_be_looked_at(T, log):
    x, w = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
    y = x * w
    log(y.grad_fn._saved_self is x, y.grad_fn._saved_other is w)
    log(x.exp().grad_fn._saved_result, x.sin().grad_fn._saved_self)
    log((x**3.0).grad_fn._saved_exponent)
    z = x * 1
    u = z.sin()
    log(u.grad_fn._saved_self, u.grad_fn._saved_self.grad_fn is z.grad_fn)
    e = x.exp()
    log(e.grad_fn._saved_result.grad_fn is e.grad_fn, e.grad_fn._saved_result.requires_grad)
    log(T.cat([x, w]).grad_fn._saved_dim, T.stack([x, w], dim=0).grad_fn._saved_dim)
    log(x.softmax(0).grad_fn._saved_dim)
    attempt(log, lambda: y.grad_fn._saved_nothing)


@both
def test_what_was_saved_is_gone_after_the_pass(T, log):
    x, w = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
    y = x * w
    c = T.cat([y, y])
    yield c.sum().backward()
    attempt(log, lambda: y.grad_fn._saved_self)
    log(c.grad_fn._saved_dim)
    p = x**2.0
    yield p.sum().backward()
    log(p.grad_fn._saved_exponent)
    attempt(log, lambda: p.grad_fn._saved_self)
    y = x * w
    yield y.sum().backward(retain_graph=True)
    log(y.grad_fn._saved_self)


@both
def test_saved_tensors_are_checked_when_they_are_looked_at(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 1
    z = y.sin()
    y.add_(1)
    attempt(log, lambda: z.grad_fn._saved_self)


@both
def test_hooks_for_one_saved_tensor(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * x
    y.grad_fn._raw_saved_self.register_hooks(lambda t: t * 10, lambda t: t / 10)
    log(y.grad_fn._saved_self, y.grad_fn._saved_other)
    attempt(log, y.grad_fn._raw_saved_self.register_hooks, lambda t: t, lambda t: t)
    yield y.sum().backward()
    log(x.grad)
    attempt(log, lambda: y.grad_fn._raw_saved_self.register_hooks(lambda t: t, lambda t: t))


@both
def test_reductions_of_two_results_have_one_node(T, log):
    """Either result alone, both, twice, second derivatives, hooks, and calls of the node."""
    for name in ("var_mean", "std_mean", "aminmax"):
        for keywords in ({"dim": 1}, {"dim": 0, "keepdim": True}, {}):
            x = leaf(T, 1.0, 2.0, 5.0, 7.0, 7.0, 3.0)
            y = (x * x).reshape(2, 3)
            one, two = getattr(T, name)(y, **keywords)
            node = one.grad_fn
            log(two.grad_fn is node, one.output_nr, two.output_nr, walk(node))
            log([n for n in dir(node) if n.startswith("_saved_") and n != "_saved_max"])
            log(node._saved_self, node(T.ones_like(one), None), node(None, T.ones_like(two)))
            node.register_hook(lambda gi, go: log(gi, go))
            two.register_hook(lambda g: None if g is None else g * 3)
            for roots in ((one, two), (two,), (one,)):
                gradients = [T.ones_like(root) for root in roots]
                (g,) = yield T.autograd.grad(roots, x, gradients, create_graph=True)
                log(g, (yield T.autograd.grad((g * g).sum(), x, retain_graph=True)))
            node._raw_saved_self.register_hooks(lambda t: t * 2, lambda t: t / 2)
            yield (one * two).sum().backward()
            log(x.grad)


@both
def test_hooks_for_saved_indices_and_masks(T, log):
    """What is saved and no operand: packed, unpacked for both derivatives, and given up."""
    for name, call in (
        ("indices", lambda x: x[:, T.tensor([1, 2])]),
        ("indices", lambda x: x[T.tensor([1, 0]), T.tensor([1, 1])]),
        ("indices", lambda x: x.sort().values),
        ("indices", lambda x: x.topk(2).values),
        ("condition", lambda x: T.where(x > 3, x, x * 2)),
        ("mask", lambda x: x.masked_fill(x > 5, 0.0)),
    ):
        x = leaf(T, 3.0, 1.0, 2.0, 5.0, 4.0, 9.0)
        y = call((x * x).reshape(2, 3))
        node = y.grad_fn
        raw = getattr(node, f"_raw_saved_{name}")
        for one in raw if isinstance(raw, tuple) else (raw,):
            attempt(log, one.register_hooks, lambda t: [log(t), t], lambda kept: kept[1])
        log(getattr(node, f"_saved_{name}"))
        (g,) = yield T.autograd.grad((y * y).sum(), x, create_graph=True)
        yield (g * g).sum().backward()
        log(g, x.grad)
        attempt(log, getattr, node, f"_saved_{name}")


def test_a_node_whose_values_are_freed_still_lists_their_names():
    """Also indices, which are several tensors under one name."""
    x = ag.ones(2, 2, requires_grad=True)
    y = x[ag.tensor([0, 1]), ag.tensor([1, 0])]
    node = y.grad_fn
    before = dir(node)
    y.sum().backward()
    assert dir(node) == before
    with pytest.raises(RuntimeError, match="a second time"):
        _ = node._saved_indices


def test_a_result_that_can_change_is_read_as_it_was_saved():
    """The rule computes the result again if it was changed in place; so does who looks at it."""
    x = ag.tensor([1.0, -2.0, 3.0], requires_grad=True)
    y = x.cumprod(0)
    node = y.grad_fn
    y.mul_(3.0)
    assert node._saved_result.tolist() == [1.0, -2.0, -6.0]


@both
def test_nodes_can_be_called(T, log):
    x, w = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
    one = T.ones(2, dtype=T.float64)
    log((x * w).grad_fn(one))
    log(x.exp().grad_fn(one))
    log((x * w).grad_fn(T.ones(2, dtype=T.float64)))
    y = (x * w).grad_fn.next_functions[0][0]
    log(y(one), x.grad)
    attempt(log, (x * w).grad_fn, one, one)
    z = x * w
    log(z.grad_fn(one), z.grad_fn(2 * one))
    a = z.grad_fn(one)[0]
    log(a.requires_grad)


@both
def test_only_what_is_needed_is_saved(T, log):
    x, plain = leaf(T, 1.0, 2.0), T.ones(2, dtype=T.float64)
    y = x * plain
    plain2 = T.ones(2, dtype=T.float64)
    z = plain2 * x
    x.data.add_(1)
    with T.no_grad():
        x.add_(1)
    # The product with a constant has no use for x.
    yield (y + z).sum().backward()
    log(x.grad)


@both
def test_the_number_of_a_pass(T, log):
    number = getattr(T, "_C", T.autograd.graph)._current_graph_task_id
    x = leaf(T, 1.0)
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(number()))
    x.register_hook(lambda g: seen.append(number()))
    log(number())
    yield y.sum().backward(retain_graph=True)
    yield y.sum().backward()
    log(seen[0] == seen[1], seen[2] == seen[3], seen[0] != seen[2], min(seen) >= 0)


@both
def test_the_order_of_a_pass_is_known_beforehand(T, log):
    order = getattr(T, "_C", T.autograd.graph)._current_graph_task_execution_order

    def predict(*roots, inputs=None):
        """The order that the hook of the last root is told."""

        def hook(gradient):
            log([node.name().removeprefix("torch::autograd::") for node in order()])

        handle = roots[-1].register_hook(hook)
        with T.autograd.set_multithreading_enabled(False):
            yield T.autograd.backward(roots, inputs=inputs)
        handle.remove()

    x, w = T.tensor(1.0, requires_grad=True), T.tensor(2.0, requires_grad=True)
    yield from predict(x.clone().sin().exp())
    yield from predict(w.sin() * x.cos())
    yield from predict(x.sin() * x.cos() + x)
    yield from predict(x.sin(), w.exp())
    a = x.sin()
    b = a.exp()
    yield from predict(b * w, inputs=[a])
    a = x.sin()
    yield from predict(a.exp() * w.cos(), inputs=[x])
    a = x.sin()
    b = a.exp()
    yield from predict(b, inputs=[a, x])
    attempt(log, order)


def test_the_order_that_was_predicted_is_that_of_the_pass():
    x, w = ag.tensor(1.0, requires_grad=True), ag.tensor(2.0, requires_grad=True)
    a, b = x * w, w.exp()
    c = a * b
    d = c.sin() + a
    root = d * b
    real, predicted = [], []
    seen = set()
    stack = [root.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        node.register_prehook(lambda g, node=node: real.append(node))
        stack += [child for child, _ in node.next_functions]
    order = ag.autograd.graph._current_graph_task_execution_order
    root.register_hook(lambda g: predicted.extend(order()))
    root.backward()
    assert predicted == real
    assert len(real) == len(seen)


# -- nodes and memory ----------------------------------------------------------------------------


@pytest.mark.usefixtures("no_collector")
def test_a_node_that_is_held_keeps_what_lies_behind_and_no_tensor():
    x = ag.ones(2, requires_grad=True)
    y = x * 2
    z = y.exp()
    gone = weakref.ref(z)
    node = z.grad_fn
    before = weakref.ref(y)
    del z, y
    assert gone() is None
    assert before() is None
    assert [walk(node)] == [["ExpBackward0", ["MulBackward0", ["AccumulateGrad"], None]]]


@pytest.mark.usefixtures("no_collector")
def test_a_leaf_s_accumulator_goes_with_its_graphs():
    x = ag.ones(2, requires_grad=True)
    y = x * 2
    accumulator = weakref.ref(y.grad_fn.next_functions[0][0])
    assert accumulator() is not None
    del y
    assert accumulator() is None
