"""Programs as PyTorch's users write them about passes, hooks, Functions and nodes, in both."""

import weakref

import pytest
from functions import function_of
from parity import attempt, both, leaf, raised

import asyncgrad as ag


def tree(node):
    """The classes of a node and of all behind it."""
    if node is None:
        return None
    return [type(node).__name__, *[tree(child) for child, _ in node.next_functions]]


# -- nodes -----------------------------------------------------------------------------------------


@both
def test_classes_of_nodes_have_their_names(T, log):
    x, m = leaf(T, 1.0, 2.0), leaf(T, 1.0, 2.0).clone().view(1, 2)
    index = T.tensor([0])
    for y in (
        x * x, x * 2, x / 2, x.exp(), x.clone(), x.sum(), x.sum(0), x.sum((0,)), x.mean(),
        x.mean(0), x.prod(), x.prod(0), x.log1p(), m.t(), m.T, m.mT, m.transpose(0, 1),
        m.permute(1, 0), x.unsqueeze(0), m.squeeze(), m.squeeze(0), m.squeeze((0,)), x[0], x[:1],
        m[0], m[:, 0], m[None], m[:, 0:1], m[0, :1], m[...], m[:], m[:, :], x[index], x[x > 0],
        x.select(0, 0), x.narrow(0, 0, 1), T.stack([x, x]), T.stack([x, x], 1), T.cat([x, x]),
        x.gather(0, index), x.index_select(0, index), x.masked_select(x > 0),
        x.index_add(0, index, x[:1]), x.scatter_add(0, index, x[:1]), x.scatter(0, index, x[:1]),
        T.nn.functional.embedding(index, m), x.unbind()[0], x.split(1)[0], x.expand(3, 2),
        x.view(2, 1), x.clone().mul_(2), x.float(), m @ m.t(), x.softmax(0), x.max(), m.max(1)[0],
    ):  # fmt: skip
        node = y.grad_fn
        log(node.name(), type(node).__name__, str(node).partition(" ")[0].strip("<"))
        log(isinstance(node, T.autograd.graph.Node), y.grad_fn is node)


@both
def test_classes_are_the_same_for_all_nodes_of_a_name(T, log):
    x = leaf(T, 1.0)
    first, second = x * x, x * 3
    log(type(first.grad_fn) is type(second.grad_fn), type(first.exp().grad_fn).__name__)
    log(tree((first * second).sum().grad_fn))
    yield (first + second).sum().backward()
    log(first.grad_fn.name(), second.grad_fn.name(), x.sum().grad_fn.name())


@both
def test_double_differentiable_functions_have_these_graphs(T, log):
    def forward(ctx, a, number, b):
        ctx.number = number
        ctx.save_for_backward(a, b)
        return a + number * b + a * b

    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g + g * b, None, g * ctx.number + g * a

    once = T.autograd.function.once_differentiable
    for rule in (backward, once(backward)):
        x, y = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
        out = function_of(T, forward, rule).apply(x, 2, y).sum()
        gradient = T.ones((), dtype=T.float64, requires_grad=True)
        gradients = yield T.autograd.grad(out, (x, y), gradient, create_graph=True)
        log(gradients, [tree(g.grad_fn) for g in gradients])


@both
def test_saved_values_are_read_by_pytorchs_names(T, log):
    a, b = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
    plain = T.ones(2, dtype=T.float64)
    product = a * b
    log(product.grad_fn._saved_self is a, product.grad_fn._saved_other is b)
    for y in (a * plain, plain * a):
        log(y.grad_fn._saved_self, y.grad_fn._saved_other)
    log((a * 2).grad_fn._saved_self, (a / 2).grad_fn._saved_self)
    log((a**2).grad_fn._saved_self, (a**2).grad_fn._saved_exponent)
    log(a.exp().grad_fn._saved_result, T.stack([a, b], 1).grad_fn._saved_dim)
    log(a.unsqueeze(0).grad_fn._saved_dim, a.softmax(0).grad_fn._saved_dim)
    log(a.sum(0).grad_fn._saved_dim, a.sum(0).grad_fn._saved_keepdim)
    for y in (a.sum(), a.mean(), a.view(2, 1), a[T.tensor([0])]):
        log(y.grad_fn._saved_self_sym_sizes)
    matrix = a.view(1, 2)
    log(matrix[:, T.tensor([0, 1])].grad_fn._saved_indices)
    log((matrix @ b.view(2, 1)).grad_fn._saved_mat2, matrix.permute(1, 0).grad_fn._saved_dims)
    log(a.clamp(0, 1.5).grad_fn._saved_min, a.clamp(0, 1.5).grad_fn._saved_max)
    for y in (product, a.exp()):
        log(sorted(n for n in dir(y.grad_fn) if n.startswith(("_saved", "_raw_saved"))))
    attempt(log, lambda: product.grad_fn._saved_nothing)


