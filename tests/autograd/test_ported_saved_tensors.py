"""Programs about what nodes save: detached in place, hooked, checkpointed; in PyTorch and here."""

import gc
import os
import tempfile
import weakref

from functions import function_of
from parity import attempt, both, leaf, raised


def same(x):
    return x


def doubled(x):
    return 2 * x


@both
def test_an_operand_detached_in_place_can_not_be_used(T, log):
    for operation in (T.sin, T.exp, lambda x: x * x, lambda x: x * 2):
        x = leaf(T, 1.0).clone()
        y = operation(x)
        log(x.detach_() is x, x._version)
        try:
            yield y.sum().backward()
            log("has run")
        except RuntimeError as error:
            log(error)


@both
def test_what_is_saved_is_read_after_it_was_detached(T, log):
    x = leaf(T, 1.0).clone()
    y = x * x
    x.detach_()
    log(y.grad_fn._saved_self)
    x.requires_grad_()
    yield from raised(log, y.sum().backward)


@both
def test_others_do_not_mind_that_an_operand_was_detached(T, log):
    x, w = leaf(T, 1.0), leaf(T, 2.0)
    x.requires_grad_(False)
    yield (x * w).sum().backward()
    z = w.clone()
    whole = z[:]
    of_the_view, of_the_alias = whole * whole, z.detach() * w
    z.detach_()
    log(z._version, whole._version)
    yield (of_the_view + of_the_alias).sum().backward()
    log(w.grad)
    later = z * leaf(T, 3.0)
    yield later.sum().backward()


@both
def test_a_function_may_have_saved_what_is_detached(T, log):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    def backward(ctx, g):
        return g * ctx.saved_tensors[0]

    x = leaf(T, 3.0)
    y = x.clone()
    out = function_of(T, forward, backward).apply(y)
    y.detach_()
    yield out.sum().backward()
    log(x.grad)


@both
def test_changes_beside_detaching_are_still_seen(T, log):
    x = leaf(T, 1.0).clone()
    y = x * x
    x.detach_()
    with T.no_grad():
        x.add_(1)
    log(x._version)
    yield from raised(log, y.sum().backward)


@both
def test_hooks_of_one_saved_tensor(T, log):
    for is_leaf in (True, False):

        def given(is_leaf=is_leaf):
            x = leaf(T, 1.0, 2.0, 3.0)
            return x if is_leaf else 1 + x

        for pack, unpack in ((doubled, lambda x: x / 2), (doubled, same)):
            x = given()
            y = x * x
            y.grad_fn._raw_saved_self.register_hooks(pack, unpack)
            log(y.grad_fn._saved_self, y.grad_fn._saved_self.grad_fn is x.grad_fn)
            yield y.sum().backward()
            log(x.grad if is_leaf else None)
        x = given()
        y = x**3
        y.grad_fn._raw_saved_self.register_hooks(same, same)
        (g,) = yield T.autograd.grad(y.sum(), (x,), create_graph=True)
        log(y.grad_fn._saved_self.grad_fn is x.grad_fn)
        yield g.sum().backward()
        log(x.grad if is_leaf else None)
        y = x * x
        y.grad_fn._raw_saved_self.register_hooks(same, lambda x: 1)
        attempt(log, getattr, y.grad_fn, "_saved_self")
        y = x * x
        attempt(log, y.grad_fn._raw_saved_self.register_hooks, lambda x, b: x, same)
        attempt(log, y.grad_fn._raw_saved_self.register_hooks, lambda x: x.mul_(2), same)


@both
def test_hooks_of_all_saved_tensors(T, log):
    hooks = T.autograd.graph.saved_tensors_hooks
    for pack, unpack in ((same, same), (doubled, lambda x: x / 2), (doubled, same)):
        with hooks(pack, unpack):
            x = leaf(T, 1.0, 2.0)
            y = x * x
            log(y.grad_fn._saved_self, y.grad_fn._saved_other)
            yield y.sum().backward()
            log(x.grad)
    with hooks(lambda x: 3 * x, lambda x: 3 * x):
        outer = leaf(T, 1.0, 2.0)
        with hooks(lambda x: 5 * x, lambda x: 5 * x):
            inner = leaf(T, 1.0, 2.0)
            y = inner * inner
        z = outer * outer
    yield y.sum().backward()
    yield z.sum().backward()
    log(inner.grad, outer.grad)


