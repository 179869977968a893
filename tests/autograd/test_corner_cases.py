"""Corner cases of graphs, hooks, views and changes in place, as PyTorch settles them."""

from functions import function_of
from parity import attempt, both, leaf, raised


@both
def test_hooks_of_an_accumulator_that_is_merely_captured(T, log):
    x = leaf(T, 1.0)
    y = x * 2
    acc = y.grad_fn.next_functions[0][0]
    acc.register_hook(lambda i, o: log("post", i, o))
    acc.register_prehook(lambda g: log("pre", g))
    x.register_hook(lambda g: log("tensor", g))
    log((yield T.autograd.grad(y, x, retain_graph=True)))
    yield y.backward(inputs=[x], retain_graph=True)
    yield y.backward()
    log(x.grad)


@both
def test_a_hook_before_an_accumulator_replaces_the_gradient(T, log):
    x = leaf(T, 1.0)
    y = x * 2
    acc = y.grad_fn.next_functions[0][0]
    acc.register_prehook(lambda g: (g[0] * 10,))
    yield y.backward()
    log(x.grad)


@both
def test_hooks_of_tensors_come_before_hooks_of_nodes(T, log):
    x = leaf(T, 1.0)
    acc = (x * 1).grad_fn.next_functions[0][0]
    x.register_hook(lambda g: log("t1"))
    acc.register_prehook(lambda g: log("p1"))
    x.register_hook(lambda g: log("t2"))
    acc.register_prehook(lambda g: log("p2"))
    yield (x * 2).sum().backward()


@both
def test_retained_gradients_of_views_that_change(T, log):
    x = leaf(T, 1.0, 2.0)
    base = x * 1
    view = base[0]
    view2 = base[1]
    view.retain_grad()
    view2.retain_grad()
    base.retain_grad()
    view.mul_(3)
    yield base.sum().backward()
    log(base.grad, view.retains_grad, view2.retains_grad, view.grad, view2.grad, x.grad)