@both
def test_a_saved_result_counts_changes_with_the_result(T, log):
    x = leaf(T, 1.0)
    y = T.exp(x)
    saved = y.grad_fn._saved_result
    with T.no_grad():
        y += 1
    log(y._version, saved._version, saved)
    yield from raised(log, y.sum().backward)


@both
def test_a_node_that_was_indexed_runs_once(T, log):
    for at in ([0, 1, 1], T.tensor([0, 1])):
        x, out = leaf(T, 1.0, 2.0), T.zeros(3, dtype=T.float64)
        picked = x[at]
        out[[0, 2]] = picked[:2]
        gradient = T.ones(3, dtype=T.float64)
        yield out.backward(gradient)
        try:
            yield out.backward(gradient)
        except RuntimeError as error:
            log(error, "Specify retain_graph=True" in str(error))
        log(x.grad)


@both
def test_a_node_takes_one_gradient_for_each_output(T, log):
    y = leaf(T, 1.0) ** 2
    one = T.ones(1, dtype=T.float64)
    for gradients in ((), (one, one)):
        try:
            y.grad_fn(*gradients)
        except TypeError as error:
            log("expected 1 arguments, got" in str(error))
    log(y.grad_fn(one))


# -- entry points ----------------------------------------------------------------------------------


@both
def test_gradient_edges_with_materialized_gradients(T, log):
    edge = T.autograd.graph.GradientEdge
    x, y = leaf(T, 1.0).clone(), leaf(T, 2.0).clone()
    at_x, at_y = (edge(t.grad_fn, t.output_nr) for t in (x, y))
    out = x.clone().sum()
    log((yield T.autograd.grad(out, (at_x, y), materialize_grads=True, retain_graph=True)))
    log((yield T.autograd.grad(out, (x, at_y), allow_unused=True, retain_graph=True)))
    try:
        yield T.autograd.grad(out, (x, at_y), materialize_grads=True, retain_graph=True)
    except RuntimeError as error:
        log(error, "materialize_grads cannot be used" in str(error))


@pytest.mark.filterwarnings("ignore:.grad_variables:FutureWarning")
@both
def test_gradients_by_their_old_name(T, log):
    x = leaf(T, 1.0)
    one = T.ones(1, dtype=T.float64)
    yield T.autograd.backward(x * 2, grad_variables=one)
    log(x.grad)
    yield from raised(log, T.autograd.backward, x * 2, one, grad_variables=one)
    yield T.autograd.backward(x * 2, one, False, False, None, [x])
    log(x.grad)


@both
def test_a_batch_of_gradients_has_to_be_complete(T, log):
    x = leaf(T, 1.0, 2.0)
    outs = [x.sum(), x.prod()]
    for gradients in ((T.ones(3, dtype=T.float64), None), (T.ones(3), T.ones(4))):
        try:
            yield T.autograd.grad(outs, x, gradients, is_grads_batched=True)
        except (RuntimeError, ValueError, TypeError) as error:
            log(error)