@both
def test_hooks_see_what_the_derivative_saves(T, log):
    hooks = T.autograd.graph.saved_tensors_hooks
    for pack, around_forward, around_backward in (
        (same, True, True), (doubled, True, False), (doubled, False, True), (doubled, True, True),
    ):  # fmt: skip
        forward = hooks(pack, same) if around_forward else T.enable_grad()
        backward = hooks(pack, same) if around_backward else T.enable_grad()
        x = leaf(T, 1.0, 2.0)
        with forward:
            s = (x**3).sum()
        with backward:
            (g,) = yield T.autograd.grad(s, (x,), create_graph=True)
            yield g.sum().backward()
        log(x.grad)


@both
def test_numbers_are_not_packed(T, log):
    def refuse(x):
        raise ValueError("a number is nothing that hooks are for")

    x = leaf(T, 1.0, 2.0)
    with T.autograd.graph.saved_tensors_hooks(refuse, refuse):
        for y in (x * 3, x / 3, x - 3, 3 - x, x + x):
            log((yield T.autograd.grad(y.sum(), (x,))))
        for call in (lambda: x**2.5, lambda: x.clamp(0, 1), lambda: x.relu(), lambda: x.sin()):
            attempt(log, call)


@both
def test_what_the_hook_gives_is_changed_apart_from_the_original(T, log):
    x = leaf(T, 1.0)
    instead = x.clone()

    def forward(ctx, given):
        ctx.save_for_backward(given)
        return given.sin()

    def backward(ctx, g):
        (saved,) = ctx.saved_tensors
        before = x._version
        saved.add_(1)
        log(x._version == before)
        return g

    with T.autograd.graph.saved_tensors_hooks(lambda given: instead, same):
        y = function_of(T, forward, backward).apply(x)
    yield y.sum().backward()


@both
def test_save_on_cpu_around_and_in_a_checkpoint(T, log):
    graph, checkpoint = T.autograd.graph, T.utils.checkpoint.checkpoint
    x = leaf(T, 1.0, 0.5)
    with graph.save_on_cpu():
        y = checkpoint(lambda x: x.pow(2).pow(2), x.pow(2), use_reentrant=False).pow(2)
    yield y.sum().backward()
    log(x.grad)

    def within(x):
        x = x.pow(2)
        with graph.save_on_cpu():
            x = x.pow(2).pow(2)
        return x.pow(2)

    x.grad = None
    yield checkpoint(within, x, use_reentrant=False).sum().backward()
    log(x.grad)


@both
def test_tensors_saved_in_files(T, log):
    with tempfile.TemporaryDirectory() as folder:

        def pack(x):
            name = os.path.join(folder, str(len(os.listdir(folder))))
            T.save(x, name)
            return name

        with T.autograd.graph.saved_tensors_hooks(pack, T.load):
            x = T.ones(5).requires_grad_()
            y = x * x
            log(y.grad_fn._saved_self, len(os.listdir(folder)))
            yield y.sum().backward()
            log(x.grad)


@both
def test_a_result_that_its_node_leads_to_goes_with_the_collector(T, log):
    def forward(ctx, x, noted):
        x = x.clone()
        ctx.noted = noted
        ctx.save_for_backward(x)
        return x

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        log(x, ctx.noted["result"])
        return g * x, None

    custom = function_of(T, forward, backward)
    references = []
    for runs in (False, True):
        x, noted = leaf(T, 3.0), {}
        noted["result"] = y = custom.apply(x, noted)
        if runs:
            yield y.sum().backward()
            log(x.grad)
        references.append(weakref.ref(y))
        del y, noted, x
    gc.collect()
    log([reference() is None for reference in references])