@both
def test_ctx_kept_by_backward(T, log):
    saved = []

    class Id(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            saved.append(ctx)
            return ctx.saved_tensors

    x = leaf(T, 1.0)
    y = Id.apply(x)
    yield y.sum().backward(retain_graph=True)
    log(x.grad)
    y = Id.apply(x)
    yield y.sum().backward()
    attempt(log, lambda: saved[1].saved_tensors)
    log(saved[0].saved_tensors)


@both
def test_a_result_that_ctx_leads_to(T, log):
    class F(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, meta):
            ctx.meta = meta
            y = x.clone()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            log(g, ctx.meta["foo"], y)
            return g, None

    x = leaf(T, 1.0)
    meta = {}
    y = F.apply(x, meta)
    meta["foo"] = y
    yield y.sum().backward()


@both
def test_changes_of_parts_of_parts(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x.clone()
    y[0].mul_(2)
    y[:1].add_(x[1:])
    z = y.clone()
    z.view(2, 1)[1].mul_(y[0])
    yield z.sum().backward()
    log(x.grad)


@both
def test_a_view_of_a_view_that_changes(T, log):
    a = leaf(T, 1.0, 2.0)
    b = leaf(T, 3.0)
    c = a.clone()
    v = c.narrow(0, 1, 1)
    w = v.view(1)
    w.add_(b)
    c.register_hook(lambda g: log("c", g))
    yield c.sum().backward()
    log(a.grad, b.grad)


@both
def test_a_view_that_changes_first_without_and_then_with_grad(T, log):
    a = T.ones(2, dtype=T.float64)
    b = leaf(T, 2.0)
    v = a[0:1]
    with T.no_grad():
        v.mul_(b)
    log(a, a.requires_grad, v.requires_grad)
    v.mul_(b)
    log(a.requires_grad, a.grad_fn, v.requires_grad)
    yield a.sum().backward()
    log(b.grad)


@both
def test_a_view_that_a_function_returns_unrecorded(T, log):
    Fn = function_of(T, lambda ctx, inp: inp.view(inp.shape), lambda ctx, g: g)
    a = T.ones(2, dtype=T.float64)
    v = Fn.apply(a)
    log(v._is_view())
    attempt(log, v.add_, leaf(T, 1.0, 2.0))
    log(v.requires_grad, a.requires_grad, a)
    attempt(log, v.add_, 1)


@both
def test_a_tensor_added_to_itself_in_place(T, log):
    x = leaf(T, 2.0)
    y = x * 1
    y.add_(y)
    y += y
    log(y)
    yield y.sum().backward()
    log(x.grad)


@both
def test_the_second_derivative_needs_what_the_first_pass_has_saved(T, log):
    x = leaf(T, 2.0)
    y = x**3
    (g,) = yield T.autograd.grad(y, x, create_graph=True)
    yield y.sum().backward()
    try:
        log((yield T.autograd.grad(g, x)))
    except RuntimeError as error:
        log(error)


@both
def test_tensors_like_others_require_no_grad(T, log):
    x = leaf(T, 2.0)
    z = T.zeros_like(x)
    log(z.requires_grad)
    o = T.ones_like(x, requires_grad=True)
    log(o.requires_grad)
    yield (x * o).sum().backward()
    log(o.grad)


@both
def test_a_detached_alias_that_changes(T, log):
    x = leaf(T, 2.0)
    y = x**2
    z = y.detach()
    w = y**2
    z.zero_()
    yield from raised(log, w.sum().backward)


@both
def test_versions_after_data_was_set(T, log):
    x = leaf(T, 1.0)
    y = T.ones(1, dtype=T.float64)
    y.add_(1)
    x.data = y
    log(x._version, y._version)
    y.add_(1)
    log(x, x._version)
    x.detach().add_(1)
    log(x._version, y._version)


@both
def test_gradients_at_corners_of_functions(T, log):
    x = leaf(T, 0.0, 1.0, 2.0)
    for f in (
        lambda: x**0,
        lambda: x**1,
        lambda: x**2,
        lambda: x.sqrt(),
        lambda: x.abs(),
        lambda: x.prod(),
        lambda: x.clamp(1, 1.5),
        lambda: x.max(),
        lambda: x.norm(),
    ):
        log((yield T.autograd.grad(f().sum(), x)))


@both
def test_leaves_written_into_a_buffer(T, log):
    x = T.zeros((2, 2), dtype=T.float64)
    y = leaf(T, 1.0, 2.0)
    z = leaf(T, 3.0, 4.0)
    x[0] = y
    x[1] = 2 * z
    log(x.requires_grad, x.grad_fn is not None)
    yield x.sum().backward()
    log(y.grad, z.grad)


@both
def test_writing_into_a_leaf_without_grad(T, log):
    x = leaf(T, 1.0, 2.0)
    y = T.ones(2, dtype=T.float64)
    with T.no_grad():
        x[0] = y[0] * 5
    log(x.requires_grad, x.grad_fn, x)
    yield x.sum().backward()


@both
def test_the_mode_of_the_caller_does_not_matter_to_a_pass(T, log):
    x = leaf(T, 1.0)
    y = x * 2
    with T.no_grad():
        yield y.backward()
    log(x.grad)
    with T.no_grad():
        yield from raised(log, (x * 2).backward)


@both
def test_what_leads_to_no_input_is_not_run(T, log):
    def backward(ctx, g):
        log("ran")
        return g

    Never = function_of(T, lambda ctx, x: x.clone(), backward)
    x = leaf(T, 1.0)
    y = leaf(T, 2.0)
    log((yield T.autograd.grad(x * 2, [y], allow_unused=True)))
    a = Never.apply(x)
    log((yield T.autograd.grad(a * 2, [y], allow_unused=True)))
    yield (a * y).backward(inputs=[y])
    log(y.grad)


@both
def test_data_of_another_shape_and_dtype(T, log):
    x = leaf(T, 1.0)
    x.data = T.ones(3, dtype=T.float64)
    log(x.shape == (3,))
    yield (x * 2).sum().backward()
    log(x.grad)
    try:
        x.data = T.ones(2)
        log(str(x.dtype).rpartition(".")[2])
    except RuntimeError as error:
        log(error)


@both
def test_gradients_after_data_of_another_shape(T, log):
    x = leaf(T, 1.0)
    yield (x * 2).sum().backward()
    x.data = T.ones(3, dtype=T.float64)
    x.grad = None
    yield (x * 2).sum().backward()
    log(x.grad)


@both
def test_results_without_gradient(T, log):
    x = leaf(T, 1.0, 5.0, 3.0)
    for f in (
        lambda: x.argmax(),
        lambda: x.argmin(),
        lambda: x.argsort(),
        lambda: x.topk(2)[1],
        lambda: x.sort()[1],
        lambda: x > 2,
        lambda: x == x,
        lambda: x.isnan(),
        lambda: x.sign(),
        lambda: x.floor(),
        lambda: x.round(),
        lambda: x.long(),
        lambda: x.bool(),
        lambda: T.zeros_like(x),
        lambda: x.nonzero(),
    ):
        o = f()
        log(o.requires_grad, o.is_leaf)


@both
def test_gradients_of_which_one_is_none(T, log):
    NoneG = function_of(T, lambda ctx, x, y: (x * 1, y * 1), lambda ctx, a, b: (a, None))
    x, y = leaf(T, 1.0), leaf(T, 2.0)
    rx, ry = NoneG.apply(x * 1, y * 1)
    (rx + ry).register_hook(lambda g: log("sum", g))
    yield (rx + ry).sum().backward()
    log(x.grad, y.grad)


@both
def test_a_gradient_edge_to_one_of_several_results(T, log):
    x = leaf(T, 3.0, 1.0, 2.0)
    v, _ = x.sort()
    e = T.autograd.graph.get_gradient_edge(v)
    log(e.output_nr, v.output_nr)
    log((yield T.autograd.grad((v * 2).sum(), e)))


@both
def test_attributes_that_can_not_be_set(T, log):
    x = leaf(T, 1.0)
    y = x * 2
    log(x.is_leaf, y.is_leaf, x.output_nr, y.output_nr, x.retains_grad, x.grad_fn, x.requires_grad)
    attempt(log, lambda: setattr(x, "is_leaf", True))
    attempt(log, lambda: setattr(y, "grad_fn", None))
    attempt(log, lambda: setattr(x, "_version", 3))
    attempt(log, lambda: setattr(x, "requires_grad", "a"))
    log(x.requires_grad)
    yield y.backward()


@both
def test_backward_arguments_by_position(T, log):
    x = leaf(T, 1.0)
    y = x * 2
    yield y.backward(T.ones(1, dtype=T.float64), True, False, [x])
    log(x.grad)
    yield T.autograd.backward(y, T.ones(1, dtype=T.float64), True, False)
    log(x.grad)
    log((yield T.autograd.grad(y, x, T.ones(1, dtype=T.float64), True, False, True, True)))


@both
def test_the_old_constructor_of_tensors(T, log):
    """It checks what it is given, as `requires_grad_` does."""
    x = T.ones(2)
    made = T.autograd.Variable(x, requires_grad=True)
    made.detach().add_(1)
    log(made, x, isinstance(x, T.autograd.Variable))
    attempt(log, T.autograd.Variable, T.ones(2, dtype=T.int64), requires_grad=True)
    attempt(log, T.autograd.Variable, [1.0])
    yield (made * 3).sum().backward()
    log(made.grad, x.grad)