@both
def test_a_given_gradient_that_comes_through_is_given_back(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 2
    gradient = T.ones(2, dtype=T.float64)
    for out in (x, y):
        (found,) = yield T.autograd.grad(out, out, gradient)
        log(found is gradient, found)
    (found,) = yield T.autograd.grad((x, x), x, (gradient, gradient))
    log(found is gradient, found, gradient)


@both
def test_a_real_input_has_no_complex_gradient(T, log):
    for dtype in (T.int64, T.bool, T.float16, T.complex128):
        custom = function_of(T, backward=lambda ctx, g, dtype=dtype: g.to(dtype))
        x = leaf(T, 1.0)
        yield from raised(log, custom.apply(x).sum().backward)
        log(x.grad)


# -- hooks -----------------------------------------------------------------------------------------


@both
def test_hooks_of_a_view_stay_with_what_it_was(T, log):
    base = leaf(T, 1.0).clone()
    view, sibling = base[:], base[:]
    view.register_hook(lambda g: log("view", g))
    sibling.register_hook(lambda g: log("sibling", g))
    view.mul_(2)
    log(view.grad_fn is not None, sibling.grad_fn is not None)
    sibling.register_hook(lambda g: log("sibling now", g))
    view.register_hook(lambda g: log("view now", g))
    yield (view + sibling).sum().backward()
    x = leaf(T, 1.0, 2.0)
    view = x.clone()[:1]
    view.grad_fn.register_hook(lambda inputs, outputs: log("node", inputs, outputs))
    view.mul_(2)
    yield (view * 3).sum().backward()
    log(x.grad)


@both
def test_saved_tensor_hooks_left_once_too_often(T, log):
    hooks = T.autograd.graph.saved_tensors_hooks

    def unpack(x):
        inner.__exit__()
        return x

    inner = hooks(lambda x: x, unpack)
    outer = hooks(lambda x: x, lambda x: x)
    for _ in range(3):
        with outer:
            inner.__enter__()
            x = leaf(T, 1.0)
            yield x.sin().sum().backward()
            log(x.grad)
    for _ in range(3):
        inner.__exit__()
    y = leaf(T, 1.0).exp()
    y.grad_fn._raw_saved_result.register_hooks(lambda x: x, lambda x: x)


# -- Functions -------------------------------------------------------------------------------------


@both
def test_gradients_of_what_is_not_differentiable_may_stay_undefined(T, log):
    for materialize in (True, False):

        def forward(ctx, x, materialize=materialize):
            first, second = x.clone(), x.clone()
            ctx.mark_non_differentiable(second)
            ctx._materialize_non_diff_grads = materialize
            return first, second

        def backward(ctx, g, h):
            log(h)
            return g

        yield function_of(T, forward, backward).apply(leaf(T, 1.0))[0].backward()


@pytest.mark.filterwarnings("ignore:.*saved_variables:DeprecationWarning")
@both
def test_saved_tensors_by_their_old_name(T, log):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    def backward(ctx, g):
        log(ctx.saved_variables)
        return g

    yield function_of(T, forward, backward).apply(leaf(T, 1.0)).backward()


@both
def test_what_can_be_marked_dirty(T, log):
    def changed(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    def changed_twice(ctx, x):
        return changed(ctx, x), x.clone()

    def own(ctx, x):
        out = x.clone()[:]
        ctx.mark_dirty(out)
        return out

    def backward(ctx, *gradients):
        return gradients[0]

    x = leaf(T, 1.0, 2.0)
    for forward in (changed, changed_twice, own):
        custom = function_of(T, forward, backward)
        for given in (x, x[:], x.clone(), x.clone()[:1], x.clone().unbind()[0]):
            attempt(log, custom.apply, given)


@both
def test_a_function_gives_a_leaf_the_dtype_it_asks_for(T, log):
    custom = function_of(T, lambda ctx, x: x * 2, lambda ctx, g: g.to(T.float64))
    for dtype in ("its own", None, T.float16, T.float32):
        x = T.ones(2, requires_grad=True)
        held = x.clone() if dtype is None else None
        if dtype != "its own":
            x.grad_dtype = dtype
        yield custom.apply(x).sum().backward()
        log(x.grad, held is None)


# -- leaves ----------------------------------------------------------------------------------------


@both
def test_data_of_a_leaf_keeps_a_dtype_that_has_gradients(T, log):
    x = leaf(T, 1.0)

    def assign(value):
        x.data = value

    attempt(log, assign, T.tensor([1]))
    attempt(log, assign, T.tensor([2.0]))
    attempt(log, assign, None)
    attempt(log, delattr, x, "data")
    log(x)


# -- views, modes and checkpoints ------------------------------------------------------------------


def _message(log, part, call):
    """Note the class of a call's error, and whether its text has a part."""
    try:
        call()
    except Exception as error:
        log(error, part in str(error))
    else:
        log("no error")


@both
def test_refused_changes_name_the_output(T, log):
    def view(ctx, x):
        return x[:1]

    def view_and_more(ctx, x):
        return x[:1], x * 2

    def backward(ctx, g, *more):
        return g

    x = leaf(T, 1.0, 2.0)
    plain = T.ones(2, dtype=T.float64)
    several = "output of a function that returns multiple views"
    for forward, part in ((view, "created inside a custom Function"), (view_and_more, several)):
        custom = function_of(T, forward, backward)
        for given in (x, x.clone(), plain):
            out = custom.apply(given)
            out = out[0] if isinstance(out, tuple) else out
            if given is plain and forward is view_and_more:
                continue
            _message(log, part, lambda out=out: out.add_(x[:1]))
        with T.no_grad():
            out = custom.apply(x)
        out = out[0] if isinstance(out, tuple) else out
        _message(log, "A view was created in no_grad mode", out.zero_)
    parts = x.clone().unbind()
    for number, part in enumerate(parts):
        _message(log, several, lambda part=part: part.add_(1))
        _message(log, f"Output {number} of Unbind", lambda part=part: part.add_(1))
    changed = function_of(
        T,
        lambda ctx, x: (ctx.mark_dirty(x), x.mul_(2), x.clone())[1:],
        lambda ctx, g, h: g + h,
    )
    _message(log, "modifies inplace an input that is a view of another Tensor",
             lambda: changed.apply(x.clone()[:]))  # fmt: skip


@both
def test_a_view_that_became_invalid_can_be_printed(T, log):
    x = T.ones(1, requires_grad=True)
    with T.no_grad():
        view = x[:]
        view *= 2
    log(repr(view), repr(x * 2))


@both
def test_what_comparisons_and_indices_make_in_inference_mode(T, log):
    x = T.ones(3)
    with T.inference_mode():
        for y in (
            x > 0, x == x, x <= 1, x.argmax(), x.argmin(0), x.argsort(), x.sort()[1],
            x.topk(1)[1], x.max(0)[1], T.nonzero(x), x.any(), x.all(), T.isnan(x), x.sum(), x[0],
            x.view(3), x.detach(), x.clone(), T.zeros(1),
        ):  # fmt: skip
            log(y.is_inference())
    log((x > 0).is_inference(), x.argmax().is_inference())


@both
def test_saved_tensors_show_what_hooks_have_kept(T, log):
    def pack(x):
        return x

    def unpack(x):
        return x

    x = leaf(T, 2.0)
    with T.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = x**2
    z = y.exp()
    packed, result = y.grad_fn._raw_saved_self, z.grad_fn._raw_saved_result
    log(packed.data is x, packed.unpack_hook is unpack)
    log(result.data is z, result.unpack_hook, result.data)

    def forward(ctx, x):
        ctx.save_for_backward(x, None)
        return x * 2

    custom = function_of(T, forward, lambda ctx, g: (log(ctx.saved_tensors), g)[1])
    y = custom.apply(x)
    saved, nothing = y.grad_fn._raw_saved_tensors
    log(saved.data is x)
    _message(log, "None is forbidden", lambda: nothing.register_hooks(pack, unpack))
    saved.register_hooks(pack, unpack)
    _message(log, "already been set", lambda: saved.register_hooks(pack, unpack))
    yield y.backward()
    _message(log, "after they have already been freed", lambda: y.grad_fn._raw_saved_tensors)


@both
def test_saved_tensors_that_can_be_read_once(T, log):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clone()

    def backward(ctx, g):
        log(ctx.saved_tensors)
        _message(log, "can only be accessed once", lambda: ctx.saved_tensors)
        return g

    custom = function_of(T, forward, backward)
    custom.clear_saved_tensors_on_access = True
    yield custom.apply(leaf(T, 1.0)).backward()


@both
def test_hooks_on_several_tensors_wait_for_those_that_can_be_reached(T, log):
    first, second, third, fourth = (leaf(T, 1.0, 2.0) * 2 for _ in range(4))
    handle = T.autograd.graph.register_multi_grad_hook(
        (first, second, third, fourth), lambda grads: log([g is not None for g in grads])
    )
    out = (second * third).sum()
    for inputs in ((second, third), (first, fourth), (first, third)):
        log("pass")
        yield out.backward(inputs=inputs, retain_graph=True)
    handle.remove()
    yield out.backward()


@both
def test_a_group_of_passes_computes_a_checkpoint_again_once(T, log):
    checkpoints = T.utils.checkpoint
    calls = []

    def twice(x):
        calls.append(x)
        y = x.sin().cos()
        return y, y.sin().cos()

    for grouped in (True, False):
        x = leaf(T, 1.0, 2.0)
        y, z = checkpoints.checkpoint(twice, x, use_reentrant=False)
        ones = T.ones(2, dtype=T.float64)
        group = checkpoints.GraphExecGroup()
        if grouped:
            group.__enter__()
        (by_y,) = yield T.autograd.grad(z, (y,), (ones,))
        log((yield T.autograd.grad(y, (x,), (by_y,))))
        if grouped:
            _message(log, "cannot be nested", checkpoints.GraphExecGroup().__enter__)
            group.__exit__(None, None, None)
        log(len(calls))
        calls.clear()
    out = checkpoints.checkpoint(lambda x: x.sin().cos(), x, use_reentrant=False).sum()
    with checkpoints.GraphExecGroup():
        yield out.backward(retain_graph=True)
        try:
            yield out.backward()
        except RuntimeError as error:
            log("Performing two backward calls that overlap" in str(error))


def test_a_second_pass_is_told_which_call_released_the_graph():
    def started(call):
        """The place of the line that makes it: the second of the function."""
        return f"{__file__}:{call.__code__.co_firstlineno + 1}"

    def in_a_script():
        y.backward()

    def by_grad():
        ag.grad(y, x)

    x = ag.ones(2, requires_grad=True)
    for call in (in_a_script, by_grad):
        y = (x * x).sum()
        call()
        with pytest.raises(RuntimeError, match=r"MulBackward0 were released") as caught:
            y.backward()
        assert started(call) in str(caught.value)


@both
def test_what_overflows_or_is_undefined_says_nothing(T, log):
    """Here warnings are errors."""
    huge, infinite = T.tensor([3e38], requires_grad=True), T.tensor([float("inf")])
    square = T.full((2, 2), 3e38)
    for y in (
        huge * huge, huge * 1e38, huge + huge, huge - -huge, infinite - infinite, infinite * 0,
        T.cat([huge, huge]).sum(), T.cat([huge, huge]).mean(), square @ square, square.cumsum(0),
        square.prod(), T.ones(2, 1) * huge * square, huge**2, huge.square(), huge / 1e-38,
        T.nn.functional.linear(square, square),
    ):  # fmt: skip
        log(str(y.tolist()))
    out = huge * 2.0
    out += huge
    out *= huge
    log(str(out.tolist()))
    yield (huge * huge + huge * 1e38).backward(T.tensor([3e38]))
    log(str(huge.grad.tolist()))
    total = T.zeros(1).index_add(0, T.tensor([0, 0]), T.tensor([3e38, 3e38]))
    log(str(total.tolist()))


def test_a_saved_result_that_was_read_is_still_watched():
    """Reading makes the version counter, which the tensor has to share from then on."""
    x = ag.ones(2, requires_grad=True)
    y = x.exp()
    assert y.grad_fn._saved_result._version == 0
    y.data.mul_(2)
    with ag.no_grad():
        y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.usefixtures("no_collector")
def test_looking_at_a_graph_keeps_nothing_alive():
    x = ag.ones(2, requires_grad=True)
    y = (x * x).sum()
    node = weakref.ref(y.grad_fn.next_functions[0][0])
    assert type(node()).__name__ == "MulBackward0"
    del y
    assert node() is None
