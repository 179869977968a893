"""Hooks of every kind: when they run, what they are given, and what they may return."""

import asyncio

import pytest
from functions import function_of
from parity import attempt, both, leaf, raised

import asyncgrad as ag

# -- order ---------------------------------------------------------------------------------------


@both
def test_the_order_of_all_hooks_of_a_computed_tensor(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 2
    y.register_hook(lambda g: log("tensor 1", g))
    y.grad_fn.register_hook(lambda i, o: log("post 1", *i, *o))
    y.retain_grad()
    y.grad_fn.register_prehook(lambda g: log("pre 1", *g))
    y.register_hook(lambda g: g * 10)
    y.grad_fn.register_prehook(lambda g: log("pre 2", *g) or (g[0] * 10,))
    y.grad_fn.register_hook(lambda i, o: log("post 2", *i, *o))
    y.register_hook(lambda g: log("tensor 3", g))
    (z,) = (y * 3,)
    yield z.sum().backward()
    log(y.grad, x.grad)


@both
def test_the_order_of_all_hooks_of_a_leaf(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 2
    accumulator = y.grad_fn.next_functions[0][0]
    x.register_post_accumulate_grad_hook(lambda p: log("accumulated 1", p.grad))
    accumulator.register_hook(lambda i, o: log("post", len(i), *o))
    accumulator.register_prehook(lambda g: log("pre", *g))
    x.register_hook(lambda g: log("tensor 1", g, x.grad))
    x.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: log("tensor 3", g))
    x.retain_grad()
    x.register_post_accumulate_grad_hook(lambda p: log("accumulated 2", p.grad))
    yield y.sum().backward()
    log(x.grad)


@both
def test_the_order_of_nodes(T, log):
    """The one made last goes first; leaves as soon as they can."""
    x, y = leaf(T, 1.0), leaf(T, 2.0)
    for name, t in (("x", x), ("y", y)):
        t.register_hook(lambda g, name=name: log(name))
    a = x * 2
    b = y * 3
    c = a * b
    d = x + c
    e = b * d
    for name, t in zip("abcde", (a, b, c, d, e), strict=True):
        t.register_hook(lambda g, name=name: log(name))
    yield e.sum().backward()


@both
def test_hooks_run_without_recording_unless_the_pass_does(T, log):
    x = leaf(T, 1.0, 2.0)

    def hook(g):
        log(T.is_grad_enabled(), g.requires_grad, (g * 2).requires_grad)

    y = x * x
    y.register_hook(hook)
    x.register_hook(hook)
    y.grad_fn.register_prehook(lambda g: hook(g[0]))
    y.grad_fn.register_hook(lambda i, o: hook(i[0]))
    yield y.sum().backward(retain_graph=True)
    yield T.autograd.grad(y.sum(), x, create_graph=True)
    z = (y * x).sum()
    with T.no_grad():
        yield T.autograd.grad(z, x, create_graph=True)


# -- tensor hooks --------------------------------------------------------------------------------


@both
def test_a_tensor_hook_sees_the_whole_gradient_and_may_replace_it(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 2
    y.register_hook(lambda g: log(g))
    y.register_hook(lambda g: g + 1)
    y.register_hook(lambda g: log(g))
    yield (y * 3 + y * y).sum().backward()
    log(x.grad)


@both
def test_what_a_tensor_hook_may_not_return(T, log):
    x = T.ones(2, requires_grad=True)

    def wrong(result):
        y = x * 2
        y.register_hook(lambda g: result(g))
        return y.sum().backward()

    for result in (
        lambda g: 1,
        lambda g: "a",
        lambda g: (g,),
        lambda g: g[:1],
        lambda g: g.reshape(1, 2),
        lambda g: T.ones(3),
        lambda g: g.to(T.float64),
        lambda g: g.to(T.int64),
    ):
        yield from raised(log, wrong, result)
        log(x.grad)
    yield wrong(lambda g: g)
    log(x.grad)

    def named(g):
        return g[:1]

    y = x * 2
    y.register_hook(named)
    try:
        yield y.sum().backward()
    except RuntimeError as error:
        log("named" in str(error))


@both
def test_a_hook_that_raises_ends_the_pass_with_its_error(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 2

    class Strange(Exception):
        pass

    def hook(g):
        raise Strange("no")

    handle = y.register_hook(hook)
    try:
        yield y.sum().backward(retain_graph=True)
    except Strange as error:
        log(str(error))
    log(x.grad)
    handle.remove()
    yield y.sum().backward()
    log(x.grad)


@both
def test_who_may_have_a_hook(T, log):
    plain = T.ones(2)
    attempt(log, plain.register_hook, print)
    attempt(log, plain.register_post_accumulate_grad_hook, print)
    attempt(log, plain.retain_grad)
    x = leaf(T, 1.0)
    with T.no_grad():
        attempt(log, (x * 2).register_hook, print)
    attempt(log, (x * 2).register_post_accumulate_grad_hook, print)
    x.register_hook(lambda g: g * 2)
    yield x.sum().backward()
    log(x.grad)


@both
def test_hooks_are_removed_by_their_handles(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 2

    def hook(g):
        log("called")

    handles = [y.register_hook(hook), y.register_hook(hook)]
    yield y.sum().backward(retain_graph=True)
    handles[0].remove()
    handles[0].remove()
    log("-")
    yield y.sum().backward(retain_graph=True)
    with handles[1]:
        log("-")
        yield y.sum().backward(retain_graph=True)
    log("-")
    yield y.sum().backward(retain_graph=True)
    handle = x.register_hook(hook)
    handle.remove()
    node = y.grad_fn
    for handle in (node.register_hook(lambda i, o: log("x")), node.register_prehook(log)):
        handle.remove()
    yield y.sum().backward()
    log(x.grad)


@both
def test_hooks_that_remove_themselves_and_others_while_they_run(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 2
    handles = {}

    def once(g):
        log("once")
        handles["once"].remove()

    handles["once"] = y.register_hook(once)
    y.register_hook(lambda g: log("always"))
    yield y.sum().backward(retain_graph=True)
    yield y.sum().backward(retain_graph=True)

    def post(i, o):
        log("post")
        handles["post"].remove()

    handles["post"] = y.grad_fn.register_hook(post)
    yield y.sum().backward(retain_graph=True)
    yield y.sum().backward()


@both
def test_hooks_of_a_leaf_outlive_its_graphs(T, log):
    x = leaf(T, 1.0, 2.0)
    x.register_hook(lambda g: g * 2)
    for _ in range(3):
        yield (x * 3).sum().backward()
    log(x.grad)


@both
def test_hooks_of_undefined_gradients_are_called_with_none(T, log):
    Nothing = function_of(T, backward=lambda ctx, gradient: log("backward", gradient))
    x = leaf(T, 1.0, 2.0)
    y = x * 2
    z = Nothing.apply(y)
    y.register_hook(lambda g: log("tensor", g))
    y.grad_fn.register_prehook(lambda g: log("pre", *g))
    y.grad_fn.register_hook(lambda i, o: log("post", *i, *o))
    x.register_hook(lambda g: log("leaf", g))
    x.register_post_accumulate_grad_hook(lambda p: log("accumulated", p.grad))
    y.retain_grad()
    yield z.sum().backward()
    log(x.grad, y.grad)
    w = x * 2
    w.register_hook(lambda g: T.ones(2, dtype=T.float64))
    yield from raised(log, Nothing.apply(w).sum().backward)


# -- hooks and changes in place ------------------------------------------------------------------


@both
def test_hooks_stay_with_the_values_they_were_registered_for(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 2
    y.register_hook(lambda g: log("before", g))
    y.mul_(5)
    y.register_hook(lambda g: log("after", g))
    yield (y * 3).sum().backward()
    log(x.grad)


@both
def test_retain_grad_moves_with_the_tensor(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 2
    y.retain_grad()
    y.mul_(5)
    log(y.retains_grad)
    yield (y * 3).sum().backward()
    log(y.grad, x.grad)


@both
def test_hooks_of_a_view_whose_base_changes(T, log):
    x = leaf(T, 1.0, 2.0)
    base = x * 2
    view = base[:1]
    view.register_hook(lambda g: log("before", g))
    base.mul_(5)
    yield (view * 3).sum().backward()
    log(x.grad)


def test_a_hook_that_a_view_is_given_after_its_base_has_changed():
    """PyTorch 2.13 dies of this."""
    x = ag.ones(2, requires_grad=True)
    base = x * 2
    view = base[:1]
    base.mul_(5)
    seen = []
    view.register_hook(lambda g: seen.append(g.tolist()))
    (view * 3).sum().backward()
    assert seen == [[3.0]]
    assert x.grad.tolist() == [30.0, 0.0]


@both
def test_a_view_that_retains_its_gradient_and_its_base_that_changes(T, log):
    x = leaf(T, 1.0, 2.0)
    base = x * 2
    view = base[:1]
    view.retain_grad()
    base.mul_(5)
    view.grad_fn  # noqa: B018  refreshed when read
    yield (view * 3).sum().backward()
    log(view.grad, x.grad)


@both
def test_hooks_of_a_base_whose_view_changes(T, log):
    x = leaf(T, 1.0, 2.0)
    base = x * 2
    base.register_hook(lambda g: log("before", g))
    base.retain_grad()
    base[:1].mul_(5)
    base.register_hook(lambda g: log("after", g))
    yield (base * 3).sum().backward()
    log(base.grad, x.grad)


# -- captured gradients --------------------------------------------------------------------------


@both
def test_tensor_hooks_run_before_a_gradient_is_given(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 2
    x.register_hook(lambda g: log("x") or g * 10)
    y.register_hook(lambda g: log("y") or g * 100)
    x.register_post_accumulate_grad_hook(lambda p: log("accumulated"))
    y.grad_fn.register_prehook(lambda g: log("pre"))
    y.grad_fn.register_hook(lambda i, o: log("post"))
    log((yield T.autograd.grad((y * 3).sum(), x, retain_graph=True)))
    log((yield T.autograd.grad((y * 3).sum(), y, retain_graph=True)))
    yield (y * 3).sum().backward(inputs=[x], retain_graph=True)
    log(x.grad)
    yield (y * 3).sum().backward(inputs=[y])
    log(y.grad)


@both
def test_a_captured_gradient_that_is_needed_further_is_taken_before_its_hooks(T, log):
    x = leaf(T, 1.0)
    y = x * 2
    y.register_hook(lambda g: g * 3)
    y.retain_grad()
    log((yield T.autograd.grad(y, [x, y], retain_graph=True)))
    log(y.grad)
    y.grad = None
    log((yield T.autograd.grad(y, [y], retain_graph=True)))
    log(y.grad)
    log((yield T.autograd.grad(y * 5, [y, x])))
    log(y.grad)


@both
def test_a_node_that_is_merely_captured_does_not_run(T, log):
    x, w = leaf(T, 1.0), leaf(T, 2.0)
    y = x * w
    y.grad_fn.register_prehook(lambda g: log("pre"))
    y.grad_fn.register_hook(lambda i, o: log("post"))
    y.register_hook(lambda g: log("tensor"))
    log((yield T.autograd.grad(y * 2, y, retain_graph=True)))
    log((yield T.autograd.grad(y * 2, [y, w])))


# -- node hooks ----------------------------------------------------------------------------------


@both
def test_what_hooks_of_nodes_are_given(T, log):
    x, w, plain = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0), T.ones(2, dtype=T.float64)

    def watch(y):
        y.grad_fn.register_prehook(lambda g: log("pre", type(g).__name__, g))
        y.grad_fn.register_hook(lambda i, o: log("post", type(i).__name__, i, type(o).__name__, o))
        return y

    yield watch(x * w).sum().backward()
    yield watch(x * plain).sum().backward()
    yield watch(plain * x).sum().backward()
    yield watch(x.sum()).backward()
    yield watch(T.matmul(x, w)).backward()
    log(x.grad, w.grad)


@both
def test_hooks_of_nodes_replace_gradients(T, log):
    x, w = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
    y = x * w
    y.grad_fn.register_prehook(lambda g: (g[0] * 2,))
    y.grad_fn.register_prehook(lambda g: log(g))
    y.grad_fn.register_hook(lambda i, o: (i[0] * 10, None))
    y.grad_fn.register_hook(lambda i, o: log(i, o))
    yield y.sum().backward()
    log(x.grad, w.grad)


@both
def test_what_hooks_of_nodes_may_not_return(T, log):
    x = T.ones(2, requires_grad=True)

    def run(pre=None, post=None):
        y = x * 2
        if pre is not None:
            y.grad_fn.register_prehook(pre)
        if post is not None:
            y.grad_fn.register_hook(post)
        return y.sum().backward()

    for pre in (
        lambda g: g[0],
        lambda g: [g[0]],
        lambda g: (g[0], g[0]),
        lambda g: (),
        lambda g: (1,),
        lambda g: (T.ones(3),),
        lambda g: (g[0].to(T.float64),),
    ):
        yield from raised(log, run, pre=pre)
        log(x.grad)
    for post in (
        lambda i, o: i[0],
        lambda i, o: (i[0], None, i[0]),
        lambda i, o: (1, None),
        lambda i, o: (T.ones(3), None),
        lambda i, o: 1,
    ):
        yield from raised(log, run, post=post)
        log(x.grad)


@both
def test_a_hook_before_a_node_may_take_its_gradient_away(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x.exp()
    y.grad_fn.register_prehook(lambda g: (None,))
    y.grad_fn.register_hook(lambda i, o: log(i, o))
    yield y.sum().backward()
    log(x.grad)


# -- after accumulation --------------------------------------------------------------------------


@both
def test_hooks_after_accumulation(T, log):
    x = leaf(T, 1.0, 2.0)

    def step(p):
        log(p is x, p.grad, T.is_grad_enabled())
        with T.no_grad():
            p.sub_(p.grad)
        p.grad = None

    handle = x.register_post_accumulate_grad_hook(step)
    yield (x * 2).sum().backward()
    log(x, x.grad)
    yield T.autograd.grad((x * 2).sum(), x)
    handle.remove()
    yield (x * 2).sum().backward()
    log(x, x.grad)


@both
def test_what_a_hook_after_accumulation_may_return(T, log):
    x = leaf(T, 1.0)
    for result in (None, "x", 1, 1.5, T.ones(1)):
        handle = x.register_post_accumulate_grad_hook(lambda p, r=result: p if r == "x" else r)
        yield from raised(log, (x * 2).sum().backward)
        handle.remove()
        x.grad = None


@both
def test_a_hook_after_accumulation_that_raises(T, log):
    x = leaf(T, 1.0)

    def hook(p):
        raise ValueError("no")

    x.register_post_accumulate_grad_hook(hook)
    try:
        yield (x * 2).sum().backward()
    except ValueError as error:
        log(str(error))
    log(x.grad)


@both
def test_each_leaf_has_its_hook_once_in_a_pass(T, log):
    x, y = leaf(T, 1.0), leaf(T, 2.0)
    for name, t in (("x", x), ("y", y)):
        t.register_post_accumulate_grad_hook(lambda p, name=name: log(name, p.grad))
    yield (x * y * x + y).sum().backward()


# -- retain_grad ---------------------------------------------------------------------------------


@both
def test_retain_grad(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 2
    log(y.retains_grad, x.retains_grad)
    y.retain_grad()
    y.retain_grad()
    x.retain_grad()
    log(y.retains_grad, x.retains_grad)
    z = (y * y).sum()
    yield z.backward(retain_graph=True)
    log(y.grad, x.grad)
    yield z.backward(retain_graph=True)
    log(y.grad, x.grad)
    yield T.autograd.grad(z, x, retain_graph=True)
    log(y.grad, x.grad)
    y.grad = None
    yield T.autograd.grad(z, x, create_graph=True)
    log(y.grad, y.grad.requires_grad)
    y.grad = None


@both
def test_retained_gradients_of_outputs_and_roots(T, log):
    Two = function_of(T, lambda ctx, x: (x * 2, x * 3), lambda ctx, a, b: a * 2 + b * 3)
    x = leaf(T, 1.0, 2.0)
    a, b = Two.apply(x)
    a.retain_grad()
    b.retain_grad()
    z = (a * a).sum()
    z.retain_grad()
    yield z.backward(retain_graph=True)
    log(a.grad, b.grad, z.grad, x.grad)


# -- gradients that are changed in place -----------------------------------------------------------


def tamper(gradient):
    """PyTorch says not to, and lets it be."""
    gradient.mul_(10)


def tampered(T, x, how):
    """Of a tensor, what changes the gradient in place that reaches it."""

    def backward(ctx, g):
        tamper(g)
        return g

    Changes = function_of(T, backward=backward)
    if how == "function":
        return Changes.apply(x)
    y = x + 1
    if how == "hook":
        y.register_hook(tamper)
    elif how == "hook of what it is made of":
        x.register_hook(tamper)
    elif how == "hook before the node":
        y.grad_fn.register_prehook(lambda gradients: tamper(gradients[0]))
    else:
        y.grad_fn.register_hook(lambda inputs, outputs: tamper(outputs[0]))
    return y


TAMPERING = (
    "function", "hook", "hook of what it is made of", "hook before the node", "hook after the node",
)  # fmt: skip


@both
def test_what_a_leaf_or_a_retained_gradient_has_is_not_changed_by_later_hooks(T, log):
    for how in TAMPERING:
        for create_graph in (False, True):
            x, v = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
            w = tampered(T, v, how)
            retained = [w.view(2), w.view(2) * 2]
            for y in retained:
                y.retain_grad()
            loss = ((x + retained[0]) * retained[1]).sum()
            yield loss.backward(create_graph=create_graph)
            log(how, create_graph, x.grad, v.grad, [y.grad for y in retained])
            x.grad = v.grad = w.grad = retained[0].grad = retained[1].grad = None
            w = tampered(T, v, how)
            yield ((x + w) * 3).sum().backward()
            log(x.grad, v.grad)


@pytest.mark.asyncio
@pytest.mark.parametrize("changes", [1, 2])
async def test_what_a_leaf_gets_while_a_hook_waits_is_not_changed_by_it(changes):
    """The leaf's gradient was staged before the hook began, or while it waited."""
    x, v = ag.ones(2, requires_grad=True), ag.ones(2, requires_grad=True)
    w, u = v * 1, x.view(2)

    async def hook(gradient):
        for _ in range(changes):
            await asyncio.sleep(0)
            tamper(gradient)

    w.register_hook(hook)
    await ((u + w) * 3).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    assert v.grad.tolist() == [3.0 * 10**changes] * 2


# -- several tensors -----------------------------------------------------------------------------


@both
def test_hooks_on_several_tensors(T, log):
    register = T.autograd.graph.register_multi_grad_hook
    a, b, c, d = (leaf(T, float(i)) for i in range(1, 5))

    def all_of_them(gradients):
        log("all", gradients)

    def first(gradient):
        log("any", gradient)

    handles = [register((a, b, c), all_of_them), register((a, b, c), first, mode="any")]
    yield (a * b * c).sum().backward()
    yield (a * b).sum().backward()
    yield (a * d).sum().backward()
    yield (d * d).sum().backward()
    yield (a * b).sum().backward(inputs=[a])
    handles[0].remove()
    yield (a * b).sum().backward()
    handles[1].remove()
    yield (a * b).sum().backward()
    attempt(log, register, (a, b), first, mode="some")
    attempt(log, register, (a, T.ones(1)), all_of_them)
    attempt(lambda e: log(isinstance(e, Exception)), register, (a, T.ones(1)), first, mode="any")


@both
def test_hooks_on_several_tensors_in_several_passes_at_once(T, log):
    register = T.autograd.graph.register_multi_grad_hook
    x = leaf(T, 2.0)
    a, b = x * 2, x * 3
    register((a, b), lambda gradients: log(gradients))
    z = (a * b).sum()
    yield z.backward(retain_graph=True)
    yield z.backward(retain_graph=True)
    yield T.autograd.grad(z, x, create_graph=True)


@both
def test_results_of_hooks_on_several_tensors_do_not_count(T, log):
    """They get several gradients, or one of several: a result would replace only one of them."""
    register = T.autograd.graph.register_multi_grad_hook
    for mode in ("all", "any"):
        for result in (5, T.zeros(2, dtype=T.float64)):
            x, y = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
            a, b = x * 2, y * 3
            register((a, b), lambda gradients, result=result: result, mode=mode)
            yield (a * b).sum().backward()
            log(x.grad, y.grad)


# -- callbacks -----------------------------------------------------------------------------------


def calling(T, function):
    """A Function that calls a function in its backward."""

    def backward(ctx, gradient):
        function()
        return gradient

    Calling = function_of(T, backward=backward)
    return Calling.apply


@both
def test_callbacks_follow_the_last_node_and_see_the_gradients(T, log):
    queue = T.autograd.Variable._execution_engine.queue_callback
    x = leaf(T, 1.0, 2.0)

    def first():
        log("first", x.grad, T.is_grad_enabled())
        queue(lambda: log("third"))

    def both_of_them():
        queue(first)
        queue(lambda: log("second"))

    y = calling(T, both_of_them)(x * 2)
    yield y.sum().backward()
    log(x.grad)
    attempt(log, queue, first)


@both
def test_a_callback_that_raises_fails_the_pass(T, log):
    queue = T.autograd.Variable._execution_engine.queue_callback
    x = leaf(T, 1.0)

    def fail():
        raise ValueError("no")

    try:
        yield calling(T, lambda: queue(fail))(x).sum().backward()
    except ValueError as error:
        log(str(error))
    yield calling(T, lambda: queue(lambda: log("again")))(x).sum().backward()


@both
def test_callbacks_of_grad_and_of_hooks(T, log):
    queue = T.autograd.Variable._execution_engine.queue_callback
    x = leaf(T, 1.0)
    y = x * 2
    y.register_hook(lambda g: queue(lambda: log("called")))
    log((yield T.autograd.grad(y * 3, x, retain_graph=True)))
    yield (y * 3).sum().backward()


@both
def test_a_hook_may_register_another_on_another_output(T, log):
    """It is called from the next pass on."""
    x = leaf(T, 1.0, 2.0)
    one, other = (x * 1).unbind()

    def later(gradient):
        log("later", gradient)

    def hook(gradient):
        log("hook", gradient)
        other.register_hook(later)

    handle = one.register_hook(hook)
    yield (one + other).backward(retain_graph=True)
    handle.remove()
    yield (one + other).backward()
    log(x.grad)


@pytest.mark.parametrize("gradient", [None, [1.0, 1.0]])
def test_a_failed_callback_takes_the_gradients_back(gradient):
    queue = ag.autograd.graph.queue_callback
    x = ag.ones(2, requires_grad=True)
    if gradient is not None:
        x.grad = ag.tensor(gradient)
    before = x.grad
    y = x * 2
    seen = []

    def fail():
        seen.append(x.grad.tolist())
        raise ValueError("no")

    y.register_hook(lambda g: queue(fail))
    with pytest.raises(ValueError, match="no"):
        y.sum().backward()
    assert x.grad is before
    assert seen == [[2.0, 2.0] if gradient is None else [3.0, 3.0]]
    assert gradient is None or x.grad.tolist() == gradient


def test_a_pass_that_fails_after_its_callbacks_takes_the_gradients_back():
    """An input that is not part of the graph is found last."""
    queue = ag.autograd.graph.queue_callback
    x, unused = ag.ones(2, requires_grad=True), ag.ones(2, requires_grad=True)
    y = x * 2
    y.retain_grad()
    seen = []
    y.register_hook(lambda g: queue(lambda: seen.append(y.grad.tolist())))
    with pytest.raises(RuntimeError, match="not have been used"):
        ag.grad(y.sum(), [x, unused])
    assert seen == [[1.0, 1.0]]
    assert y.grad is None


@pytest.mark.asyncio
async def test_a_task_of_a_hook_queues_no_callback_once_its_pass_has_ended():
    """Nothing would ever call it."""
    x = ag.ones(2, requires_grad=True)
    y = x * 2
    ended = asyncio.Event()
    tasks = []

    async def later():
        assert ag.autograd.graph.current_pass() is not None
        await ended.wait()
        assert ag.autograd.graph.current_pass() is None
        with pytest.raises(RuntimeError, match="only be installed during backward"):
            ag.autograd.graph.queue_callback(lambda: None)

    async def hook(gradient):
        tasks.append(asyncio.ensure_future(later()))
        await asyncio.sleep(0)

    y.register_hook(hook)
    await y.sum().backward()
    ended.set()
    await tasks[0]


@pytest.mark.asyncio
async def test_callbacks_may_be_coroutine_functions():
    queue = ag.autograd.graph.queue_callback
    x = ag.ones(2, requires_grad=True)
    y = x * 2
    log = []
    go = asyncio.Event()

    async def first():
        log.append(x.grad.tolist())
        await go.wait()
        log.append("first")

    def hook(gradient):
        queue(first)
        queue(lambda: log.append("second"))

    y.register_hook(hook)
    future = y.sum().backward()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not future.done()
    go.set()
    await future
    assert log == [[2.0, 2.0], "first", "second"]
    assert x.grad.tolist() == [2.0, 2.0]


@pytest.mark.asyncio
async def test_a_pass_cancelled_in_a_callback_takes_its_gradients_back():
    queue = ag.autograd.graph.queue_callback
    x = ag.ones(2, requires_grad=True)
    y = x * 2
    begun = asyncio.Event()

    async def forever():
        begun.set()
        await asyncio.Event().wait()

    y.register_hook(lambda gradient: queue(forever))
    future = y.sum().backward()
    await begun.wait()
    assert x.grad is not None
    future.cancel()
    with pytest.raises(asyncio.CancelledError):
        await future
    assert x.grad is None


# -- coroutine functions -------------------------------------------------------------------------


async def doubled(gradient):
    await asyncio.sleep(0)
    return gradient * 2


def hooked(log):
    """A leaf and a loss with a coroutine hook of each kind."""
    x = ag.ones(2, requires_grad=True)
    y = x * 3
    y.retain_grad()

    async def note(kind, result=None):
        await asyncio.sleep(0)
        log.append(kind)
        return result

    async def twice(gradient):
        return await note("tensor", gradient * 2)

    async def before(gradients):
        return await note("pre", (gradients[0] * 2,))

    async def after(inputs, outputs):
        return await note("post", (inputs[0] * 2, *inputs[1:]))

    async def accumulated(p):
        await note(("accumulated", p.grad.tolist()))

    async def gathered(gradients):
        await note(("multi", [g.tolist() for g in gradients]))

    y.register_hook(twice)
    y.grad_fn.register_prehook(before)
    y.grad_fn.register_hook(after)
    x.register_post_accumulate_grad_hook(accumulated)
    ag.autograd.graph.register_multi_grad_hook((x, y), gathered)
    return x, y, y.sum()


EXPECTED = [
    "tensor",
    "pre",
    "post",
    ("multi", [[24.0, 24.0], [2.0, 2.0]]),
    ("accumulated", [24.0, 24.0]),
]


@pytest.mark.asyncio
async def test_every_hook_may_be_a_coroutine_function():
    log = []
    x, y, loss = hooked(log)
    await loss.backward()
    assert log == EXPECTED
    assert x.grad.tolist() == [24.0, 24.0]
    assert y.grad.tolist() == [2.0, 2.0]


def test_coroutine_hooks_run_without_a_loop():
    log = []
    x, _, loss = hooked(log)
    loss.backward()
    assert log == EXPECTED
    assert x.grad.tolist() == [24.0, 24.0]


@pytest.mark.asyncio
async def test_what_a_coroutine_hook_returns_is_checked():
    async def wrong(gradient):
        return 1

    async def wrong_shape(gradient):
        return gradient[:1]

    async def wrong_kind(gradients):
        return gradients[0]

    async def result(p):
        return ag.ones(2)

    x = ag.ones(2, requires_grad=True)
    for register, hook, kind, text in (
        (lambda y: y.register_hook, wrong, TypeError, "expected Variable"),
        (lambda y: y.register_hook, wrong_shape, RuntimeError, "wrong_shape"),
        (lambda y: y.grad_fn.register_prehook, wrong_kind, TypeError, "expected tuple"),
        (lambda y: x.register_post_accumulate_grad_hook, result, RuntimeError, "should return"),
    ):
        y = x * 2
        handle = register(y)(hook)
        with pytest.raises(kind, match=text):
            await y.sum().backward()
        handle.remove()
        x.grad = None


@pytest.mark.asyncio
async def test_while_a_hook_waits_the_rest_of_the_pass_goes_on():
    x, y = ag.ones(2, requires_grad=True), ag.ones(2, requires_grad=True)
    a, b = x * 2, y * 3
    others = asyncio.Event()

    async def wait(gradient):
        await others.wait()

    b.register_hook(wait)
    a.register_hook(lambda gradient: others.set())
    await (a * b).sum().backward()
    assert x.grad.tolist() == [6.0, 6.0]
    assert y.grad.tolist() == [6.0, 6.0]