@both
def test_hooks_that_hold_the_node_they_are_on(T, log):
    identity = function_of(T, lambda ctx, x: x, lambda ctx, g: g)

    class Held:
        pass

    def scope(custom, on_tensor, calls):
        x = leaf(T, 1.0)
        y = identity.apply(x) if custom else x.clone()
        node, held = y.grad_fn, Held()

        def hook(*_):
            calls.append((node, held))

        (y if on_tensor else node).register_hook(hook)
        return y.clone(), weakref.ref(held)

    scopes = []
    for custom in (True, False):
        for on_tensor in (True, False):
            calls = []
            scopes.append((*scope(custom, on_tensor, calls), calls))
    for _ in range(2):
        for y, _, _ in scopes:
            yield y.sum().backward(retain_graph=True)
        gc.collect()
    references = [reference for _, reference, _ in scopes]
    log([(len(calls), reference() is None) for _, reference, calls in scopes])
    for _, _, calls in scopes:
        calls.clear()
    scopes.clear()
    del y, _, calls
    gc.collect()
    log([reference() is None for reference in references])


@both
def test_what_can_run_twice(T, log):
    for operation in (
        lambda x: x * 2, lambda x: 2 * x, lambda x: x / 2, lambda x: x.clone().mul_(2),
        lambda x: x.clone().div_(2), lambda x: x + 2, lambda x: x - 2, lambda x: -x, lambda x: x[0],
        lambda x: x.sum(), lambda x: x.mean(), lambda x: x * x, lambda x: x.exp(), lambda x: x**2,
        lambda x: 2 / x, lambda x: x.view(2, 1), lambda x: x.clone(), lambda x: x.clamp(0, 1),
    ):  # fmt: skip
        x = leaf(T, 1.0, 2.0)
        y = operation(x)
        yield y.backward(T.ones_like(y))
        try:
            yield y.backward(T.ones_like(y))
            log(x.grad)
        except RuntimeError as error:
            log(error)


@both
def test_a_kept_graph_runs_until_it_is_not_kept(T, log):
    x = leaf(T, 1.0, 2.0)
    y = (x * 2).add_(1)
    y.add_(1)
    for retain_graph in (True, True, False):
        yield y.sum().backward(retain_graph=retain_graph)
        log(x.grad)
    yield from raised(log, T.autograd.grad, y.sum(), x, create_graph=True)


@both
def test_results_that_may_change_in_place(T, log):
    F = T.nn.functional
    for operation in (
        lambda x, w: x / w, lambda x, w: 2 / x, lambda x, w: F.leaky_relu(x), lambda x, w: F.elu(x),
        lambda x, w: x * w, lambda x, w: x.sin(), lambda x, w: T.tensor_split(x.clone(), 2)[0],
        lambda x, w: x.exp(), lambda x, w: x.tanh(), lambda x, w: x.sqrt(), lambda x, w: x.relu(),
        lambda x, w: x.clone().exp_(), lambda x, w: x.clone().sigmoid_(), lambda x, w: x.softmax(0),
    ):  # fmt: skip
        x, w = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
        for change in (lambda y: y.add_(1), lambda y: y[:1].mul_(2)):
            y = operation(x, w)
            change(y)
            yield from raised(log, y.sum().backward)
            log(x.grad, w.grad)


@both
def test_operands_that_may_change_in_place(T, log):
    for operation in (lambda x, w: x / w, lambda x, w: 2 / x, lambda x, w: x * w):
        x, w = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
        for place in (0, 1):
            given = [x.clone(), w.clone()]
            y = operation(*given)
            given[place].add_(1)
            yield from raised(log, y.sum().backward)
            log(x.grad, w.grad)


@both
def test_a_tensor_squeezed_of_nothing_is_a_view(T, log):
    for squeeze in (lambda x: x.squeeze(), lambda x: x.squeeze(0), lambda x: x.squeeze((0,))):
        x = leaf(T, 1.0, 2.0).clone()
        y = squeeze(x)
        log(y is x, y._is_view(), y.grad_fn)
        y.mul_(2)
        log(x, x._version, x.grad_fn)


@both
def test_a_source_with_more_axes_is_not_copied(T, log):
    for shape, given in (((), (1,)), ((2,), (1, 2)), ((2, 2), (2,)), ((2,), ())):
        attempt(log, lambda x, y: x.copy_(y), T.zeros(shape), T.ones(given))
        x = T.zeros(shape)
        x[...] = T.ones(given)
        log(x)


@both
def test_gradients_by_a_view_that_no_graph_leads_to(T, log):
    x = leaf(T, 1.0, 2.0)
    with T.no_grad():
        view = x[:1]
    log(view.requires_grad)
    log((yield T.autograd.grad((x * 2).sum(), view, allow_unused=True)))
